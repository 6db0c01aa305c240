"""Which runs can advance in one program, and how they lie side by side in it.

Runs that share clients' work can share everything heavy: batches, products, local steps. Where the model is joint (all
runs are one matrix product) they need not share anything else: rules and servers of the same structure form a band, rows
may be prepared in several ways, and where everybody takes part anyway, other samplings are a mask.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly.parts.sampling import Full
from evenly.parts.work import LocalTraining
from evenly.simulate.layout import Band, Parts
from evenly.simulate.measuring import MEASURED
from evenly.types import Algorithm, Prepare, Select, Several, Task, Work


class Company(NamedTuple):
    """Algorithms in the order in which they lie in a program."""

    algorithms: list[Algorithm]
    place: list[int]  # where each algorithm, in the order given, lies
    bands: tuple[int, ...]  # where each band starts, and the number of runs
    parts: Parts
    selects: tuple[Select, ...]
    prepares: tuple[Prepare | None, ...]


def companions(algorithms: Sequence[Algorithm], task: Task, *, join: bool | None = None) -> list[list[int]]:
    """Group algorithms (by position) that can advance in one program; samplings share it where that pays here, or as `join` says."""
    join = jax.default_backend() != "cpu" if join is None else join
    joined = _joined_samplings(algorithms) if task.joint and join else {}
    groups: dict[str, list[int]] = {}
    for i, algorithm in enumerate(algorithms):
        groups.setdefault(_key(algorithm, task, joined), []).append(i)
    return list(groups.values())


def _key(algorithm: Algorithm, task: Task, joined: dict[str, str]) -> str:
    work, select = jax.tree.structure(algorithm.work), repr(algorithm.select)
    alone = "gram" in algorithm.rule.needs or isinstance(algorithm.rule, Several) or algorithm.network is not None
    if task.joint and not alone:
        return f"{work} {joined.get(select, select)}"
    return f"{work} {select} {jax.tree.structure((algorithm.rule, algorithm.server))} {algorithm.network!r}"


def _joined_samplings(algorithms: Sequence[Algorithm]) -> dict[str, str]:
    """Samplings that may share a program, by name. A GPU waits for steps, not for runs: once everybody takes part, training
    everybody in all runs costs nothing. On a CPU each run costs, and samplings are better kept apart."""
    names = {repr(a.select): a.select for a in algorithms}
    return dict.fromkeys(names, "joined") if any(isinstance(select, Full) for select in names.values()) else {}


def gather(algorithms: Sequence[Algorithm]) -> Company:
    """Lay companions side by side: equal structures together, those that look at the rows before training last."""
    structures = [str(jax.tree.structure((a.rule, a.server))) for a in algorithms]
    seen = {s: i for i, s in reversed(list(enumerate(structures)))}
    looks = [bool(a.rule.needs & MEASURED) for a in algorithms]
    order = sorted(range(len(algorithms)), key=lambda i: (looks[seen[structures[i]]], seen[structures[i]], i))
    ordered = [algorithms[i] for i in order]
    starts = [at for at, i in enumerate(order) if at == 0 or structures[i] != structures[order[at - 1]]]
    bounds = (*starts, len(order))
    selects, select = _numbered([a.select for a in ordered])
    prepares, prepared = _numbered([a.prepare for a in ordered])
    bands = [Band(*_stacked([(a.rule, a.server) for a in ordered[bounds[b] : bounds[b + 1]]])) for b in range(len(starts))]
    parts = Parts(
        work=_stacked(_simplified([a.work for a in ordered])),
        bands=tuple(bands),
        prepared=jnp.asarray(prepared) if len(prepares) > 1 else None,
        cohort=jnp.asarray(select) if len(selects) > 1 else None,
    )
    return Company(ordered, [order.index(i) for i in range(len(order))], bounds, parts, selects, prepares)


def _simplified(works: Sequence[Work]) -> Sequence[Work]:
    """Clients' work without what does nothing in any run; as it is where some run needs it, because all share one structure."""
    simple = [work.simplified() if isinstance(work, LocalTraining) else work for work in works]
    return simple if len({str(jax.tree.structure(work)) for work in simple}) == 1 else works


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *trees)


def _numbered(values: Sequence[Any]) -> tuple[tuple[Any, ...], np.ndarray]:
    """The different values in order of appearance, and for each entry which one it is."""
    different = {repr(value): value for value in reversed(values)}
    names = list(dict.fromkeys(map(repr, values)))
    return tuple(different[name] for name in names), np.array([names.index(repr(value)) for value in values], np.int32)
