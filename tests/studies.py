"""Studies made up from counts, so that choices, findings and reports can be tested without training
anything.
"""

from collections.abc import Sequence

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.experiment.comparison import Comparison, Run
from evenly.experiment.plan import Plan
from evenly.experiment.study import Study, StudyPlan, add_sweep, choose
from evenly.types import Trace

RATES = (0.1, 0.01)
METHODS = (
    "fedavg+full",
    "fedavg+parity(p=0.5, share=0.7)",
    "fedavg+reweigh+full",
    "fedcvg(alpha=0.0001)+full",
    "fedcvg(alpha=0.01)+full",
    "fedcvg-ratio(memory=0.5)+full",
    "fedcvg-ratio(memory=0.9)+full",
    "fedcvg-ratio(memory=0.5)+reweigh+full",
    "fedcvg-ratio(memory=0.9)+reweigh+full",
)


def people(accuracy: float, eod: float, rows: int = 1000) -> np.ndarray:
    """Counts [2, 2, 2] of a model with this accuracy for either side and this gap in true positive
    rates (unprivileged lower).
    """
    hit = np.array([accuracy - eod, accuracy])
    table = np.zeros((2, 2, 2))
    table[:, 1, 1], table[:, 1, 0] = hit, 1 - hit
    table[:, 0, 0], table[:, 0, 1] = accuracy, 1 - accuracy
    return np.round(rows * table).astype(np.int32)


def trace(
    central: np.ndarray,
    valid: np.ndarray,
    weights: Sequence[float] = (0.5, 0.5),
    *,
    rounds: int = 3,
) -> Trace:
    """Two clients: the first has 20 unprivileged people of 100 in training, the second 60 of 200;
    validation rows are the first's.
    """
    tables = np.zeros((1, 3, 2, 2, 2, 2), np.int32)
    tables[0, 0, :, :, 0, 0] = [[20, 80], [60, 140]]
    tables[0, 1, 0] = valid
    return Trace(
        rounds=np.array([rounds]),
        tables=tables,
        losses=np.ones((1, 3, 2), np.float32),
        central=central[None],
        cohort=np.tile(np.arange(2), (rounds, 1)),
        weights=np.tile(np.array(weights, np.float32), (rounds, 1)),
        excluded=np.zeros(2, np.int32),
        upload=1.0,
        download=1.0,
        model=(np.zeros(2, np.float32),),
    )


def federation() -> Federation:
    """Two clients, two groups; the first group is unprivileged."""
    parts = [Ragged.from_lists([np.arange(2), np.arange(2, 4)])] * 3
    return Federation(
        x=np.zeros((5, 1), np.float32),
        y=np.zeros(5, np.int32),
        group=np.zeros(5, np.int32),
        train=parts[0],
        valid=parts[1],
        test=parts[2],
        central=np.array([4], np.int32),
        name="invented people",
        names=("a", "b"),
        labels=("no", "yes"),
        groups=("women", "men"),
        favourable=1,
        unprivileged=(0,),
    )


def comparison(runs: list[Run]) -> Comparison:
    return Comparison(
        "invented",
        federation(),
        "natural",
        "Logistic",
        runs,
        3,
        "evenly reproduce invented",
        1.0,
        {"evenly": "0.1.0"},
    )


def study(
    methods: Sequence[str] = METHODS,
    alphas: Sequence[float] = (0.1, 5000),
    seeds: Sequence[int] = (1, 2, 3),
    data: str = "adult-sex",
    name: str = "thesis/adult-dirichlet",
) -> Study:
    """Reweighing takes 0.1 off the gap; FedCvg-Ratio's memory does nothing; all else is noise of
    the seed.
    """
    plans = {
        f"{alpha:g}": Plan(
            name=name,
            data={"name": data, "partition": "dirichlet-attribute", "alpha": alpha},
            methods=add_sweep(methods, {"learning_rate": list(RATES)}),
            rounds=3,
            seeds=tuple(seeds),
            model="logistic",
            sampling="full",
        )
        for alpha in alphas
    }
    plan = StudyPlan(name=name, chosen=("learning_rate",), cells=plans)
    cells = {
        cell: comparison([run for v in own.variants() for run in _runs(v.label, seeds)])
        for cell, own in plans.items()
    }
    outcomes = [
        outcome for cell, found in cells.items() for outcome in choose(cell, found, plan.chosen)
    ]
    return Study(plan, cells, outcomes, 2.0)


def _runs(label: str, seeds: Sequence[int]) -> list[Run]:
    found = []
    for seed in seeds:
        noise = np.random.default_rng([seed, len(label.replace("0.9", "0.5"))]).uniform(-0.01, 0.01)
        table = people(
            0.8 + noise, 0.15 + noise - 0.1 * ("reweigh" in label) + 0.02 * ("0.01" in label)
        )
        weights = (
            (1.0, 0.0)
            if "alpha=0.01" in label
            else (0.25, 0.75)
            if "ratio" in label
            else (1 / 3, 2 / 3)
        )
        found.append(Run(label, label.partition("(")[0], {}, seed, trace(table, table, weights)))
    return found
