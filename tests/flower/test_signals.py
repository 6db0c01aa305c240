"""What clients said, stacked for the rule; and what is said where nobody could measure."""

import logging
from typing import Any

import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.flower.checking import Reply
from evenly.flower.signals import signals_of

METHOD = algorithm("fairfed(measured_on=valid)")
COHORT, CHANCE = np.array([2, 0, 1], np.int32), np.zeros(2, np.float32)


def heard(**rows: int) -> dict[int, Reply]:
    """Replies of some clients, with so many validation rows each."""
    return {int(k[1:]): Reply(7, int(k[1:]), 10, {}, {"valid_table": np.full((2, 2, 2), n)}, None) for k, n in rows.items()}


def stacked(replies: dict[int, Reply]) -> Any:
    return signals_of(METHOD, None, COHORT, replies, CHANCE)  # type: ignore[arg-type]  # the state is for methods that choose


def test_validation_counts_lie_in_the_order_of_the_cohort(caplog: pytest.LogCaptureFixture):
    found = stacked(heard(k2=3, k0=0))
    assert found.valid_table[:, 0, 0, 0].tolist() == [3, 0, 0]
    assert found.returned.tolist() == [True, True, False]
    assert not caplog.records


def test_it_is_said_if_nobody_has_validation_rows(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    stacked(heard(k2=0, k0=0))
    assert "nobody in this round has validation rows" in caplog.text
