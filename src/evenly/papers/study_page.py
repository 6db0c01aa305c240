"""The report of a study, or of several: findings first, then charts, and every method on every partition."""

from collections.abc import Sequence
from pathlib import Path

import altair as alt
import numpy as np

from evenly.experiment.study import MARGIN, Outcome, Study
from evenly.metrics import GROUP_METRICS, spread
from evenly.papers.findings import Finding, best, best_in_paper, findings
from evenly.papers.thesis import COLUMNS, FRACTIONS, Pair, StudyView, ThesisMethod, on_average, pairs, points, score, views
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.html import (
    ChartFigure,
    Charts,
    Column,
    Html,
    contents,
    definitions,
    document,
    element,
    figure_html,
    grid,
    join,
    legend_of,
    section,
)
from evenly.report.values import format_spread
from evenly.writing import write_whole

# The methods of one partition: paper, ours as the study chooses, ours chosen honestly, one under the other in each cell.
#
# The table can be sorted and filtered where scripts run, and is complete where they do not.

TABLE_COLUMNS = {
    "accuracy": "Accuracy", "eod_abs": "|EOD|", "spd_abs": "|SPD|", "aod_abs": "|AOD|", "acc_diff": "Acc. diff.", "precision": "Precision",
    "fas_abs": "FAS", "fas_thesis": "FAS (thesis)",
}  # fmt: skip
WHO = ("paper", "study", "honest")
MEANS = "Mean ± half of the 95 % interval over seeds, as fractions"


def study_table(view: StudyView) -> Html:
    """One row per method. Columns are sorted by the honest figure."""
    whose = [who for who in WHO if who != "paper" or view.paper]
    heads = ["Method", "Whose", "Rate", *TABLE_COLUMNS.values()]
    cells = [element("th", {"scope": "col"}, _head(name)) for name in heads]
    rows = [_table_row(view, method, whose) for method in view.outcomes["honest"]]
    caption = f"{MEANS}; the paper gives means alone." if view.paper else f"{MEANS}."
    table = element(
        "table",
        {"class": "methods", "data-methods": ""},
        element("caption", None, caption),
        element("thead", None, element("tr", None, *cells)),
        element("tbody", None, *rows),
    )
    return element("div", {"class": "scroll", "tabindex": "0", "role": "group", "aria-label": f"Methods on {view.place}"}, table)


def _head(name: str) -> Html:
    return element("span", None, name) if name == "Whose" else element("button", {"type": "button", "class": "sort"}, name)


def _table_row(view: StudyView, method: ThesisMethod, whose: list[str]) -> Html:
    outcomes = {who: view.outcomes[who][method] for who in whose if who != "paper"}
    rates = {who: ", ".join(f"{v:g}" for v in outcome.chosen.values()) for who, outcome in outcomes.items()}
    cells = [
        element("th", {"scope": "row"}, *_breakable(str(method))),
        _stack({who: who for who in whose}, ""),
        _stack({"paper": "", **rates} if "paper" in whose else rates, rates["honest"]),
    ]
    for metric in TABLE_COLUMNS:
        texts = {who: _ours(outcome, metric) for who, outcome in outcomes.items()}
        if "paper" in whose:
            texts = {"paper": _paper(view, method, metric), **texts}
        cells.append(_stack(texts, f"{_mean(outcomes['honest'], metric):.6f}"))
    return element("tr", None, *cells)


def _breakable(name: str) -> list[str]:
    """A name that may break before a plus, and nowhere else."""
    first, *rest = name.split("+")
    return [first, *(piece for part in rest for piece in (element("wbr"), f"+{part}"))]


def _stack(lines: dict[str, str], key: str) -> Html:
    return element("td", {"data-sort": key}, *(element("span", {"class": f"line {who}"}, text or "\u00a0") for who, text in lines.items()))


def _ours(outcome: Outcome, metric: str) -> str:
    found = spread(outcome.values[metric] / _unit(metric))
    if not np.isfinite(found.mean):
        return "n/a"
    return f"{found.mean:.3f}" + (f" ± {found.half_width:.3f}" if np.isfinite(found.half_width) else "")


def _mean(outcome: Outcome, metric: str) -> float:
    mean = spread(outcome.values[metric] / _unit(metric)).mean
    return mean if np.isfinite(mean) else -1.0


def _paper(view: StudyView, method: ThesisMethod, metric: str) -> str:
    return f"{view.paper[method][metric] / _unit(metric):.3f}" if method in view.paper else ""


