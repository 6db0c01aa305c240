"""A metric over the partitions of a study, one line for each aggregation without reweighing and with everyone taking part."""

from collections.abc import Sequence

import altair as alt

from evenly.experiment.thesis import View
from evenly.metrics import GROUP_METRICS, spread
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.table import format_spread

SHOWN = {
    "accuracy": "Accuracy (%): higher is better", "eod_abs": "|EOD|: lower is fairer", "spd_abs": "|SPD|: lower is fairer",
    "aod_abs": "|AOD|: lower is fairer", "acc_diff": "Accuracy difference: closer to 0 is fairer", "precision": "Precision (%)",
}  # fmt: skip
LEVEL = {"dirichlet": "Dirichlet alpha: further right is closer to IID"}


def aggregations(views: Sequence[View]) -> list[str]:
    """The methods that are drawn, by their aggregation."""
    return list(dict.fromkeys(m.aggregation for view in views for m in view.outcomes["honest"] if not (m.debias or m.parity or m.other)))


def study_trend(views: Sequence[View], metric: str, protocol: str) -> alt.LayerChart:
    """One mark per aggregation and partition; the means over seeds, with the interval in the tooltip."""
    names, rows = aggregations(views), []
    for view in views:
        for method, outcome in view.outcomes[protocol].items():
            if not (method.debias or method.parity or method.other):
                found = spread(outcome.values[metric])
                rows.append({
                    "method": method.aggregation, "level": view.place.value, "value": found.mean,
                    "text": format_spread(found, GROUP_METRICS[metric]),
                })  # fmt: skip
    unit = SHOWN[metric]
    where = LEVEL.get(views[0].place.partition, "Coverage: further left means more clients")
    base = alt.Chart(values(rows)).encode(
        x=alt.X("level:O", sort=[view.place.value for view in views], axis=alt.Axis(title=where, labelAngle=0)),
        y=alt.Y("value:Q", axis=alt.Axis(title=unit, tickCount=5), scale=alt.Scale(zero=False, padding=10)),
        color=colour_of(names),
    )
    tooltip = [
        alt.Tooltip("method:N", title="Aggregation"),
        alt.Tooltip("level:N", title="Partition"),
        alt.Tooltip("text:N", title=unit.partition(":")[0]),
    ]
    layers = [
        base.mark_line(strokeWidth=1.8, opacity=0.75),
        base.mark_point(filled=True, size=70, opacity=0.95).encode(shape=shape_of(names), tooltip=tooltip),
    ]
    title = GROUP_METRICS[metric].title
    title = title[0].upper() + title[1:]
    return finish(layers, title=title, description=f"{title} of {len(names)} aggregations over {len(views)} partitions.", height=260)
