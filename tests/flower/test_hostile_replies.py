"""Whatever one client sends, in whichever message: the round ends, with the result of the others,
and the client is named.

Whole messages go through the strategy as Flower's would. How many examples are tried is fixed here,
for every profile.
"""

import json
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, Message, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from evenly.auditing import Audit
from evenly.experiment.deployment import Exclusion
from evenly.flower import wire
from tests.flower.hostile import (
    LIAR,
    Outcome,
    Parts,
    Spoil,
    audited,
    audited_without_the_liar,
    outcome,
    spoilt,
    without_the_liar,
)

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
    found = outcome("fedfb", wire.CENSUS, spoil)
    require_the_others(found, "fedfb", wire.CENSUS, "census")
    # nobody else says anything of attributes, so the liar's are believed if they can be used
    assert all(one.name and len(one.of_group) == 2 for one in found.attributes)


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


def require_the_other_sites(kind: str, spoil: Spoil) -> Audit:
    """If the liar was left out of an audit, the figures are those without it, and it is named."""
    found, usual = audited(kind, spoil), audited_without_the_liar(kind)
    assert found.clients is not None
    json.dumps(found.json(), allow_nan=False)
    assert all(0 <= figure.value <= 100 for figure in found.figures if figure.unit == "percent")
    if len(found.clients.names) < 4:
        assert str(found.figures) == str(usual.figures)
        (note,) = [note for note in found.notes if "1 site is not in this audit" in note]
        assert f"Node {LIAR} " in note or "'ward 0' " in note
        assert len(note) <= 800
    return found


@settings(max_examples=150)
@given(spoilt(("table", "score-first", "score-last", "num-examples")), st.booleans())
def test_replies_to_an_audit(spoil, scores):
    def spoil_some(parts: Parts) -> Message | RecordDict:
        return spoil(parts if scores else parts._replace(metrics=without_scores(parts)))

    require_the_other_sites(wire.AUDIT, spoil_some)


@settings(max_examples=150)
@given(spoilt(("num-examples", "cells", "client", "client-group")))
def test_replies_to_the_census_of_an_audit(spoil):
    try:
        require_the_other_sites(wire.CENSUS, spoil)
    except ValueError as error:  # tables of other groups or labels cannot be added
        if not str(error).startswith("All sites must agree on "):
            raise


def without_scores(parts: Parts) -> dict[str, Any]:
    return {key: own for key, own in parts.metrics.items() if "score" not in key}


@pytest.mark.parametrize("table", [[0] * 8, [2**28 - 1] * 8, [0, 2**31 - 1, *[0] * 6]])
def test_an_audit_can_show_every_table_that_a_site_can_have(table: list[int]):
    def spoil(parts: Parts) -> RecordDict:
        return parts._replace(metrics={**without_scores(parts), "table": table}).content

    found = require_the_other_sites(wire.AUDIT, spoil)
    assert found.about.rows == 30 + sum(table)


COUNTED_WRONG = {
    "beyond any integer": ({"table": [1e300] * 8}, "counts 8,000,000,000,000,000"),
    "more than integers hold": ({"table": [2.0**60] * 8}, "counts 9,223,372,036,854,775,808 rows"),
    "more than all people": ({"table": [2**29] * 8}, "counts 4,294,967,296 rows, which no client"),
    "scores of too many": (
        {"score-first": [2**24] * 400, "score-first-shape": [2, 2, 100], "score-last": [0]},
        "'score-first' that counts 6,710,886,400 rows",
    ),
}


@pytest.mark.parametrize("changed, words", COUNTED_WRONG.values(), ids=COUNTED_WRONG)
def test_counts_that_nobody_can_have_cost_only_who_sent_them(changed: dict[str, Any], words: str):
    def spoil(parts: Parts) -> RecordDict:
        return parts._replace(metrics={**without_scores(parts), **changed}).content

    found = require_the_other_sites(wire.AUDIT, spoil)
    assert any("'ward 0' sent " in note and words in note for note in found.notes)


NUMBERED_WRONG = {
    "none": ({}, "did not say 'client', and most clients did"),
    "that of another": ({"client": 1}, "says that it is client 1, as node 10 does"),
}


@pytest.mark.parametrize("changed, words", NUMBERED_WRONG.values(), ids=NUMBERED_WRONG)
def test_a_site_without_a_number_of_its_own_is_left_out_of_an_audit(
    changed: dict[str, Any], words: str
):
    def spoil(parts: Parts) -> RecordDict:
        kept = {key: own for key, own in parts.metrics.items() if key != "client"}
        return parts._replace(metrics={**kept, **changed}).content

    found = require_the_other_sites(wire.CENSUS, spoil)
    assert any(f"Node {LIAR} {words}" in note for note in found.notes)


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
