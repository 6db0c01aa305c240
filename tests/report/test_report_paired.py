"""The section on chance: what is compared, what is corrected, and what is said with few seeds."""

import re

import numpy as np
import pytest
from scipy import stats
from tests.report.invented import comparison, federation, with_groups

from evenly.metrics import METRICS, Paired
from evenly.report.charts.focus import choose_focus
from evenly.report.group_values import with_groups as values_with_groups
from evenly.report.page import render
from evenly.report.paired_section import (
    PairedLine,
    compare_all,
    p_text,
    paired_section,
    power_words,
    verdict,
)
from evenly.report.values import final_values


def section_of(found) -> str:
    values = final_values(found)
    text = paired_section(found, values_with_groups(found, values), choose_focus(found, values))
    return re.sub(r"<[^>]+>", " ", text).replace("\xa0", " ")


def test_p_values_are_of_paired_differences_and_corrected_together():
    found = comparison(("fedavg", "a", "b", "c"), seeds=5)
    values = final_values(found)
    lines = compare_all(values, "fedavg", ("worst10", "variance"))
    assert all([line.label for line in own] == ["a", "b", "c"] for own in lines.values())
    seeds = {label: [seed["variance"] for seed in own.values()] for label, own in values.items()}
    raw = [stats.ttest_rel(seeds[label], seeds["fedavg"]).pvalue for label in ("a", "b", "c")]
    np.testing.assert_allclose([line.change.p for line in lines["variance"]], raw, rtol=1e-6)
    everything = [line for own in lines.values() for line in own]
    smallest = min(everything, key=lambda line: line.change.p)
    assert smallest.corrected == pytest.approx(min(1, 6 * smallest.change.p))


def test_one_seed_says_nothing_about_chance():
    text = section_of(comparison(seeds=1))
    assert "There is one seed, so there are no intervals and no p values" in text
    assert "p, corrected" not in text


@pytest.mark.parametrize(("seeds", "least"), [(2, "9.0"), (3, "2.5"), (4, "1.6")])
def test_few_seeds_are_called_weak(seeds, least):
    # t quantile / sqrt(n): 12.706 / 1.414, 4.303 / 1.732, 3.182 / 2
    text = power_words(seeds, seeds)
    assert f"With {seeds} seeds these tests are weak" in text
    assert f"must exceed {least} of its own standard deviations" in text


def test_five_seeds_are_not():
    assert "weak" not in power_words(5, 5)
    assert "at most 5 of 8 seeds" in power_words(5, 8)


def test_it_is_said_that_seeds_share_the_data_and_how_many_comparisons_there_are():
    text = section_of(comparison(("fedavg", "a", "b"), seeds=3))
    assert "All seeds use the same data" in text
    # two methods, and average, worst tenth, variance and Gini
    assert "for all 8 comparisons" in text


def test_groups_are_compared_too():
    text = section_of(
        with_groups(comparison(seeds=3, data=federation(20, rows=(40, 10, 40))), differ=True)
    )
    assert "|EOD|" in text
    assert "|SPD|" in text


def test_a_single_method_has_no_such_section():
    assert '<section id="chance"' not in render(comparison(("fedavg",)))


@pytest.mark.parametrize(
    ("difference", "p", "corrected", "words"),
    [
        (1.0, 0.001, 0.01, "clearly higher: better"),
        (-1.0, 0.001, 0.01, "clearly lower: worse"),
        (1.0, 0.03, 0.2, "may be chance, among so many comparisons"),
        (1.0, 0.3, 0.9, "may be chance"),
        (1.0, np.nan, np.nan, "not known"),
    ],
)
def test_verdicts_need_no_colour(difference, p, corrected, words):
    assert (
        verdict(METRICS["worst10"], PairedLine("a", Paired(difference, 0.5, p, 2.0, 5), corrected))
        == words
    )


def test_lower_is_better_where_it_is():
    assert (
        verdict(METRICS["variance"], PairedLine("a", Paired(-3.0, 0.5, 1e-5, 2.0, 5), 1e-4))
        == "clearly lower: better"
    )


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.5, "0.50"), (0.0312, "0.031"), (0.0005, "0.0005"), (0.0, "< 0.0001"), (np.nan, "n/a")],
)
def test_p_values_show_the_digits_they_bear(p, text):
    assert p_text(p) == text
