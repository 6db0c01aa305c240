"""Linear models: softmax and logistic regression and a support vector machine, with the products
and losses that they share.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

import jax
import jax.numpy as jnp
from jax import lax

from evenly.data.federation import Shard
from evenly.records import leaf, record, require, static
from evenly.types import Key, Tree

# Products, losses and checks shared by models, written so that parameters may carry a trailing run
# axis.

Array = jax.Array

AT_ONCE = 8  # terms of a sum
# multiplications of a product that is written as sums: larger ones are faster as products
MOST_TERMS = 2**15
_AS_SUMS: ContextVar[bool] = ContextVar("products as sums", default=False)


def flat(x: Array) -> Array:
    """Examples as rows of numbers: [n, ...] -> [n, d]."""
    return x.reshape(x.shape[0], prod(x.shape[1:]))


def product(x: Array, w: Array) -> Array:
    """x [n, d] times w [d, ...] as one matrix product, whatever axes (classes, runs) follow d."""
    rows, columns = flat(x), w.reshape(w.shape[0], -1)
    small = _AS_SUMS.get() and columns.shape[1] > 1 and rows.shape[0] * columns.size <= MOST_TERMS
    return (_summed_product if small else jnp.matmul)(rows, columns).reshape(
        x.shape[0], *w.shape[1:]
    )


@contextmanager
def products_as_sums(wanted: bool) -> Iterator[None]:
    """Trace small products inside the block as sums of terms, if `wanted`.

    XLA's CPU compiler fuses sums with the loop around them. As products they are library calls that
    take longer than their arithmetic.
    """
    before = _AS_SUMS.set(wanted)
    try:
        yield
    finally:
        _AS_SUMS.reset(before)


@jax.custom_vjp
def _summed_product(x: Array, w: Array) -> Array:
    return _added(x.T[:, :, None] * w[:, None, :])


def _forward(x: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    return _summed_product(x, w), (x, w)


def _backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, w = residuals
    return gradient @ w.T, _added(x[:, :, None] * gradient[:, None, :])


_summed_product.defvjp(_forward, _backward)


def _added(terms: Array) -> Array:
    """The sum over the first axis, a few terms at a time, so that the compiler unrolls them and
    vectorises over the other axes.

    The optimisation barrier keeps XLA from joining the sums into one.
    """
    count, rest = terms.shape[0], terms.shape[0] % AT_ONCE
    if count <= AT_ONCE:
        return terms.sum(0)
    blocks = terms[: count - rest].reshape(-1, AT_ONCE, *terms.shape[1:]).sum(1)
    total = _added(lax.optimization_barrier(blocks))
    return total + terms[count - rest :].sum(0) if rest else total


def over_runs(values: Array, like: Array) -> Array:
    """Give `values` the trailing axes of `like`, so that the two broadcast."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))


def cross_entropy(logits: Array, y: Array) -> Array:
    """-log softmax(logits)[y], classes on axis 1. [n, classes, ...] -> [n, ...]"""
    # The true logit is selected with a one-hot mask: on CPUs a gather costs more than the whole
    # product.
    hot = over_runs(jnp.arange(logits.shape[1]) == y[:, None], logits)
    shifted = logits - jax.lax.stop_gradient(logits.max(1, keepdims=True))
    return jnp.log(jnp.exp(shifted).sum(1)) - jnp.where(hot, shifted, 0.0).sum(1)


class Classifier:
    """Losses, predictions and probabilities of a network, from its logits. Networks derive from it
    and define `logits`.
    """

    def logits(self, params: Tree, x: Array) -> Array:
        """Scores of the classes before the softmax. [n, classes]"""
        raise NotImplementedError

    def losses(self, params: Tree, shard: Shard) -> Array:
        """Cross-entropy of each row. [n]"""
        return cross_entropy(self.logits(params, shard.x), shard.y)

    def penalty(self, params: Tree) -> float:
        """No regularisation."""
        return 0.0

    def predict(self, params: Tree, x: Array) -> Array:
        """Number of the class with the largest score. [n]"""
        return self.logits(params, x).argmax(1)

    def judge(self, params: Tree, shard: Shard) -> tuple[Array, Array]:
        """Losses and predictions from one pass. [n] and [n]"""
        logits = self.logits(params, shard.x)
        return cross_entropy(logits, shard.y), logits.argmax(1)

    def probabilities(self, params: Tree, x: Array) -> Array:
        """Softmax of the scores. [n, classes]"""
        return jax.nn.softmax(self.logits(params, x), axis=1)


def check_sizes(model: str, reduction: str, **sizes: tuple[int, int]) -> None:
    """Raise unless the reduction is "mean" or "sum" and every size, passed as (value, least), is a
    whole number of at least `least`.
    """
    require(
        reduction in ("mean", "sum"),
        f"{model}: reduction must be 'mean' or 'sum', got {reduction!r}.",
    )
    for name, (value, least) in sizes.items():
        require(
            isinstance(value, int) and value >= least,
            f"{model}: {name} must be a whole number of at least {least}, got {value!r}.",
        )


STARTS = ("zero", "random")
START = "'zero', or 'random': uniform within 1 / sqrt(features), as PyTorch's linear layers"


def initial_weights(start: str, key: Key, *shape: int) -> Tree:
    """Weights [features, ...] and biases of a linear model: zeros, or drawn as PyTorch's linear
    layer draws them.

    The objective is convex, so that the start changes only what a model is like before it has
    converged.
    """
    if start == "zero":
        return {"w": jnp.zeros(shape), "b": jnp.zeros(shape[1:])}
    weight, bias = jax.random.split(key)
    most = shape[0] ** -0.5
    return {
        "w": jax.random.uniform(weight, shape, minval=-most, maxval=most),
        "b": jax.random.uniform(bias, shape[1:], minval=-most, maxval=most),
    }


