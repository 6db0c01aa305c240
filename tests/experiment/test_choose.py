"""Choosing q: least validation variance within one point of the baseline; test rows are not looked at."""

import numpy as np
import pytest

from evenly.datasets import synthetic
from evenly.experiment.choose import choose_fairest
from evenly.experiment.results import Comparison, Run
from evenly.types import Trace

ROWS = 1000  # per client and split


def trace(valid, test=(0.5, 0.5)):
    """A trace whose two clients have these accuracies."""
    tables = np.zeros((1, 3, 2, 1, 2, 2), np.int32)
    for split, accuracies in ((1, valid), (2, test)):
        for client, accuracy in enumerate(accuracies):
            right = round(accuracy * ROWS)
            tables[0, split, client, 0, 0] = right, ROWS - right
    empty = np.zeros(0)
    return Trace(np.array([1]), tables, np.zeros((1, 3, 2)), empty, empty, empty, empty, 0, 0, None)


def comparison(**accuracies):
    runs = [
        Run(label, "q-fedavg", {}, 0, trace(*value) if isinstance(value[0], tuple) else trace(value)) for label, value in accuracies.items()
    ]
    return Comparison("test", synthetic(clients=2), "natural", "softmax", runs, 1, "", 0.0, {})


def test_the_fairest_within_the_margin_is_chosen():
    choice = choose_fairest(comparison(base=(0.95, 0.65), fairer=(0.85, 0.74), fairest=(0.75, 0.75)), "base")
    assert choice.chosen == "fairer"  # 79.5 is within a point of 80; 75 is not
    assert choice.allowed == {"base": True, "fairer": True, "fairest": False}


def test_a_wider_margin_allows_more():
    choice = choose_fairest(comparison(base=(0.95, 0.65), fairer=(0.85, 0.74), fairest=(0.75, 0.75)), "base", within=5)
    assert choice.chosen == "fairest"


def test_the_baseline_stays_if_nothing_is_fairer():
    assert choose_fairest(comparison(base=(0.8, 0.8), worse=(0.9, 0.75)), "base").chosen == "base"


def test_the_baseline_wins_ties():
    assert choose_fairest(comparison(other=(0.9, 0.7), base=(0.9, 0.7)), "base").chosen == "base"


def test_better_average_is_always_allowed():
    assert choose_fairest(comparison(base=(0.6, 0.4), better=(0.9, 0.9)), "base").chosen == "better"


def test_test_rows_do_not_matter():
    tempting = comparison(base=((0.9, 0.7), (0.9, 0.1)), trap=((0.99, 0.61), (1.0, 1.0)))
    assert choose_fairest(tempting, "base").chosen == "base"


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="baseline must be one of"):
        choose_fairest(comparison(base=(0.5, 0.5)), "nobody")
    with pytest.raises(ValueError, match="within must be at least 0"):
        choose_fairest(comparison(base=(0.5, 0.5)), "base", within=-1)
