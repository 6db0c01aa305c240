"""The small network that PropFair trains on CINIC-10: two convolutions and three dense layers."""

import jax

from evenly.data.federation import Shard
from evenly.models.convolution import PIXELS, by_size, check_images, convolve, dense, max_pool, standardised, uniform_layer
from evenly.models.linear import check_sizes, cross_entropy, flat
from evenly.records import record, require, static
from evenly.types import Key, Tree


@record
class CNN:
    """Two 5 x 5 convolutions without padding, each with ReLU and a 2 x 2 max-pool, then dense layers with ReLU, and a softmax.

    PropFair (Table 2) says "2 Conv + 3 FC" and no sizes; these are those of PyTorch's tutorial, which many federated
    programs use for 32 x 32 images: 62,006 parameters for ten classes. Images, standardisation and start are as in `LeNet`.
    """

    classes: int = static(default=10, doc="classes to tell apart")
    shape: tuple[int, ...] = static(default=(32, 32, 3), doc="height, width and channels of an image")
    channels: tuple[int, ...] = static(default=(6, 16), doc="channels of the convolutions")
    hidden: tuple[int, ...] = static(default=(120, 84), doc="units of the dense layers before the last")
    kernel: int = static(default=5, doc="height and width of the convolutions")
    mean: tuple[float, ...] = static(default=PIXELS["cinic10"].mean, doc="subtracted from bytes / 255, by channel")
    deviation: tuple[float, ...] = static(default=PIXELS["cinic10"].deviation, doc="what the difference is divided by")
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("cnn", self.reduction, classes=(self.classes, 2), kernel=(self.kernel, 1))
        for name, widths in (("channels", self.channels), ("hidden", self.hidden)):
            legal = isinstance(widths, tuple) and bool(widths) and all(isinstance(w, int) and w > 0 for w in widths)
            require(legal, f"cnn: {name} must be a tuple of positive numbers, got {widths!r}.")
        least = 1
        for _ in self.channels:
            least = 2 * least + self.kernel - 1
        check_images("cnn", self.shape, self.mean, self.deviation, least=least)

    def init(self, key: Key) -> Tree:
        height, width, _ = self.shape
        for _ in self.channels:
            height, width = (height - self.kernel + 1) // 2, (width - self.kernel + 1) // 2
        inputs, units = (self.shape[2], *self.channels), (height * width * self.channels[-1], *self.hidden, self.classes)
        first, second = jax.random.split(key)
        return {
            "convolutions": [
                uniform_layer(k, (self.kernel, self.kernel, a, b))
                for k, a, b in zip(jax.random.split(first, len(self.channels)), inputs[:-1], inputs[1:], strict=True)
            ],
            "dense": [
                uniform_layer(k, (a, b))
                for k, a, b in zip(jax.random.split(second, len(self.hidden) + 1), units[:-1], units[1:], strict=True)
            ],
        }

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        return cross_entropy(self._logits(params, shard.x), shard.y)

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return self._logits(params, x).argmax(1)

    def judge(self, params: Tree, shard: Shard) -> tuple[jax.Array, jax.Array]:
        logits = self._logits(params, shard.x)
        return cross_entropy(logits, shard.y), logits.argmax(1)

    def probabilities(self, params: Tree, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(self._logits(params, x), axis=1)

    def _logits(self, params: Tree, x: jax.Array) -> jax.Array:
        def logits(x: jax.Array, *, direct: bool) -> jax.Array:
            x = standardised(x, self.mean, self.deviation)
            for layer in params["convolutions"]:
                x = max_pool(jax.nn.relu(convolve(x, layer, padding="valid", direct=direct)))
            x = flat(x)
            for layer in params["dense"][:-1]:
                x = jax.nn.relu(dense(x, layer))
            return dense(x, params["dense"][-1], last=True)

        return by_size(logits, x)
