"""One server round on plain vectors in float64, without a simulator: what the oracles are compared with."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenly.types import Census, Effort, Rule, Signals

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
    state: Any  # of the rule


@jax.jit
def _round(rule: Rule, signals: Signals, received: Any, trained: Any, state: Any) -> tuple[Any, Any, Any]:
    vectors = trained - received
    weights, state = rule.weigh(state, signals._replace(gram=vectors @ vectors.T))
    change, state = rule.step(state, signals, Effort((vectors**2).sum(1)), weights @ vectors)
    return received + change, weights, state


def aggregate(
    rule: Rule, received: Any, trained: Any, *, losses: Any = None, sizes: Any = None, returned: Any = None, clients: Any = None,
    everyone: Any = None, chance: Any = (0.5, 0.5), state: Any = None,
) -> Outcome:  # fmt: skip
    """Weigh, add up, step, as the simulator does for one run. `clients` sit in the slots; `everyone` has these sizes."""
    count = len(trained)
    sizes = np.ones(count) if sizes is None else np.asarray(sizes)
    everyone = sizes if everyone is None else np.asarray(everyone)
    with jax.enable_x64(True):
        signals = Signals(
            client=jnp.arange(count) if clients is None else jnp.asarray(clients),
            returned=jnp.ones(count, bool) if returned is None else jnp.asarray(returned),
            examples=jnp.asarray(sizes, jnp.float64),
            loss=jnp.ones(count) if losses is None else jnp.asarray(losses, jnp.float64),
            chance=jnp.asarray(chance, jnp.float64),
        )
        state = rule.init(Census(everyone, np.ones((len(everyone), 1, 1), int))) if state is None else state
        found = _round(rule, signals, jnp.asarray(received, jnp.float64), jnp.asarray(trained, jnp.float64), state)
        return Outcome(*(jax.tree.map(np.asarray, part) for part in found))


class Round(NamedTuple):
    """Random inputs of a server round."""

    received: np.ndarray
    trained: np.ndarray
    losses: np.ndarray
    sizes: np.ndarray
    clients: Any = None  # who sits in the slots; by default everyone in order
    everyone: Any = None  # sizes of all clients

    def only(self, kept: Any) -> "Round":
        """Some slots, perhaps in another order; the others still exist, but are not in the round."""
        clients = np.arange(len(self.sizes)) if self.clients is None else self.clients
        everyone = self.sizes if self.everyone is None else self.everyone
        return Round(self.received, self.trained[kept], self.losses[kept], self.sizes[kept], clients[kept], everyone)

    def apply(self, rule: Rule, returned: Any = None) -> Outcome:
        return aggregate(rule, returned=returned, **self._asdict())


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
