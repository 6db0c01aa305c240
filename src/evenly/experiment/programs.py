"""The programs of a plan: which runs are trained together, and under which names a store keeps them.

A folder keeps who is together from when its training began. Other machines would group otherwise (a GPU joins samplings that a CPU
keeps apart), and would neither find what is finished nor go on to the same bits.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from evenly.experiment.plan import Plan
from evenly.outside import fits, plain_json
from evenly.simulate import companions
from evenly.types import Algorithm, Task
from evenly.writing import write_whole

NAME = "programs.json"


class Program(NamedTuple):
    """Runs of one seed that are trained together and kept together: finished, they are one file of traces."""

    seed: int
    members: tuple[int, ...]  # places in the plan's list of members
    keys: tuple[str, ...]  # a name for each in the store


def members_of(plan: Plan) -> list[Algorithm]:
    """Every model that is trained on a seed; some methods are made of several."""
    return [member for variant in plan.variants() for member in variant.members]


def programs(plan: Plan, task: Task, folder: Path | None = None) -> Iterator[Program]:
    """Seed by seed, in the order in which they are trained: as the folder keeps them, or as suits this machine."""
    members = members_of(plan)
    groups = _kept(folder, len(members)) or companions(members, task)
    for seed in plan.seeds:
        for group in groups:
            yield Program(seed, tuple(group), tuple(f"{members[i].label}#{i}#{seed}" for i in group))


def keep(every: Sequence[Program], folder: Path) -> None:
    """Write down who is together, before any of them is trained."""
    path = folder / NAME
    if not path.exists():
        groups = dict.fromkeys(program.members for program in every)
        write_whole(path, lambda file: file.write(json.dumps(list(groups)).encode()))


def _kept(folder: Path | None, members: int) -> list[list[int]] | None:
    path = folder / NAME if folder else None
    if path is None or not path.exists():
        return None
    try:
        groups = plain_json(path.read_text())
        if fits(groups, list[list[int]]) and sorted(i for group in groups for i in group) == list(range(members)):
            return groups
    except ValueError:
        pass
    raise ValueError(f"{str(path)!r} is damaged. Remove it; programs are then put together as suits this machine.")
