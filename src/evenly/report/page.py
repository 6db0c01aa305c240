"""The report: one HTML file that needs nothing else, not even a network."""

from pathlib import Path

from evenly.experiment.reproduce import Line
from evenly.experiment.results import Comparison
from evenly.report.beside import beside
from evenly.report.by_group import with_groups
from evenly.report.chart_sections import charts
from evenly.report.choice import choose
from evenly.report.document import contents, document
from evenly.report.facts import data_card, excluded, settings
from evenly.report.group_section import group_section
from evenly.report.markup import join
from evenly.report.opening import opening
from evenly.report.paired_section import paired_section
from evenly.report.sections import privacy, results, worst_served
from evenly.report.table import clients_split, final_values
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
    "privacy": "Privacy",
    "data": "Data",
    "settings": "Settings",
    "excluded": "Excluded",
}


def write_report(comparison: Comparison, path: str | Path, lines: list[Line] | None = None) -> Path:
    """Write the report of a comparison, with the paper's figures where there are any (`lines`)."""
    text = render(comparison, lines)
    return write_whole(Path(path), lambda file: file.write(text.encode()))


def render(comparison: Comparison, lines: list[Line] | None = None) -> str:
    """The page as text. The same results give the same page."""
    _check(comparison)
    values = final_values(comparison, clients_split(comparison))
    choice = choose(comparison, values)
    whole = with_groups(comparison, values)
    drawn, groups = charts(comparison, whole, choice), group_section(comparison, choice)
    sections = {
        "results": results(comparison, values, choice),
        "paper": beside(lines or []),
        **groups.sections,
        **drawn.sections,
        "chance": paired_section(comparison, whole, choice),
        "clients": worst_served(comparison, choice),
        "privacy": privacy(comparison),
        "data": data_card(comparison),
        "settings": settings(comparison),
        "excluded": excluded(comparison),
    }
    shown = {key: sections[key] for key in CONTENTS if sections.get(key)}
    body = [opening(comparison, values, choice), contents({key: CONTENTS[key] for key in shown}), *shown.values()]
    return document(comparison.title or comparison.name, join(body), groups.specs | drawn.specs)


def _check(comparison: Comparison) -> None:
    if not comparison.runs:
        raise ValueError("A report needs at least one run, got none.")
    for run in comparison.runs:
        clients = run.trace.tables.shape[2]
        if clients != comparison.federation.clients:
            raise ValueError(
                f"Every run must have the federation's {comparison.federation.clients} clients, but {run.label!r} with seed {run.seed} "
                f"has {clients}. Compare only runs on the same clients."
            )
