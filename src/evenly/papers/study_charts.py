"""Charts of a study: trends over partitions, the effect of reweighing and parity sampling, and the
paper's figures beside ours.
"""

from collections.abc import Sequence

import altair as alt
import numpy as np

from evenly.metrics import GROUP_METRICS, spread
from evenly.papers.thesis import COLUMNS, Pair, StudyView, mean_change, pairs, points
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.html import ChartFigure, Charts, Html, element, figure_html, legend_of, section
from evenly.report.values import format_spread

# What a part of a method changes on one partition: a bar for each aggregation, and the 95 %
# interval over seeds.

CHANGE = "Change of |EOD| (left: fairer)"


def study_change(
    changes: dict[str, list[Pair]], title: str, reach: tuple[float, float]
) -> alt.LayerChart:
    """Bars of the change of |EOD| by aggregation with 95 % intervals.

    Args:
        changes: Pairs by the name of the series, one for each aggregation.
        title: Title of the chart.
        reach: Ends of the axis, so that charts can share it.
    """
    names = list(changes)
    rows = [_row(name, pair) for name, own in changes.items() for pair in own]
    y = alt.Y("aggregation:N", sort=_order(changes), axis=alt.Axis(title=None, labelLimit=170))
    base = alt.Chart(values(rows)).encode(
        y=y, yOffset=alt.YOffset("method:N", sort=names), color=colour_of(names)
    )
    x = alt.X(
        "change:Q", axis=alt.Axis(title=CHANGE, tickCount=4), scale=alt.Scale(domain=list(reach))
    )
    tooltip = [
        alt.Tooltip("aggregation:N", title="Aggregation"),
        alt.Tooltip("method:N", title="Shown"),
        alt.Tooltip("change:Q", title="Change of |EOD|", format="+.3f"),
        alt.Tooltip("interval:N", title="95 % interval"),
        alt.Tooltip("accuracy:Q", title="Change of accuracy (points)", format="+.2f"),
    ]
    layers = [
        base.mark_bar(opacity=0.55, height={"band": 0.8}).encode(x=x, tooltip=tooltip),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", tooltip=tooltip),
        alt.Chart(values([{"zero": 0}])).mark_rule(style="guide-line").encode(x=alt.X("zero:Q")),
    ]
    return finish(
        layers,
        title=title,
        description=f"{title}: change of |EOD| for each aggregation.",
        height=60 + 34 * len(_order(changes)),
    )


def reach_of(found: Sequence[Pair]) -> tuple[float, float]:
    """The range of all intervals, including 0."""
    spreads = [spread(pair.change("eod_abs")) for pair in found]
    ends = [
        s.mean + sign * np.nan_to_num(s.half_width)
        for s in spreads
        for sign in (-1, 1)
        if np.isfinite(s.mean)
    ]
    return min(0.0, *ends), max(0.0, *ends)


def _order(changes: dict[str, list[Pair]]) -> Sequence[str]:
    return list(dict.fromkeys(pair.method.aggregation for own in changes.values() for pair in own))


def _row(name: str, pair: Pair) -> dict[str, object]:
    found = spread(pair.change("eod_abs"))
    low, high = found.mean - found.half_width, found.mean + found.half_width
    interval = f"{low:+.3f} to {high:+.3f}" if np.isfinite(found.half_width) else "one seed"
    accuracy = spread(pair.change("accuracy")).mean
    return {
        "aggregation": pair.method.aggregation, "method": name, "change": found.mean, "low": low,
        "high": high, "interval": interval, "accuracy": accuracy,
    }  # fmt: skip


# The paper's figures against ours: one mark for each method and partition, and the line on which
# they would agree.


