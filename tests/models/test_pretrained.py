"""The stem and the start of torchvision's ResNets, and parameters from a state dict."""

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.models import ResNet
from evenly.models.layers import pool_overlapping
from evenly.models.pretrained import read_state

torch = pytest.importorskip("torch")

SMALL: dict[str, Any] = {"classes": 4, "shape": (16, 16, 3), "width": 4, "blocks": (1, 1)}
CLOSE: Any = {"rtol": 1e-4, "atol": 1e-4}


def state(seed: int = 0, classes: int = 4) -> dict[str, Any]:
    """The state dict of a small ResNet, with the names of torchvision."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=draw) / 3

    shapes = {
        "conv1": (4, 3, 7, 7), "layer1.0.conv1": (4, 4, 3, 3), "layer1.0.conv2": (4, 4, 3, 3),
        "layer2.0.conv1": (8, 4, 3, 3), "layer2.0.conv2": (8, 8, 3, 3),
        "layer2.0.downsample.0": (8, 4, 1, 1),
    }  # fmt: skip
    found = {f"{name}.weight": normal(*shape) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        norm = name.replace("conv", "bn").replace("downsample.0", "downsample.1")
        found |= {
            f"{norm}.weight": 1 + normal(shape[0]), f"{norm}.bias": normal(shape[0]),
            f"{norm}.running_mean": normal(shape[0]), f"{norm}.running_var": 1 + normal(shape[0]),
            f"{norm}.num_batches_tracked": torch.tensor(7),
        }  # fmt: skip
    return {**found, "fc.weight": normal(classes, 8), "fc.bias": normal(classes)}


def saved(folder: Path, given: dict[str, Any]) -> str:
    torch.save(given, folder / "weights.pth")
    return str(folder / "weights.pth")


def expected_logits(given: dict[str, Any], x: np.ndarray) -> Any:
    """The network of torchvision with group normalisation in the place of batch normalisation."""
    functional = torch.nn.functional

    def apply(x: Any, conv: str, norm: str, stride: int = 1) -> Any:
        w = given[f"{conv}.weight"]
        x = functional.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        return functional.group_norm(x, 2, given[f"{norm}.weight"], given[f"{norm}.bias"])

    h = apply(torch.tensor(np.moveaxis(x, -1, 1)), "conv1", "bn1", 2).relu()
    h = functional.max_pool2d(h, kernel_size=3, stride=2, padding=1)
    for name, stride in (("layer1.0", 1), ("layer2.0", 2)):
        inner = apply(h, f"{name}.conv1", f"{name}.bn1", stride).relu()
        aside = (
            apply(h, f"{name}.downsample.0", f"{name}.downsample.1", stride) if stride > 1 else h
        )
        h = (apply(inner, f"{name}.conv2", f"{name}.bn2") + aside).relu()
    return h.mean((2, 3)) @ given["fc.weight"].T + given["fc.bias"]


@pytest.mark.further
def test_a_state_dict_gives_torchvisions_network_with_other_norms(tmp_path):
    given = state()
    task = ResNet(**SMALL, stem="imagenet", weights=saved(tmp_path, given))
    params = task.init(jax.random.key(0))
    x = np.random.default_rng(0).normal(size=(3, 16, 16, 3)).astype(np.float32)
    np.testing.assert_allclose(
        task.logits(params, jnp.asarray(x)), expected_logits(given, x), **CLOSE
    )


def test_npz_files_with_the_same_names_are_read(tmp_path):
    given = state()
    np.savez(tmp_path / "w.npz", **{name: value.numpy() for name, value in given.items()})
    from_torch, from_numpy = (
        ResNet(**SMALL, stem="imagenet", weights=path).init(jax.random.key(0))
        for path in (saved(tmp_path, given), str(tmp_path / "w.npz"))
    )
    jax.tree.map(np.testing.assert_array_equal, from_torch, from_numpy)


def test_a_last_layer_with_other_classes_starts_anew(tmp_path):
    path = saved(tmp_path, state(classes=1000))
    task = ResNet(**SMALL, stem="imagenet", weights=path)
    fresh = ResNet(**SMALL, stem="imagenet").init(jax.random.key(3))
    params = task.init(jax.random.key(3))
    np.testing.assert_array_equal(params["dense"]["w"], fresh["dense"]["w"])
    assert not np.array_equal(params["stem"]["conv"]["w"], fresh["stem"]["conv"]["w"])


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in state().items() if key != name}


@pytest.mark.parametrize(
    ("given", "settings", "words"),
    [
        (without("layer2.0.bn1.bias"), {}, "lacks 'layer2.0.bn1.bias'"),
        (state(), {"stem": "small"}, r"'conv1.weight' .* has the shape \(4, 3, 7, 7\), and the"),
        (state(), {"width": 8}, r"'conv1.weight' .* the model needs \(8, 3, 7, 7\)"),
        (state(), {"blocks": (1,)}, "has 2 blocks, and the model has 1"),
        (state(), {"blocks": (1, 2)}, "has 2 blocks, and the model has 3"),
        ({**state(), "layer1.0.conv3.weight": torch.ones(1)}, {}, "has 'layer1.0.conv3.weight',"),
        ({**state(), "bn1.bias": torch.full((4,), torch.nan)}, {}, "'bn1.bias' .* not finite"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, given, settings, words):
    path = saved(tmp_path, given)
    task = ResNet(**{**SMALL, "stem": "imagenet", "weights": path, **settings})
    with pytest.raises(ValueError, match=words):
        task.init(jax.random.key(0))


def test_files_that_are_missing_or_something_else_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no file 'nowhere\.pth'"):
        ResNet(weights="nowhere.pth").init(jax.random.key(0))
    (tmp_path / "text.pth").write_text("not a state dict")
    with pytest.raises(ValueError, match="could not be read as a state dict"):
        ResNet(weights=str(tmp_path / "text.pth")).init(jax.random.key(0))


def test_a_file_that_would_run_code_is_refused(tmp_path):
    class Harmful:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "touched",)

    torch.save({"conv1.weight": Harmful()}, tmp_path / "harmful.pth")
    with pytest.raises(ValueError, match="is not part of a state dict"):
        ResNet(weights=str(tmp_path / "harmful.pth")).init(jax.random.key(0))
    assert not (tmp_path / "touched").exists()


def test_views_of_tensors_are_read_as_they_are(tmp_path):
    whole = torch.arange(24.0).reshape(4, 6)
    given = {"a": whole.T, "b": whole[1:3, ::2], "c": whole.half(), "d": torch.tensor(7)}
    found = read_state(saved(tmp_path, given))
    for name, value in given.items():
        np.testing.assert_array_equal(found[name], value)


def with_tensor(folder: Path, numbers: int, *place: Any) -> str:
    """A file of PyTorch with one tensor, whose storage has so many numbers. `place` is the tensor's
    offset, size and stride.
    """

    class Storage:
        pass

    class Tensor:
        def __reduce__(self) -> Any:
            rebuild = torch._utils._rebuild_tensor_v2
            return rebuild, (Storage(), *place, False, collections.OrderedDict())

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            kept = ("storage", torch.FloatStorage, "0", "cpu", numbers)
            return kept if isinstance(obj, Storage) else None

    index = io.BytesIO()
    Pickler(index, protocol=2).dump({"a": Tensor()})
    with zipfile.ZipFile(folder / "weights.pth", "w") as archive:
        archive.writestr("weights/data.pkl", index.getvalue())
        archive.writestr("weights/data/0", np.arange(numbers, dtype="<f4").tobytes())
    return str(folder / "weights.pth")


@pytest.mark.parametrize(
    ("numbers", "place"),
    [
        (0, (0, (16,), (1,))),  # a storage without numbers
        (0, (0, (), ())),
        (6, (1, (2, 3), (3, 1))),  # ends behind the last number
        (6, (5, (2,), (-1,))),
        (6, (-1, (2,), (1,))),
        (6, (0, (-1, 2), (1, 1))),
    ],
)
def test_tensors_outside_of_their_numbers_are_refused(tmp_path, numbers, place):
    with pytest.raises(ValueError, match=r"a tensor .*(does not fit into its|has a negative)"):
        read_state(with_tensor(tmp_path, numbers, *place))


def test_tensors_larger_than_their_numbers_are_refused_before_they_are_copied(tmp_path):
    path = with_tensor(tmp_path, 1, 0, (10**12,), (0,))
    with pytest.raises(ValueError, match=r"shape \(1000000000000,\) does not fit into its 1 num"):
        read_state(path)


def test_tensors_within_their_numbers_and_empty_ones_are_read(tmp_path):
    found = read_state(with_tensor(tmp_path, 6, 1, (2, 2), (3, 1)))["a"]
    np.testing.assert_array_equal(found, [[1, 2], [4, 5]])
    assert read_state(with_tensor(tmp_path, 0, 0, (3, 0), (1, 1)))["a"].shape == (3, 0)


def test_kaiming_draws_filters_by_their_outputs():
    params = ResNet(width=16, blocks=(1, 1), stem="imagenet", start="kaiming").init(
        jax.random.key(0)
    )
    assert params["stem"]["conv"]["w"].shape == (7, 7, 3, 16)
    second = np.asarray(params["blocks"][1]["second"]["conv"]["w"])  # 3 x 3 from 32 to 32
    assert second.std() == pytest.approx(np.sqrt(2 / (9 * 32)), rel=0.03)
    assert np.abs(second).max() > 3 * second.std()  # normal, not uniform


@pytest.mark.parametrize("side", [7, 8])
def test_overlapping_pools_and_their_gradients_are_pytorchs(side: int):
    draw = np.random.default_rng(side)
    x = draw.integers(0, 4, (2, side, side, 3)).astype(np.float32)  # with equals
    theirs = torch.tensor(np.moveaxis(x, -1, 1), requires_grad=True)
    out = torch.nn.functional.max_pool2d(theirs, 3, 2, 1)
    pull = draw.normal(size=out.shape).astype(np.float32)
    (out * torch.tensor(pull)).sum().backward()
    pooled, back = jax.vjp(pool_overlapping, jnp.asarray(x))
    np.testing.assert_array_equal(np.moveaxis(np.asarray(pooled), -1, 1), out.detach())
    (gradient,) = back(jnp.asarray(np.moveaxis(pull, 1, -1)))
    np.testing.assert_allclose(np.moveaxis(np.asarray(gradient), -1, 1), theirs.grad, atol=1e-6)