def _unit(metric: str) -> float:
    return 100.0 if metric in FRACTIONS else 1.0


# Charts of a study: changes against the baseline, the paper beside ours, and trends over a setting.

# What a part of a method changes on one partition: a bar for each aggregation, and the 95 % interval over seeds.

CHANGE = "Change of |EOD| (left: fairer)"


def study_change(changes: dict[str, list[Pair]], title: str, reach: tuple[float, float]) -> alt.LayerChart:
    """`changes`: the name of a series -> its pairs, one for each aggregation. `reach` is the axis, so that charts can share it."""
    names = list(changes)
    rows = [_row(name, pair) for name, own in changes.items() for pair in own]
    y = alt.Y("aggregation:N", sort=_order(changes), axis=alt.Axis(title=None, labelLimit=170))
    base = alt.Chart(values(rows)).encode(y=y, yOffset=alt.YOffset("method:N", sort=names), color=colour_of(names))
    x = alt.X("change:Q", axis=alt.Axis(title=CHANGE, tickCount=4), scale=alt.Scale(domain=list(reach)))
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
    return finish(layers, title=title, description=f"{title}: change of |EOD| for each aggregation.", height=60 + 34 * len(_order(changes)))


def reach_of(found: Sequence[Pair]) -> tuple[float, float]:
    """From the lowest end of an interval to the highest, and 0 in any case."""
    spreads = [spread(pair.change("eod_abs")) for pair in found]
    ends = [s.mean + sign * np.nan_to_num(s.half_width) for s in spreads for sign in (-1, 1) if np.isfinite(s.mean)]
    return min(0.0, *ends), max(0.0, *ends)


def _order(changes: dict[str, list[Pair]]) -> Sequence[str]:
    return list(dict.fromkeys(pair.method.aggregation for own in changes.values() for pair in own))


def _row(name: str, pair: Pair) -> dict[str, object]:
    found = spread(pair.change("eod_abs"))
    low, high = found.mean - found.half_width, found.mean + found.half_width
    interval = f"{low:+.3f} to {high:+.3f}" if np.isfinite(found.half_width) else "one seed"
    accuracy = spread(pair.change("accuracy")).mean
    return {
        "aggregation": pair.method.aggregation, "method": name, "change": found.mean, "low": low, "high": high, "interval": interval,
        "accuracy": accuracy,
    }  # fmt: skip


# The paper's figures against ours: one mark for each method and partition, and the line on which they would agree.


def study_paper(views: Sequence[StudyView], metric: str, protocol: str = "study") -> alt.LayerChart:
    """Ours under the paper's own way of choosing, because that is what its figures are."""
    rows = [
        {"method": str(view.place), "name": str(m), "paper": view.paper[m][metric], "ours": spread(outcome.values[metric]).mean}
        for view in views
        for m, outcome in view.outcomes[protocol].items()
        if m in view.paper
    ]
    names = [str(view.place) for view in views]
    seen = [row[who] for row in rows for who in ("paper", "ours")]
    title = GROUP_METRICS[metric].title
    title = title[0].upper() + title[1:]
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
    ends = [{"paper": end, "ours": end} for end in (min(seen), max(seen))]
    layers = [
        alt.Chart(values(ends)).mark_line(style="guide-line", strokeDash=[4, 3]).encode(x=x, y=y),
        alt.Chart(values(rows))
        .mark_point(filled=True, size=42, opacity=0.75)
        .encode(x=x, y=y, color=colour_of(names), shape=shape_of(names), tooltip=tooltip),
    ]
    return finish(layers, title=title, description=f"{title}: the paper's {len(rows)} figures against ours.", height=280)


# A metric over the partitions of a study, one line for each aggregation without reweighing and with everyone taking part.

SHOWN = {
    "accuracy": "Accuracy (%): higher is better", "eod_abs": "|EOD|: lower is fairer", "spd_abs": "|SPD|: lower is fairer",
    "aod_abs": "|AOD|: lower is fairer", "acc_diff": "Accuracy difference: closer to 0 is fairer", "precision": "Precision (%)",
}  # fmt: skip
LEVEL = {"dirichlet": "Dirichlet alpha: further right is closer to IID"}


def aggregations(views: Sequence[StudyView]) -> list[str]:
    """The methods that are drawn, by their aggregation."""
    return list(dict.fromkeys(m.aggregation for view in views for m in view.outcomes["honest"] if not (m.debias or m.parity or m.other)))


def study_trend(views: Sequence[StudyView], metric: str, protocol: str) -> alt.LayerChart:
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


