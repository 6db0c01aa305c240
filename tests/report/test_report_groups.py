"""The report's view of groups: rates with intervals, marks on small ones, reasons for what is
undefined.
"""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console
from tests.report.invented import RACE, SEX, comparison, federation, unbroken, with_groups

from evenly.cli.terminal_tables import results_table
from evenly.data.sensitive import FEW
from evenly.metrics import GROUP_METRICS, measure_groups
from evenly.records import replace
from evenly.report.charts.tradeoff import MOST_GROUPS, largest, rates_chart
from evenly.report.charts.weighing import weigh_losses, weighing_chart
from evenly.report.group_section import FURTHER, MAIN
from evenly.report.group_values import (
    group_rates,
    group_split,
    group_values,
    groupings,
    metric_intervals,
    metrics_of_few,
)
from evenly.report.page import render
from evenly.report.values import wilson


@pytest.fixture(scope="module")
def found():
    return with_groups(comparison(seeds=3, data=federation(20, rows=(40, 10, 40))))


@pytest.fixture(scope="module")
def one():
    return with_groups(comparison(seeds=1, data=federation(20, rows=(40, 10, 40))))


@pytest.fixture(scope="module")
def page(found):
    return render(found)


@pytest.fixture(scope="module")
def page_of_one(one):
    return render(one)


@pytest.fixture(scope="module")
def page_without_groups():
    return render(comparison())


def words(text: str) -> str:
    return re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.DOTALL)


def test_groups_are_seen_together_and_by_each_attribute(found):
    whole, sex, race = groupings(found.federation)
    assert (whole.title, sex.names, race.names) == ("sex and race", SEX, RACE)
    table = found.runs[0].trace.tables[-1, 2].sum(0)
    np.testing.assert_array_equal(sex.pool(table), [table[:3].sum(0), table[3:].sum(0)])
    assert groupings(comparison().federation) == []
    alone = replace(found.federation, attributes=found.federation.attributes[:1])
    assert len(groupings(alone)) == 1  # one attribute is the groups themselves


def test_values_are_the_metrics_of_each_run(found):
    whole, sex, _ = groupings(found.federation)
    run = found.runs[-1]
    table = run.trace.tables[-1, 2].sum(0)
    by_hand = measure_groups(table, favourable=1, unprivileged=(0, 1, 2))
    assert group_values(found, whole, "test")[run.label][run.seed] == {
        n: pytest.approx(float(v), nan_ok=True) for n, v in by_hand.items()
    }
    assert group_values(found, sex, "test")[run.label][run.seed]["eod"] == pytest.approx(
        float(by_hand["eod"])
    )


def test_the_central_test_set_is_shown_where_there_is_one(found, page):
    central = with_groups(comparison(seeds=2), central=500)
    assert (group_split(found), group_split(central)) == ("test", "central")
    text = words(render(central))
    assert "the central test set, 500 rows" in text
    assert "<summary>On the clients" in text
    assert "<summary>On the clients" not in words(page)


def test_rates_are_means_over_seeds_from_the_lowest_to_the_highest(found):
    whole = groupings(found.federation)[0]
    rates = group_rates(found, whole, "fedavg", "test", "tpr")
    seeds = [run.trace.tables[-1, 2].sum(0)[0] for run in found.of("fedavg")]
    by_hand = [100 * t[1, 1] / t[1].sum() for t in seeds]
    assert rates[0].value == pytest.approx(np.mean(by_hand))
    assert (rates[0].low, rates[0].high) == (
        pytest.approx(min(by_hand)),
        pytest.approx(max(by_hand)),
    )
    assert rates[0].rows == pytest.approx(np.mean([t[1].sum() for t in seeds]))


def test_with_one_seed_intervals_come_from_resampled_clients_and_chance(one, found):
    whole = groupings(one.federation)[0]
    rates = group_rates(one, whole, "fedavg", "test", "accuracy")
    assert all(rate.low < rate.value < rate.high or rate.value in (0, 100) for rate in rates)
    # also where all rows went the same way
    assert all(rate.high - rate.low > 10 for rate in rates if rate.few)
    intervals = metric_intervals(one, whole, "fedavg", "test")
    assert set(intervals) == set(GROUP_METRICS)
    low, high = intervals["eod"]
    assert low < group_values(one, whole, "test")["fedavg"][0]["eod"] < high
    assert metric_intervals(found, whole, "fedavg", "test") == {}  # the seeds speak for themselves
    assert metric_intervals(one, whole, "fedavg", "central") == {}


