"""An attack on the figures of an audit: integer programming over all tables that would give the
same audit.csv.

The reader of audit.csv is assumed to know the rules of the audit and which combinations of values
occur. A rate and its number of rows are counts. A difference between two sides has fifteen digits,
so its counts are taken as known as well.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array

MISSING = "(missing)"
KINDS = {
    "accuracy": ((0, 0), (1, 1)),
    "selection_rate": ((0, 1), (1, 1)),
    "tpr": ((1, 1),),
    "fpr": ((0, 1),),
    "base_rate": ((1, 0), (1, 1)),
}
# labels that a rate is a share of
BEHIND = {
    "accuracy": (0, 1),
    "selection_rate": (0, 1),
    "base_rate": (0, 1),
    "tpr": (1,),
    "fpr": (0,),
}
OF_GAPS = {
    "spd": ("selection_rate",), "impact_ratio": ("selection_rate",), "acc_diff": ("accuracy",),
    "eod": ("tpr",), "aod": ("tpr", "fpr"), "odds_diff": ("tpr", "fpr"), "fpr_diff": ("fpr",),
}  # fmt: skip


class Bound(NamedTuple):
    """What the attack found of one small count that is not shown."""

    name: str
    people: int
    low: int
    high: int

    @property
    def recovered(self) -> bool:
        return self.low == self.high


class Attack:
    """The people of a table by client, values, label and prediction, and what a release says of
    them.
    """

    def __init__(self, frame: Any, columns: list[str], client: str | None, released: Any):
        who = [*([client] if client else []), *columns]
        cells = (
            frame.assign(**{name: frame[name].fillna(MISSING) for name in columns})
            .groupby([*who, "y", "p"])
            .size()
        )
        keys = sorted({key[:-2] for key in cells.index})
        self.cells = [dict(zip(who, key, strict=True)) for key in keys]
        self.truth = np.array(
            [[[cells.get((*key, y, p), 0) for p in (0, 1)] for y in (0, 1)] for key in keys]
        )
        self.columns, self.client = columns, client
        self.figures: list[dict[Any, Any]] = released.to_dict("records")
        self.known: list[np.ndarray] = []
        for figure in self.figures:
            self.known += self.equations(figure)

    def where(self, **values: str) -> np.ndarray:
        return np.array(
            [all(cell[name] == value for name, value in values.items()) for cell in self.cells]
        )

    def people(self, cells: np.ndarray, label: tuple[int, ...] = (0, 1)) -> np.ndarray:
        chosen = np.zeros(self.truth.shape)
        chosen[np.ix_(cells, np.array(label))] = 1
        return chosen

    def rate(self, cells: np.ndarray, metric: str) -> list[np.ndarray]:
        chosen = np.zeros(self.truth.shape)
        for label, prediction in KINDS[metric]:
            chosen[cells, label, prediction] = 1
        return [chosen, self.people(cells, BEHIND[metric])]

    def equations(self, figure: dict[Any, Any]) -> list[np.ndarray]:
        """The counts that a figure tells."""
        level, name, metric = figure["level"], figure["name"], figure["metric"]
        if level == "model":
            return self.rate(self.where(), metric) if metric in KINDS else []
        if level == "client":
            if metric in KINDS:
                return self.rate(self.where(**{str(self.client): name}), metric)
            gap, column = metric.split(":")
            # the parts of a gap tell of the client's sides what its gap would tell
            gap = gap.removesuffix("_within_clients").removesuffix("_between_clients")
            return self.gap(
                column, self.unprivileged(column), gap, self.where(**{str(self.client): name})
            )
        if level in ("group", "intersection"):
            values = dict(part.split("=") for part in name.split(", "))
            if metric in KINDS:
                return self.rate(self.where(**values), metric)
            ((column, value),) = values.items()
            return self.gap(column, value, metric, self.where())
        return []  # of all clients or groups together: functions of what is shown

    def unprivileged(self, column: str) -> str:
        """The value that is set against all others, which the page names: its figures are those of
        the column.
        """
        of = {(f["name"], f["metric"]): f["value"] for f in self.figures if f["level"] == "group"}
        spd = next(
            f["value"]
            for f in self.figures
            if (f["level"], f["name"], f["metric"]) == ("column", column, "spd")
        )
        return next(
            name.split("=")[1]
            for (name, metric), value in of.items()
            if name.startswith(f"{column}=") and (metric, value) == ("spd", spd)
        )

    def gap(self, column: str, value: str, metric: str, among: np.ndarray) -> list[np.ndarray]:
        shown = {figure["name"] for figure in self.figures if figure["level"] == "group"}
        absent = (
            self.where(**{column: MISSING})
            if f"{column}={MISSING}" in shown
            else np.zeros(len(self.cells), bool)
        )
        own = self.where(**{column: value})
        return [
            each
            for rate in OF_GAPS[metric]
            for side in (own, ~own & ~absent)
            for each in self.rate(side & among, rate)
        ]

    def targets(self, least: int) -> dict[str, np.ndarray]:
        """Small counts: people by client, value, combination of values, value within a client, and
        each of them by label.
        """
        lines = [[name] for name in self.columns] + (
            [self.columns] if len(self.columns) > 1 else []
        )
        lines += [[self.client, name] for name in self.columns] if self.client else []
        found = (
            {}
            if not self.client
            else {
                f"{k}": self.people(self.where(**{self.client: k}))
                for k in {c[self.client] for c in self.cells}
            }
        )
        for line in lines:
            for values in {tuple(cell[name] for name in line) for cell in self.cells}:
                chosen = self.where(**dict(zip(line, values, strict=True)))
                found |= {
                    f"{values} {label}": self.people(chosen, label)
                    for label in ((0, 1), (0,), (1,))
                }
        return {name: mask for name, mask in found.items() if 0 < (mask * self.truth).sum() < least}

    def run(self, least: int) -> list[Bound]:
        """The least and the greatest value of every small count, among all tables that agree with
        the release.
        """
        rows = np.unique(np.array([mask.ravel() for mask in self.known]), axis=0)
        constraints = [LinearConstraint(csr_array(rows), *[rows @ self.truth.ravel()] * 2)]  # pyright: ignore[reportArgumentType]
        if any(figure["level"] == "intersection" for figure in self.figures):
            constraints.append(LinearConstraint(csr_array(np.array(self.listed())), 1, np.inf))  # pyright: ignore[reportArgumentType]
        targets = self.targets(least)
        seen: dict[str, tuple[int, int]] = dict.fromkeys(targets, (10**9, -1))
        for table in self.tables(
            constraints,
            targets,
            lambda: {
                name: ends for name, ends in seen.items() if ends[0] == ends[1] or ends[1] < 0
            },
        ):
            for name, mask in targets.items():
                count = int((mask * table).sum())
                seen[name] = min(seen[name][0], count), max(seen[name][1], count)
        return [
            Bound(name, int((mask * self.truth).sum()), *seen[name])
            for name, mask in targets.items()
        ]

    def listed(self) -> list[np.ndarray]:
        """The people of each combination of values that occurs, all of which the page lists."""
        combinations = {tuple(cell[name] for name in self.columns) for cell in self.cells}
        return [
            self.people(self.where(**dict(zip(self.columns, values, strict=True)))).ravel()
            for values in combinations
        ]

    def tables(
        self,
        constraints: list[Any],
        targets: dict[str, np.ndarray],
        still: Callable[[], dict[str, Any]],
    ) -> Iterator[np.ndarray]:
        """Tables that agree: each shows that the counts in which they differ are not recovered."""
        yield self.truth
        draw = np.random.default_rng(0)
        for _ in range(6):
            if rest := still():
                yield self.solve(
                    constraints, sum(draw.choice([-1, 1]) * targets[name] for name in rest)
                )
        for name in still():
            if name in still():
                yield self.solve(constraints, targets[name])
            if name in still():
                yield self.solve(constraints, -targets[name])

    def solve(self, constraints: list[Any], objective: Any) -> np.ndarray:
        found = milp(
            objective.ravel(), constraints=constraints, integrality=np.ones(objective.size)
        )
        assert found.success, found.message
        return found.x.round().reshape(self.truth.shape)