# The sections of a study's page that are charts: partitions, reweighing, parity sampling, and the paper beside ours.

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
Drawn = tuple[str, ChartFigure]  # a section and a figure in it


def study_charts(seen: list[StudyView]) -> Charts:
    """All figures, in the order in which they are read."""
    drawn = [*_trends(seen), *_changes(seen), *_beside_paper(seen)]
    sections = {key: _section(key, own) for key in TITLES if (own := [figure for where, figure in drawn if where == key])}
    return Charts(sections, {figure.identifier: figure.spec for _, figure in drawn})


def _trends(seen: list[StudyView]) -> list[Drawn]:
    found: list[Drawn] = []
    kinds = dict.fromkeys(view.place.partition for view in seen)
    for kind in kinds:
        own = [view for view in seen if view.place.partition == kind]
        for metric in COLUMNS.values():
            chart = study_trend(own, metric, "study")
            found.append(
                (
                    "trend",
                    ChartFigure(
                        f"chart-trend-{kind}-{metric}", chart, kind.replace("_", " ") if len(kinds) > 1 else "", tuple(aggregations(seen))
                    ),
                )
            )
    return found


def _changes(seen: list[StudyView]) -> list[Drawn]:
    found: list[Drawn] = []
    for key, of_view in (("debias", _reweighed), ("parity", _sampled)):
        by_view = [of_view(view) for view in seen]
        drawn = [pair for own in by_view for series in own.values() for pair in series]
        for i, (view, own) in enumerate(zip(seen, by_view, strict=True)):
            if any(own.values()):
                cost = on_average([pair.change("accuracy") for pair in list(own.values())[-1]])
                caption = f"Accuracy changes by {points(cost)} points on average ({list(own)[-1]})."
                chart = study_change(own, str(view.place).capitalize(), reach_of(drawn))
                found.append((key, ChartFigure(f"chart-{key}-{i}", chart, caption, tuple(own))))
    return found


def _reweighed(view: StudyView) -> dict[str, list[Pair]]:
    return {f"{p} protocol": [pair for pair in pairs([view], p, "debias") if not pair.method.parity] for p in ("study", "honest")}


def _sampled(view: StudyView) -> dict[str, list[Pair]]:
    found = [pair for pair in pairs([view], "honest", "parity") if not pair.method.debias]
    return {f"p = {p}": [pair for pair in found if pair.method.parity == p] for p in dict.fromkeys(q.method.parity for q in found)}


def _beside_paper(seen: list[StudyView]) -> list[Drawn]:
    known = [view for view in seen if view.paper and any(m in view.paper for m in view.outcomes["study"])]
    if not known:
        return []
    names = tuple(str(view.place) for view in known)
    return [
        ("paper", ChartFigure(f"chart-paper-{m}", study_paper(known, m), "Dashed: where both would agree.", names))
        for m in COLUMNS.values()
    ]


def _section(key: str, figures: list[ChartFigure]) -> Html:
    legend, note = legend_of(figures[0].legend, others=False), element("p", {"class": "soft"}, NOTES[key])
    return section(
        key, TITLES[key], note, legend, element("div", {"class": f"figures of-{min(len(figures), 3)}"}, *map(figure_html, figures))
    )


# The report of a study, or of several: findings first, then charts, and every method on every partition.

CONTENTS = {
    "findings": "Findings", "top": "Best by FAS", "trend": "Partitions", "debias": "Reweighing", "parity": "Parity sampling",
    "paper": "The paper", "methods": "All methods", "settings": "Settings",
}  # fmt: skip
TOP = 5
PROTOCOLS = (
    "The study's protocol takes the learning rate with the least |EOD| on the test set, as the thesis does; its figures are optimistic. "
    f"The honest one looks at validation rows only: of the rates whose accuracy there is within {MARGIN:g} point of the best, the one with "
    "the least |EOD|. The test set is read once, afterwards."
)


def write_study_report(studies: Sequence[Study], path: Path, title: str, notes: str = "") -> Path:
    text = render_study(studies, title, notes)
    return write_whole(path, lambda file: file.write(text.encode()))


