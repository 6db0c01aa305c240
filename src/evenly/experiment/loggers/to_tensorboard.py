"""Log to TensorBoard: event files in logs/tensorboard, one folder for each run.

A resumed run writes its event file anew with all points, so that no point occurs twice.
"""

from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from evenly.experiment.loggers import metrics_of, params_of, path_of
from evenly.experiment.observe import Point, RunId


class ToTensorBoard:
    """One writer for each active run."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._writers = folder, dict[RunId, Any]()

    def log(self, point: Point) -> None:
        metrics = metrics_of(point)
        writer = self._writers.get(point.run) or self._begun(point, list(metrics))
        for name, value in metrics.items():
            writer.add_scalar(name, value, point.round)
        writer.flush()
        if point.round == point.rounds:
            self._writers.pop(point.run).close()

    def close(self, *, finished: bool) -> None:
        for writer in self._writers.values():
            writer.close()

    def _begun(self, point: Point, metrics: list[str]) -> Any:
        path = self._folder / path_of(point)
        for old in path.glob("events.out.tfevents.*"):
            old.unlink()
        writer: Any = SummaryWriter(str(path))
        self._writers[point.run] = writer
        # settings, for the page that compares them
        for summary in hparams(params_of(point), dict.fromkeys(metrics, 0.0)):
            writer.file_writer.add_summary(summary)
        return writer
