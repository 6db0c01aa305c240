"""Models for classification, and the names under which experiments use them.

`MODELS` and `NETWORKS` map a name to a function that builds the model for a federation. `TASKS`
maps a name to the class, for saved models. Any other JAX model can be trained with `Custom` or
`from_equinox`.

>>> import evenly
>>> evenly.models.MODELS["softmax"](evenly.synthetic(clients=20))
Softmax(features=60, classes=10, joint=True, reduction='mean', start='zero')
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from evenly.data.federation import Federation
from evenly.models.augmentation import Augmented, crop_and_flip
from evenly.models.layers import PIXELS, Pixels
from evenly.models.linear import LinearSVM, Logistic, Softmax
from evenly.models.networks import CNN, MLP, CharLSTM, Custom, LeNet, from_equinox
from evenly.models.resnet import ResNet
from evenly.models.task import Probabilistic, check_task
from evenly.types import Task

__all__ = [
    "CNN", "MLP", "MODELS", "NETWORKS", "PIXELS", "TASKS", "Augmented", "CharLSTM", "Custom",
    "LeNet", "LinearSVM", "Logistic", "Pixels", "Probabilistic", "ResNet", "Softmax", "check_task",
    "crop_and_flip", "from_equinox",
]  # fmt: skip


def _many(kind: Callable[..., Task]) -> Callable[[Federation], Task]:
    return lambda federation: kind(features=_features(federation), classes=len(federation.labels))


def _two(name: str, kind: Callable[..., Task]) -> Callable[[Federation], Task]:
    def build(federation: Federation) -> Task:
        classes = len(federation.labels)
        if classes != 2:
            raise ValueError(
                f"Model {name!r} requires a label with two classes, got {classes}. Use 'softmax' or"
                " 'mlp'."
            )
        return kind(features=_features(federation))

    return build


def _features(federation: Federation) -> int:
    return prod(federation.x.shape[1:])


def _pictures(
    name: str, kind: Callable[..., Task], **settings: Any
) -> Callable[[Federation], Task]:
    """Builder of a model for images. Bytes are standardised with the constants of the data set;
    without constants, to -1 to 1.
    """

    def build(federation: Federation) -> Task:
        shape = (*federation.x.shape[1:], 1) if federation.x.ndim == 3 else federation.x.shape[1:]
        if len(shape) != 3:
            raise ValueError(
                f"Model {name!r} requires images [n, height, width, channels], got rows of shape"
                f" {list(shape)}. Use 'mlp'."
            )
        pixels = PIXELS.get(
            federation.name.partition(" ")[0], Pixels((0.5,) * shape[2], (0.5,) * shape[2])
        )
        return kind(
            classes=len(federation.labels),
            shape=shape,
            mean=pixels.mean,
            deviation=pixels.deviation,
            **settings,
        )

    return build


def _text(federation: Federation) -> Task:
    x, symbols = federation.x, len(federation.labels)
    fits = ((x == np.floor(x)) & (x >= 0) & (x < symbols)) | np.isnan(x)  # NaN: not stored
    if x.ndim != 2 or not fits.all():
        raise ValueError(
            f"Model 'char-lstm' requires rows of symbol numbers from 0 to {symbols - 1}, like the"
            " labels. Use 'mlp' for other data."
        )
    return CharLSTM(symbols=symbols)


MODELS: dict[str, Callable[[Federation], Task]] = {
    "softmax": _many(Softmax),
    "logistic": _two("logistic", Logistic),
    "svm": _two("svm", LinearSVM),
    "mlp": _many(MLP),
}
"""Functions that build a model for any federation, by the name for `--model`.

Example:
    >>> import evenly
    >>> MODELS["logistic"](evenly.synthetic(clients=20))
    Traceback (most recent call last):
    ValueError: Model 'logistic' requires a label with two classes, got 10. Use 'softmax' or 'mlp'.
"""

NETWORKS: dict[str, Callable[[Federation], Task]] = {
    "lenet": _pictures("lenet", LeNet),
    "lenet-no-bias": _pictures("lenet-no-bias", LeNet, bias=False),
    "cnn": _pictures("cnn", CNN),
    "resnet18": _pictures("resnet18", ResNet),
    "char-lstm": _text,
}
"""Functions that build a model for data of a certain shape, such as images, by name.

Example:
    >>> images = np.zeros((4, 28, 28), np.uint8)
    >>> federation = Federation.from_arrays(images, y=[0, 1, 0, 1], client=list("aabb"))
    >>> NETWORKS["lenet"](federation).shape
    (28, 28, 1)
"""

TASKS: dict[str, type[Any]] = {
    "softmax": Softmax, "logistic": Logistic, "svm": LinearSVM, "mlp": MLP,
    "lenet": LeNet, "cnn": CNN, "resnet18": ResNet, "char-lstm": CharLSTM,
}  # fmt: skip
"""Classes of models by the name that a saved model has in its file.

Example:
    >>> TASKS["mlp"] is MLP
    True
"""
