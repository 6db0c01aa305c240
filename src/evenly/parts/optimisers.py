"""Optimisers of clients and of the server. Clients in PyTorch have theirs in
`evenly.flower.clients.torch_training`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from evenly import trees
from evenly.records import is_number, leaf, record, require, static
from evenly.types import Array, Server, Tree

# Optimisers for clients and servers, with their settings as leaves so that a new learning rate does
# not recompile.
#
# There are two families. `sgd`, `momentum`, `adam`, `yogi` and `adagrad` are optax's. `fedadam`,
# `fedyogi` and `fedadagrad` are the servers of Reddi et al., "Adaptive Federated Optimization"
# (ICLR 2021), Algorithm 2. With D the change that the rule decided,
#
# m <- beta1 m + (1 - beta1) D, w+ = w + rate m / (sqrt(v) + tau), and v, which starts at tau^2,
# becomes
#
# fedadagrad v + D^2 fedyogi v - (1 - beta2) D^2 sign(v - D^2) fedadam beta2 v + (1 - beta2) D^2.
#
# optax differs from that. Its adam and yogi divide m and v by 1 - beta^t, which corrects the bias
# of averages that start at 0; its yogi starts both of them at 1e-6; its adagrad starts v at 0.1 and
# divides by sqrt(v + eps), and it has no m.
#
# optax closes over its hyper-parameters. Here they are numbers in a record and the transformation
# is rebuilt from them inside the traced step, which costs nothing once compiled.

Factory = Callable[..., optax.GradientTransformation]


class Moments(NamedTuple):
    """State of a server of Reddi et al.: the average change m and the scale v of each parameter."""

    mean: Tree
    scale: Tree


def fedopt(
    next_scale: Callable[[Array, Array, Array], Array],
    learning_rate: Any,
    *,
    beta1: Any,
    tau: Any,
    beta2: Any = 0.0,
) -> optax.GradientTransformation:
    """Reddi et al., Algorithm 2. `next_scale` computes the next v from v, the squared change and
    beta2.
    """

    def init(model: Tree) -> Moments:
        zeros = jax.tree.map(jnp.zeros_like, model)
        return Moments(
            zeros, jax.tree.map(lambda zero: zero + jnp.asarray(tau, zero.dtype) ** 2, zeros)
        )

    def update(gradient: Tree, state: Moments, model: Tree | None = None) -> tuple[Tree, Moments]:
        mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mean, gradient)
        scale = jax.tree.map(lambda v, g: next_scale(v, g * g, beta2), state.scale, gradient)
        return jax.tree.map(
            lambda m, v: -learning_rate * m / (jnp.sqrt(v) + tau), mean, scale
        ), Moments(mean, scale)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def adagrad_scale(v: Array, square: Array, beta2: Array) -> Array:
    return v + square


def yogi_scale(v: Array, square: Array, beta2: Array) -> Array:
    return v - (1 - beta2) * square * jnp.sign(v - square)


def adam_scale(v: Array, square: Array, beta2: Array) -> Array:
    return beta2 * v + (1 - beta2) * square


class OptimiserEntry(NamedTuple):
    """An entry of `OPTIMISERS`: the factory, the settings besides the learning rate, a description.

    Clients that train with PyTorch need an equivalent in `flower.clients.torch_training`.
    """

    make: Factory
    settings: dict[str, float]
    doc: str
    server_only: bool = False


def momentum_sgd(
    learning_rate: Any, *, momentum: Any, weight_decay: Any = 0.0
) -> optax.GradientTransformation:
    """optax's SGD with momentum, to whose gradient `weight_decay` times the model is added, as
    PyTorch does.
    """
    sgd = optax.sgd(learning_rate, momentum)
    if isinstance(weight_decay, float) and weight_decay == 0:  # a model without it is not read
        return sgd
    return optax.chain(optax.add_decayed_weights(weight_decay), sgd)


# Settings of the adaptive ones are those of Reddi et al., whose tau (optax: eps) is much larger
# than Adam's usual one.
FEDOPT = {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3}
OPTIMISERS: dict[str, OptimiserEntry] = {
    "sgd": OptimiserEntry(optax.sgd, {}, "the change times the learning rate"),
    "momentum": OptimiserEntry(
        momentum_sgd,
        {"momentum": 0.9, "weight_decay": 0.0},
        "optax's SGD with momentum; at the server, FedAvgM",
    ),
    "adam": OptimiserEntry(
        optax.adam, {"b1": 0.9, "b2": 0.99, "eps": 1e-3}, "optax's Adam, with bias correction"
    ),
    "yogi": OptimiserEntry(
        optax.yogi,
        {"b1": 0.9, "b2": 0.99, "eps": 1e-3},
        "optax's Yogi, with bias correction; averages start at 1e-6",
    ),
    "adagrad": OptimiserEntry(
        optax.adagrad, {"eps": 1e-3}, "optax's Adagrad: eps inside the root; squares start at 0.1"
    ),
    "fedadam": OptimiserEntry(
        partial(fedopt, adam_scale), FEDOPT, "Reddi et al.'s FedAdam, without bias correction", True
    ),
    "fedyogi": OptimiserEntry(
        partial(fedopt, yogi_scale), FEDOPT, "Reddi et al.'s FedYogi, without bias correction", True
    ),
    "fedadagrad": OptimiserEntry(
        partial(fedopt, adagrad_scale),
        {"beta1": 0.0, "tau": 1e-3},
        "Reddi et al.'s FedAdagrad: tau outside the root",
        True,
    ),
}


def optimiser_parts() -> list[str]:
    """Names of all optimisers in the notation, of servers and of clients."""
    servers = [f"server-{name}" for name in OPTIMISERS]
    return servers + [
        f"local-{name}" for name, known in OPTIMISERS.items() if not known.server_only
    ]


@record
class Optimiser:
    """An optax factory, or the name of one, and the numbers it is called with."""

    learning_rate: float = leaf(default=0.1, above=0, doc="learning rate")
    kind: str | Factory = static(
        default="sgd", doc=f"one of {', '.join(OPTIMISERS)}, or from Python any optax factory"
    )
    options: dict[str, Any] = leaf(default_factory=dict)

    def __post_init__(self) -> None:
        require(
            not isinstance(self.learning_rate, str | bool),
            f"learning_rate must be a number, got {self.learning_rate!r}.",
        )
        if isinstance(self.kind, str):
            require(
                self.kind in OPTIMISERS,
                f"The optimiser must be one of {', '.join(OPTIMISERS)}, got {self.kind!r}.",
            )
            settings = OPTIMISERS[self.kind].settings
            for name, value in self.options.items() if isinstance(self.options, dict) else ():
                require(
                    name in settings,
                    f"{self.kind} has no setting {name!r}; it has"
                    f" {', '.join(['learning_rate', *settings])}.",
                )
                require(
                    not isinstance(value, str | bool),
                    f"{self.kind}: {name} must be a number, got {value!r}.",
                )
                if is_number(value) and name in ("beta1", "beta2"):
                    require(
                        0 <= value < 1,
                        f"{self.kind}: {name} must be at least 0 and below 1, got {value}.",
                    )
                if is_number(value) and name == "tau":
                    require(value > 0, f"{self.kind}: tau must be above 0, got {value}.")

    def init(self, model: Tree) -> Tree:
        return self._transformation().init(model)

    def update(self, gradient: Tree, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        """The moved model and the optimiser's new state."""
        updates, state = self._transformation().update(gradient, state, model)
        return jax.tree.map(lambda m, u: jnp.asarray(m + u, m.dtype), model, updates), state

    def _transformation(self) -> optax.GradientTransformation:
        if not isinstance(self.kind, str):
            return self.kind(self.learning_rate, **self.options)
        entry = OPTIMISERS[self.kind]
        return entry.make(self.learning_rate, **{**entry.settings, **self.options})


