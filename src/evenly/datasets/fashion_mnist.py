"""Fashion-MNIST: 28 x 28 pictures of clothes, 60,000 training and 10,000 test images (Zalando).

The default is the federation of AFL, q-FFL and p-FFL: three clients that hold one class each, shirts, pullovers and
T-shirts, which are hard to tell apart. The authors' code standardises every pixel with all 60,000 training images and
validates on the test images; here validation images are taken from the training images.
"""

import numpy as np

from evenly.data import Rows, official
from evenly.data.federation import Federation
from evenly.datasets.card import DatasetCard, Sizes
from evenly.datasets.idx import idx_layout, read_set
from evenly.datasets.images import Dealing, dealt, scaled

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
TOPS = ("T-shirt", "pullover", "shirt")  # classes 0, 2 and 6 become 0, 1 and 2
CLIENTS = ("shirt", "pullover", "T-shirt")  # the order of the papers' tables
KINDS = ("tops", "all")

LAYOUT = idx_layout(
    "fashion_mnist",
    "Fashion-MNIST",
    (
        (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)


def fashion_mnist(
    kind: str = "tops",
    *,
    partition: str = "dirichlet",
    clients: int = 10,
    beta: float = 0.5,
    train: float = 0.8,
    valid: float = 0.1,
    min_samples: int = 500,
    pixels: str = "standard",
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Three clients with one class each ("tops"), or all ten classes dealt to clients ("all").

    For "tops" only `valid` and `pixels` count: the training images are those of the three classes less the share `valid`,
    and each client is tested on its official test images. For "all" the official test images are central.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    x, y, tested = read_set(LAYOUT)
    if kind == "tops":
        return _tops(x, y, tested, pixels=pixels, valid=valid, split_seed=split_seed)
    rows = Rows(scaled(x, pixels, x[~tested]), y, CLASSES, f"fashion-mnist {partition}")
    how = Dealing(partition, clients, beta, (train, valid), min_samples, seed)
    return dealt(rows, how, split_seed=split_seed, central=np.flatnonzero(tested))


def _tops(x: np.ndarray, y: np.ndarray, tested: np.ndarray, *, pixels: str, valid: float, split_seed: int) -> Federation:
    numbers = [CLASSES.index(name) for name in TOPS]
    kept = np.isin(y, numbers)
    label = np.searchsorted(numbers, y[kept])
    owner = np.array([CLIENTS.index(name) for name in TOPS])[label]
    rows = Rows(scaled(x[kept], pixels, x[~tested]), label, TOPS, "fashion-mnist tops")
    return official(rows, owner, tested[kept], names=CLIENTS, valid=valid, split_seed=split_seed)


CARD = DatasetCard(
    name="fashion_mnist",
    title="Pictures of clothes; shirts, pullovers and T-shirts are three clients",
    load=fashion_mnist,
    layouts=(LAYOUT,),
    papers=("q-FFL", "p-FFL"),
    licence="MIT",
    provenance="Zalando SE (2017), pictures of its shop's articles.",
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine learning. arXiv:1708.07747, 2017.",
    notes=(
        "Each client of the default federation holds a single class, so its accuracy is that class's recall.",
        "The public q-FFL code validates on the test images; here a tenth of the training images validates.",
    ),
    expected=Sizes(clients=3, train=16200, valid=1800, test=3000),
)