def study_paper(views: Sequence[StudyView], metric: str, protocol: str = "study") -> alt.LayerChart:
    """The paper's figures against ours, one mark per method and partition, and the line of
    agreement.

    The default protocol is the paper's.
    """
    rows = [
        {
            "method": str(view.place),
            "name": str(m),
            "paper": view.paper[m][metric],
            "ours": spread(outcome.values[metric]).mean,
        }
        for view in views
        for m, outcome in view.outcomes[protocol].items()
        if m in view.paper
    ]
    names = [str(view.place) for view in views]
    figures = [row[who] for row in rows for who in ("paper", "ours")]
    title = _title(metric)
    room = alt.Scale(zero=False, padding=12, nice=False)
    x = alt.X("paper:Q", axis=alt.Axis(title="Paper", tickCount=5), scale=room)
    y = alt.Y("ours:Q", axis=alt.Axis(title="Ours", tickCount=5), scale=room)
    digits = ".1f" if "%" in GROUP_METRICS[metric].range else ".3f"
    tooltip = [
        alt.Tooltip("name:N", title="Method"),
        alt.Tooltip("method:N", title="Partition"),
        alt.Tooltip("paper:Q", title="Paper", format=digits),
        alt.Tooltip("ours:Q", title="Ours", format=digits),
    ]
    ends = [{"paper": end, "ours": end} for end in (min(figures), max(figures))]
    layers = [
        alt.Chart(values(ends)).mark_line(style="guide-line", strokeDash=[4, 3]).encode(x=x, y=y),
        alt.Chart(values(rows))
        .mark_point(filled=True, size=42, opacity=0.75)
        .encode(x=x, y=y, color=colour_of(names), shape=shape_of(names), tooltip=tooltip),
    ]
    return finish(
        layers,
        title=title,
        description=f"{title}: the paper's {len(rows)} figures against ours.",
        height=280,
    )


# A metric over the partitions of a study, one line for each aggregation without reweighing and with
# everyone taking part.

METRIC_TITLES = {
    "accuracy": "Accuracy (%): higher is better", "eod_abs": "|EOD|: lower is fairer",
    "spd_abs": "|SPD|: lower is fairer", "aod_abs": "|AOD|: lower is fairer",
    "acc_diff": "Accuracy difference: closer to 0 is fairer", "precision": "Precision (%)",
}  # fmt: skip
LEVEL = {"dirichlet": "Dirichlet alpha: further right is closer to IID"}


def aggregations(views: Sequence[StudyView]) -> list[str]:
    """The aggregations in the charts."""
    return list(
        dict.fromkeys(
            m.aggregation
            for view in views
            for m in view.outcomes["honest"]
            if not (m.debias or m.parity or m.other)
        )
    )


def study_trend(views: Sequence[StudyView], metric: str, protocol: str) -> alt.LayerChart:
    """A metric over the partitions of a study, one line per aggregation: means over seeds, with
    intervals in the tooltip.
    """
    names, unit = aggregations(views), METRIC_TITLES[metric]
    where = LEVEL.get(views[0].place.partition, "Coverage: further left means more clients")
    base = alt.Chart(values(_trend_rows(views, metric, protocol))).encode(
        x=alt.X(
            "level:O",
            sort=[view.place.value for view in views],
            axis=alt.Axis(title=where, labelAngle=0),
        ),
        y=alt.Y(
            "value:Q",
            axis=alt.Axis(title=unit, tickCount=5),
            scale=alt.Scale(zero=False, padding=10),
        ),
        color=colour_of(names),
    )
    tooltip = [
        alt.Tooltip("method:N", title="Aggregation"),
        alt.Tooltip("level:N", title="Partition"),
        alt.Tooltip("text:N", title=unit.partition(":")[0]),
    ]
    layers = [
        base.mark_line(strokeWidth=1.8, opacity=0.75),
        base.mark_point(filled=True, size=70, opacity=0.95).encode(
            shape=shape_of(names), tooltip=tooltip
        ),
    ]
    title = _title(metric)
    return finish(
        layers,
        title=title,
        description=f"{title} of {len(names)} aggregations over {len(views)} partitions.",
        height=260,
    )


def _title(metric: str) -> str:
    title = GROUP_METRICS[metric].title
    return title[0].upper() + title[1:]


def _trend_rows(views: Sequence[StudyView], metric: str, protocol: str) -> list[dict[str, object]]:
    rows = []
    for view in views:
        for method, outcome in view.outcomes[protocol].items():
            if not (method.debias or method.parity or method.other):
                value = spread(outcome.values[metric])
                text = format_spread(value, GROUP_METRICS[metric])
                rows.append(
                    {
                        "method": method.aggregation,
                        "level": view.place.value,
                        "value": value.mean,
                        "text": text,
                    }
                )
    return rows


