"""What a reader needs to know of a metric; the registries of client and of group metrics are made of these."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """A metric and what a reader needs to know of it. `better` is +1 if larger is better, -1 if smaller is fairer, 0 neither.

    >>> Metric("eod", "EOD", "TPR₀ − TPR₁", "−1 to 1", 0, abs).direction
    'closer to 0 is fairer'
    """

    name: str
    title: str
    formula: str
    range: str
    better: int
    function: Callable[..., Any]
    undefined: str = ""  # when it has no value, in words; "": the documentation finds out by trying

    @property
    def direction(self) -> str:
        if self.better == 0 and self.range.startswith("−"):  # signed: both sides of 0 are unfair, to one side or the other
            return "closer to 0 is fairer"
        return {1: "higher is better", -1: "lower is fairer", 0: "neither"}[self.better]

    @property
    def doc(self) -> str:
        """What the function says of itself, also where some of its arguments are fixed."""
        return inspect.getdoc(getattr(self.function, "func", self.function)) or ""
