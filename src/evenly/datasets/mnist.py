"""MNIST: handwritten digits, 60,000 training and 10,000 test images (LeCun, Cortes and Burges)."""

import numpy as np

from evenly.data import Rows
from evenly.data.federation import Federation
from evenly.datasets.card import DatasetCard, Sizes
from evenly.datasets.idx import idx_layout, read_set
from evenly.datasets.images import Dealing, dealt, scaled

LAYOUT = idx_layout(
    "mnist",
    "MNIST",
    (
        (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
)


def mnist(
    partition: str = "dirichlet",
    *,
    clients: int = 10,
    beta: float = 0.5,
    train: float = 0.8,
    valid: float = 0.1,
    min_samples: int = 500,
    pixels: str = "unit",
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """The training images dealt to clients by label ("dirichlet") or evenly ("equal"); the official test images are central.

    `seed` deals the images, `split_seed` cuts each client's into training, validation and test images.
    """
    x, y, tested = read_set(LAYOUT)
    rows = Rows(scaled(x, pixels, x[~tested]), y, tuple("0123456789"), f"mnist {partition}")
    how = Dealing(partition, clients, beta, (train, valid), min_samples, seed)
    return dealt(rows, how, split_seed=split_seed, central=np.flatnonzero(tested))


CARD = DatasetCard(
    name="mnist",
    title="Handwritten digits, dealt to clients by label",
    load=mnist,
    layouts=(LAYOUT,),
    licence="Usually given as CC BY-SA 3.0 (not checked with the publisher).",
    provenance="LeCun, Cortes and Burges (1998), from NIST Special Databases 1 and 3.",
    citation="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition. Proc. IEEE 86(11), 1998.",
    notes=("Clients are invented: real writers are not known here. For digits by writer see femnist.",),
    expected=Sizes(clients=10, train=47962, valid=5999, test=6039, central=10000),
)
