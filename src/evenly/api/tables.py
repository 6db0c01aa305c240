"""The DataFrames of `Results` that compare: methods with a baseline, and our figures with a
paper's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from evenly.experiment.paper import PaperLine
from evenly.notation import unknown
from evenly.records import require
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
