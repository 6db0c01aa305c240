import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.randomness import Draws, generator

counters = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
SOME = (4, 7)


def numbers(draws: np.random.Generator) -> list[float]:
    return draws.random(5).tolist()


@given(st.integers(0, 2**63), counters)
def test_a_draw_depends_only_on_seed_purpose_and_counter(seed: int, counter: tuple[int, ...]):
    draws = Draws(seed, "cohort")
    draws.at(*SOME).random(1000)
    assert numbers(draws.at(*counter)) == numbers(generator(seed, "cohort", *counter))


@given(
    st.lists(
        st.sampled_from(["random", "integers", "float32", "permutation", "normal"]), max_size=4
    )
)
def test_nothing_is_left_over_from_the_draw_before(before: list[str]):
    # float32 and small integers take half a word and leave the other half in a buffer.
    draws = Draws(1, "batches")
    start = draws.at(*SOME)
    for kind in before:
        {
            "random": lambda: start.random(),
            "integers": lambda: start.integers(0, 7, dtype=np.uint8),
            "float32": lambda: start.random(dtype=np.float32),
            "permutation": lambda: start.permutation(3),
            "normal": lambda: start.normal(size=3),
        }[kind]()
    again = draws.at(*SOME)
    fresh = generator(1, "batches", *SOME)
    assert again.random(3, dtype=np.float32).tolist() == fresh.random(3, dtype=np.float32).tolist()
    assert again.permutation(9).tolist() == fresh.permutation(9).tolist()


def test_seeds_purposes_and_counters_are_all_told_apart():
    made = [
        numbers(generator(seed, purpose, *counter))
        for seed in (0, 1, 2**63)
        for purpose in ("cohort", "batches", "dropout", "split")
        for counter in ((), (1,), (0, 1), (2, 0), (1, 1), (0, 0, 1))
    ]
    assert len({tuple(m) for m in made}) == len(made)


def test_missing_counters_are_zeros():
    assert numbers(generator(3, "split")) == numbers(generator(3, "split", 0, 0, 0))


def test_neighbouring_counters_do_not_overlap():
    # Philox counts blocks in its lowest word; a counter of ours must not be a later block of its
    # neighbour.
    long = generator(0, "batches", 5).integers(0, 2**63, 100_000)
    near = generator(0, "batches", 6).integers(0, 2**63, 100_000)
    assert not set(long.tolist()) & set(near.tolist())


def test_draws_are_uniform_across_counters():
    draws = Draws(9, "dropout")
    first = np.array([draws.at(t).random() for t in range(4000)])
    assert abs(first.mean() - 0.5) < 0.02  # three deviations of sqrt(1/12/4000)
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.06


def test_a_negative_seed_is_as_good_as_any():
    assert numbers(generator(-1, "split")) == numbers(generator(-1, "split"))
    assert numbers(generator(-1, "split")) != numbers(generator(1, "split"))


def test_more_than_three_counters_are_refused():
    with pytest.raises(TypeError):
        Draws(0, "split").at(1, 2, 3, 4)


def test_known_numbers_stay():
    # Recorded once: a change here means that every published run has other cohorts and batches.
    assert generator(0, "cohort", 3).permutation(8).tolist() == [0, 6, 1, 2, 4, 3, 7, 5]
    assert generator(1, "batches", 2, 5).integers(0, 1000, 4).tolist() == [197, 314, 416, 546]
