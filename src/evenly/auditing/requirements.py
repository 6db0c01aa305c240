"""Requirements on an audit, such as `impact_ratio>=0.8`: whether a model may be released.

A requirement names a metric of the audit, a comparison and a number. It is met if every figure of
that metric about the model, all clients, a sensitive column or all intersections satisfies it. A
column's figures are those of the value that the user named as unprivileged, or else of every value
that is compared with all others. Values that are hidden cannot be compared. If nothing that a
requirement is about is shown, it is not met.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from evenly.auditing.estimates import Estimate
from evenly.auditing.views import AGAINST, GroupView
from evenly.notation import unknown

if TYPE_CHECKING:
    from evenly.auditing.result import Audit

FORM = re.compile(r"\s*([a-z0-9_]+)\s*(>=|<=|>|<)\s*(\S+)\s*")
COMPARISONS = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
}
SIGNS = {">=": "at least", "<=": "at most", ">": "above", "<": "below"}


class Requirement(NamedTuple):
    """A bound on a metric."""

    metric: str
    comparison: str
    bound: float

    def __str__(self) -> str:
        return f"{self.metric} {SIGNS[self.comparison]} {self.bound:g}"


class RequirementCheck(NamedTuple):
    """Whether a requirement is met, and the sentence that says so."""

    requirement: Requirement
    met: bool
    sentence: str


def parse_requirement(text: str) -> Requirement:
    """Read a requirement.

    >>> parse_requirement("impact_ratio >= 0.8")
    Requirement(metric='impact_ratio', comparison='>=', bound=0.8)
    """
    found = FORM.fullmatch(text)
    try:
        bound = float(found[3]) if found else math.nan
    except ValueError:
        bound = math.nan
    if found is None or not math.isfinite(bound):
        raise ValueError(
            "A requirement must be a metric, one of >=, <=, > and <, and a number, such as"
            f" impact_ratio>=0.8; got {text!r}."
        )
    return Requirement(found[1], found[2], bound)


def check_requirements(audit: "Audit", texts: tuple[str, ...]) -> tuple[RequirementCheck, ...]:
    """Check requirements. Raises a ValueError if one cannot be read, or names a metric that this
    audit does not have.
    """
    return tuple(_check(audit, parse_requirement(text)) for text in texts)


def _check(audit: "Audit", asked: Requirement) -> RequirementCheck:
    found = list(_figures(audit, asked.metric))
    if not found:
        raise unknown("metric", asked.metric, sorted(set(_metrics(audit))), " in this audit")
    unit = next((f.unit for f in audit.figures if f.metric == asked.metric), "")
    if unit == "percent" and asked.comparison in (">", ">=") and 0 < asked.bound <= 1:
        raise ValueError(
            f"{asked.metric} is in percent, so nearly every model has at least {asked.bound:g}."
            f" Write {asked.metric}{asked.comparison}{100 * asked.bound:g}."
        )
    sign = " %" if unit == "percent" else ""
    text = f"{asked}{sign}"
    fails = [
        (who, each)
        for who, each in found
        if not (each.has_value and COMPARISONS[asked.comparison](each.value, asked.bound))
    ]
    compared = [(who, each) for who, each in fails if each.has_value]
    # a value that was never compared says nothing, but a column without any comparison is unknown
    columns = {who.partition("=")[0] for who, each in found if each.has_value}
    unseen = [who for who, each in fails if who.partition("=")[0] not in columns]
    if compared:
        who, worst = max(compared, key=lambda one: abs(one[1].value - asked.bound))
        return RequirementCheck(asked, False, f"Not met: {text}. {_words(who, worst, sign)}.")
    if unseen:
        why = "it is hidden or undefined"
        return RequirementCheck(
            asked, False, f"Not met: {text}. It cannot be checked for {unseen[0]}, because {why}."
        )
    who, closest = min(
        ((who, each) for who, each in found if each.has_value),
        key=lambda one: abs(one[1].value - asked.bound),
    )
    return RequirementCheck(asked, True, f"Met: {text}. {_words(who, closest, sign)}.")


def _words(who: str, estimate: Estimate, sign: str) -> str:
    ends = (
        f" (95 % interval {estimate.low:.3g} to {estimate.high:.3g}{sign})"
        if estimate.has_interval
        else ""
    )
    return f"For {who} it is {estimate.value:.3g}{sign}{ends}"


def _figures(audit: "Audit", metric: str) -> Iterator[tuple[str, Estimate]]:
    """Every figure that a requirement on this metric is about, with whom it is about."""
    for who, figures in _tables(audit):
        if metric in figures:
            yield who, figures[metric]
    for view in audit.groups:
        if metric in AGAINST and metric in view.against:
            for g in _compared(view):
                yield f"{view.title}={view.names[g]}", view.against[metric][g]


def _compared(view: GroupView) -> list[int]:
    """The values that a column's requirement is about."""
    named = view.unprivileged
    return [named] if named is not None and not view.by_default else [*range(len(view.names))]


def _tables(audit: "Audit") -> Iterator[tuple[str, Mapping[str, Estimate]]]:
    yield "the model", audit.whole
    if audit.clients is not None:
        yield "the clients", audit.clients.summary
    for view in audit.groups:
        yield view.title, view.ranges
        yield (
            view.title,
            {
                part: estimate
                for metric, origin in view.origins.items()
                for part, estimate in (
                    (f"{metric}_within_clients", origin.within),
                    (f"{metric}_between_clients", origin.between),
                )
            },
        )
    if audit.intersections is not None:
        yield "intersections", audit.intersections.ranges


def _metrics(audit: "Audit") -> Iterator[str]:
    for _, figures in _tables(audit):
        yield from figures
    for view in audit.groups:
        yield from view.against
