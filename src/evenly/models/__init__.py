"""Models, one file each. `MODELS` names those that the command line and experiment files can ask for."""

from collections.abc import Callable

from evenly.federation import Federation
from evenly.models.custom import Custom, from_equinox
from evenly.models.logistic import Logistic
from evenly.models.mlp import MLP
from evenly.models.softmax import Softmax
from evenly.models.svm import LinearSVM
from evenly.types import Task

__all__ = ["MLP", "MODELS", "Custom", "LinearSVM", "Logistic", "Softmax", "from_equinox"]


def _binary(name: str, classes: int) -> None:
    if classes != 2:
        raise ValueError(f"Model {name!r} needs a label with two classes, got {classes}. Use 'softmax' or 'mlp'.")


def _logistic(federation: Federation) -> Task:
    _binary("logistic", len(federation.labels))
    return Logistic(features=federation.x.shape[1])


def _svm(federation: Federation) -> Task:
    _binary("svm", len(federation.labels))
    return LinearSVM(features=federation.x.shape[1])


MODELS: dict[str, Callable[[Federation], Task]] = {
    "softmax": lambda federation: Softmax(features=federation.x.shape[1], classes=len(federation.labels)),
    "logistic": _logistic,
    "svm": _svm,
    "mlp": lambda federation: MLP(features=federation.x.shape[1], classes=len(federation.labels)),
}
