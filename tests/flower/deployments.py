"""An invented deployment of hospitals: rounds, evaluations, and clients that do not answer."""

from pathlib import Path

import numpy as np

from evenly.algorithms import algorithm
from evenly.experiment.deployment import Deployment, DeploymentFacts, Exclusion, Flag, ServerOptions
from evenly.flower.recorder import Recorder, Traffic, deployment_of
from evenly.flower.replies import ClientEvaluation
from evenly.flower.server_state import claim
from evenly.types import Seeds

CLIENTS = 5
NAMES = tuple(f"hospital {k}" for k in range(CLIENTS))
ARRAYS = [("w", (10, 2), "float32"), ("b", (2,), "float32")]


def deployment(text: str = "q-fedavg(q=1)", seeds: Seeds | None = None, **more) -> Deployment:
    return deployment_of(
        algorithm(text), seeds or Seeds(), ARRAYS, notation=f"{text}+full", name="hospitals", **more
    )


def about(*, groups: bool = True) -> DeploymentFacts:
    labels, people = (("no", "yes"), ("women", "men")) if groups else ((), ())
    return DeploymentFacts(NAMES, tuple(range(100, 100 + CLIENTS)), labels=labels, groups=people)


def recorder(
    folder: Path | None,
    *,
    groups: bool = True,
    rounds: int = 4,
    done: int = 0,
    options: ServerOptions | None = None,
) -> Recorder:
    if folder:
        claim(folder, deployment())
    return Recorder(
        folder, deployment(), about(groups=groups), rounds=rounds, done=done, options=options
    )


def one_round(recorder: Recorder, t: int, *, groups: bool = True) -> None:
    """Hospital 3 stops answering after round 1; hospital 1 claims a huge loss."""
    weights = np.full(CLIENTS, 1 / CLIENTS, np.float32)
    silent = [Exclusion(103, 3, t, "did not answer in time", "no answer")] if t > 1 else []
    weights[3] = 0.0 if silent else weights[3]
    recorder.record_round(
        t,
        np.arange(CLIENTS),
        weights,
        left_out=silent,
        flagged=[Flag(1, "loss", 1e5, 3.5)],
        examples={k: 100 + k for k in range(CLIENTS) if k != 3 or not silent},
        seconds=2.0,
        traffic=Traffic(88, 96),
    )
    heard = [k for k in range(CLIENTS) if k != 3 or not silent]
    found = [
        ClientEvaluation(k, {"test": _test(k, t) if groups else _accuracy(k, t)}, {}) for k in heard
    ]
    recorder.record_evaluation(t, found, [one._replace(phase="evaluate") for one in silent])
    recorder.write()


def _test(k: int, t: int) -> dict:
    right = 5 + t + k  # of ten rows in each of four cells
    table = (
        np.array([[[right, 10 - right], [10 - right, right]]] * 2)
        if right <= 10
        else np.array([[[10, 0], [0, 10]]] * 2)
    )
    return {"examples": 40, "loss": 1.0 / (t + k), "table": table, "correct": None}


def _accuracy(k: int, t: int) -> dict:
    return {"examples": 40, "loss": 1.0 / (t + k), "table": None, "correct": 4 * min(10, 5 + t + k)}
