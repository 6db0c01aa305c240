"""The results table: means, intervals, and which value is best."""

import subprocess
import sys

import numpy as np
import pytest
from tests.report.invented import comparison, federation

from evenly.metrics import METRICS, Spread
from evenly.metrics.statistics import is_clear
from evenly.report import results_table
from evenly.report.values import (
    difference,
    final_values,
    format_spread,
    format_value,
    table_of,
)


def given(**labels: list[float]) -> dict[str, dict[int, dict[str, float]]]:
    """Values of "worst10" and, the same, of "variance", one per seed."""
    return {
        label: {s: {"worst10": v, "variance": v} for s, v in enumerate(seeds)}
        for label, seeds in labels.items()
    }


def test_one_row_per_method_and_one_cell_per_metric():
    table = results_table(comparison(seeds=3), metrics=("average", "variance"))
    assert [row.label for row in table.rows] == ["fedavg", "q-fedavg(q=1)"]
    assert all(list(row.cells) == ["average", "variance"] for row in table.rows)
    assert table.seeds == 3
    assert table.split == "test"


def test_the_cell_is_the_mean_over_seeds_of_the_last_evaluation():
    found = comparison(("fedavg",), seeds=2)
    rows = [run.trace.tables[-1, 2] for run in found.runs]
    by_hand = [100 * t[:, 0, 0, 0].sum() / t.sum() for t in rows]
    cell = results_table(found, metrics=("average",)).rows[0].cells["average"]
    assert cell.spread.mean == pytest.approx(np.mean(by_hand))


def test_the_best_value_follows_the_metrics_direction():
    table = table_of(given(a=[1.0, 2.0], b=[5.0, 6.0]), metrics=("worst10", "variance"))
    first, second = table.rows
    # higher is better
    assert (first.cells["worst10"].best, second.cells["worst10"].best) == (False, True)
    # lower is fairer
    assert (first.cells["variance"].best, second.cells["variance"].best) == (True, False)


def test_equal_winners_share_the_mark_and_methods_all_alike_have_none():
    assert [
        row.cells["worst10"].best
        for row in table_of(given(a=[1.0], b=[1.0], c=[0.0]), metrics=("worst10",)).rows
    ] == [
        True,
        True,
        False,
    ]
    assert not any(
        row.cells["worst10"].best
        for row in table_of(given(a=[1.0], b=[1.0]), metrics=("worst10",)).rows
    )
    assert not table_of(given(a=[1.0]), metrics=("worst10",)).rows[0].cells["worst10"].best


def test_a_metric_without_a_better_side_has_no_best():
    cells = [row.cells["variance_noise"] for row in results_table(comparison()).rows]
    assert not any(cell.best or cell.near for cell in cells)


def test_undefined_values_are_never_best_and_read_na():
    table = table_of(given(a=[float("nan")], b=[3.0]), metrics=("worst10",))
    assert [row.cells["worst10"].text for row in table.rows] == ["n/a", "3.0"]
    assert [row.cells["worst10"].best for row in table.rows] == [False, True]
    nothing = table_of(given(a=[float("nan")], b=[float("nan")]), metrics=("worst10",))
    assert not any(row.cells["worst10"].best for row in nothing.rows)


def test_near_means_that_the_paired_interval_includes_zero():
    # Differences to b are -1, -1.1, -0.9: clear although the seeds themselves lie far apart.
    table = table_of(
        given(a=[1.0, 10.9, 21.1], b=[2.0, 12.0, 22.0], c=[0.0, 14.0, 20.0]), metrics=("worst10",)
    )
    assert [row.cells["worst10"].near for row in table.rows] == [False, False, True]


@pytest.mark.parametrize(("seeds", "clear"), [(2, False), (5, False), (6, True)])
def test_a_difference_that_is_the_same_in_all_seeds_is_judged_by_its_sign(seeds, clear):
    """Its interval has no width, which is no evidence: with two seeds the sign test has p = 0.5."""
    values = given(a=[12.5 + s for s in range(seeds)], b=[18.75 + s for s in range(seeds)])
    worse, better = (row.cells["worst10"] for row in table_of(values, metrics=("worst10",)).rows)
    assert (better.best, better.clear, worse.near) == (True, clear, not clear)


def test_difference_uses_only_common_seeds():
    values = given(a=[1.0, 2.0, 9.0], b=[0.0, 0.0])
    assert difference(values, "a", "b", "worst10").mean == 1.5
    assert difference(values, "a", "b", "worst10").seeds == 2


def test_a_single_seed_shows_nothing_clearly():
    assert not is_clear(Spread(5.0, float("nan"), float("nan"), 1))


@pytest.mark.parametrize(
    ("value", "metric", "text"),
    [
        (Spread(71.26, 1.0, 2.13, 3), "average", "71.3 ± 2.1"),
        (Spread(512.3, 1.0, 60.4, 3), "variance", "512 ± 60"),
        (Spread(51.23, 1.0, 6.04, 3), "variance", "51.2 ± 6.0"),
        (Spread(0.12345, 1.0, 0.01, 3), "gini", "0.123 ± 0.010"),
        (Spread(71.26, float("nan"), float("nan"), 1), "average", "71.3"),
        (Spread(float("nan"), float("nan"), float("nan"), 0), "average", "n/a"),
    ],
)
def test_numbers_have_the_digits_that_suit_the_metric(value, metric, text):
    assert format_spread(value, METRICS[metric]) == text


def test_no_negative_zero():
    assert format_value(-0.01, METRICS["average"]) == "0.0"


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="split must be one of train, valid, test, got 'tests'"):
        results_table(comparison(), split="tests")


def test_clients_without_rows_give_na():
    table = results_table(comparison(data=federation(3, rows=(10, 5, 0))))
    assert all(cell.text == "n/a" for row in table.rows for cell in row.cells.values())


def test_other_splits_can_be_shown():
    found = comparison()
    assert final_values(found, "train") != final_values(found, "test")
    assert results_table(found, split="valid").split == "valid"


def test_the_table_needs_no_altair():
    code = (
        "import sys, evenly.report.values; sys.exit('altair' in sys.modules or 'rich' in"
        " sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
