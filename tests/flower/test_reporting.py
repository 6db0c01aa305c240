"""Metrics of a round are means over clients, weighted by their examples."""

from typing import Any

import pytest
from flwr.app import MetricRecord, RecordDict

from evenly.flower.messages import average_metrics


def mean(*clients: dict[str, Any]) -> dict[str, Any]:
    return dict(
        average_metrics(
            [RecordDict({"metrics": MetricRecord(own)}) for own in clients], "num-examples"
        )
    )


def test_a_mean_is_weighted_by_examples():
    found = mean(
        {"num-examples": 1, "loss": 4.0, "pair": [1.0, 0.0]},
        {"num-examples": 3, "loss": 8.0, "pair": [5.0, 4.0]},
    )
    assert found == {"loss": 7.0, "pair": [4.0, 3.0]}
    assert mean({"num-examples": 2, "loss": 4.0}) == {"loss": 4.0}
    assert average_metrics([], "num-examples") == {}
    assert mean({"num-examples": 0, "loss": 4.0}) == {}


def test_the_record_of_metrics_is_the_one_of_that_name_or_the_first():
    two = {
        "else": MetricRecord({"num-examples": 1, "loss": 9.0}),
        "metrics": MetricRecord({"num-examples": 1, "loss": 4.0}),
    }
    assert average_metrics([RecordDict({**two})], "num-examples") == {"loss": 4.0}
    assert average_metrics([RecordDict({"else": two["else"]})], "num-examples") == {"loss": 9.0}


@pytest.mark.parametrize("size", [0, -3, float("nan"), [3, 3], None])
def test_who_says_no_size_does_not_count(size: Any):
    other = {"loss": 100.0} | ({} if size is None else {"num-examples": size})
    assert mean({"num-examples": 2, "loss": 4.0}, other) == {"loss": 4.0}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, [1.0, float("nan")]])
def test_a_metric_that_is_no_number_costs_only_itself(value: Any):
    found = mean(
        {"num-examples": 100, "loss": value, "own": 1.0},
        {"num-examples": 2, "loss": 4.0},
        {"num-examples": 2, "loss": 6.0},
    )
    assert found == {"loss": 5.0, "own": 1.0}


def test_lists_of_another_length_than_most_are_left_out():
    found = mean(
        {"num-examples": 9, "x": [7.0]},
        {"num-examples": 1, "x": [1.0, 2.0]},
        {"num-examples": 1, "x": [3.0, 2.0]},
    )
    assert found == {"x": [2.0, 2.0]}


SIGNALS = [
    "table",
    "train-table",
    "valid-table",
    "table-shape",
    "cell-loss",
    "cells",
    "client",
    "choice",
    "coefficient",
    "square-norm",
    "client-group",
    "train-num-examples",
    "valid-num-examples",
    "unprivileged-examples",
]


@pytest.mark.parametrize("name", SIGNALS)
def test_signals_have_no_mean(name: str):
    assert mean({"num-examples": 2, name: 4, "train-loss": 0.5}) == {"train-loss": 0.5}
