"""The ledger of a client never forgets a release and never counts one twice, wherever it is
killed.
"""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
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
    seed = ledger.spend([STEP], BUDGET)
    assert RowLedger(tmp_path / "a" / "ledger.json", count).epsilon() == pytest.approx(0.5)
    assert seed < 2**63
    assert ledger.spend([STEP], BUDGET) != seed
    assert ledger.epsilon() == pytest.approx(1.0)
    assert str(seed) not in (tmp_path / "a" / "ledger.json").read_text()


def answer(ledger: RowLedger, digest: str) -> int:
    """A client whose answers are the seeds themselves."""
    found = ledger.answer("train", digest)
    if found is not None:
        return int(found.leaves()[0])
    seed = ledger.spend([STEP], Budget(100, 1e-5))
    ledger.keep_answer("train", digest, {"leaf0": np.array(seed)}, {})
    return seed


DEATHS = {
    "before": (ledgers.secrets, "randbits", 0),
    "while counting": (os, "replace", 0),
    "after counting": (os, "fsync", 1),  # of the folder
    "while keeping": (os, "replace", 1),
}


@settings(max_examples=60, deadline=None)
@given(plan=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["no", *DEATHS])),
                     min_size=1, max_size=12))  # fmt: skip
def test_wherever_it_is_killed_nothing_is_forgotten_and_only_the_killed_answer_counts_twice(
    plan: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each entry is a message and the point at which its client dies; it is then asked again."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.json"
    sent: list[tuple[str, int]] = []
    lost = 0
    for message, death in plan:
        digest = f"message {message}"
        repeated = bool(sent) and sent[-1][0] == digest
        if death != "no":
            where, name, calls = DEATHS[death]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(where, name, dying(getattr(where, name), calls))
                if repeated:
                    assert answer(RowLedger(path, count), digest) == sent[-1][1]
                else:
                    with pytest.raises(KilledError):
                        answer(RowLedger(path, count), digest)
            lost += not repeated and death in ("after counting", "while keeping")
        seed = answer(RowLedger(path, count), digest)
        if repeated:
            assert sent[-1] == (digest, seed)
        else:
            sent.append((digest, seed))
    assert len({seed for _, seed in sent}) == len(sent)
    assert RowLedger(path, count).epsilon() == pytest.approx(0.5 * (len(sent) + lost))
    assert sorted(own.name for own in path.parent.iterdir() if own.name[0] != ".") == [
        "ledger.json", "ledger.json.train.npz"
    ]  # fmt: skip


def dying(call: Any, calls: int) -> Any:
    """The same function, whose process dies after so many calls."""
    left = iter(range(calls))

    def once(*args: Any) -> Any:
        if next(left, None) is None:
            raise KilledError
        return call(*args)

    return once


def test_an_answer_that_is_damaged_or_of_no_ledger_is_another_release(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    seeds = [answer(RowLedger(path, count), "message") for _ in range(2)]
    kept = tmp_path / "ledger.json.train.npz"
    kept.write_bytes(kept.read_bytes()[:-9])
    seeds.append(answer(RowLedger(path, count), "message"))
    path.unlink()
    seeds.append(answer(RowLedger(path, count), "message"))
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 3
    assert RowLedger(path, count).epsilon() == pytest.approx(0.5)
    path.write_text("{")
    with pytest.raises(ValueError, match="nobody knows what was spent"):
        answer(RowLedger(path, count), "message")


def test_a_ledger_of_the_first_format_goes_on_counting(tmp_path: Path) -> None:
    """It held the seeds of the last answers."""
    path = tmp_path / "ledger.json"
    old = {"digest": "message", "seed": 7, "releases": [list(STEP)]}
    path.write_text(json.dumps({
        "format": 1, "epsilon": 4.0, "delta": 1e-5, "spent": [list(STEP)],
        "answers": {"train": old}, "kept": {"a": {"b": 1}},
    }))  # fmt: skip
    assert answer(RowLedger(path, count), "message") != 7
    assert RowLedger(path, count).epsilon() == pytest.approx(1.0)
    assert RowLedger(path, count).kept("a") == {"b": 1}
    assert json.loads(path.read_text())["format"] == 2
    assert "answers" not in json.loads(path.read_text())


def test_it_refuses_when_spent_and_then_counts_nothing(tmp_path: Path) -> None:
    ledger = RowLedger(tmp_path / "ledger.json", count)
    for _ in range(8):
        ledger.spend([STEP], BUDGET)
    ledger.keep_answer("train", "message 7", {}, {})
    before = (tmp_path / "ledger.json").read_text()
    with pytest.raises(SpentError, match=r"budget of this client is spent: epsilon 4\.000 of 4"):
        ledger.spend([STEP], BUDGET)
    assert (tmp_path / "ledger.json").read_text() == before
    assert ledger.answer("train", "message 7"), "an answer can be repeated"


def test_a_server_cannot_raise_the_budget_and_the_owner_can(tmp_path: Path) -> None:
    path, generous = tmp_path / "ledger.json", Budget(1000, 1e-5)
    for _ in range(8):
        RowLedger(path, count).spend([STEP], BUDGET)
    with pytest.raises(SpentError):
        RowLedger(path, count).spend([STEP], generous)
    RowLedger(path, count, limit=generous).spend([STEP], BUDGET)
    assert RowLedger(path, count).epsilon() == pytest.approx(4.5)


def test_without_a_budget_it_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"how much this client may reveal.*epsilon=8\.0"):
        RowLedger(tmp_path / "ledger.json", count).spend([STEP], None)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', "\x00"])
def test_a_damaged_ledger_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"nobody knows what was spent\. Restore it"):
        RowLedger(path, count).spend([STEP], BUDGET)
    assert path.read_text() == text


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    answer(RowLedger(path, count), "message")
    for own in (path, tmp_path / "ledger.json.train.npz"):
        assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["spent"] == [[0.1, 1.0, 5]]


def test_equal_releases_are_one_entry() -> None:
    assert merged([STEP, Spent(1.0, 6.0, 1), STEP]) == [Spent(0.1, 1.0, 10), Spent(1.0, 6.0, 1)]


def test_a_digest_tells_numbers_texts_and_shapes_apart() -> None:
    parts = [("a", "b"), ("ab",), (1,), ("1",), (np.zeros(2),), (np.zeros((2, 1)),)]
    assert len({digest_of(*own) for own in parts}) == len(parts)
