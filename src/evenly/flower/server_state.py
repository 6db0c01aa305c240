"""The state of a server, written after every round. A server that was killed resumes from it with
identical results.

The file is an archive (`evenly.archives`) with one array for each leaf of the state. Cohorts and
batches are drawn from counters, so it holds no state of a random generator.
"""

import dataclasses
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly.archives import Archive, DamagedError, leaves_of, read_archive, write_archive
from evenly.experiment.deployment import Deployment
from evenly.experiment.plan import NewerError
from evenly.types import Tree
from evenly.validation import check_kinds
from evenly.writing import write_whole

FORMAT = 2
HEADER = {
    "format": int, "fingerprint": str, "round": int, "nodes": list[int], "told": dict[str, Any],
    "leaves": list[dict[str, Any]],
}  # fmt: skip
NAME = "state.npz"
PYTHON = {"bool": bool, "int": int, "float": float}
WORDS = {
    "seeds": "the setting of seeds", "arrays": "the form of the model",
    "caps": "the setting of caps", "method": "the method", "sampling": "the sampling",
    "notation": "a setting",
}  # fmt: skip


class SavedState(NamedTuple):
    """State that an earlier server wrote."""

    round: int  # number of completed rounds
    state: Tree
    nodes: tuple[int, ...]  # the node of each client
    notes: dict[str, Any]  # further plain data


def claim(folder: Path, deployment: Deployment) -> None:
    """Reserve a folder for this deployment. A folder with other contents is refused and left
    unchanged.
    """
    plan = folder / "plan.json"
    refuse_earlier_format(folder / NAME)
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{str(folder)!r} must be a folder, but it is a file. Choose another folder."
        )
    if not plan.exists():
        strange = (
            [path.name for path in folder.iterdir() if not path.name.startswith(".")]
            if folder.exists()
            else []
        )
        if strange:
            raise ValueError(
                f"The folder {str(folder)!r} holds other files, such as {strange[0]!r}. Choose an"
                " empty or a new folder."
            )
        write_whole(plan, lambda file: file.write(deployment.to_json().encode()))
        return
    try:
        there = Deployment.from_json(plan.read_text())
    except NewerError as error:
        raise ValueError(
            f"The folder {str(folder)!r} {error}, or choose another folder. Nothing was changed."
        ) from None
    except ValueError:
        raise ValueError(
            f"The folder {str(folder)!r} holds results that are not of a deployment. Choose another"
            " folder."
        ) from None
    if there.fingerprint() != deployment.fingerprint():
        raise ValueError(
            f"The folder {str(folder)!r} belongs to another run: {_difference(there, deployment)}. "
            "Choose another folder, or use the settings of that run."
        )


def identity_of(folder: Path | None) -> str:
    """The identity of the deployment in a folder; a new one where there is none."""
    try:
        plan = "" if folder is None else (folder / "plan.json").read_text()
        return Deployment.from_json(plan).identity or secrets.token_hex(8)
    except (OSError, ValueError):  # a folder with other contents is refused later
        return secrets.token_hex(8)


def _difference(there: Deployment, here: Deployment) -> str:
    """The first setting that differs, with both values, and the names of the others."""
    differ = [
        f.name
        for f in dataclasses.fields(Deployment)
        if f.name not in ("name", "identity") and getattr(there, f.name) != getattr(here, f.name)
    ]
    # settings and needs follow from the method
    names = [name for name in differ if name in WORDS] or differ
    # the notation contains the method and the sampling
    names = [name for name in names if name != "notation"] or names
    first, *others = names
    before, now = getattr(there, first), getattr(here, first)
    if first == "arrays":
        before, now = next(
            ((a, b) for a, b in zip(before, now, strict=False) if a != b),
            (f"{len(before)} arrays", f"{len(now)} arrays"),
        )
    also = f" ({', '.join(WORDS.get(name, name) for name in others)} too)" if others else ""
    return f"{WORDS.get(first, first)} differs, there {before}, here {now}{also}"


