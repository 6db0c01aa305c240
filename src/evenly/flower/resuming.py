"""The state of a server, kept after every round, so that one that was killed goes on to the same bits.

A file is an npz: a JSON header (format, what the run is, round, nodes) and one array for each leaf of the state. There is no
pickle in it. Cohorts and batches are drawn from counters, so no state of a random generator has to be kept.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly.experiment.deployment import Deployment
from evenly.experiment.plan import NewerError
from evenly.outside import DAMAGED, plain_json, read_arrays
from evenly.types import Tree
from evenly.writing import write_whole

FORMAT = 1
NAME = "state.npz"
PYTHON = {"bool": bool, "int": int, "float": float}
WORDS = {
    "seeds": "the seeds",
    "arrays": "the model's arrays",
    "caps": "the caps",
    "method": "the method",
    "sampling": "the sampling",
    "notation": "a setting",
}


class Saved(NamedTuple):
    """Where an earlier server was."""

    round: int  # rounds done
    state: Tree
    nodes: tuple[int, ...]  # the node of each client
    told: dict[str, Any]  # whatever else was kept as plain data


def claim(folder: Path, deployment: Deployment) -> None:
    """Make a folder this deployment's, or find that it is. A folder of anything else is refused and not touched."""
    held = folder / "plan.json"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"The folder {str(folder)!r} must be a folder, but it is a file. Choose another one.")
    if not held.exists():
        strange = [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []
        if strange:
            raise ValueError(f"The folder {str(folder)!r} holds files that are not evenly's, such as {strange[0]!r}. Choose another one.")
        write_whole(held, lambda file: file.write(deployment.to_json().encode()))
        return
    try:
        there = Deployment.from_json(held.read_text())
    except NewerError as error:
        raise ValueError(f"The folder {str(folder)!r} {error}, or choose another one; nothing was touched.") from None
    except ValueError:
        raise ValueError(f"The folder {str(folder)!r} holds other results, not those of a deployment. Choose another one.") from None
    if there.fingerprint() != deployment.fingerprint():
        raise ValueError(
            f"The folder {str(folder)!r} is of another run: {_difference(there, deployment)}. "
            "Choose another folder, or ask for the same as before."
        )


def _difference(there: Deployment, here: Deployment) -> str:
    """What is not the same, in words."""
    differ = [f.name for f in dataclasses.fields(Deployment) if f.name != "name" and getattr(there, f.name) != getattr(here, f.name)]
    told = [name for name in differ if name in WORDS] or differ  # settings and needs follow from the method
    told = [name for name in told if name != "notation"] or told  # which says the method and the sampling again
    first = told[0]
    before, now = getattr(there, first), getattr(here, first)
    if first == "arrays":
        before, now = next(((a, b) for a, b in zip(before, now, strict=False) if a != b), (f"{len(before)} of them", f"{len(now)}"))
    more = f" ({', '.join(WORDS.get(name, name) for name in told[1:])} too)" if len(told) > 1 else ""
    return f"not the same is {WORDS.get(first, first)}, there {before}, here {now}{more}"


def save(
    folder: Path,
    deployment: Deployment,
    *,
    round: int,
    state: Tree,
    nodes: Sequence[int] = (),
    told: Mapping[str, Any] | None = None,
) -> Path:
    """Keep the state after a round; the file of the round before is replaced only when the new one is whole."""
    leaves = jax.tree.leaves(state)
    header = {
        "format": FORMAT,
        "fingerprint": deployment.fingerprint(),
        "round": round,
        "nodes": list(map(int, nodes)),
        "told": dict(told or {}),
        "leaves": [_described(leaf) for leaf in leaves],
    }
    arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return write_whole(folder / NAME, lambda file: np.savez(file, header=np.array(json.dumps(header)), **arrays))  # pyright: ignore[reportArgumentType]


def load(folder: Path, deployment: Deployment, like: Tree) -> Saved | None:
    """The state that was kept, in the form of a fresh one (`like`); None: nothing was."""
    if (read := _read(folder / NAME)) is None:
        return None
    header, arrays = read
    if header["fingerprint"] != deployment.fingerprint():
        raise ValueError(f"{str(folder / NAME)!r} is of another run than the plan beside it. Choose another folder.")
    wanted = [_form(leaf) for leaf in jax.tree.leaves(like)]
    found = [(tuple(array.shape), entry["dtype"]) for array, entry in zip(arrays, header["leaves"], strict=True)]
    if wanted != found:
        raise ValueError(
            f"{str(folder / NAME)!r} must hold a state of this federation, but it is of another: {_first_difference(wanted, found)}. "
            "Does the same number of clients take part as before? Choose another folder to begin anew."
        )
    restored = [_restored(array, entry) for array, entry in zip(arrays, header["leaves"], strict=True)]
    state = jax.tree.unflatten(jax.tree.structure(like), restored)
    return Saved(header["round"], state, tuple(header["nodes"]), header["told"])


def rounds_done(folder: Path) -> int:
    """How many rounds the state in a folder has seen; 0: there is none."""
    read = _read(folder / NAME)
    return 0 if read is None else int(read[0]["round"])


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    if not path.exists():
        return None
    try:
        file = read_arrays(path)
        header = plain_json(str(file["header"]))
        newest = int(header["format"])
        arrays = [file[f"leaf{i}"] for i in range(len(header["leaves"]))]
    except DAMAGED:
        raise ValueError(f"{str(path)!r} is damaged. Remove it, and the deployment begins anew; the history beside it goes too.") from None
    if newest > FORMAT:
        raise ValueError(f"{str(path)!r} has format {newest}, but this evenly reads up to {FORMAT}. Update evenly to go on.")
    return header, [array.view(jnp.dtype(entry["dtype"])) for array, entry in zip(arrays, header["leaves"], strict=True)]


def _described(leaf: Any) -> dict[str, Any]:
    """What npz does not keep: whether it was a plain number or an array of JAX, and types that NumPy does not know."""
    kind = type(leaf).__name__ if type(leaf) in PYTHON.values() else "jax" if isinstance(leaf, jax.Array) else "numpy"
    return {"kind": kind, "dtype": str(np.asarray(leaf).dtype), "weak": bool(getattr(leaf, "weak_type", False))}


def _restored(array: np.ndarray, entry: dict[str, Any]) -> Any:
    if entry["kind"] in PYTHON:
        return PYTHON[entry["kind"]](array.item())
    if entry["kind"] == "numpy":
        return array
    # A plain number gives way to the type of what it is multiplied with; arrays of the same type do not have to.
    return jnp.asarray(array.item()) if entry["weak"] and array.ndim == 0 else jnp.asarray(array)


def _form(leaf: Any) -> tuple[tuple[int, ...], str]:
    array = np.asarray(leaf)
    return tuple(array.shape), str(array.dtype)


def _first_difference(wanted: list[Any], found: list[Any]) -> str:
    if len(wanted) != len(found):
        return f"{len(found)} arrays, where {len(wanted)} are needed"
    want, got = next((w, f) for w, f in zip(wanted, found, strict=True) if w != f)
    return f"an array {got[1]}{list(got[0])}, where {want[1]}{list(want[0])} is needed"
