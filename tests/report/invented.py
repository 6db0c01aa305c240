"""Comparisons made up from random counts, so that reports can be tested without training
anything.
"""

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from evenly.data.federation import Federation
from evenly.data.sensitive import Attribute
from evenly.data.splits import Ragged
from evenly.experiment.comparison import Comparison, Run
from evenly.records import replace
from evenly.types import Trace

HOSTILE = "<script>window.hacked = true</script>"


def specs(page: str) -> dict[str, Any]:
    """The charts' specifications that a page holds."""
    found = re.search(
        r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL
    )
    assert found is not None
    return json.loads(found[1])["specs"]


def unbroken(page: str) -> str:
    """A page without the marks of where notation may break and where it may not."""
    return re.sub(r'<span class="nowrap">([^<]*)</span>', r"\1", page.replace("<wbr>", ""))


def federation(
    clients: int,
    *,
    rows: Sequence[int] = (40, 10, 10),
    names: Sequence[str] = (),
    labels: Sequence[str] = ("no", "yes"),
) -> Federation:
    """Client k has up to twice as many rows as the first; a split with 0 rows has none anywhere."""
    sizes = [[int(n * (1 + k / clients)) for k in range(clients)] for n in rows]
    ends = np.cumsum([sum(s) for s in sizes])
    parts = []
    for size, end in zip(sizes, ends, strict=True):
        cuts = (end - sum(size) + np.concatenate([[0], np.cumsum(size)])).astype(int)
        parts.append(Ragged.from_lists([np.arange(a, b) for a, b in itertools.pairwise(cuts)]))
    total = int(ends[-1])
    return Federation(
        x=np.zeros((total, 1), np.float32),
        y=np.zeros(total, np.int32),
        group=np.zeros(total, np.int32),
        train=parts[0],
        valid=parts[1],
        test=parts[2],
        central=np.zeros(0, np.int32),
        name="invented",
        names=tuple(names) or tuple(f"client {k}" for k in range(clients)),
        labels=tuple(labels),
    )


def counts(data: Federation, chance: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Count tables [splits, clients, 1, 2, 2] of a model that is right with each client's own
    chance.
    """
    tables = np.zeros((3, data.clients, 1, 2, 2), np.int32)
    for i, split in enumerate(("train", "valid", "test")):
        n = data.split(split).counts
        right = generator.binomial(n, chance)
        tables[i, :, 0, 0, 0], tables[i, :, 0, 0, 1] = right, n - right
    return tables


def trace(
    data: Federation, *, evenness: float, seed: int, evaluations: int = 4, cohort: int = 5
) -> Trace:
    """Chances go from `evenness` for the first client to 0.95 for the last, and grow over the
    rounds.
    """
    generator = np.random.default_rng(seed)
    last = np.linspace(evenness, 0.95, data.clients)
    steps = np.linspace(0.2, 1, evaluations)
    rounds = 10 * (evaluations - 1)
    k = min(cohort, data.clients)
    weights = generator.random((rounds, k)).astype(np.float32)
    return Trace(
        rounds=10 * np.arange(evaluations),
        tables=np.stack([counts(data, last * step, generator) for step in steps]),
        losses=np.tile(np.linspace(1.5, 0.2, data.clients, dtype=np.float32), (evaluations, 3, 1)),
        central=np.zeros((evaluations, 1, 2, 2), np.int32),
        cohort=generator.integers(0, data.clients, (rounds, k)).astype(np.int32),
        weights=weights / weights.sum(1, keepdims=True) if rounds else weights,
        excluded=np.zeros(data.clients, np.int32),
        upload=2440.0,
        download=2440.0,
        model=(),
    )


NEEDS = {
    "fedavg": frozenset(),
    "q-fedavg": frozenset({"loss", "square_norm"}),
    "fedmgda": frozenset({"gram", "examples"}),
}


def comparison(
    labels: Sequence[str] = ("fedavg", "q-fedavg(q=1)"),
    *,
    data: Federation | None = None,
    seeds: int = 3,
    evaluations: int = 4,
    name: str = "invented",
    command: str = "evenly compare --rounds 30",
) -> Comparison:
    """Every method is more even than the one before it."""
    data = data or federation(20)
    runs = [
        Run(
            label,
            label.partition("(")[0].partition("+")[0],
            {},
            seed,
            trace(data, evenness=0.1 + 0.6 * i / len(labels), seed=seed, evaluations=evaluations),
            NEEDS.get(label.partition("(")[0]),
        )
        for i, label in enumerate(labels)
        for seed in range(seeds)
    ]
    return Comparison(
        name,
        data,
        "natural",
        "Softmax",
        runs,
        10 * (evaluations - 1),
        command,
        1.5,
        {"evenly": "0.1.0"},
    )


SEX, RACE = ("Female", "Male"), ("Black", "White", "Other")


def with_groups(found: Comparison, *, central: int = 0, differ: bool = False) -> Comparison:
    """The same clients with people of six intersections; women are found less often, and the last
    race is rare.

    Nobody of the very last group has the favourable label, so its true positive rate is undefined.
    Where methods differ, each finds women more often, and is less accurate, than the one before it.
    """
    share = np.outer([0.4, 0.6], [0.3, 0.68, 0.02]).ravel()
    attributes = (
        Attribute("sex", SEX, (0, 0, 0, 1, 1, 1), 0),
        Attribute("race", RACE, (0, 1, 2, 0, 1, 2), 0),
    )
    names = tuple(f"sex={s}, race={r}" for s in SEX for r in RACE)
    data = replace(
        found.federation,
        groups=names,
        attributes=attributes,
        unprivileged=(0, 1, 2),
        central=np.arange(central, dtype=np.int32),
    )
    order = {label: i / max(1, len(found.labels) - 1) for i, label in enumerate(found.labels)}
    runs = [
        run._replace(trace=_by_people(run, share, central, order[run.label] if differ else 0.0))
        for run in found.runs
    ]
    return found._replace(federation=data, runs=runs)


def _by_people(run: Run, share: np.ndarray, central: int, place: float) -> Trace:
    generator = np.random.default_rng(run.seed)
    rows = run.trace.tables.sum((-3, -2, -1))
    hit = np.where(np.arange(6) < 3, 0.6 + 0.15 * place, 0.8 - 0.2 * place**2)
    chances = np.zeros((6, 2, 2))
    chances[:, 0] = 0.6 * np.array([0.75, 0.25])
    chances[:, 1] = 0.4 * np.stack([1 - hit, hit], axis=-1)
    chances[5] = [[0.8, 0.2], [0, 0]]
    cells = (share[:, None, None] * chances).ravel()
    counted = generator.multinomial(rows, cells).reshape(*rows.shape, 6, 2, 2)
    whole = generator.multinomial(np.full(len(rows), central), cells).reshape(len(rows), 6, 2, 2)
    return run.trace._replace(tables=counted.astype(np.int32), central=whole.astype(np.int32))
