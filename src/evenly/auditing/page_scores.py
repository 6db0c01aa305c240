"""The page's section on scores: how well they rank, and whether they keep their word, for every group."""

import numpy as np

from evenly.auditing.by_group import GroupView
from evenly.auditing.charts import MOST_LINES, calibration, thresholds
from evenly.auditing.page_parts import Part, figures, gap, identifier, specs
from evenly.auditing.result import Audit
from evenly.auditing.scores import SCORES
from evenly.report.figures import Figure, legend_of
from evenly.report.grid import Column, grid
from evenly.report.markup import Html, element, section, unbroken

HINTS = {"auc": "1 is best, 0.5 is chance", "ece": "lower is better", "bias": "0 is best; above 0 the score promises too much"}
GAPS = ("selection rate", "true positive rate")


def score_section(audit: Audit) -> Part:
    parts, found = [_table(audit)], []
    for number, view in enumerate(audit.groups):
        drawn = _calibration(view, number)
        gaps = _thresholds(view, number)
        if drawn or gaps:
            parts.append(element("h3", {"class": "later"}, f"By {view.title}"))
        if drawn:
            parts += [legend_of([view.names[g] for g in _drawn(view)], others=False), figures(drawn)]
        if gaps:
            parts += [legend_of(GAPS, others=False), figures(gaps)]
        found += [*drawn, *gaps]
    return Part(section("scores", "How good are the scores?", *parts), specs(found))


def _table(audit: Audit) -> Html:
    columns = [Column("Group"), Column("People"), *(Column(title, HINTS[name]) for name, title in SCORES.items())]
    rows = [["everybody", f"{audit.about.rows:,}", *(gap(audit.whole[name]) for name in SCORES)]]
    views = [(view, f"{view.title}=") for view in audit.groups] + ([(audit.crossed, "")] if audit.crossed is not None else [])
    for view, prefix in views:
        for g in np.flatnonzero(view.rows).tolist():
            rows.append([f"{prefix}{view.names[g]}", f"{view.rows[g]:,}", *(gap(view.scores[name][g], hidden=True) for name in SCORES)])
    text = "As fractions, with 95 % intervals that take people for independent of each other."
    return grid(unbroken(text), columns, rows, kind="compact")


def _drawn(view: GroupView) -> list[int]:
    """The groups whose curves are drawn: the largest that may be shown."""
    order = [g for g in np.argsort(-view.rows, kind="stable").tolist() if view.rows[g] and view.curves and view.curves.rows[g].any()]
    return sorted(order[:MOST_LINES])


def _calibration(view: GroupView, number: int) -> list[Figure]:
    chosen = _drawn(view)
    if view.curves is None or not chosen:
        return []
    caption = (
        "Above the dashed line people have the favourable label more often than their scores say. Bins with too few people are left out."
    )
    return [Figure(identifier("scores", str(number)), calibration(view.names, chosen, view.curves), caption)]


def _thresholds(view: GroupView, number: int) -> list[Figure]:
    g = view.unprivileged
    if view.curves is None or g is None or not np.isfinite(view.curves.spd[g]).any():
        return []
    chart = thresholds(view.names[g], view.curves.spd[g], view.curves.eod[g])
    caption = f"If everybody from a score on were selected: how much more often “{view.names[g]}” would be than all others."
    return [Figure(identifier("thresholds", str(number)), chart, caption)]
