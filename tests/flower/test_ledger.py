"""The ledger of a client never forgets a release and never counts one twice, wherever it is
killed.
"""

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenly.flower.clients import ledger as ledgers
from evenly.flower.clients.ledger import Budget, RowLedger, Spent, SpentError, digest_of, merged

STEP = Spent(0.1, 1.0, 5)
BUDGET = Budget(4.0, 1e-5)


def count(releases: Sequence[Spent], delta: float) -> float:
    """An account that can be checked by counting: every release costs 0.1."""
    return 0.1 * sum(times for _, _, times in releases)


class KilledError(BaseException):
    """The process ends here."""


def test_a_release_is_written_before_it_is_made(tmp_path: Path) -> None:
    ledger = RowLedger(tmp_path / "a" / "ledger.json", count)
    seed = ledger.spend("train", "message 1", [STEP], BUDGET)
    assert RowLedger(tmp_path / "a" / "ledger.json", count).epsilon() == pytest.approx(0.5)
    assert seed < 2**63


def test_the_same_message_is_answered_from_the_same_seed_and_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    first = RowLedger(path, count).spend("train", "message 1", [STEP], BUDGET)
    again = RowLedger(path, count).spend("train", "message 1", [STEP], BUDGET)
    assert first == again
    assert RowLedger(path, count).epsilon() == pytest.approx(0.5)
    other = RowLedger(path, count).spend("train", "message 2", [STEP], BUDGET)
    assert other != first
    assert RowLedger(path, count).epsilon() == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(plan=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(
    ["no", "before", "while writing", "after"])), min_size=1, max_size=12))  # fmt: skip
def test_wherever_it_is_killed_nothing_is_forgotten_or_counted_twice(
    plan: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each entry is a message and the point at which its client dies; it is then asked again."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.json"
    answered: list[tuple[str, int]] = []
    before = ""
    for message, death in plan:
        digest = f"message {message}"
        with pytest.MonkeyPatch.context() as patch:
            if death == "before":
                patch.setattr(ledgers, "secrets", _Dying())
            if death == "while writing":
                patch.setattr(os, "replace", _die)
            if death == "after":
                patch.setattr(os, "fsync", _die_at_folder)
            with contextlib.suppress(KilledError):
                RowLedger(path, count).spend("train", digest, [STEP], Budget(100, 1e-5))
        seed = RowLedger(path, count).spend("train", digest, [STEP], Budget(100, 1e-5))
        if digest == before:
            assert answered[-1] == (digest, seed)
        else:
            answered.append((digest, seed))
        before = digest
    assert len({seed for _, seed in answered}) == len(answered)
    # a client that dies has at most counted what it then did not send: here it sends it afterwards
    assert RowLedger(path, count).epsilon() == pytest.approx(0.5 * len(answered))


class _Dying:
    def randbits(self, bits: int) -> int:
        raise KilledError


def _die(*_: Any) -> None:
    raise KilledError


def _die_at_folder(number: int) -> None:
    if stat.S_ISDIR(os.fstat(number).st_mode):
        raise KilledError


def test_it_refuses_when_spent_and_then_counts_nothing(tmp_path: Path) -> None:
    ledger = RowLedger(tmp_path / "ledger.json", count)
    for i in range(8):
        ledger.spend("train", f"message {i}", [STEP], BUDGET)
    before = (tmp_path / "ledger.json").read_text()
    with pytest.raises(SpentError, match=r"budget of this client is spent: epsilon 4\.000 of 4"):
        ledger.spend("train", "message 8", [STEP], BUDGET)
    assert (tmp_path / "ledger.json").read_text() == before
    assert ledger.spend("train", "message 7", [STEP], BUDGET), "an answer can be repeated"


def test_a_server_cannot_raise_the_budget_and_the_owner_can(tmp_path: Path) -> None:
    path, generous = tmp_path / "ledger.json", Budget(1000, 1e-5)
    for i in range(8):
        RowLedger(path, count).spend("train", f"message {i}", [STEP], BUDGET)
    with pytest.raises(SpentError):
        RowLedger(path, count).spend("train", "message 8", [STEP], generous)
    RowLedger(path, count, limit=generous).spend("train", "message 8", [STEP], BUDGET)
    assert RowLedger(path, count).epsilon() == pytest.approx(4.5)


def test_without_a_budget_it_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"how much this client may reveal.*epsilon=8\.0"):
        RowLedger(tmp_path / "ledger.json", count).spend("train", "message", [STEP], None)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', "\x00"])
def test_a_damaged_ledger_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"nobody knows what was spent\. Restore it"):
        RowLedger(path, count).spend("train", "message", [STEP], BUDGET)
    assert path.read_text() == text


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    RowLedger(path, count).spend("train", "message", [STEP], BUDGET)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["spent"] == [[0.1, 1.0, 5]]


def test_equal_releases_are_one_entry() -> None:
    assert merged([STEP, Spent(1.0, 6.0, 1), STEP]) == [Spent(0.1, 1.0, 10), Spent(1.0, 6.0, 1)]


def test_a_digest_tells_numbers_texts_and_shapes_apart() -> None:
    import numpy as np

    parts = [("a", "b"), ("ab",), (1,), ("1",), (np.zeros(2),), (np.zeros((2, 1)),)]
    assert len({digest_of(*own) for own in parts}) == len(parts)
