"""The model to take home: the final model of a deployment, in the folder of its results.

    models/arrays.npz  the arrays that clients are served, for every framework
    models/model.npz   for tasks of evenly: the model as `evenly.load` reads it

Both are written once, at the end of training. Later, the model can be evaluated or audited.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message

from evenly.archives import DamagedError
from evenly.data.encoding import Encoder
from evenly.experiment.deployment import Deployment
from evenly.flower import messages, wire
from evenly.flower.array_files import read_arrays, write_arrays
from evenly.flower.roster import Roll, notation_of
from evenly.flower.server_state import rounds_done
from evenly.models import TASKS
from evenly.models.task import skeleton
from evenly.parts.ranking import Supernetwork
from evenly.records import require
from evenly.saved_models import Model, save
from evenly.types import Algorithm, Seeds, Task

LOG = logging.getLogger("flwr")
MODELS, ARRAYS, MODEL = "models", "arrays.npz", "model.npz"
RANK_CLUSTERING = "rank-clustering"  # the inference by which the server assigns models


class ModelContext(NamedTuple):
    """The method, the task and the names that belong to the arrays of the final model."""

    algorithm: Algorithm
    seeds: Seeds
    task: Task | None
    encoder: Encoder | None
    labels: tuple[str, ...]
    groups: Mapping[str, int] = {}  # the model of each client (`client_keys`), as for `groups_of`


def client_keys(roll: Roll) -> list[str]:
    """What clients are recognised by in another run: their numbers or, where they say none, their
    nodes.
    """
    return list(map(str, roll.numbers or roll.nodes))


def groups_of(algorithm: Algorithm, roll: Roll, choice: np.ndarray | None) -> dict[str, int]:
    """Which of several models the server assigned to each client; empty if it assigned none. What a
    client chose follows from its data, and is not for those who read the model.
    """
    if choice is None or algorithm.rule.inference != RANK_CLUSTERING:
        return {}
    return dict(zip(client_keys(roll), choice.tolist(), strict=True))


def write_final(folder: Path, arrays: ArrayRecord, of: ModelContext) -> list[Path]:
    """Write the final model and return the paths of its files.

    `model.npz` is left out for models of the user's own, for methods with several models, and for
    models of images and text, whose shape of one example the server does not know.
    """
    entries = {"method": of.algorithm.label or "", "groups": dict(of.groups)}
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
    return read_final(folder)[0]


def read_final(folder: str | Path) -> tuple[ArrayRecord, dict[str, int]]:
    """The final model of a deployment, and the model of each client, where the server assigned
    them.
    """
    path = Path(folder) / MODELS / ARRAYS
    if not path.is_file():
        raise ValueError(
            f"There is no final model {str(path)!r}. It is written at the end of training: give the"
            " folder of a finished deployment."
        )
    try:
        arrays, header = read_arrays(path, {"groups": dict[str, int]})
        return arrays, header.get("groups", {})
    except DamagedError as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}). Train again.") from None


# Questions about a finished model, and what tells each client which model is its own.
#
# That is a model which the client keeps itself (`clients.memory`), one of several that the server
# assigned to it, or one of several that the client chooses. The first two follow from the folder of
# the deployment, and not from the arrays alone.


class FinishedModel(NamedTuple):
    """The model of a finished deployment."""

    arrays: ArrayRecord
    identity: str = ""  # under which clients keep models of their own
    rounds: int = 0
    groups: Mapping[str, int] = {}  # the model of each client, where the server assigned them

    @property
    def models(self) -> int:
        """Number of models in the arrays; 0 if there is one without a prefix."""
        names = list(self.arrays)
        found = (any(n.startswith(wire.prefix_of(q)) for n in names) for q in range(len(names)))
        return sum(found)

    def first(self, algorithm: Algorithm) -> ArrayRecord:
        """The arrays as those that a method's training starts from."""
        if not self.models or algorithm.rule.apart:
            return self.arrays
        start = wire.prefix_of(0)
        own = {k.removeprefix(start): a for k, a in self.arrays.items() if k.startswith(start)}
        return ArrayRecord(own)


def plan_of(folder: str | Path) -> Deployment:
    """The settings of a deployment."""
    return Deployment.from_json((Path(folder) / "plan.json").read_text())


def finished_model(given: ArrayRecord | str | Path, algorithm: Algorithm) -> FinishedModel:
    """The model of a deployment, given by its folder or by its arrays.

    Raises:
        ValueError: If clients have models that follow from the folder only, and only arrays are
            given.
    """
    keeps, label = messages.keeps_models(algorithm), algorithm.label
    if isinstance(given, ArrayRecord):
        found = FinishedModel(given)
        why = "each client keeps a model of its own" if keeps else ""
        if found.models and algorithm.rule.inference == RANK_CLUSTERING:
            why = "the server assigned clients to models in training"
        require(
            not why,
            f"{label}: {why}, and arrays do not say which. Give the folder of the deployment in"
            " place of its arrays.",
        )
        return found
    arrays, groups = read_final(given)
    if not keeps:
        return FinishedModel(arrays, groups=groups)
    identity = plan_of(given).identity
    require(
        bool(identity),
        f"{label}: {str(given)!r} was trained by an earlier version of evenly, whose clients kept"
        " models of their own only until the run ended. Train again.",
    )
    return FinishedModel(arrays, identity, rounds_done(Path(given)), groups)


def questions(
    kind: str,
    model: FinishedModel | None,
    algorithm: Algorithm,
    roll: Roll,
    *,
    seeds: Seeds,
    clients: Iterable[int] | None = None,
    keys: tuple[str, str] = (wire.ARRAYS, wire.CONFIG),
) -> list[Message]:
    """Messages that ask clients, or all, about a finished model or, without one, about their own
    predictions. `keys` are the names of the two records.
    """
    common: dict[str, Any] = {
        wire.ROUND: 0,
        wire.METHOD: notation_of(algorithm),
        wire.BATCH_SEED: seeds.batches,
        wire.MODEL_SEED: seeds.model,
    }
    records = {} if model is None else {keys[0]: model.arrays}
    return [
        messages.message(
            kind,
            roll.nodes[k],
            records,
            ConfigRecord({**common, wire.CLIENT: k, **_own_model(model, algorithm, roll, k)}),
            keys[1],
        )
        for k in (range(roll.clients) if clients is None else clients)
    ]


def _own_model(
    model: FinishedModel | None, algorithm: Algorithm, roll: Roll, client: int
) -> dict[str, Any]:
    """Entries that tell a client which model is its own; nothing where it chooses."""
    if model is None:
        return {}
    if model.identity:
        return {wire.DEPLOYMENT: model.identity, wire.TRAINED: model.rounds}
    if not model.models:
        return {}
    inference, group = algorithm.rule.inference, None
    if inference == "known":
        group = None if roll.client_group is None else int(roll.client_group[client])
    elif inference == RANK_CLUSTERING:
        group = model.groups.get(client_keys(roll)[client])
    if group is None:
        return {wire.MODELS: model.models}
    require(
        group < model.models,
        f"{algorithm.label}: {roll.names[client]!r} belongs to group {group}, and there are"
        f" {model.models} models, numbered from 0.",
    )
    return {wire.MODELS: model.models, wire.GROUP: group}
