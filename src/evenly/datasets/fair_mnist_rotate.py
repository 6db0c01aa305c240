"""FairMNISTRotate: MNIST in ten handwriting styles of very different popularity, made by rotating images (E2FL, Section 6).

1000 clients with 60 training images each belong to ten groups; a group's clients all write rotated by the same angle, and are
tested on all official test images rotated by it. Each group's test images lie in the federation once, and its clients share
their row numbers.

The paper says only that the groups G1 and G10 are minorities, G5 and G6 majorities, that G1 has 8 clients and G6 257. The sizes
here fit its Table 1 (means, variances and worst tenth, by group and by client, of FedAvg, IFCA and E2FL). It does not give the
angles either: the default turns ten groups once round; 10 degrees is the obvious alternative.
"""

from collections.abc import Sequence

import numpy as np

from evenly.data import Rows, federate
from evenly.data.federation import Federation
from evenly.data.partition import notation
from evenly.data.splits import Ragged
from evenly.datasets.card import DatasetCard, Sizes
from evenly.datasets.idx import read_set
from evenly.datasets.images import scaled
from evenly.datasets.mnist import LAYOUT
from evenly.randomness import generator
from evenly.records import replace, require

SIZES = (8, 28, 83, 152, 225, 257, 163, 66, 15, 3)
CHUNK = 4096  # images rotated at a time


def fair_mnist_rotate(
    *,
    sizes: Sequence[int] = SIZES,
    angle_step: float = 36.0,
    images: int = 60,
    test_images: int = 10_000,
    pixels: str = "bytes",
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Clients of group g write rotated by g times `angle_step` degrees; `client_group` says who belongs to which group.

    `sizes` are the groups' numbers of clients, `images` what each of them trains on, dealt by `seed`; the first `test_images`
    official test images test every group. There are no validation images, so `split_seed` has nothing to decide.
    """
    x, y, tested = read_set(LAYOUT)
    train, test = np.flatnonzero(~tested), np.flatnonzero(tested)[:test_images]
    _check(sizes, images, test_images, len(train), int(tested.sum()))
    clients, groups = sum(sizes), len(sizes)
    group = np.repeat(np.arange(groups), sizes)  # of each client
    own = generator(seed, "rotated clients").permutation(train)[: clients * images]
    parts = [own[np.repeat(group, images) == g] for g in range(groups)] + [test] * groups
    angles = [angle_step * g for g in range(groups)] * 2
    turned = np.concatenate([rotated(x[rows], angle) for rows, angle in zip(parts, angles, strict=True)])
    taken = np.concatenate(parts)
    # A training row lies where its client put it; groups' test rows follow, one block each.
    training = [np.arange(k * images, (k + 1) * images) for k in range(clients)]
    blocks = [len(own) + np.arange(g * len(test), (g + 1) * len(test)) for g in range(groups)]
    rows = Rows(scaled(turned, pixels, turned[: len(own)]), y[taken], tuple("0123456789"), "mnist rotated")
    nothing = Ragged.from_lists([np.zeros(0, int)] * clients)
    splits = Ragged.from_lists(training), nothing, Ragged.from_lists([blocks[g] for g in group])
    width = len(str(clients - 1))
    names = [f"{angle_step * g:g}° client {k:0{width}d}" for k, g in enumerate(group)]
    made = f"{notation('equal', clients=clients)}, each group rotated by another angle"
    return replace(federate(rows, splits, names=names, partition=made), client_group=group.astype(np.int32))


def rotated(x: np.ndarray, angle: float) -> np.ndarray:
    """Images [n, height, width, 1] of bytes turned counter-clockwise by `angle` degrees round their centre.

    Each pixel is read between the four nearest of where it came from (bilinear); outside the image everything is 0.
    """
    if angle % 360 == 0:
        return x
    height, width = x.shape[1:3]
    down, across = np.mgrid[:height, :width] - np.array([height - 1, width - 1]).reshape(2, 1, 1) / 2
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


def _check(sizes: Sequence[int], images: int, test_images: int, train: int, test: int) -> None:
    legal = len(sizes) >= 1 and all(isinstance(n, int | np.integer) and n >= 1 for n in sizes)
    require(legal, f"sizes must be each group's number of clients, at least 1, such as {SIZES}, got {sizes!r}.")
    require(images >= 1, f"images must be at least 1 for each client, got {images}.")
    wanted = sum(sizes) * images
    require(wanted <= train, f"{sum(sizes)} clients with {images} images each need {wanted} training images, but there are {train}.")
    require(1 <= test_images <= test, f"test_images must be between 1 and {test}, got {test_images}.")


CARD = DatasetCard(
    name="fair_mnist_rotate",
    title="Handwritten digits in ten rotations; groups of 3 to 257 clients",
    load=fair_mnist_rotate,
    layouts=(LAYOUT,),
    papers=("E2FL",),
    licence="That of MNIST, usually given as CC BY-SA 3.0 (not checked with the publisher).",
    provenance="Made here from MNIST, as described by Mozaffari and Houmansadr (E2FL).",
    citation="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition. Proc. IEEE 86(11), 1998.",
    notes=(
        "The paper gives two of the ten group sizes and no angles; the others were fitted to its Table 1 (`sizes`, `angle_step`).",
        "All clients of a group are tested on the same 10,000 images: a client's accuracy is its group's.",
        "Reads the files of mnist.",
    ),
    expected=Sizes(clients=1000, train=60000, valid=0, test=10_000_000),
)
