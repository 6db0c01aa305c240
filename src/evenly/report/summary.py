"""What was found, in plain words, and no more than the numbers allow."""

from typing import NamedTuple

import numpy as np

from evenly.metrics import METRICS, Spread
from evenly.report.choice import Choice
from evenly.report.table import UNDEFINED, Values, difference, format_value, is_clear, over_seeds

NAMES = {
    "variance": "the variance of test accuracy between clients",
    "worst10": "the accuracy of the worst-served 10 % of clients",
    "average": "the average accuracy",
}
FEW_SEEDS = 5
NOTABLE_NOISE = 0.05  # share of the variance from which on small test sets are worth a note


class Summary(NamedTuple):
    """The finding in one sentence, and what to bear in mind with it."""

    finding: str
    cautions: str


def summarise(values: Values, choice: Choice) -> Summary:
    """The leading method against the baseline."""
    if not np.isfinite(over_seeds(values, choice.baseline, "average").mean):
        return Summary("No client has test rows, so nothing can be said about how evenly the clients are served.", "")
    if choice.lead == choice.baseline:
        return Summary(_single(values, choice.baseline), "There is no other method to compare it with.")
    return Summary(against(values, choice.baseline, choice.lead), " ".join(filter(None, (_seeds(values, choice), _chosen(values, choice)))))


def _single(values: Values, label: str) -> str:
    average, worst, variance = (_value(values, label, m) for m in ("average", "worst10", "variance"))
    return (
        f"{label} reaches an average test accuracy of {average} %; the worst-served 10 % of clients get {worst} %, "
        f"and the variance between clients is {variance}."
    )


def _chosen(values: Values, choice: Choice) -> str:
    if not choice.chosen_on:
        return ""
    rows = "validation rows" if choice.chosen_on == "valid" else "the test rows themselves, which flatters it"
    others = len(values) - 1
    return (
        f"{choice.lead} stands for the {others} methods compared with {choice.baseline}: no other serves the worst 10 % better on {rows}."
    )


def against(values: Values, baseline: str, label: str) -> str:
    """One method compared with the baseline, in a sentence. A verb is used only where the seeds bear it out."""
    clauses = [_clause(values, baseline, label, metric) for metric in ("variance", "worst10")]
    return f"Compared with {baseline}, {label} {clauses[0]} and {clauses[1]}; {_average(values, baseline, label)}."


def _clause(values: Values, baseline: str, label: str, metric: str) -> str:
    before, after = _value(values, baseline, metric), _value(values, label, metric)
    unit = " %" if metric != "variance" else ""
    span = f"from {before}{unit} to {after}{unit}"
    change = difference(values, label, baseline, metric)
    if not np.isfinite(change.mean) or UNDEFINED in (before, after):
        return f"cannot be compared in {NAMES[metric]}"
    if before == after:
        return f"leaves {NAMES[metric]} at {after}{unit}"
    if np.isfinite(change.half_width) and not is_clear(change):
        return f"does not clearly change {NAMES[metric]} ({span})"
    return f"{'raises' if change.mean > 0 else 'lowers'} {NAMES[metric]} {span}"


def _average(values: Values, baseline: str, label: str) -> str:
    change = difference(values, label, baseline, "average")
    if not np.isfinite(change.mean):
        return "the averages cannot be compared"
    points = points_text(change)
    if points.startswith("0.0"):
        return "the average accuracy stays the same"
    unclear = ", which may be chance" if np.isfinite(change.half_width) and not is_clear(change) else ""
    return f"the average accuracy changes by {points}{unclear}"


def points_text(change: Spread) -> str:
    """A change in percentage points, with its sign."""
    shown = f"{change.mean:+.1f}".replace("-", "−")
    return f"{'0.0' if shown in ('+0.0', '−0.0') else shown} points"


def _seeds(values: Values, choice: Choice) -> str:
    seeds = difference(values, choice.lead, choice.baseline, "average").seeds
    if seeds == 1:
        return "This is a single seed: there is no interval, and small differences may be chance."
    if seeds < FEW_SEEDS:
        return f"With only {seeds} seeds the 95 % intervals are wide; more seeds would narrow them."
    return ""


def noise_note(values: Values, choice: Choice, rows: float) -> str:
    """How much of the variance is only small test sets; empty where that is little."""
    label = choice.baseline
    total, noise = over_seeds(values, label, "variance").mean, over_seeds(values, label, "variance_noise").mean
    if not np.isfinite(total):
        return ""
    if not np.isfinite(noise):
        return "No client has two test rows, so it is not known how much of the variance is chance. Read it with care."
    if total == 0 or noise / total < NOTABLE_NOISE:
        return ""
    below = "All of it" if noise >= total else f"About {100 * noise / total:.0f} % of it"
    return (
        f"Half of the clients have {rows:.0f} test rows or fewer. With so few rows, accuracies differ by chance even where all "
        f"clients are served alike: that alone would cause a variance of about {format_value(noise, METRICS['variance_noise'])} "
        f"under {label}, where {format_value(total, METRICS['variance'])} is seen. {below} is therefore not unfairness. "
        "The column “variance less sampling” leaves that part out."
    )


def _value(values: Values, label: str, metric: str) -> str:
    return format_value(over_seeds(values, label, metric).mean, METRICS[metric])
