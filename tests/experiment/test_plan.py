"""Plans: sweeps expand, mistakes are named, JSON keeps everything."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from evenly.experiment.plan import Plan, seeds_of


def plan(**changes):
    base = {
        "name": "test",
        "data": {"name": "synthetic"},
        "methods": ("fedavg,q-fedavg(q=[0, 1])",),
        "rounds": 10,
        "seeds": (0,),
    }
    return Plan(**{**base, **changes})


def test_sweeps_become_one_row_each():
    assert [v.label for v in plan().variants()] == ["fedavg", "q-fedavg(q=0)", "q-fedavg(q=1)"]


def test_training_settings_reach_methods_that_have_them():
    first, *_ = plan(training={"learning_rate": 0.5, "batch_size": 7}).variants()
    assert first.members[0].work.learning_rate == 0.5  # pyright: ignore[reportAttributeAccessIssue]
    assert first.members[0].work.batch_size == 7


def test_a_method_keeps_its_own_setting():
    (only,) = plan(
        methods=("fedavg(learning_rate=0.2)",), training={"learning_rate": 0.5}
    ).variants()
    assert only.members[0].work.learning_rate == 0.2  # pyright: ignore[reportAttributeAccessIssue]


def test_device_specific_q_is_one_row_with_eight_models():
    (only,) = plan(methods=("multi-q",)).variants()
    assert len(only.members) == 8
    assert only.label == "multi-q"


def test_json_keeps_everything():
    original = plan(sampling="uniform(clients=3)", dropout=0.1, evaluate_every=2)
    again = Plan.from_json(original.to_json())
    assert again == original
    assert again.fingerprint() == original.fingerprint()


def test_json_keeps_the_order_of_shared_settings_and_the_fingerprint_does_not_depend_on_it():
    """`evenly export` wrote `params` in another order than results.csv."""
    original = plan(training={"learning_rate": 0.1, "batch_size": 5, "epochs": 2})
    again = Plan.from_json(original.to_json())
    assert list(again.training) == ["learning_rate", "batch_size", "epochs"]
    assert list(again.variants()[0].settings) == list(original.variants()[0].settings)
    other = plan(training={"epochs": 2, "batch_size": 5, "learning_rate": 0.1})
    assert other.fingerprint() == original.fingerprint()


@pytest.mark.parametrize(
    "field", ["rounds", "seeds", "methods", "sampling", "dropout", "training", "data"]
)
def test_every_setting_changes_the_fingerprint(field):
    other = {
        "rounds": 11, "seeds": (0, 1), "methods": ("fedavg",), "sampling": "full", "dropout": 0.2,
        "training": {"epochs": 2}, "data": {"name": "synthetic", "seed": 1},
    }  # fmt: skip
    assert (
        dataclasses.replace(plan(), **{field: other[field]}).fingerprint() != plan().fingerprint()
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"seeds": ()}, "At least one seed"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"evaluate_every": -5}, "evaluate_every must be at least 0 rounds, got -5"),
        ({"model": "softmx"}, "Did you mean 'softmax'"),
    ],
)
def test_bad_plans_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(**changes)


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        (2, (0, 1)),
        (np.int64(2), (0, 1)),
        ([3, 1], (3, 1)),
        (range(1, 3), (1, 2)),
        (np.arange(2), (0, 1)),
    ],
)
def test_seeds_are_a_number_or_a_list(seeds: Any, expected: tuple[int, ...]):
    found = seeds_of(seeds)
    assert found == expected
    assert {type(seed) for seed in found} == {int}


@pytest.mark.parametrize("seeds", ["10", "3", ["1"], [1.9, 0.2], 2.0, None, np.array(2)])
def test_text_and_fractions_are_no_seeds(seeds: Any):
    with pytest.raises(TypeError, match="seeds must be a whole number or a list"):
        seeds_of(seeds)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": ("fedavgg",)}, "Did you mean 'fedavg'"),
        (
            {"methods": ("q-fedavg(q=-1)",)},
            "q-fedavg: q must be at least 0, got -1. Meaning: fairness parameter; 0 is FedAvg",
        ),
        ({"methods": ("q-fedavg(q=[])",)}, "at least one value"),
        ({"methods": ("fedavg,fedavg",)}, "listed twice"),
        ({"methods": ("fedavg(weights=size)",)}, "sizes would count twice"),
        ({"methods": ("",)}, "At least one method"),
        ({"sampling": "unifrom"}, "Did you mean 'uniform'"),
    ],
)
def test_bad_methods_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(**changes).variants()
