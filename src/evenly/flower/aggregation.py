"""The server's half of a round, as in `evenly.simulate`, on replies in memory.

It has three steps: compute coefficients, sum the vectors, move the model. They are separate because
two-phase rounds compute the sum elsewhere. Rules, servers and their states are those of the
simulator. Vectors are never stacked: replies are read in chunks whose sum stays in the processor's
cache.

A model is a list of float arrays in the order of the wire. Where clients train several models, the
models are the first axis. Methods that rank edges send places, which are counted as ballots and not
averaged.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly.data.federation import Census
from evenly.experiment.deployment import Flag
from evenly.flower.caps import Caps
from evenly.parts.ranking import DIGIT, Ballot
from evenly.records import require
from evenly.types import Algorithm, Effort, Rule, Server, Several, Signals, Tree

# numbers read at a time: sum, model and a scratch of this size stay in a core's cache, and calls
# are few
CHUNK = 2**16

Leaves = list[np.ndarray]


class ServerState(NamedTuple):
    """State that one round passes to the next."""

    model: Leaves
    rule: Tree
    server: Tree
    # int32 [clients] each client's model, given or last chosen; None: there is one for all
    choice: np.ndarray | None = None
    begun: bool = False  # whether several models can be told apart yet


class Weighting(NamedTuple):
    """Coefficients of a round, and the state of the rule after computing them."""

    coefficients: np.ndarray  # float32 [K], or [models, K]
    rule: Tree


class VectorSum(NamedTuple):
    """Weighted sum of a cohort's vectors, and their lengths."""

    total: Tree  # coefficient times vector, summed over those whose vector is finite
    # [K] of each vector; 0 where nobody asks, not finite for those left out
    square_norm: np.ndarray

    @property
    def finite(self) -> np.ndarray:
        return np.isfinite(self.square_norm)


class RoundResult(NamedTuple):
    """Result of a round."""

    state: ServerState
    coefficients: np.ndarray  # [K] final coefficients; 0 where an update did not count
    counted: np.ndarray  # bool [K]
    flags: list[Flag] = []  # noqa: RUF012 - never written to


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
    return ServerState(model, algorithm.rule.init(census), server, choice, begun)


def ranks(algorithm: Algorithm) -> bool:
    """Whether clients send places of edges, which are counted as votes."""
    return algorithm.network is not None


def one_round(
    algorithm: Algorithm,
    state: ServerState,
    signals: Signals,
    trained: Sequence[Leaves | None],
    caps: Caps | None = None,
) -> RoundResult:
    """Compute coefficients, sum the vectors and move the model. `signals` and `trained` are by slot
    [K]; None: did not return.
    """
    if "gram" in algorithm.rule.needs:
        gram = inner_products(state, trained)
        finite = np.isfinite(np.diagonal(gram))
        signals = signals._replace(
            returned=signals.returned & finite, gram=np.where(finite[:, None] & finite, gram, 0.0)
        )
    signals, weighed, flags = weigh_with_caps(algorithm, state, signals, caps)
    coefficients, factors, norms = (
        weighed.coefficients,
        np.ones(len(trained)),
        np.zeros(len(trained)),
    )
    if caps is not None and caps.norm is not None:
        # what is usual is of all, also who counts nothing
        norms = square_norms(algorithm, state, signals, np.ones(len(trained)), trained)
        finite = np.isfinite(norms)
        factors, more = caps.vectors(
            np.where(finite, norms, 0.0), signals._replace(returned=signals.returned & finite)
        )
        norms, flags = (
            np.where(coefficients.reshape(-1, len(trained)).any(0), norms, 0.0),
            flags + more,
        )
    elif "square_norm" in algorithm.rule.needs:
        norms = square_norms(algorithm, state, signals, coefficients, trained)
    usable = [own if np.isfinite(norm) else None for own, norm in zip(trained, norms, strict=True)]
    total = add_up(
        algorithm, state, signals, coefficients * factors.astype(coefficients.dtype), usable
    )
    return move(algorithm, state, signals, weighed, VectorSum(total, norms * factors**2))._replace(
        flags=flags
    )


def weigh_with_caps(
    algorithm: Algorithm, state: ServerState, signals: Signals, caps: Caps | None
) -> tuple[Signals, Weighting, list[Flag]]:
    """Coefficients within the caps, with the capped signals and flags for clients that
    were capped.
    """
    if caps is None:
        return signals, weigh(algorithm, state, signals), []
    signals, claimed = caps.signals(signals)
    weighed = weigh(algorithm, state, signals)
    coefficients, cut = caps.coefficients(weighed.coefficients, signals)
    return signals, weighed._replace(coefficients=coefficients), claimed + cut


def weigh(algorithm: Algorithm, state: ServerState, signals: Signals) -> Weighting:
    """Coefficients that the rule computes from signals."""
    coefficients, rule = _weigh(algorithm.rule, state.rule, jax.tree.map(jnp.asarray, signals))
    found = np.asarray(coefficients)
    require(
        bool(np.isfinite(found).all()),
        f"{algorithm.label}: the coefficients of this round are not finite. A loss was negative or"
        " too large for this method; check the clients' loss and their learning rate, or set"
        " caps.",
    )
    return Weighting(found, rule)


