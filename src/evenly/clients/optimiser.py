"""Any optax optimiser, with its settings as leaves so that a new learning rate does not recompile.

optax closes over its hyper-parameters. Here they are numbers in a record and the transformation is rebuilt from them
inside the traced step, which costs nothing once compiled.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from evenly.records import is_number, leaf, record, require, static
from evenly.types import Tree

Factory = Callable[..., optax.GradientTransformation]

# Defaults of the adaptive ones are those of FedOpt (Reddi et al., 2021), whose eps is much larger than Adam's usual one.
OPTIMISERS: dict[str, tuple[Factory, dict[str, float]]] = {
    "sgd": (optax.sgd, {}),
    "momentum": (optax.sgd, {"momentum": 0.9}),
    "adam": (optax.adam, {"b1": 0.9, "b2": 0.99, "eps": 1e-3}),
    "yogi": (optax.yogi, {"b1": 0.9, "b2": 0.99, "eps": 1e-3}),
    "adagrad": (optax.adagrad, {"eps": 1e-3}),
}


@record
class Optimiser:
    """An optax factory, or the name of one, and the numbers it is called with."""

    learning_rate: float = leaf(default=0.1, doc="step size")
    kind: str | Factory = static(default="sgd", doc=f"one of {', '.join(OPTIMISERS)}, or from Python any optax factory")
    options: dict[str, Any] = leaf(default_factory=dict)

    def __post_init__(self) -> None:
        if is_number(self.learning_rate):
            require(self.learning_rate > 0, f"learning_rate must be above 0, got {self.learning_rate}.")
        if isinstance(self.kind, str):
            require(self.kind in OPTIMISERS, f"The optimiser must be one of {', '.join(OPTIMISERS)}, got {self.kind!r}.")
            known = OPTIMISERS[self.kind][1]
            for name in self.options if isinstance(self.options, dict) else ():
                require(name in known, f"{self.kind} has no setting {name!r}; it has {', '.join(['learning_rate', *known])}.")

    def init(self, model: Tree) -> Tree:
        return self._transformation().init(model)

    def update(self, gradient: Tree, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        """The moved model and the optimiser's new state."""
        updates, state = self._transformation().update(gradient, state, model)
        return jax.tree.map(lambda m, u: jnp.asarray(m + u, m.dtype), model, updates), state

    def _transformation(self) -> optax.GradientTransformation:
        factory, defaults = OPTIMISERS[self.kind] if isinstance(self.kind, str) else (self.kind, {})
        return factory(self.learning_rate, **{**defaults, **self.options})