# Softmax (multinomial logistic) regression.


@record
class Softmax:
    """Softmax regression: argmax(x W + b) with cross-entropy. The objective is convex.

    Args:
        features: Number of features.
        classes: Number of classes.
        joint: Whether runs share one matrix product; see `evenly.types.Task`.
        reduction: "mean" or "sum" of a batch's losses.
        start: "zero", or "random" for initial parameters as in PyTorch.

    Raises:
        ValueError: If a size is too small or a word is not one of these.

    Example:
        >>> task = Softmax(features=2, classes=3)
        >>> jax.tree.map(jnp.shape, task.init(jax.random.key(0)))
        {'b': (3,), 'w': (2, 3)}
    """

    features: int = static()
    classes: int = static()
    joint: bool = static(default=True)
    reduction: str = static(default="mean")
    start: str = static(default="zero", choices=STARTS, doc=START)

    def __post_init__(self) -> None:
        check_sizes(
            "softmax", self.reduction, features=(self.features, 1), classes=(self.classes, 2)
        )

    def init(self, key: Key) -> Tree:
        return initial_weights(self.start, key, self.features, self.classes)

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        return cross_entropy(self._logits(params, shard.x), shard.y)

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return self._logits(params, x).argmax(1)

    def probabilities(self, params: Tree, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(self._logits(params, x), axis=1)

    def _logits(self, params: Tree, x: jax.Array) -> jax.Array:
        return product(x, params["w"]) + params["b"]


# Binary logistic regression with a single logit.


@record
class Logistic:
    """Logistic regression for two classes: P(y = 1) = sigmoid(x w + b). Half the arithmetic of a
    softmax with two classes.

    Args:
        features: Number of features.
        joint: Whether runs share one matrix product; see `evenly.types.Task`.
        reduction: "mean" or "sum" of a batch's losses.
        start: "zero", or "random" for initial parameters as in PyTorch.

    Raises:
        ValueError: If there is no feature or a word is not one of these.

    Example:
        >>> params = {"w": jnp.array([1.0, -1.0]), "b": jnp.array(0.0)}
        >>> Logistic(features=2).predict(params, jnp.array([[2.0, 1.0], [1.0, 2.0]])).tolist()
        [1, 0]
    """

    features: int = static()
    joint: bool = static(default=True)
    reduction: str = static(default="mean")
    start: str = static(default="zero", choices=STARTS, doc=START)

    def __post_init__(self) -> None:
        check_sizes("logistic", self.reduction, features=(self.features, 1))

    def init(self, key: Key) -> Tree:
        return initial_weights(self.start, key, self.features)

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        z = self._logit(params, shard.x)
        # softplus(z) - y z would lose all digits of a small loss at a large logit.
        return jax.nn.softplus(jnp.where(over_runs(shard.y, z) == 1, -z, z))

    def penalty(self, params: Tree) -> float:
        return 0.0

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return (self._logit(params, x) > 0).astype(jnp.int32)

    def probabilities(self, params: Tree, x: jax.Array) -> jax.Array:
        z = self._logit(params, x)
        return jnp.stack([jax.nn.sigmoid(-z), jax.nn.sigmoid(z)], axis=1)

    def _logit(self, params: Tree, x: jax.Array) -> jax.Array:
        return product(x, params["w"]) + params["b"]


# Linear support vector machine.
#
# The public q-FFL code trains Vehicle on 0.5 ||w||^2 + the *sum* of hinges, not their mean, and its
# q was tuned on that scale: `reduction="sum"` restores it.


@record
class LinearSVM:
    """Linear support vector machine for two classes: sign(x w + b), hinge losses max(0, 1 - y z)
    with y = -1 or 1, and a penalty on w.

    Args:
        features: Number of features.
        reduction: "mean" or "sum" of a batch's losses.
        regularisation: Factor of the penalty ||w||² / 2.
        joint: Whether runs share one matrix product; see `evenly.types.Task`.
        start: "zero", or "random" for initial parameters as in PyTorch.

    Raises:
        ValueError: If there is no feature, the regularisation is negative or a word is not one of
            these.

    Example:
        >>> params = {"w": jnp.array([1.0, -1.0]), "b": jnp.array(0.0)}
        >>> task = LinearSVM(features=2, regularisation=0.1)
        >>> task.predict(params, jnp.array([[2.0, 1.0], [1.0, 2.0]])).tolist()
        [1, 0]
        >>> round(float(task.penalty(params)), 6)
        0.1
    """

    features: int = static()
    reduction: str = static(default="mean")
    regularisation: float = leaf(default=1.0, least=0)
    joint: bool = static(default=True)
    start: str = static(default="zero", choices=STARTS, doc=START)

    def __post_init__(self) -> None:
        check_sizes("svm", self.reduction, features=(self.features, 1))

    def init(self, key: Key) -> Tree:
        return initial_weights(self.start, key, self.features)

    def losses(self, params: Tree, shard: Shard) -> jax.Array:
        margin = self._margin(params, shard.x)
        return jnp.maximum(0.0, 1.0 - over_runs(2.0 * shard.y - 1.0, margin) * margin)

    def penalty(self, params: Tree) -> jax.Array:
        return 0.5 * self.regularisation * (params["w"] ** 2).sum(0)

    def predict(self, params: Tree, x: jax.Array) -> jax.Array:
        return (self._margin(params, x) > 0).astype(jnp.int32)

    def _margin(self, params: Tree, x: jax.Array) -> jax.Array:
        return product(x, params["w"]) + params["b"]
