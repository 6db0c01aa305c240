"""A central test set, and clients without test rows of their own: what is measured where, in the
table, the words and the terminal.
"""

import html
import io
import re

import numpy as np
import pytest
from rich.console import Console
from tests.report.invented import comparison, federation, with_groups

from evenly.cli.terminal_tables import results_table
from evenly.data.splits import CENTRAL
from evenly.records import replace
from evenly.report.charts.focus import choose_focus
from evenly.report.opening import summarise
from evenly.report.page import render
from evenly.report.values import client_split, final_values, headline, over_seeds


def with_central(found, right=(90, 80)):
    """The same comparison with 100 central rows; each method has its own number of them right."""
    runs = []
    for run in found.runs:
        n = right[found.labels.index(run.label)]
        central = np.zeros((*run.trace.central.shape[:2], 2, 2), np.int32)
        central[:, 0] = [[n - run.seed, 0], [100 - n + run.seed, 0]]
        runs.append(run._replace(trace=run.trace._replace(central=central)))
    return found._replace(
        federation=replace(found.federation, central=np.arange(100, dtype=np.int32)), runs=runs
    )


@pytest.fixture(scope="module")
def validated():
    """Clients with validation rows only."""
    return with_central(comparison(data=federation(20, rows=(40, 30, 0))))


@pytest.fixture(scope="module")
def untested():
    """Clients with training rows only."""
    return with_central(comparison(data=federation(5, rows=(40, 0, 0))))


def shown(made) -> str:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(results_table(made))
    return " ".join(capture.get().split())


def page(made) -> str:
    text = re.sub(r"<script.*?</script>|<style.*?</style>", "", render(made), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def summary(made):
    values = final_values(made, client_split(made))
    return summarise(values, choose_focus(made, values))


def test_clients_are_compared_on_validation_rows_only_where_nobody_has_test_rows(
    validated, untested
):
    assert client_split(comparison()) == "test"
    assert client_split(validated) == "valid"
    assert client_split(untested) == "test"


def test_the_accuracy_on_the_central_test_set_is_a_figure_of_its_own(validated):
    values = final_values(validated, "valid")
    assert headline(values) == CENTRAL
    assert over_seeds(values, "fedavg", CENTRAL).mean == pytest.approx(89)  # 90, 89 and 88 of 100
    assert headline(final_values(comparison())) == "average"


def test_beside_test_rows_of_clients_a_central_test_set_changes_nothing():
    usual = comparison()
    assert page(with_central(usual)).replace("Central test set 100 rows ", "") == page(usual)
    assert shown(with_central(usual)) == shown(usual)


def test_the_terminal_shows_it_and_says_on_which_rows_clients_are_compared(validated):
    text = shown(validated)
    for words in (
        "accuracy in percent on the central test set, and validation accuracy",
        "(they have no test rows)",
        "central",
        "89.0 ±",
    ):
        assert words in text
    assert "n/a" not in text


def test_the_page_says_so_too(validated):
    text = page(validated)
    for words in (
        "No client has test rows of its own: clients are compared on their validation rows.",
        "the accuracy on the central test set changes by −10.0 points",
        "on the central test set (first column) and on the clients' own validation rows",
        "Worst 10 % of clients, validation rows",
        "20, compared on their validation rows",
    ):
        assert words in text
    assert "n/a" not in text


def test_choosing_on_the_rows_that_are_shown_is_admitted():
    made = with_central(
        comparison(("fedavg", "a", "b"), data=federation(10, rows=(20, 20, 0))), (90, 80, 70)
    )
    assert "on the same validation rows, which favours it" in summary(made).cautions


def test_where_nothing_is_known_of_clients_the_central_test_set_is_left(untested):
    assert (
        "On the central test set fedavg reaches 89.0 % and q-fedavg(q=1) reaches 79.0 %."
        in summary(untested).finding
    )
    text = shown(untested)
    assert "89.0 ±" in text
    assert "worst 10 %" not in text
    assert "n/a" not in text
    assert "Accuracy on the central test set" in page(untested)


def test_without_a_central_test_set_groups_are_measured_on_the_same_validation_rows():
    made = with_groups(comparison(data=federation(20, rows=(40, 30, 0))))
    assert "the validation rows of all clients together" in page(made)
    assert "groups on all clients' validation rows" in shown(made)


def test_one_method_alone_is_described_by_it(validated):
    alone = validated._replace(runs=validated.of("fedavg"))
    assert summary(alone).finding.startswith(
        "fedavg reaches 89.0 % on the central test set; the worst-served 10 %"
    )
