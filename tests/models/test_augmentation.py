"""Random changes of features in training."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evenly
from evenly.data.federation import Shard
from evenly.models import MLP, Augmented, LeNet, crop_and_flip
from evenly.models.named_models import choose_model
from evenly.simulate import simulate
from tests.models.stateful import Normalised


def crops(picture: np.ndarray, padding: int) -> list[np.ndarray]:
    """All crops of a padded picture [h, w] and their mirror images, one by one."""
    h, w = picture.shape
    padded = np.pad(picture, padding)
    places = [(i, j) for i in range(2 * padding + 1) for j in range(2 * padding + 1)]
    plain = [padded[i : i + h, j : j + w] for i, j in places]
    return plain + [one[:, ::-1] for one in plain]


@pytest.mark.parametrize("first", [False, True])
def test_pictures_are_crops_of_which_each_occurs(first: bool):
    picture = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    form = (1, 3, 4) if first else (3, 4, 1)
    x = jnp.broadcast_to(picture.reshape(form), (2000, *form))
    found = np.asarray(crop_and_flip(1, channels_first=first)(jax.random.key(0), x))
    allowed = {one.tobytes(): 0 for one in map(np.ascontiguousarray, crops(picture, 1))}
    for one in found.reshape(2000, 3, 4):
        allowed[one.tobytes()] += 1  # any other picture is a KeyError
    assert len(allowed) == 18
    assert min(allowed.values()) > 2000 / 18 / 2


def test_bytes_stay_bytes():
    x = jnp.zeros((2, 5, 5), jnp.uint8)
    assert crop_and_flip()(jax.random.key(0), x).dtype == jnp.uint8


def twice(key: Any, x: Any) -> Any:
    return 2 * x


def shard(n: int = 3) -> Shard:
    whole, ones = jnp.zeros(n, jnp.int32), jnp.ones(n)
    return Shard(jnp.arange(4.0 * n).reshape(n, 4) / n, whole, whole, ones, ones)


def test_only_training_sees_other_features():
    inner = MLP(features=4, classes=2)
    task, rows = Augmented(task=inner, augment=twice), shard()
    model = task.init(jax.random.key(0))
    found, state = task.train_losses(model, rows, jax.random.key(1))
    np.testing.assert_allclose(found, inner.losses(model, rows._replace(x=2 * rows.x)), rtol=1e-6)
    assert state == ()
    np.testing.assert_array_equal(task.losses(model, rows), inner.losses(model, rows))
    np.testing.assert_array_equal(task.predict(model, rows.x), inner.predict(model, rows.x))


def test_state_is_kept():
    inner = Normalised(features=4, classes=2)
    task, rows = Augmented(task=inner, augment=twice), shard()
    model = task.init(jax.random.key(0))
    _, state = task.train_losses(model, rows, jax.random.key(1))
    _, expected = inner.train_losses(model, rows._replace(x=2 * rows.x), jax.random.key(1))
    jax.tree.map(np.testing.assert_allclose, state, expected)


def test_runs_are_the_same_with_and_without_lanes_and_differ_from_plain_ones():
    federation = evenly.synthetic(clients=20)
    noise = lambda key, x: x + jax.random.normal(key, x.shape)  # noqa: E731
    plain = MLP(features=60, classes=10, hidden=(8,))
    task = Augmented(task=plain, augment=noise)
    algorithms = [evenly.algorithm("fedavg")]
    one, two = (simulate(task, federation, algorithms, rounds=2, lanes=n)[0] for n in (1, 4))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), one.model, two.model)
    (without,) = simulate(plain, federation, algorithms, rounds=2)
    assert not np.allclose(one.model[0]["w"], without.model[0]["w"])
    model = evenly.from_trace(one, task, federation)
    assert type(model.task) is MLP


def pictures(*form: int) -> evenly.Federation:
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (24, *form), dtype=np.uint8)
    y, client = np.arange(24) % 2, np.arange(24) // 8
    return evenly.Federation.from_arrays(x, y, client, split=["train", "test"] * 12)


def test_notation_adds_crops_and_flips_to_a_model():
    task = choose_model("lenet(widths=[2, 2, 4])+crop-flip(padding=2)", pictures(8, 8))
    assert isinstance(task, Augmented)
    assert isinstance(task.task, LeNet)
    assert task.task.widths == (2, 2, 4)
    assert task.augment is crop_and_flip(padding=2)  # so that seeds share a program


def test_an_experiment_trains_with_crops_and_flips():
    def weights(model: str) -> np.ndarray:
        results = evenly.compare(
            pictures(8, 8), "fedavg", rounds=2, seeds=1, model=model, epochs=1, batch_size=4
        )
        return np.asarray(results.model("fedavg").params["dense1"]["w"])

    plain, augmented = (
        weights("lenet(widths=[2, 2, 4])"),
        weights("lenet(widths=[2, 2, 4])+crop-flip"),
    )
    assert not np.allclose(plain, augmented)


@pytest.mark.parametrize(
    ("model", "form", "words"),
    [
        ("softmax+crop-flip", (8,), r"crop-flip requires images .* rows of shape \[8\]. Leave"),
        ("mlp+crop-flip(padding=-1)", (8, 8), "crop-flip: padding must be at least 0"),
        ("mlp+crop-flip(padding=x)", (8, 8), "crop-flip: padding must be a whole number, got 'x'"),
        ("mlp+crop-flip(pading=2)", (8, 8), "Did you mean 'padding'"),
        ("mlp+flip", (8, 8), r"a single one, got .mlp\+flip"),
        ("mlp+crop-flip+crop-flip", (8, 8), "a single one"),
        ("crop-flip", (8, 8), "There is no model 'crop-flip'"),
    ],
)
def test_notation_that_does_not_fit_is_refused(model: str, form: tuple[int, ...], words: str):
    with pytest.raises(ValueError, match=words):
        choose_model(model, pictures(*form))


def test_wrong_functions_are_refused():
    inner = MLP(features=4, classes=2)
    with pytest.raises(ValueError, match="augment must be a function"):
        Augmented(task=inner, augment=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="padding must be at least 0"):
        crop_and_flip(-1)
    task = Augmented(task=inner, augment=lambda key, x: x[:2])
    with pytest.raises(ValueError, match=r"float32\[3, 4\], but it returned float32\[2, 4\]"):
        task.train_losses(inner.init(jax.random.key(0)), shard(), jax.random.key(0))


def test_a_task_that_does_not_fit_is_refused_as_without_augmentation():
    federation = evenly.synthetic(clients=3)
    for inner, sentence in (
        (MLP(features=60, classes=3), r"MLP has 3 classes, but the data have 4 labels"),
        (MLP(features=59, classes=4), r"MLP expects 59 features"),
    ):
        with pytest.raises(ValueError, match=sentence):
            evenly.models.check_task(Augmented(task=inner, augment=twice), federation)


def test_a_saved_model_is_loaded_with_the_task_that_was_trained(tmp_path: Path):
    federation = evenly.synthetic(clients=3)
    plain = MLP(features=60, classes=4, hidden=(3,))
    task = Augmented(task=Augmented(task=plain, augment=twice), augment=twice)
    (trace,) = evenly.train(task, federation, "fedavg", rounds=1)
    evenly.save(evenly.from_trace(trace, task, federation), tmp_path / "model.npz")
    assert evenly.load(tmp_path / "model.npz", task=task).task == plain
