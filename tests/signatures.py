"""The numbers that a function takes where its caller gives none."""

import inspect
from collections.abc import Callable
from typing import Any


def default_numbers(function: Callable[..., Any]) -> dict[str, float]:
    """Defaults that are numbers, by the names of their parameters."""
    return {
        name: one.default
        for name, one in inspect.signature(function).parameters.items()
        if type(one.default) in (int, float)
    }
