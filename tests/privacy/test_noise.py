"""The Gaussian numbers of all noise: their tails are part of what delta promises."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import evenly
from evenly.algorithms import algorithm
from evenly.parts import row_privacy
from evenly.privacy import gate
from evenly.privacy.gate import ClientGate, GateState, Guard
from evenly.randomness import gaussian

HIGHEST = 5.4201  # what jax.random.normal reaches in single precision, on either side


def of_the_gate(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The noise of a round for clients, in deviations."""
    rule = algorithm("fedavg(weights=equal)").rule
    own = ClientGate(noise=1.0, weight=1.0, clip=1.0, cohort=9.0, clients=9.0, equal=True)
    guard = Guard(own, GateState(jnp.ones(()), jnp.zeros(())), key)
    bounds = guard.bounds(rule, ())
    return gate.add_noise(guard, bounds, gate.VECTOR, jnp.zeros(shape), 1.0)


def of_a_step(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The noise of a step on private rows, in deviations."""
    return row_privacy.add_noise(jnp.zeros(shape), 1.0, key)


@pytest.mark.parametrize("draw", [of_the_gate, of_a_step])
def test_no_release_shows_who_took_part_because_noise_alone_ends_before_it(
    draw: Callable[..., jax.Array], monkeypatch: pytest.MonkeyPatch
):
    """A client that moves a sum by one deviation takes it above the highest number of JAX with a
    chance that is not small beside delta. The bits that lead there are rare, and given here.
    """
    assert norm.sf(HIGHEST - 1) * 25 > 10 * 1e-5  # in 25 of 500 rounds
    monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    numbers = np.asarray(draw(jax.random.key(0), (300_000,)))
    assert norm.sf(numbers.max() - 1) * 25 < 1e-5 / 1000
    assert -numbers.min() == pytest.approx(numbers.max()) == pytest.approx(7.78, abs=0.01)


def test_no_noise_of_privacy_has_other_tails():
    source = Path(evenly.__file__).parent
    others = "parts/row_privacy.py", "simulate/private_signals.py", "flower/clients/private.py"
    drawing = [*(source / "privacy").glob("*.py"), *(source / one for one in others)]
    assert [one.name for one in drawing if "random.normal(" in one.read_text()] == []


def test_tails_have_the_weight_of_a_gaussian():
    levels, at_once, times = np.array([-4.5, -4.2, -3.9, 3.9, 4.2, 4.5]), 2_000_000, 2
    sides = np.sign(levels)

    @jax.jit
    def beyond(key: jax.Array) -> jax.Array:
        numbers = gaussian(key, (at_once,))
        pairs = zip(sides, levels, strict=True)
        return jnp.stack([(side * numbers > side * level).sum() for side, level in pairs])

    found = sum(np.asarray(beyond(jax.random.key(i))) for i in range(times))
    expected = at_once * times * norm.sf(np.abs(levels))
    assert (np.abs(found - expected) < 4 * np.sqrt(expected)).all()


def test_all_other_numbers_are_those_of_jax():
    key, shape = jax.random.key(5), (200_000,)
    plain, ours = np.asarray(jax.random.normal(key, shape)), np.asarray(gaussian(key, shape))
    inside = np.abs(plain) <= 4
    np.testing.assert_array_equal(plain[inside], ours[inside])
    assert (np.sign(plain[~inside]) == np.sign(ours[~inside])).all()
    assert (np.abs(ours[~inside]) >= 3.99999).all()


def test_half_precision_has_the_same_tails():
    half = gaussian(jax.random.key(1), (200_000,), jnp.bfloat16)
    assert half.dtype == jnp.bfloat16
    assert float(jnp.abs(half).max()) > 4  # of eight bits, they end at 2.9
