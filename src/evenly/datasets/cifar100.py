"""CIFAR-100: 32 x 32 colour pictures of a hundred things, 50,000 for training and 10,000 for test (Krizhevsky).

PropFair deals the training pictures to ten clients by Dirichlet shares (beta 0.5); 60 % of every class of every client train.
"""

import numpy as np

from evenly.data import Rows
from evenly.data.federation import Federation
from evenly.datasets.card import DatasetCard
from evenly.datasets.cifar import check_labels, layouts, read_files, read_records
from evenly.datasets.files import Content, DataFile
from evenly.datasets.images import Dealing, dealt, scaled

CLASSES = (
    "apple", "aquarium fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy", "bridge", "bus",
    "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab",
    "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn mower", "leopard", "lion", "lizard", "lobster", "man", "maple tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak tree", "orange", "orchid", "otter", "palm tree", "pear", "pickup truck", "pine tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail",
    "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet pepper", "table", "tank", "telephone", "television", "tiger",
    "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow tree", "wolf", "woman", "worm",
)  # fmt: skip
FOLDER = "cifar-100-binary"
PARTS = {
    "train.bin": (153_700_000, "6172c7755cfe09b2fe270c85cebc1b15"),
    "test.bin": (30_740_000, "4499cfba6c016c1be1438163640a0898"),
}
ARCHIVE = DataFile(
    path="cifar100/cifar-100-binary.tar.gz",
    what="CIFAR-100, binary version",
    contents=(Content("md5:03b5dce01913d631647c71ecec9e9cb8", 168_513_733),),
    urls=("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
)
LAYOUTS = layouts(ARCHIVE, FOLDER, PARTS)


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
    """The training pictures dealt to clients by their fine label; the official test pictures are central."""
    files = read_files(LAYOUTS)
    parts = [read_records(files[name], label_bytes=2, what=name) for name in PARTS]
    # Each record starts with the coarse label (of 20), then the fine one (of 100).
    x, y = np.concatenate([x for x, _ in parts]), check_labels(np.concatenate([y[:, 1] for _, y in parts]), len(CLASSES), "cifar100")
    tested = np.arange(len(x)) >= len(parts[0][0])
    rows = Rows(scaled(x, pixels, x[~tested]), y, CLASSES, f"cifar100 {partition}")
    how = Dealing(partition, clients, beta, (train, valid), min_samples, seed)
    return dealt(rows, how, split_seed=split_seed, central=np.flatnonzero(tested))


CARD = DatasetCard(
    name="cifar100",
    title="Small colour pictures of a hundred things, dealt to clients by label",
    load=cifar100,
    layouts=LAYOUTS,
    papers=("PropFair",),
    licence="None given by the publisher.",
    provenance="Krizhevsky, Nair and Hinton (2009), from the 80 million tiny images, which their authors withdrew in 2020.",
    citation="Krizhevsky: Learning multiple layers of features from tiny images. Technical report, University of Toronto, 2009.",
    notes=(
        "Clients are invented; a client is a mix of labels, not a person or an institution.",
        "PropFair's text says 50 % training pictures, its Table 2 counts 29,636 of 50,000: 60 %, as here.",
        "Tested on files made in the published format, not on the published files themselves.",
    ),
)
