"""The model of its own that a method such as Ditto lets a client keep between rounds.

A node whose config names a folder keeps the model there, in one file for each round:

    --node-config 'memory="/var/lib/evenly/memory"'

Without a folder, Flower keeps it until the run or the SuperNode ends. A server that resumes is a
new run.

Each request names the deployment and the last round from which the server has a reply of the
client. The client answers from the model after that round, so that a round can be repeated, and a
round that the server did not store has no effect. A client that does not have this model refuses.
"""

import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import NamedTuple

import jax
from flwr.app import ArrayRecord, Context

from evenly.archives import DamagedError
from evenly.flower import wire
from evenly.flower.array_files import read_arrays, write_arrays
from evenly.flower.clients import guard
from evenly.flower.clients.ledger import ToldError
from evenly.records import require
from evenly.types import Tree

FOLDER = "memory"  # in the node's config
STATE = "evenly-memory"  # before the number of a round, in the node's own state
IDENTITY = re.compile(r"[0-9a-f]{16}")
REMEDY = (
    'Let each node keep its models in a folder (memory="/path" in the node\'s config), and start'
    " the deployment over in another folder"
)


class Moment(NamedTuple):
    """What a request says of the model that the client keeps."""

    deployment: str  # "": the server did not say
    number: int  # of the round, from 1; 0: a finished deployment is audited or evaluated
    # the last round from which the server has a reply; None: the server did not say
    trained: int | None
    client: int  # -1: the server did not say


def recall(context: Context, now: Moment, first: Tree) -> Tree:
    """The client's model at this moment; before it trained, `first` or the model that came with the
    census.
    """
    if not jax.tree.leaves(first):
        return first
    models = _models(context, now)
    rounds = sorted(models)
    if now.number == 0:
        named = bool(now.deployment)
        usable = [number for number in rounds if named and number <= (now.trained or 0)]
        if not usable:
            _refuse("it keeps no model of its own of the deployment that trained this model")
        return wire.from_arrays(models[usable[-1]], first)
    wanted = now.trained
    if wanted is None:
        wanted = rounds[-1] if rounds else 0
    if not rounds and wanted == 0:
        models[0] = wire.to_arrays(first)
    if wanted not in models:
        _refuse(f"its own model after round {wanted} of this deployment is lost. {REMEDY}")
    return wire.from_arrays(models[wanted], first)


def introduce(context: Context, now: Moment, first: ArrayRecord) -> None:
    """Keep the model from which the client's own one starts, unless it started already."""
    models = _models(context, now)
    if not models:
        models[0] = first


def keep(context: Context, now: Moment, model: Tree) -> None:
    """Keep the client's model after a round of training, beside that from which it started."""
    if not jax.tree.leaves(model):
        return
    models = _models(context, now)
    models[now.number] = wire.to_arrays(model)
    for number in set(models) - {now.number, now.trained}:
        del models[number]


def _refuse(reason: str) -> None:
    """Refuse with words that the server may read, because they do not depend on rows."""
    raise guard.Refusal(reason, reason) if guard.watching() else ToldError(reason)


def _models(context: Context, now: Moment) -> MutableMapping[int, ArrayRecord]:
    """The client's models of this deployment, by round."""
    named = context.node_config.get(FOLDER)
    if not named or not now.deployment:
        return _State(context, now)
    require(
        IDENTITY.fullmatch(now.deployment) is not None,
        "The id of a deployment must be 16 hexadecimal digits.",
    )
    return _Files(Path(str(named)).expanduser() / now.deployment, now)


class _State(MutableMapping[int, ArrayRecord]):
    """Models in the state that Flower keeps for a node."""

    def __init__(self, context: Context, now: Moment) -> None:
        self._state, self._prefix = context.state, f"{STATE}/{now.deployment}/"

    def __getitem__(self, number: int) -> ArrayRecord:
        found = self._state[f"{self._prefix}{number}"]
        assert isinstance(found, ArrayRecord)
        return found

    def __setitem__(self, number: int, model: ArrayRecord) -> None:
        self._state[f"{self._prefix}{number}"] = model

    def __delitem__(self, number: int) -> None:
        del self._state[f"{self._prefix}{number}"]

    def __iter__(self) -> Iterator[int]:
        prefix = self._prefix
        return iter([int(key[len(prefix) :]) for key in self._state if key.startswith(prefix)])

    def __len__(self) -> int:
        return len(list(iter(self)))


class _Files(MutableMapping[int, ArrayRecord]):
    """Models in files of a folder that only its owner may read."""

    def __init__(self, folder: Path, now: Moment) -> None:
        self._folder, self._now = folder, now

    def _path(self, number: int) -> Path:
        return self._folder / f"round-{number}.npz"

    def __getitem__(self, number: int) -> ArrayRecord:
        path = self._path(number)
        if not path.exists():
            raise KeyError(number)
        try:
            model, header = read_arrays(path, {"client": int})
        except DamagedError as error:
            raise ValueError(
                f"{str(path)!r} is damaged ({error}). Restore it from a backup, or start the"
                " deployment over in another folder."
            ) from None
        if number and self._now.number and header.get("client") != self._now.client:
            _refuse("its folder of models is that of another client. Name a folder for each client")
        return model

    def __setitem__(self, number: int, model: ArrayRecord) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_arrays(self._path(number), model, {"client": self._now.client})

    def __delitem__(self, number: int) -> None:
        self._path(number).unlink()

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self._path(number).exists()

    def __iter__(self) -> Iterator[int]:
        names = [path.stem.removeprefix("round-") for path in self._folder.glob("round-*.npz")]
        return iter([int(name) for name in names if name.isdecimal()])

    def __len__(self) -> int:
        return len(list(iter(self)))
