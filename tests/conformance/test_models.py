"""What every model promises, driven by the registry."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly import trees
from evenly.data.federation import Federation, Shard
from evenly.models import MODELS
from evenly.parts.work import batch_loss
from evenly.types import Task
from tests import federations

EVERY = pytest.mark.parametrize("name", MODELS)
BINARY = federations.tiny(classes=2)


def built(name: str) -> Task:
    return MODELS[name](BINARY)


def some_shard(padding: int = 0, junk: float = 0.0) -> Shard:
    rows = BINARY.train.of(3)
    x = np.concatenate([BINARY.x[rows], np.full((padding, BINARY.x.shape[1]), junk, np.float32)])
    y = np.append(BINARY.y[rows], np.ones(padding, np.int32))
    mask = np.append(np.ones(len(rows)), np.zeros(padding)).astype(np.float32)
    return Shard(
        jnp.asarray(x), jnp.asarray(y), jnp.zeros(len(y), int), jnp.ones(len(y)), jnp.asarray(mask)
    )


def some_params(task: Task, seed: int) -> dict:
    """Parameters away from zero, where kinks and symmetries hide mistakes."""
    params = task.init(jax.random.key(seed))
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 100), len(leaves))
    noisy = [
        leaf + 0.5 * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, noisy)


@EVERY
def test_losses_are_one_number_a_row_and_never_negative(name: str):
    task, shard = built(name), some_shard()
    losses = np.asarray(task.losses(some_params(task, 0), shard))
    assert losses.shape == shard.y.shape
    assert np.isfinite(losses).all()
    assert (losses >= 0).all()
    assert len(np.unique(losses)) > 1


@EVERY
def test_predictions_are_classes_and_agree_with_the_losses(name: str):
    # A row whose loss is below that of the other label must be predicted as its own label.
    task, shard = built(name), some_shard()
    params = some_params(task, 0)
    own, other = task.losses(params, shard), task.losses(params, shard._replace(y=1 - shard.y))
    predicted = np.asarray(task.predict(params, shard.x))
    assert set(predicted) == {0, 1}
    np.testing.assert_array_equal(predicted == np.asarray(shard.y), np.asarray(own < other))


@EVERY
def test_the_gradient_is_finite_and_points_uphill(name: str):
    task, shard = built(name), some_shard()
    params = some_params(task, 0)
    value, gradient = jax.value_and_grad(lambda p: batch_loss(task, p, shard))(params)
    assert bool(trees.all_finite(gradient))
    downhill = trees.subtract(params, trees.scale(gradient, 1e-3))
    assert float(batch_loss(task, downhill, shard)) < float(value)


@EVERY
def test_masked_rows_do_not_matter(name: str):
    task = built(name)
    params = some_params(task, 0)
    grad = jax.grad(lambda p, shard: batch_loss(task, p, shard))
    plain, padded = grad(params, some_shard()), grad(params, some_shard(padding=6, junk=50.0))
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(padded), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


# others are vmapped: see tests/simulate
@pytest.mark.parametrize("name", [name for name in MODELS if built(name).joint])
def test_several_runs_in_one_array_equal_runs_one_by_one(name: str):
    task, shard = built(name), some_shard()
    several = [some_params(task, seed) for seed in range(3)]
    together = trees.stack(several, axis=-1)
    losses, predicted = task.losses(together, shard), task.predict(together, shard.x)
    assert losses.shape == predicted.shape == (len(shard.y), 3)
    penalty = np.broadcast_to(np.asarray(task.penalty(together)), (3,))
    for r, params in enumerate(several):
        np.testing.assert_allclose(losses[:, r], task.losses(params, shard), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(predicted[:, r], task.predict(params, shard.x))
        np.testing.assert_allclose(penalty[r], task.penalty(params), rtol=1e-5)


@EVERY
def test_the_first_model_is_decided_by_its_key(name: str):
    task = built(name)
    one, same = task.init(jax.random.key(4)), task.init(jax.random.key(4))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(one))


@EVERY
def test_it_says_how_a_batch_is_reduced(name: str):
    assert built(name).reduction in ("mean", "sum")


@pytest.mark.parametrize("name", ["logistic", "svm"])
def test_binary_models_refuse_other_labels(name: str, tiny: Federation):
    with pytest.raises(
        ValueError,
        match=rf"'{name}' requires a label with two classes, got 3\. Use 'softmax' or 'mlp'",
    ):
        MODELS[name](tiny)


def test_logistic_regression_is_softmax_with_two_classes():
    # sigmoid(z) = softmax(0, z): the same loss when the first class has weights 0.
    shard, w = some_shard(), np.random.default_rng(1).normal(size=5)
    logistic = built("logistic").losses({"w": jnp.asarray(w), "b": jnp.asarray(0.3)}, shard)
    both = {"w": jnp.stack([jnp.zeros(5), jnp.asarray(w)], 1), "b": jnp.array([0.0, 0.3])}
    np.testing.assert_allclose(logistic, built("softmax").losses(both, shard), atol=1e-5)
