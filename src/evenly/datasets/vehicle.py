"""Vehicle: a wireless sensor network distinguishes two kinds of vehicles; each of the 23 sensors is
a client.

The file is LEAF-like JSON with 100 features per sample, standardised per sensor by those who
prepared it, and labels -1 and +1. Only the training part that Ditto's authors drew (1,860 samples)
is public; the second file, with the rest, is not. `kind="full"` reads both files, for those who
have them.
"""

from pathlib import Path

import numpy as np

from evenly.data import Rows, natural
from evenly.data.federation import Federation
from evenly.datasets.files import Content, DataError, DataFile, DatasetCard, Sizes, checked_files
from evenly.datasets.formats import User, read_leaf
from evenly.records import require

FEATURES = 100
KINDS = ("subset", "full")
URL = "https://raw.githubusercontent.com/litian96/ditto/602f571de561f7796104860108dfa91182bfbcd8/data/vehicle/data/train/mytrain.json"

TRAIN = DataFile(
    path="vehicle/mytrain.json",
    what="Vehicle, the training part of Ditto",
    contents=(
        Content("sha256:a8c8b22a89ea64e5a563cffe94352b48c1f44a02100fd3256adfc09dc43d9ddc", 3879378),
    ),
    urls=(URL,),
)
TRAIN_GZ = DataFile(
    path="vehicle/mytrain.json.gz",
    what="Vehicle, the training part of Ditto, gzipped",
    contents=(
        Content("sha256:1ae7f06e9096ff1585500262558d72ac41165b76c1e84731cf9d8d074466a93a", 1699139),
    ),
)
BY_HAND = (
    "prepare the sensor data with the scripts of q-FFL (github.com/litian96/fair_flearn,"
    " data/vehicle)."
)
FULL = tuple(
    DataFile(
        path=f"vehicle/full/my{part}.json", what=f"Vehicle, full set, {part} part", by_hand=BY_HAND
    )
    for part in ("train", "test")
)
SUBSET_LAYOUTS = ((TRAIN,), (TRAIN_GZ,))


def vehicle(
    kind: str = "subset", *, train: float = 0.8, valid: float = 0.1, split_seed: int = 0
) -> Federation:
    """Return one client per sensor, with 80/10/10 training, validation and test samples. "full"
    pools the two files of the whole set.
    """
    require(kind in KINDS, f"vehicle: kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    _, paths = checked_files(SUBSET_LAYOUTS if kind == "subset" else (FULL,))
    names, x, y, owner = read_sensors(paths)
    rows = Rows(x, y, ("-1", "+1"), f"vehicle {kind}")
    return natural(rows, owner, names=names, shares=(train, valid), split_seed=split_seed)


def read_sensors(paths: list[Path]) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]:
    """Return names of the sensors, features [n, 100], labels 0 and 1 for -1 and +1, and the sensor
    of each sample.
    """
    pooled: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for user in read_leaf(paths):
        pooled.setdefault(user.name, []).append(_samples(user))
    names = tuple(sorted(pooled))
    parts = [part for name in names for part in pooled[name]]
    owner = np.repeat(
        np.arange(len(names)), [sum(len(y) for _, y in pooled[name]) for name in names]
    )
    return (
        names,
        np.concatenate([x for x, _ in parts]),
        np.concatenate([y for _, y in parts]),
        owner,
    )


def _samples(user: User) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(user.x, np.float32), np.asarray(user.y, np.float32).reshape(-1)
    if x.shape != (len(y), FEATURES) or not np.isfinite(x).all():
        raise DataError(
            f"vehicle: sensor {user.name!r} must have {FEATURES} finite features per sample, got an"
            f" array of shape {x.shape}."
        )
    if not np.isin(y, [-1, 1]).all():
        raise DataError(
            f"vehicle: labels must be -1 or +1, sensor {user.name!r} has"
            f" {sorted(set(y.tolist()) - {-1.0, 1.0})[0]:g}."
        )
    return x, (y > 0).astype(np.int32)


CARD = DatasetCard(
    name="vehicle",
    title=(
        "Acoustic and seismic sensors tell vehicles apart; every sensor is a client (a subset of"
        " the paper's set)"
    ),
    load=vehicle,
    layouts=SUBSET_LAYOUTS,
    papers=("q-FFL",),
    licence="Unknown for the data; the repository that holds this file is MIT.",
    provenance=(
        "Duarte and Hu (2004), prepared by Smith et al. (MOCHA, 2017) and Li et al. (Ditto, 2021)."
    ),
    citation=(
        "Duarte, Hu: Vehicle classification in distributed sensor networks. J. Parallel and"
        " Distributed Computing 64(7), 2004."
    ),
    notes=(
        (
            "This subset (1,860 samples) is not the set of the q-FFL paper (43,695): do not compare"
            " its numbers with published ones."
        ),
        (
            "Several sensors have fewer than 20 samples, so one to three test samples: their"
            " accuracy is all or nothing."
        ),
        (
            "Features were standardised per sensor over all its samples, test samples too, by those"
            " who prepared the file."
        ),
    ),
    expected=Sizes(clients=23, train=1480, valid=185, test=195),
)
