"""A report that hides small numbers: none is in it, none can be found by subtraction, and it says
what is missing.
"""

import json
import re

import numpy as np
import pytest
from tests.report.invented import RACE, comparison, federation, with_groups

from evenly.data.sensitive import Attribute
from evenly.data.splits import SPLITS
from evenly.experiment.paper import PaperLine
from evenly.metrics import Spread, by_attribute, pooled
from evenly.records import replace
from evenly.report.charts.accuracy import lorenz
from evenly.report.charts.weighing import weight_history
from evenly.report.disclosure import client_groups, hidden_clients, hidden_groups, without_clients
from evenly.report.group_values import group_rates, groupings
from evenly.report.page import build, render
from evenly.report.values import client_accuracy, final_values

LEAST = 10


@pytest.fixture(scope="module")
def found():
    """Twenty clients with 8 to 15 test rows each: the first ones are small. The third
    race is rare.
    """
    return with_groups(comparison(data=federation(20, rows=(40, 10, 8)), seeds=2))


@pytest.fixture(scope="module")
def page(found) -> str:
    return render(found, least=LEAST)


def words(text: str) -> str:
    return re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.DOTALL)


def test_small_clients_are_named_nowhere(found, page):
    rows = np.stack(
        [run.trace.tables[-1, SPLITS.index("test")].sum((-3, -2, -1)) for run in found.runs]
    )
    small = np.flatnonzero((rows < LEAST).any(0))
    assert 0 < len(small) < 20
    for k in small:
        assert not re.search(rf"\bclient {k}\b", page)
    assert re.search(r"\bclient 19\b", page)


def test_nothing_is_hidden_unless_it_is_asked_for(found):
    text = render(found)
    assert '<section id="hidden"' not in text
    assert re.search(r"\bclient 0\b", text)
    assert render(found, least=1) == text


def test_the_page_says_what_is_hidden_and_why(page):
    hidden = words(page).split('<section id="hidden"')[1]
    assert "Values that rest on fewer than 10 people are hidden" in hidden
    assert "clients are not shown" in hidden
    assert "By sex and race: " in hidden


def test_what_is_hidden_is_told_in_the_words_of_the_tables(page):
    """The page had "rate of a group by labels" and names such as acc_diff."""
    hidden = words(page).split('<section id="hidden"')[1]
    assert re.search(r"\d+ rates of groups by label are not shown", hidden)
    reveal = "these metrics are not shown, because they would reveal hidden figures:"
    assert f"By sex and race: {reveal} range of selection rate" in hidden
    assert "_range" not in hidden


def test_no_reason_tells_which_hidden_figure_is_the_small_one(found, page):
    """A group of many people that protects another is not said to have too few. Nor is the
    protected one: of 11 people in two hidden groups, the small one would then have 1.
    """
    hidden = hidden_groups(found, "test", LEAST)
    assert (hidden.cells & ~hidden.small).any()
    reasons = set(re.findall(r'title="(hidden[^"]*)"', words(page)))
    assert reasons == {"hidden: it rests on too few people, or would reveal a figure that does"}


def test_no_rate_of_a_group_rests_on_few_people(found):
    tables = np.stack([pooled(run.trace, "test")[-1] for run in found.runs])
    # [groups, 3]
    counts = np.stack(
        [tables.sum((-2, -1)), tables[:, :, 1].sum(-1), tables[:, :, 0].sum(-1)], axis=-1
    ).min(0)
    hidden = hidden_groups(found, "test", LEAST)
    assert ((counts > 0) & (counts < LEAST)).any()
    assert hidden.cells[(counts > 0) & (counts < LEAST)].all()
    assert "worst_accuracy" in hidden.withheld  # it may be the hidden group's
    specs = json.dumps(build(found, least=LEAST).specs["chart-groups-tpr"])
    assert "hidden to protect people" in specs


def test_accuracy_is_hidden_where_it_could_tell_hidden_labels(found):
    """Of a group that the model never selects, accuracy is the share of people without the
    favourable label.
    """
    grouping, hidden = groupings(found.federation)[0], hidden_groups(found, "test", LEAST)
    partly = ~hidden.cells[:, 0] & hidden.cells[:, 1:].any(1)
    assert partly.any()
    for label in {run.label for run in found.runs}:
        rates = {
            name: group_rates(found, grouping, label, "test", name, hidden=hidden)
            for name in ("accuracy", "selection_rate")
        }
        assert all(
            rates["accuracy"][g].hidden and not rates["selection_rate"][g].hidden
            for g in np.flatnonzero(partly)
        )


def test_totals_of_sides_and_attributes_give_no_group_away(found):
    cells = hidden_groups(found, "test", LEAST).cells[:, 0]
    seen = np.stack([pooled(run.trace, "test")[-1].sum((-2, -1)) for run in found.runs])
    counts = np.where(seen.any(0), np.where(seen > 0, seen, 999).min(0), 0)
    for attribute in found.federation.attributes:
        of = np.array(attribute.of_group)
        margins = hidden_groups(found, "test", LEAST, attribute).cells[:, 0]
        for value in range(len(attribute.values)):
            line = (of == value) & cells & (counts > 0)
            assert (
                margins[value] or not line.any() or (line.sum() > 1 and counts[line].sum() >= LEAST)
            )


