"""One server round on plain vectors in float64, without a simulator: what the oracles are compared
with.

Rules are written for one client, and clients keep their own memory. Here the memories of all
clients are kept together, by number, so that tests can pass them from round to round.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenly import round as derived
from evenly.data.federation import Census
from evenly.parts.optimisers import Blend, BlendingServer
from evenly.types import Own, Rule, Signals

# Fixture T of the specification: three clients whose results are known to ten digits.
# Received model, trained models, losses of the received model, sizes; rate 0.1, so L = 10.
W = np.array([1.0, 2.0])
TRAINED = np.array([[0.8, 2.0], [1.0, 1.5], [0.9, 2.2]])
LOSSES = np.array([0.5, 2.0, 1.0])
SIZES = np.array([10, 30, 60])
RATE, L = 0.1, 10.0
GRADIENTS = (W - TRAINED) / RATE  # (2, 0), (0, 5), (1, -2)


class State(NamedTuple):
    """What passes from one round to the next."""

    public: Any
    memory: derived.Memory  # [clients, ...] of all clients, by number


class Played(NamedTuple):
    """One round of a rule."""

    change: Any
    weighing: derived.Weighing
    summed: derived.Summed
    state: State


class Outcome(NamedTuple):
    model: np.ndarray
    weights: np.ndarray  # coefficients
    state: State
    # [clients, ...] of all clients; those that never took part have what they would start with
    memory: Any

    @property
    def public(self) -> Any:
        return self.state.public


def start(rule: Rule, census: Census) -> State:
    """Before the first round: public numbers, and clients that keep nothing yet."""
    public = rule.begin(census)
    count = len(census.examples)
    first = jax.vmap(lambda n: rule.remember(public, Own(examples=n)))(jnp.ones(count))
    return State(
        public, derived.Memory(jnp.zeros(count, bool), jax.tree.map(jnp.zeros_like, first))
    )


def play(rule: Rule, state: State, signals: Signals, vectors: Any, counted: Any = None) -> Played:
    """One round, as the simulator and a server play it.

    Args:
        rule: The rule.
        state: Public numbers, and the memories of all clients.
        signals: Numbers of the cohort. Those of `square_norm` count after training only.
        vectors: Tree of vectors [K, ...].
        counted: Whether each client's update counts; by default those that returned before
            training. Who drops out in between is in the sums of the stages.

    Returns:
        The change of the model, both halves of the round, and the next state.
    """
    counted = signals.returned if counted is None else signals.returned & counted
    own = jax.tree.map(lambda leaf: leaf[signals.client], state.memory)
    signals = derived.recall(rule, state.public, signals, own)
    weighing = derived.weigh(rule, state.public, signals)
    factor = jnp.where(_column(counted, weighing.weight), weighing.weight, 0)
    total = jax.tree.map(
        lambda leaf: jnp.tensordot(factor.T, jnp.where(_column(counted, leaf), leaf, 0), 1), vectors
    )
    summed = derived.sum_up(rule, state.public, weighing, signals._replace(returned=counted))
    change, public = derived.step(rule, state.public, summed, total)
    anyone = ~derived.is_idle(summed)
    # an index beyond the end writes nothing
    at = jnp.where(counted & anyone, signals.client, state.memory.seen.shape[0])
    memory = derived.Memory(
        state.memory.seen.at[at].set(True, mode="drop"),
        jax.tree.map(
            lambda leaf, new: leaf.at[at].set(new, mode="drop"), state.memory.value, summed.memory
        ),
    )
    public = jax.tree.map(lambda new, old: jnp.where(anyone, new, old), public, state.public)
    return Played(change, weighing, summed, State(public, memory))


_played = jax.jit(play)


def by_client(function: Callable[[Own], Any], own: Own) -> Any:
    """Call a function for every client of stacked numbers, and stack the results."""
    return jax.vmap(lambda one: jax.tree.map(jnp.asarray, function(one)))(own)


def memories(rule: Rule, state: State, sizes: Any) -> Any:
    """The memory of every client of these sizes; what it would start with where it has none."""
    own = Signals(client=None, returned=jnp.ones(len(sizes), bool), examples=sizes)
    return derived.recall(rule, state.public, own, state.memory).memory


def _column(mask: Any, like: Any) -> Any:
    return mask.reshape(mask.shape + (1,) * (like.ndim - 1))


@jax.jit
def _rounds(
    rules: dict[str, Rule], signals: Signals, received: Any, trained: Any, states: Any, sizes: Any
) -> dict[str, Outcome]:
    """One round of every rule, in one program: compiling many small ones is what these tests would
    pay for.
    """
    vectors = trained - received
    signals = signals._replace(gram=vectors @ vectors.T, square_norm=(vectors**2).sum(1))

    def one(rule: Rule, state: State) -> Outcome:
        played = play(rule, state, signals, vectors)
        moved = (
            BlendingServer().update(played.change, (), received)[0]
            if isinstance(played.change, Blend)
            else received + played.change
        )
        after, weights = played.state, played.summed.coefficients
        # as in the simulator: what a server would do with a change of 0 does not happen
        moved = jnp.where(derived.is_idle(played.summed), received, moved)
        return Outcome(moved, weights, after, memories(rule, after, sizes))

    return {name: one(rule, states[name]) for name, rule in rules.items()}


@jax.jit
def _starts(rules: dict[str, Rule], everyone: Any) -> dict[str, Any]:
    census = Census(everyone, np.ones((len(everyone), 2, 2), int))
    return {name: start(rule, census) for name, rule in rules.items()}


def remembering(rule: Rule, value: Any = (), clients: int = 0, **public: Any) -> State:
    """A state in which every client remembers something; `public` replaces public numbers."""
    clients = clients or len(jax.tree.leaves(value)[0])
    with jax.enable_x64(True):
        begun = rule.begin(Census(np.ones(clients), np.ones((clients, 2, 2), int)))
        told = begun._replace(**public) if public else begun
        return State(told, derived.Memory(np.ones(clients, bool), value))


def single_round(rule: Rule, vectors: Any, **told: Any) -> tuple[np.ndarray, Any]:
    """Coefficients and change of a first round in single precision; what is told are signals."""
    vectors = jnp.asarray(vectors, jnp.float32)
    count = len(vectors)
    signals = Signals(
        client=jnp.arange(count),
        returned=jnp.ones(count, bool),
        **{"examples": jnp.ones(count), "square_norm": (vectors**2).sum(1), **told},
    )
    begun = start(rule, Census(np.ones(count), np.ones((count, 2, 2), int)))
    played = _played(rule, begun, signals, vectors)
    found = played.summed.coefficients, played.change
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
    return jax.tree.map(np.asarray, found)


def aggregate(
    rule: Rule, received: Any, trained: Any, *, state: Any = None, **told: Any
) -> Outcome:
    """Weigh, add up, step, as the simulator does for one run; what is told is said at
    `aggregate_each`.
    """
    return aggregate_each(
        {"": rule}, received, trained, states=None if state is None else {"": state}, **told
    )[""]


def aggregate_each(
    rules: dict[str, Rule], received: Any, trained: Any, *, losses: Any = None, sizes: Any = None,
    returned: Any = None, clients: Any = None, everyone: Any = None, chance: Any = (0.5, 0.5),
    tables: Any = None, unprivileged: Any = None, cell_losses: Any = None,
    census: Census | None = None, states: Any = None, valid_tables: Any = None,
) -> dict[str, Outcome]:  # fmt: skip
    """The same round of each rule. `clients` sit in the slots; `everyone` has these sizes.

    There are two groups and two labels unless `census` says otherwise; `tables` are counts [K,
    groups, labels, outcomes]. `states` are those of the last round, or made by `remembering`.
    """
    count = len(trained)
    sizes = np.ones(count) if sizes is None else np.asarray(sizes)
    everyone = sizes if everyone is None else np.asarray(everyone)
    signals = Signals(
        client=np.arange(count) if clients is None else np.asarray(clients),
        returned=np.ones(count, bool) if returned is None else np.asarray(returned),
        examples=np.asarray(sizes, np.float64),
        loss=np.ones(count) if losses is None else np.asarray(losses, np.float64),
        chance=np.asarray(chance, np.float64),
        table=np.asarray(np.ones((count, 2, 2, 2)) if tables is None else tables, np.float64),
        unprivileged=np.asarray(sizes / 2 if unprivileged is None else unprivileged, np.float64),
        valid_table=np.asarray(
            np.ones((count, 2, 2, 2)) if valid_tables is None else valid_tables, np.float64
        ),
        cell_loss=np.asarray(
            np.ones((count, 2, 2)) if cell_losses is None else cell_losses, np.float64
        ),
    )  # pyright: ignore[reportArgumentType]
    with jax.enable_x64(True):
        if states is None:
            states = (
                _starts(rules, everyone)
                if census is None
                else {name: start(rule, census) for name, rule in rules.items()}
            )
        found = _rounds(
            rules,
            signals,
            np.asarray(received, np.float64),
            np.asarray(trained, np.float64),
            states,
            np.asarray(everyone, np.float64),
        )
        return jax.tree.map(np.asarray, found)


class Round(NamedTuple):
    """Random inputs of a server round."""

    received: np.ndarray
    trained: np.ndarray
    losses: np.ndarray
    sizes: np.ndarray
    clients: Any = None  # who sits in the slots; by default everyone in order
    everyone: Any = None  # sizes of all clients
    tables: Any = None  # [K, 2, 2, 2] counts by group, label and outcome
    unprivileged: Any = None  # [K]
    cell_losses: Any = None  # [K, 2, 2]

    def only(self, kept: Any) -> "Round":
        """Some slots, perhaps in another order; the others still exist, but are not in
        the round.
        """
        clients = np.arange(len(self.sizes)) if self.clients is None else self.clients
        everyone = self.sizes if self.everyone is None else self.everyone
        of_groups = (
            None if own is None else own[kept]
            for own in (self.tables, self.unprivileged, self.cell_losses)
        )
        return Round(
            self.received,
            self.trained[kept],
            self.losses[kept],
            self.sizes[kept],
            clients[kept],
            everyone,
            *of_groups,
        )

    def apply(self, rule: Rule, returned: Any = None) -> Outcome:
        return aggregate(rule, returned=returned, **self._asdict())

    def apply_each(self, rules: dict[str, Rule], returned: Any = None) -> dict[str, Outcome]:
        return aggregate_each(rules, returned=returned, **self._asdict())


@st.composite
def rounds(draw: Any, counts: tuple[int, ...] = (1, 4)) -> Round:
    """Few distinct shapes on purpose: JAX compiles every operation once per shape."""
    count = draw(st.sampled_from(counts))
    numbers = st.floats(-3, 3, allow_subnormal=False)  # XLA flushes those to zero
    return Round(
        draw(arrays(np.float64, 3, elements=numbers)),
        draw(arrays(np.float64, (count, 3), elements=numbers)),
        draw(arrays(np.float64, count, elements=st.floats(1e-3, 1e2))),
        draw(arrays(np.int64, count, elements=st.integers(1, 1000))),
    )


@st.composite
def grouped_rounds(draw: Any, counts: tuple[int, ...] = (1, 4)) -> Round:
    """Rounds whose clients also have groups and labels; combinations may be missing, but no client
    is empty.
    """
    case = draw(rounds(counts))
    count = len(case.losses)
    tables = draw(
        arrays(np.int64, (count, 2, 2, 2), elements=st.sampled_from([0, 0, 1, 2, 5, 9, 40]))
    )
    tables[:, 1, 1, 1] += tables.sum((1, 2, 3)) == 0
    cells = tables.sum(3)
    cell_losses = cells * draw(arrays(np.float64, (count, 2, 2), elements=st.floats(1e-3, 5)))
    return case._replace(
        sizes=cells.sum((1, 2)),
        tables=tables,
        unprivileged=cells[:, 0].sum(1),
        cell_losses=cell_losses,
    )


powers = st.one_of(st.sampled_from([0.0, 0.001, 0.1, 1.0, 2.0, 5.0, 15.0]), st.floats(0, 15))
rates = st.floats(1e-3, 1.0)
