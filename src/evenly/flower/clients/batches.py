"""The simulator's own batches, for a client elsewhere.

Batches are drawn by (seed, round, client) and by nothing else, so a client that knows those three visits its rows in the very
order in which a simulation would have visited them.
"""

import numpy as np

from evenly.randomness import Draws
from evenly.randomness import batches as drawn
from evenly.records import require
from evenly.types import Work

PADDING = -1


def batches(
    seed: int, server_round: int, client: int, rows: int, *, epochs: int = 1, size: int = 10, shuffle: bool = True, max_steps: int = 0
) -> np.ndarray:
    """Numbers of a client's training rows, batch by batch; a last, smaller batch of an epoch ends with -1s. int32 [steps, size]

    Rounds count from 1, as Flower's do, and rows from 0 in the order in which the client holds them.
    """
    require(server_round >= 1, f"Rounds count from 1, got {server_round}.")
    require(rows >= 1, f"Client {client} has no training rows to make batches of.")
    generator = Draws(seed, "batches").at(server_round - 1, client) if shuffle else None
    return drawn(np.arange(rows, dtype=np.int32), size, epochs=epochs, shuffle=generator, padding=PADDING, most=max_steps or None)


def batches_of(work: Work, seed: int, server_round: int, client: int, rows: int) -> np.ndarray:
    """The batches that a kind of work asks for in a round."""
    return batches(
        seed, server_round, client, rows,
        epochs=work.epochs, size=work.batch_size, shuffle=work.shuffle, max_steps=work.max_steps,
    )  # fmt: skip