def test_of_two_sides_one_small_hides_both_and_their_difference():
    found = with_groups(comparison(data=federation(4, rows=(40, 10, 10)), seeds=1))
    sex = Attribute("sex", ("Female", "Male"), (0, 1), 0)
    runs = []
    for run in found.runs:
        two = by_attribute(run.trace.tables, found.federation.attributes[0])
        two[:, :, 1:, 0] = 0  # women are at the first client only
        runs.append(
            run._replace(
                trace=run.trace._replace(tables=two, central=np.zeros((4, 2, 2, 2), np.int32))
            )
        )
    data = replace(
        found.federation, groups=("Female", "Male"), attributes=(sex,), unprivileged=(0,)
    )
    few = found._replace(runs=runs, federation=data)
    hidden = hidden_groups(few, "test", LEAST)
    assert hidden.cells.all()
    assert {"eod", "spd_abs", "acc_range"} <= hidden.withheld
    text = words(render(few, least=LEAST))
    assert "among the unprivileged" not in text
    assert "For the groups," not in text
    assert not re.search(r"\b(nan|NaN)\b", text)


def test_a_single_small_client_takes_another_with_it():
    found = comparison(data=federation(5, rows=(40, 10, 40)), seeds=1)
    for run in found.runs:
        run.trace.tables[-1, 2, 3] //= 10
    # the first is the smallest of the others
    assert np.flatnonzero(hidden_clients(found, "test", LEAST).cells).tolist() == [0, 3]


def test_few_training_rows_hide_a_client_too():
    found = comparison(data=federation(5, rows=(40, 10, 40)), seeds=1)
    for run in found.runs:
        run.trace.tables[-1, 0, 4] //= 10
    assert 4 in np.flatnonzero(hidden_clients(found, "test", LEAST).cells)


def test_the_papers_figures_of_small_clients_are_left_out():
    found = comparison(data=federation(4, rows=(40, 10, 6)), seeds=1)
    lines = [
        PaperLine(
            "Table 1", "test", "fedavg", f"client:client {k}", 50.0, None, Spread(50.0, 0.0, 0.0, 1)
        )
        for k in (0, 3)
    ]
    text = words(render(found, lines, least=LEAST))
    assert "client 3" in text
    assert "client 0" not in text


def test_clients_tell_their_groups_and_small_ones_are_not_told(found):
    assert all(RACE[1] in text and "%" in text for text in client_groups(found))
    for text in client_groups(found, least=25):
        assert "Other" not in text
    alone = comparison()
    assert client_groups(alone) == []
    clustered = alone._replace(federation=replace(alone.federation, client_group=np.arange(20) % 2))
    assert client_groups(clustered)[:2] == ["group 1", "group 2"]


def test_less_than_nobody_is_refused(found):
    with pytest.raises(ValueError, match="must be at least 0, got -1"):
        render(found, least=-1)


def test_few_hidden_clients_are_in_no_figure_or_chart_over_clients():
    """A Lorenz curve with every client would tell all accuracies, a mean and a variance those of
    two, whatever names are left out.
    """
    found = comparison(data=federation(24, rows=(40, 10, 40)), seeds=1)
    for run in found.runs:
        # five rows, an accuracy that nobody else has
        run.trace.tables[-1, :, 3:5] = np.array([[[1, 4], [0, 0]]])
    hidden = np.flatnonzero(hidden_clients(found, "test", LEAST).cells).tolist()
    assert hidden == [3, 4]
    kept = [k for k in range(24) if k not in hidden]
    own = without_clients(found, hidden)
    accuracies, _ = client_accuracy(found.runs[0])
    built, label = build(found, least=LEAST), found.labels[0]
    assert final_values(own)[label][0]["variance"] == pytest.approx(accuracies[kept].var())
    curve = next(rows for rows in built.specs["chart-lorenz"]["datasets"].values() if len(rows) > 2)
    shares = [row["share"] for row in curve if row["method"] == label]
    np.testing.assert_allclose(shares, 100 * lorenz(accuracies[kept]), rtol=1e-4)
    bars = next(
        rows for rows in built.specs["chart-distribution"]["datasets"].values() if "bin" in rows[0]
    )
    assert sum(row["clients"] for row in bars if row["method"] == label) == len(kept)
    losses = {
        row["loss"] for rows in built.specs["chart-weighing"]["datasets"].values() for row in rows
    }
    assert not losses & {float(f"{loss:.5g}") for loss in found.runs[0].trace.losses[-1, 0, hidden]}
    assert without_clients(found, ()) is found
    # before the figures that do not count them
    assert "<strong>2 of 24 clients</strong> are " in built.opening
    assert "over clients cover the other 22" in built.opening
    assert "cover the other" not in build(found).opening


def test_the_papers_figures_tell_nothing_that_is_withheld(found):
    lines = [
        PaperLine("Table 1", "test", "fedavg", metric, 0.5, None, Spread(0.1234, 0.0, 0.0, 1))
        for metric in ("variance", "acc_range", "accuracy")
    ]
    text = (
        words(render(found, lines, least=LEAST))
        .split('<section id="paper"')[1]
        .split("</section>")[0]
    )
    assert ">variance</th>" not in text
    assert ">range of accuracy</th>" not in text
    assert ">accuracy</th>" in text
    assert ">variance</th>" in render(found, lines)


def test_the_weight_of_no_hidden_client_is_what_the_others_leave():
    # eight bands of three clients, and the smallest two by two
    found = comparison(data=federation(28, rows=(40, 10, 40)), seeds=1)
    whole, part = (weight_history(found, "fedavg", hidden) for hidden in ((), (1, 2)))
    assert whole is not None
    assert part is not None
    assert len(whole.bands) == 10
    # without both bands that a hidden client shares with one that is shown
    assert len(part.bands) == 8
    alike = weight_history(found, "fedavg", range(4))
    assert alike is not None
    assert len(alike.bands) == 10  # two by two
