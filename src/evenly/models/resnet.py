"""ResNet-18 with group normalisation (He et al., 2016; Wu and He, 2018): PropFair's model for
CIFAR, with the stem for small pictures or the one for ImageNet.
"""

import math

import jax
import jax.numpy as jnp

from evenly.models.layers import (
    MOST_DIRECT,
    MOST_ROWS,
    PIXELS,
    check_images,
    convolve,
    dense,
    group_norm,
    in_chunks,
    pool_overlapping,
    standardised,
    uniform_layer,
)
from evenly.models.linear import Classifier, check_sizes
from evenly.models.pretrained import with_weights
from evenly.records import record, require, static
from evenly.types import Key, Tree


@record
class ResNet(Classifier):
    """ResNet-18: a stem, stages of basic blocks that double the channels and halve the image, a
    mean over pixels, and a softmax.

    It has 11,173,962 parameters for ten classes. Group normalisation uses the statistics of one
    image at a time, so that clients share none. Images are as in `LeNet`. Weights start as in
    PyTorch's layers, normalisations as the identity. A training step on 64 images needs 1.5 GiB of
    working memory on a CPU (`jax.checkpoint` around the convolutions did not lower it).

    Args:
        classes: Number of classes.
        shape: Height, width and channels of an image.
        width: Channels of the first stage.
        blocks: Number of blocks of each stage.
        groups: Number of groups of channels that are normalised together.
        mean: Mean of each channel of bytes divided by 255.
        deviation: Standard deviation of each channel of bytes divided by 255.
        direct: Whether to use the device's own convolution. By default on GPUs, where it is faster.
        precision: "float32", or "bfloat16" for convolutions and activations; parameters, updates,
            statistics and the loss stay float32.
        joint: Not supported; must be false.
        reduction: "mean" or "sum" of a batch's losses.
        stem: "small", a 3 x 3 convolution, or "imagenet", a 7 x 7 convolution and a pooling of 3 x
            3 pixels, both with stride 2.
        start: "uniform" for weights as PyTorch's layers draw them, or "kaiming" for convolutions as
            torchvision's ResNets draw them: normal with variance 2 / fan-out.
        weights: File with the state dict of a torchvision ResNet, from which parameters start.
            Scales and shifts of its batch normalisations become those of the group normalisations.
            The last layer is taken only if it has as many classes.

    Raises:
        ValueError: If a size or the precision is not legal, or if `weights` do not fit.

    Example:
        >>> shapes = jax.eval_shape(ResNet(classes=10).init, jax.random.key(0))
        >>> sum(array.size for array in jax.tree.leaves(shapes))
        11173962
    """

    classes: int = static(default=10, doc="number of classes")
    shape: tuple[int, ...] = static(
        default=(32, 32, 3), doc="height, width and channels of an image"
    )
    width: int = static(default=64, doc="channels of the first stage")
    blocks: tuple[int, ...] = static(default=(2, 2, 2, 2), doc="blocks of each stage")
    groups: int = static(default=2, doc="groups of channels that are normalised together")
    mean: tuple[float, ...] = static(
        default=PIXELS["cifar10"].mean, doc="subtracted from bytes / 255, by channel"
    )
    deviation: tuple[float, ...] = static(
        default=PIXELS["cifar10"].deviation, doc="what the difference is divided by"
    )
    direct: bool | None = static(
        default=None,
        doc="whether to use the device's own convolution; by default on a GPU, where it is faster",
    )
    precision: str = static(
        default="float32",
        choices=("float32", "bfloat16"),
        doc="'float32', or 'bfloat16' for convolutions and what passes between layers",
    )
    joint: bool = static(default=False)
    reduction: str = static(default="mean")
    stem: str = static(
        default="small",
        choices=("small", "imagenet"),
        doc="'small' (3 x 3), or 'imagenet' (7 x 7 with stride 2, then pooling)",
    )
    start: str = static(
        default="uniform",
        choices=("uniform", "kaiming"),
        doc="'uniform' as PyTorch's layers, or 'kaiming' as torchvision's ResNets",
    )
    weights: str = static(
        default="", doc="file with the state dict of a torchvision ResNet to start from"
    )

    def __post_init__(self) -> None:
        check_sizes(
            "resnet",
            self.reduction,
            classes=(self.classes, 2),
            width=(self.width, 1),
            groups=(self.groups, 1),
        )
        check_images("resnet", self.shape, self.mean, self.deviation, least=1)
        require(
            self.width % self.groups == 0,
            f"resnet: width must be a multiple of groups, got {self.width} and {self.groups}.",
        )
        legal = (
            isinstance(self.blocks, tuple)
            and bool(self.blocks)
            and all(isinstance(b, int) and b > 0 for b in self.blocks)
        )
        require(
            legal,
            "resnet: blocks must be a tuple of positive numbers, such as (2, 2, 2, 2), got"
            f" {self.blocks!r}.",
        )

    def init(self, key: Key) -> Tree:
        first, last, *keys = jax.random.split(key, 2 + len(self._plan()))
        widest, size = self.width * 2 ** (len(self.blocks) - 1), 7 if self._large() else 3
        kaiming = self.start == "kaiming"
        params = {
            "stem": _normed(first, (size, size, self.shape[2], self.width), kaiming),
            "blocks": [
                _block(k, inputs, outputs, kaiming)
                for k, (inputs, outputs, _) in zip(keys, self._plan(), strict=True)
            ],
            "dense": uniform_layer(last, (widest, self.classes)),
        }
        return with_weights(params, self.weights) if self.weights else params

    def _large(self) -> bool:
        return self.stem == "imagenet"

    def _plan(self) -> list[tuple[int, int, int]]:
        """Channels into a block, channels out of it, and its stride."""
        plan, inputs = [], self.width
        for stage, count in enumerate(self.blocks):
            outputs = self.width * 2**stage
            for i in range(count):
                plan.append((inputs, outputs, 2 if stage and i == 0 else 1))
                inputs = outputs
        return plan

    def logits(self, params: Tree, x: jax.Array) -> jax.Array:
        def network(x: jax.Array) -> jax.Array:
            x = standardised(x, self.mean, self.deviation).astype(self.precision)
            x = jax.nn.relu(self._apply(x, params["stem"], 2 if self._large() else 1))
            x = pool_overlapping(x) if self._large() else x
            for block, (_, _, stride) in zip(params["blocks"], self._plan(), strict=True):
                inner = jax.nn.relu(self._apply(x, block["first"], stride))
                aside = self._apply(x, block["aside"], stride) if "aside" in block else x
                x = jax.nn.relu(self._apply(inner, block["second"]) + aside)
            return dense(x.astype(jnp.float32).mean((1, 2)), params["dense"], last=True)

        return in_chunks(network, x, MOST_DIRECT if self._direct() else MOST_ROWS)

    def _direct(self) -> bool:
        return jax.default_backend() != "cpu" if self.direct is None else self.direct

    def _apply(self, x: jax.Array, part: Tree, stride: int = 1) -> jax.Array:
        conv = convolve(x, part["conv"], stride=stride, direct=self._direct())
        return group_norm(conv, part["norm"], groups=self.groups)


def _normed(key: Key, shape: tuple[int, ...], kaiming: bool) -> Tree:
    norm = {"w": jnp.ones(shape[-1]), "b": jnp.zeros(shape[-1])}
    return {"conv": _filters(key, shape) if kaiming else uniform_layer(key, shape, bias=False),
            "norm": norm}  # fmt: skip


def _filters(key: Key, shape: tuple[int, ...]) -> Tree:
    """Normal weights with variance 2 / fan-out, the pixels of a filter times its outputs."""
    fan_out = shape[0] * shape[1] * shape[3]
    return {"w": jax.random.normal(key, shape) * math.sqrt(2 / fan_out)}


def _block(key: Key, inputs: int, outputs: int, kaiming: bool) -> Tree:
    """Two convolutions and, where the number of channels changes, a third of size 1 for the
    residual connection.
    """
    first, second, aside = jax.random.split(key, 3)
    block = {
        "first": _normed(first, (3, 3, inputs, outputs), kaiming),
        "second": _normed(second, (3, 3, outputs, outputs), kaiming),
    }
    if inputs == outputs:
        return block
    return {**block, "aside": _normed(aside, (1, 1, inputs, outputs), kaiming)}
