"""Whatever one client sends, in whichever message: the round ends, with the result of the others,
and the client is named.

Whole messages go through the strategy as Flower's would. How many examples are tried is fixed here,
for every profile.
"""

import logging
from collections.abc import Iterator

import numpy as np
import pytest
from flwr.app import Array, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from evenly.experiment.deployment import Exclusion
from evenly.flower import wire
from tests.flower.hostile import LIAR, Outcome, Parts, outcome, spoilt, without_the_liar

SENT = (
    "num-examples",
    "loss",
    "table",
    "valid-table",
    "cell-loss",
    "unprivileged-examples",
    "choice",
    "square-norm",
    "seconds",
)
READ = {  # by method, the metrics that it reads
    "q-fedavg(q=1)": ("num-examples", "loss", "square-norm"),
    "fedfb": ("num-examples", "table", "cell-loss"),
    "fairfed(measured_on=valid)": ("num-examples", "valid-table"),
    "fedcvg": ("num-examples", "unprivileged-examples", "seconds"),
    "ifca(groups=2)": ("num-examples", "choice"),
}


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(before)


def require_the_others(found: Outcome, method: str, kind: str, phase: str) -> Exclusion | None:
    """Nobody else was left out; and if the liar was, everything is as if it had not answered, and
    the reason is one short line.
    """
    assert {one.node for one in found.left_out} <= {LIAR}
    assert all(np.isfinite(array).all() or kind != "evaluate" for array in found.model.values())
    left = next((one for one in found.left_out if one.phase == phase), None)
    if left is None:
        return None
    assert 0 < len(left.reason) <= 700
    assert left.reason.isprintable()
    usual = without_the_liar(method, kind)
    assert found.names == usual.names
    for name, array in usual.model.items():
        np.testing.assert_array_equal(found.model[name], array)
    np.testing.assert_array_equal(found.tables, usual.tables)
    return left


@settings(max_examples=420)
@given(
    st.sampled_from(sorted(READ)).flatmap(
        lambda method: st.tuples(st.just(method), spoilt(READ[method]))
    )
)
def test_replies_to_train(case):
    method, spoil = case
    require_the_others(outcome(method, "train", spoil), method, "train", "train")


@settings(max_examples=300)
@given(
    spoilt(
        (
            "num-examples",
            "loss",
            "table",
            "accuracy",
            "train-table",
            "train-num-examples",
            "valid-table",
            "valid-loss",
            "choice",
        )
    )
)
def test_replies_to_evaluate(spoil):
    require_the_others(outcome("fedcvg", "evaluate", spoil), "fedcvg", "evaluate", "evaluate")


@settings(max_examples=280)
@given(spoilt(("num-examples", "cells", "client", "client-group")))
def test_replies_to_the_census(spoil):
    require_the_others(outcome("fedfb", wire.CENSUS, spoil), "fedfb", wire.CENSUS, "census")


@settings(max_examples=100)
@given(spoilt(SENT))
def test_replies_to_measure(spoil):
    require_the_others(
        outcome("q-fedavg(q=1)", "measure", spoil), "q-fedavg(q=1)", "measure", "measure"
    )


@settings(max_examples=100)
@given(spoilt((*SENT, "coefficient")))
def test_replies_in_the_second_of_two_phases(spoil):
    require_the_others(outcome("q-fedavg(q=1)", "add", spoil), "q-fedavg(q=1)", "add", "train")


# Single faults that ended a whole federation once.

SHAPES = {
    "train": ("fedfb", "train", ["table-shape", "cell-loss-shape"]),
    "valid": ("fairfed(measured_on=valid)", "train", ["valid-table-shape"]),
    "evaluate": ("fedcvg", "evaluate", ["table-shape", "train-table-shape", "valid-table-shape"]),
    "census": ("fedfb", wire.CENSUS, ["cells-shape"]),
}


@pytest.mark.parametrize(
    ("method", "kind", "key"), [(m, k, key) for m, k, keys in SHAPES.values() for key in keys]
)
@pytest.mark.parametrize("side", [float("inf"), float("nan"), 1e300, 2.0**63])
def test_a_shape_that_is_not_whole_costs_only_who_sent_it(
    method: str, kind: str, key: str, side: float
):
    def spoil(parts: Parts) -> RecordDict:
        return parts._replace(
            metrics={**parts.metrics, key: [side] + [1.0] * (len(parts.metrics[key]) - 1)}
        ).content

    left = require_the_others(
        outcome(method, kind, spoil), method, kind, {wire.CENSUS: "census"}.get(kind, kind)
    )
    assert left is not None
    assert f"'{key}' says [" in left.reason


def test_whole_numbers_that_the_models_type_cannot_hold():
    left = require_the_others(
        outcome(
            "fedcvg",
            "train",
            lambda parts: (
                parts._replace(arrays={**parts.arrays, "steps": Array(np.array(2**62))}).content
            ),
        ),
        "fedcvg",
        "train",
        "train",
    )
    assert left is not None
    assert left.reason == "sent numbers in array 'steps' that are beyond the model's int32"


def test_tables_of_one_reply_have_one_shape():
    def spoil(parts: Parts) -> RecordDict:
        return parts._replace(
            metrics={**parts.metrics, "train-table": [10], "train-table-shape": [1, 1, 1]}
        ).content

    found = outcome("fedavg", "evaluate", spoil, introduce=False)
    assert [(one.node, one.phase) for one in found.left_out] == [(LIAR, "evaluate")]
