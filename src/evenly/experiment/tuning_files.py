"""`tuning.csv`: every trial with its settings and what was seen on validation rows."""

import csv
import io
from math import isfinite
from pathlib import Path
from typing import Any

from evenly.experiment.tuning import Tuning
from evenly.experiment.tuning_study import Tried
from evenly.writing import csv_row, write_whole

NAME = "tuning.csv"


def trial_rows(tuning: Tuning) -> list[dict[str, Any]]:
    """One row for the baseline and one for each trial: for every metric the mean over seeds, the deviation and each seed's value."""
    settings = list(tuning.plan.space.searched)
    return [_row(tuning, "baseline", tuning.baseline, settings), *(_row(tuning, i, one, settings) for i, one in enumerate(tuning.trials))]


def write_trials(tuning: Tuning, folder: Path) -> Path:
    rows, text = [csv_row(row) for row in trial_rows(tuning)], io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_whole(folder / NAME, lambda file: file.write(text.getvalue().encode()))


def _row(tuning: Tuning, number: int | str, tried: Tried, settings: list[str]) -> dict[str, Any]:
    choice = tuning.choice
    row: dict[str, Any] = {
        "trial": number,
        "method": tried.label,
        **{name: tried.settings.get(name, "") for name in settings},
        "allowed": choice.allowed[tried.label],
        "front": tried.label in choice.front,
        "chosen": tried.label == choice.chosen,
    }
    for metric in tried.seen:
        found = tried.spread(metric)
        each = " ".join(map(_shown, tried.seen[metric]))
        row |= {metric: _shown(found.mean), f"{metric}_deviation": _shown(found.deviation), f"{metric}_seeds": each}
    return row


def _shown(value: float) -> str:
    """A number in as many digits as it has; empty where undefined."""
    return repr(value) if isfinite(value) else ""