def test_few_clients_are_not_resampled():
    """Resampling two alike clients would find an interval of no width at all; their people tell
    more.
    """
    few = with_groups(comparison(data=federation(2, rows=(400, 10, 400)), seeds=1))
    for run in few.runs:
        run.trace.tables[-1, 2, 1] = run.trace.tables[-1, 2, 0]
    low, high = metric_intervals(few, groupings(few.federation)[0], "fedavg", "test")["spd"]
    assert high - low > 0.02
    text = words(render(few))
    assert "from resampling people" in text
    assert "from resampling clients" not in text
    assert "of resampled clients" not in text
    assert "how far chance can move a rate of this many rows" in text
    whole = groupings(few.federation)[0]
    rates = group_rates(few, whole, "fedavg", "test", "accuracy")
    low, high = wilson(
        np.array([rate.value / 100 for rate in rates]), np.array([rate.rows for rate in rates])
    )
    np.testing.assert_allclose([rate.low for rate in rates], 100 * low)
    np.testing.assert_allclose([rate.high for rate in rates], 100 * high)


def test_what_was_assumed_is_said_to_be(one, page_of_one):
    """As the plan in the terminal does; a reader of the page has not seen it."""
    text = unbroken(render(one._replace(assumed=("favourable", "race"))))
    assert "<dd>yes (assumed; name another with --favourable)</dd>" in text
    assert "A positive is “yes”, the favourable label (assumed)." in text
    remark = (
        "Black (assumed: of all values of race, Black has the lowest share of “yes”; name another"
        " with --unprivileged)"
    )
    assert f"<dd>{remark}</dd>" in text
    assert "<dd>Female</dd>" in text  # named by the user, for sex and for the intersections
    assert text.count("(assumed") == 3
    # intersections are unprivileged by sex
    text = unbroken(render(one._replace(assumed=("sex",))))
    assert text.count("(assumed: of all values of sex, Female has") == 2
    assert "assumed" not in unbroken(page_of_one)


def test_a_mean_of_absolute_differences_is_explained_where_seeds_disagree(found):
    """|EOD| was 0.088 beside rates of 47.1 % and 45.2 %, without a word."""
    remark = "|EOD| is the mean of the absolute differences of all seeds."
    sex = replace(found.federation, attributes=found.federation.attributes[:1])
    same = found._replace(federation=sex)  # women are found less often in every seed
    assert remark not in unbroken(render(same))
    turned = [run.trace._replace(tables=run.trace.tables[..., ::-1, :, :]) for run in found.runs]
    runs = [
        run if run.seed else run._replace(trace=trace)
        for run, trace in zip(found.runs, turned, strict=True)
    ]
    text = unbroken(render(same._replace(runs=runs)))
    assert f"{remark} It exceeds the difference between the rates above under fedavg" in text


def test_figures_of_single_groups_are_marked_where_these_are_small(found, page):
    """The last race is rare, so the worst group's accuracy rests on few rows."""
    whole, sex, _ = groupings(found.federation)
    assert {"worst_accuracy", "acc_range"} <= metrics_of_few(found, whole, "fedavg", "test")
    assert metrics_of_few(found, sex, "fedavg", "test") == frozenset()
    starred = re.compile(r'<span class="nowrap">[^<]*\*</span>')
    groups = page.partition('id="groups"')[2]
    views = groups.split('<h3 class="later">')
    tables = [view.partition("<details")[0] for view in views[1:]]  # sex, race, intersections
    assert not starred.search(tables[0])
    assert "* marks a figure" not in tables[0]
    assert starred.search(tables[2])
    assert f"* marks a figure that rests on a group with fewer than {FEW} rows" in tables[2]


def test_mean_numbers_of_rows_have_a_decimal_unless_they_are_whole(found, page):
    """A group had "1 row" and an accuracy of 75.0: means over seeds of which one was rounded."""
    race = groupings(found.federation)[2]
    rates = group_rates(found, race, "fedavg", "test", "accuracy")
    assert any(rate.rows != round(rate.rows) for rate in rates)
    text = words(page)
    for rate in rates:
        shown = f"{rate.rows:,.0f}" if rate.rows == round(rate.rows) else f"{rate.rows:,.1f}"
        assert f"<span>{shown}</span>" in text


