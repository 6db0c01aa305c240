"""Choosing a hyper-parameter as q-FFL does: the fairest value whose average stays close to the baseline's.

Only validation rows are looked at; the test rows of the chosen value are read once, afterwards.
"""

from typing import NamedTuple

from evenly.experiment.results import Comparison, over_seeds


class Choice(NamedTuple):
    """The chosen method and, for every candidate, what was seen on validation rows."""

    chosen: str
    baseline: str
    average: dict[str, float]  # validation, mean over seeds, percent
    variance: dict[str, float]  # validation, mean over seeds, percent squared
    allowed: dict[str, bool]  # whether the average is within the margin


def choose_fairest(comparison: Comparison, baseline: str, *, within: float = 1.0) -> Choice:
    """The label with the least variance among those whose average accuracy is at most `within` points below the baseline's."""
    if baseline not in comparison.labels:
        raise ValueError(f"The baseline must be one of {comparison.labels}, got {baseline!r}.")
    if within < 0:
        raise ValueError(f"within must be at least 0 points, got {within}.")
    seen = {label: over_seeds(comparison, label, "valid") for label in comparison.labels}
    average = {label: seen[label]["average"].mean for label in seen}
    variance = {label: seen[label]["variance"].mean for label in seen}
    allowed = {label: average[label] >= average[baseline] - within for label in seen}
    chosen = min((label for label in seen if allowed[label]), key=lambda label: (variance[label], label != baseline))
    return Choice(chosen, baseline, average, variance, allowed)
