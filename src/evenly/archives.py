"""Archives of arrays: npz files with a JSON header and named arrays.

Checkpoints of simulations, stored traces, states of deployments and trained models are archives.
The header holds a format number, a fingerprint where the file belongs to one particular run, and
further entries. An archive is written to a temporary file and renamed, so it is complete or absent.
Reading an archive never unpickles anything and refuses arrays that are larger than the file before
memory is allocated for them.
"""

import json
import math
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from evenly.types import Tree
from evenly.validation import check_kinds, plain_json, shortened
from evenly.writing import write_whole

T = TypeVar("T")

DEFLATE = 1032  # largest number of bytes that one compressed byte can expand to
LONGEST = 500  # characters of a reason: NumPy repeats a whole header in its own
# NumPy parses the header of an array as Python source, which fails in some Python versions when two
# threads do it at once (CPython issue 106905).
_READING = threading.Lock()


class DamagedError(ValueError):
    """A file is not a complete archive with the expected contents."""


class Archive(NamedTuple):
    """Contents of an archive: the entries of its header, and its arrays by name."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def leaves(self) -> list[np.ndarray]:
        """Arrays of an archive that was written with `leaves_of`, in order."""
        return [self.arrays[f"leaf{i}"] for i in range(len(self.arrays))]


def leaves_of(tree: Tree) -> dict[str, np.ndarray]:
    """Leaves of a pytree under the names that `Archive.leaves` expects."""
    return {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def write_archive(
    path: Path,
    arrays: Mapping[str, Any],
    entries: Mapping[str, Any],
    *,
    format: int = 0,
    fingerprint: str = "",
    compress: bool = False,
) -> Path:
    """Write arrays and a header to an npz file, atomically.

    Args:
        path: File to write. An existing file is replaced once the new one is complete.
        arrays: Arrays by name. The name "header" is reserved.
        entries: Further entries of the header; values that JSON can represent.
        format: Format number. 0 writes none: for formats whose older readers refuse additional
            entries.
        fingerprint: Identifies the run that the file belongs to. An empty fingerprint is not
            written.
        compress: Whether to compress the arrays.

    Returns:
        The path.
    """
    header = {
        **({"format": format} if format else {}),
        **({"fingerprint": fingerprint} if fingerprint else {}),
        **entries,
    }
    save: Callable[..., None] = np.savez_compressed if compress else np.savez
    return write_whole(path, lambda file: save(file, header=np.array(json.dumps(header)), **arrays))


def read_archive(path: Path, parse: Callable[[Archive], T], *, newest: int = 0) -> T:
    """Read an archive and return `parse` of its contents.

    Args:
        path: File to read.
        parse: Turns the contents into the result. Any error that unexpected contents cause in it
            (ValueError, KeyError, TypeError) is reported as damage.
        newest: Largest format number that `parse` reads. Files without a format number have format
            0.

    Raises:
        DamagedError: If the file is not a complete archive, or `parse` fails. The message is the
            reason.
        ValueError: If the file has a newer format.
    """
    arrays = _read_arrays(path)
    try:
        header = plain_json(str(arrays.pop("header")))
        check_kinds({"header": header}, {"header": dict[str, Any]})
        check_kinds(header, {"format": int, "fingerprint": str})
        if header.get("format", 0) <= newest:
            return parse(Archive(header, arrays))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(error) from None
    raise ValueError(
        f"{str(path)!r} has format {shortened(header['format'])}, but this version of evenly reads"
        f" up to format {newest}. Update evenly."
    )


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file, after each member's claimed size was checked."""
    try:
        size = path.stat().st_size
        with _READING, open(path, "rb") as raw:  # numpy leaves a damaged file open
            with zipfile.ZipFile(raw) as packed:
                for member in packed.infolist():
                    _check_member(packed, member, size)
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
    except MemoryError:  # the file is whole, but does not fit
        raise
    except Exception as error:  # zipfile, its decompressors and NumPy's parser have many of them
        raise _damaged(error) from None


def _damaged(error: Exception) -> DamagedError:
    return DamagedError(str(error)[:LONGEST] or type(error).__name__)


def _check_member(packed: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> None:
    """Refuse an array whose shape claims a different number of bytes than its part of the file
    holds.
    """
    stored = member.compress_type == zipfile.ZIP_STORED
    if member.compress_size > size or member.file_size > (
        member.compress_size if stored else DEFLATE * member.compress_size + 64
    ):
        raise ValueError(
            f"{member.filename} claims {member.file_size:,} bytes, more than the file can hold."
        )
    with packed.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        try:
            shape, _, dtype = read(file)
        except (MemoryError, RecursionError):
            raise ValueError(f"The header of {member.filename} is nested too deeply.") from None
        held = member.file_size - file.tell()
    needed = dtype.itemsize * math.prod(map(int, shape))  # Python integers do not overflow
    if dtype.hasobject or any(length < 0 for length in shape) or needed != held:
        raise ValueError(
            f"{member.filename} claims shape {shortened(shape)} of {dtype}, {needed:,} bytes, but"
            f" holds {held:,}."
        )