@jax.jit
def _weigh(rule: Rule, state: Tree, signals: Signals) -> tuple[jax.Array, Tree]:
    return rule.weigh(state, signals)


def add_up(
    algorithm: Algorithm,
    state: ServerState,
    signals: Signals,
    coefficients: np.ndarray,
    trained: Sequence[Leaves | None],
) -> Tree:
    """Sum of coefficient times vector. Vectors with coefficient 0 are not read."""
    rows = coefficients if coefficients.ndim == 2 else coefficients[None]
    digits = (np.floor_divide, np.remainder) if ranks(algorithm) else (None,)
    counting = [k for k, own in enumerate(trained) if own is not None and rows[:, k].any()]
    shares = [[(int(q), float(rows[q, k])) for q in np.flatnonzero(rows[:, k])] for k in counting]
    totals = []
    for digit in digits:
        leaves = []
        for i, leaf in enumerate(_one(algorithm, state.model)):
            total = np.zeros((len(rows), leaf.size), leaf.dtype)
            replies = [
                (_flat(trained[k], i), _received_model(algorithm, state, signals, k)[i].reshape(-1))
                for k in counting
            ]
            _add(total, list(zip(shares, replies, strict=True)), digit)
            leaves.append(total.reshape(coefficients.shape[:-1] + leaf.shape))
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
    coefficients: np.ndarray,
    trained: Sequence[Leaves | None],
) -> np.ndarray:
    """Squared length of each vector with a coefficient other than 0; 0 for the others. [K]"""
    norms = np.zeros(len(trained))
    for k, own in enumerate(trained):
        if own is not None and coefficients[..., k].any():
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
    algorithm: Algorithm,
    state: ServerState,
    signals: Signals,
    weighed: Weighting,
    summed: VectorSum,
) -> RoundResult:
    """Compute the change with the rule and move the model along it. A round in which no client
    counts changes nothing.
    """
    several = isinstance(algorithm.rule, Several)
    counted = summed.finite & signals.returned
    kept = np.where(counted, weighed.coefficients, np.float32(0))
    total = summed.total
    if not ranks(algorithm):
        # Clients found broken only after training: the sum is divided by the share of coefficients
        # that returned.
        share = _share_for_absent(weighed.coefficients, kept)
        kept = kept * share[..., None]
        total = total if (share == 1).all() else [_times(leaf, share) for leaf in total]
    choice = state.choice
    if choice is not None:
        choice = choice.copy()
        choice[signals.client] = signals.choice
    if not kept.any():
        return RoundResult(state._replace(choice=choice), kept.sum(0) if several else kept, counted)
    told = jax.tree.map(jnp.asarray, signals._replace(returned=counted, gram=None))
    effort = Effort(jnp.asarray(np.where(counted, summed.square_norm, 0.0), jnp.float32))
    change, rule = algorithm.rule.step(weighed.rule, told, effort, total)
    if algorithm.server is None:
        model, server = (
            [_add_change(old, new) for old, new in zip(state.model, change, strict=True)],
            state.server,
        )
    else:
        model, server = _update(algorithm.server, change, state.server, state.model)
        model = [np.asarray(leaf) for leaf in model]
    return RoundResult(
        ServerState(model, rule, server, choice, state.begun or several),
        kept.sum(0) if several else kept,
        counted,
    )


def _share_for_absent(coefficients: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Factor by which the sum is multiplied so that remaining clients stand in for all; 0 without
    any. float32 [] or [models]
    """
    mass = kept.sum(-1)
    return np.divide(coefficients.sum(-1), mass, out=np.zeros_like(mass), where=mass != 0).astype(
        np.float32
    )


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
    rule = algorithm.rule
    assert isinstance(rule, Several)
    return state.model if rule.apart else [np.asarray(leaf) for leaf in state.server]


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


def _apart(algorithm: Algorithm) -> bool:
    return isinstance(algorithm.rule, Several) and algorithm.rule.apart


def _one(algorithm: Algorithm, model: Leaves) -> Leaves:
    """Arrays of one model: the first of several."""
    return [leaf[0] for leaf in model] if _apart(algorithm) else model


def _received_model(algorithm: Algorithm, state: ServerState, signals: Signals, k: int) -> Leaves:
    """The model that the client in slot k received."""
    return (
        [leaf[int(signals.choice[k])] for leaf in state.model] if _apart(algorithm) else state.model
    )


def _flat(leaves: Leaves | None, i: int) -> np.ndarray:
    assert leaves is not None
    return leaves[i].reshape(-1)


def _times(leaf: np.ndarray, share: np.ndarray) -> np.ndarray:
    """A total times one factor, or times one factor for each model."""
    return leaf * share.reshape(*share.shape, *(1,) * (leaf.ndim - share.ndim)).astype(leaf.dtype)
