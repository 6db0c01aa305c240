"""One server round on plain vectors in float64, without compiling: what the oracles are compared with."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenly.types import Effort, Rule, Signals

# Fixture T of the specification: three clients whose results are known to ten digits.
# Received model, trained models, losses of the received model, sizes; rate 0.1, so L = 10.
W = np.array([1.0, 2.0])
TRAINED = np.array([[0.8, 2.0], [1.0, 1.5], [0.9, 2.2]])
LOSSES = np.array([0.5, 2.0, 1.0])
SIZES = np.array([10, 30, 60])
RATE, L = 0.1, 10.0
GRADIENTS = (W - TRAINED) / RATE  # (2, 0), (0, 5), (1, -2)


class Outcome(NamedTuple):
    model: np.ndarray
    weights: np.ndarray


def aggregate(rule: Rule, received: Any, trained: Any, *, losses: Any = None, sizes: Any = None, returned: Any = None) -> Outcome:
    """Weigh, add up, step, as the simulator does for one run."""
    with jax.enable_x64(True):
        received, trained = jnp.asarray(received, jnp.float64), jnp.asarray(trained, jnp.float64)
        count = len(trained)
        signals = Signals(
            client=jnp.arange(count),
            returned=jnp.ones(count, bool) if returned is None else jnp.asarray(returned),
            examples=jnp.ones(count) if sizes is None else jnp.asarray(sizes, jnp.float64),
            loss=jnp.ones(count) if losses is None else jnp.asarray(losses, jnp.float64),
        )
        vectors = trained - received
        weights, state = rule.weigh(rule.init(None), signals)  # pyright: ignore[reportArgumentType]
        change, _ = rule.step(state, signals, Effort((vectors**2).sum(1)), weights @ vectors)
        return Outcome(np.asarray(received + change), np.asarray(weights))


class Round(NamedTuple):
    """Random inputs of a server round."""

    received: np.ndarray
    trained: np.ndarray
    losses: np.ndarray
    sizes: np.ndarray

    def only(self, kept: Any) -> "Round":
        return Round(self.received, self.trained[kept], self.losses[kept], self.sizes[kept])

    def apply(self, rule: Rule, returned: Any = None) -> Outcome:
        return aggregate(rule, self.received, self.trained, losses=self.losses, sizes=self.sizes, returned=returned)


@st.composite
def rounds(draw: Any, counts: tuple[int, ...] = (1, 2, 4)) -> Round:
    """Few distinct shapes on purpose: JAX compiles every operation once per shape."""
    count = draw(st.sampled_from(counts))
    numbers = st.floats(-3, 3, allow_subnormal=False)  # XLA flushes those to zero
    return Round(
        draw(arrays(np.float64, 3, elements=numbers)),
        draw(arrays(np.float64, (count, 3), elements=numbers)),
        draw(arrays(np.float64, count, elements=st.floats(1e-3, 1e2))),
        draw(arrays(np.int64, count, elements=st.integers(1, 1000))),
    )


powers = st.one_of(st.sampled_from([0.0, 0.001, 0.1, 1.0, 2.0, 5.0, 15.0]), st.floats(0, 15))
rates = st.floats(1e-3, 1.0)
