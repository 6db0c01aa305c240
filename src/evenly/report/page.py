"""The report: one HTML file that needs nothing else, not even a network."""

from pathlib import Path
from typing import Any, NamedTuple

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.experiment.paper import PaperLine
from evenly.experiment.promises import withholds
from evenly.metrics import EVERY_METRIC
from evenly.metrics.metric import CLIENT_GROUPS, OF_CLIENTS
from evenly.records import require
from evenly.report.chart_sections import chart_sections
from evenly.report.charts.focus import Focus, choose_focus
from evenly.report.client_section import client_section
from evenly.report.disclosure import (
    hidden_groups,
    hidden_numbers,
    withheld_client_metrics,
    without_clients,
)
from evenly.report.group_section import group_section
from evenly.report.group_values import with_groups
from evenly.report.html import Html, contents, document, join
from evenly.report.opening import opening, page_title, withheld_opening
from evenly.report.paired_section import paired_section
from evenly.report.promise_section import promise_section
from evenly.report.results_section import results_section
from evenly.report.setup_sections import (
    data_section,
    excluded_section,
    paper_section,
    settings_section,
)
from evenly.report.trust_sections import (
    hidden_section,
    left_out_section,
    privacy_section,
)
from evenly.report.values import client_split, final_values
from evenly.writing import write_whole

# The sections of the page in order, with their titles in its list of contents.
CONTENTS = {
    "promise": "Promise",
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


class Report(NamedTuple):
    """Everything on the page."""

    title: str
    opening: Html
    sections: dict[str, Html]
    specs: dict[str, dict[str, Any]]  # charts; NAME@VARIANT is what can be shown instead of NAME

    @property
    def text(self) -> str:
        """The page as HTML. The same results give the same page."""
        unlisted = sorted(self.sections.keys() - CONTENTS.keys())
        require(
            not unlisted, f"Sections {unlisted} have no place on the page. Add them to CONTENTS."
        )
        sections = {key: self.sections[key] for key in CONTENTS if self.sections.get(key)}
        body = [
            self.opening,
            contents({key: CONTENTS[key] for key in sections}),
            *sections.values(),
        ]
        return document(self.title, join(body), self.specs)

    def write(self, path: Path) -> Path:
        """Write the page as one HTML file."""
        return write_whole(path, lambda file: file.write(self.text.encode()))


def write_report(
    comparison: Comparison,
    path: str | Path,
    lines: list[PaperLine] | None = None,
    *,
    least: int = 0,
) -> Path:
    """Write the report of a comparison as one HTML file.

    Args:
        comparison: The runs to compare, on the same clients.
        path: The file to write.
        lines: The paper's figures beside these results, if there is a paper.
        least: Hide everything that rests on fewer people than this. 0 hides nothing.

    Returns:
        The path.

    Raises:
        ValueError: If there are no runs, if runs have different clients, or if `least` is negative.
    """
    return build(comparison, lines, least=least).write(Path(path))


def render(comparison: Comparison, lines: list[PaperLine] | None = None, *, least: int = 0) -> str:
    """The page of a comparison as text; arguments as for `write_report`."""
    return build(comparison, lines, least=least).text


def build(
    comparison: Comparison, lines: list[PaperLine] | None = None, *, least: int = 0
) -> Report:
    """Compute all sections and charts of a report; arguments as for `write_report`."""
    _check(comparison, least)
    if withholds(comparison.privacy):
        return _withheld_report(comparison)
    split = client_split(comparison)
    hidden = hidden_numbers(comparison, split, least)
    clients = without_clients(comparison, hidden)
    values = final_values(clients, split, withheld_client_metrics(clients, split, hidden, least))
    focus, whole = choose_focus(comparison, values, least), with_groups(comparison, values, least)
    charts, groups = (
        chart_sections(comparison, clients, whole, focus),
        group_section(comparison, focus),
    )
    withheld = {
        *_unnamed(comparison, focus),
        *(() if clients is comparison else _of_clients()),
        *_withheld(comparison, least),
    }
    sections = {
        "promise": promise_section(comparison),
        "results": results_section(clients, values, focus),
        "paper": paper_section([line for line in lines or [] if line.metric not in withheld]),
        **charts.sections,
        **groups.sections,
        "chance": paired_section(comparison, whole, focus),
        "clients": client_section(comparison, focus),
        "left-out": left_out_section(comparison, focus),
        "privacy": privacy_section(comparison),
        "data": data_section(comparison, least),
        "settings": settings_section(comparison),
        "excluded": (
            Html("") if comparison.incidents else excluded_section(comparison, focus.hidden, least)
        ),
        "hidden": hidden_section(comparison, focus),
    }
    return Report(
        page_title(comparison),
        opening(comparison, values, focus),
        sections,
        charts.specs | groups.specs,
    )


def _withheld_report(comparison: Comparison) -> Report:
    """The page where figures without noise are left out: what is promised, what clients reveal and
    the settings.
    """
    quiet = comparison._replace(sizes="")
    sections = {
        "promise": promise_section(quiet),
        "privacy": privacy_section(quiet),
        "settings": settings_section(quiet),
    }
    return Report(page_title(quiet), withheld_opening(quiet), sections, {})


def _of_clients() -> list[str]:
    """Metrics computed from clients. A paper's figures for these include all clients, also hidden
    ones.
    """
    return [
        metric.name
        for metric in EVERY_METRIC.values()
        if metric.rests_on in (*OF_CLIENTS, CLIENT_GROUPS)
    ]


def _unnamed(comparison: Comparison, focus: Focus) -> set[str]:
    return {f"client:{comparison.federation.names[k]}" for k in focus.hidden}


def _withheld(comparison: Comparison, least: int) -> set[str]:
    """Group metrics that must not be shown for some split; a paper's figures may refer to any."""
    splits = ["test", *([CENTRAL] if len(comparison.federation.central) else [])]
    several = len(comparison.federation.groups) > 1
    return {
        metric
        for split in splits
        if several
        for metric in hidden_groups(comparison, split, least).withheld
    }


def _check(comparison: Comparison, least: int) -> None:
    if least < 0:
        raise ValueError(
            f"The least number of people in a cell must be at least 0, got {least}. 0 hides"
            " nothing."
        )
    if not comparison.runs:
        raise ValueError("A report needs at least one run, got none.")
    for run in comparison.runs:
        clients = run.trace.tables.shape[2]
        if clients != comparison.federation.clients:
            raise ValueError(
                f"Every run must have the federation's {comparison.federation.clients} clients, but"
                f" {run.label!r} with seed {run.seed} has {clients}. Compare only runs on the same"
                " clients."
            )
