"""CINIC-10: the classes of CIFAR-10 with 270,000 pictures of 32 x 32, from CIFAR-10 and ImageNet.

Published as folders train, valid and test, in each a folder per class, in each PNG pictures; read from the archive or unpacked.
Decoding takes about a minute, so `pack` writes the pictures once in CIFAR-10's binary layout, which is then preferred.

PropFair pools all pictures, deals them to 50 clients by Dirichlet shares (beta 0.5) and trains on half of each.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from evenly.data import Rows
from evenly.data.federation import Federation
from evenly.datasets.card import DatasetCard
from evenly.datasets.cifar import check_labels, read_records, write_records
from evenly.datasets.cifar10 import CLASSES
from evenly.datasets.files import Content, DataError, DataFile, complete, data_folder, use
from evenly.datasets.images import Dealing, dealt, scaled
from evenly.datasets.png import decode
from evenly.writing import write_whole

SPLITS = ("train", "valid", "test")
BATCH = 2000  # pictures decoded together
ARCHIVE = DataFile(
    path="cinic10/CINIC-10.tar.gz",
    what="CINIC-10",
    contents=(Content("md5:6ee4d0c996905fe93221de577967a372", 687_544_992),),
    urls=("https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",),
)
PACKED = tuple(DataFile(path=f"cinic10/{split}.bin", what=f"CINIC-10 {split} pictures, packed by evenly") for split in SPLITS)


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
    """All pictures, whatever their published split, dealt to clients by label. Pixels stay bytes [n, 32, 32, 3]."""
    parts = read_packed() if complete(PACKED) else read_pictures()
    x = np.concatenate([parts[split][0] for split in SPLITS])
    y = np.concatenate([parts[split][1] for split in SPLITS])
    rows = Rows(scaled(x, pixels), check_labels(y, len(CLASSES), "cinic10"), CLASSES, f"cinic10 {partition}")
    return dealt(rows, Dealing(partition, clients, beta, (train, valid), min_samples, seed), split_seed=split_seed)


def pack() -> list[Path]:
    """Write the pictures as cinic10/train.bin, valid.bin and test.bin in CIFAR-10's layout, to be read in seconds."""
    parts = read_pictures()
    return [
        write_whole(data_folder() / file.path, lambda out, split=split: out.write(write_records(*parts[split])))
        for split, file in zip(SPLITS, PACKED, strict=True)
    ]


def read_packed() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    _, paths = use((PACKED,))
    records = [read_records(path.read_bytes(), label_bytes=1, what=str(path)) for path in paths]
    return {split: (x, y[:, 0]) for split, (x, y) in zip(SPLITS, records, strict=True)}


def read_pictures() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pictures and labels of each split, in the order of class and file name."""
    folder = data_folder() / "cinic10"
    files = _in_folder(folder) if all((folder / split).is_dir() for split in SPLITS) else _in_archive(use(((ARCHIVE,),))[1][0])
    names: list[tuple[str, str, str]] = []
    batches: list[np.ndarray] = []
    waiting: list[bytes] = []
    for name, content in files:
        names.append(name)
        waiting.append(content)
        if len(waiting) == BATCH:
            batches.append(decode(waiting, f"cinic10: a picture near {'/'.join(name)}"))
            waiting.clear()
    if waiting:
        batches.append(decode(waiting, f"cinic10: a picture near {'/'.join(names[-1])}"))
    return _by_split(names, batches)


def _by_split(names: list[tuple[str, str, str]], batches: list[np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    parts, pictures = {}, np.concatenate(batches) if batches else np.zeros((0, 32, 32, 3), np.uint8)
    for split in SPLITS:
        order = sorted((name, i) for i, name in enumerate(names) if name[0] == split)
        if not order:
            raise DataError(f"cinic10: there must be PNG pictures in {split}/<class>/, found none.")
        chosen = np.array([i for _, i in order])
        parts[split] = pictures[chosen], np.array([CLASSES.index(name[1]) for name, _ in order], np.uint8)
    return parts


def _in_folder(folder: Path) -> Iterator[tuple[tuple[str, str, str], bytes]]:
    for split in SPLITS:
        for path in sorted((folder / split).glob("*/*.png")):
            yield _named(path.relative_to(folder).as_posix()), path.read_bytes()


def _in_archive(path: Path) -> Iterator[tuple[tuple[str, str, str], bytes]]:
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".png"):
                    stream = archive.extractfile(member)
                    yield _named(member.name), b"" if stream is None else stream.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{path} is not a whole archive: {error}. Delete it and get it again.") from None


def _named(path: str) -> tuple[str, str, str]:
    split, kind, file = PurePosixPath(path).parts[-3:]
    if split not in SPLITS or kind not in CLASSES:
        raise DataError(f"cinic10: pictures must lie in train, valid or test and there in a folder of their class, found {path}.")
    return split, kind, file


CARD = DatasetCard(
    name="cinic10",
    title="270,000 small colour pictures of ten things, dealt to 50 clients by label",
    load=cinic10,
    layouts=(PACKED, (ARCHIVE,)),
    papers=("PropFair",),
    licence="CC BY 4.0 for the collection (as the University of Edinburgh gives it); its pictures come from CIFAR-10 and ImageNet.",
    provenance="Darlow, Crowley, Antoniou and Storkey (2018), University of Edinburgh.",
    citation="Darlow et al.: CINIC-10 is not ImageNet or CIFAR-10. arXiv:1810.03505, 2018.",
    notes=(
        "Clients are invented; a client is a mix of labels, not a person or an institution.",
        "PropFair's Table 2 counts 269,679 of the 270,000 pictures and does not say which are left out; here all are dealt.",
        "Tested on files made in the published format, not on the published files themselves.",
    ),
)
