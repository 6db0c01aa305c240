"""What a metric declares: its name, formula, range, direction, and which data its value is computed
from.

The registries of client, group, equity and run metrics consist of these declarations. Tables,
reports, audits and the hiding of small cells read them instead of listing metrics themselves.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from evenly.registry import description

ROWS, SIDES, GROUPS = "rows", "sides", "groups"
CLIENTS, WORST_TENTH, BEST_TENTH = "clients", "worst tenth", "best tenth"
WORST_CLIENT, BEST_CLIENT, SOME_CLIENTS = "worst client", "best client", "some clients"
CLIENT_GROUPS, RUN = "client groups", "run"
RESTS_ON = {
    ROWS: "all rows together",
    SIDES: "the unprivileged and the privileged, each pooled",
    GROUPS: "every single group of people",
    CLIENTS: "the accuracies of all clients",
    WORST_TENTH: "the worst-served tenth of the clients",
    BEST_TENTH: "the best-served tenth of the clients",
    WORST_CLIENT: "the worst-served client",
    BEST_CLIENT: "the best-served client",
    SOME_CLIENTS: "one or a few of the clients, whichever they are",
    CLIENT_GROUPS: "the accuracies of groups of clients",
    RUN: "the run itself: its traffic and its models",
}
OF_PEOPLE = (ROWS, SIDES, GROUPS)
FEW_CLIENTS = (WORST_TENTH, BEST_TENTH, WORST_CLIENT, BEST_CLIENT, SOME_CLIENTS)
OF_CLIENTS = (CLIENTS, *FEW_CLIENTS)


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric: the function that computes it and its description for readers.

    Args:
        name: Short name, used as a column of results, such as ``"eod"``.
        title: Name in tables and reports.
        formula: Formula in plain text.
        range: Smallest and largest value, with the unit, such as ``"0 to 100 %"``.
        better: 1 if larger is better, -1 if smaller is better or fairer, 0 if neither.
        function: Computes the value. Its arguments depend on `rests_on`; see docs/add-a-metric.md.
        rests_on: What the value is computed from, one of `RESTS_ON`. It decides whether the metric
            is hidden where figures must not rest on few people (`--min-cell`), so it has no
            default.
        undefined: When the metric has no value, in words. If empty, the documentation determines it
            by trying.
        meaning: What the value says, in a sentence. By default the docstring of the function.

    Raises:
        ValueError: If `rests_on` or `better` is not one of the values above.

    Example:
        >>> Metric("eod", "EOD", "TPR₀ − TPR₁", "−1 to 1", 0, abs, "sides").direction
        'closer to 0 is fairer'
    """

    name: str
    title: str
    formula: str
    range: str
    better: int
    function: Callable[..., Any]
    rests_on: str = ""
    undefined: str = ""
    meaning: str = ""

    def __post_init__(self) -> None:
        if self.rests_on not in RESTS_ON:
            options = "; ".join(f"{name!r}, {words}" for name, words in RESTS_ON.items())
            raise ValueError(
                f"Metric {self.name!r}: rests_on must say what the value is computed from, because"
                f" that decides what is hidden under --min-cell, got {self.rests_on!r}. Known:"
                f" {options}."
            )
        if self.better not in (-1, 0, 1):
            raise ValueError(
                f"Metric {self.name!r}: better must be 1 (higher), -1 (lower) or 0 (neither), got"
                f" {self.better!r}."
            )

    @property
    def direction(self) -> str:
        """Which values are better, in words."""
        # signed: both sides of 0 are unfair, to one side or the other
        if self.better == 0 and self.range.startswith("−"):
            return "closer to 0 is fairer"
        lower = "lower is better" if self.rests_on == RUN else "lower is fairer"
        return {1: "higher is better", -1: lower, 0: "neither"}[self.better]

    @property
    def doc(self) -> str:
        """The meaning of the metric, or else the description of its function."""
        return self.meaning or description(getattr(self.function, "func", self.function))
