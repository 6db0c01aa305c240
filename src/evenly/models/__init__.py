"""Models, one file each. `MODELS` names those that the command line, experiment files and saved models can ask for."""

from collections.abc import Callable
from math import prod
from typing import Any

from evenly.federation import Federation
from evenly.models.check import Probabilistic, check_task
from evenly.models.custom import Custom, from_equinox
from evenly.models.logistic import Logistic
from evenly.models.mlp import MLP
from evenly.models.softmax import Softmax
from evenly.models.svm import LinearSVM
from evenly.types import Task

__all__ = [
    "MLP", "MODELS", "TASKS", "Custom", "LinearSVM", "Logistic", "Probabilistic", "Softmax", "check_task", "from_equinox",
]  # fmt: skip


def _many(kind: Callable[..., Task]) -> Callable[[Federation], Task]:
    return lambda federation: kind(features=_features(federation), classes=len(federation.labels))


def _two(name: str, kind: Callable[..., Task]) -> Callable[[Federation], Task]:
    def build(federation: Federation) -> Task:
        classes = len(federation.labels)
        if classes != 2:
            raise ValueError(f"Model {name!r} needs a label with two classes, got {classes}. Use 'softmax' or 'mlp'.")
        return kind(features=_features(federation))

    return build


def _features(federation: Federation) -> int:
    return prod(federation.x.shape[1:])


MODELS: dict[str, Callable[[Federation], Task]] = {
    "softmax": _many(Softmax),
    "logistic": _two("logistic", Logistic),
    "svm": _two("svm", LinearSVM),
    "mlp": _many(MLP),
}

TASKS: dict[str, type[Any]] = {"softmax": Softmax, "logistic": Logistic, "svm": LinearSVM, "mlp": MLP}