# How the server moves its model along the change that the rule decided.


@record
class OptimisedServer(Server):
    """Let an optimiser move the model along the change that the rule decided (FedOpt: FedAdam,
    FedYogi, FedAdagrad, FedAvgM).
    """

    optimiser: Optimiser

    def init(self, model: Tree) -> Tree:
        return self.optimiser.init(model)

    def update(self, change: Tree, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        # The change points downhill; an optimiser expects a gradient, which points uphill.
        return self.optimiser.update(jax.tree.map(jnp.negative, change), state, model)


class Blend(NamedTuple):
    """A change of the model: it is multiplied by `kept`, and the sum of the clients' changes is
    added.
    """

    kept: Array
    total: Tree


@record
class BlendingServer(Server):
    """Serve the sum of the clients' models, sum v_k w_k, where the coefficients v_k need not sum to
    1.

    Clients send changes, w_k - w, so the sum is (sum v_k) w + sum v_k (w_k - w): the rule hands on
    both parts.
    """

    def update(self, change: Blend, state: Tree, model: Tree) -> tuple[Tree, Tree]:
        return (
            jax.tree.map(
                lambda own, total: jnp.asarray(change.kept * own + total, own.dtype),
                model,
                change.total,
            ),
            state,
        )


class Averaged(NamedTuple):
    """The iterates so far."""

    rounds: Array
    mean: Tree
    inner: Tree


@record
class AveragingServer:
    """Move as the inner server does (or add the change), and serve the mean of the iterates
    w_1..w_t, without w_0.

    A round in which no update counted adds no iterate.
    """

    inner: Server | None = None

    def init(self, model: Tree) -> Averaged:
        return Averaged(
            jnp.zeros(()),
            trees.zeros_like(model),
            () if self.inner is None else self.inner.init(model),
        )

    def update(self, change: Tree, state: Averaged, model: Tree) -> tuple[Tree, Averaged]:
        if self.inner is None:
            model, inner = trees.add(model, change), ()
        else:
            model, inner = self.inner.update(change, state.inner, model)
        rounds = state.rounds + 1
        mean = jax.tree.map(lambda old, new: old + (new - old) / rounds, state.mean, model)
        return model, Averaged(rounds, mean, inner)

    def serve(self, model: Tree, state: Averaged) -> Tree:
        return jax.tree.map(
            lambda last, mean: jnp.where(state.rounds > 0, mean, last), model, state.mean
        )
