"""Many shuffles at once are those that NumPy's generators make one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly import randomness
from evenly.randomness import Draws

COUNTERS = st.integers(0, 2**64 - 1)


def one_by_one(
    draws: Draws,
    entries: np.ndarray,
    begins: list[int],
    sizes: list[int],
    first: list[int],
    second: list[int],
) -> None:
    for begin, size, one, other in zip(begins, sizes, first, second, strict=True):
        draws.at(one, other).shuffle(entries[begin : begin + size])


def laid_out(sizes: list[int], gap: int) -> tuple[np.ndarray, np.ndarray]:
    """Entries with gaps between the stretches, which must stay as they are, and where the stretches
    begin.
    """
    begins = np.concatenate([[0], np.cumsum(np.array(sizes, int) + gap)[:-1]]).astype(np.int64)
    return np.arange(sum(sizes) + gap * len(sizes), dtype=np.int32), begins


@given(
    st.lists(
        st.tuples(st.integers(1, randomness.LONGEST), COUNTERS, COUNTERS), min_size=1, max_size=20
    ),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 3),
)
def test_every_shuffle_is_numpys(visits: list[tuple[int, int, int]], seed: int, gap: int):
    sizes, first, second = (list(numbers) for numbers in zip(*visits, strict=True))
    draws, (entries, begins) = Draws(seed, "batches"), laid_out(sizes, gap)
    expected = entries.copy()
    one_by_one(draws, expected, begins.tolist(), sizes, first, second)
    randomness.shuffle_each(
        draws,
        entries,
        begins,
        np.array(sizes),
        counter=(np.array(first, np.uint64), np.array(second, np.uint64)),
    )
    np.testing.assert_array_equal(entries, expected)


def test_more_than_are_shuffled_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(randomness, "AT_ONCE", 7)
    draw = np.random.default_rng(0)
    sizes, rounds, clients = (
        draw.integers(1, 30, 100),
        draw.integers(0, 9, 100),
        draw.integers(0, 10**6, 100),
    )
    draws, (entries, begins) = Draws(3, "batches"), laid_out(sizes.tolist(), 0)
    expected = entries.copy()
    one_by_one(draws, expected, begins.tolist(), sizes.tolist(), rounds.tolist(), clients.tolist())
    randomness.shuffle_each(draws, entries, begins, sizes, counter=(rounds, clients))
    np.testing.assert_array_equal(entries, expected)


def test_it_is_noticed_if_numpy_shuffles_otherwise(monkeypatch: pytest.MonkeyPatch):
    assert randomness.like_numpy.__wrapped__()
    monkeypatch.setattr(randomness, "ROUNDS", 9)
    assert not randomness.like_numpy.__wrapped__()
