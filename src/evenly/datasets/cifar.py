"""The binary format of CIFAR: per picture one byte per label, then 1,024 bytes each of red, green and blue, row by row.

Read from the published archive, or from its files unpacked. Nothing is unpickled.
"""

import tarfile
from pathlib import Path

import numpy as np

from evenly.datasets.files import Content, DataError, DataFile, Layout, use

SIDE = 32
PIXELS = 3 * SIDE * SIDE


def layouts(archive: DataFile, folder: str, sums: dict[str, tuple[int, str]]) -> tuple[Layout, Layout]:
    """The files unpacked (as `tar x` leaves them), or the archive; `sums` gives size and md5 of each file."""
    name = archive.path.split("/")[0]
    unpacked = tuple(
        DataFile(
            path=f"{name}/{folder}/{file}",
            what=f"{name} in the binary layout",
            contents=(Content(f"md5:{md5}", size),),
            by_hand=f"unpack {archive.path.split('/')[1]}.",
        )
        for file, (size, md5) in sums.items()
    )
    return unpacked, (archive,)


def read_files(accepted: tuple[Layout, Layout]) -> dict[str, bytes]:
    """The contents of the binary files by name, from whichever layout is there."""
    unpacked, _ = accepted
    layout, paths = use(accepted)
    if layout is unpacked:
        return {path.name: path.read_bytes() for path in paths}
    return read_archive(paths[0], [file.path.split("/", 1)[1] for file in unpacked])


def read_archive(path: Path, members: list[str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isfile() and member.name.removeprefix("./") in members:
                    stream = archive.extractfile(member)
                    contents[Path(member.name).name] = b"" if stream is None else stream.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{path} is not a whole archive: {error}. Delete it and get it again.") from None
    missing = [member for member in members if Path(member).name not in contents]
    if missing:
        raise DataError(f"{path} must hold {missing[0]}, but it does not. Is it the binary version?")
    return contents


def read_records(content: bytes, *, label_bytes: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Pictures uint8 [n, 32, 32, 3] and labels uint8 [n, label_bytes]."""
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(f"{what} must hold whole records of {record} bytes, got {len(content)} bytes. It may be cut off.")
    table = np.frombuffer(content, np.uint8).reshape(-1, record)
    planes = table[:, label_bytes:].reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), table[:, :label_bytes]


def write_records(x: np.ndarray, y: np.ndarray) -> bytes:
    """Pictures uint8 [n, 32, 32, 3] with labels [n] as the bytes of a CIFAR-10 file."""
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), PIXELS)
    return np.concatenate([np.asarray(y, np.uint8)[:, None], planes], axis=1).tobytes()


def check_labels(y: np.ndarray, classes: int, what: str) -> np.ndarray:
    if y.max(initial=0) >= classes:
        raise DataError(f"{what}: labels must be below {classes}, got {int(y.max())}. Is it another data set?")
    return y.astype(np.int32)
