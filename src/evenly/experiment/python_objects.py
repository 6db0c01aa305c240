"""Objects from Python in a plan: data in memory, models and algorithms.

A plan is plain data. Of an object it stores a digest, so that results are never mixed with those of
another object, and a *reference* `module:name` if an importable module holds the object under that
name. A folder of results can be read without its objects. To resume it from the command line, every
object must have a reference; otherwise the call from Python is repeated with the same objects.
"""

import hashlib
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly.algorithms import Method, Variant
from evenly.archives import Archive, DamagedError, read_archive, write_archive
from evenly.data.federation import Federation
from evenly.data.sensitive import Attribute
from evenly.data.splits import SPLITS, Ragged
from evenly.datasets.load import table_digest
from evenly.digests import digest_of
from evenly.parts.sampling import Full
from evenly.parts.work import LocalTraining
from evenly.records import record, static
from evenly.types import Algorithm, Own, Rule, Task, Tree, Weighed
from evenly.validation import check_kinds

REFERENCE, DIGEST = "reference", "sha256"  # keys of a stored object
DATA_FILE, DATA_FORMAT = "federation.npz", 1


class PlanObjects(NamedTuple):
    """The objects of a plan. They are not stored."""

    data: Any = None  # a pandas table or a federation
    model: Task | None = None
    methods: Mapping[str, Algorithm] = {}  # by label


NO_OBJECTS = PlanObjects()


def stored_federation(federation: Federation) -> dict[str, str]:
    """What a plan stores of a federation. Of a table, it stores `datasets.load.table_source`."""
    return {"federation": federation.name, **_stored(federation, _federation_digest(federation))}


def stored_model(model: Task) -> dict[str, str]:
    """What a plan stores of a model."""
    return {"name": type(model).__name__, **_stored(model, digest_of(model))}


def stored_method(algorithm: Algorithm) -> dict[str, Any]:
    """What a plan stores of an algorithm."""
    return {"needs": sorted(algorithm.needs), **_stored(algorithm, digest_of(algorithm))}


def _stored(thing: Any, digest: str) -> dict[str, str]:
    reference = reference_of(thing)
    return {DIGEST: digest, **({REFERENCE: reference} if reference else {})}


def reference_of(thing: Any) -> str:
    """`module:name` of an object that an imported module holds, or "" if there is none. A script
    that is run as a program cannot be imported, so that its objects have no reference.
    """
    for name, module in sorted(sys.modules.copy().items()):
        if name == "__main__" or name.startswith("evenly.") or not hasattr(module, "__dict__"):
            continue
        for key, value in list(vars(module).items()):
            if value is thing and getattr(module, "__file__", None):
                return f"{name}:{key}"
    return ""


def _federation_digest(federation: Federation) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(federation):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    facts = (federation.names, federation.labels, federation.groups, federation.unprivileged)
    digest.update(repr((*facts, federation.favourable, federation.attributes)).encode())
    return digest.hexdigest()


# Objects that are needed again: to train what is left, or only to read what is there.


def import_objects(
    data: Mapping[str, Any], own: Mapping[str, Any], objects: PlanObjects
) -> PlanObjects:
    """The objects of a plan, those that are missing imported by their references.

    Raises:
        ValueError: If an object has no reference, cannot be imported, or has changed.
    """
    model, methods = own.get("model"), own.get("methods", {})
    found = dict(objects.methods)
    for label, stored in methods.items():
        if label not in found:
            found[label] = _imported(f"The method {label!r}", stored, digest_of)
    if model and objects.model is None:
        objects = objects._replace(
            model=_imported(f"The model {model['name']!r}", model, digest_of)
        )
    if objects.data is None and ("frame" in data or "federation" in data):
        digest = _federation_digest if "federation" in data else table_digest
        objects = objects._replace(data=_imported("The data", data, digest))
    return objects._replace(methods=found)


def _imported(what: str, stored: Mapping[str, Any], digest: Any) -> Any:
    again = "Repeat the call of evenly.compare with the same objects and out= this folder."
    reference = stored.get(REFERENCE, "")
    if not reference:
        raise ValueError(
            f"{what} of these results was passed from Python and has no importable name, so that"
            f" it is needed again. {again}"
        )
    module, _, name = reference.partition(":")
    try:
        thing = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{what} could not be imported from {reference}: {error}. {again}"
        ) from None
    if digest(thing) != stored.get(DIGEST):
        raise ValueError(
            f"{what} in {reference} has changed since these results were begun. {again}"
        )
    return thing


