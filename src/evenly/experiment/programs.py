"""The programs of a plan: which runs are trained together, and under which names a store keeps them."""

from collections.abc import Iterator
from typing import NamedTuple

from evenly.experiment.plan import Plan
from evenly.simulate import companions
from evenly.types import Algorithm, Task


class Program(NamedTuple):
    """Runs of one seed that are trained together and kept together: finished, they are one file of traces."""

    seed: int
    members: tuple[int, ...]  # places in the plan's list of members
    keys: tuple[str, ...]  # a name for each in the store


def members_of(plan: Plan) -> list[Algorithm]:
    """Every model that is trained on a seed; some methods are made of several."""
    return [member for variant in plan.variants() for member in variant.members]


def programs(plan: Plan, task: Task) -> Iterator[Program]:
    """Seed by seed, in the order in which they are trained."""
    members = members_of(plan)
    groups = companions(members, task)
    for seed in plan.seeds:
        for group in groups:
            yield Program(seed, tuple(group), tuple(f"{members[i].label}#{i}#{seed}" for i in group))
