"""What was found, in plain words, and no more than the numbers allow; and the opening of
the page.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.data.sides import Unprivileged, unprivileged_of
from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.experiment.promises import shared_splits
from evenly.metrics import METRICS, Spread
from evenly.metrics.statistics import all_alike, is_clear
from evenly.report.charts.focus import Focus
from evenly.report.disclosure import MANY
from evenly.report.group_values import group_split, with_groups
from evenly.report.html import Html, fill, join, paragraph, sentence_case
from evenly.report.setup_sections import divergence
from evenly.report.trust_sections import absence
from evenly.report.values import (
    COLUMNS,
    SPLIT_WORDS,
    UNDEFINED,
    Values,
    capitalise,
    defined_metrics,
    difference,
    format_value,
    headline,
    listed,
    over_seeds,
    signed,
    table_of,
)
from evenly.report.worst_served import sentences, whom_of, whom_table

# What was found, in plain words, and no more than the numbers allow.

NAMES = {
    "variance": "the variance of {rows} accuracy between clients",
    "worst10": "the accuracy of the worst-served 10 % of clients",
    "average": "the average accuracy",
    CENTRAL: "the accuracy on the central test set",
}
WITHOUT_UNIT = ("variance", "eod_abs")
FEW_SEEDS = 5
NOTABLE_NOISE = 0.05  # share of the variance from which on small test sets are worth a note


class Summary(NamedTuple):
    """The finding in one sentence, and its caveats."""

    finding: str
    cautions: str


def summarise(values: Values, focus: Focus) -> Summary:
    """Compare the leading method with the baseline."""
    if not np.isfinite(over_seeds(values, focus.baseline, "average").mean):
        return Summary(_untested(values, focus), "")
    if focus.lead == focus.baseline:
        return Summary(
            _single(values, focus),
            joined(_rows(focus), "There is no other method to compare it with."),
        )
    finding = against(values, focus.baseline, focus.lead, focus.split)
    return Summary(
        finding,
        joined(
            _rows(focus),
            seeds_caution(values, focus.baseline, focus.lead, "average"),
            _chosen(values, focus),
        ),
    )


def joined(*sentences: str) -> str:
    """Sentences as one text, without empty ones."""
    return " ".join(filter(None, sentences))


def _untested(values: Values, focus: Focus) -> str:
    text = (
        "No client has test rows, so nothing can be said about how evenly the clients are served."
    )
    if headline(values) != CENTRAL:
        return text
    reached = [
        f"{label} reaches {value_text(values, label, CENTRAL)} %"
        for label in dict.fromkeys((focus.baseline, focus.lead))
    ]
    return f"{text} On the central test set {' and '.join(reached)}."


def _single(values: Values, focus: Focus) -> str:
    label, first = focus.baseline, headline(values)
    accuracy, worst, variance = (
        value_text(values, label, m) for m in (first, "worst10", "variance")
    )
    what = f"an average {SPLIT_WORDS[focus.split]} accuracy of {accuracy} %"
    what = what if first == "average" else f"{accuracy} % on the central test set"
    return (
        f"{label} reaches {what}; the worst-served 10 % of clients get {worst} %, and the variance"
        f" between clients is {variance}."
    )


def _rows(focus: Focus) -> str:
    return (
        ""
        if focus.split == "test"
        else "No client has test rows of its own: clients are compared on their validation rows."
    )


def _chosen(values: Values, focus: Focus) -> str:
    if not focus.lead_split:
        return ""
    same = focus.lead_split == focus.split
    rows = f"the same {SPLIT_WORDS[focus.split]} rows" if same else "validation rows"
    return (
        f"These sentences describe {focus.lead}. Of the {len(values) - 1} methods that are compared"
        f" with {focus.baseline}, it has the highest accuracy for the worst-served 10 % of clients"
        f" on {rows}{', which favours it' if same else ''}; if several have it, it is the most"
        " accurate of them on average."
    )


def against(values: Values, baseline: str, label: str, split: str = "test") -> str:
    """Compare one method with the baseline in a sentence. Verbs of change are used only for clear
    differences.
    """
    names = {
        metric: NAMES[metric].format(rows=SPLIT_WORDS[split]) for metric in ("variance", "worst10")
    }
    clauses = [change_in(values, baseline, label, metric, name) for metric, name in names.items()]
    return (
        f"Compared with {baseline}, {label} {clauses[0]} and {clauses[1]};"
        f" {accuracy_change(values, baseline, label)}."
    )


def change_in(values: Values, baseline: str, label: str, metric: str, name: str) -> str:
    """How a method changes a metric, called `name`, compared with the baseline: a verb and both
    numbers.
    """
    before, after = value_text(values, baseline, metric), value_text(values, label, metric)
    unit = "" if metric in WITHOUT_UNIT else " %"
    span = f"from {before}{unit} to {after}{unit}"
    change = difference(values, label, baseline, metric)
    if not np.isfinite(change.mean) or UNDEFINED in (before, after):
        return f"cannot be compared in {name}"
    if before == after:
        return f"leaves {name} at {after}{unit}"
    if np.isfinite(change.half_width) and not is_clear(change):
        return f"does not clearly change {name} ({span})"
    return f"{'raises' if change.mean > 0 else 'lowers'} {name} {span}"


def accuracy_change(values: Values, baseline: str, label: str) -> str:
    """How a method changes the accuracy, compared with the baseline."""
    metric = headline(values)
    change = difference(values, label, baseline, metric)
    if not np.isfinite(change.mean):
        return f"{NAMES[metric]} cannot be compared"
    points = points_text(change)
    if points.startswith("0.0"):
        return f"{NAMES[metric]} stays the same"
    unclear = (
        ", which may be chance" if np.isfinite(change.half_width) and not is_clear(change) else ""
    )
    return f"{NAMES[metric]} changes by {points}{unclear}"


def points_text(change: Spread) -> str:
    """A change in percentage points, with its sign."""
    shown = f"{change.mean:+.1f}".replace("-", "−")
    return f"{'0.0' if shown in ('+0.0', '−0.0') else shown} points"


def seeds_caution(values: Values, baseline: str, label: str, metric: str) -> str:
    """A caveat for few seeds; empty if there are enough."""
    seeds = difference(values, label, baseline, metric).seeds
    if seeds == 1:
        return "This is a single seed: there is no interval, and small differences may be chance."
    if seeds < FEW_SEEDS:
        return f"With only {seeds} seeds the 95 % intervals are wide; more seeds would narrow them."
    return ""


def noise_note(values: Values, focus: Focus, rows: float) -> str:
    """How much of the variance is due to small test sets; empty if it is little."""
    label, word = focus.baseline, SPLIT_WORDS[focus.split]
    total, noise = (
        over_seeds(values, label, "variance").mean,
        over_seeds(values, label, "variance_noise").mean,
    )
    if not np.isfinite(total):
        return ""
    if not np.isfinite(noise):
        return (
            f"No client has two {word} rows, so it is not known how much of the variance is chance."
            " Read it with care."
        )
    if total == 0 or noise / total < NOTABLE_NOISE:
        return ""
    below = "All of it" if noise >= total else f"About {100 * noise / total:.0f} % of it"
    return (
        f"Half of the clients have {rows:.0f} {word} rows or fewer. With this few rows, accuracies"
        " differ by chance even if all clients are served equally well: chance alone would cause a"
        f" variance of about {format_value(noise, METRICS['variance_noise'])} under {label}. The"
        f" observed variance is {format_value(total, METRICS['variance'])}. {below} can be chance"
        f" and need not be unfairness. The column “{METRICS['variance_true'].title}” excludes that"
        " part."
    )


def value_text(values: Values, label: str, metric: str) -> str:
    """The mean over seeds, formatted."""
    return format_value(over_seeds(values, label, metric).mean, COLUMNS[metric])


# What happens to groups, in plain words, and no more than the numbers allow.

METRIC = "eod_abs"
WHAT = (
    "|EOD|, the gap between the true positive rates of the unprivileged ({}) and of everyone else,"
)
MOST_NAMED = 3


def summarise_groups(
    values: Values, focus: Focus, split: str, unprivileged: Unprivileged
) -> Summary:
    """Compare |EOD| of the leading method, and of the method with the least, with the baseline;
    empty without groups.

    `values` holds metrics of clients and groups; `split` is the split that groups are measured on.
    """
    if not focus.least_eod:
        return Summary("", "")
    baseline, lead, alike = focus.baseline, focus.lead, focus.least_eod
    what, caution = WHAT.format(unprivileged.compared), _group_rows(split, unprivileged)
    if not np.isfinite(over_seeds(values, baseline, METRIC).mean):
        return Summary(
            f"For the groups, {alike} has the least {what} {value_text(values, alike, METRIC)}.",
            caution,
        )
    sentences = [
        f"For the groups, {what} is {value_text(values, baseline, METRIC)} under {baseline}."
    ]
    if lead not in (baseline, alike):
        sentences.append(f"{lead} {change_in(values, baseline, lead, METRIC, 'it')}.")
    if alike != baseline:
        least = f"Of all methods it is smallest under {alike}, which" if len(values) > 2 else alike
        sentences.append(
            f"{least} {change_in(values, baseline, alike, METRIC, 'it')};"
            f" {accuracy_change(values, baseline, alike)}."
        )
    elif len(values) > 1:
        sentences.append("No other method has a smaller |EOD|.")
    return Summary(
        joined(*sentences),
        joined(caution, _chosen_groups(values, focus), _seeds(values, focus)),
    )


def _group_rows(split: str, unprivileged: Unprivileged) -> str:
    rows = (
        "the central test set"
        if split == CENTRAL
        else f"the {SPLIT_WORDS[split]} rows of all clients together"
    )
    others = (
        f"Unprivileged in the other columns: {', '.join(unprivileged.others)}."
        if unprivileged.others
        else ""
    )
    return joined(f"Groups are compared on {rows}.", others)


def _chosen_groups(values: Values, focus: Focus) -> str:
    """The caveat that the least |EOD| was selected on the same rows, and the methods that are not
    clearly worse.
    """
    if len(values) < 3:
        return ""
    near = [row.label for row in table_of(values, metrics=(METRIC,)).rows if row.cells[METRIC].near]
    flattered = (
        ""
        if focus.least_eod == focus.baseline
        else f"{focus.least_eod} was selected by its |EOD| on these same rows, which favours it."
    )
    if not near:
        return flattered
    if len(near) > MOST_NAMED:
        named = f"{len(near)} of the {len(values) - 1} other methods"
    else:
        named = " and ".join(filter(None, (listed(near[:-1]), near[-1])))
    be = "is" if len(near) == 1 else "are"
    return joined(
        flattered, f"Over these seeds, {named} {be} not clearly worse than {focus.least_eod}."
    )


def _seeds(values: Values, focus: Focus) -> str:
    """The caveat for few seeds, unless the summary of clients already states it."""
    silent = focus.least_eod == focus.baseline or np.isfinite(
        over_seeds(values, focus.baseline, "average").mean
    )
    return "" if silent else seeds_caution(values, focus.baseline, focus.least_eod, METRIC)


# The top of the page: whom the model serves worst, what the compared methods change, and the three
# numbers that matter most.

KICKER = "how evenly a federated model serves its clients"
WHOSE = {"worst10": " of clients", "variance": " between clients"}  # after a metric's title


WITHHELD = (
    "A method of this comparison is private for clients. Figures of evaluations are computed from"
    " the clients' data without noise and are withheld from this page. Whoever trained has them in"
    " Python (evenly.Results). In a simulation, dp(histogram=5) releases a noised histogram of"
    " client accuracies; dp(publish=true) shows all figures and claims nothing."
)


def withheld_opening(comparison: Comparison) -> Html:
    """The top of a page without figures."""
    return fill(
        "opening.html", kicker=comparison.name if comparison.title else KICKER,
        title=page_title(comparison), lead=paragraph(WITHHELD), warnings="", table="", hidden=0,
        clients=comparison.federation.clients, methods=len(comparison.labels), summaries=[],
        tiles=[], baseline="", lead_method="",
        notes=list(filter(None, map(str.strip, comparison.notes.split("\n\n")))),
    )  # fmt: skip


def opening(comparison: Comparison, values: Values, focus: Focus) -> Html:
    """The top of the page: title, worst-served client and group, what the methods change, and the
    experiment's notes.
    """
    whom = whom_of(comparison, values, focus)
    groups = summarise_groups(
        with_groups(comparison, values, focus.least),
        focus,
        group_split(comparison),
        unprivileged_of(comparison.federation),
    )
    metrics = defined_metrics(
        {focus.baseline: values[focus.baseline]}, (headline(values), "worst10", "variance")
    )
    return fill(
        "opening.html",
        kicker=comparison.name if comparison.title else KICKER,
        title=page_title(comparison),
        lead=lead_of(sentences(whom)) if whom else "",
        warnings=[
            *absence(comparison, focus.hidden),
            *divergence(comparison, shared_splits(comparison.privacy)),
        ],
        table=whom_table(whom) if whom else "",
        # Small clients are often those that are served worst, so a page without them may look
        # better than the results are.
        hidden=len(focus.hidden) if len(focus.hidden) <= MANY else 0,
        clients=comparison.federation.clients,
        methods=len(values),
        summaries=[summarise(values, focus), groups],
        tiles=[_tile(values, focus, metric) for metric in metrics],
        baseline=focus.baseline,
        lead_method=focus.lead,
        notes=list(filter(None, map(str.strip, comparison.notes.split("\n\n")))),
    )


def page_title(comparison: Comparison) -> str:
    """The experiment's title or, without one, the data and the question."""
    methods, data = comparison.labels, comparison.federation.name
    question = (
        f"which of {len(methods)} methods serves clients most evenly?"
        if len(methods) > 1
        else f"whom does {methods[0]} serve worst?"
    )
    return comparison.title or f"{capitalise(data)}: {question}"


