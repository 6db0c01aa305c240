"""`metrics.json`: the averages that Flower returns as a run's result, so that one that was interrupted returns them all."""

import json
from pathlib import Path

from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from evenly.experiment.plan import SCHEMA, plain
from evenly.writing import write_whole

NAME = "metrics.json"


def write(folder: Path, result: Result) -> None:
    """Keep the averages of all rounds so far."""
    kinds = {kind: {number: dict(found) for number, found in own.items()} for kind, own in _parts(result).items()}
    text = json.dumps({"schema": SCHEMA, **kinds}, indent=1)
    write_whole(folder / NAME, lambda file: file.write(text.encode()))


def read(folder: Path, result: Result, until: int) -> None:
    """Put back those of an earlier server, up to the round that it finished; a damaged file only costs the averages."""
    try:
        kept = plain((folder / NAME).read_text())
        for kind, own in _parts(result).items():
            own |= {int(number): MetricRecord(found) for number, found in kept[kind].items() if int(number) <= until}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return


def _parts(result: Result) -> dict[str, dict[int, MetricRecord]]:
    return {
        "train": result.train_metrics_clientapp,
        "evaluate": result.evaluate_metrics_clientapp,
        "server": result.evaluate_metrics_serverapp,
    }
