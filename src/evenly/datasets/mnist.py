"""Pictures of 28 by 28 pixels: MNIST, Fashion-MNIST and FairMNISTRotate."""

from collections.abc import Sequence

import numpy as np

from evenly.data import Rows, federate, official
from evenly.data.federation import Federation
from evenly.data.partition import notation
from evenly.data.splits import Ragged
from evenly.datasets.files import DatasetCard, Sizes
from evenly.datasets.formats import idx_layout, read_idx_set
from evenly.datasets.partitioning import ImagePartition, partition_images, scale_pixels
from evenly.randomness import generator
from evenly.records import replace, require

# MNIST: handwritten digits, 60,000 training and 10,000 test images (LeCun, Cortes and Burges).

MNIST_LAYOUT = idx_layout(
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
    """Partition the training images by label ("dirichlet") or evenly ("equal"). The official test
    images are the central test set.

    `seed` draws the partition, `split_seed` divides each client's images into training, validation
    and test images.
    """
    x, y, in_test = read_idx_set(MNIST_LAYOUT)
    rows = Rows(scale_pixels(x, pixels, x[~in_test]), y, tuple("0123456789"), f"mnist {partition}")
    split = ImagePartition(partition, clients, beta, (train, valid), min_samples, seed)
    return partition_images(rows, split, split_seed=split_seed, central=np.flatnonzero(in_test))


CARD = DatasetCard(
    name="mnist",
    title="Handwritten digits, dealt to clients by label",
    load=mnist,
    layouts=(MNIST_LAYOUT,),
    licence="Usually given as CC BY-SA 3.0 (not checked with the publisher).",
    provenance="LeCun, Cortes and Burges (1998), from NIST Special Databases 1 and 3.",
    citation=(
        "LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition."
        " Proc. IEEE 86(11), 1998."
    ),
    notes=(
        "Clients are invented: real writers are not known here. For digits by writer see femnist.",
    ),
    expected=Sizes(clients=10, train=47962, valid=5999, test=6039, central=10000),
)


# Fashion-MNIST: 28 x 28 pictures of clothes, 60,000 training and 10,000 test images (Zalando).
#
# The default is the federation of AFL, q-FFL and p-FFL: three clients that hold one class each,
# shirts, pullovers and T-shirts, which are hard to tell apart. The authors' code standardises every
# pixel with all 60,000 training images and validates on the test images; here validation images are
# taken from the training images.

CLASSES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
TOPS = ("T-shirt", "pullover", "shirt")  # classes 0, 2 and 6 become 0, 1 and 2
CLIENTS = ("shirt", "pullover", "T-shirt")  # the order of the papers' tables
KINDS = ("tops", "all")

FASHION_LAYOUT = idx_layout(
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
    """Return three clients with one class each ("tops"), or all ten classes partitioned among
    clients ("all").

    "tops" uses only `valid` and `pixels`: the training images are those of the three classes less
    the share `valid`, and each client is tested on its official test images. For "all" the official
    test images are the central test set.
    """
    require(kind in KINDS, f"fashion_mnist: kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    x, y, in_test = read_idx_set(FASHION_LAYOUT)
    if kind == "tops":
        return _tops(x, y, in_test, pixels=pixels, valid=valid, split_seed=split_seed)
    rows = Rows(scale_pixels(x, pixels, x[~in_test]), y, CLASSES, f"fashion-mnist {partition}")
    split = ImagePartition(partition, clients, beta, (train, valid), min_samples, seed)
    return partition_images(rows, split, split_seed=split_seed, central=np.flatnonzero(in_test))


def _tops(
    x: np.ndarray, y: np.ndarray, in_test: np.ndarray, *, pixels: str, valid: float, split_seed: int
) -> Federation:
    numbers = [CLASSES.index(name) for name in TOPS]
    chosen = np.isin(y, numbers)
    label = np.searchsorted(numbers, y[chosen])
    owner = np.array([CLIENTS.index(name) for name in TOPS])[label]
    rows = Rows(scale_pixels(x[chosen], pixels, x[~in_test]), label, TOPS, "fashion-mnist tops")
    return official(rows, owner, in_test[chosen], names=CLIENTS, valid=valid, split_seed=split_seed)


FASHION_CARD = DatasetCard(
    name="fashion_mnist",
    title="Pictures of clothes; shirts, pullovers and T-shirts are three clients",
    load=fashion_mnist,
    layouts=(FASHION_LAYOUT,),
    papers=("q-FFL", "p-FFL"),
    licence="MIT",
    provenance="Zalando SE (2017), pictures of its shop's articles.",
    citation=(
        "Xiao, Rasul, Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine"
        " learning. arXiv:1708.07747, 2017."
    ),
    notes=(
        (
            "Each client of the default federation holds a single class, so its accuracy is that"
            " class's recall."
        ),
        (
            "The public q-FFL code validates on the test images; here a tenth of the training"
            " images validates."
        ),
    ),
    expected=Sizes(clients=3, train=16200, valid=1800, test=3000),
)


# FairMNISTRotate: MNIST in ten handwriting styles of very different popularity, made by rotating
# images (E2FL, Section 6).
#
# 1000 clients with 60 training images each belong to ten groups; a group's clients all write
# rotated by the same angle, and are tested on all official test images rotated by it. Each group's
# test images lie in the federation once, and its clients share their row numbers.
#
# The paper says only that the groups G1 and G10 are minorities, G5 and G6 majorities, that G1 has 8
# clients and G6 257. The sizes here fit its Table 1 (means, variances and worst tenth, by group and
# by client, of FedAvg, IFCA and E2FL). It does not give the angles either: the default turns ten
# groups once round; 10 degrees is the obvious alternative.

SIZES = (8, 28, 83, 152, 225, 257, 163, 66, 15, 3)
CHUNK = 4096  # images rotated at a time


def fair_mnist_rotate(
    *,
    sizes: Sequence[int] = SIZES,
    angle_step: float = 36.0,
    images: int = 60,
    reuse: bool = False,
    test_images: int = 10_000,
    pixels: str = "bytes",
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Rotate the images of clients in group g by g times `angle_step` degrees. `client_group` has
    the group of each client.

    `sizes` has the number of clients of each group. Each client trains on `images` images, drawn by
    `seed`. No two clients have the same image, or, with `reuse`, no two clients of a group: every
    group then draws from all images, so that clients may have more of them. The first `test_images`
    official test images test every group. There are no validation images, so `split_seed` has no
    effect.
    """
    x, y, in_test = read_idx_set(MNIST_LAYOUT)
    train, test = np.flatnonzero(~in_test), np.flatnonzero(in_test)[:test_images]
    _check(sizes, images, test_images, len(train), int(in_test.sum()), reuse=reuse)
    clients, groups = sum(sizes), len(sizes)
    group = np.repeat(np.arange(groups), sizes)  # of each client
    drawn = _draw_images(train, sizes, images, reuse, seed)
    parts = [drawn[np.repeat(group, images) == g] for g in range(groups)] + [test] * groups
    angles = [angle_step * g for g in range(groups)] * 2
    images_of_all = np.concatenate(
        [rotate_images(x[rows], angle) for rows, angle in zip(parts, angles, strict=True)]
    )
    source = np.concatenate(parts)
    # Training rows come first, client by client; the test rows of the groups follow, one block
    # each.
    training = [np.arange(k * images, (k + 1) * images) for k in range(clients)]
    blocks = [len(drawn) + np.arange(g * len(test), (g + 1) * len(test)) for g in range(groups)]
    rows = Rows(
        scale_pixels(images_of_all, pixels, images_of_all[: len(drawn)]),
        y[source],
        tuple("0123456789"),
        "mnist rotated",
    )
    nothing = Ragged.from_lists([np.zeros(0, int)] * clients)
    splits = Ragged.from_lists(training), nothing, Ragged.from_lists([blocks[g] for g in group])
    width = len(str(clients - 1))
    names = [f"{angle_step * g:g}° client {k:0{width}d}" for k, g in enumerate(group)]
    description = f"{notation('equal', clients=clients)}, each group rotated by another angle"
    return replace(
        federate(rows, splits, names=names, partition=description),
        client_group=group.astype(np.int32),
    )


def rotate_images(x: np.ndarray, angle: float) -> np.ndarray:
    """Rotate images [n, height, width, 1] of bytes counter-clockwise by `angle` degrees around
    their centre.

    Pixels are interpolated bilinearly. Outside the image everything is 0.
    """
    if angle % 360 == 0:
        return x
    height, width = x.shape[1:3]
    down, across = (
        np.mgrid[:height, :width] - np.array([height - 1, width - 1]).reshape(2, 1, 1) / 2
    )
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    source_down = cos * down + sin * across + (height - 1) / 2
    source_across = cos * across - sin * down + (width - 1) / 2
    top, left = np.floor(source_down).astype(int), np.floor(source_across).astype(int)
    flat = x.reshape(len(x), -1)
    out = np.empty_like(flat)
    for start in range(0, len(x), CHUNK):
        block = flat[start : start + CHUNK].astype(np.float32)
        total = np.zeros_like(block)
        for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
            weight = (1 - np.abs(source_down - top - i)) * (1 - np.abs(source_across - left - j))
            inside = (top + i >= 0) & (top + i < height) & (left + j >= 0) & (left + j < width)
            pixel = np.where(inside, (top + i) * width + left + j, 0).reshape(-1)
            total += block[:, pixel] * np.where(inside, weight, 0).reshape(-1).astype(np.float32)
        out[start : start + CHUNK] = np.rint(total)
    return out.reshape(x.shape)


def _draw_images(
    train: np.ndarray, sizes: Sequence[int], images: int, reuse: bool, seed: int
) -> np.ndarray:
    """Return the numbers of the clients' images, client by client."""
    if not reuse:
        return generator(seed, "rotated clients").permutation(train)[: sum(sizes) * images]
    return np.concatenate(
        [
            generator(seed, "rotated group", g).permutation(train)[: clients * images]
            for g, clients in enumerate(sizes)
        ]
    )


def _check(
    sizes: Sequence[int], images: int, test_images: int, train: int, test: int, *, reuse: bool
) -> None:
    valid = len(sizes) >= 1 and all(isinstance(n, int | np.integer) and n >= 1 for n in sizes)
    require(
        valid,
        f"sizes must be each group's number of clients, at least 1, such as {SIZES}, got"
        f" {sizes!r}.",
    )
    require(images >= 1, f"images must be at least 1 for each client, got {images}.")
    clients = max(sizes) if reuse else sum(sizes)
    require(
        clients * images <= train,
        f"{clients} clients with {images} images each need {clients * images} training images, but"
        f" there are {train}.{'' if reuse else ' Pass reuse=true to share images between groups.'}",
    )
    require(
        1 <= test_images <= test, f"test_images must be between 1 and {test}, got {test_images}."
    )


ROTATE_CARD = DatasetCard(
    name="fair_mnist_rotate",
    title="Handwritten digits in ten rotations; groups of 3 to 257 clients",
    load=fair_mnist_rotate,
    layouts=(MNIST_LAYOUT,),
    papers=("E2FL",),
    licence="That of MNIST, usually given as CC BY-SA 3.0 (not checked with the publisher).",
    provenance="Made here from MNIST, as described by Mozaffari and Houmansadr (E2FL).",
    citation=(
        "LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition."
        " Proc. IEEE 86(11), 1998."
    ),
    notes=(
        (
            "The paper gives two of the ten group sizes and no angles; the others were fitted to"
            " its Table 1 (`sizes`, `angle_step`)."
        ),
        (
            "All clients of a group are tested on the same 10,000 images: a client's accuracy is"
            " its group's."
        ),
        "Reads the files of mnist.",
    ),
    expected=Sizes(clients=1000, train=60000, valid=0, test=10_000_000),
)