@record
class StoredRule(Rule):
    """Takes the place of a rule whose object is not there: it says what clients reveal."""

    signals: tuple[str, ...] = static(default=())

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.signals)

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        raise NotImplementedError("This rule is not stored with its results.")


def variant_of(label: str, algorithm: Algorithm | None, stored: Mapping[str, Any]) -> Variant:
    """The row of a comparison for an algorithm, or for what is stored of it."""
    if algorithm is None:
        rule = StoredRule(signals=tuple(stored.get("needs", ())))
        algorithm = Algorithm(work=LocalTraining(), rule=rule, select=Full(), label=label)
    method = Method(name=label, title=label, reference="", formula="", rule=type(algorithm.rule))
    return Variant(label, method, {}, (algorithm,))


# The federation of results, without its rows: the number of rows of each client, group and label,
# and all names. Reports need no more.

HEADER = {
    "name": str, "partition": str, "names": list[str], "labels": list[str], "groups": list[str],
    "attributes": list[list[Any]], "unprivileged": list[int], "favourable": int,
}  # fmt: skip


def write_federation(federation: Federation, folder: Path) -> None:
    """Store the counts and names of a federation in a folder of results."""
    shape = (federation.clients, len(federation.groups), len(federation.labels))
    cells = np.zeros((len(SPLITS), *shape), np.int64)
    for s, split in enumerate(SPLITS):
        part = federation.split(split)
        owner = np.repeat(np.arange(federation.clients), part.counts)
        np.add.at(cells[s], (owner, federation.group[part.rows], federation.y[part.rows]), 1)
    central = np.zeros(shape[1:], np.int64)
    rows = federation.central
    np.add.at(central, (federation.group[rows], federation.y[rows]), 1)
    header = {name: getattr(federation, name) for name in HEADER}
    # Models such as LeNet are chosen by the shape and the type of a row.
    arrays = {
        "cells": cells,
        "central": central,
        "row": np.zeros((1, *federation.x.shape[1:]), federation.x.dtype),
    }
    if federation.client_group is not None:
        arrays["client_group"] = federation.client_group
    write_archive(folder / DATA_FILE, arrays, header, format=DATA_FORMAT)


def read_federation(folder: Path) -> Federation:
    """The federation of a folder. Features of its rows are NaN, or 0 where they are integers."""
    path = folder / DATA_FILE
    if not path.exists():
        raise ValueError(
            f"The data of the results in {str(folder)!r} were passed from Python, and"
            f" {path.name}, which describes them, is not there. Repeat the call of evenly.compare"
            " with the same data and out= this folder."
        )
    try:
        return read_archive(path, _federation, newest=DATA_FORMAT)
    except DamagedError:
        raise ValueError(
            f"{str(path)!r} is damaged. Repeat the call of evenly.compare with the same data and"
            " out= this folder; nothing is trained again."
        ) from None


def _federation(archive: Archive) -> Federation:
    header, file = archive
    check_kinds(header, HEADER, complete=True)
    cells, central = file["cells"], file["central"]
    counts = np.concatenate([cells.reshape(-1), central.reshape(-1)])
    groups, labels = central.shape
    of_cell = np.arange(counts.size) % (groups * labels)
    y, group = np.repeat(of_cell % labels, counts), np.repeat(of_cell // labels, counts)
    sizes, parts, begin = cells.sum((2, 3)), {}, 0
    for split, own in zip(SPLITS, sizes, strict=True):
        offsets = np.concatenate([[0], np.cumsum(own)]).astype(np.int64)
        parts[split] = Ragged(np.arange(begin, begin + own.sum(), dtype=np.int32), offsets)
        begin += int(own.sum())
    attributes = tuple(
        Attribute(name, tuple(values), tuple(of_group), unprivileged)
        for name, values, of_group, unprivileged in header.pop("attributes")
    )
    words = {key: tuple(header.pop(key)) for key in ("names", "labels", "groups", "unprivileged")}
    row = file.get("row", np.zeros((1, 1), np.float32))  # folders of 0.1.0 have none
    blank = np.full_like(row, np.nan if np.issubdtype(row.dtype, np.floating) else 0)
    return Federation(
        x=np.broadcast_to(blank, (len(y), *row.shape[1:])),
        y=y.astype(np.int32),
        group=group.astype(np.int32),
        central=np.arange(begin, len(y), dtype=np.int32),
        client_group=file.get("client_group"),
        attributes=attributes,
        name=header["name"],
        partition=header["partition"],
        favourable=header["favourable"],
        **words,
        **parts,
    )
