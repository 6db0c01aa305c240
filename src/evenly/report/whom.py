"""Whom a model serves worst: the sentences and the table that open every page, of comparisons, of deployments and of audits.

They answer first whether the model is worth anything: a trivial model predicts the most frequent label for everybody. Then they name
the client and the group that are served worst. Whoever fills in these figures leaves out what must be hidden.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.report.grid import Column, Entry, grid
from evenly.report.markup import Html, element, unbroken
from evenly.report.method_table import dash

CHANCE = ", which chance alone could explain"
SHOWN = " that are shown"
SAME = 0.05  # points: smaller gaps are shown as 0.0
MOST_NAMED = 3
NORMAL95 = 1.96


class Part(NamedTuple):
    """Some of the people that a model is measured on; rates in percent, NaN where they are undefined or may not be shown."""

    name: str
    rows: float
    accuracy: float
    low: float = np.nan  # ends of a 95 % interval
    high: float = np.nan
    tpr: float = np.nan
    fpr: float = np.nan
    average: float = np.nan  # everybody's accuracy on the same kind of rows
    where: str = ""  # which rows, if not those that the whole model is measured on
    among: str = ""  # of whom it is the worst served, if not of all


class Trivial(NamedTuple):
    """The model that predicts one label for everybody, on the same rows."""

    label: str
    learnt: bool  # whether the label is the most frequent one in training rows; else in the measured rows themselves
    accuracy: float  # percent
    half_width: float = 0.0  # of the 95 % interval of the model's accuracy less this one, in points
    positive: bool = False  # whether the label is the favourable one


class Whom(NamedTuple):
    """What opens a page."""

    model: str  # as a sentence begins with it
    whole: Part
    trivial: Trivial | None
    measured: str = ""  # on which rows, in a sentence
    client: Part | None = None  # the worst served, where there are several
    group: Part | None = None
    intersection: Part | None = None
    unit: str = "rows"  # or people
    favourable: str = ""  # with two labels, the one that rates are of
    as_bad: tuple[str, ...] = ()  # other methods that are no better than the trivial model
    others: int = 0  # methods besides the model


def sentences(whom: Whom) -> list[str]:
    """The model against the trivial one; then the client and the group that it serves worst."""
    parts = {"clients": whom.client, "groups": whom.group, "intersections of groups": whom.intersection}
    return [_first(whom), *(_worst(whom, kind, own) for kind, own in parts.items() if own is not None)]


def no_better(accuracy: float, trivial: Trivial | None) -> bool:
    """Whether a model is right no more often than the trivial one."""
    return trivial is not None and accuracy <= trivial.accuracy


def gap_half_width(gained: float, lost: float, rows: float) -> float:
    """Half of the 95 % interval of one model's accuracy less another's on the same rows, in points.

    `gained` are the rows that only the first predicts right, `lost` those that only the second does.

    >>> round(gap_half_width(30, 10, 100), 1)
    11.8
    """
    return 100 * NORMAL95 * float(np.sqrt(gained + lost - (gained - lost) ** 2 / rows)) / rows


def _first(whom: Whom) -> str:
    whole, trivial = whom.whole, whom.trivial
    ends = f" (95 % interval {whole.low:.1f} to {whole.high:.1f})" if np.isfinite([whole.low, whole.high]).all() else ""
    right = f"right for {_right(whom, whole)}{ends}"
    if trivial is None:
        return f"{whom.model} is {right}."
    where = " in the training rows" if trivial.learnt else ""
    always = f"always predicting “{trivial.label}”, the most frequent label{where},"
    if no_better(whole.accuracy, trivial):
        return f"{whom.model} is no better than a trivial model: it is {right}, and {always} for {trivial.accuracy:.1f} %{_neither(whom)}."
    unclear = whole.accuracy - trivial.accuracy <= trivial.half_width
    if unclear:
        verdict = f"{whom.model} is not clearly better than a trivial model: it is {right}, and {always} for {trivial.accuracy:.1f} %"
        return f"{verdict}{CHANCE}{_also(whom)}."
    return f"{whom.model} is {right}; {always} would be right for {trivial.accuracy:.1f} %{_also(whom)}."


def _neither(whom: Whom) -> str:
    if not whom.as_bad:
        return ""
    every = len(whom.as_bad) == whom.others
    return ", and no other method is better" if every else f", and neither {_be(whom)} {_listed(whom.as_bad)}"


def _also(whom: Whom) -> str:
    return f"; {_listed(whom.as_bad)} {_be(whom)} no better than that" if whom.as_bad else ""


def _be(whom: Whom) -> str:
    return "is" if len(whom.as_bad) == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{len(names)} other methods"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _worst(whom: Whom, kind: str, part: Part) -> str:
    gap = part.accuracy - part.average
    right = f"Of the {kind}{part.among}, it serves {part.name} worst: right for {_right(whom, part)}{part.where}"
    if abs(gap) < SAME:
        return f"{right}, as on average."
    doubt = CHANCE if part.low <= part.average <= part.high else ""
    return f"{right}, {abs(gap):.1f} points {'below' if gap < 0 else 'above'} the average{doubt}."


def _right(whom: Whom, part: Part) -> str:
    return f"{part.accuracy:.1f} % of {_count(part.rows)} {whom.unit}"


def _count(rows: float) -> str:
    return f"{rows:,.0f}"


def whom_table(whom: Whom) -> Html:
    """The same figures in a table, with intervals and, where there are two labels, true and false positive rates."""
    columns = [Column("Whom"), Column(whom.unit.capitalize()), Column("Accuracy", "%"), Column("Against the average", "points")]
    columns += [Column("True positive rate", "%"), Column("False positive rate", "%")] if whom.favourable else []
    named = {"Worst-served client": whom.client, "Worst-served group": whom.group, "Worst-served intersection": whom.intersection}
    rows = [_row(whom, "Everybody", whom.whole)]
    rows += [_row(whom, f"{title}: {own.name}{own.where}", own) for title, own in named.items() if own is not None]
    if whom.trivial is not None:
        rate = 100.0 if whom.trivial.positive else 0.0
        model = Part("", whom.whole.rows, whom.trivial.accuracy, tpr=rate, fpr=rate, average=whom.whole.accuracy)
        rows.append(_row(whom, f"A trivial model: always “{whom.trivial.label}”", model))
    positive = f" A positive is “{whom.favourable}”, the favourable label." if whom.favourable else ""
    caption = f"{whom.measured} Below an accuracy its 95 % interval: what chance allows with so many {whom.unit}.{positive}"
    return grid(unbroken(caption), columns, rows, kind="compact")


def _row(whom: Whom, title: str, part: Part) -> list[str | Entry]:
    gap = part.accuracy - part.average
    against = "–" if part is whom.whole else f"{gap:+.1f}".replace("-", "−") if abs(gap) >= SAME else "0.0"
    interval = f"{part.low:.0f} to {part.high:.0f}" if np.isfinite([part.low, part.high]).all() else ""
    small = [element("small", {"class": "interval"}, interval)] if interval else []
    cells = [unbroken(title), _count(part.rows), Entry(element("span", None, f"{part.accuracy:.1f}", *small), ""), against]
    return [*cells, *((rate_entry(part.tpr), rate_entry(part.fpr)) if whom.favourable else ())]


def rate_entry(value: float) -> str | Entry:
    """A rate in percent; a dash where it is undefined or may not be shown."""
    return f"{value:.1f}" if np.isfinite(value) else dash("there are no such rows, or too few to be shown")
