"""The page on adding a metric, followed literally: what it registers is in every table, report and
audit, and hidden where it must be.
"""

import re

import numpy as np
import pytest
from tests.auditing.invented import WHO, predictions
from tests.pages import ROOT, blocks
from tests.report.invented import comparison, federation, with_groups

import evenly
from evenly.auditing.views import client_view
from evenly.cli.terminal_tables import main_table
from evenly.experiment.paper import PaperLine
from evenly.metrics import EVERY_METRIC, GROUP_METRICS, METRICS, Metric, Spread
from evenly.report.disclosure import MANY, hidden_groups
from evenly.report.html import Charts
from evenly.report.page import build, render
from evenly.report.values import COLUMNS, results_table

LEAST = 10


@pytest.fixture(autouse=True)
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds, and charts have tests of their own."""
    monkeypatch.setattr("evenly.report.page.chart_sections", lambda *_: Charts({}, {}))
    monkeypatch.setattr("evenly.report.group_section._figures", lambda *_: [])


@pytest.fixture
def own(registries: None) -> None:
    """What the page says, except for the block that trains."""
    names: dict = {"__name__": "page"}
    for block in blocks(ROOT / "docs" / "add-a-metric.md"):
        if block.kind == "python" and "Metric(" in block.text:
            exec(block.text, names)
    assert {"below_half", "precision_gap"} <= set(EVERY_METRIC)


@pytest.fixture(scope="module")
def found():
    """Twenty clients with 8 to 15 test rows each; the third race is rare."""
    return with_groups(comparison(data=federation(20, rows=(40, 10, 8)), seeds=2))


def cells(text: str, title: str) -> list[str]:
    """A metric's column: what the table of the page that has it says of every method."""
    table = next(
        table
        for table in re.findall(r"<table.*?</table>", text, re.DOTALL)
        if title in table.split("</thead>")[0]
    )
    heads = re.findall(r"<th scope=\"col\".*?</th>", table, re.DOTALL)
    at = next(i for i, head in enumerate(heads) if title in head)
    return [
        re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL)[at]
        for row in re.findall(r"<tr.*?</tr>", table.split("</thead>")[1], re.DOTALL)
    ]


def plain(text: str) -> str:
    return re.sub(r"[\s\u00a0]+", " ", text)


def test_the_report_shows_the_metrics_of_the_page(own: None, found):
    text = plain(render(found))
    assert all(
        re.search(r"\d", re.sub("<.*?>", "", cell))
        for cell in cells(text, "Clients below 50 %") + cells(text, "Precision difference")
    )
    assert "share of aₖ &lt; ½" in text
    assert "precision₀ − precision₁" in text
    table = results_table(found, metrics=("below_half",))
    assert table.metrics == (METRICS["below_half"],) == (COLUMNS["below_half"],)
    assert main_table(found, ("precision_gap",))[1] == {"precision_gap": "precision difference"}


def test_a_metric_of_groups_is_hidden_where_what_it_rests_on_is(own: None, found):
    text = plain(render(found, least=LEAST))
    assert not {"eod", "precision_gap"} & hidden_groups(found, "test", LEAST).withheld
    assert {"eod", "precision_gap"} <= hidden_groups(found, "test", 10_000).withheld
    assert "worst_tpr" in hidden_groups(found, "test", LEAST).withheld
    assert all(
        "hidden: it rests on too few people" in cell
        for cell in cells(plain(render(found, least=10_000)), "Precision difference")
    )
    assert all(
        "hidden: it rests on too few people" not in cell
        for cell in cells(text, "Precision difference")
    )
    assert "Clients below 50 %" in text  # of the clients that are shown


