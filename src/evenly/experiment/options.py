"""What the server of a deployment was told besides the method, for those who audit it: `options.json` in its folder.

Unlike the plan, this need not be the same for a server that goes on: what was in force before is kept beside it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evenly.experiment.plan import SCHEMA, plain
from evenly.outside import check_kinds, kinds_of
from evenly.writing import write_whole

OPTIONS = "options.json"


class InForce(NamedTuple):
    """Options, and since when."""

    since: int  # a round
    fraction_train: float | None = None  # None: clients are drawn by the sampling of the method
    fraction_evaluate: float = 1.0
    min_train_nodes: int = 2
    min_evaluate_nodes: int = 2
    min_available_nodes: int = 2
    two_phase: bool = False
    given_sum: bool = False  # in two phases: whether a function of the user's made the sum, of masked updates say


def from_now(before: Sequence[InForce], now: InForce) -> tuple[InForce, ...]:
    """With what is in force from a round on; what was to be in force later never was.

    >>> before = InForce(since=1), InForce(since=5, min_train_nodes=3)
    >>> [one.since for one in from_now(before, InForce(since=4, two_phase=True))]
    [1, 4]
    >>> [one.since for one in from_now(before, InForce(since=4))]  # as it was
    [1]
    """
    kept = tuple(one for one in before if one.since < now.since)
    return kept if kept and kept[-1]._replace(since=now.since) == now else (*kept, now)


def write_options(folder: Path, options: Sequence[InForce]) -> Path:
    text = json.dumps({"schema": SCHEMA, "options": [one._asdict() for one in options]}, indent=1)
    return write_whole(folder / OPTIONS, lambda file: file.write(text.encode()))


def read_options(folder: Path) -> tuple[InForce, ...]:
    """In the order of rounds; nothing where the folder is older than this file."""
    path = folder / OPTIONS
    if not path.exists():
        return ()
    try:
        fields = plain(path.read_text())
        check_kinds(fields, {"options": list[dict[str, Any]]})
        for one in fields["options"]:
            check_kinds(one, kinds_of(InForce))
        return tuple(InForce(**one) for one in fields["options"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{str(path)!r} is damaged. Remove it; the report then does not say what the server was told: {error}") from None
