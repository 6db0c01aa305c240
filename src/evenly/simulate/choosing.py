"""Which of several models each client uses: set, clustered or drawn before the first round, and
later chosen by the client; and evaluations of clients with their own models.

A client chooses the model that serves its own training rows best. There are two kinds of rules:
clients train the model that they chose (`apart`), or all clients train one shared model and vote on
several models, which the server holds.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.data.federation import Census, Federation, Shard
from evenly.parts.client_groups import chooser, drawn_groups, membership, rank_clustering
from evenly.parts.ranking import DIGIT, MOST_BALLOTS, Supernetwork
from evenly.records import replace
from evenly.simulate.layout import (
    Data,
    Inputs,
    ModelChoices,
    RunParts,
    Shape,
    State,
    device_loop,
    shard,
    unweighted,
)
from evenly.simulate.measuring import Counts, by_cell, count_rows, measure, zero_counts
from evenly.simulate.schedule import Planner
from evenly.simulate.training import Cohort
from evenly.types import Algorithm, Array, Rule, Seeds, Server, Task, Tree

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


def choices_of_cohort(cohort: Cohort) -> Array:
    """The model of each client of a round. int32 [K, runs]"""
    clients, state = cohort.block.cohort[cohort.t], cohort.state
    if cohort.inputs.parts.rules[0].rule.known_votes:
        return state.choices.model[clients]
    return _choices(cohort.shape, cohort.inputs, state, clients)


def new_choices(cohort: Cohort, choice: Array, anyone: Array) -> ModelChoices:
    """The choices after a round. Models differ as soon as anyone's update counted."""
    choices, clients = cohort.state.choices, cohort.block.cohort[cohort.t]
    return ModelChoices(choices.model.at[clients].set(choice), choices.distinct | anyone)


def model_choices(parts: RunParts, state: State) -> Tree:
    """The models among which clients choose. [runs, models, ...]"""
    return state.model if parts.rules[0].rule.apart else state.server[0]


def served_models(parts: RunParts, state: State) -> Tree:
    """The models that clients use. [runs, models, ...]"""
    (group,) = parts.rules  # a rule with several models shares its program with no other structure
    return (
        state.model
        if group.server is None
        else jax.vmap(_serve)(group.server, state.model, state.server[0])
    )


def _serve(server: Server, model: Tree, state: Tree) -> Tree:
    return server.serve(model, state)


def _choices(shape: Shape, inputs: Inputs, state: State, clients: Array) -> Array:
    """The model of each of these clients: set before training, or chosen once the models differ.
    int32 [K, runs]
    """
    rule = inputs.parts.rules[0].rule
    last = state.choices.model[clients]
    if rule.inference in BEFORE_TRAINING:
        return last
    choose = lambda models: choose_models(shape, inputs, models, clients, rule.inference)  # noqa: E731
    choice = lax.map(choose, model_choices(inputs.parts, state)).T
    return choice if rule.known_votes else jnp.where(state.choices.distinct, choice, last)


def evaluate_several(shape: Shape, inputs: Inputs, state: State) -> tuple[Array, Array, Array]:
    """Tables and summed losses by owner, each client with its own model, and the choice of that
    model. [clients, runs]

    The central test set is evaluated with the shared model, or with the model that most clients
    chose where there is none.
    """
    rule = inputs.parts.rules[0].rule
    choice = _choices(shape, inputs, state, jnp.arange(shape.clients))
    models = served_models(inputs.parts, state)
    most = jax.vmap(lambda own: jnp.argmax(jnp.bincount(own, length=shape.models)), 1)(choice)
    shared = (
        jax.vmap(lambda own, q: jax.tree.map(lambda leaf: leaf[q], own))(models, most)
        if rule.apart
        else state.model
    )
    every = jax.tree.map(lambda own, one: jnp.concatenate([own, one[:, None]], 1), models, shared)
    tables, losses = lax.map(lambda run: _evaluate_run(shape, inputs, *run), (every, choice.T))
    return jnp.moveaxis(tables, 0, -1), losses.T, choice


