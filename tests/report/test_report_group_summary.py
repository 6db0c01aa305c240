"""What the opening says of groups: the least |EOD| with its cost in accuracy, no stronger than the
seeds allow.
"""

import pytest
from tests.report.invented import RACE, SEX, comparison, federation, with_groups

from evenly.data.sides import Unprivileged
from evenly.report.charts.focus import MOST_SERIES, Focus, choose_focus
from evenly.report.opening import Summary, summarise_groups
from evenly.report.page import render
from evenly.report.values import final_values

NAN = float("nan")


def measured(**metrics: list[float]) -> dict[int, dict[str, float]]:
    seeds = len(next(iter(metrics.values())))
    return {s: {name: metrics[name][s] for name in metrics} for s in range(seeds)}


def choice(values: dict, *, lead: str, least_eod: str) -> Focus:
    return Focus("fedavg", lead, "", tuple(values), least_eod=least_eod)


def summarised(values: dict, focus: Focus, split: str) -> Summary:
    return summarise_groups(values, focus, split, Unprivileged("sex=female"))


def three(eod: list[float], average: list[float], third: list[float] | None = None) -> dict:
    values = {
        "fedavg": measured(eod_abs=[0.30, 0.31, 0.29], average=[80, 81, 79]),
        "fair": measured(eod_abs=[0.30, 0.33, 0.27], average=[80, 81, 79]),
        "even": measured(eod_abs=eod, average=average),
    }
    return values | ({"third": measured(eod_abs=third, average=[70, 70, 70])} if third else {})


def test_a_method_that_is_clearly_more_alike_is_named_with_its_cost():
    values = three([0.10, 0.12, 0.09], [78, 79.2, 77])
    found = summarised(values, choice(values, lead="fair", least_eod="even"), "test")
    assert (
        found.finding
        == "For the groups, |EOD|, the gap between the true positive rates of the unprivileged"
        " (sex=female) and of everyone else, is 0.300 under fedavg. fair leaves it at 0.300. Of"
        " all methods it is smallest under even, which lowers it from 0.300 to 0.103; the average"
        " accuracy changes by −1.9 points."
    )
    assert (
        found.cautions
        == "Groups are compared on the test rows of all clients together. even was selected by its"
        " |EOD| on these same rows, which favours it."
    )


def test_every_sensitive_column_and_its_unprivileged_value_are_named():
    values = three([0.10, 0.12, 0.09], [78, 79.2, 77])
    finding, cautions = summarise_groups(
        values,
        choice(values, lead="fair", least_eod="even"),
        "test",
        Unprivileged("sex=female", ("race=Black", "age=old")),
    )
    assert "of the unprivileged (sex=female) and of everyone else" in finding
    assert "together. Unprivileged in the other columns: race=Black, age=old. even" in cautions


def test_what_the_seeds_do_not_show_is_not_claimed():
    values = three([0.10, 0.50, 0.20], [78, 84, 77], third=[0.28, 0.29, 0.3])
    found = summarised(values, choice(values, lead="fair", least_eod="even"), "central")
    assert (
        "it is smallest under even, which does not clearly change it (from 0.300 to 0.267);"
        in found.finding
    )
    assert "the average accuracy changes by −0.3 points, which may be chance." in found.finding
    assert found.cautions.startswith("Groups are compared on the central test set.")
    assert found.cautions.endswith(
        "Over these seeds, fedavg, fair and third are not clearly worse than even."
    )


def test_many_methods_that_are_as_good_are_counted():
    values = three([0.1, 0.5, 0.2], [78, 84, 77], third=[0.28, 0.29, 0.3]) | {
        "last": measured(eod_abs=[0.3] * 3, average=[80] * 3)
    }
    assert (
        "Over these seeds, 4 of the 4 other methods are not clearly worse than even."
        in summarised(values, choice(values, lead="fair", least_eod="even"), "test")[1]
    )


def test_a_lead_that_also_treats_groups_most_alike_is_named_once():
    values = three([0.10, 0.12, 0.09], [80, 81, 79])
    found = summarised(values, choice(values, lead="even", least_eod="even"), "test").finding
    assert "fair" not in found
    assert found.count("smallest under even, which lowers it") == 1
    assert found.endswith("the average accuracy stays the same.")


def test_a_baseline_that_no_method_improves_on():
    values = three([0.40, 0.42, 0.39], [80, 81, 79])
    found = summarised(values, choice(values, lead="even", least_eod="fedavg"), "test")
    assert found.finding.endswith(
        "even raises it from 0.300 to 0.403. No other method has a smaller |EOD|."
    )
    assert "flatters" not in found.cautions


def test_undefined_values_are_not_compared():
    values = {
        "fedavg": measured(eod_abs=[NAN], average=[80]),
        "even": measured(eod_abs=[0.2], average=[80]),
    }
    found = summarised(values, choice(values, lead="even", least_eod="even"), "test").finding
    assert found.endswith("of everyone else, 0.200.")
    assert found.startswith("For the groups, even has the least |EOD|")


def test_without_rows_of_clients_few_seeds_are_named_here():
    values = {
        "fedavg": measured(eod_abs=[0.3], average=[NAN]),
        "even": measured(eod_abs=[0.2], average=[NAN]),
    }
    found = summarised(values, choice(values, lead="even", least_eod="even"), "central")
    assert "single seed" in found.cautions
    assert "the average accuracy cannot be compared" in found.finding


def test_one_method_and_no_groups():
    alone = {"fedavg": measured(eod_abs=[0.3, 0.3], average=[80, 80])}
    assert summarised(
        alone, choice(alone, lead="fedavg", least_eod="fedavg"), "test"
    ).finding.endswith("is 0.300 under fedavg.")
    assert summarised(alone, choice(alone, lead="fedavg", least_eod=""), "test") == ("", "")


@pytest.mark.parametrize("central", [0, 500])
def test_the_page_opens_with_clients_and_groups(central):
    found = with_groups(
        comparison(seeds=3, data=federation(20, rows=(40, 10, 40))), central=central
    )
    header = render(found).split("</header>")[0]
    assert "For the groups, |EOD|, the gap" in header
    assert f"of the unprivileged (sex={SEX[0]}) and of everyone else" in header
    assert f"Unprivileged in the other columns: race={RACE[0]}." in header
    assert ("central test set" in header) == bool(central)
    assert "For the groups" not in render(comparison()).split("</header>")[0]


def test_the_method_that_treats_groups_most_alike_is_always_drawn():
    found = with_groups(comparison(["fedavg", *(f"q-fedavg(q={i})" for i in range(30))], seeds=1))
    # Women and men are found as often by one method only, which is otherwise like the first.
    even = found.runs[0].trace.tables.copy()
    even[..., 1, :] = even[..., 1, :].sum(-1, keepdims=True)
    runs = [
        r._replace(trace=r.trace._replace(tables=even)) if r.label == "q-fedavg(q=3)" else r
        for r in found.runs
    ]
    chosen = choose_focus(found._replace(runs=runs), final_values(found))
    assert chosen.least_eod == "q-fedavg(q=3)"
    assert chosen.least_eod in chosen.series
    assert len(chosen.series) == MOST_SERIES
