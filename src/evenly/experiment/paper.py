"""Figures of a paper beside the results of a comparison."""

import csv
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import Comparison, final_spreads
from evenly.experiment.folder import read_record
from evenly.metrics import Spread

STRICT = ConfigDict(extra="forbid", strict=True)  # "100" is not a number


class Paper(BaseModel):
    """The table `[paper]` of an experiment file: which figures of a paper are shown beside our
    results.

    `rows` maps our labels to entries of `column` in the reference file. `metrics` maps the paper's
    names of metrics to ours where they differ; in files with a level, such as user or group, the
    level comes first: group_variance. `scale` converts the paper's figures to our units. `setting`
    selects the figures with that entry. `split` names the rows that the figures are about, if the
    file does not.
    """

    model_config = STRICT
    reference: str
    dataset: str
    rows: dict[str, str]
    column: str = "objective"
    setting: str = ""
    split: str = "test"
    metrics: dict[str, str] = {}
    scale: dict[str, float] = {}


class PaperLine(NamedTuple):
    """One figure of the paper and our value."""

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


def side_by_side(comparison: Comparison, paper: Paper) -> list[PaperLine]:
    """All figures of the paper for the methods of a comparison, each with our value."""
    rows = {label: entry for label, entry in paper.rows.items() if label in comparison.labels}
    lines: dict[tuple[str, str, str], PaperLine] = {}
    ours = {
        (label, split): final_spreads(comparison, label, split)
        for label in rows
        for split in (*SPLITS, CENTRAL)
    }
    for row in _figures(paper):
        split, metric = row.get("split") or paper.split, paper.metrics.get(_name(row), _name(row))
        scale = paper.scale.get(metric, 1.0)
        for label, entry in rows.items():
            key = (split, label, metric)
            if row[paper.column] != entry or key in lines or metric not in ours[label, split]:
                continue
            deviation = float(row["std"]) * scale if row.get("std") else None
            lines[key] = PaperLine(
                row["paper_table"],
                split,
                label,
                metric,
                float(_mean(row)) * scale,
                deviation,
                ours[label, split][metric],
            )
    return list(lines.values())


def paper_lines(comparison: Comparison, folder: Path) -> list[PaperLine]:
    """All figures of the paper that the run in a folder reproduces, or an empty list."""
    known = read_record(folder)
    return (
        side_by_side(comparison, Paper.model_validate(known.paper)) if known and known.paper else []
    )


def _figures(paper: Paper) -> list[dict[str, str]]:
    with (
        resources.files("evenly") / "papers" / "reference" / f"{paper.reference}.csv"
    ).open() as file:
        rows = [
            row for row in csv.DictReader(file) if row["dataset"] == paper.dataset and _mean(row)
        ]
    return [row for row in rows if not paper.setting or row["setting"] == paper.setting]


def _mean(row: dict[str, str]) -> str:
    """The figure as text. Files with one value per figure call the column `value` instead of
    `mean`.
    """
    return row["mean"] if "mean" in row else row["value"]


def _name(row: dict[str, str]) -> str:
    return f"{row['level']}_{row['metric']}" if row.get("level") else row["metric"]


class PaperRow(NamedTuple):
    """All figures of one method on one split. Figures that the paper does not report are None."""

    split: str
    label: str
    lines: tuple[PaperLine | None, ...]


def paper_rows(lines: list[PaperLine]) -> tuple[tuple[str, ...], list[PaperRow]]:
    """The metrics that occur, and one row for each split and method, test rows first."""
    metrics = tuple(dict.fromkeys(line.metric for line in lines))
    found = {(line.split, line.label, line.metric): line for line in lines}
    pairs = sorted(
        dict.fromkeys((line.split, line.label) for line in lines),
        key=lambda pair: pair[0] != "test",
    )
    return metrics, [
        PaperRow(split, label, tuple(found.get((split, label, m)) for m in metrics))
        for split, label in pairs
    ]
