"""Comparisons made up from random counts, so that reports can be tested without training anything."""

import itertools
from collections.abc import Sequence

import numpy as np

from evenly.experiment.results import Comparison, Run
from evenly.federation import Federation, Ragged
from evenly.types import Trace

HOSTILE = "<script>window.hacked = true</script>"


def federation(
    clients: int, *, rows: Sequence[int] = (40, 10, 10), names: Sequence[str] = (), labels: Sequence[str] = ("no", "yes")
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
    """Count tables [splits, clients, 1, 2, 2] of a model that is right with each client's own chance."""
    tables = np.zeros((3, data.clients, 1, 2, 2), np.int32)
    for i, split in enumerate(("train", "valid", "test")):
        n = data.split(split).counts
        right = generator.binomial(n, chance)
        tables[i, :, 0, 0, 0], tables[i, :, 0, 0, 1] = right, n - right
    return tables


def trace(data: Federation, *, evenness: float, seed: int, evaluations: int = 4, cohort: int = 5) -> Trace:
    """Chances go from `evenness` for the first client to 0.95 for the last, and grow over the rounds."""
    generator = np.random.default_rng(seed)
    last = np.linspace(evenness, 0.95, data.clients)
    steps = np.linspace(0.2, 1, evaluations)
    rounds = 10 * (evaluations - 1)
    k = min(cohort, data.clients)
    weights = generator.random((rounds, k)).astype(np.float32)
    return Trace(
        rounds=10 * np.arange(evaluations),
        tables=np.stack([counts(data, last * step, generator) for step in steps]),
        losses=np.ones((evaluations, 3, data.clients), np.float32),
        central=np.zeros((evaluations, 1, 2, 2), np.int32),
        cohort=generator.integers(0, data.clients, (rounds, k)).astype(np.int32),
        weights=weights / weights.sum(1, keepdims=True) if rounds else weights,
        excluded=np.zeros(data.clients, np.int32),
        upload=2440.0,
        download=2440.0,
        model=(),
    )


NEEDS = {"fedavg": frozenset(), "q-fedavg": frozenset({"loss", "square_norm"}), "fedmgda": frozenset({"gram", "examples"})}


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
    return Comparison(name, data, "natural", "Softmax", runs, 10 * (evaluations - 1), command, 1.5, {"evenly": "0.1.0"})
