import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.data.federation import Shard
from evenly.parts.work import LocalState, LocalTraining
from evenly.records import record, static
from tests.oracles import client
from tests.simulations import Simulated, flat, same_bits


@record
class Slope:
    """A loss whose gradient is 2 everywhere."""

    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def init(self, key):
        return jnp.zeros(())

    def losses(self, params, shard):
        return 2.0 * params + jnp.zeros(len(shard.y))

    def penalty(self, params):
        return 0.0

    def predict(self, params, x):
        return jnp.zeros(len(x), int)


def one_step(v: float, w: float, rate: float, mu: float) -> float:
    with jax.enable_x64(True):
        batch = Shard(
            jnp.zeros((3, 1)), jnp.zeros(3, int), jnp.zeros(3, int), jnp.ones(3), jnp.ones(3)
        )
        work = LocalTraining(learning_rate=rate, mu=mu)
        started = work.start(Slope(), jnp.asarray(w), None)
        moved = work.step(
            Slope(), jnp.asarray(w), LocalState(jnp.asarray(v), started.optimiser), batch
        )
        return float(moved.model)


def test_worked_example():
    # 0.7 - 0.1 * (2 + 0.1 * (0.7 - 1)) = 0.7 - 0.197.
    assert one_step(0.7, 1.0, 0.1, 0.1) == pytest.approx(0.503, abs=1e-12)
    assert client.proximal_step(0.7, 1.0, 2.0, 0.1, 0.1) == pytest.approx(0.503, abs=1e-12)


def test_the_step_is_the_papers():
    draw = np.random.default_rng(0)
    for v, w, rate, mu in draw.uniform(0.01, 2, (20, 4)):
        assert one_step(v, w, rate, mu) == pytest.approx(
            client.proximal_step(v, w, 2.0, rate, mu), abs=1e-10
        )


def test_mu_zero_is_fedavg(simulated: Simulated):
    same_bits(simulated("fedprox(mu=0)", rounds=6), simulated("fedavg", rounds=6))


def test_a_strong_pull_keeps_the_model_near_the_start(simulated: Simulated):
    # At rate * mu = 1 every local step starts again from the received model, so only the last batch
    # counts.
    free, held = simulated("fedprox(mu=0)", rounds=6), simulated("fedprox(mu=10)", rounds=6)
    assert 0 < np.linalg.norm(flat(held.model)) < 0.7 * np.linalg.norm(flat(free.model))


def test_negative_mu_is_refused():
    with pytest.raises(
        ValueError, match=r"^fedprox: mu must be at least 0, got -0\.1\. Meaning: .*$"
    ):
        algorithm("fedprox(mu=-0.1)")


def test_mu_has_a_default_above_zero():
    assert algorithm("fedprox").work.mu == 0.1  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("fedavg").work.mu == 0  # pyright: ignore[reportAttributeAccessIssue]
