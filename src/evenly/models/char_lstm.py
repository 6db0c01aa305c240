"""A recurrent network that guesses the next character: the model of q-FFL and PropFair for Shakespeare."""

import jax
import jax.numpy as jnp
from jax import lax

from evenly.data.federation import Shard
from evenly.models.convolution import dense, in_chunks, uniform_layer
from evenly.models.linear import check_sizes, cross_entropy
from evenly.records import record, static
from evenly.types import Key, Tree


@record
class CharLSTM:
    """Symbols are embedded, read by LSTM layers one after another, and the last output decides among all symbols.

    Rows are [n, length] symbol numbers, of any length. Starts as PyTorch's layers do (embeddings normal, all else uniform within
    1 / sqrt(hidden), forget gates included) and keeps its two biases for each gate: 819,920 parameters for 80 symbols.
    PropFair's table says one layer, its code has two.
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
            "lstm": [lstm_layer(k, self.hidden if i else self.embedding, self.hidden) for i, k in enumerate(keys)],
            "dense": uniform_layer(last, (self.hidden, self.symbols)),
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
        def logits(x: jax.Array) -> jax.Array:
            # A product, not a look-up: its gradient is a product too, where scattered additions would come in any order.
            h = jax.nn.one_hot(x.T, self.symbols) @ params["embedding"]  # [length, n, embedding]
            for layer in params["lstm"]:
                h = lstm(h, layer)
            return dense(h[-1], params["dense"], last=True)

        return in_chunks(logits, x.astype(jnp.int32))


def lstm_layer(key: Key, inputs: int, hidden: int) -> Tree:
    """Weights of one layer, uniform within 1 / sqrt(hidden)."""
    shapes = {"w": (inputs, 4 * hidden), "b": (4 * hidden,), "recurrent_w": (hidden, 4 * hidden), "recurrent_b": (4 * hidden,)}
    bound, keys = hidden**-0.5, jax.random.split(key, len(shapes))
    return {name: jax.random.uniform(k, shape, minval=-bound, maxval=bound) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}


def lstm(x: jax.Array, layer: Tree) -> jax.Array:
    """All outputs of a layer that starts at zero: [length, n, inputs] -> [length, n, hidden]. Gates lie in PyTorch's order."""
    length, n, inputs = x.shape
    entering = x.reshape(-1, inputs) @ layer["w"] + layer["b"] + layer["recurrent_b"]  # of all steps in one product

    def step(state: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        output, cell = state
        take, keep, new, show = jnp.split(now + output @ layer["recurrent_w"], 4, axis=-1)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(take) * jnp.tanh(new)
        output = jax.nn.sigmoid(show) * jnp.tanh(cell)
        return (output, cell), output

    nothing = jnp.zeros((n, layer["recurrent_w"].shape[0]))
    return lax.scan(step, (nothing, nothing), entering.reshape(length, n, -1))[1]