def test_undefined_and_small_rates_are_marked_and_explained(page_of_one):
    text = words(page_of_one)
    assert "undefined: no rows with the favourable label" in text
    assert "undefined: no such rows" in page_of_one  # in the chart
    assert re.search(r'<span class="nowrap">\d+\.\d \*</span><small class="interval"> \d', text)
    assert f"fewer than {FEW} rows" in text
    assert not re.search(r"\b(nan|NaN|None|inf)\b", text)


def test_metrics_without_a_value_say_why():
    # The favourable label never occurs: nothing can be said of true positive rates.
    made = with_groups(comparison(seeds=1))
    runs = [
        run._replace(trace=run.trace._replace(tables=run.trace.tables * np.array([[1], [0]])))
        for run in made.runs
    ]
    text = words(render(made._replace(runs=runs)))
    assert f"undefined: {GROUP_METRICS['eod_abs'].undefined}" in text
    assert not re.search(r"\b(nan|NaN|None|inf)\b", text)


def test_a_report_without_groups_has_no_such_section_and_neither_has_one_without_rows(
    page, page_without_groups
):
    assert '<section id="groups"' in page
    assert '<section id="groups"' not in page_without_groups
    assert '<section id="groups"' not in render(
        with_groups(comparison(data=federation(4, rows=(10, 0, 0))))
    )


def test_every_group_metric_has_a_place():
    shown = [*MAIN, *(name for names in FURTHER.values() for name in names)]
    assert sorted(shown) == sorted(GROUP_METRICS)


def test_with_many_groups_the_largest_are_drawn(found):
    whole = groupings(found.federation)[0]
    many = [*group_rates(found, whole, "fedavg", "test", "accuracy")] * 5
    shown = largest(many)
    assert len(shown) == MOST_GROUPS
    assert min(many[g].rows for g in shown) >= max(
        rate.rows for g, rate in enumerate(many) if g not in shown
    )
    assert "NaN" not in json.dumps(rates_chart({"fedavg": many}, "accuracy", shown).to_dict())


def test_the_terminal_shows_both_differences_where_there_are_groups(found):
    def shown(made) -> str:
        console = Console(width=80, file=io.StringIO())
        with console.capture() as capture:
            console.print(results_table(made))
        return capture.get()

    assert "|EOD|" in shown(found)
    assert "|SPD|" in shown(found)
    assert "unprivileged: sex=Female (compared here), race=Black" in " ".join(shown(found).split())
    assert "|EOD|" not in shown(comparison())
    values = group_values(found, groupings(found.federation)[0], "test")["fedavg"].values()
    assert f"{np.mean([seed['eod_abs'] for seed in values]):.3f}" in shown(found)


def test_methods_weigh_the_same_losses_as_their_means_say():
    found = {weighed.name: weighed for weighed in weigh_losses(np.array([0.5, 2.0, 1.0]))}
    assert list(found) == ["FedAvg", "q-FFL, q = 1", "TERM, α = 1", "PropFair, M = 2.5", "AFL"]
    # The specification's numbers: means of (0.5, 2, 1), and weights by client, in equal shares.
    assert [weighed.mean for weighed in found.values()] == pytest.approx(
        [7 / 6, 1.3228756555, 1.3657564954, 1.3552857574, 2]
    )
    np.testing.assert_allclose(found["q-FFL, q = 1"].weights, 3 * np.array([0.5, 2, 1]) / 3.5)
    np.testing.assert_allclose(found["AFL"].weights, [0, 3, 0])
    assert all(weighed.weights.mean() == pytest.approx(1) for weighed in found.values())


def test_the_chart_of_weights_is_thinned_and_keeps_the_worst_client():
    chart = weighing_chart(np.linspace(0.1, 3, 5000)).to_dict()
    rows = [row for data in chart["datasets"].values() for row in data if row["method"] == "FedAvg"]
    assert len(rows) <= 60
    assert max(row["loss"] for row in rows) == 3
    assert "AFL: 5,000, off the chart" in json.dumps(chart, ensure_ascii=False)


def test_equal_losses_have_no_chart_of_weights(page_without_groups):
    found = comparison()
    runs = [
        run._replace(trace=run.trace._replace(losses=np.ones_like(run.trace.losses)))
        for run in found.runs
    ]
    assert "chart-weighing" in page_without_groups
    assert "chart-weighing" not in render(found._replace(runs=runs))