def lead_of(said: Sequence[str]) -> Html:
    """The first sentence in large type, the others after it."""
    first, *rest = said
    return join([paragraph(first, "lead"), *([paragraph(" ".join(rest), "next")] if rest else [])])


class _Tile(NamedTuple):
    """One of the numbers at the top of the page; `before` is empty where there is nothing to
    compare with.
    """

    title: str
    before: str
    after: str
    change: str


def _tile(values: Values, focus: Focus, name: str) -> _Tile:
    metric = COLUMNS[name]
    unit = "" if name == "variance" else " %"
    before, after = (
        _with_unit(format_value(over_seeds(values, label, name).mean, metric), unit)
        for label in (focus.baseline, focus.lead)
    )
    rows = "" if focus.split == "test" or name == CENTRAL else ", validation rows"
    title = f"{sentence_case(metric.title)}{WHOSE.get(name, '')}{rows}"
    if focus.lead == focus.baseline:
        return _Tile(title, "", after, "")
    change = difference(values, focus.lead, focus.baseline, name)
    if not np.isfinite(change.half_width):
        return _Tile(title, before, after, f"change: {signed(format_value(change.mean, metric))}")
    if all_alike(change):
        seeds = "both seeds" if change.seeds == 2 else f"all {change.seeds} seeds"
        mean = signed(format_value(change.mean, metric))
        return _Tile(title, before, after, f"change: {mean}, the same in {seeds}")
    low, high = (
        signed(format_value(change.mean + side * change.half_width, metric)) for side in (-1, 1)
    )
    return _Tile(title, before, after, f"change: {low} to {high} (95 % interval)")


def _with_unit(text: str, unit: str) -> str:
    return text if text == UNDEFINED else f"{text}{unit}"
