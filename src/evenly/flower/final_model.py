"""The model to take home: the final model of a deployment, in the folder of its results.

    models/arrays.npz  the arrays that clients are served, for every framework
    models/model.npz   for tasks of evenly: the model as `evenly.load` reads it

Both are written once, at the end of training.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from flwr.app import ArrayRecord

from evenly.archives import DamagedError
from evenly.data.encoding import Encoder
from evenly.flower import wire
from evenly.flower.array_files import read_arrays, write_arrays
from evenly.models import TASKS
from evenly.models.task import skeleton
from evenly.parts.ranking import Supernetwork
from evenly.saved_models import Model, save
from evenly.types import Algorithm, Seeds, Task

LOG = logging.getLogger("flwr")
MODELS, ARRAYS, MODEL = "models", "arrays.npz", "model.npz"


class ModelContext(NamedTuple):
    """The method, the task and the names that belong to the arrays of the final model."""

    algorithm: Algorithm
    seeds: Seeds
    task: Task | None
    encoder: Encoder | None
    labels: tuple[str, ...]


def write_final(folder: Path, arrays: ArrayRecord, of: ModelContext) -> list[Path]:
    """Write the final model and return the paths of its files.

    `model.npz` is left out for models of the user's own, for methods with several models, and for
    models of images and text, whose shape of one example the server does not know.
    """
    entries = {"method": of.algorithm.label or ""}
    paths = [write_arrays(folder / MODELS / ARRAYS, arrays, entries)]
    model = _model(arrays, of)
    if model is not None:
        save(model, folder / MODELS / MODEL)
        paths.append(folder / MODELS / MODEL)
    LOG.info("The final model: %s", " and ".join(map(str, paths)))
    return paths


def _model(arrays: ArrayRecord, of: ModelContext) -> Model | None:
    features = getattr(of.task, "features", None)
    if of.task is None or not isinstance(features, int) or of.algorithm.rule.groups is not None:
        return None
    if type(of.task) not in TASKS.values() or len(of.labels) != getattr(of.task, "classes", 2):
        return None
    task = of.algorithm.task(of.task, of.seeds)
    params = wire.from_arrays(arrays, skeleton(task))
    if isinstance(task, Supernetwork):
        task, params = task.inner, task.subnetwork(task.masks(params))
    encoder = of.encoder
    known = encoder is not None and len(encoder.features) == features
    return Model(
        task=task,
        params=params,
        labels=of.labels,
        shape=(features,),
        encoder=encoder if known else None,
    )


def final_arrays(folder: str | Path) -> ArrayRecord:
    """Return the final model of a deployment, from the folder of its results.

    Args:
        folder: Folder of the deployment.

    Returns:
        The arrays that clients were served last. After ``import torch``, their method
        ``to_torch_state_dict()`` returns the state dict of a PyTorch module. Models of evenly are
        also in ``models/model.npz``, which `evenly.load` reads.

    Raises:
        ValueError: If the folder holds no final model, or it is damaged.

    Example:
        >>> from evenly.flower import final_arrays
        >>> module.load_state_dict(final_arrays("results").to_torch_state_dict())  # doctest: +SKIP
    """
    path = Path(folder) / MODELS / ARRAYS
    if not path.is_file():
        raise ValueError(
            f"There is no final model {str(path)!r}. It is written at the end of training: give the"
            " folder of a finished deployment."
        )
    try:
        return read_arrays(path, {})[0]
    except DamagedError as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}). Train again.") from None
