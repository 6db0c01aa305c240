"""The small network of E2FL for MNIST and FEMNIST, called LeNet there."""

import jax

from evenly.data.federation import Shard
from evenly.models.convolution import PIXELS, by_size, check_images, convolve, dense, max_pool, standardised, uniform_layer
from evenly.models.linear import check_sizes, cross_entropy, flat
from evenly.records import record, require, static
from evenly.types import Key, Tree


@record
class LeNet:
    """Two padded 3 x 3 convolutions with ReLU, a 2 x 2 max-pool, a dense layer with ReLU, and a softmax.

    1,625,866 parameters for ten digits; without biases, as in E2FL, 1,625,632. Images are [n, h, w] or [n, h, w, c]: bytes are
    divided by 255 and standardised with `mean` and `deviation`, floats are taken as they are. Starts as PyTorch's layers do.
    """

    classes: int = static(default=10, doc="classes to tell apart")
    shape: tuple[int, ...] = static(default=(28, 28, 1), doc="height, width and channels of an image")
    widths: tuple[int, ...] = static(default=(32, 64, 128), doc="channels of the two convolutions, units of the dense layer")
    bias: bool = static(default=True, doc="whether layers have biases; E2FL has none")
    mean: tuple[float, ...] = static(default=PIXELS["mnist"].mean, doc="subtracted from bytes / 255, by channel")
    deviation: tuple[float, ...] = static(default=PIXELS["mnist"].deviation, doc="what the difference is divided by")
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("lenet", self.reduction, classes=(self.classes, 2))
        check_images("lenet", self.shape, self.mean, self.deviation, least=2)
        legal = isinstance(self.widths, tuple) and len(self.widths) == 3 and all(isinstance(w, int) and w > 0 for w in self.widths)
        require(legal, f"lenet: widths must be three positive numbers, such as (32, 64, 128), got {self.widths!r}.")

    def init(self, key: Key) -> Tree:
        first, second, hidden = self.widths
        height, width, channels = self.shape
        shapes = {
            "conv1": (3, 3, channels, first),
            "conv2": (3, 3, first, second),
            "dense1": (height // 2 * (width // 2) * second, hidden),
            "dense2": (hidden, self.classes),
        }
        keys = jax.random.split(key, len(shapes))
        return {name: uniform_layer(k, shape, bias=self.bias) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}

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
            x = jax.nn.relu(convolve(x, params["conv1"], direct=direct))
            x = max_pool(jax.nn.relu(convolve(x, params["conv2"], direct=direct)))
            return dense(jax.nn.relu(dense(flat(x), params["dense1"])), params["dense2"], last=True)

        return by_size(logits, x)
