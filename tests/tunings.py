"""Searches without training: a made-up landscape over q and the learning rate, seen through count
tables like real ones.
"""

from math import log10
from pathlib import Path

import numpy as np

from evenly.datasets.load import load
from evenly.experiment import tuning
from evenly.experiment.comparison import Comparison, Run
from evenly.experiment.plan import Plan
from evenly.types import Trace

ROWS = 10_000  # of each client in each split
DATA = {"name": "synthetic", "clients": 2}


def accuracies(settings: dict[str, float], seed: int) -> tuple[float, float]:
    """Of the well-served and the badly served client: larger q brings them together and costs
    accuracy, a far-off rate costs both.
    """
    q, rate = float(settings.get("q", 0)), float(settings.get("learning_rate", 0.1))
    even = q / (1 + q)
    mean = 0.8 - 0.04 * even**2 - 0.05 * abs(log10(rate) + 1) + 0.002 * seed
    return mean + 0.15 * (1 - even), mean - 0.15 * (1 - even)


def trace(settings: dict[str, float], seed: int, *, hidden: bool) -> Trace:
    """The counts of a model with these accuracies; its test rows are there only where they are not
    hidden.
    """
    tables = np.zeros((1, 3, 2, 1, 2, 2), np.int32)
    for split in (0, 1) if hidden else (0, 1, 2):
        for client, accuracy in enumerate(accuracies(settings, seed)):
            right = round(accuracy * ROWS)
            tables[0, split, client, 0, 0] = right, ROWS - right
    return Trace(
        rounds=np.array([10]),
        tables=tables,
        losses=np.tile(np.linspace(0.5, 1, 2, dtype=np.float32), (1, 3, 1)),
        central=np.zeros((1, 1, 2, 2), np.int32),
        cohort=np.tile(np.arange(2, dtype=np.int32), (10, 1)),
        weights=np.full((10, 2), 0.5, np.float32),
        excluded=np.zeros(2, np.int32),
        upload=100.0,
        download=100.0,
        model=(),
    )


class Trainer:
    """Stands in for `execute`: remembers every plan it is given, and can be stopped before one of
    them.
    """

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.stop_before = -1

    def __call__(self, plan: Plan, store: object = None, **_: object) -> Comparison:
        if len(self.plans) == self.stop_before:
            raise KeyboardInterrupt
        self.plans.append(plan)
        hidden = bool(plan.data.get("hide_test"))
        runs = [
            Run(
                v.label,
                v.method.name,
                v.settings,
                seed,
                trace(v.settings, seed, hidden=hidden),
                v.members[0].needs,
            )
            for v in plan.variants()
            for seed in plan.seeds
        ]
        return Comparison(
            plan.name,
            load(plan.data, 0),
            "natural",
            "Softmax",
            runs,
            plan.rounds,
            "",
            0.1,
            {"evenly": "0.1.0"},
        )

    @property
    def batches(self) -> list[Plan]:
        return [plan for plan in self.plans if plan.data.get("hide_test")]

    @property
    def trained(self) -> list[str]:
        """What was trained in batches, one entry for each time."""
        return [label for plan in self.batches for label in plan.methods]


def searched(
    monkeypatch, method: str, out: Path | None = None, **options
) -> tuple[tuning.Tuning, Trainer]:
    """A search on the made-up landscape."""
    trainer = Trainer()
    monkeypatch.setattr(tuning, "execute", trainer)
    return tuning.tune(method, data=DATA, rounds=10, out=out, **options), trainer
