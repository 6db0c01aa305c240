"""The sections of a study's page that are charts: partitions, reweighing, parity sampling, and the paper beside ours."""

from evenly.experiment.findings.finding import points
from evenly.experiment.findings.pairs import Pair, on_average, pairs
from evenly.experiment.thesis import COLUMNS, View
from evenly.report.charts.study import aggregations, reach_of, study_change, study_paper, study_trend
from evenly.report.html import Charts, Figure, Html, element, figure_html, legend_of, section

TITLES = {
    "trend": "How do the aggregations fare from partition to partition?",
    "debias": "What does local reweighing change?",
    "parity": "What does parity sampling change?",
    "paper": "Ours beside the paper's",
}
INTERVALS = "Lines are 95 % intervals over seeds; one that crosses 0 decides nothing."
NOTES = {
    "trend": "Means over seeds under the study's protocol, without reweighing and with everyone taking part. Intervals: point at a mark.",
    "debias": f"The same method with reweighing and without, everyone taking part. {INTERVALS}",
    "parity": f"The same method with parity sampling and with everyone; no reweighing, honest protocol. {INTERVALS}",
    "paper": "Ours under the study's protocol, one mark for each method and partition. On the dashed line both would agree.",
}
Drawn = tuple[str, Figure]  # a section and a figure in it


def study_charts(seen: list[View]) -> Charts:
    """All figures, in the order in which they are read."""
    drawn = [*_trends(seen), *_changes(seen), *_beside_paper(seen)]
    sections = {key: _section(key, own) for key in TITLES if (own := [figure for where, figure in drawn if where == key])}
    return Charts(sections, {figure.identifier: figure.spec for _, figure in drawn})


def _trends(seen: list[View]) -> list[Drawn]:
    found: list[Drawn] = []
    kinds = dict.fromkeys(view.place.partition for view in seen)
    for kind in kinds:
        own = [view for view in seen if view.place.partition == kind]
        for metric in COLUMNS.values():
            chart = study_trend(own, metric, "study")
            found.append(
                (
                    "trend",
                    Figure(
                        f"chart-trend-{kind}-{metric}", chart, kind.replace("_", " ") if len(kinds) > 1 else "", tuple(aggregations(seen))
                    ),
                )
            )
    return found


def _changes(seen: list[View]) -> list[Drawn]:
    found: list[Drawn] = []
    for key, of_view in (("debias", _reweighed), ("parity", _sampled)):
        by_view = [of_view(view) for view in seen]
        drawn = [pair for own in by_view for series in own.values() for pair in series]
        for i, (view, own) in enumerate(zip(seen, by_view, strict=True)):
            if any(own.values()):
                cost = on_average([pair.change("accuracy") for pair in list(own.values())[-1]])
                caption = f"Accuracy changes by {points(cost)} points on average ({list(own)[-1]})."
                chart = study_change(own, str(view.place).capitalize(), reach_of(drawn))
                found.append((key, Figure(f"chart-{key}-{i}", chart, caption, tuple(own))))
    return found


def _reweighed(view: View) -> dict[str, list[Pair]]:
    return {f"{p} protocol": [pair for pair in pairs([view], p, "debias") if not pair.method.parity] for p in ("study", "honest")}


def _sampled(view: View) -> dict[str, list[Pair]]:
    found = [pair for pair in pairs([view], "honest", "parity") if not pair.method.debias]
    return {f"p = {p}": [pair for pair in found if pair.method.parity == p] for p in dict.fromkeys(q.method.parity for q in found)}


def _beside_paper(seen: list[View]) -> list[Drawn]:
    known = [view for view in seen if view.paper and any(m in view.paper for m in view.outcomes["study"])]
    if not known:
        return []
    names = tuple(str(view.place) for view in known)
    return [
        ("paper", Figure(f"chart-paper-{m}", study_paper(known, m), "Dashed: where both would agree.", names)) for m in COLUMNS.values()
    ]


def _section(key: str, figures: list[Figure]) -> Html:
    legend, note = legend_of(figures[0].legend, others=False), element("p", {"class": "soft"}, NOTES[key])
    return section(
        key, TITLES[key], note, legend, element("div", {"class": f"figures of-{min(len(figures), 3)}"}, *map(figure_html, figures))
    )
