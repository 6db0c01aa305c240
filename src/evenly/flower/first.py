"""What is settled before the first round of a deployment, as `evenly.simulate.start` does for a simulation."""

from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import ArrayRecord

from evenly.data.federation import Census
from evenly.flower import wire
from evenly.flower.naming import algorithm_of
from evenly.flower.nodes import Roll
from evenly.flower.rounds import Leaves
from evenly.parts.groups import drawn_groups, rank_clustering
from evenly.records import require
from evenly.simulate import start
from evenly.simulate.choosing import GIVEN
from evenly.types import Algorithm, Rule, Seeds, Several, Task


def first_arrays(algorithm: Algorithm | Rule | str, task: Task, seeds: Seeds | None = None) -> ArrayRecord:
    """The first model, or models, that the simulator would start from: what to give to `start` as initial arrays."""
    seeds, algorithm = seeds or Seeds(), algorithm_of(algorithm)
    task, rule = algorithm.task(task, seeds), algorithm.rule
    model = start.first_model(task, rule, seeds)
    if not (isinstance(rule, Several) and rule.apart):
        return wire.to_arrays(model, dtype=np.int32 if algorithm.network is not None else None)
    names, leaves = wire.names_of(model), wire.leaves_of(model)
    return wire.merged(wire.named(names, [leaf[q] for leaf in leaves], wire.prefix_of(q)) for q in range(rule.groups))


class _Known(NamedTuple):
    """What `suited` reads of a federation."""

    clients: int
    client_group: np.ndarray | None
    counted: Census

    def census(self) -> Census:
        return self.counted


def suited(algorithm: Algorithm, roll: Roll) -> Algorithm:
    """The algorithm with its number of models, where the clients decide it; raises where the two do not fit."""
    require(
        not getattr(algorithm.rule, "people", False),
        f"{algorithm.label}: with people = true a client sends one order for each group of people in its rows, which only a simulation can "
        "do. Start a SuperNode for each of these groups, with client-group in its census, and leave people out.",
    )
    require(
        not getattr(algorithm.rule, "known_votes", False),
        f"{algorithm.label}: known_votes measures in a simulation how well clients would find their group. In a deployment either leave it "
        "and the inference out, so that groups are known, or leave it out alone, so that clients infer them.",
    )
    return start.suited(algorithm, cast(Any, _Known(roll.clients, roll.client_group, roll.census)))


def given_choices(algorithm: Algorithm, roll: Roll, seeds: Seeds) -> np.ndarray | None:
    """Each client's model before the first round: known, or drawn where clients cannot tell the models apart yet."""
    rule = algorithm.rule
    if not isinstance(rule, Several):
        return None
    if rule.inference == "known":
        return np.asarray(roll.client_group, np.int32)
    return drawn_groups(roll.clients, rule.groups, seeds.cohort)


def clustered(algorithm: Algorithm, places: dict[int, Leaves], drawn: np.ndarray, seeds: Seeds) -> np.ndarray:
    """E2FL's rank clustering of what every client sent once; who did not answer keeps the group that was drawn."""
    rule: Any = algorithm.rule
    who = sorted(places)
    count = len(places[who[0]])
    if rule.layer > count:
        raise ValueError(f"{algorithm.label}: layer must be 0 (all) or from 1 to {count}, got {rule.layer}.")
    layers = range(count) if not rule.layer else [rule.layer - 1]
    votes = [np.stack([places[k][i].astype(np.float32) for k in who]) for i in layers]
    found = rank_clustering(votes, rule.groups, seed=seeds.cohort, iterations=rule.iterations, restarts=rule.restarts)
    choice = drawn.copy()
    choice[who] = found.choice
    return choice


def tell_apart(algorithm: Algorithm, model: Leaves) -> bool:
    """Whether several first models differ, so that clients can choose from the first round on."""
    rule = algorithm.rule
    return isinstance(rule, Several) and rule.apart and any(bool((leaf != leaf[:1]).any()) for leaf in model)


def clients_choose(algorithm: Algorithm, begun: bool) -> bool:
    """Whether clients choose their model themselves in this round; else they are told."""
    rule = algorithm.rule
    return isinstance(rule, Several) and rule.inference not in GIVEN and begun
