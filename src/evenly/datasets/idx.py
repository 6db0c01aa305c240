"""The IDX format of MNIST and Fashion-MNIST: a big-endian header, then bytes."""

import gzip
import zlib
from pathlib import Path

import numpy as np

from evenly.datasets.files import Content, DataError, DataFile, use

MAGIC = 0x08  # unsigned bytes
NAMES = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def read_idx(path: Path) -> np.ndarray:
    """The array in a gzipped IDX file of bytes."""
    try:
        with gzip.open(path, "rb") as stream:
            raw = stream.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file: {error}. Delete it and get it again.") from None
    axes = raw[3] if len(raw) >= 4 else 0
    if len(raw) < 4 + 4 * axes or raw[:3] != bytes([0, 0, MAGIC]):
        raise DataError(f"{path} must be an IDX file of bytes (it starts 00 00 08), found {raw[:4].hex(' ') or 'nothing'}.")
    shape = tuple(np.frombuffer(raw, ">u4", axes, 4).tolist())
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * axes)
    if len(values) != np.prod(shape):
        raise DataError(f"{path} says it holds {' x '.join(map(str, shape))} bytes, but {len(values)} follow. Get it again.")
    return values.reshape(shape)


def idx_layout(name: str, what: str, sums: tuple[tuple[int, str], ...], bases: tuple[str, ...]) -> tuple[DataFile, ...]:
    """The four files of an MNIST-like data set."""
    kinds = ("training images", "training labels", "test images", "test labels")
    return tuple(
        DataFile(
            path=f"{name}/{file}",
            what=f"{what} {kind}",
            contents=(Content(f"sha256:{digest}", size),),
            urls=tuple(f"{base}{file}" for base in bases),
        )
        for file, kind, (size, digest) in zip(NAMES, kinds, sums, strict=True)
    )


def read_set(layout: tuple[DataFile, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images uint8 [n, 28, 28, 1], labels, and which are official test images. Training images come first."""
    _, paths = use((layout,))
    train_x, train_y, test_x, test_y = (read_idx(path) for path in paths)
    for images, labels, path in ((train_x, train_y, paths[0]), (test_x, test_y, paths[2])):
        if images.ndim != 3 or len(images) != len(labels):
            raise DataError(f"{path} must hold one image per label, got shape {images.shape} for {len(labels)} labels.")
    tested = np.repeat([False, True], [len(train_y), len(test_y)])
    return np.concatenate([train_x, test_x])[..., None], np.concatenate([train_y, test_y]), tested
