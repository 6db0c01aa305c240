"""Arithmetic on pytrees of arrays that share a run axis.

Where many runs advance together, every array of a model has one axis of length `runs`. It is the
same for all leaves: the last axis, or the first. `axis` below is that axis (0 or -1).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Tree = Any


class Stateful(NamedTuple):
    """A model with a state beside its parameters, such as the running statistics of batch norm.

    Clients train the parameters and update the state. The server averages the state with the
    clients' weights; it never counts in norms, and neither rules nor optimisers change it.
    """

    params: Tree
    state: Tree


def learned(model: Tree) -> Tree:
    """The parameters of a model, without its state if it has one."""
    return model.params if isinstance(model, Stateful) else model


def with_learned(model: Tree, params: Tree) -> Tree:
    """The model with other parameters."""
    return model._replace(params=params) if isinstance(model, Stateful) else params


def stack(trees: Sequence[Tree], axis: int = 0) -> Tree:
    """Stack trees of equal structure along a new axis."""
    return jax.tree.map(
        lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves], axis), *trees
    )


def repeat(tree: Tree, times: int, axis: int = 0) -> Tree:
    """Repeat a tree along a new axis."""

    def one(leaf: Any) -> jax.Array:
        wide = jnp.expand_dims(leaf, axis)
        return jnp.broadcast_to(
            wide, (times, *wide.shape[1:]) if axis == 0 else (*wide.shape[:-1], times)
        )

    return jax.tree.map(one, tree)


def take(tree: Tree, index: int, axis: int = 0) -> Tree:
    """One entry of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[index] if axis == 0 else leaf[..., index], tree)


def cut(tree: Tree, runs: slice, axis: int) -> Tree:
    """Some of the runs of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[runs] if axis == 0 else leaf[..., runs], tree)


def join(trees: Sequence[Tree], axis: int) -> Tree:
    """Concatenate trees along their run axis; the inverse of `cut`."""
    return (
        trees[0]
        if len(trees) == 1
        else jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis), *trees)
    )


def add(a: Tree, b: Tree) -> Tree:
    """a + b, leaf by leaf."""
    return jax.tree.map(jnp.add, a, b)


def subtract(a: Tree, b: Tree) -> Tree:
    """a - b, leaf by leaf."""
    return jax.tree.map(jnp.subtract, a, b)


def scale(tree: Tree, factor: Any) -> Tree:
    """Every leaf times a factor."""
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def zeros_like(tree: Tree) -> Tree:
    """Zeros in the form of a tree."""
    return jax.tree.map(jnp.zeros_like, tree)


def along(per_run: jax.Array, leaf: jax.Array, axis: int) -> jax.Array:
    """Shape `per_run` [runs] so that it broadcasts against `leaf` along its run axis."""
    return per_run if axis == -1 else per_run.reshape(per_run.shape + (1,) * (leaf.ndim - 1))


def add_scaled(total: Tree, tree: Tree, per_run: jax.Array, axis: int) -> Tree:
    """total + per_run * tree, run by run."""
    return jax.tree.map(lambda t, v: t + along(per_run, v, axis) * v, total, tree)


def where(per_run: jax.Array, a: Tree, b: Tree, axis: int) -> Tree:
    """`a` for the runs where `per_run` holds, `b` for the others."""
    return jax.tree.map(lambda x, y: jnp.where(along(per_run, x, axis), x, y), a, b)


def square_norm(tree: Tree, axis: int | None = None) -> jax.Array:
    """Sum of squares over all leaves; with `axis`, one for each run."""
    return _reduce(lambda leaf, axes: jnp.sum(leaf * leaf, axes), tree, axis)


def all_finite(tree: Tree, axis: int | None = None) -> jax.Array:
    """Whether every entry is finite; with `axis`, one answer for each run."""
    leaves = _reduce(lambda leaf, axes: jnp.sum(~jnp.isfinite(leaf), axes), tree, axis)
    return leaves == 0


def size(tree: Tree) -> int:
    """Number of scalars in a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def _reduce(function: Any, tree: Tree, axis: int | None) -> jax.Array:
    def one(leaf: jax.Array) -> jax.Array:
        axes = (
            tuple(range(leaf.ndim))
            if axis is None
            else tuple(i for i in range(leaf.ndim) if i != axis % leaf.ndim)
        )
        return function(leaf, axes)

    return sum((one(leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))
