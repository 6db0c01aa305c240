"""Initial parameters of a ResNet from a file with torchvision's state dict.

torchvision's ResNets have batch normalisation, and ours have group normalisation, because clients
share no statistics of batches. The file is converted norm by norm: scale and shift of each batch
normalisation become those of the group normalisation in its place, and its running statistics are
left out. So the features are a start to train from, not the network that was trained.
"""

import io
import math
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.records import require
from evenly.types import Tree

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
# storages of tensors that a state dict holds
KINDS = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8"}
# how torchvision calls the parts of a block
PARTS = {
    "first": ("conv1", "bn1"),
    "second": ("conv2", "bn2"),
    "aside": ("downsample.0", "downsample.1"),
}


class _Storage(NamedTuple):
    """Where the numbers of a tensor are in a file."""

    dtype: str
    name: str


class _StateReader(pickle.Unpickler):
    """Reads the index of a file of PyTorch: names, shapes and places of tensors.

    Only what an index of tensors needs can be created, so that a file can run no code.
    """

    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{folder}/data.pkl")))
        self._archive, self._folder = archive, folder

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) == ("collections", "OrderedDict"):
            return dict
        if (module_name, global_name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if module_name == "torch" and global_name in KINDS:
            return KINDS[global_name]
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not part of a state dict")

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, name, *_ = pid
        return _Storage(kind, name)

    def _tensor(
        self, storage: _Storage, offset: int, size: Sequence[int], stride: Sequence[int], *_: Any
    ) -> np.ndarray:
        values = np.frombuffer(
            self._archive.read(f"{self._folder}/data/{storage.name}"), storage.dtype
        )
        steps = [step * values.itemsize for step in stride]
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if min(offset, *size, *stride, 0) < 0:
            raise pickle.UnpicklingError("a tensor has a negative size, stride or offset")
        if 0 in size:
            return np.zeros(size, storage.dtype)
        if last >= len(values) or math.prod(size) > len(values):
            raise pickle.UnpicklingError(
                f"a tensor of shape {tuple(size)} does not fit into its {len(values)} numbers"
            )
        return np.lib.stride_tricks.as_strided(values[offset:], size, steps).copy()


def read_state(path: str) -> dict[str, np.ndarray]:
    """Read a state dict: a file of PyTorch 1.6 or later, or an .npz with the same names.

    PyTorch is not needed.

    Raises:
        ValueError: If the file is missing or is neither.
    """
    require(
        Path(path).is_file(),
        f"resnet: there is no file {path!r}. `weights` must be the path of a torchvision state"
        " dict, such as resnet18-f37072fd.pth.",
    )
    try:
        if path.endswith(".npz"):
            with np.load(path, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        with zipfile.ZipFile(path) as archive:
            folder = next(one for one in archive.namelist() if one.endswith("/data.pkl"))
            state = _StateReader(archive, folder.removesuffix("/data.pkl")).load()
        return {str(name): np.asarray(value) for name, value in state.items()}
    except Exception as error:  # a damaged pickle raises errors of any kind
        raise ValueError(
            f"resnet: {path!r} could not be read as a state dict of PyTorch 1.6 or later, or as"
            f" .npz: {str(error).partition(chr(10))[0] or type(error).__name__}."
        ) from None


def with_weights(params: Tree, path: str) -> Tree:
    """Return the parameters of a ResNet with those of a file in their place.

    The last layer is taken from the file only if it has as many classes. Otherwise it stays as
    it started.

    Raises:
        ValueError: If the file cannot be read, lacks an array, or has one that does not fit.
    """
    state = read_state(path)
    head = state.get("fc.weight")
    fits = head is not None and head.shape == params["dense"]["w"].shape[::-1]
    dense = _dense(state, path) if fits else params["dense"]
    found = {
        "stem": _normed(state, "conv1", "bn1", params["stem"], path),
        "blocks": [
            _block(state, name, block, path)
            for name, block in zip(_block_names(state), params["blocks"], strict=False)
        ],
        "dense": dense,
    }
    require(
        len(found["blocks"]) == len(params["blocks"]) == len(list(_block_names(state))),
        f"resnet: {path!r} has {len(list(_block_names(state)))} blocks, and the model has"
        f" {len(params['blocks'])}. Choose `blocks` as in the file.",
    )
    _check_nothing_left(state, found, path)
    return found


def _block_names(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the blocks in their order: layer1.0, layer1.1, layer2.0."""
    names = {
        ".".join(name.split(".")[:2]) for name in state if name.startswith("layer") and "." in name
    }
    yield from sorted(names)


def _block(state: Mapping[str, Any], name: str, block: Tree, path: str) -> Tree:
    return {
        part: _normed(state, f"{name}.{PARTS[part][0]}", f"{name}.{PARTS[part][1]}", own, path)
        for part, own in block.items()
    }


def _normed(state: Mapping[str, Any], conv: str, norm: str, own: Tree, path: str) -> Tree:
    """Return a convolution [size, size, in, out] and its normalisation."""
    shapes = {
        f"{conv}.weight": tuple(own["conv"]["w"].shape[i] for i in (3, 2, 0, 1)),
        f"{norm}.weight": own["norm"]["w"].shape,
        f"{norm}.bias": own["norm"]["b"].shape,
    }
    weight, scale, shift = (_array(state, name, shape, path) for name, shape in shapes.items())
    return {"conv": {"w": weight.transpose(2, 3, 1, 0)}, "norm": {"w": scale, "b": shift}}


def _dense(state: Mapping[str, Any], path: str) -> Tree:
    weight = state["fc.weight"]
    bias = _array(state, "fc.bias", weight.shape[:1], path)
    return {"w": np.asarray(weight, np.float32).T, "b": bias}


def _array(state: Mapping[str, Any], name: str, shape: tuple[int, ...], path: str) -> np.ndarray:
    require(
        name in state,
        f"resnet: {path!r} lacks {name!r}. It must be the state dict of a torchvision ResNet with"
        " basic blocks, such as resnet18.",
    )
    given = tuple(state[name].shape)
    require(
        given == tuple(shape),
        f"resnet: {name!r} in {path!r} has the shape {given}, and the model needs {tuple(shape)}."
        " torchvision's ResNet-18 needs stem=imagenet, width=64 and three channels.",
    )
    array = np.asarray(state[name], np.float32)
    require(
        bool(np.isfinite(array).all()),
        f"resnet: {name!r} in {path!r} has values that are not finite.",
    )
    return array


def _check_nothing_left(state: Mapping[str, Any], found: Tree, path: str) -> None:
    known = {"fc.weight", "fc.bias", "conv1.weight", "bn1.weight", "bn1.bias"}
    for name, block in zip(_block_names(state), found["blocks"], strict=True):
        for part in block:
            conv, norm = PARTS[part]
            known |= {f"{name}.{conv}.weight", f"{name}.{norm}.weight", f"{name}.{norm}.bias"}
    left = sorted(n for n in state if n not in known and n.rpartition(".")[2] not in STATISTICS)
    require(
        not left,
        f"resnet: {path!r} has {left[0] if left else ''!r}, for which the model has no place. It"
        " must be the state dict of a torchvision ResNet with basic blocks, such as resnet18.",
    )
