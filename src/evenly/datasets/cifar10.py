"""CIFAR-10: 32 x 32 colour pictures of ten things, 50,000 for training and 10,000 for test (Krizhevsky).

PropFair deals the 50,000 training pictures to ten clients by Dirichlet shares of each label (beta 0.5) and cuts every class
of every client in half for training and test. The official test pictures, which it leaves unused, are central here.
"""

import numpy as np

from evenly.data import Rows
from evenly.data.federation import Federation
from evenly.datasets.card import DatasetCard, Sizes
from evenly.datasets.cifar import check_labels, layouts, read_files, read_records
from evenly.datasets.files import Content, DataFile
from evenly.datasets.images import Dealing, dealt, scaled
from evenly.records import require

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER = "cifar-10-batches-bin"
SIZE = 30_730_000
BATCHES = {
    "data_batch_1.bin": (SIZE, "5dd7e06a14cb22eb9f671a540d1b7c25"),
    "data_batch_2.bin": (SIZE, "5ea93a67294ea407fff1d09f752e9692"),
    "data_batch_3.bin": (SIZE, "942cd6a4bcdd0dd3c604fbe906cb4421"),
    "data_batch_4.bin": (SIZE, "ae636b3ba5c66a11e91e8cb52e771fcb"),
    "data_batch_5.bin": (SIZE, "53f37980c15c3d472c316c40844f3f0d"),
    "test_batch.bin": (SIZE, "803d5f7f4d78ea53de84dbe85f74fb6d"),
}
ARCHIVE = DataFile(
    path="cifar10/cifar-10-binary.tar.gz",
    what="CIFAR-10, binary version",
    contents=(Content("md5:c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
    urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
)
LAYOUTS = layouts(ARCHIVE, FOLDER, BATCHES)


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
    """The training pictures dealt to clients by label; the official test pictures are central. Pixels stay bytes [n, 32, 32, 3].

    `fraction` takes the first so many pictures of every file, which are in random order: for short trials.
    """
    require(0 < fraction <= 1, f"fraction must be above 0 and at most 1, got {fraction}.")
    files = read_files(LAYOUTS)
    whole = [read_records(files[name], label_bytes=1, what=name) for name in BATCHES]
    parts = [(x[:n], y[:n]) for x, y in whole for n in [int(np.ceil(fraction * len(x)))]]
    x, y = np.concatenate([x for x, _ in parts]), check_labels(np.concatenate([y[:, 0] for _, y in parts]), len(CLASSES), "cifar10")
    tested = np.arange(len(x)) >= len(x) - len(parts[-1][0])
    rows = Rows(scaled(x, pixels, x[~tested]), y, CLASSES, f"cifar10 {partition}")
    how = Dealing(partition, clients, beta, (train, valid), min_samples, seed)
    return dealt(rows, how, split_seed=split_seed, central=np.flatnonzero(tested))


CARD = DatasetCard(
    name="cifar10",
    title="Small colour pictures of ten things, dealt to clients by label",
    load=cifar10,
    layouts=LAYOUTS,
    papers=("PropFair",),
    licence="None given by the publisher.",
    provenance="Krizhevsky, Nair and Hinton (2009), from the 80 million tiny images, which their authors withdrew in 2020.",
    citation="Krizhevsky: Learning multiple layers of features from tiny images. Technical report, University of Toronto, 2009.",
    notes=(
        "Clients are invented; a client is a mix of labels, not a person or an institution.",
        "PropFair's text says 60 % training pictures, its Table 2 counts 24,948 of 50,000: half, as here. "
        "It has no validation pictures; set valid=0.1 to tune.",
    ),
    expected=Sizes(clients=10, train=24974, valid=0, test=25026, central=10000),
)
