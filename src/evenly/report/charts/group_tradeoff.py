"""Accuracy against unfairness between groups: one mark per method, with a list to choose the measure of unfairness."""

from collections.abc import Sequence

import altair as alt

from evenly.metrics import GROUP_METRICS
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.charts.tradeoff import ends
from evenly.report.table import Values

MEASURES = ("eod_abs", "spd_abs", "aod_abs", "acc_diff_abs", "odds_range", "acc_range")
ACCURACY, UNFAIR = "Accuracy (%): further right is better", "Difference between groups: lower is fairer"


def group_tradeoff(measured: Values, labels: Sequence[str]) -> alt.LayerChart:
    """Every method in `labels`; |EOD| until another measure is chosen."""
    rows = [
        {
            "method": label,
            "measure": GROUP_METRICS[name].title,
            **ends(measured, label, "accuracy", "average"),
            **ends(measured, label, name, "other", digits=3),
        }
        for label in labels
        for name in MEASURES
    ]
    titles = [GROUP_METRICS[name].title for name in MEASURES]
    chosen = alt.param(name="measure", value=titles[0], bind=alt.binding_select(options=titles, name="Unfairness measured by "))
    # Nothing can be drawn of a method whose differences are undefined.
    base = alt.Chart(values([row for row in rows if row["other"] is not None and row["average"] is not None]))
    base = base.transform_filter("datum.measure === measure").encode(color=colour_of(labels))
    room = alt.Scale(zero=False, padding=18)
    x = alt.X("average:Q", axis=alt.Axis(title=ACCURACY, tickCount=6), scale=room)
    y = alt.Y("other:Q", axis=alt.Axis(title=UNFAIR, tickCount=5), scale=alt.Scale(zero=True, padding=18))
    lines = base.mark_rule(opacity=0.55, strokeWidth=1.6)
    layers = [
        lines.encode(x=alt.X("average_low:Q", title=ACCURACY), x2="average_high:Q", y=y),
        lines.encode(x=x, y=alt.Y("other_low:Q", title=UNFAIR), y2="other_high:Q"),
        base.mark_point(filled=True, size=130, opacity=1).encode(x=x, y=y, shape=shape_of(labels), tooltip=_tooltip()).add_params(chosen),
    ]
    title = "Accuracy and fairness between groups"
    return finish(layers, title=title, description=f"{title}: one point for each of {len(labels)} methods.", height=300)


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("average:Q", title="Accuracy (%)", format=".1f"),
        alt.Tooltip("average_span:N", title="… over seeds"),
        alt.Tooltip("measure:N", title="Measure"),
        alt.Tooltip("other:Q", title="Its value", format=".3f"),
        alt.Tooltip("other_span:N", title="… over seeds"),
    ]
