"""What a reply must hold, and how it is said that it does not."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from evenly.experiment.deployment import LeftOut
from evenly.flower import wire

Read = TypeVar("Read")

LARGEST_LOSS = 1e6  # of one row, on average: no loss that training can lower is above
LONGEST_REASON = 300

# Kinds of reasons, as the report counts them.
SILENT, ERROR, ARRAYS, SIZES, SIGNALS = "no answer", "an error", "unusable arrays", "unusable sizes", "unusable signals"


class Wrong(Exception):  # noqa: N818 - raised by the checks, caught where a reply is judged
    """Something about a reply, in words, and its kind."""


def printable(text: str, most: int = LONGEST_REASON) -> str:
    """A client's words in one short line that cannot command a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())[:most]


class Expected(NamedTuple):
    """Whose reply it is, and what it must hold."""

    node: int
    client: int
    round: int
    method: str = ""  # the algorithm, for sentences
    needs: frozenset[str] = frozenset()  # fields of Signals
    layout: wire.Layout | None = None  # of the arrays; None: none are asked for
    ranked: bool = False  # whether arrays are places in an order: every place once
    examples: int | None = None  # training rows that it said in the census
    cells: tuple[int, int] | None = None  # groups and labels, where known
    models: int = 1
    phase: str = "train"
    coefficient: np.ndarray | None = None  # two-phase rounds: what it was told to multiply its update by
    masked: bool = False  # whether its arrays mean nothing before they are added to those of the others
    arrays_key: str = wire.ARRAYS
    examples_key: str = wire.EXAMPLES
    largest_loss: float = LARGEST_LOSS
    most_bytes: int | None = None  # of the whole reply; None: any

    def left_out(self, reason: str, kind: str) -> LeftOut:
        return LeftOut(self.node, self.client, self.round, printable(reason, 2 * LONGEST_REASON), kind, self.phase)


def read_or_left_out(expected: Expected, reading: Callable[[], Read]) -> Read | LeftOut:
    """What the reading of one reply returns. Whatever it raises leaves that client out, with a reason, and nobody else.

    Every reading of a reply goes through here: of training, measuring, evaluations and the census.
    """
    try:
        with np.errstate(all="ignore"):
            return reading()
    except Wrong as wrong:
        reason, kind = wrong.args
    except Exception as error:  # whoever wrote the reply chooses how its reading fails
        reason, kind = f"sent a reply that cannot be read ({type(error).__name__}: {printable(str(error))})", ERROR
    return expected.left_out(reason, kind)