def test_a_metric_of_single_groups_is_hidden_where_one_group_is(registries: None, found):
    evenly.register(
        Metric(
            "worst_f1",
            "worst F1",
            "min F1_g",
            "0 to 1",
            1,
            lambda seen: seen.groups.f1.min(-1),
            rests_on="groups",
        )
    )
    assert "worst_f1" in hidden_groups(found, "test", LEAST).withheld
    assert "worst_f1" not in hidden_groups(found, "test", 0).withheld
    assert all(
        "hidden: it rests on too few people" in cell
        for cell in cells(plain(render(found, least=LEAST)), "Worst F1")
    )
    for attribute in found.federation.attributes:
        hidden = hidden_groups(found, "test", LEAST, attribute)
        assert ("worst_f1" in hidden.withheld) == bool(hidden.cells.any())


def test_no_single_client_is_read_off_where_very_many_are_hidden(registries: None):
    """The worst client's accuracy is one client's, who may be hidden; an average of so
    many is not.
    """
    evenly.register(
        Metric(
            "median",
            "median",
            "median aₖ",
            "0 to 100 %",
            1,
            lambda a, n: 100 * np.median(a),
            rests_on="some clients",
        )
    )
    many = comparison(data=federation(2 * MANY, rows=(40, 10, 8)), seeds=1)
    text = plain(build(many, least=16).sections["results"])
    assert "n/a" in cells(text, "Worst client")[0]
    assert "n/a" in cells(text, "Median")[0]
    assert "n/a" not in cells(text, "Average (clients)")[0]
    assert (
        "they would reveal a hidden client: worst client, best client, median"
        in build(many, least=16).sections["hidden"]
    )
    assert "n/a" not in cells(plain(build(many).sections["results"]), "Worst client")[0]


def test_figures_of_groups_of_clients_are_not_set_beside_a_paper_where_clients_are_hidden(found):
    lines = [
        PaperLine("1", "test", "fedavg", metric, 50.0, 1.0, Spread(51.0, 1.0, 1.0, 2))
        for metric in ("group_average", "upload")
    ]
    shown = build(found, lines, least=LEAST).sections["paper"]
    assert "upload" in shown
    assert "average (groups)" not in shown
    assert "average (groups)" in build(found, lines).sections["paper"]


def test_an_audit_shows_the_client_metric_in_its_unit(own: None, tmp_path):
    audit = evenly.audit(predictions(), **WHO)
    (figure,) = [figure for figure in audit.figures if figure.metric == "below_half"]
    assert (figure.level, figure.unit) == ("clients", "percent")
    assert 0 <= figure.value <= 100
    assert "Clients below 50 %" in plain(audit.write(tmp_path).joinpath("report.html").read_text())
    assert "precision_gap" not in {figure.metric for figure in audit.figures}


def test_an_audit_hides_a_metric_of_few_clients(registries: None):
    """More hidden clients than there are metrics: they count, so nothing that may be one client's
    accuracy is shown.
    """
    evenly.register(
        Metric(
            "median",
            "median",
            "median aₖ",
            "0 to 100 %",
            1,
            lambda a, n: 100 * np.median(a),
            rests_on="some clients",
        )
    )
    clients = len(METRICS) + 9
    tables = np.zeros((clients, 1, 2, 2), int)
    tables[:, 0, 0, 0], tables[:, 0, 0, 1] = 3 + np.arange(clients) % 4, 1
    tables[-3:] *= 10
    view = client_view(
        "clinic", tuple(map(str, range(clients))), tables, min_cell=LEAST, few=30, anonymous=False
    )
    assert not view.summary["median"].has_value
    assert view.summary["average"].has_value
    assert (
        client_view(
            "clinic", tuple(map(str, range(clients))), tables, min_cell=0, few=30, anonymous=False
        )
        .summary["median"]
        .has_value
    )


def test_metrics_that_are_registered_are_in_every_registry_at_once(own: None):
    assert EVERY_METRIC["below_half"] is METRICS["below_half"]
    assert EVERY_METRIC["precision_gap"] is GROUP_METRICS["precision_gap"]
    assert list(EVERY_METRIC)[: len(METRICS)] == list(METRICS)
