"""Pieces that the sections of an audit's page share."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from evenly.auditing.estimates import Estimate
from evenly.data.sensitive import FEW
from evenly.report.html import Entry, Figure, Html, element, figure_html, join
from evenly.report.tables import dash

HIDDEN = "hidden: it rests on too few people, or would give such a figure away"


class Part(NamedTuple):
    """A section of the page and the specifications of its charts."""

    html: Html
    specs: dict[str, Any]


def figures(found: Sequence[Figure]) -> Html:
    """Charts side by side."""
    return element("div", {"class": f"figures of-{len(found)} later"}, *map(figure_html, found))


def specs(found: Sequence[Figure]) -> dict[str, Any]:
    return {figure.identifier: figure.spec for figure in found}


def rate(found: Estimate, *, hidden: bool = False) -> Entry:
    """A rate in percent above its interval; a star where it rests on few people."""
    if not found.known:
        return dash(HIDDEN if hidden else "there is nothing to divide by")
    star = " *" if found.rows < FEW else ""
    return _entry(f"{found.value:.1f}{star}", f"{found.low:.1f} to {found.high:.1f}" if found.ranged else "")


def plain(found: Estimate, *, hidden: bool = False, digits: int = 3) -> Entry:
    """An index or a ratio above its interval."""
    if not found.known:
        return dash(HIDDEN if hidden else "there is nothing to divide by")
    value, *ends = (proper(f"{end:.{digits}f}") for end in found[:3])
    return _entry(value, " to ".join(ends) if found.ranged else "")


def proper(number: str) -> str:
    """A number with a minus sign, and without one where it is 0.

    >>> proper("-0.0")
    '0.0'
    """
    return number.lstrip("-") if not number.strip("-0.") else number.replace("-", "−")


def apart(content: Html) -> Html:
    """With some space above."""
    return element("div", {"class": "later"}, content)


def identifier(*words: str) -> str:
    """An identifier of a place on the page, from words of our own and numbers only: never from the table's words."""
    return "-".join(("chart", *words))


def _entry(value: str, ends: str) -> Entry:
    interval = [element("small", {"class": "interval"}, ends)] if ends else []
    return Entry(join([element("span", {"class": "nowrap"}, value), *interval]), "")
