"""Which groups a model treats differently from all others, beyond what chance could explain.

An audit compares every visible value of each sensitive column with all others, unless the user
named the unprivileged value. Whoever makes many comparisons finds some difference by chance.
Therefore Holm's correction adjusts the p values for all comparisons of the audit: if no group were
treated differently, the probability that any difference is called statistically significant would
be at most 5 %.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from evenly.auditing.estimates import Estimate, p_value
from evenly.auditing.result import Audit
from evenly.auditing.views import GroupView
from evenly.data.encoding import MISSING as NO_VALUE
from evenly.metrics import holm

ALPHA = 0.05
# the compared rates with a favourable label and without one, by the metric of their difference
WITH_LABEL = {
    "spd": "selection rate",
    "eod": "true positive rate",
    "fpr_diff": "false positive rate",
}
WITHOUT_LABEL = {"acc_diff": "accuracy"}
RATE_OF = WITH_LABEL | WITHOUT_LABEL


class GroupGap(NamedTuple):
    """The difference between a group and all others in one rate, and its p value."""

    column: str
    group: int
    metric: str
    estimate: Estimate
    p: float = np.nan  # after Holm's correction over all comparisons of the audit

    @property
    def size(self) -> float:
        """The absolute difference."""
        return abs(self.estimate.value)

    @property
    def significant(self) -> bool:
        """Whether the difference is statistically significant after the correction."""
        return self.p <= ALPHA


def group_gaps(audit: Audit) -> tuple[GroupGap, ...]:
    """All comparisons of the columns whose unprivileged value the user did not name, the largest
    difference of each column first.
    """
    found = [gap for view in audit.groups if view.by_default for gap in _gaps(view)]
    adjusted = holm([p_value(gap.estimate) for gap in found]).tolist()
    tested = [gap._replace(p=p) for gap, p in zip(found, adjusted, strict=True)]
    return tuple(sorted(tested, key=lambda gap: -gap.size))


def of_column(gaps: Sequence[GroupGap], view: GroupView) -> list[GroupGap]:
    """The comparisons of one column, statistically significant ones first."""
    own = [gap for gap in gaps if gap.column == view.title]
    return sorted(own, key=lambda gap: not gap.significant)


def highlighted(view: GroupView, audit: Audit) -> int | None:
    """The group that charts and tables highlight: the one that the user named, or else the one
    with the largest statistically significant difference, or else the one with the lowest rate.
    """
    first = next(iter(of_column(group_gaps(audit), view)), None) if view.by_default else None
    return first.group if first is not None and first.significant else view.unprivileged


def _gaps(view: GroupView) -> Iterator[GroupGap]:
    """The differences of every visible group. Two groups are the two sides of one comparison, so
    only the one with the lower rate is kept.
    """
    known = [g for g, name in enumerate(view.names) if name != NO_VALUE]
    two = len(known) == 2 and not view.veil.groups.cells.any()
    for metric in WITH_LABEL if "tpr" in view.rates else WITHOUT_LABEL:
        gaps = [(g, view.against[metric][g]) for g in known]
        gaps = [(g, gap) for g, gap in gaps if gap.has_interval]
        if two and len(gaps) == 2:
            gaps = [min(gaps, key=lambda one: one[1].value)]
        yield from (GroupGap(view.title, g, metric, gap) for g, gap in gaps)
