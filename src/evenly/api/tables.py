"""The DataFrames of `Results` beyond its figures: methods less a baseline, our figures beside a
paper's, rates of groups, and promises of differential privacy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from evenly.experiment.comparison import Comparison
from evenly.experiment.paper import PaperLine
from evenly.notation import unknown
from evenly.privacy.claims import CLIENT, RELATIONS, claim_words
from evenly.records import require
from evenly.report.group_values import RATES, group_rates, groupings
from evenly.report.paired_section import compare_all

if TYPE_CHECKING:
    import pandas as pd

# metric -> seed -> value, of one method
BySeed = Mapping[str, Mapping[int, float]]


def paired_table(
    methods: Mapping[str, BySeed], baseline: str, metrics: Sequence[str]
) -> "pd.DataFrame":
    """See `Results.differences`."""
    import pandas as pd

    require(bool(metrics), "At least one metric is needed, got none, such as 'worst10'.")
    present = set.intersection(*(set(own) for own in methods.values()))
    for name in metrics:
        if name not in present:
            raise unknown("metric", name, present)
    values = {
        label: {seed: {name: own[name][seed] for name in metrics} for seed in own[metrics[0]]}
        for label, own in methods.items()
    }
    names = ["metric", "difference", "low", "high", "p", "p_holm", "effect", "seeds"]
    rows = {
        (metric, line.label): (
            metric,
            line.change.difference,
            line.change.difference - line.change.half_width,
            line.change.difference + line.change.half_width,
            line.change.p,
            line.corrected,
            line.change.effect,
            line.change.seeds,
        )
        for metric, lines in compare_all(values, baseline, tuple(metrics)).items()
        for line in lines
    }
    index = pd.Index([label for _, label in rows], name="method")
    return pd.DataFrame(list(rows.values()), columns=names, index=index)


def paper_table(lines: Iterable[PaperLine]) -> "pd.DataFrame":
    """See `Results.paper`."""
    import pandas as pd

    names = [
        "split", "method", "metric", "paper", "paper_deviation", "ours", "ours_low", "ours_high",
        "difference",
    ]  # fmt: skip
    rows = [
        (
            line.split,
            line.label,
            line.metric,
            line.paper,
            line.paper_deviation,
            line.ours.mean,
            line.ours.mean - line.ours.half_width,
            line.ours.mean + line.ours.half_width,
            line.difference,
        )
        for line in lines
    ]
    return pd.DataFrame(rows, columns=names)


def group_table(comparison: Comparison, split: str) -> "pd.DataFrame":
    """See `Results.groups`."""
    import pandas as pd

    names = ["method", "grouping", "group", "unprivileged", "examples"]
    rates = [f"{rate}{end}" for rate in RATES for end in ("", "_low", "_high")]
    rows = []
    for grouping in groupings(comparison.federation):
        for label in comparison.labels:
            each = {rate: group_rates(comparison, grouping, label, split, rate) for rate in RATES}
            for g, name in enumerate(grouping.names):
                about = label, grouping.title, name, g in grouping.unprivileged
                found = [own[g] for own in each.values()]
                values = [value for one in found for value in (one.value, one.low, one.high)]
                rows.append([*about, each["accuracy"][g].rows, *values])
    return pd.DataFrame(rows, columns=[*names, *rates])


def privacy_table(comparison: Comparison) -> "pd.DataFrame":
    """See `Results.privacy`."""
    import pandas as pd

    promises = comparison.privacy
    known = {label: promises[label] for label in comparison.labels if label in promises}
    columns = ["unit", "epsilon", "delta", "noise_multiplier", "neighbours", "promise"]
    rows = [
        (
            own["unit"],
            own["epsilon"],
            own["delta"],
            own["noise_multiplier"],
            RELATIONS[own["relation"]] if own["unit"] == CLIENT else "one row more or less",
            claim_words(own),
        )
        for own in known.values()
    ]
    numbers = dict.fromkeys(columns[1:4], float)
    frame = pd.DataFrame(rows, columns=columns, index=pd.Index(list(known), name="method"))
    return frame.astype(numbers)