# The sections of a study's page that are charts: partitions, reweighing, parity sampling, and the
# paper beside ours.

TITLES = {
    "trend": "How do the aggregations fare from partition to partition?",
    "debias": "What does local reweighing change?",
    "parity": "What does parity sampling change?",
    "paper": "Ours beside the paper's",
}
INTERVALS = "Lines are 95 % intervals over seeds; one that crosses 0 decides nothing."
NOTES = {
    "trend": (
        "Means over seeds under the study's protocol, without reweighing and with everyone taking"
        " part. Intervals: point at a mark."
    ),
    "debias": f"The same method with reweighing and without, everyone taking part. {INTERVALS}",
    "parity": (
        "The same method with parity sampling and with everyone; no reweighing, honest protocol."
        f" {INTERVALS}"
    ),
    "paper": (
        "Ours under the study's protocol, one mark for each method and partition. On the dashed"
        " line both would agree."
    ),
}
SectionFigure = tuple[str, ChartFigure]  # a section and a figure in it


def study_charts(views: list[StudyView]) -> Charts:
    """All charts of a study, by section."""
    drawn = [*_trends(views), *_changes(views), *_beside_paper(views)]
    sections = {
        key: _section(key, own)
        for key in TITLES
        if (own := [figure for where, figure in drawn if where == key])
    }
    return Charts(sections, {figure.identifier: figure.spec for _, figure in drawn})


def _trends(views: list[StudyView]) -> list[SectionFigure]:
    figures: list[SectionFigure] = []
    kinds, names = dict.fromkeys(view.place.partition for view in views), tuple(aggregations(views))
    for kind in kinds:
        own = [view for view in views if view.place.partition == kind]
        caption = kind.replace("_", " ") if len(kinds) > 1 else ""
        for metric in COLUMNS.values():
            chart = study_trend(own, metric, "study")
            figures.append(
                ("trend", ChartFigure(f"chart-trend-{kind}-{metric}", chart, caption, names))
            )
    return figures


def _changes(views: list[StudyView]) -> list[SectionFigure]:
    found: list[SectionFigure] = []
    for key, of_view in (("debias", _reweighing_pairs), ("parity", _parity_pairs)):
        by_view = [of_view(view) for view in views]
        drawn = [pair for own in by_view for series in own.values() for pair in series]
        for i, (view, own) in enumerate(zip(views, by_view, strict=True)):
            if any(own.values()):
                cost = mean_change([pair.change("accuracy") for pair in list(own.values())[-1]])
                caption = f"Accuracy changes by {points(cost)} points on average ({list(own)[-1]})."
                chart = study_change(own, str(view.place).capitalize(), reach_of(drawn))
                found.append((key, ChartFigure(f"chart-{key}-{i}", chart, caption, tuple(own))))
    return found


def _reweighing_pairs(view: StudyView) -> dict[str, list[Pair]]:
    return {
        f"{p} protocol": [pair for pair in pairs([view], p, "debias") if not pair.method.parity]
        for p in ("study", "honest")
    }


def _parity_pairs(view: StudyView) -> dict[str, list[Pair]]:
    found = [pair for pair in pairs([view], "honest", "parity") if not pair.method.debias]
    return {
        f"p = {p}": [pair for pair in found if pair.method.parity == p]
        for p in dict.fromkeys(q.method.parity for q in found)
    }


def _beside_paper(views: list[StudyView]) -> list[SectionFigure]:
    known = [
        view
        for view in views
        if view.paper and any(m in view.paper for m in view.outcomes["study"])
    ]
    if not known:
        return []
    names = tuple(str(view.place) for view in known)
    return [
        (
            "paper",
            ChartFigure(
                f"chart-paper-{m}", study_paper(known, m), "Dashed: where both would agree.", names
            ),
        )
        for m in COLUMNS.values()
    ]


def _section(key: str, figures: list[ChartFigure]) -> Html:
    legend, note = (
        legend_of(figures[0].legend, others=False),
        element("p", {"class": "soft"}, NOTES[key]),
    )
    return section(
        key,
        TITLES[key],
        note,
        legend,
        element("div", {"class": f"figures of-{min(len(figures), 3)}"}, *map(figure_html, figures)),
    )
