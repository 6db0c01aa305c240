"""What was found, in plain words, and no more than the numbers allow."""

from typing import NamedTuple

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.metrics import METRICS, Spread
from evenly.report.choice import Choice
from evenly.report.table import COLUMNS, SPLIT_WORDS, UNDEFINED, Values, difference, format_value, headline, is_clear, over_seeds

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
    """The finding in one sentence, and what to bear in mind with it."""

    finding: str
    cautions: str


def summarise(values: Values, choice: Choice) -> Summary:
    """The leading method against the baseline."""
    if not np.isfinite(over_seeds(values, choice.baseline, "average").mean):
        return Summary(_untested(values, choice), "")
    if choice.lead == choice.baseline:
        return Summary(_single(values, choice), joined(_rows(choice), "There is no other method to compare it with."))
    finding = against(values, choice.baseline, choice.lead, choice.split)
    return Summary(finding, joined(_rows(choice), seeds_caution(values, choice.baseline, choice.lead, "average"), _chosen(values, choice)))


def joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _untested(values: Values, choice: Choice) -> str:
    text = "No client has test rows, so nothing can be said about how evenly the clients are served."
    if headline(values) != CENTRAL:
        return text
    reached = [f"{label} reaches {value_text(values, label, CENTRAL)} %" for label in dict.fromkeys((choice.baseline, choice.lead))]
    return f"{text} On the central test set {' and '.join(reached)}."


def _single(values: Values, choice: Choice) -> str:
    label, first = choice.baseline, headline(values)
    accuracy, worst, variance = (value_text(values, label, m) for m in (first, "worst10", "variance"))
    what = f"an average {SPLIT_WORDS[choice.split]} accuracy of {accuracy} %"
    what = what if first == "average" else f"{accuracy} % on the central test set"
    return f"{label} reaches {what}; the worst-served 10 % of clients get {worst} %, and the variance between clients is {variance}."


def _rows(choice: Choice) -> str:
    return "" if choice.split == "test" else "No client has test rows of its own: clients are compared on their validation rows."


def _chosen(values: Values, choice: Choice) -> str:
    if not choice.chosen_on:
        return ""
    unseen = choice.chosen_on != choice.split
    rows = "validation rows" if unseen else f"the {SPLIT_WORDS[choice.split]} rows themselves, which flatters it"
    others = len(values) - 1
    return (
        f"{choice.lead} stands for the {others} methods compared with {choice.baseline}: no other serves the worst 10 % better on {rows}."
    )


def against(values: Values, baseline: str, label: str, split: str = "test") -> str:
    """One method compared with the baseline, in a sentence. A verb is used only where the seeds bear it out."""
    names = {metric: NAMES[metric].format(rows=SPLIT_WORDS[split]) for metric in ("variance", "worst10")}
    clauses = [change_in(values, baseline, label, metric, name) for metric, name in names.items()]
    return f"Compared with {baseline}, {label} {clauses[0]} and {clauses[1]}; {accuracy_change(values, baseline, label)}."


def change_in(values: Values, baseline: str, label: str, metric: str, name: str) -> str:
    """What a method does to a metric, called `name`, compared with the baseline: a verb and both numbers."""
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
    """What a method costs or gains in accuracy, compared with the baseline."""
    metric = headline(values)
    change = difference(values, label, baseline, metric)
    if not np.isfinite(change.mean):
        return f"{NAMES[metric]} cannot be compared"
    points = points_text(change)
    if points.startswith("0.0"):
        return f"{NAMES[metric]} stays the same"
    unclear = ", which may be chance" if np.isfinite(change.half_width) and not is_clear(change) else ""
    return f"{NAMES[metric]} changes by {points}{unclear}"


def points_text(change: Spread) -> str:
    """A change in percentage points, with its sign."""
    shown = f"{change.mean:+.1f}".replace("-", "−")
    return f"{'0.0' if shown in ('+0.0', '−0.0') else shown} points"


def seeds_caution(values: Values, baseline: str, label: str, metric: str) -> str:
    """What so few seeds mean for a comparison; nothing where there are enough."""
    seeds = difference(values, label, baseline, metric).seeds
    if seeds == 1:
        return "This is a single seed: there is no interval, and small differences may be chance."
    if seeds < FEW_SEEDS:
        return f"With only {seeds} seeds the 95 % intervals are wide; more seeds would narrow them."
    return ""


def noise_note(values: Values, choice: Choice, rows: float) -> str:
    """How much of the variance is only small test sets; empty where that is little."""
    label, word = choice.baseline, SPLIT_WORDS[choice.split]
    total, noise = over_seeds(values, label, "variance").mean, over_seeds(values, label, "variance_noise").mean
    if not np.isfinite(total):
        return ""
    if not np.isfinite(noise):
        return f"No client has two {word} rows, so it is not known how much of the variance is chance. Read it with care."
    if total == 0 or noise / total < NOTABLE_NOISE:
        return ""
    below = "All of it" if noise >= total else f"About {100 * noise / total:.0f} % of it"
    return (
        f"Half of the clients have {rows:.0f} {word} rows or fewer. With so few rows, accuracies differ by chance even where all "
        f"clients are served alike: that alone would cause a variance of about {format_value(noise, METRICS['variance_noise'])} "
        f"under {label}, where {format_value(total, METRICS['variance'])} is seen. {below} can be chance and need not be unfairness. "
        f"The column “{METRICS['variance_true'].title}” leaves that part out."
    )


def value_text(values: Values, label: str, metric: str) -> str:
    return format_value(over_seeds(values, label, metric).mean, COLUMNS[metric])
