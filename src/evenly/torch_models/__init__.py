"""PyTorch modules in the simulator: `evenly.from_torch`.

A module is traced with `torch.export` (`tracing`) and evaluated in JAX (`graph`), operation by
operation (`operations`). PyTorch is needed to translate a module, but not to train it.
"""

from importlib import util

if util.find_spec("torch") is None:
    raise ImportError(
        "evenly.from_torch needs PyTorch, which is not installed. Install it with: pip install"
        ' "evenly[torch]"'
    )

from evenly.torch_models.translation import from_torch as from_torch

__all__ = ["from_torch"]
