"""Five rounds of every method on the tiny federation, boiled down to numbers that a reader can
compare in a diff.

After a change that is meant to change results, run `python -m tests.golden.regenerate` and review
the difference.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from evenly.algorithms import METHODS, variants
from evenly.data.federation import Federation
from evenly.metrics import final_metrics
from evenly.notation import Part
from evenly.simulate import simulate
from evenly.types import Task, Trace
from tests.simulations import COHORT, COMMON, flat, task_for

ROUNDS = 5
FOLDER = Path(__file__).parent / "traces"


def path(name: str) -> Path:
    return FOLDER / f"{name}.json"


def digest(name: str, task: Task, federation: Federation) -> dict[str, Any]:
    """What is stored of a method: of every run it takes the model and weights, of the result the
    accuracy and losses.
    """
    (variant,) = variants((Part(name, {}),), COMMON, COHORT)
    traces = simulate(task_for(name, task, federation), federation, variant.members, ROUNDS)
    combine = METHODS[name].combine
    result = combine(traces) if combine else traces[0]
    metrics = final_metrics(result)
    return {
        "cohort": result.cohort.tolist(),
        "runs": [run(trace) for trace in traces],
        "test": {
            metric: rounded(metrics[metric])
            for metric in ("average", "average_devices", "variance")
        },
        "test_losses": rounded(result.losses[-1, 2]),
        "upload": result.upload,
    }


def run(trace: Trace) -> dict[str, Any]:
    model = flat(trace.model)
    return {
        "norm": rounded(np.linalg.norm(model)),
        "model": rounded(model),
        "weights": rounded(trace.weights),
    }


def rounded(values: Any) -> Any:
    return np.round(np.asarray(values, np.float64), 7).tolist()


def stored(name: str) -> dict[str, Any]:
    return json.loads(path(name).read_text())
