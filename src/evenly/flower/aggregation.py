"""The server's half of a round, on replies in memory.

It has three steps: weigh the clients, sum their vectors, move the model. They are separate because
two-phase rounds compute the sum elsewhere. The arithmetic of rules is that of `evenly.round`, which
the simulator uses, too. Vectors are never stacked: replies are read in chunks whose sum stays in
the processor's cache.

A model is a list of float arrays in the order of the wire. Where clients train several models, the
models are the first axis. Methods that rank edges send places, which are counted as ballots and not
averaged.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly import round as evenly_round
from evenly.data.federation import Census
from evenly.experiment.deployment import Flag
from evenly.flower.caps import Caps
from evenly.parts.ranking import DIGIT, Ballot
from evenly.privacy.gate import Guard
from evenly.records import require
from evenly.round import Memory, Summed, Weighing
from evenly.types import Algorithm, Rule, Server, Signals, Tree

# numbers read at a time: sum, model and a scratch of this size stay in a core's cache, and calls
# are few
CHUNK = 2**16
NO_MEMORY = Memory(np.zeros(0, bool), ())

Leaves = list[np.ndarray]


class ServerState(NamedTuple):
    """State that one round passes to the next."""

    model: Leaves
    public: Tree  # of the rule
    server: Tree
    memory: Memory = NO_MEMORY  # [clients, ...] what the rule let each client keep
    # int32 [clients] each client's model, given or last chosen; None: there is one for all
    choice: np.ndarray | None = None
    begun: bool = False  # whether several models can be told apart yet
    gate: Tree = ()  # GateState, where the server adds noise that protects clients


class Weighting(NamedTuple):
    """A cohort after weighing."""

    signals: Signals  # within the caps, with each client's memory
    weighing: Weighing
    weight: np.ndarray  # float32 [K] or [K, models], within the caps


class CohortSums(NamedTuple):
    """The sums of a round over the clients whose update counts: everything but their vectors."""

    summed: Summed
    coefficients: np.ndarray  # float32 [K] or [K, models]; 0 where an update does not count
    counted: np.ndarray  # bool [K]


class RoundResult(NamedTuple):
    """Result of a round."""

    state: ServerState
    coefficients: np.ndarray  # [K] final coefficients; 0 where an update did not count
    counted: np.ndarray  # bool [K]
    flags: list[Flag] = []  # noqa: RUF012 - never written to

    def of_slots(self, cohort: np.ndarray) -> "RoundResult":
        """Without the slot that stands for a cohort of nobody."""
        count = len(cohort)
        return self._replace(coefficients=self.coefficients[:count], counted=self.counted[:count])


def first_state(
    algorithm: Algorithm,
    model: Leaves,
    census: Census,
    *,
    choice: np.ndarray | None = None,
    begun: bool = False,
) -> ServerState:
    """State before the first round."""
    server = () if algorithm.server is None else algorithm.server.init(model)
    public = jax.tree.map(jnp.asarray, algorithm.rule.begin(census))
    memory = first_memory(algorithm.rule, public, census)
    return ServerState(model, public, server, memory, choice, begun)


def first_memory(rule: Rule, public: Tree, census: Census) -> Memory:
    """The memory of clients that have not taken part yet: zeros in the shapes that the rule
    remembers.
    """
    clients, groups, labels = census.cells.shape
    own = evenly_round.form_of_own(groups, labels)
    form = jax.eval_shape(
        lambda numbers: jax.tree.map(jnp.asarray, rule.remember(public, numbers)), own
    )
    value = jax.tree.map(lambda leaf: np.zeros((clients, *leaf.shape), leaf.dtype), form)
    return Memory(np.zeros(clients, bool), value)


def with_clients(memory: Memory, clients: int) -> Memory:
    """The memory of so many clients: additional ones have not taken part yet."""

    def resized(leaf: np.ndarray) -> np.ndarray:
        return np.concatenate([leaf, np.zeros((clients, *leaf.shape[1:]), leaf.dtype)])[:clients]

    return jax.tree.map(resized, memory)


def ranks(algorithm: Algorithm) -> bool:
    """Whether clients send places of edges, which are counted as votes."""
    return algorithm.network is not None


def round_from_replies(
    algorithm: Algorithm,
    state: ServerState,
    signals: Signals,
    trained: Sequence[Leaves | None],
    caps: Caps | None = None,
    *,
    guard: Guard | None = None,
) -> RoundResult:
    """Weigh the clients, sum their vectors and move the model. `signals` and `trained` are by slot
    [K]; None: did not return. With a guard, the round is private for clients.
    """
    if guard is not None:
        return _guarded_round(algorithm, state, signals, trained, guard)
    require(
        not jax.tree.leaves(state.gate),
        f"{algorithm.label} adds noise for differential privacy, and the number of rounds must be"
        " known to count what is released. Call `start` with num_rounds.",
    )
    if "gram" in algorithm.rule.needs:
        gram = inner_products(state, trained)
        finite = np.isfinite(np.diagonal(gram))
        signals = signals._replace(
            returned=signals.returned & finite, gram=np.where(finite[:, None] & finite, gram, 0.0)
        )
    weighting, flags = weigh(algorithm, state, signals, caps)
    weight, factors, norms = weighting.weight, np.ones(len(trained)), np.zeros(len(trained))
    if caps is not None and caps.norm is not None:
        # the usual length is that of all clients, also of those with weight 0
        norms = square_norms(algorithm, state, signals, np.ones(len(trained)), trained)
        finite = np.isfinite(norms)
        factors, more = caps.vectors(
            np.where(finite, norms, 0.0), signals._replace(returned=signals.returned & finite)
        )
        norms = np.where(weight.reshape(len(trained), -1).any(1), norms, 0.0)
        flags = flags + more
    elif "square_norm" in algorithm.rule.needs:
        norms = square_norms(algorithm, state, signals, weight, trained)
    sums = sum_up(algorithm, state, weighting, norms * factors**2)
    # It is known who counts, so that weights are divided and not the sum: one pass less.
    cut = (sums.coefficients.T * factors).T.astype(np.float32)
    mean = add_up(algorithm, state, signals, cut, trained)
    return move(algorithm, state, weighting, sums, mean)._replace(flags=flags)


def _guarded_round(
    algorithm: Algorithm,
    state: ServerState,
    signals: Signals,
    trained: Sequence[Leaves | None],
    guard: Guard,
) -> RoundResult:
    """A round with bounds on what each client adds, and noise in every sum."""
    own = jax.tree.map(lambda leaf: leaf[signals.client], state.memory)
    memory, weighing = _weigh(algorithm.rule, state.public, signals, own, guard)
    weight = np.asarray(weighing.weight)
    weighting = Weighting(signals._replace(memory=memory), weighing, weight)
    norms = square_norms(algorithm, state, signals, weight, trained)
    sums = sum_up(algorithm, state, weighting, norms, guard)
    lengths = np.sqrt(np.where(sums.counted, norms, 0.0))
    factors = np.minimum(1.0, float(guard.state.clip) / np.maximum(lengths, 1e-30)) * sums.counted
    # vectors that are not finite have no weight, so that they are not read
    total = add_up(algorithm, state, signals, (weight.T * factors).T.astype(np.float32), trained)
    mean = _noised_mean(algorithm.rule, state.public, total, sums.summed.divisor, guard)
    return move(algorithm, state, weighting, sums, [np.asarray(leaf) for leaf in mean])


def weigh(
    algorithm: Algorithm, state: ServerState, signals: Signals, caps: Caps | None = None
) -> tuple[Weighting, list[Flag]]:
    """Weights of the clients within the caps, and flags for clients that were capped."""
    signals, flags = (signals, []) if caps is None else caps.signals(signals)
    own = jax.tree.map(lambda leaf: leaf[signals.client], state.memory)
    memory, weighing = _weigh(algorithm.rule, state.public, signals, own)
    weight = np.asarray(weighing.weight)
    _require_finite(algorithm, weight)
    if caps is not None:
        weight, cut = caps.coefficients(weight, signals)
        flags = flags + cut
    return Weighting(signals._replace(memory=memory), weighing, weight), flags


def sum_up(
    algorithm: Algorithm,
    state: ServerState,
    weighting: Weighting,
    square_norm: np.ndarray,
    guard: Guard | None = None,
) -> CohortSums:
    """The sums over the clients that returned and whose vector is finite. `square_norm` is its
    squared length [K]: 0 where nobody asks, not finite for those left out.
    """
    with np.errstate(over="ignore"):
        norms = np.asarray(square_norm).astype(np.float32)
    counted = weighting.signals.returned & np.isfinite(norms)
    signals = weighting.signals._replace(
        returned=counted, square_norm=np.where(counted, norms, np.float32(0)), gram=None
    )
    weighing = weighting.weighing._replace(weight=jnp.asarray(weighting.weight))
    summed = _sum_up(algorithm.rule, state.public, weighing, signals, guard)
    coefficients = np.asarray(summed.coefficients)
    _require_finite(algorithm, coefficients)
    return CohortSums(summed, coefficients, counted)


def _require_finite(algorithm: Algorithm, coefficients: np.ndarray) -> None:
    require(
        bool(np.isfinite(coefficients).all()),
        f"{algorithm.label}: the coefficients of this round are not finite. A loss was negative or"
        " too large for this method; check the clients' loss and their learning rate, or set"
        " caps.",
    )


@jax.jit
def _weigh(
    rule: Rule, public: Tree, signals: Signals, memory: Memory, guard: Guard | None = None
) -> tuple[Tree, Weighing]:
    signals = evenly_round.recall(rule, public, signals, memory)
    return signals.memory, evenly_round.weigh(rule, public, signals, guard)


@jax.jit
def _sum_up(
    rule: Rule, public: Tree, weighing: Weighing, signals: Signals, guard: Guard | None = None
) -> Summed:
    return evenly_round.sum_up(rule, public, weighing, signals, guard)


@jax.jit
def _noised_mean(rule: Rule, public: Tree, total: Tree, divisor: Any, guard: Guard) -> Tree:
    return evenly_round.divide(evenly_round.noised(rule, public, total, guard), divisor)


def add_up(
    algorithm: Algorithm,
    state: ServerState,
    signals: Signals,
    weight: np.ndarray,
    trained: Sequence[Leaves | None],
) -> Tree:
    """Sum of weight times vector, where weights are [K] or [K, models]. Vectors with weight 0 are
    not read.
    """
    rows = weight.reshape(len(weight), -1)  # [K, models]
    digits = (np.floor_divide, np.remainder) if ranks(algorithm) else (None,)
    counting = [k for k, own in enumerate(trained) if own is not None and rows[k].any()]
    shares = [[(int(q), float(rows[k, q])) for q in np.flatnonzero(rows[k])] for k in counting]
    totals = []
    for digit in digits:
        leaves = []
        for i, leaf in enumerate(_one(algorithm, state.model)):
            total = np.zeros((rows.shape[1], leaf.size), leaf.dtype)
            replies = [
                (_flat(trained[k], i), _received_model(algorithm, state, signals, k)[i].reshape(-1))
                for k in counting
            ]
            _add(total, list(zip(shares, replies, strict=True)), digit)
            leaves.append(total.reshape(weight.shape[1:] + leaf.shape))
        totals.append(leaves)
    return Ballot(*totals) if ranks(algorithm) else totals[0]


def total_of(algorithm: Algorithm, leaves: Leaves) -> Tree:
    """A sum that was computed elsewhere, in the form that rules expect: sums of places become the
    two digits of a ballot.
    """
    if not ranks(algorithm):
        return leaves
    return Ballot(
        *(
            [digit(leaf, DIGIT).astype(np.float32) for leaf in leaves]
            for digit in (np.floor_divide, np.remainder)
        )
    )


def _add(total: np.ndarray, replies: list[Any], digit: Any) -> None:
    """Add the replies to each model's total [models, n]: differences, or one of the two digits of a
    place.
    """
    size = total.shape[1]
    scratch = np.empty(min(CHUNK, size), total.dtype)
    for start in range(0, size, CHUNK):
        at = slice(start, min(start + CHUNK, size))
        vector = scratch[: at.stop - start]
        sums = [own[at] for own in total]
        for ((first, share), *others), (trained, received) in replies:
            if digit is None:
                np.subtract(trained[at], received[at], out=vector, casting="same_kind")
            else:
                vector[:] = digit(trained[at], DIGIT)
            for q, other in others:
                sums[q] += vector * other
            np.multiply(vector, share, out=vector)
            np.add(sums[first], vector, out=sums[first])


def square_norms(
    algorithm: Algorithm,
    state: ServerState,
    signals: Signals,
    weight: np.ndarray,
    trained: Sequence[Leaves | None],
) -> np.ndarray:
    """Squared length of each vector with a weight other than 0; 0 for the others. [K]"""
    norms = np.zeros(len(trained))
    for k, own in enumerate(trained):
        if own is not None and weight[k].any():
            norms[k] = sum(map(_square_norm, _received_model(algorithm, state, signals, k), own))
    return norms


def _square_norm(received: np.ndarray, trained: np.ndarray) -> float:
    old, new, total = received.reshape(-1), trained.reshape(-1), 0.0
    scratch = np.empty(min(CHUNK, old.size), old.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, old.size, CHUNK):
            at = slice(start, min(start + CHUNK, old.size))
            vector = np.subtract(
                new[at], old[at], out=scratch[: at.stop - at.start], casting="same_kind"
            )
            total += float(np.dot(vector, vector))
    return total


def inner_products(state: ServerState, trained: Sequence[Leaves | None]) -> np.ndarray:
    """Gram matrix of the vectors, computed in chunks. Not finite where a vector is not. float64 [K,
    K]
    """
    gram = np.zeros((len(trained), len(trained)))
    for i, leaf in enumerate(state.model):
        received = leaf.reshape(-1)
        for start in range(0, leaf.size, CHUNK):
            at = slice(start, min(start + CHUNK, leaf.size))
            vectors = np.stack(
                [
                    np.zeros_like(received[at]) if t is None else _flat(t, i)[at] - received[at]
                    for t in trained
                ]
            )
            with np.errstate(invalid="ignore", over="ignore"):
                gram += vectors @ vectors.T
    return gram


def move(
    algorithm: Algorithm, state: ServerState, weighting: Weighting, sums: CohortSums, mean: Tree
) -> RoundResult:
    """Compute the change with the rule, from the sum of coefficient times vector, and move the
    model along it.
    """
    rule, signals, (summed, coefficients, counted) = algorithm.rule, weighting.signals, sums
    coefficients = coefficients.reshape(len(counted), -1).sum(1)  # over models
    if state.choice is not None:
        choice = state.choice.copy()
        choice[signals.client] = signals.choice
        state = state._replace(choice=choice)
    if evenly_round.is_idle(summed):
        return RoundResult(state, coefficients, counted)
    change, public = rule.step(state.public, summed.sums, summed.totals._replace(mean=mean))
    if algorithm.server is None:
        model = [_add_change(old, new) for old, new in zip(state.model, change, strict=True)]
        server = state.server
    else:
        model, server = _update(algorithm.server, change, state.server, state.model)
        model = [np.asarray(leaf) for leaf in model]
    moved = state._replace(
        model=model,
        public=jax.tree.map(jnp.asarray, public),
        server=server,
        memory=_remember(state.memory, signals.client[counted], summed.memory, counted),
        begun=state.begun or rule.groups is not None,
        gate=summed.gate,
    )
    return RoundResult(moved, coefficients, counted)


def _remember(memory: Memory, clients: np.ndarray, new: Tree, counted: np.ndarray) -> Memory:
    """The memory of all clients, with the new one of the clients whose update counted."""

    def put(leaf: np.ndarray, values: Any) -> np.ndarray:
        leaf = leaf.copy()
        leaf[clients] = np.asarray(values)[counted]
        return leaf

    seen = memory.seen.copy()
    seen[clients] = True
    return Memory(seen, jax.tree.map(put, memory.value, new))


def _add_change(model: np.ndarray, change: Any) -> np.ndarray:
    """Add the change in NumPy, which keeps double precision, and in the memory of the change where
    possible.
    """
    ours = isinstance(change, np.ndarray) and change.flags.writeable and change.dtype == model.dtype
    return np.add(model, np.asarray(change), out=change if ours else None)


@jax.jit
def _update(server: Server, change: Tree, state: Tree, model: Tree) -> tuple[Tree, Tree]:
    model, state = server.update(change, state, model)
    return model, state


def models_to_choose(algorithm: Algorithm, state: ServerState) -> Leaves:
    """The models that clients choose from. [models, ...]"""
    apart = algorithm.rule.apart
    return state.model if apart else [np.asarray(leaf) for leaf in state.server]


def served_model(algorithm: Algorithm, state: ServerState) -> Leaves:
    """The model that clients use, or [models, ...]."""
    if algorithm.server is None:
        return state.model
    return [np.asarray(leaf) for leaf in algorithm.server.serve(state.model, state.server)]


def serves_its_model(algorithm: Algorithm, state: ServerState) -> bool:
    """Whether clients use the model that they train."""
    return all(
        own is trained
        for own, trained in zip(served_model(algorithm, state), state.model, strict=True)
    )


def _one(algorithm: Algorithm, model: Leaves) -> Leaves:
    """Arrays of one model: the first of several."""
    return [leaf[0] for leaf in model] if algorithm.rule.apart else model


def _received_model(algorithm: Algorithm, state: ServerState, signals: Signals, k: int) -> Leaves:
    """The model that the client in slot k received."""
    if not algorithm.rule.apart:
        return state.model
    return [leaf[int(signals.choice[k])] for leaf in state.model]


def _flat(leaves: Leaves | None, i: int) -> np.ndarray:
    assert leaves is not None
    return leaves[i].reshape(-1)
