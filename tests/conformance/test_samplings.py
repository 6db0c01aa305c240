"""What every sampling promises, driven by the registry."""

import dataclasses

import numpy as np
import pytest

from evenly.data.federation import Census
from evenly.parts.sampling import SAMPLINGS
from evenly.randomness import Draws
from evenly.types import Select, Signals

COUNTS = np.array([5, 1, 9, 30, 2, 8, 16])
# two groups, one label
CENSUS = Census(COUNTS, np.stack([COUNTS // 3, COUNTS - COUNTS // 3], axis=1)[:, :, None])
EVERY = pytest.mark.parametrize("name", SAMPLINGS)
REMEMBERS = {"parity"}  # whom it chose before decides whom it chooses
SHARES = {"fraction", "parity"}
VARIES = {"poisson"}  # how many take part is a matter of chance


def built(name: str) -> Select:
    return SAMPLINGS[name](
        **(
            {"clients": 3}
            if name in ("uniform", "weighted")
            else {"share": 0.5}
            if name in SHARES
            else {}
        )
    )


def cohorts(
    select: Select, rounds: range, seed: int = 0, census: Census = CENSUS
) -> list[np.ndarray]:
    draws, state, result = Draws(seed, "cohort"), select.init(census), []
    for t in rounds:
        cohort, state = select(state, draws.at(t))
        result.append(np.array(cohort))
    return result


@EVERY
def test_it_is_a_select(name: str):
    assert isinstance(SAMPLINGS[name](), Select)


class Few(np.random.Generator):
    """A generator that gives up when it is asked often: a sampling that draws for ever fails here
    instead of hanging.
    """

    asked = 0

    def random(self, *args, **kwargs):
        self.asked += 1
        assert self.asked < 200, "a cohort takes a few draws"
        return super().random(*args, **kwargs)


@EVERY
def test_a_cohort_takes_few_draws(name: str):
    select, generator = built(name), Few(np.random.Philox(5))
    state = select.init(CENSUS)
    for _ in range(20):
        cohort, state = select(state, generator)
        assert len(cohort) == select.slots(CENSUS) or name in VARIES


@EVERY
def test_cohorts_have_as_many_seats_as_promised_and_hold_registered_clients_once(name: str):
    select = built(name)
    for cohort in cohorts(select, range(200)):
        assert len(cohort) <= select.slots(CENSUS)
        assert len(cohort) == select.slots(CENSUS) or name in VARIES
        assert len(set(cohort)) == len(cohort)
        assert set(cohort) <= set(range(len(COUNTS)))


@EVERY
def test_the_same_key_draws_the_same_cohort(name: str):
    for one, other in zip(
        cohorts(built(name), range(20)), cohorts(built(name), range(20)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@EVERY
def test_a_round_depends_on_the_rounds_before_it_only_where_the_sampling_says_so(name: str):
    later = [
        np.array_equal(a, b)
        for a, b in zip(
            cohorts(built(name), range(20))[10:], cohorts(built(name), range(10, 20)), strict=True
        )
    ]
    assert all(later) != (name in REMEMBERS)


@EVERY
def test_another_seed_draws_other_cohorts_unless_everyone_takes_part(name: str):
    same = all(
        np.array_equal(a, b)
        for a, b in zip(
            cohorts(built(name), range(20)), cohorts(built(name), range(20), seed=1), strict=True
        )
    )
    assert same == (name == "full")


@EVERY
def test_first_seats_follow_sizes_exactly_where_the_sampling_says_so(name: str):
    select = built(name)
    if name == "full" or name in REMEMBERS | VARIES:
        # everyone takes part, or it follows something else: there is no draw to follow sizes
        assert not select.by_size
        return
    first = np.bincount([c[0] for c in cohorts(select, range(3000))], minlength=len(COUNTS)) / 3000
    expected = COUNTS / COUNTS.sum() if select.by_size else np.full(len(COUNTS), 1 / len(COUNTS))
    np.testing.assert_allclose(first, expected, atol=0.035)  # three deviations of sqrt(0.24 / 3000)


@EVERY
def test_the_choice_depends_on_nothing_but_what_the_sampling_says_it_needs(name: str):
    select = built(name)
    assert select.needs <= set(Signals._fields)
    odd = np.arange(len(COUNTS)) % 2
    others = {
        "examples": Census(COUNTS[::-1], CENSUS.cells[::-1]),
        # as many rows of each client
        "unprivileged": Census(
            COUNTS, np.stack([COUNTS * odd, COUNTS * (1 - odd)], axis=1)[:, :, None]
        ),
    }
    for need, census in others.items():
        same = all(
            np.array_equal(a, b)
            for a, b in zip(
                cohorts(select, range(40)), cohorts(select, range(40), census=census), strict=True
            )
        )
        assert same == (need not in select.needs), need


@EVERY
def test_every_setting_is_documented(name: str):
    for field in dataclasses.fields(SAMPLINGS[name]):  # pyright: ignore[reportArgumentType]
        assert field.metadata.get("doc") or field.name == "by_size", field.name
    assert SAMPLINGS[name].__doc__


def test_each_client_is_drawn_on_its_own_with_the_rate_of_poisson_sampling():
    everyone = 400
    census = Census(np.ones(everyone, int), np.ones((everyone, 1, 1), int))
    select, times = SAMPLINGS["poisson"](rate=0.05), 4000
    drawn = np.zeros((times, everyone), bool)
    for t, cohort in enumerate(cohorts(select, range(times), census=census)):
        drawn[t, cohort] = True
    np.testing.assert_allclose(drawn.mean(), 0.05, atol=5e-4)
    # a binomial number of clients, because each is drawn on its own
    np.testing.assert_allclose(drawn.sum(1).var(), everyone * 0.05 * 0.95, rtol=0.1)
    np.testing.assert_allclose((drawn[:, 0] & drawn[:, 1]).mean(), 0.0025, atol=0.0025)
    assert drawn.sum(1).max() <= select.slots(census)


def test_a_cohort_has_room_for_practically_every_poisson_draw():
    from scipy.stats import binom

    for registered, rate in ((1000, 0.05), (60, 0.5), (3, 1.0), (10**6, 1e-4)):
        census = Census(np.ones(registered, int), np.ones((registered, 1, 1), int))
        slots = SAMPLINGS["poisson"](rate=rate).slots(census)
        assert binom.sf(slots, registered, rate) < 1e-12
        assert slots == 1 or binom.sf(slots - 1, registered, rate) >= 1e-12
