"""Neural networks: perceptron, LeNet, a small convolutional network, a character LSTM, and modules
of equinox.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from evenly.models.layers import (
    PIXELS,
    by_size,
    check_images,
    convolve,
    dense,
    in_chunks,
    max_pool,
    standardised,
    uniform_layer,
)
from evenly.models.linear import Classifier, check_sizes, flat
from evenly.models.lstm import lstm, lstm_layer
from evenly.records import record, require, static
from evenly.types import Key, Tree

# A multilayer perceptron with ReLU.


@record
class MLP(Classifier):
    """Multilayer perceptron: dense layers with ReLU, then a softmax over the classes.

    Weights start normal with variance 2 / inputs before a ReLU (He) and 1 / inputs in the last
    layer, so that the logits of standardised features start with a variance of about 1. Biases
    start at zero.

    Args:
        features: Number of features.
        classes: Number of classes.
        hidden: Widths of the hidden layers.
        bias: Whether layers have biases.
        joint: Not supported; must be false.
        reduction: "mean" or "sum" of a batch's losses.

    Raises:
        ValueError: If a size is not legal.

    Example:
        >>> task = MLP(features=4, classes=2, hidden=(8, 8))
        >>> task.predict(task.init(jax.random.key(0)), jnp.ones((5, 4))).shape
        (5,)
    """

    features: int = static()
    classes: int = static()
    hidden: tuple[int, ...] = static(default=(64,))
    bias: bool = static(default=True)
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("mlp", self.reduction, features=(self.features, 1), classes=(self.classes, 2))
        legal = (
            isinstance(self.hidden, tuple)
            and bool(self.hidden)
            and all(isinstance(h, int) and h > 0 for h in self.hidden)
        )
        require(
            legal,
            f"mlp: hidden must be a tuple of positive widths, such as (64,), got {self.hidden!r}.",
        )

    def init(self, key: Key) -> Tree:
        widths = (self.features, *self.hidden, self.classes)
        gains = [2.0] * len(self.hidden) + [1.0]
        keys = jax.random.split(key, len(gains))
        return [
            {
                "w": jax.random.normal(k, (a, b)) * jnp.sqrt(gain / a),
                **({"b": jnp.zeros((b,))} if self.bias else {}),
            }
            for k, a, b, gain in zip(keys, widths[:-1], widths[1:], gains, strict=True)
        ]

    def logits(self, params: Tree, x: jax.Array) -> jax.Array:
        x = flat(x)
        for layer in params[:-1]:
            x = jax.nn.relu(dense(x, layer))
        return dense(x, params[-1], last=True)


# The small network of E2FL for MNIST and FEMNIST, called LeNet there.


@record
class LeNet(Classifier):
    """Two padded 3 x 3 convolutions with ReLU, a 2 x 2 max-pool, a dense layer with ReLU, and a
    softmax.

    It has 1,625,866 parameters for ten digits; without biases, as in E2FL, 1,625,632. Images are
    [n, h, w] or [n, h, w, c]. Bytes are divided by 255 and standardised with `mean` and
    `deviation`; floats are used unchanged. Parameters start as in PyTorch's layers.

    Args:
        classes: Number of classes.
        shape: Height, width and channels of an image.
        widths: Channels of the two convolutions and units of the dense layer.
        bias: Whether layers have biases.
        mean: Mean of each channel of bytes divided by 255.
        deviation: Standard deviation of each channel of bytes divided by 255.
        joint: Not supported; must be false.
        reduction: "mean" or "sum" of a batch's losses.

    Raises:
        ValueError: If a size is not legal, or `mean` or `deviation` do not have one number for each
            channel.

    Example:
        >>> shapes = jax.eval_shape(LeNet(classes=10).init, jax.random.key(0))
        >>> sum(array.size for array in jax.tree.leaves(shapes))
        1625866
    """

    classes: int = static(default=10, doc="number of classes")
    shape: tuple[int, ...] = static(
        default=(28, 28, 1), doc="height, width and channels of an image"
    )
    widths: tuple[int, ...] = static(
        default=(32, 64, 128), doc="channels of the two convolutions, units of the dense layer"
    )
    bias: bool = static(default=True, doc="whether layers have biases; E2FL has none")
    mean: tuple[float, ...] = static(
        default=PIXELS["mnist"].mean, doc="subtracted from bytes / 255, by channel"
    )
    deviation: tuple[float, ...] = static(
        default=PIXELS["mnist"].deviation, doc="what the difference is divided by"
    )
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("lenet", self.reduction, classes=(self.classes, 2))
        check_images("lenet", self.shape, self.mean, self.deviation, least=2)
        legal = (
            isinstance(self.widths, tuple)
            and len(self.widths) == 3
            and all(isinstance(w, int) and w > 0 for w in self.widths)
        )
        require(
            legal,
            "lenet: widths must be three positive numbers, such as (32, 64, 128), got"
            f" {self.widths!r}.",
        )

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
        return {
            name: uniform_layer(k, shape, bias=self.bias)
            for k, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def logits(self, params: Tree, x: jax.Array) -> jax.Array:
        def network(x: jax.Array, *, direct: bool) -> jax.Array:
            x = standardised(x, self.mean, self.deviation)
            x = jax.nn.relu(convolve(x, params["conv1"], direct=direct))
            x = max_pool(jax.nn.relu(convolve(x, params["conv2"], direct=direct)))
            return dense(jax.nn.relu(dense(flat(x), params["dense1"])), params["dense2"], last=True)

        return by_size(network, x)


# The small network that PropFair trains on CINIC-10: two convolutions and three dense layers.


@record
class CNN(Classifier):
    """Two 5 x 5 convolutions without padding, each with ReLU and a 2 x 2 max-pool, then dense
    layers with ReLU, and a softmax.

    PropFair (Table 2) names "2 Conv + 3 FC" without sizes. The sizes here are those of PyTorch's
    tutorial, which many federated programs use for 32 x 32 images: 62,006 parameters for ten
    classes. Images and initial parameters are as in `LeNet`.

    Args:
        classes: Number of classes.
        shape: Height, width and channels of an image.
        channels: Channels of the convolutions.
        hidden: Units of the dense layers before the last.
        kernel: Height and width of the convolutions.
        mean: Mean of each channel of bytes divided by 255.
        deviation: Standard deviation of each channel of bytes divided by 255.
        joint: Not supported; must be false.
        reduction: "mean" or "sum" of a batch's losses.

    Raises:
        ValueError: If a size is not legal, or images are too small for the convolutions.

    Example:
        >>> shapes = jax.eval_shape(CNN(classes=10).init, jax.random.key(0))
        >>> sum(array.size for array in jax.tree.leaves(shapes))
        62006
    """

    classes: int = static(default=10, doc="number of classes")
    shape: tuple[int, ...] = static(
        default=(32, 32, 3), doc="height, width and channels of an image"
    )
    channels: tuple[int, ...] = static(default=(6, 16), doc="channels of the convolutions")
    hidden: tuple[int, ...] = static(
        default=(120, 84), doc="units of the dense layers before the last"
    )
    kernel: int = static(default=5, doc="height and width of the convolutions")
    mean: tuple[float, ...] = static(
        default=PIXELS["cinic10"].mean, doc="subtracted from bytes / 255, by channel"
    )
    deviation: tuple[float, ...] = static(
        default=PIXELS["cinic10"].deviation, doc="what the difference is divided by"
    )
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("cnn", self.reduction, classes=(self.classes, 2), kernel=(self.kernel, 1))
        for name, widths in (("channels", self.channels), ("hidden", self.hidden)):
            legal = (
                isinstance(widths, tuple)
                and bool(widths)
                and all(isinstance(w, int) and w > 0 for w in widths)
            )
            require(legal, f"cnn: {name} must be a tuple of positive numbers, got {widths!r}.")
        least = 1
        for _ in self.channels:
            least = 2 * least + self.kernel - 1
        check_images("cnn", self.shape, self.mean, self.deviation, least=least)

    def init(self, key: Key) -> Tree:
        height, width, _ = self.shape
        for _ in self.channels:
            height, width = (height - self.kernel + 1) // 2, (width - self.kernel + 1) // 2
        inputs, units = (
            (self.shape[2], *self.channels),
            (height * width * self.channels[-1], *self.hidden, self.classes),
        )
        first, second = jax.random.split(key)
        return {
            "convolutions": [
                uniform_layer(k, (self.kernel, self.kernel, a, b))
                for k, a, b in zip(
                    jax.random.split(first, len(self.channels)),
                    inputs[:-1],
                    inputs[1:],
                    strict=True,
                )
            ],
            "dense": [
                uniform_layer(k, (a, b))
                for k, a, b in zip(
                    jax.random.split(second, len(self.hidden) + 1),
                    units[:-1],
                    units[1:],
                    strict=True,
                )
            ],
        }

    def logits(self, params: Tree, x: jax.Array) -> jax.Array:
        def network(x: jax.Array, *, direct: bool) -> jax.Array:
            x = standardised(x, self.mean, self.deviation)
            for layer in params["convolutions"]:
                x = max_pool(jax.nn.relu(convolve(x, layer, padding="valid", direct=direct)))
            x = flat(x)
            for layer in params["dense"][:-1]:
                x = jax.nn.relu(dense(x, layer))
            return dense(x, params["dense"][-1], last=True)

        return by_size(network, x)


# A recurrent network that guesses the next character: the model of q-FFL and PropFair for
# Shakespeare.


@record
class CharLSTM(Classifier):
    """Recurrent network that predicts the next symbol: an embedding, LSTM layers, and a softmax on
    the last output.

    Rows are [n, length] symbol numbers of any length. Parameters start as in PyTorch's layers:
    embeddings normal, all others uniform within 1 / sqrt(hidden). Each gate has two biases, as in
    PyTorch: 819,920 parameters for 80 symbols. PropFair's table names one layer, its code has two.

    Args:
        symbols: Number of symbols that are read and predicted.
        embedding: Size of a symbol's embedding.
        hidden: Units of each LSTM layer.
        layers: Number of LSTM layers.
        joint: Not supported; must be false.
        reduction: "mean" or "sum" of a batch's losses.

    Raises:
        ValueError: If a size is not legal.

    Example:
        >>> shapes = jax.eval_shape(CharLSTM(symbols=80).init, jax.random.key(0))
        >>> sum(array.size for array in jax.tree.leaves(shapes))
        819920
    """

    symbols: int = static(default=80, doc="symbols that can be read and guessed")
    embedding: int = static(default=8, doc="numbers that stand for a symbol")
    hidden: int = static(default=256, doc="units of each LSTM layer")
    layers: int = static(default=2, doc="LSTM layers")
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes(
            "char-lstm",
            self.reduction,
            symbols=(self.symbols, 2),
            embedding=(self.embedding, 1),
            hidden=(self.hidden, 1),
            layers=(self.layers, 1),
        )

    def init(self, key: Key) -> Tree:
        first, last, *keys = jax.random.split(key, 2 + self.layers)
        return {
            "embedding": jax.random.normal(first, (self.symbols, self.embedding)),
            "lstm": [
                lstm_layer(k, self.hidden if i else self.embedding, self.hidden)
                for i, k in enumerate(keys)
            ],
            "dense": uniform_layer(last, (self.hidden, self.symbols)),
        }

    def logits(self, params: Tree, x: jax.Array) -> jax.Array:
        def network(x: jax.Array) -> jax.Array:
            # A product instead of a look-up, because the gradient of a look-up adds in no fixed
            # order.
            h = jax.nn.one_hot(x.T, self.symbols) @ params["embedding"]  # [length, n, embedding]
            for layer in params["lstm"]:
                h = lstm(h, layer)
            return dense(h[-1], params["dense"], last=True)

        return in_chunks(network, x.astype(jnp.int32))


# A user's own model as a Task: an (initialise, apply) pair, or an equinox module.


@record
class Custom(Classifier):
    """A classifier that is defined by two functions.

    Args:
        initialise: ``initialise(key)`` returns the initial parameters: any pytree of float arrays.
        apply: ``apply(params, x)`` returns logits [n, classes].
        joint: Whether `apply` also takes parameters with a trailing axis of runs and then returns
            [n, classes, runs].
        reduction: "mean" or "sum" of a batch's losses.

    Raises:
        ValueError: If the reduction is another word, or `apply` returns another shape.

    Example:
        >>> initialise = lambda key: jnp.zeros((4, 3))
        >>> task = Custom(initialise=initialise, apply=lambda params, x: x @ params)
        >>> task.predict(task.init(jax.random.key(0)), jnp.ones((2, 4))).tolist()
        [0, 0]
    """

    initialise: Callable[[Key], Tree] = static()
    apply: Callable[[Tree, Any], jax.Array] = static()
    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_sizes("custom", self.reduction)

    def init(self, key: Key) -> Tree:
        return self.initialise(key)

    def logits(self, params: Tree, x: jax.Array) -> jax.Array:
        logits = self.apply(params, x)
        if logits.ndim < 2 or logits.shape[0] != x.shape[0] or logits.shape[1] < 2:
            raise ValueError(
                "The model must return one row of at least two class scores per example, here"
                f" [{x.shape[0]}, classes]; it returned shape {logits.shape}. An equinox module"
                " maps one example to [classes]."
            )
        return logits


def from_equinox(build: Callable[[Key], Any]) -> Custom:
    """Make a task of an equinox module.

    Float arrays of the module are trained. Everything else (activations, sizes, integer arrays) is
    built once and stays fixed.

    Args:
        build: ``build(key)`` returns the module, which maps one example to its logits [classes].

    Returns:
        The task.

    Example:
        >>> task = from_equinox(lambda key: eqx.nn.MLP(4, 3, width_size=8, depth=1, key=key))
        >>> task.predict(task.init(jax.random.key(0)), jnp.ones((5, 4))).shape
        (5,)
    """
    fixed = eqx.filter(build(jax.random.key(0)), eqx.is_inexact_array, inverse=True)

    def initialise(key: Key) -> Tree:
        return eqx.filter(build(key), eqx.is_inexact_array)

    def apply(params: Tree, x: Any) -> jax.Array:
        return jax.vmap(eqx.combine(params, fixed))(x)

    return Custom(initialise=initialise, apply=apply)
