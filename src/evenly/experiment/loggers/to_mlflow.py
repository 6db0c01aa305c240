"""Log to MLflow: to a database in logs/mlflow, or to the server in MLFLOW_TRACKING_URI.

MLflow stores a point twice if it is logged twice. A resumed run is found by a tag, and points up to
its last step are not logged again.
"""

import logging
import os
import time
from pathlib import Path
from typing import NamedTuple

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from evenly.experiment.loggers import key_of, metrics_of, params_of
from evenly.experiment.observe import Point, RunId

TAG = "evenly.run"


class _Run(NamedTuple):
    id: str
    last: int  # the last step that it had when it was found; -1: none


class ToMLflow:
    """One MLflow run for each run, in an experiment of the same name."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._runs = folder, dict[RunId, _Run]()
        self._own = not os.environ.get("MLFLOW_TRACKING_URI")
        if self._own:
            folder.mkdir(parents=True, exist_ok=True)
            # it would tell of every table it makes
            logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        self._client = MlflowClient(
            f"sqlite:///{folder.resolve() / 'mlflow.db'}" if self._own else None
        )

    def log(self, point: Point) -> None:
        run = self._runs.get(point.run) or self._begun(point)
        now = int(1000 * time.time())
        if point.round > run.last:
            found = [
                Metric(name, value, now, point.round) for name, value in metrics_of(point).items()
            ]
            self._client.log_batch(run.id, metrics=found)
        if point.round == point.rounds:
            self._client.set_terminated(run.id, "FINISHED")
            del self._runs[point.run]

    def close(self, *, finished: bool) -> None:
        for run in self._runs.values():
            self._client.set_terminated(run.id, "FINISHED" if finished else "KILLED")

    def _begun(self, point: Point) -> _Run:
        experiment, key = (
            self._experiment(f"evenly/{point.run.experiment}"),
            key_of(point, self._folder),
        )
        known = self._client.search_runs([experiment], f"tags.`{TAG}` = '{key}'", max_results=1)
        if known:
            run = _Run(
                known[0].info.run_id, self._last(known[0].info.run_id, list(known[0].data.metrics))
            )
            self._client.update_run(run.id, status="RUNNING")
        else:
            name = f"{point.run.label} seed {point.run.seed}"
            run = _Run(
                self._client.create_run(experiment, tags={TAG: key}, run_name=name).info.run_id, -1
            )
            self._client.log_batch(
                run.id, params=[Param(name, str(value)) for name, value in params_of(point).items()]
            )
        self._runs[point.run] = run
        return run

    def _experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        if known:
            return known.experiment_id
        # else it would be where we happen to be
        place = (self._folder.resolve() / "artifacts").as_uri() if self._own else None
        return self._client.create_experiment(name, artifact_location=place)

    def _last(self, run: str, metrics: list[str]) -> int:
        return max(
            (
                one.step
                for name in metrics[:1]
                for one in self._client.get_metric_history(run, name)
            ),
            default=-1,
        )
