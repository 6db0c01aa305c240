"""The report: one HTML file that needs nothing else, not even a network."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.experiment.paper import PaperLine
from evenly.metrics import EVERY_METRIC
from evenly.metrics.metric import CLIENT_GROUPS, OF_CLIENTS
from evenly.report.chart_sections import chart_sections
from evenly.report.client_section import client_section
from evenly.report.disclosure import hidden_clients, hidden_groups, withheld_client_metrics, without_clients
from evenly.report.focus import Focus, choose_focus
from evenly.report.group_section import group_section
from evenly.report.group_values import with_groups
from evenly.report.html import Html, contents, document, join
from evenly.report.opening import opening, page_title
from evenly.report.paired_section import paired_section
from evenly.report.results_section import results_section
from evenly.report.setup_sections import data_section, excluded_section, paper_section, settings_section
from evenly.report.trust_sections import hidden_section, left_out_section, privacy_section
from evenly.report.values import client_split, final_values
from evenly.writing import write_whole

CONTENTS = {
    "results": "Results",
    "paper": "The paper",
    "distribution": "Clients",
    "groups": "Groups",
    "tradeoff": "Accuracy and fairness",
    "chance": "Chance",
    "rounds": "Rounds",
    "influence": "Influence",
    "weighing": "Weighing",
    "clients": "Worst served",
    "left-out": "Left out",
    "privacy": "Privacy",
    "data": "Data",
    "settings": "Settings",
    "excluded": "Excluded",
    "hidden": "Hidden",
}


def write_report(comparison: Comparison, path: str | Path, lines: list[PaperLine] | None = None, *, least: int = 0) -> Path:
    """Write the report of a comparison, with the paper's figures where there are any (`lines`).

    What rests on fewer than `least` people is hidden.
    """
    return write_page(comparison, build(comparison, lines, least=least), Path(path))


def write_page(comparison: Comparison, report: "Report", path: Path) -> Path:
    """Write what is already report."""
    text = page_text(comparison, report)
    return write_whole(path, lambda file: file.write(text.encode()))


def render(comparison: Comparison, lines: list[PaperLine] | None = None, *, least: int = 0) -> str:
    """The page as text. The same results give the same page."""
    return page_text(comparison, build(comparison, lines, least=least))


def page_text(comparison: Comparison, report: "Report") -> str:
    shown = {key: report.sections[key] for key in CONTENTS if report.sections.get(key)}
    body = [report.opening, contents({key: CONTENTS[key] for key in shown}), *shown.values()]
    return document(page_title(comparison), join(body), report.specs)


class Report(NamedTuple):
    """Everything on the page."""

    opening: Html
    sections: dict[str, Html]
    specs: dict[str, dict[str, Any]]  # charts; NAME@VARIANT is what can be shown instead of NAME


def build(comparison: Comparison, lines: list[PaperLine] | None = None, *, least: int = 0) -> Report:
    _check(comparison, least)
    split = client_split(comparison)
    hidden = np.flatnonzero(hidden_clients(comparison, split, least).cells).tolist() if least > 1 else ()
    clients = without_clients(comparison, hidden)
    values = final_values(clients, split, withheld_client_metrics(clients, split, hidden, least))
    focus, whole = choose_focus(comparison, values, least), with_groups(comparison, values, least)
    drawn, groups = chart_sections(comparison, clients, whole, focus), group_section(comparison, focus)
    told_not = {*_unnamed(comparison, focus), *(() if clients is comparison else _of_clients()), *_withheld(comparison, least)}
    sections = {
        "results": results_section(clients, values, focus),
        "paper": paper_section([line for line in lines or [] if line.metric not in told_not]),
        **drawn.sections,
        **groups.sections,
        "chance": paired_section(comparison, whole, focus),
        "clients": client_section(comparison, focus),
        "left-out": left_out_section(comparison, focus),
        "privacy": privacy_section(comparison),
        "data": data_section(comparison, least),
        "settings": settings_section(comparison),
        "excluded": Html("") if comparison.incidents else excluded_section(comparison, focus.hidden, least),
        "hidden": hidden_section(comparison, focus),
    }
    return Report(opening(comparison, values, focus), sections, drawn.specs | groups.specs)


def _of_clients() -> list[str]:
    """Metrics made of clients or of groups of them: a paper's figures beside these are of all clients, hidden ones included."""
    return [metric.name for metric in EVERY_METRIC.values() if metric.rests_on in (*OF_CLIENTS, CLIENT_GROUPS)]


def _unnamed(comparison: Comparison, focus: Focus) -> set[str]:
    return {f"client:{comparison.federation.names[k]}" for k in focus.hidden}


def _withheld(comparison: Comparison, least: int) -> set[str]:
    """Group metrics that may not be shown of some rows; a paper's figures are of any."""
    splits = ["test", *([CENTRAL] if len(comparison.federation.central) else [])]
    several = len(comparison.federation.groups) > 1
    return {metric for split in splits if several for metric in hidden_groups(comparison, split, least).withheld}


def _check(comparison: Comparison, least: int) -> None:
    if least < 0:
        raise ValueError(f"The least number of people in a cell must be at least 0, got {least}. 0 hides nothing.")
    if not comparison.runs:
        raise ValueError("A report needs at least one run, got none.")
    for run in comparison.runs:
        clients = run.trace.tables.shape[2]
        if clients != comparison.federation.clients:
            raise ValueError(
                f"Every run must have the federation's {comparison.federation.clients} clients, but {run.label!r} with seed {run.seed} "
                f"has {clients}. Compare only runs on the same clients."
            )
