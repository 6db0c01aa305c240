"""The page's section on scores: how well they rank, and whether they keep their word, for every group."""

from collections.abc import Mapping, Sequence

import numpy as np

from evenly.auditing.by_group import GroupView
from evenly.auditing.estimates import Estimate
from evenly.auditing.page_parts import Part, identifier, plain, specs
from evenly.auditing.result import Audit
from evenly.auditing.score_charts import MOST_LINES, calibration, thresholds
from evenly.auditing.scores import SCORES
from evenly.report.html import Column, Entry, Figure, Html, element, figure_html, grid, legend_of, section, unbroken
from evenly.report.tables import folded

HINTS = {"auc": "1 is best, 0.5 is chance", "ece": "lower is better", "bias": "above 0 the score promises too much"}
GAPS = ("SPD", "EOD")


def score_section(audit: Audit) -> Part:
    tables = [_table(audit, [(view, f"{view.title}=") for view in audit.groups], everybody=True)]
    if audit.crossed is not None:
        tables.append(folded("Scores of intersections", _table(audit, [(audit.crossed, "")], everybody=False)))
    parts, found = [*tables], []
    for number, view in enumerate(audit.groups):
        drawn = [*_calibration(view, number), *_thresholds(view, number)]
        if drawn:
            side_by_side = [element("div", None, legend_of(figure.legend, others=False), figure_html(figure)) for figure in drawn]
            parts += [element("h3", {"class": "later"}, f"By {view.title}"), element("div", {"class": "figures of-2"}, *side_by_side)]
        found += drawn
    return Part(section("scores", "How good are the scores?", *parts), specs(found))


def _table(audit: Audit, views: Sequence[tuple[GroupView, str]], *, everybody: bool) -> Html:
    columns = [Column("Group"), Column("People"), *(Column(title, HINTS[name]) for name, title in SCORES.items())]
    rows = [_row("everybody", audit.about.rows, audit.whole)] if everybody else []
    for view, prefix in views:
        own = [{name: found[g] for name, found in view.scores.items()} for g in range(len(view.names))]
        rows += [_row(f"{prefix}{view.names[g]}", view.rows[g], own[g]) for g in np.flatnonzero(view.rows).tolist()]
    text = "With 95 % intervals that take people for independent of each other."
    return grid(unbroken(text), columns, rows, kind="compact")


def _row(name: str, rows: int, found: Mapping[str, Estimate]) -> list[str | Entry]:
    return [name, f"{rows:,}", plain(found["auc"], hidden=True), plain(found["ece"], hidden=True), plain(found["bias"], hidden=True)]


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
    return [
        Figure(
            identifier("scores", str(number)), calibration(view.names, chosen, view.curves), caption, tuple(view.names[g] for g in chosen)
        )
    ]


def _thresholds(view: GroupView, number: int) -> list[Figure]:
    g = view.unprivileged
    if view.curves is None or g is None or not np.isfinite(view.curves.spd[g]).any():
        return []
    chart = thresholds(view.names[g], view.curves.spd[g], view.curves.eod[g])
    caption = f"If everybody from a score on were selected: how much more often “{view.names[g]}” would be than all others."
    return [Figure(identifier("thresholds", str(number)), chart, caption, GAPS)]
