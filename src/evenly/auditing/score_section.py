"""The section of an audit's page on scores: how well they rank people, and whether they are
calibrated.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from evenly.auditing.charts import MOST_LINES, calibration, thresholds
from evenly.auditing.estimates import SCORES, Estimate
from evenly.auditing.page_sections import PagePart, fraction_entry, identifier, specs
from evenly.auditing.result import Audit
from evenly.auditing.significance import highlighted
from evenly.auditing.views import GroupView
from evenly.report.html import (
    ChartFigure,
    Column,
    Entry,
    Html,
    details,
    element,
    figure_html,
    grid,
    legend_of,
    nonbreaking,
    section,
)

SCORE_HINTS = {
    "auc": "1 is best, 0.5 is chance",
    "ece": "lower is better",
    "bias": "above 0, scores are too high",
}
GAPS = ("SPD", "EOD")


def score_section(audit: Audit) -> PagePart:
    """The section on scores: AUC and calibration of every group."""
    parts, charts = (
        [_table(audit, [(view, f"{view.title}=") for view in audit.groups], everybody=True)],
        [],
    )
    if audit.intersections is not None:
        parts.append(
            details(
                "Scores of intersections",
                _table(audit, [(audit.intersections, "")], everybody=False),
            )
        )
    for number, view in enumerate(audit.groups):
        figures_of_view = [
            *_calibration(view, number),
            *_thresholds(view, number, highlighted(view, audit)),
        ]
        if figures_of_view:
            columns = [
                element("div", None, legend_of(figure.legend, others=False), figure_html(figure))
                for figure in figures_of_view
            ]
            parts += [
                element("h3", {"class": "later"}, f"By {view.title}"),
                element("div", {"class": "figures of-2"}, *columns),
            ]
        charts += figures_of_view
    return PagePart(section("scores", "How good are the scores?", *parts), specs(charts))


def _table(audit: Audit, views: Sequence[tuple[GroupView, str]], *, everybody: bool) -> Html:
    columns = [
        Column("Group"),
        Column("People"),
        *(Column(title, SCORE_HINTS[name]) for name, title in SCORES.items()),
    ]
    rows = [_row("everybody", audit.about.rows, audit.whole)] if everybody else []
    for view, prefix in views:
        scores = [
            {name: estimates[g] for name, estimates in view.scores.items()}
            for g in range(len(view.names))
        ]
        rows += [
            _row(f"{prefix}{view.names[g]}", view.rows[g], scores[g])
            for g in np.flatnonzero(view.rows).tolist()
        ]
    text = "With 95 % intervals that assume independent people."
    return grid(nonbreaking(text), columns, rows, kind="compact")


def _row(name: str, rows: int, scores: Mapping[str, Estimate]) -> list[str | Entry]:
    return [name, f"{rows:,}", *(fraction_entry(scores[score], hidden=True) for score in SCORES)]


def _curve_groups(view: GroupView) -> list[int]:
    """The groups whose curves are drawn: the largest that may be shown."""
    order = [
        g
        for g in np.argsort(-view.rows, kind="stable").tolist()
        if view.rows[g] and view.curves and view.curves.rows[g].any()
    ]
    return sorted(order[:MOST_LINES])


def _calibration(view: GroupView, number: int) -> list[ChartFigure]:
    chosen = _curve_groups(view)
    if view.curves is None or not chosen:
        return []
    caption = (
        "Above the dashed line, people have the favourable label more often than their scores"
        " predict. Bins with too few people are left out."
    )
    return [
        ChartFigure(
            identifier("scores", str(number)),
            calibration(view.names, chosen, view.curves),
            caption,
            tuple(view.names[g] for g in chosen),
        )
    ]


def _thresholds(view: GroupView, number: int, g: int | None) -> list[ChartFigure]:
    if view.curves is None or g is None or not np.isfinite(view.curves.spd[g]).any():
        return []
    chart = thresholds(view.names[g], view.curves.spd[g], view.curves.eod[g])
    caption = (
        f"If everybody with at least this score were selected: rate of “{view.names[g]}” minus rate"
        " of all others."
    )
    return [ChartFigure(identifier("thresholds", str(number)), chart, caption, GAPS)]
