"""Losses at the edges of float32, models of the user's own, and what a task must be. See also
tests/conformance.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import algorithm
from evenly.data.federation import Federation, Shard
from evenly.models import (
    MLP,
    MODELS,
    TASKS,
    Custom,
    LinearSVM,
    Logistic,
    Softmax,
    check_task,
    from_equinox,
)
from evenly.models.linear import cross_entropy
from evenly.parts.work import batch_loss
from evenly.records import record, static
from evenly.simulate import simulate
from tests import federations


def shard(x: Any, y: Any, mask: Any = None) -> Shard:
    n = len(y)
    return Shard(
        jnp.asarray(x, jnp.float32),
        jnp.asarray(y),
        jnp.zeros(n, int),
        jnp.ones(n),
        jnp.ones(n) if mask is None else jnp.asarray(mask),
    )


@pytest.mark.parametrize("size", [1.0, 30.0, 1e4, 1e30])
def test_cross_entropy_and_its_gradient_stay_finite_at_large_logits(size: float):
    logits = jnp.array([[size, -size, 0.0], [-size, size, 0.0]])
    value, gradient = jax.value_and_grad(lambda z: cross_entropy(z, jnp.array([0, 0])).sum())(
        logits
    )
    exact = np.asarray(logits, np.float64)
    expected = (
        np.log(np.exp(exact - exact.max(1, keepdims=True)).sum(1)).sum()
        + (exact.max(1) - exact[:, 0]).sum()
    )
    assert float(value) == pytest.approx(expected, rel=1e-6)
    assert np.isfinite(gradient).all()


@given(st.lists(st.floats(-50, 50, width=32), min_size=3, max_size=3), st.integers(0, 2))
def test_cross_entropy_agrees_with_float64(logits: list[float], y: int):
    exact = np.array(logits, np.float64)
    expected = np.log(np.exp(exact - exact.max()).sum()) + exact.max() - exact[y]
    assert float(
        cross_entropy(jnp.array([logits], jnp.float32), jnp.array([y]))[0]
    ) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("logit", "y"), [(20.0, 1), (-20.0, 0), (20.0, 0), (80.0, 1), (1e4, 0), (1e30, 1), (0.0, 1)]
)
def test_logistic_loss_keeps_its_digits_at_large_logits(logit: float, y: int):
    task, params = Logistic(features=1), {"w": jnp.ones(1), "b": jnp.zeros(())}
    value, gradient = jax.value_and_grad(lambda p: task.losses(p, shard([[logit]], [y])).sum())(
        params
    )
    assert float(value) == pytest.approx(
        np.logaddexp(0.0, logit if y == 0 else -logit), rel=1e-6, abs=1e-38
    )
    assert np.isfinite(gradient["b"])


def test_hinge_losses_by_hand():
    # z = 2x + 1: margins of labels 0, 1, 1 are -3, 3, 0, so the hinges are 4, 0, 1 and half the
    # squared norm is 2.
    params, rows = (
        {"w": jnp.array([2.0]), "b": jnp.array(1.0)},
        shard([[1.0], [1.0], [-0.5]], [0, 1, 1]),
    )
    mean, total = LinearSVM(features=1), LinearSVM(features=1, reduction="sum")
    np.testing.assert_allclose(mean.losses(params, rows), [4.0, 0.0, 1.0])
    assert float(batch_loss(mean, params, rows)) == pytest.approx(5 / 3 + 2)
    assert float(batch_loss(total, params, rows)) == pytest.approx(5 + 2)
    assert float(
        batch_loss(LinearSVM(features=1, regularisation=0.0), params, rows)
    ) == pytest.approx(5 / 3)
    np.testing.assert_array_equal(mean.predict(params, rows.x), [1, 1, 0])
    padded = shard([[1.0], [1.0], [-0.5], [9.0]], [0, 1, 1, 0], [1.0, 1.0, 1.0, 0.0])
    assert float(batch_loss(mean, params, padded)) == pytest.approx(5 / 3 + 2)
    assert float(batch_loss(total, params, padded)) == pytest.approx(5 + 2)


def test_mlp_keeps_the_scale_of_standardised_features():
    task = MLP(features=200, classes=10, hidden=(300, 300))
    params = task.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (400, 200))
    probabilities = task.probabilities(params, x)
    assert [tuple(layer["w"].shape) for layer in params] == [(200, 300), (300, 300), (300, 10)]
    assert all((layer["b"] == 0).all() for layer in params)
    losses = task.losses(params, shard(x, np.zeros(400, int)))
    assert (
        0.7
        < float((jnp.log(probabilities) - jnp.log(probabilities).mean(1, keepdims=True)).var())
        < 1.4
    )
    assert abs(float(losses.mean()) - np.log(10)) < 1.0


def test_models_take_images_as_rows_of_numbers():
    images = Federation.from_arrays(
        np.arange(36, dtype=np.uint8).reshape(4, 3, 3), [0, 1, 0, 1], ["a", "a", "b", "b"]
    )
    for build in MODELS.values():
        task = build(images)
        params = jax.tree.map(lambda leaf: leaf + 0.1, task.init(jax.random.key(0)))
        flat = images.x.reshape(4, 9).astype(np.float32)
        np.testing.assert_allclose(
            task.losses(params, shard(images.x, images.y)),
            task.losses(params, shard(flat, images.y)),
            rtol=1e-5,
        )


@pytest.mark.parametrize("name", ["softmax", "logistic", "mlp"])
def test_probabilities_sum_to_one_and_agree_with_predictions(name: str):
    task = MODELS[name](federations.tiny(classes=2))
    params = jax.tree.map(
        lambda leaf: leaf + jax.random.normal(jax.random.key(3), leaf.shape),
        task.init(jax.random.key(0)),
    )
    x = jnp.asarray(federations.tiny(classes=2).x)
    probabilities = np.asarray(task.probabilities(params, x))  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(probabilities.argmax(1), task.predict(params, x))


class Network(eqx.Module):
    """A layer, an activation kept as a field, and an integer array that must survive untouched."""

    layer: eqx.nn.Linear
    order: jax.Array
    activation: Any

    def __init__(self, classes: int, key: jax.Array) -> None:
        self.layer = eqx.nn.Linear(5, classes, key=key)
        self.order = jnp.arange(5)[::-1]
        self.activation = jax.nn.tanh

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(self.layer(x[self.order]))


def by_hand(classes: int = 3) -> Custom:
    return Custom(
        initialise=lambda key: {"w": jax.random.normal(key, (5, classes)), "b": jnp.zeros(classes)},
        apply=lambda params, x: x @ params["w"] + params["b"],
    )


@pytest.mark.parametrize(
    "task", [from_equinox(lambda key: Network(3, key)), by_hand()], ids=["equinox", "custom"]
)
def test_own_models_train_alone_and_several_at_a_time(task: Custom, tiny: Federation):
    check_task(task, tiny)
    texts = ["q-fedavg(q=0)+full", "q-fedavg(q=1)+full"]
    [alone] = simulate(task, tiny, [algorithm(texts[1])], rounds=5)
    together = simulate(task, tiny, [algorithm(text) for text in texts], rounds=5)
    first = task.init(jax.random.key(0))
    assert jax.tree.structure(alone.model) == jax.tree.structure(first)
    for a, b, start in zip(
        *map(jax.tree.leaves, (alone.model, together[1].model, first)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        assert (a != start).any()
    assert np.nanmean(alone.losses[-1, 0]) < np.nanmean(alone.losses[0, 0])
    np.testing.assert_allclose(alone.tables, together[1].tables, atol=1)


def test_a_custom_linear_model_equals_softmax(tiny: Federation, task: Softmax):
    zero = Custom(
        initialise=lambda key: task.init(key), apply=lambda params, x: x @ params["w"] + params["b"]
    )
    [own], [built_in] = (
        simulate(t, tiny, [algorithm("fedavg+full")], rounds=3) for t in (zero, task)
    )
    np.testing.assert_allclose(own.model["w"], built_in.model["w"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("apply", "shape"),
    [
        (lambda p, x: (x @ p)[:, 0], r"\(3,\)"),
        (lambda p, x: (x @ p)[:, :1], r"\(3, 1\)"),
        (lambda p, x: p, r"\(5, 3\)"),
    ],
)
def test_own_models_must_give_scores_per_row(apply: Any, shape: str, tiny: Federation):
    with pytest.raises(
        ValueError,
        match=(
            r"one row of at least two class scores per example, here \[3, classes\]; it returned"
            rf" shape {shape}"
        ),
    ):
        check_task(Custom(initialise=lambda key: jnp.zeros((5, 3)), apply=apply), tiny)


def test_a_model_with_the_wrong_number_of_classes_is_refused(tiny: Federation):
    with pytest.raises(ValueError, match="Custom has 4 classes, but the data have 3 labels"):
        check_task(by_hand(4), tiny)
    with pytest.raises(
        ValueError, match=r"^Softmax expects 6 features, but rows of .* have 5\. Pass features=5\.$"
    ):
        check_task(Softmax(features=6, classes=3), tiny)
    with pytest.raises(
        ValueError, match=r"^Custom cannot be applied to rows of shape \[5\]: dot_general"
    ):
        check_task(Custom(initialise=lambda key: jnp.zeros((6, 3)), apply=lambda p, x: x @ p), tiny)


class NotATree(Custom):
    """A subclass is not registered as a pytree."""


@record
class Regression:
    """A task whose predictions are not classes."""

    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def init(self, key: Any) -> Any:
        return jnp.zeros(5)

    def losses(self, params: Any, rows: Shard) -> Any:
        return (rows.x @ params - rows.y) ** 2

    def penalty(self, params: Any) -> float:
        return 0.0

    def predict(self, params: Any, x: Any) -> Any:
        return x @ params


def test_what_is_not_a_task_is_refused(tiny: Federation):
    with pytest.raises(
        TypeError, match=r"A task must be a pytree, which NotATree is not\. Decorate"
    ):
        check_task(NotATree(initialise=lambda key: (), apply=lambda p, x: x), tiny)
    with pytest.raises(
        ValueError,
        match=(
            r"Regression: predict must return one class number per row, but 3 rows gave"
            r" float32\[3\]"
        ),
    ):
        check_task(Regression(), tiny)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="init must return arrays of floats only"):
        check_task(Custom(initialise=lambda key: jnp.zeros(3, int), apply=lambda p, x: x), tiny)


@pytest.mark.parametrize("name", MODELS)
def test_every_named_model_fits_the_federation_it_was_built_for(name: str):
    federation = federations.tiny(classes=2)
    task = MODELS[name](federation)
    assert type(task) is TASKS[name]
    check_task(task, federation)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: MLP(features=2, classes=2, hidden=[8]),
            r"mlp: hidden must be a tuple of positive widths, such as \(64,\), got \[8\]",
        ),  # pyright: ignore[reportArgumentType]
        (lambda: MLP(features=2, classes=2, hidden=(0,)), "mlp: hidden"),
        (
            lambda: Softmax(features=0, classes=2),
            "softmax: features must be a whole number of at least 1, got 0",
        ),
        (
            lambda: Softmax(features=1, classes=1),
            "softmax: classes must be a whole number of at least 2, got 1",
        ),
        (
            lambda: Logistic(features=1, reduction="max"),
            "logistic: reduction must be 'mean' or 'sum', got 'max'",
        ),
        (
            lambda: LinearSVM(features=1, regularisation=-1.0),
            "regularisation must be at least 0, got -1.0",
        ),
    ],
)
def test_wrong_settings_are_refused(build: Any, message: str):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("name", ["softmax", "logistic", "svm"])
def test_linear_models_start_at_zero_or_as_in_pytorch(name: str):
    sizes = {"features": 400, **({"classes": 3} if name == "softmax" else {})}
    zero, random = (TASKS[name](**sizes, start=start) for start in ("zero", "random"))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(zero.init(jax.random.key(1))))
    drawn = random.init(jax.random.key(1))
    weights = np.asarray(drawn["w"])
    assert jax.tree.map(jnp.shape, drawn) == jax.tree.map(jnp.shape, zero.init(jax.random.key(1)))
    # uniform within 1 / sqrt(400)
    assert np.abs(weights).max() <= 0.05
    assert np.abs(np.asarray(drawn["b"])).max() <= 0.05
    assert weights.std() == pytest.approx(0.05 / np.sqrt(3), rel=0.1)
    assert weights.mean() == pytest.approx(0, abs=0.005)
    other = random.init(jax.random.key(2))
    assert not np.array_equal(weights, other["w"])


def test_another_start_is_refused():
    with pytest.raises(ValueError, match="start must be 'zero' or 'random'"):
        Logistic(features=2, start="ones")
