"""What is settled before the first round: the first models, and whose model is whose where a run keeps several."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from evenly.data.federation import Census, Federation
from evenly.parts.groups import drawn_groups, membership, rank_clustering
from evenly.parts.ranking import DIGIT, MOST_BALLOTS
from evenly.records import replace
from evenly.simulate.layout import Chosen, Data, RunParts, Shape, State
from evenly.simulate.schedule import Planner
from evenly.simulate.training import Cohort
from evenly.types import Algorithm, Array, Rule, Seeds, Several, Task, Tree

VOTES_AT_ONCE = 64  # clients whose votes are on the device together


def suited(algorithm: Algorithm, federation: Federation) -> Algorithm:
    """The algorithm with its number of models, where the federation decides it; raises where the two do not fit."""
    if algorithm.network is not None:
        _check_ballots(algorithm, federation)
    rule = algorithm.rule
    if not isinstance(rule, Several):
        return algorithm
    given = federation.client_group
    known = rule.inference == "known" or rule.known_votes
    if known and given is None:
        raise ValueError(
            f"{algorithm.label}: the data do not say which group each client belongs to (client_group). "
            "Give it, or let groups be inferred, such as e2fl(inference=lowest-loss, groups=2)."
        )
    groups = rule.groups or (0 if given is None else int(given.max()) + 1)
    if not groups:
        raise ValueError(f"{algorithm.label}: say how many groups there are, such as groups=2; the data do not.")
    if groups > federation.clients:
        raise ValueError(f"{algorithm.label}: {groups} groups need at least as many clients, but there are {federation.clients}.")
    if known:
        _check_membership(algorithm.label, given, groups)
    if rule.groups:
        return algorithm
    server = algorithm.server
    return replace(algorithm, rule=replace(rule, groups=groups), server=server and replace(server, groups=groups))


def refuse_without_validation(algorithm: Algorithm, federation: Federation) -> None:
    """Raise if clients are to measure on validation rows and nobody has any."""
    if "valid_table" in algorithm.rule.needs and not len(federation.valid.rows):
        raise ValueError(
            f"{algorithm.label}: clients measure on validation rows, but {federation.name or 'the data'} hold none out. "
            "Hold some out, or leave measured_on out to measure on training rows."
        )


def _check_membership(label: str, given: np.ndarray | None, groups: int) -> None:
    try:
        membership(given, groups)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None


def _check_ballots(algorithm: Algorithm, federation: Federation) -> None:
    rule = algorithm.rule
    everyone = isinstance(rule, Several) and rule.final_pass
    slots = federation.clients if everyone else algorithm.select.slots(federation.census())
    if slots > MOST_BALLOTS:
        raise ValueError(f"{algorithm.label}: at most {MOST_BALLOTS} clients can vote in a round, got {slots}. Sample fewer.")


def first_model(task: Task, rule: Rule, seeds: Seeds) -> Tree:
    """One first model; or, where clients train several apart, as many different ones, of which the first is the usual."""
    key = jax.random.key(seeds.model)
    if not (isinstance(rule, Several) and rule.apart):
        return task.init(key)
    others = [jax.random.fold_in(key, q) for q in range(1, rule.groups)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(task.init(k) for k in (key, *others)))


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
