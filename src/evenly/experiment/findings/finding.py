"""A question about the thesis, answered, and how its numbers are written."""

from typing import NamedTuple

import numpy as np

from evenly.experiment.findings.pairs import Tally
from evenly.metrics import Spread


class Finding(NamedTuple):
    """One question, answered."""

    key: str
    question: str
    answer: str  # one sentence
    thesis: str  # what the thesis says
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # the numbers


def lead(counts: Tally) -> str:
    """The first words of an answer to "is it lower?", no stronger than the counts.

    >>> lead(Tally(lower=8, undecided=145, higher=7))
    'Mostly undecided'
    """
    if counts.lower == counts.total:
        return "Yes"
    if counts.undecided * 2 > counts.total:
        return "Mostly undecided"
    if not counts.higher:
        return "Where the seeds decide it, yes"
    if not counts.lower:
        return "No"
    return "Mostly, but not always" if counts.lower > counts.higher else "Mostly not"


def score(value: Spread) -> str:
    """A value rather than a change: without a plus."""
    return gap(value).removeprefix("+")


def gap(value: Spread) -> str:
    return _shown(value, 3)


def points(value: Spread) -> str:
    return _shown(value, 2)


def _shown(value: Spread, digits: int) -> str:
    if not np.isfinite(value.mean):
        return "n/a"
    half = f" ± {value.half_width:.{digits}f}" if np.isfinite(value.half_width) else ""
    return f"{value.mean:+.{digits}f}{half}"
