"""Which of several models each client uses: set, clustered or drawn before the first round, and later chosen by the client.

A client chooses the model that serves its own training rows best.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.data.federation import Census, Federation, Shard
from evenly.parts.groups import chooser, drawn_groups, rank_clustering
from evenly.parts.ranking import DIGIT, Supernetwork
from evenly.simulate.layout import Chosen, Data, RunParts, Shape, State, plain, shard
from evenly.simulate.measuring import measured
from evenly.simulate.schedule import Planner
from evenly.simulate.training import Cohort
from evenly.types import Algorithm, Array, Seeds, Several, Task, Tree

GIVEN = ("known", "rank-clustering")  # choices that are made before training, and not by clients
MOST_ROWS = 128  # that a client looks at to tell how sure a mixture of models is


def chosen(task: Task, shape: Shape, data: Data, models: Tree, who: Array, inference: str) -> Array:
    """The choice of each of these clients among one run's models [models, ...]; of equals the first. int32 [K]"""
    if inference == "lowest-loss":
        # Models lie where runs usually do. Read with the clients' rows end to end, in chunks.
        losses = measured(task, shape, data, models, who, frozenset({"loss"})).loss
        assert losses is not None
        return jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses), axis=1).astype(jnp.int32)
    assert isinstance(task, Supernetwork)  # only orders of edges have masks to be mixed
    masks, choose = jax.vmap(task.masks)(models), chooser(inference)
    # One client after another: each mixes all masks into a network of its own.
    return lax.map(lambda k: choose(task, masks, first_rows(data, k)), who)


def first_rows(data: Data, client: Array) -> Shard:
    """A client's first training rows."""
    start, stop = data.train_start[client], data.train_start[client + 1]
    at = start + jnp.arange(MOST_ROWS)
    rows = data.train_rows[jnp.minimum(at, data.train_rows.shape[0] - 1)]
    return plain(shard(data, jnp.where(at < stop, rows, data.y.shape[0] - 1)))


# Choices before the first round.

VOTES_AT_ONCE = 64  # clients whose votes are on the device together


def nothing_chosen(shape: Shape) -> Chosen:
    return Chosen(jnp.zeros((shape.clients, shape.runs), jnp.int32), jnp.zeros(shape.runs, bool))


class Opening(NamedTuple):
    """A simulation that is about to begin."""

    task: Task
    shape: Shape
    parts: RunParts
    data: Data
    state: State
    federation: Federation
    seeds: Seeds


def first_choices(opening: Opening, algorithms: list[Algorithm]) -> Chosen:
    """Each client's model in every run before the first round: given, found by clustering, or drawn."""
    rule = algorithms[0].rule
    assert isinstance(rule, Several)
    clients, runs = opening.shape.clients, opening.shape.runs
    if rule.inference == "rank-clustering":
        model = _clustered(opening, algorithms)
    elif rule.inference == "known" or rule.known_votes:
        model = np.tile(np.asarray(opening.federation.client_group)[:, None], runs)
    else:
        model = np.tile(drawn_groups(clients, rule.groups, opening.seeds.cohort)[:, None], runs)
    # Models that start different can be told apart from the first round on; those that start equal, as linear ones do, cannot.
    differ = rule.apart and any(bool((leaf != leaf[:, :1]).any()) for leaf in jax.tree.leaves(opening.state.model))
    return Chosen(jnp.asarray(model, jnp.int32), jnp.full(runs, differ))


def _clustered(opening: Opening, algorithms: list[Algorithm]) -> np.ndarray:
    """E2FL: every client trains once from the first order, and the server clusters what they send. [clients, runs]"""
    votes = _first_votes(opening, algorithms[0])
    found = []
    for run, algorithm in enumerate(algorithms):
        rule: Any = algorithm.rule
        own = [leaf[:, run] for leaf in votes]
        clustering = rank_clustering(own, rule.groups, seed=opening.seeds.cohort, iterations=rule.iterations, restarts=rule.restarts)
        found.append(clustering.choice)
    return np.stack(found, axis=1)


def _first_votes(opening: Opening, algorithm: Algorithm) -> list[np.ndarray]:
    """The places that every client gives the edges of the layers that are compared: [clients, runs, ...] each."""
    rule: Any = algorithm.rule
    pieces = []
    for start in range(0, opening.shape.clients, VOTES_AT_ONCE):
        who = np.minimum(np.arange(start, start + VOTES_AT_ONCE), opening.shape.clients - 1)
        planner = Planner(opening.federation, algorithm.work, [_These(who)], seeds=opening.seeds, dropout=0.0)
        # With the batches that a client would have in the first round.
        block = planner.block(0, 1, rounds=1, steps=planner.most_steps_per_round, stops=np.array([1]), evaluate=np.array([False]))
        places = _votes(opening.task, opening.shape, opening.parts, opening.data, block, opening.state, _voters_at_once())
        pieces.append([np.asarray(leaf) for leaf in _compared(places, rule.layer)])
    return [np.concatenate(leaves)[: opening.shape.clients] for leaves in zip(*pieces, strict=True)]


def _voters_at_once() -> int:
    """Clients that train side by side for their first vote."""
    return 1 if jax.default_backend() == "cpu" else 16


@partial(jax.jit, static_argnames=("shape", "side_by_side"))
def _votes(task: Task, shape: Shape, parts: RunParts, data: Data, block: Any, state: State, side_by_side: int) -> Tree:
    cohort = Cohort(task, shape._replace(lanes=1, devices=1), parts, data, block, state, jnp.int32(0))

    def one(k: Array) -> Tree:  # clients that rank edges keep no memory
        return cohort.visit(k, jax.tree.map(lambda leaf: leaf[0], state.memory), jnp.bool_(True))[0]

    ballots = lax.map(one, jnp.arange(block.cohort.shape[1]), batch_size=side_by_side)
    return jax.tree.map(lambda high, low: DIGIT * high + low, ballots.high, ballots.low)


def _compared(places: Tree, layer: int) -> list[Any]:
    """All layers, or the one with this number, counted from 1."""
    leaves = jax.tree.leaves(places)
    if layer > len(leaves):
        raise ValueError(f"e2fl: layer must be 0 (all) or from 1 to {len(leaves)}, got {layer}.")
    return leaves[layer - 1 : layer] if layer else leaves


class _These:
    """Clients with these numbers take part."""

    by_size = False
    needs: frozenset[str] = frozenset()
    replace = True  # the last may be repeated to fill the slots

    def __init__(self, who: np.ndarray) -> None:
        self._who = who

    def slots(self, census: Census) -> int:
        return len(self._who)

    def init(self, census: Census) -> None:
        return None

    def __call__(self, state: None, generator: np.random.Generator) -> tuple[np.ndarray, None]:
        return self._who, None