def save(
    folder: Path,
    deployment: Deployment,
    *,
    round: int,
    state: Tree,
    nodes: Sequence[int] = (),
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Keep the state after a round; the file of the round before is replaced only when the new one
    is whole.
    """
    leaves = jax.tree.leaves(state)
    entries = {
        "round": round,
        "nodes": list(map(int, nodes)),
        "told": dict(notes or {}),
        "leaves": [_describe_leaf(leaf) for leaf in leaves],
    }
    return write_archive(
        folder / NAME,
        leaves_of(state),
        entries,
        format=FORMAT,
        fingerprint=deployment.fingerprint(),
    )


def load(folder: Path, deployment: Deployment, like: Callable[[int], Tree]) -> SavedState | None:
    """The saved state; None where there is none. `like` returns a state with the structure and the
    shapes of one for so many clients.
    """
    if (read := _read(folder / NAME)) is None:
        return None
    header, arrays = read
    if header["fingerprint"] != deployment.fingerprint():
        raise ValueError(
            f"{str(folder / NAME)!r} belongs to another run than the plan.json beside it. Choose"
            " another folder."
        )
    form = like(len(header["nodes"]))
    wanted = [_form(leaf) for leaf in jax.tree.leaves(form)]
    found = [
        (tuple(array.shape), entry["dtype"])
        for array, entry in zip(arrays, header["leaves"], strict=True)
    ]
    if wanted != found:
        raise ValueError(
            f"{str(folder / NAME)!r} must hold a state of this federation, but holds another:"
            f" {_first_difference(wanted, found)}. Use the settings of that run, or choose another"
            " folder to start over."
        )
    restored = [
        _restore_leaf(array, entry) for array, entry in zip(arrays, header["leaves"], strict=True)
    ]
    state = jax.tree.unflatten(jax.tree.structure(form), restored)
    return SavedState(header["round"], state, tuple(header["nodes"]), header["told"])


def rounds_done(folder: Path) -> int:
    """Number of completed rounds of the state in a folder; 0 where there is none."""
    read = _read(folder / NAME)
    return 0 if read is None else int(read[0]["round"])


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    if not path.exists():
        return None
    refuse_earlier_format(path)
    try:
        return read_archive(path, _parse_state, newest=FORMAT)
    except DamagedError:
        raise ValueError(
            f"{str(path)!r} is damaged. Remove it to start the deployment over; its history is"
            " removed then, too."
        ) from None


def refuse_earlier_format(path: Path) -> None:
    """Raise if a state was written by an earlier version, which kept other numbers in it."""
    try:
        found = (
            read_archive(path, lambda archive: archive.header.get("format", 0), newest=FORMAT)
            if path.exists()
            else FORMAT
        )
    except DamagedError:
        return  # reading the state says so
    if found < FORMAT:
        raise ValueError(
            f"{str(path)!r} was written by an earlier version of evenly (format {found}, and this"
            f" version continues format {FORMAT}). `evenly report` shows the deployment, but only"
            " that version can train its next rounds. To start over, choose another folder or"
            " remove this file."
        )


def _parse_state(archive: Archive) -> tuple[dict[str, Any], list[np.ndarray]]:
    header = archive.header
    check_kinds(header, HEADER, complete=True)
    return header, [
        leaf.view(jnp.dtype(entry["dtype"]))
        for leaf, entry in zip(archive.leaves(), header["leaves"], strict=True)
    ]


def _describe_leaf(leaf: Any) -> dict[str, Any]:
    """What npz does not store: whether a leaf is a Python number or a JAX array, and types that
    NumPy does not have.
    """
    kind = (
        type(leaf).__name__
        if type(leaf) in PYTHON.values()
        else "jax"
        if isinstance(leaf, jax.Array)
        else "numpy"
    )
    return {
        "kind": kind,
        "dtype": str(np.asarray(leaf).dtype),
        "weak": bool(getattr(leaf, "weak_type", False)),
    }


def _restore_leaf(array: np.ndarray, entry: dict[str, Any]) -> Any:
    if entry["kind"] in PYTHON:
        return PYTHON[entry["kind"]](array.item())
    if entry["kind"] == "numpy":
        return array
    # A weakly typed scalar takes the type of the array that it is multiplied with.
    return jnp.asarray(array.item()) if entry["weak"] and array.ndim == 0 else jnp.asarray(array)


def _form(leaf: Any) -> tuple[tuple[int, ...], str]:
    array = np.asarray(leaf)
    return tuple(array.shape), str(array.dtype)


def _first_difference(wanted: list[Any], found: list[Any]) -> str:
    if len(wanted) != len(found):
        return f"{len(found)} arrays, where {len(wanted)} are needed"
    want, got = next((w, f) for w, f in zip(wanted, found, strict=True) if w != f)
    return f"an array {got[1]}{list(got[0])}, where {want[1]}{list(want[0])} is needed"