def render_study(studies: Sequence[Study], title: str, notes: str = "") -> str:
    """The page as text. Of several studies it holds what they say together; each has its own report for the rest."""
    seen = views(studies)
    single = len(studies) == 1
    drawn = study_charts(seen) if single else Charts({}, {})
    sections = {
        "findings": _findings(findings(studies)),
        "top": _top(studies),
        **drawn.sections,
        **({"methods": _methods(seen)} if single else {}),
        "settings": _settings(studies, notes),
    }
    about = f"{len(seen[0].outcomes['honest'])} methods on {len(seen)} partitions, {len(seen[0].comparison.seeds)} seeds each."
    opening = [element("p", {"class": "kicker"}, studies[0].plan.name if single else f"{len(studies)} studies"), element("h1", None, title)]
    body = [*opening, element("p", {"class": "lead"}, about), element("p", None, PROTOCOLS), contents({k: CONTENTS[k] for k in sections})]
    return document(title, join([*body, *sections.values()]), drawn.specs, assets=("study.css", "study.js"))


def _findings(found: list[Finding]) -> Html:
    intro = (
        "Changes are taken seed by seed. Clearly: the 95 % interval over seeds leaves out 0. Each interval alone is wrong one time in "
        "twenty, so of many pairs without any change a few look changed."
    )
    return section("findings", "Findings", element("p", {"class": "soft"}, intro), *map(_finding, found))


def _finding(found: Finding) -> Html:
    columns = [Column(name[0].upper() + name[1:], words=i == 0) for i, name in enumerate(found.columns)]
    numbers = element("details", {"class": "numbers"}, element("summary", None, "Numbers"), grid(found.question, columns, found.rows))
    return element(
        "div",
        {"class": "finding", "id": f"finding-{found.key}"},
        element("h3", None, found.question),
        element("p", {"class": "answer"}, found.answer),
        element("p", {"class": "soft"}, f"The thesis: {found.thesis}") if found.thesis else "",
        numbers,
    )


def _top(studies: Sequence[Study]) -> Html:
    blocks = []
    for study in studies:
        seen = views([study])
        lists = {
            "Honest protocol, FAS": [(str(m), score(s)) for m, s in best(seen, "honest", "fas_abs")],
            "The study's protocol, FAS of the thesis": [(str(m), score(s)) for m, s in best(seen, "study", "fas_thesis")],
            "The paper's tables, FAS of the thesis": [(str(m), f"{mean:.3f}") for m, mean in best_in_paper(seen, "fas_thesis")],
        }
        shown = [element("div", None, element("h3", None, name), _ranking(own[:TOP])) for name, own in lists.items() if own]
        name = [] if len(studies) == 1 else [element("h3", None, study.plan.name)]
        blocks += [*name, element("div", {"class": "tops"}, *shown)]
    intro = (
        "Averaged over partitions, ± half of the 95 % interval over seeds. FAS is the accuracy, less for unfairness; the thesis' variant "
        "keeps the sign of the accuracy difference."
    )
    return section("top", "The best by fairness and accuracy together", element("p", {"class": "soft"}, intro), *blocks)


def _ranking(own: list[tuple[str, str]]) -> Html:
    return element("ol", None, *(element("li", None, element("strong", None, name), f" {value}") for name, value in own))


def _methods(seen: list[StudyView]) -> Html:
    boxes = [
        element("label", None, element("input", {"type": "checkbox", "data-whose": who, "checked": ""}), f" {who}")
        for who in WHO
        if who != "paper" or any(view.paper for view in seen)
    ]
    search = element(
        "input", {"type": "search", "id": "filter-methods", "placeholder": "e.g. RATIO LD -PS", "aria-label": "Filter methods by name"}
    )
    controls = element("div", {"class": "controls"}, search, *boxes)
    tables = [
        element("details", {"open": ""} if i == 0 else None, element("summary", None, str(view.place)), study_table(view))
        for i, view in enumerate(seen)
    ]
    intro = "LD is local debiasing (reweighing), PS(p) parity sampling. Click a column to sort by the honest figure."
    return section("methods", "Every method on every partition", element("p", {"class": "soft"}, intro), controls, *tables)


def _settings(studies: Sequence[Study], notes: str) -> Html:
    first = next(iter(studies[0].cells.values()))
    plan = next(iter(studies[0].plan.cells.values()))
    facts = [
        ("Experiments", ", ".join(study.plan.name for study in studies)),
        ("Rounds", str(plan.rounds)),
        ("Seeds", ", ".join(map(str, plan.seeds))),
        ("Model", first.model),
        ("Chosen", ", ".join(studies[0].plan.chosen)),
        ("Versions", ", ".join(f"{name} {version}" for name, version in first.versions.items())),
        *([("Command", first.command)] if first.command else []),
    ]
    return section("settings", "Settings", definitions(facts), *([element("p", None, notes)] if notes else []))
