"""Log to Weights & Biases: online if the user is logged in, or to files in logs/wandb with
WANDB_MODE=offline.

A resumed run keeps its identifier. Online, existing steps are not logged again. Offline, files are
written anew with all points, and files of earlier attempts are removed.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import wandb

from evenly.experiment.loggers import key_of, metrics_of, params_of
from evenly.experiment.observe import Point, RunId


class ToWandb:
    """One W&B run for each run, grouped by experiment."""

    def __init__(self, folder: Path) -> None:
        if not os.environ.get("WANDB_MODE") and not wandb.api.api_key:
            raise ValueError(
                "Logging to wandb needs a login or WANDB_MODE=offline. Run `wandb login`, or set"
                " WANDB_MODE=offline."
            )
        self._folder, self._runs = folder, dict[RunId, Any]()

    def log(self, point: Point) -> None:
        run = self._runs.get(point.run) or self._begun(point)
        if not run.resumed or point.round >= run.step:
            run.log(metrics_of(point), step=point.round)
        if point.round == point.rounds:
            self._runs.pop(point.run).finish()

    def close(self, *, finished: bool) -> None:
        for run in self._runs.values():
            run.finish(exit_code=0 if finished else 1)

    def _begun(self, point: Point) -> Any:
        self._folder.mkdir(parents=True, exist_ok=True)
        key = key_of(point, self._folder)
        for old in self._folder.glob(f"wandb/offline-run-*-{key}"):
            shutil.rmtree(old)
        run = self._runs[point.run] = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "evenly"),
            group=point.run.experiment,
            name=f"{point.run.label} seed {point.run.seed}",
            id=key,
            config=params_of(point),
            dir=str(self._folder),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True,
                console="off",
                x_disable_stats=True,
                x_disable_meta=True,
                disable_git=True,
            ),
        )
        return run
