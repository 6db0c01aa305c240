"""The strategy, which waits where it is told to; the final model goes to a file."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp
from tests.flower.holding import Hold
from tests.flower.small import SEEDS, algorithm_of, task_of

from evenly.experiment.deployment import read_rounds
from evenly.flower import first_arrays, strategy, wire
from evenly.flower.recorder import Recorder
from evenly.writing import write_whole

app = ServerApp()


def hold_when_sending(grid: Grid, hold: Hold) -> None:
    """Wait between the phases of a round: all have measured, and nobody was asked to train."""
    push = grid.push_messages

    def pushing(messages: Iterable[Message]) -> Iterable[str]:
        told = list(messages)
        if told and told[0].metadata.message_type == "train":
            number = told[0].content.config_records[wire.CONFIG][wire.ROUND]
            hold.at("between the phases", int(str(number)))
        return push(told)

    grid.push_messages = pushing


def hold_when_saving(folder: Path, hold: Hold) -> None:
    """Wait when the new file of the state, or of the final model, has not replaced the old one."""
    replace = os.replace

    def replacing(source: Any, target: Any) -> None:
        name = Path(target).name
        if name == "state.npz":
            hold.at("saving", len(read_rounds(folder)))
        elif name == "arrays.npz":
            hold.at("end")
        replace(source, target)

    os.replace = replacing


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, hold = context.run_config, Hold.of(context.run_config)
    marks, method = Path(str(config["marks"])), algorithm_of(str(config["method"]))
    write_whole(marks / "server.pid", lambda file: file.write(str(os.getpid()).encode()))
    hold.at("start")
    folder = marks / "results"
    hold_when_sending(grid, hold)
    hold_when_saving(folder, hold)
    # charts would take most of the time
    Recorder._write_report = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue]
    made = strategy(
        method, seeds=SEEDS, introduce=True, two_phase=True, folder=folder,
        min_available_nodes=int(config["clients"]), min_train_nodes=int(config["least"]),
    )  # fmt: skip
    first = first_arrays(method, task_of(str(config["method"])), SEEDS)
    made.start(grid, first, num_rounds=int(config["rounds"]), timeout=float(config["timeout"]))
    write_whole(marks / "ended", lambda file: file.write(b"1"))
