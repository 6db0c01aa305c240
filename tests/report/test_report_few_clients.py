"""Few clients have lines with their names instead of histograms, clouds of dots and Lorenz curves;
attributes come before intersections.
"""

import json
from typing import Any

import numpy as np
import pytest
from tests.auditing.invented import WHO, predictions
from tests.report.invented import comparison, federation, with_groups
from tests.tunings import Trainer

import evenly
from evenly.experiment import tuning
from evenly.experiment.comparison import Comparison
from evenly.report.chart_sections import chart_sections
from evenly.report.charts.accuracy import named_accuracy, named_influence
from evenly.report.charts.focus import Focus, choose_focus
from evenly.report.client_section import client_section
from evenly.report.disclosure import client_groups, without_clients
from evenly.report.group_section import group_section
from evenly.report.html import Charts, draw
from evenly.report.tuning_page import render_tuning
from evenly.report.values import final_values

HOSPITALS = tuple(f"Hospital {letter}" for letter in "ABCDEFGH")


def few(clients: int = 8, **options: Any) -> Comparison:
    return comparison(
        data=federation(
            clients, names=HOSPITALS[:clients] if clients <= 8 else (), rows=(40, 10, 30)
        ),
        seeds=2,
        **options,
    )


def drawn(found: Comparison, least: int = 0) -> tuple[Charts, Focus]:
    values = final_values(found)
    choice = choose_focus(found, values, least)
    return chart_sections(found, without_clients(found, choice.hidden), values, choice), choice


@pytest.mark.parametrize(("clients", "named"), [(8, True), (19, True), (20, False)])
def test_below_twenty_clients_every_one_has_a_line_with_its_name(clients, named):
    found, _ = drawn(few(clients))
    assert ("chart-clients" in found.specs) == named
    assert ("chart-distribution" in found.specs) == ("chart-lorenz" in found.specs) == (not named)
    if named:
        assert all(
            name in json.dumps(found.specs["chart-clients"])
            for name in few(clients).federation.names
        )
        axis = found.specs["chart-influence"]["layer"][-1]["encoding"]["y"]
        assert axis["field"] == "client"
        assert len(axis["sort"]) == clients


def test_the_worst_served_client_stands_on_top_and_the_average_is_a_line():
    spec = named_accuracy(few(), ["fedavg", "q-fedavg(q=1)"], "test", (), 71.5).to_dict()
    # the first client is served worst
    assert spec["layer"][-1]["encoding"]["y"]["sort"][0] == "Hospital A"
    assert [{"value": 71.5}] in list(spec["datasets"].values())
    assert spec["layer"][-1]["encoding"]["shape"]["scale"]["domain"] == ["fedavg", "q-fedavg(q=1)"]


def test_long_names_are_whole_where_there_is_room_for_them():
    names = ["Universitätsklinikum Süd und West", "Mercy & Grace Hospital", *"abcdef"]
    found = comparison(data=federation(8, names=names))
    chart = named_accuracy(found, found.labels, "test", (), 71.5)
    assert ">Universitätsklinikum Süd und West</text>" in draw(chart.to_dict(), "svg").decode()


def test_a_hidden_client_has_no_line():
    found = few()
    for chart in (
        named_accuracy(found, ["fedavg"], "test", (0, 3), 70.0),
        named_influence(found, ["fedavg"], (0, 3)),
    ):
        assert chart is not None
        text = json.dumps(chart.to_dict())
        assert "Hospital B" in text
        assert "Hospital A" not in text
        assert "Hospital D" not in text


def test_the_caption_says_that_only_some_clients_have_a_line():
    assert "One line per client, the one" in drawn(few())[0].sections["distribution"]
    found, choice = drawn(comparison(data=federation(8, rows=(40, 10, 7)), seeds=1), 10)
    assert 0 < len(choice.hidden) < 8
    assert "One line per client that is shown, the one" in found.sections["distribution"]


def test_a_weight_of_about_0_is_explained_by_what_happened():
    """Clients that took part in every round stood under a remark on clients that never did."""
    found = few()
    never, hardly = (
        "A client that was never sampled has weight 0.",
        "A client that took part has a weight of about 0",
    )

    def caption(cohort: np.ndarray, weights: np.ndarray) -> str:
        runs = [
            run._replace(trace=run.trace._replace(cohort=cohort, weights=weights))
            for run in found.runs
        ]
        return drawn(found._replace(runs=runs))[0].sections["influence"]

    everybody, even = np.tile(np.arange(8, dtype=np.int32), (30, 1)), np.full((30, 8), 0.125)
    assert never not in caption(everybody, even)
    assert hardly not in caption(everybody, even)
    one_less = np.where(everybody == 7, 0, everybody)
    assert never in caption(one_less, even)
    assert hardly not in caption(one_less, even)
    even[:, 7] = 1e-4
    assert never not in caption(everybody, even)
    assert hardly in caption(everybody, even)


def test_few_clients_are_all_listed_with_their_rates():
    found = few()
    values = final_values(found)
    page = client_section(found, choose_focus(found, values))
    assert "True positive rate" in page
    # under each method, and in the table of all
    assert all(page.count(name) >= 3 for name in HOSPITALS)
    assert "Filter the clients" not in page


def test_attributes_come_before_their_intersections():
    found = with_groups(few())
    made = group_section(found, choose_focus(found, final_values(found)))
    text = made.sections["groups"]
    assert (
        text.index("By sex") < text.index("By race") < text.index("Intersections of sex and race")
    )
    assert {"chart-groups-1-accuracy", "chart-groups-2-tpr", "chart-groups-accuracy"} <= set(
        made.specs
    )
    assert text.index("chart-groups-1-accuracy") < text.index("chart-groups-accuracy")


def test_a_clients_groups_are_told_by_attribute():
    first, *_ = client_groups(with_groups(few()))
    assert first.startswith("sex: Male ")
    assert "; race: White " in first
    assert "sex=" not in first


@pytest.mark.parametrize(("clients", "histogram"), [(12, False), (20, True)])
def test_an_audit_draws_a_histogram_from_twenty_clients_on(clients, histogram, tmp_path):
    page = (
        evenly.audit(predictions(clients=clients), **WHO).report(tmp_path / "page.html").read_text()
    )
    assert ("chart-clients-spread" in page) == histogram
    assert "chart-clients-each" in page
    assert ("Every client, the worst served first." in page) == (not histogram)


def test_the_page_of_a_search_says_the_data_and_the_question(monkeypatch):
    monkeypatch.setattr(tuning, "execute", Trainer())
    found = tuning.tune(
        "q-fedavg(q=[1])", data={"name": "synthetic", "clients": 2}, rounds=10, seeds=2
    )
    assert "<h1>Synthetic non-iid: which settings of q-fedavg are best?</h1>" in render_tuning(
        found, "chosen/report.html"
    )
