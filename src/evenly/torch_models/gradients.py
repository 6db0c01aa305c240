"""Gradients of a translation against PyTorch's.

A trace holds operations, not their gradients: a `torch.autograd.Function` leaves its forward, and
a hook leaves nothing. Equal outputs therefore do not show that a translation trains as the module.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from evenly.validation import listed_names

# by how much gradients may differ from PyTorch's in float32, relative to the largest number of the
# parameter, and to the largest of all: the gradient of a bias before a norm is only rounding
TOLERANCE, OF_ALL = 1e-2, 1e-4
ADVICE = (
    "Write another gradient with detach, such as x + (f(x) - x).detach(), or train the module in a"
    " real federation (docs/flower-clients.md), where PyTorch itself runs."
)


def weights_for(outputs: torch.Tensor) -> torch.Tensor:
    """A different weight for each output, so that the gradient of the sum shows all of them."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(outputs.shape, generator=generator).to(outputs.dtype)


def gradient_of(outputs: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """PyTorch's gradient of the weighted sum of outputs; zeros where none depends on an input."""
    values, total = list(inputs.values()), (outputs * weights_for(outputs)).sum()
    found = [None] * len(values)
    if total.requires_grad:
        found = torch.autograd.grad(total, values, retain_graph=True, allow_unused=True)
    return {
        name: (torch.zeros_like(value) if one is None else one).numpy()
        for (name, value), one in zip(inputs.items(), found, strict=True)
    }


def own_backwards(outputs: torch.Tensor) -> set[str]:
    """Names of the functions of the user that compute their gradient themselves."""
    seen, left, names = set(), [outputs.grad_fn], set()
    while left:
        node: Any = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        function = getattr(node, "_forward_cls", None)
        if function is not None and not function.__module__.startswith("torch."):
            names.add(function.__name__)
        left += [before for before, _ in node.next_functions]
    return names


def refuse_other_gradients(
    title: str, found: Mapping[str, Any], wanted: Mapping[str, np.ndarray], own: set[str]
) -> None:
    """Raise if gradients differ from PyTorch's. `own` is the functions that may be the reason."""
    sizes = {name: float(np.abs(value).max(initial=0.0)) for name, value in wanted.items()}
    if not np.isfinite(list(sizes.values())).all():
        return  # nothing to compare
    least = OF_ALL * max(sizes.values(), default=0.0)
    differing = [
        name
        for name, size in sizes.items()
        if not np.allclose(found[name], wanted[name], rtol=0, atol=TOLERANCE * size + least)
    ]
    if not differing:
        return
    if own:
        refuse_unknown_backwards(title, own)
    raise ValueError(
        f"The gradient of {title} in PyTorch differs from that of the operations that it applies,"
        f" for {listed_names(differing)}. Hooks that change gradients are no part of what PyTorch"
        " traces: leave them out. If there is none, this is an error of evenly: please report it."
    )


def refuse_unknown_backwards(title: str, own: set[str]) -> None:
    """Raise if functions compute their gradient themselves, whose gradient is not known."""
    if own:
        raise ValueError(
            f"{title} applies {listed_names(sorted(own))}, a torch.autograd.Function with a"
            f" backward of its own. PyTorch traces only its forward. {ADVICE}"
        )
