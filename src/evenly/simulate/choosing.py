"""Which of several models each client uses: set, clustered or drawn before the first round, and
later chosen by the client.

A client chooses the model that serves its own training rows best.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.data.federation import Census, Federation, Shard
from evenly.parts.client_groups import chooser, drawn_groups, rank_clustering
from evenly.parts.ranking import DIGIT, Supernetwork
from evenly.simulate.layout import Data, Inputs, ModelChoices, Shape, State, shard, unweighted
from evenly.simulate.measuring import measure
from evenly.simulate.schedule import Planner
from evenly.simulate.training import Cohort
from evenly.types import Algorithm, Array, Seeds, Several, Tree

# kinds of inference that set choices before training, not by clients
BEFORE_TRAINING = ("known", "rank-clustering")
MOST_ROWS = 128  # that a client reads to measure how certain a mixture of models is


def choose_models(
    shape: Shape, inputs: Inputs, models: Tree, clients: Array, inference: str
) -> Array:
    """The choice of each of these clients among one run's models [models, ...]; of equals the
    first. int32 [K]
    """
    if inference == "lowest-loss":
        # Models take the place of runs. The clients' rows are read one after another, in chunks.
        losses = measure(shape, inputs, models, clients, frozenset({"loss"})).loss
        assert losses is not None
        return jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses), axis=1).astype(jnp.int32)
    task = inputs.task
    assert isinstance(task, Supernetwork)  # only rankings of edges have masks that can be mixed
    masks, choose = jax.vmap(task.masks)(models), chooser(inference)
    # One client after another: each mixes all masks into a network of its own.
    return lax.map(lambda k: choose(task, masks, first_rows(inputs.data, k)), clients)


def first_rows(data: Data, client: Array) -> Shard:
    """A client's first training rows."""
    start, stop = data.train_start[client], data.train_start[client + 1]
    at = start + jnp.arange(MOST_ROWS)
    rows = data.train_rows.at[at].get(mode="clip")
    return unweighted(shard(data, jnp.where(at < stop, rows, data.y.shape[0] - 1)))


# Choices before the first round.

VOTES_AT_ONCE = 64  # clients whose votes are on the device together


def no_choices(shape: Shape) -> ModelChoices:
    """The first model for every client."""
    return ModelChoices(
        jnp.zeros((shape.clients, shape.runs), jnp.int32), jnp.zeros(shape.runs, bool)
    )


class ChoiceSetup(NamedTuple):
    """A simulation before its first round."""

    shape: Shape
    inputs: Inputs
    state: State
    federation: Federation
    seeds: Seeds


def initial_choices(setup: ChoiceSetup, algorithms: list[Algorithm]) -> ModelChoices:
    """Each client's model in every run before the first round: known, clustered by the server, or
    drawn.
    """
    rule = algorithms[0].rule
    assert isinstance(rule, Several)
    clients, runs = setup.shape.clients, setup.shape.runs
    if rule.inference == "rank-clustering":
        model = _cluster_clients(setup, algorithms)
    elif rule.inference == "known" or rule.known_votes:
        model = np.tile(np.asarray(setup.federation.client_group)[:, None], runs)
    else:
        model = np.tile(drawn_groups(clients, rule.groups, setup.seeds.cohort)[:, None], runs)
    # Clients can choose from the first round on if the models start different. Linear models all
    # start equal.
    distinct = rule.apart and any(
        bool((leaf != leaf[:, :1]).any()) for leaf in jax.tree.leaves(setup.state.model)
    )
    return ModelChoices(jnp.asarray(model, jnp.int32), jnp.full(runs, distinct))


def _cluster_clients(setup: ChoiceSetup, algorithms: list[Algorithm]) -> np.ndarray:
    """E2FL: every client trains once from the first ranking, and the server clusters the rankings
    that they send. [clients, runs]
    """
    votes = _first_votes(setup, algorithms[0])
    choices = []
    for run, algorithm in enumerate(algorithms):
        rule: Any = algorithm.rule
        own = [leaf[:, run] for leaf in votes]
        clustering = rank_clustering(
            own,
            rule.groups,
            seed=setup.seeds.cohort,
            iterations=rule.iterations,
            restarts=rule.restarts,
        )
        choices.append(clustering.choice)
    return np.stack(choices, axis=1)


def _first_votes(setup: ChoiceSetup, algorithm: Algorithm) -> list[np.ndarray]:
    """The ranks that every client gives the edges of the layers that are compared: [clients, runs,
    ...] each.
    """
    rule: Any = algorithm.rule
    pieces = []
    for start in range(0, setup.shape.clients, VOTES_AT_ONCE):
        cohort = np.minimum(np.arange(start, start + VOTES_AT_ONCE), setup.shape.clients - 1)
        planner = Planner(
            setup.federation, algorithm.work, [FixedCohort(cohort)], seeds=setup.seeds, dropout=0.0
        )
        # With the batches that a client would have in the first round.
        block = planner.block(
            0,
            1,
            rounds=1,
            steps=planner.most_steps_per_round,
            stops=np.array([1]),
            evaluate=np.array([False]),
        )
        ranks = _votes(setup.shape, setup.inputs, block, setup.state, _voters_at_once())
        pieces.append([np.asarray(leaf) for leaf in _layers_to_compare(ranks, rule.layer)])
    return [np.concatenate(leaves)[: setup.shape.clients] for leaves in zip(*pieces, strict=True)]


def _voters_at_once() -> int:
    """Clients that train side by side for their first vote."""
    return 1 if jax.default_backend() == "cpu" else 16


@partial(jax.jit, static_argnames=("shape", "side_by_side"))
def _votes(shape: Shape, inputs: Inputs, block: Any, state: State, side_by_side: int) -> Tree:
    cohort = Cohort(shape._replace(lanes=1, devices=1), inputs, block, state, jnp.int32(0))

    def one(k: Array) -> Tree:  # clients that rank edges keep no memory
        return cohort.visit(k, jax.tree.map(lambda leaf: leaf[0], state.memory), jnp.bool_(True))[0]

    ballots = lax.map(one, jnp.arange(block.cohort.shape[1]), batch_size=side_by_side)
    return jax.tree.map(lambda high, low: DIGIT * high + low, ballots.high, ballots.low)


def _layers_to_compare(ranks: Tree, layer: int) -> list[Any]:
    """All layers (0), or the one with this number, counted from 1."""
    leaves = jax.tree.leaves(ranks)
    if layer > len(leaves):
        raise ValueError(f"e2fl: layer must be 0 (all) or from 1 to {len(leaves)}, got {layer}.")
    return leaves[layer - 1 : layer] if layer else leaves


class FixedCohort:
    """A sampling that draws the same clients in every round."""

    by_size = False
    needs: frozenset[str] = frozenset()
    replace = True  # the last may be repeated to fill the slots

    def __init__(self, cohort: np.ndarray) -> None:
        self._cohort = cohort

    def slots(self, census: Census) -> int:
        return len(self._cohort)

    def init(self, census: Census) -> None:
        return None

    def __call__(self, state: None, generator: np.random.Generator) -> tuple[np.ndarray, None]:
        return self._cohort, None
