"""Seeds that advance together end where each would alone."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest

from evenly.simulate import SeedBatch, simulate
from evenly.types import Seeds, Trace
from tests.simulations import Simulated, algorithms

ROUNDS = 20


def together(
    simulated: Simulated, text: str, rounds: list[int], **options: Any
) -> list[list[Trace]]:
    """One seed for each number of rounds, all in one seed batch."""
    batch = SeedBatch(len(rounds))

    def one(seed: int) -> list[Trace]:
        with batch.join(seed) as advance:
            return simulate(
                simulated.task,
                simulated.federation,
                algorithms(text),
                rounds[seed],
                seeds=Seeds.all(seed),
                advance=advance,
                **options,
            )

    with ThreadPoolExecutor(len(rounds)) as pool:
        futures = [pool.submit(one, seed) for seed in range(len(rounds))]
        return [future.result(timeout=300) for future in futures]


def alike(one: Trace, other: Trace) -> None:
    for a, b in zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
    np.testing.assert_array_equal(one.cohort, other.cohort)
    np.testing.assert_allclose(one.losses, other.losses, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "text, options", [("q-fedavg(q=[0, 1])", {}), ("fairfed,fedavg+reweigh", {"lanes": 3})]
)
def test_seeds_that_meet_learn_what_they_learn_alone(
    simulated: Simulated, text: str, options: dict[str, Any]
):
    met = together(simulated, text, [ROUNDS, ROUNDS], dropout=0.3, evaluate_every=3, **options)
    for seed, traces in enumerate(met):
        own = simulated.all(
            text, ROUNDS, seeds=Seeds.all(seed), dropout=0.3, evaluate_every=3, **options
        )
        for one, other in zip(traces, own, strict=True):
            alike(one, other)


def test_who_is_done_earlier_does_not_hold_up_the_others(simulated: Simulated):
    met = together(simulated, "q-fedavg(q=[0, 1])", [2, ROUNDS])
    alike(met[0][1], simulated.all("q-fedavg(q=[0, 1])", 2, seeds=Seeds.all(0))[1])
    alike(met[1][1], simulated.all("q-fedavg(q=[0, 1])", ROUNDS, seeds=Seeds.all(1))[1])


def test_an_error_of_one_leaves_the_others_to_go_on(simulated: Simulated):
    batch = SeedBatch(2)

    def one(seed: int) -> list[Trace]:
        with batch.join(seed) as advance:
            if seed == 0:
                raise ValueError("not today")
            return simulate(
                simulated.task,
                simulated.federation,
                algorithms("fedavg"),
                2,
                seeds=Seeds.all(1),
                advance=advance,
            )

    with ThreadPoolExecutor(2) as pool:
        broken, fine = (pool.submit(one, seed) for seed in range(2))
        with pytest.raises(ValueError, match="not today"):
            broken.result(timeout=300)
        assert len(fine.result(timeout=300)) == 1


def test_who_cannot_be_advanced_at_all_is_not_waited_for():
    batch = SeedBatch(2)
    with pytest.raises(TypeError), batch.join(0) as advance:
        advance(None, object(), None, None)  # pyright: ignore[reportArgumentType]
    assert not batch._calls
    assert batch._active == {1}
