"""The papers' figures beside ours."""

import csv
from importlib import resources
from typing import NamedTuple

from evenly.experiment.config import Paper
from evenly.experiment.results import Comparison, over_seeds
from evenly.federation import SPLITS
from evenly.metrics import Spread


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
    ours = {(label, split): over_seeds(comparison, label, split) for label in paper.rows for split in SPLITS}
    for row in _figures(paper):
        split, metric = row.get("split") or "test", paper.metrics.get(row["metric"], row["metric"])
        scale = paper.scale.get(metric, 1.0)
        for label, entry in paper.rows.items():
            key = (split, label, metric)
            if row[paper.column] != entry or key in lines or metric not in ours[label, split]:
                continue
            deviation = float(row["std"]) * scale if row["std"] else None
            lines[key] = Line(row["paper_table"], split, label, metric, float(row["mean"]) * scale, deviation, ours[label, split][metric])
    return list(lines.values())


def _figures(paper: Paper) -> list[dict[str, str]]:
    with (resources.files("evenly") / "reference" / f"{paper.reference}.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["dataset"] == paper.dataset and row["mean"]]


class Row(NamedTuple):
    """All figures of one method on one split; a figure that the paper does not give is None."""

    split: str
    label: str
    lines: tuple[Line | None, ...]


def as_rows(lines: list[Line]) -> tuple[tuple[str, ...], list[Row]]:
    """The metrics that occur, and one row per split and method: test rows first, as the papers do."""
    metrics = tuple(dict.fromkeys(line.metric for line in lines))
    found = {(line.split, line.label, line.metric): line for line in lines}
    pairs = sorted(dict.fromkeys((line.split, line.label) for line in lines), key=lambda pair: pair[0] != "test")
    return metrics, [Row(split, label, tuple(found.get((split, label, m)) for m in metrics)) for split, label in pairs]