def _evaluate_run(shape: Shape, inputs: Inputs, models: Tree, choice: Array) -> Counts:
    """Read each list of rows once for each model that one of its owners uses; these owners share
    the counts.
    """
    data = inputs.data
    # the model of each owner: the shared one comes last
    owner = jnp.append(jnp.tile(choice, 3), shape.models)
    of_list = jnp.arange(shape.owners) if data.eval_shared is None else data.eval_shared
    lengths = jnp.diff(data.eval_start)
    last = data.eval_rows.shape[0] - 1

    def one_model(q: Array, carry: Counts) -> Counts:
        model = jax.tree.map(lambda leaf: leaf[q][None], models)
        mine = owner == q
        wanted = jnp.where(jnp.zeros(shape.lists, bool).at[of_list].max(mine), lengths, 0)
        ends = jnp.cumsum(wanted)

        def chunk(i: Array, counts: Counts) -> Counts:
            at = i * shape.eval_chunk + jnp.arange(shape.eval_chunk)
            number = jnp.searchsorted(ends, at, side="right")  # past the last list: padding
            own = jnp.minimum(number, shape.lists - 1)
            row = data.eval_rows[
                jnp.minimum(data.eval_start[own] + at - (ends - wanted)[own], last)
            ]
            rows = jnp.where(at < ends[-1], row, data.y.shape[0] - 1)
            return count_rows(shape, inputs, model, (rows, number), counts)

        chunks = (ends[-1] + shape.eval_chunk - 1) // shape.eval_chunk
        tables, losses = by_cell(
            shape, device_loop(shape, chunks, chunk, zero_counts(shape, shape.lists, 1))
        )
        before, sums = carry
        return jnp.where(mine[:, None, None, None], tables[of_list, ..., 0], before), jnp.where(
            mine, losses[of_list, 0], sums
        )

    tables, losses = by_cell(shape, zero_counts(shape, shape.owners, 1))
    return lax.fori_loop(0, shape.models + 1, one_model, (tables[..., 0], losses[..., 0]))


# The number of models of an algorithm, where the clients decide it.


def fit_to_data(algorithm: Algorithm, census: Census, client_group: np.ndarray | None) -> Algorithm:
    """The algorithm with its number of models, where the clients decide it.

    Args:
        algorithm: The algorithm to fit.
        census: Counts of the clients' rows.
        client_group: Group of each client, if whole clients belong to groups.

    Raises:
        ValueError: If algorithm and clients do not fit, for example because groups of clients are
            not known.
    """
    clients = len(census.examples)
    if algorithm.network is not None:
        _check_ballots(algorithm, census)
    rule = algorithm.rule
    if rule.groups is None:
        return algorithm
    known = rule.inference == "known" or rule.known_votes
    if known and client_group is None:
        raise ValueError(
            f"{algorithm.label}: the data do not say which group each client belongs to"
            " (client_group). Give it, or let groups be inferred, such as"
            " e2fl(inference=lowest-loss, groups=2)."
        )
    groups = rule.groups or (0 if client_group is None else int(client_group.max()) + 1)
    if not groups:
        raise ValueError(
            f"{algorithm.label}: set the number of groups, such as groups=2; the data do not"
            " define it."
        )
    if groups > clients:
        raise ValueError(
            f"{algorithm.label}: {groups} groups need at least as many clients, but there are"
            f" {clients}."
        )
    if known:
        _check_membership(algorithm.label, client_group, groups)
    if rule.groups:
        return algorithm
    server = algorithm.server
    return replace(
        algorithm,
        rule=replace(rule, groups=groups),
        server=server and replace(server, groups=groups),
    )


def _check_membership(label: str, client_group: np.ndarray | None, groups: int) -> None:
    try:
        membership(client_group, groups)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None


def _check_ballots(algorithm: Algorithm, census: Census) -> None:
    everyone = algorithm.rule.final_pass
    slots = len(census.examples) if everyone else algorithm.select.slots(census)
    if slots > MOST_BALLOTS:
        raise ValueError(
            f"{algorithm.label}: at most {MOST_BALLOTS} clients can vote in a round, got {slots}."
            " Sample fewer."
        )


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
    assert rule.groups is not None
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
        return cohort.visit(
            k, jax.tree.map(lambda leaf: leaf[0], state.memory.work), jnp.bool_(True)
        )[0]

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


def initial_model(task: Task, rule: Rule, seeds: Seeds) -> Tree:
    """The initial model. Where clients train several models apart, as many different ones; the
    first is the usual initial model.
    """
    key = jax.random.key(seeds.model)
    if not rule.apart:
        return task.init(key)
    others = [jax.random.fold_in(key, q) for q in range(1, rule.groups or 0)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(task.init(k) for k in (key, *others)))
