"""The report: one HTML file that needs nothing else, not even a network."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.experiment.paper import PaperLine
from evenly.metrics import EVERY_METRIC
from evenly.metrics.tables import CLIENT_GROUPS, OF_CLIENTS
from evenly.report.chart_sections import charts
from evenly.report.choice import MethodChoice, choose
from evenly.report.disclosure import hidden_clients, hidden_groups, withheld_client_metrics, without_clients
from evenly.report.facts import beside, data_card, excluded, settings
from evenly.report.group_section import group_section
from evenly.report.group_values import with_groups
from evenly.report.html import Html, contents, document, join
from evenly.report.paired_section import paired_section
from evenly.report.sections import privacy, results, worst_served
from evenly.report.trust import hidden_section, left_out_section
from evenly.report.values import clients_split, final_values
from evenly.report.words import opening, title_of
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
    return write_built(comparison, build(comparison, lines, least=least), Path(path))


def write_built(comparison: Comparison, built: "Built", path: Path) -> Path:
    """Write what is already built."""
    text = text_of(comparison, built)
    return write_whole(path, lambda file: file.write(text.encode()))


def render(comparison: Comparison, lines: list[PaperLine] | None = None, *, least: int = 0) -> str:
    """The page as text. The same results give the same page."""
    return text_of(comparison, build(comparison, lines, least=least))


def text_of(comparison: Comparison, built: "Built") -> str:
    shown = {key: built.sections[key] for key in CONTENTS if built.sections.get(key)}
    body = [built.opening, contents({key: CONTENTS[key] for key in shown}), *shown.values()]
    return document(title_of(comparison), join(body), built.specs)


class Built(NamedTuple):
    """Everything on the page."""

    opening: Html
    sections: dict[str, Html]
    specs: dict[str, dict[str, Any]]  # charts; NAME@VARIANT is what can be shown instead of NAME


def build(comparison: Comparison, lines: list[PaperLine] | None = None, *, least: int = 0) -> Built:
    _check(comparison, least)
    split = clients_split(comparison)
    hidden = np.flatnonzero(hidden_clients(comparison, split, least).cells).tolist() if least > 1 else ()
    clients = without_clients(comparison, hidden)
    values = final_values(clients, split, withheld_client_metrics(clients, split, hidden, least))
    choice, whole = choose(comparison, values, least), with_groups(comparison, values, least)
    drawn, groups = charts(comparison, clients, whole, choice), group_section(comparison, choice)
    told_not = {*_unnamed(comparison, choice), *(() if clients is comparison else _of_clients()), *_withheld(comparison, least)}
    sections = {
        "results": results(clients, values, choice),
        "paper": beside([line for line in lines or [] if line.metric not in told_not]),
        **drawn.sections,
        **groups.sections,
        "chance": paired_section(comparison, whole, choice),
        "clients": worst_served(comparison, choice),
        "left-out": left_out_section(comparison, choice),
        "privacy": privacy(comparison),
        "data": data_card(comparison, least),
        "settings": settings(comparison),
        "excluded": Html("") if comparison.incidents else excluded(comparison, choice.hidden, least),
        "hidden": hidden_section(comparison, choice),
    }
    return Built(opening(comparison, values, choice), sections, drawn.specs | groups.specs)


def _of_clients() -> list[str]:
    """Metrics made of clients or of groups of them: a paper's figures beside these are of all clients, hidden ones included."""
    return [metric.name for metric in EVERY_METRIC.values() if metric.rests_on in (*OF_CLIENTS, CLIENT_GROUPS)]


def _unnamed(comparison: Comparison, choice: MethodChoice) -> set[str]:
    return {f"client:{comparison.federation.names[k]}" for k in choice.hidden}


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
