"""What is trained: three workloads as evenly has them, and the plan that every contender is given.

- synthetic: q-FedAvg, 10 of 100 clients a round by size, softmax regression (60 features, 10
  classes), batch 10, rate 0.1, q = 1
- adult: FedAvg, 5 clients by Dirichlet(0.5) over sex, logistic regression, batch 32, rate 0.1;
  needs the Adult files
- lenet: FedAvg, 25 clients of 60 MNIST images (random ones without the files), LeNet, 2 epochs,
  batch 8, rate 0.01
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.datasets import synthetic
from evenly.datasets.adult import adult_sex
from evenly.datasets.files import MissingData
from evenly.datasets.formats import read_idx_set
from evenly.datasets.mnist import MNIST_LAYOUT
from evenly.models import LeNet, Logistic, Softmax
from evenly.models.layers import standardised
from evenly.randomness import Draws, batches
from evenly.types import Algorithm, Seeds, Task

TOGETHER = 144  # runs of a sweep
CLIENTS, IMAGES, TESTED = 25, 60, 2000  # of lenet
LAYERS = ("conv1", "conv2", "dense1", "dense2")
Model = list[np.ndarray]  # in PyTorch's order: see contenders/plan.py


class Workload(NamedTuple):
    """One thing to train."""

    name: str
    kind: str  # which model: softmax, logistic or lenet
    rounds: int  # of one timed repetition
    judged_round: int  # after which parameters are compared
    band: float  # points of accuracy that may lie between two runs on other batches
    data: Callable[[], tuple[Federation, str]]  # and where it comes from
    task: Callable[[Federation], Task]
    method: Callable[[float, float], Algorithm]  # of q and the learning rate
    q: float  # NaN: FedAvg has none
    rate: float

    def algorithms(self, runs: int) -> list[Algorithm]:
        """The training that all contenders make, then others of a sweep beside it: rates, and where
        there is q, twelve values of it.
        """
        qs = np.linspace(0, 5, 12) if not math.isnan(self.q) else [self.q]
        others = [
            (q, rate)
            for rate in np.geomspace(self.rate / 10, self.rate, -(-TOGETHER // len(qs)))
            for q in qs
        ]
        return [
            self.method(self.q, self.rate),
            *(self.method(float(q), float(rate)) for q, rate in others[: runs - 1]),
        ]


def synthetic_method(q: float, rate: float) -> Algorithm:
    return algorithm(f"q-fedavg(q={q}, learning_rate={rate}, batch_size=10)+weighted(clients=10)")


def adult_method(_: float, rate: float) -> Algorithm:
    return algorithm(f"fedavg(learning_rate={rate}, batch_size=32)+full")


def lenet_method(_: float, rate: float) -> Algorithm:
    return algorithm(f"fedavg(learning_rate={rate}, epochs=2, batch_size=8)+full")


def images() -> tuple[Federation, str]:
    trained = CLIENTS * IMAGES
    try:
        x, y, tested = read_idx_set(MNIST_LAYOUT)
        rows = np.concatenate([np.flatnonzero(~tested)[:trained], np.flatnonzero(tested)[:TESTED]])
        x, y, found = x[rows, :, :, 0], y[rows], "mnist"
    except MissingData:
        draw = np.random.default_rng(0)
        x, y = (
            draw.integers(0, 256, (trained + TESTED, 28, 28), np.uint8),
            draw.integers(0, 10, trained + TESTED),
        )
        found = "random images of MNIST's size"
    client = [f"client {k:02}" for k in np.repeat(np.arange(CLIENTS), IMAGES)] + ["nobody"] * TESTED
    return (
        Federation.from_arrays(
            x, y, client, split=["train"] * trained + ["central"] * TESTED, name="mnist"
        ),
        found,
    )


def linear(federation: Federation) -> Softmax:
    return Softmax(features=federation.x.shape[1], classes=len(federation.labels))


# Bands: the accuracies of ten runs of evenly that differ only in the order of batches lay within
# 2.4 and 0.2 points.
WORKLOADS = {
    "synthetic": Workload(
        "synthetic",
        "softmax",
        200,
        10,
        3.0,
        lambda: (synthetic(), "drawn"),
        linear,
        synthetic_method,
        q=1.0,
        rate=0.1,
    ),
    "adult": Workload(
        "adult",
        "logistic",
        100,
        5,
        0.5,
        lambda: (adult_sex(valid=0.0), "adult"),
        lambda federation: Logistic(features=federation.x.shape[1]),
        adult_method,
        q=math.nan,
        rate=0.1,
    ),
    "lenet": Workload(
        "lenet", "lenet", 5, 1, 5.0, images, lambda _: LeNet(), lenet_method, q=math.nan, rate=0.01
    ),
}


def plan(workload: Workload, rounds: int) -> dict[str, Any]:
    """The cohorts and batches that evenly will draw, drawn as any real client would, for the others
    to use.
    """
    federation, _ = workload.data()
    method, seeds = workload.method(workload.q, workload.rate), Seeds()
    who, order = Draws(seeds.cohort, "cohort"), Draws(seeds.batches, "batches")
    state, cohort, steps = method.select.init(federation.census()), [], []
    for t in range(rounds):
        chosen, state = method.select(state, who.at(t))
        cohort.append(chosen)
        for client in chosen:
            rows, shuffle = federation.train.of(client), order.at(t, int(client))
            steps.append(
                batches(
                    rows,
                    method.work.batch_size,
                    epochs=method.work.epochs,
                    shuffle=shuffle,
                    padding=len(federation.y),
                )
            )
    start = parts(workload.kind, workload.task(federation).init(jax.random.key(seeds.model)))
    x = federation.x
    if workload.kind == "lenet":  # the others get the images as the model sees them
        x = np.asarray(standardised(jax.numpy.asarray(x), LeNet().mean, LeNet().deviation))[..., 0]
    return {
        "workload": workload.name, "kind": workload.kind, "x": x, "y": federation.y,
        "classes": len(federation.labels), "train": federation.train.rows,
        "offsets": federation.train.offsets, "batch": method.work.batch_size,
        "epochs": method.work.epochs, "rate": workload.rate, "q": workload.q,
        "cohort": np.array(cohort, np.int32), "rows": np.concatenate(steps),
        "first_step": np.cumsum([0, *map(len, steps)]).astype(np.int32), "parts": len(start),
        **{f"start{i}": part for i, part in enumerate(start)},
    }  # fmt: skip


def parts(kind: str, model: Any) -> Model:
    """evenly's parameters in PyTorch's order: channels first, outputs before inputs."""
    if kind != "lenet":
        w, b = np.asarray(model["w"]), np.asarray(model["b"])
        return [np.ascontiguousarray(w.T if w.ndim == 2 else w[None]), np.atleast_1d(b)]
    w = {name: np.asarray(model[name]["w"]) for name in LAYERS}
    w |= {name: w[name].transpose(3, 2, 0, 1) for name in ("conv1", "conv2")}
    w["dense1"] = w["dense1"].reshape(14, 14, 64, 128).transpose(3, 2, 0, 1).reshape(128, -1)
    w["dense2"] = w["dense2"].T
    return [
        value
        for name in LAYERS
        for value in (np.ascontiguousarray(w[name]), np.asarray(model[name]["b"]))
    ]


def accuracy(workload: Workload, federation: Federation, model: Model) -> float:
    """Percent right: the mean over clients' test rows, or on the central test set where there is
    one.
    """
    if workload.kind == "lenet":
        rows = federation.central
        task, tree = workload.task(federation), lenet_tree(model)
        said = np.concatenate(
            [
                np.asarray(task.predict(tree, jax.numpy.asarray(federation.x[some])))
                for some in np.array_split(rows, 8)
            ]
        )
        return round(100 * float((said == federation.y[rows]).mean()), 2)
    logits = federation.x @ model[0].T + model[1]
    right = (logits.argmax(1) if workload.kind == "softmax" else logits[:, 0] > 0) == federation.y
    if len(federation.central):
        return round(100 * float(right[federation.central].mean()), 2)
    return round(
        100
        * float(np.mean([right[federation.test.of(k)].mean() for k in range(federation.clients)])),
        2,
    )


def lenet_tree(model: Model) -> Any:
    """The inverse of `parts`."""
    w = dict(zip(LAYERS, model[::2], strict=True))
    w |= {name: w[name].transpose(2, 3, 1, 0) for name in ("conv1", "conv2")}
    w["dense1"] = w["dense1"].reshape(128, 64, 14, 14).transpose(2, 3, 1, 0).reshape(-1, 128)
    w["dense2"] = w["dense2"].T
    return {name: {"w": w[name], "b": b} for name, b in zip(LAYERS, model[1::2], strict=True)}
