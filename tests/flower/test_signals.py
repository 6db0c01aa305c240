"""What clients said, stacked for the rule; and what is said where nobody could measure."""

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.flower import wire
from evenly.flower.clients.rows import RowOutcomes, signals_from_outcomes
from evenly.flower.messages import signals_of
from evenly.flower.replies import Reply

METHOD = algorithm("fairfed(measured_on=valid)")
COHORT, CHANCE = np.array([2, 0, 1], np.int32), np.zeros(2, np.float32)


def heard(**rows: int) -> dict[int, Reply]:
    """Replies of some clients, with so many validation rows each."""
    return {
        int(k[1:]): Reply(7, int(k[1:]), 10, {}, {"valid_table": np.full((2, 2, 2), n)}, None)
        for k, n in rows.items()
    }


def stacked(replies: dict[int, Reply]) -> Any:
    return signals_of(METHOD, None, COHORT, replies, CHANCE)  # type: ignore[arg-type]  # the state is for methods that choose


def test_validation_counts_lie_in_the_order_of_the_cohort(caplog: pytest.LogCaptureFixture):
    found = stacked(heard(k2=3, k0=0))
    assert found.valid_table[:, 0, 0, 0].tolist() == [3, 0, 0]
    assert found.returned.tolist() == [True, True, False]
    assert found.examples.tolist() == [10, 10, 0]
    assert not caplog.records


def test_it_is_said_if_nobody_has_validation_rows(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    stacked(heard(k2=0, k0=0))
    assert "no client in this round has validation rows" in caplog.text


def test_nothing_is_said_while_somebody_has_validation_rows_or_nobody_is_asked_for_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """The warning is about validation tables that are all 0, not about other signals that are."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    stacked(heard(k2=1, k0=0))
    nobody = {k: Reply(7, k, 10, {}, {"table": np.zeros((2, 2, 2))}, None) for k in (0, 2)}
    found = signals_of(algorithm("fairfed"), None, COHORT, nobody, CHANCE)  # type: ignore[arg-type]
    assert not found.table.any()
    assert found.valid_table is None
    assert not caplog.records


def test_where_nobody_was_heard_there_are_no_signals():
    found = stacked({})
    assert found.valid_table is None
    assert not found.returned.any()


def test_a_choice_is_the_clients_last_one_where_it_is_not_heard():
    state = SimpleNamespace(choice=np.array([1, 0, 1], np.int32))
    replies = {0: Reply(7, 0, 10, {}, {"choice": np.asarray(0)}, None)}
    found = signals_of(algorithm("ifca(groups=2)"), state, COHORT, replies, CHANCE)  # type: ignore[arg-type]
    assert found.choice.tolist() == [1, 0, 0]
    assert found.choice.dtype == np.int32


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 2.25), ("sum", 6.25)])
def test_a_penalty_is_added_once_to_the_loss_of_all_rows(reduction: str, expected: float):
    y = np.array([0, 1, 1])
    found = signals_from_outcomes(
        RowOutcomes(np.array([1.0, 2.0, 3.0]), y),
        y,
        np.zeros(3, int),
        frozenset({"loss"}),
        shape=(1, 2),
        penalty=0.25,
        reduction=reduction,
    )
    assert found == {wire.LOSS: expected}
