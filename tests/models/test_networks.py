"""Networks for images and text: their sizes, what every task promises, and that the simulator
trains them.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evenly
from evenly import trees
from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.models import (
    CNN,
    NETWORKS,
    PIXELS,
    TASKS,
    CharLSTM,
    LeNet,
    Probabilistic,
    ResNet,
    check_task,
)
from evenly.models.layers import MOST_ROWS
from evenly.parts.work import batch_loss
from evenly.records import replace
from evenly.saved_models import Model
from evenly.simulate import simulate
from evenly.types import Task
from tests.models.networks import CLASSES, SMALL, examples, federation, shard

EVERY = pytest.mark.parametrize("name", SMALL)
# the parts of the others are in these
MOST = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.further] * (name in ("lenet-no-bias", "cnn")))
        for name in SMALL
    ],
)


def sizes(task: Task) -> list[int]:
    return [leaf.size for leaf in jax.tree.leaves(jax.eval_shape(task.init, jax.random.key(0)))]


@pytest.mark.parametrize(
    ("task", "count"),
    [
        (LeNet(), 1_625_866),  # 288 + 32 + 18,432 + 64 + 1,605,632 + 128 + 1,280 + 10
        (LeNet(bias=False), 1_625_632),
        (LeNet(classes=62, bias=False), 1_632_288),
        (CNN(), 62_006),  # 456 + 2,416 + 48,120 + 10,164 + 850
        (ResNet(), 11_173_962),
        (ResNet(classes=100), 11_220_132),  # 90 more classes of 512 + 1
        # 80 * 8 + [1024 * (8 + 256) + 2048] + [1024 * (256 + 256) + 2048] + 80 * 256 + 80
        (CharLSTM(), 819_920),
        (CharLSTM(layers=1), 293_584),
    ],
)
def test_the_papers_networks_have_this_many_parameters(task: Task, count: int):
    assert sum(sizes(task)) == count


def test_the_edges_of_e2fl_are_those_of_its_layers():
    assert sizes(LeNet(bias=False)) == [288, 18432, 1605632, 1280]
    assert sizes(LeNet(bias=False, classes=62)) == [288, 18432, 1605632, 7936]


@MOST
def test_losses_predictions_and_probabilities_agree(name: str):
    task, x = SMALL[name], examples(name, 9)
    assert isinstance(task, Probabilistic)

    @jax.jit
    def all_three(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        params = task.init(jax.random.key(0))
        return (
            task.probabilities(params, x),
            task.predict(params, x),
            task.losses(params, shard(x, y)),
        )

    y = np.arange(9) % CLASSES
    chances, predicted, losses = map(np.asarray, all_three(jnp.asarray(x), jnp.asarray(y)))
    np.testing.assert_allclose(chances.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(chances.argmax(1), predicted)
    np.testing.assert_allclose(losses, -np.log(chances[np.arange(9), y]), rtol=1e-4, atol=1e-5)


@MOST
def test_gradients_are_finite_and_point_uphill_also_on_padding(name: str):
    task, x = SMALL[name], examples(name, 6)
    x[-2:] = 0  # what padding rows hold
    batch = shard(x, np.arange(6) % CLASSES)._replace(mask=jnp.array([1.0, 1, 1, 1, 0, 0]))

    @jax.jit
    def moved() -> Any:
        params = task.init(jax.random.key(0))
        value, gradient = jax.value_and_grad(lambda p: batch_loss(task, p, batch))(params)
        return (
            value,
            gradient,
            batch_loss(task, trees.subtract(params, trees.scale(gradient, 1e-3)), batch),
        )

    value, gradient, after = moved()
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(gradient))
    assert float(after) < float(value)


@MOST
def test_many_rows_at_once_give_what_each_gives_alone(name: str):
    task, x = SMALL[name], jnp.asarray(examples(name, MOST_ROWS + 3))
    losses = jax.jit(
        lambda x: task.losses(task.init(jax.random.key(0)), shard(x, np.zeros(len(x), int)))
    )
    np.testing.assert_allclose(losses(x)[-3:], losses(x[-3:]), rtol=1e-5)


LESS_OFTEN = {"cnn", "resnet"}  # compiling is slow, and their parts are in the others


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] * (n in LESS_OFTEN))
        for n in SMALL
        if n != "lenet-no-bias"
    ],
)
def test_the_simulator_trains_one_run_and_two_at_a_time(name: str):
    task, data = SMALL[name], federation(name)
    check_task(task, data)
    rate = 0.5 if name == "char-lstm" else 0.05
    methods = [
        algorithm(f"q-fedavg(q={q}, learning_rate={rate}, batch_size=4)+full") for q in (0, 1)
    ]
    first = jax.jit(task.init)(jax.random.key(0))
    [alone] = simulate(task, data, methods[1:], rounds=6)
    together = simulate(task, data, methods, rounds=6)
    for a, b, start in zip(
        *map(jax.tree.leaves, (alone.model, together[1].model, first)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        assert np.isfinite(a).all()
        assert (a != start).any()
    for trace in (alone, *together):
        assert np.nanmean(trace.losses[-1, 0]) < np.nanmean(trace.losses[0, 0])
    assert not alone.excluded.any()


@EVERY
def test_a_network_comes_back_from_its_file(name: str, tmp_path: Path):
    task, data = SMALL[name], federation(name)
    params = jax.jit(task.init)(jax.random.key(5))
    model = Model(
        task=task,
        params=params,
        labels=data.labels,
        shape=data.x.shape[1:],
        dtype=str(data.x.dtype),
    )
    evenly.save(model, tmp_path / "model.npz")
    back = evenly.load(tmp_path / "model.npz")
    assert jax.tree.structure(back.task) == jax.tree.structure(task)
    for a, b in zip(*map(jax.tree.leaves, (back.params, params)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_gray_images_may_lack_their_channel_axis_and_bytes_may_be_standardised_before():
    task, x = SMALL["lenet"], examples("lenet", 4)
    params = jax.jit(task.init)(jax.random.key(0))
    losses = jax.jit(task.losses)
    mean, deviation = PIXELS["mnist"].mean[0], PIXELS["mnist"].deviation[0]
    ready = (x.astype(np.float32) / 255 - mean) / deviation
    labels = np.arange(4) % CLASSES
    expected = losses(params, shard(x, labels))
    np.testing.assert_array_equal(losses(params, shard(x[..., 0], labels)), expected)
    np.testing.assert_allclose(losses(params, shard(ready, labels)), expected, rtol=1e-5)


def test_symbols_may_come_as_floats():
    task, x = SMALL["char-lstm"], examples("char-lstm", 4)
    predict = jax.jit(lambda x: task.predict(task.init(jax.random.key(0)), x))
    np.testing.assert_array_equal(predict(jnp.asarray(x, jnp.float32)), predict(jnp.asarray(x)))


@pytest.mark.parametrize(
    ("name", "built", "count"),
    [
        ("lenet", "lenet", 8),
        ("lenet-no-bias", "lenet", 4),
        ("resnet18", "resnet", 62),
        ("char-lstm", "char-lstm", 11),
    ],
)
def test_networks_are_built_for_a_federation(name: str, built: str, count: int):
    data = federation(built)
    task = NETWORKS[name](data)
    check_task(task, data)
    assert type(task) in TASKS.values()
    assert len(sizes(task)) == count


def test_known_data_sets_bring_their_own_constants():
    data = federation("resnet")
    unknown, known = (
        NETWORKS["resnet18"](data),
        NETWORKS["resnet18"](replace(data, name="cifar100 dirichlet")),
    )
    assert isinstance(unknown, ResNet)
    assert isinstance(known, ResNet)
    assert (unknown.mean, unknown.deviation) == ((0.5,) * 3, (0.5,) * 3)
    assert (known.mean, known.deviation) == PIXELS["cifar100"]


def test_data_of_another_shape_are_refused(tiny: Federation):
    with pytest.raises(
        ValueError,
        match=r"Model 'lenet' requires images \[n, height, width, channels\], got rows of .*\[5\]",
    ):
        NETWORKS["lenet"](tiny)
    with pytest.raises(
        ValueError, match="Model 'char-lstm' requires rows of symbol numbers from 0 to 2"
    ):
        NETWORKS["char-lstm"](tiny)
    with pytest.raises(
        ValueError, match="cnn: images must be at least 16 pixels high and wide, got 8 x 8"
    ):
        NETWORKS["cnn"](federation("resnet"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: LeNet(widths=(3, 4)),
            r"lenet: widths must be three positive numbers, such as \(32, 64, 128\), got \(3, 4\)",
        ),
        (lambda: CNN(channels=()), r"cnn: channels must be a tuple of positive numbers, got \(\)"),
        (lambda: ResNet(width=3), "resnet: width must be a multiple of groups, got 3 and 2"),
        (
            lambda: ResNet(blocks=(0,)),
            (
                r"resnet: blocks must be a tuple of positive numbers, such as \(2, 2, 2, 2\), got"
                r" \(0,\)"
            ),
        ),
        (
            lambda: CharLSTM(hidden=0),
            "char-lstm: hidden must be a whole number of at least 1, got 0",
        ),
    ],
)
def test_wrong_settings_are_refused(build: Any, message: str):
    with pytest.raises(ValueError, match=message):
        build()


def test_bfloat16_learns_as_float32_does():
    """Losses agree within 5 % after every round, while training lowers them to an eighth."""
    draw, y = np.random.default_rng(0), np.arange(64) % 2
    x = np.clip(draw.normal(100 + 40 * y[:, None, None, None], 40, (64, 8, 8, 3)), 0, 255)
    rows = Federation.from_arrays(x.astype(np.uint8), y, np.arange(64) // 16, split=["train"] * 64)
    method = algorithm("fedavg(learning_rate=0.1, batch_size=8)+full")

    def losses(precision: str) -> np.ndarray:
        small: Any = {"classes": 2, "shape": (8, 8, 3), "width": 8, "blocks": (1, 1)}
        task = ResNet(**small, precision=precision)
        (trace,) = simulate(task, rows, [method], rounds=4, evaluate_every=1)
        assert {leaf.dtype for leaf in jax.tree.leaves(trace.model)} == {np.dtype("float32")}
        return np.asarray(trace.losses[:, 0])

    exact, half = losses("float32"), losses("bfloat16")
    np.testing.assert_allclose(half, exact, rtol=0.05)
    assert not np.allclose(half, exact, rtol=1e-5)  # bfloat16 was used
    assert half[-1].max() < half[0].min() / 8
