"""The papers' figures beside ours."""

import csv
from importlib import resources
from typing import NamedTuple

from evenly.experiment.config import Paper
from evenly.experiment.results import Comparison, over_seeds
from evenly.metrics import Spread

# The papers' names of metrics, where ours differ.
NAMES = {"angle_deg": "angle", "kl_uniform": "kl"}


class Line(NamedTuple):
    """One figure of the paper and ours."""

    table: str
    split: str
    label: str
    metric: str
    paper: float
    paper_deviation: float | None
    ours: Spread

    @property
    def difference(self) -> float:
        return self.ours.mean - self.paper


def side_by_side(comparison: Comparison, paper: Paper) -> list[Line]:
    """Every figure the paper gives for these methods, once, with ours."""
    lines: dict[tuple[str, str, str], Line] = {}
    ours = {(label, split): over_seeds(comparison, label, split) for label in paper.rows for split in ("train", "valid", "test")}
    for row in _figures(paper):
        metric = NAMES.get(row["metric"], row["metric"])
        for label, objective in paper.rows.items():
            key = (row["split"], label, metric)
            if row["objective"] != objective or key in lines or metric not in ours[label, row["split"]]:
                continue
            deviation = float(row["std"]) if row["std"] else None
            lines[key] = Line(
                row["paper_table"], row["split"], label, metric, float(row["mean"]), deviation, ours[label, row["split"]][metric]
            )
    return list(lines.values())


def _figures(paper: Paper) -> list[dict[str, str]]:
    with (resources.files("evenly") / "reference" / f"{paper.reference}.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["dataset"] == paper.dataset and row["mean"]]
