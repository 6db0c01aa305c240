"""The report of one or several studies: findings, charts, and a table of all methods for every
partition.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evenly.experiment.study import MARGIN, Outcome, Study
from evenly.metrics import spread
from evenly.papers.study_charts import study_charts
from evenly.papers.study_findings import Finding, best_in_paper, best_methods, findings
from evenly.papers.thesis import FRACTIONS, StudyView, ThesisMethod, score, study_views
from evenly.report.html import (
    Charts,
    Column,
    Html,
    contents,
    definitions,
    document,
    element,
    grid,
    join,
    section,
)
from evenly.report.promise_section import promise_section
from evenly.writing import write_whole

# The table of one partition. Each cell shows the paper, the study protocol and the honest protocol.
# It can be sorted and filtered with scripts, and is complete without them.

TABLE_COLUMNS = {
    "accuracy": "Accuracy", "eod_abs": "|EOD|", "spd_abs": "|SPD|", "aod_abs": "|AOD|",
    "acc_diff": "Acc. diff.", "precision": "Precision", "fas_abs": "FAS",
    "fas_thesis": "FAS (thesis)",
}  # fmt: skip
WHO = ("paper", "study", "honest")
MEANS = "Mean ± half of the 95 % interval over seeds, as fractions"


def study_table(view: StudyView) -> Html:
    """The table of one partition, with one row per method. Columns are sorted by the
    honest figure.
    """
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
    return element(
        "div",
        {
            "class": "scroll",
            "tabindex": "0",
            "role": "group",
            "aria-label": f"Methods on {view.place}",
        },
        table,
    )


def _head(name: str) -> Html:
    return (
        element("span", None, name)
        if name == "Whose"
        else element("button", {"type": "button", "class": "sort"}, name)
    )


def _table_row(view: StudyView, method: ThesisMethod, whose: list[str]) -> Html:
    outcomes = {who: view.outcomes[who][method] for who in whose if who != "paper"}
    rates = {
        who: ", ".join(f"{v:g}" for v in outcome.chosen.values())
        for who, outcome in outcomes.items()
    }
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
    """A name that may break before a plus only."""
    first, *rest = name.split("+")
    return [first, *(piece for part in rest for piece in (element("wbr"), f"+{part}"))]


def _stack(lines: dict[str, str], key: str) -> Html:
    return element(
        "td",
        {"data-sort": key},
        *(
            element("span", {"class": f"line {who}"}, text or "\u00a0")
            for who, text in lines.items()
        ),
    )


def _ours(outcome: Outcome, metric: str) -> str:
    found = spread(outcome.values[metric] / _unit(metric))
    if not np.isfinite(found.mean):
        return "n/a"
    return f"{found.mean:.3f}" + (
        f" ± {found.half_width:.3f}" if np.isfinite(found.half_width) else ""
    )


def _mean(outcome: Outcome, metric: str) -> float:
    mean = spread(outcome.values[metric] / _unit(metric)).mean
    return mean if np.isfinite(mean) else -1.0


def _paper(view: StudyView, method: ThesisMethod, metric: str) -> str:
    return f"{view.paper[method][metric] / _unit(metric):.3f}" if method in view.paper else ""


def _unit(metric: str) -> float:
    return 100.0 if metric in FRACTIONS else 1.0


# The page.

CONTENTS = {
    "promise": "Promise", "findings": "Findings", "top": "Best by FAS", "trend": "Partitions",
    "debias": "Reweighing", "parity": "Parity sampling", "paper": "The paper",
    "methods": "All methods", "settings": "Settings",
}  # fmt: skip
TOP = 5
PROTOCOLS = (
    "The study's protocol takes the learning rate with the least |EOD| on the test set, as the"
    " thesis does; its figures are optimistic. The honest one looks at validation rows only: of"
    f" the rates whose accuracy there is within {MARGIN:g} point of the best, the one with the"
    " least |EOD|. The test set is read once, afterwards."
)


def write_study_report(studies: Sequence[Study], path: Path, title: str, notes: str = "") -> Path:
    """Write the report of studies to a file."""
    text = render_study(studies, title, notes)
    return write_whole(path, lambda file: file.write(text.encode()))


def render_study(studies: Sequence[Study], title: str, notes: str = "") -> str:
    """The report as HTML. The report of several studies contains findings only; each study has its
    own report.
    """
    views = study_views(studies)
    single = len(studies) == 1
    drawn = study_charts(views) if single else Charts({}, {})
    promised = _promises(views) if single else Html("")
    sections = {
        **({"promise": promised} if promised else {}),
        "findings": _findings(findings(studies)),
        "top": _top(studies),
        **drawn.sections,
        **({"methods": _methods(views)} if single else {}),
        "settings": _settings(studies, notes),
    }
    about = (
        f"{len(views[0].outcomes['honest'])} methods on {len(views)} partitions,"
        f" {len(views[0].comparison.seeds)} seeds each."
    )
    opening = [
        element(
            "p", {"class": "kicker"}, studies[0].plan.name if single else f"{len(studies)} studies"
        ),
        element("h1", None, title),
    ]
    body = [
        *opening,
        element("p", {"class": "lead"}, about),
        element("p", None, PROTOCOLS),
        contents({k: CONTENTS[k] for k in sections}),
    ]
    return document(
        title, join([*body, *sections.values()]), drawn.specs, assets=("study.css", "study.js")
    )


def _promises(views: Sequence[StudyView]) -> Html:
    """What private methods promise, which may depend on the number of clients of a partition."""
    first = views[0]
    found = promise_section(first.comparison)
    if all(view.comparison.privacy == first.comparison.privacy for view in views):
        return found
    words = f"On the partition {first.cell}. plan.json has the promises on the others."
    return join([found, element("p", None, words)])


def _findings(found: list[Finding]) -> Html:
    intro = (
        "Changes are taken seed by seed. Clearly: the 95 % interval over seeds leaves out 0. Each"
        " interval alone is wrong one time in twenty, so of many pairs without any change a few"
        " look changed."
    )
    return section(
        "findings", "Findings", element("p", {"class": "soft"}, intro), *map(_finding, found)
    )


def _finding(found: Finding) -> Html:
    columns = [
        Column(name[0].upper() + name[1:], words=i == 0) for i, name in enumerate(found.columns)
    ]
    numbers = element(
        "details",
        {"class": "numbers"},
        element("summary", None, "Numbers"),
        grid(found.question, columns, found.rows),
    )
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
        views = study_views([study])
        lists = {
            "Honest protocol, FAS": [
                (str(m), score(s)) for m, s in best_methods(views, "honest", "fas_abs")
            ],
            "The study's protocol, FAS of the thesis": [
                (str(m), score(s)) for m, s in best_methods(views, "study", "fas_thesis")
            ],
            "The paper's tables, FAS of the thesis": [
                (str(m), f"{mean:.3f}") for m, mean in best_in_paper(views, "fas_thesis")
            ],
        }
        shown = [
            element("div", None, element("h3", None, name), _ranking(own[:TOP]))
            for name, own in lists.items()
            if own
        ]
        name = [] if len(studies) == 1 else [element("h3", None, study.plan.name)]
        blocks += [*name, element("div", {"class": "tops"}, *shown)]
    intro = (
        "Averaged over partitions, ± half of the 95 % interval over seeds. FAS is the accuracy,"
        " less for unfairness; the thesis' variant keeps the sign of the accuracy difference."
    )
    return section(
        "top",
        "The best by fairness and accuracy together",
        element("p", {"class": "soft"}, intro),
        *blocks,
    )


def _ranking(own: list[tuple[str, str]]) -> Html:
    return element(
        "ol",
        None,
        *(element("li", None, element("strong", None, name), f" {value}") for name, value in own),
    )


def _methods(views: list[StudyView]) -> Html:
    boxes = [
        element(
            "label",
            None,
            element("input", {"type": "checkbox", "data-whose": who, "checked": ""}),
            f" {who}",
        )
        for who in WHO
        if who != "paper" or any(view.paper for view in views)
    ]
    search = element(
        "input",
        {
            "type": "search",
            "id": "filter-methods",
            "placeholder": "e.g. RATIO LD -PS",
            "aria-label": "Filter methods by name",
        },
    )
    controls = element("div", {"class": "controls"}, search, *boxes)
    tables = [
        element(
            "details",
            {"open": ""} if i == 0 else None,
            element("summary", None, str(view.place)),
            study_table(view),
        )
        for i, view in enumerate(views)
    ]
    intro = (
        "LD is local debiasing (reweighing), PS(p) parity sampling. Click a column to sort by the"
        " honest figure."
    )
    return section(
        "methods",
        "Every method on every partition",
        element("p", {"class": "soft"}, intro),
        controls,
        *tables,
    )


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
    return section(
        "settings", "Settings", definitions(facts), *([element("p", None, notes)] if notes else [])
    )
