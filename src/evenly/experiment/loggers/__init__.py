"""Logging to TensorBoard, MLflow or Weights & Biases, when asked: one run of ours is one run there.

Points are logged by a thread of their own, so that a slow server never holds up training, and one that is gone ends the
logging with one sentence, never the experiment. The step is the round.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from evenly.experiment.loggers.background import Backend, in_background
from evenly.experiment.observe import Log, Point
from evenly.notation import unknown


def _tensorboard(folder: Path) -> Backend:
    from evenly.experiment.loggers.to_tensorboard import ToTensorBoard

    return ToTensorBoard(folder)


def _mlflow(folder: Path) -> Backend:
    from evenly.experiment.loggers.to_mlflow import ToMLflow

    return ToMLflow(folder)


def _wandb(folder: Path) -> Backend:
    from evenly.experiment.loggers.to_wandb import ToWandb

    return ToWandb(folder)


LOGGERS: dict[str, Callable[[Path], Backend]] = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb}
PACKAGES = {"tensorboard": ("tensorboardX", "tensorboardX"), "mlflow": ("mlflow", "mlflow-skinny"), "wandb": ("wandb", "wandb")}


def check_loggers(names: Sequence[str]) -> None:
    """Refuse what cannot be logged to, before anything is written."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        module, package = PACKAGES[name]
        if module not in sys.modules and find_spec(module) is None:
            raise ValueError(
                f"Logging to {name} needs the package {package}, which is not installed. Install it with "
                "`pip install 'evenly[logging]'`, or leave --log out."
            )


@contextmanager
def logging_to(names: Sequence[str], folder: Path) -> Iterator[Log | None]:
    """While it is open: what `execute` takes as `log`, which passes points on to these loggers; nothing where none is named.

    What a logger keeps in files is under `folder`/logs.
    """
    check_loggers(names)
    with ExitStack() as stack:
        opened = {name: LOGGERS[name](folder / "logs" / name) for name in dict.fromkeys(names)}
        logs = [stack.enter_context(in_background(name, backend)) for name, backend in opened.items()]

        def log(point: Point) -> None:
            for one in logs:
                one(point)

        yield log if logs else None
