"""Telling somebody what a running simulation has measured, while it runs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.types import NO_CHOICE, Trace

# What was evaluated since the last call: for each algorithm a Trace in which only the evaluations are filled in.
Observe = Callable[[list[Trace]], None]

NOBODY = np.zeros((0, 0), np.int32)


def evaluated(federation: Federation, panel: np.ndarray | None, seen: Sequence[np.ndarray], run: int) -> dict[str, Any]:
    """One run's fields of a Trace that evaluations fill, from the rounds, tables, losses and choices of all runs."""
    rounds, tables, losses, choices = seen
    tables, losses = tables[..., run], losses[..., run]  # [evaluations, owners, ...]
    counts = np.concatenate([federation.split(s).counts[slice(None) if panel is None else panel] for s in SPLITS])
    means = np.divide(losses[:, :-1], counts, out=np.full(losses[:, :-1].shape, np.nan), where=counts > 0)
    each = (len(rounds), len(SPLITS), len(counts) // len(SPLITS))
    return {
        "rounds": rounds,
        "tables": tables[:, :-1].reshape(*each, *tables.shape[2:]),
        "losses": means.reshape(each).astype(np.float32),
        "central": tables[:, -1],
        "choice": choices[..., run] if choices.shape[1] else NO_CHOICE,
        "panel": panel,
    }


class Teller:
    """Tells an observer of every evaluation once. `place` is where each of the caller's algorithms is among the runs."""

    def __init__(self, observe: Observe | None, federation: Federation, panel: np.ndarray | None, place: Sequence[int]) -> None:
        self._observe, self._federation, self._panel, self._place, self._pieces = observe, federation, panel, place, 0

    def new(self, pieces: Sequence[list[np.ndarray]]) -> None:
        """Pass on what was added to these lists of rounds, tables, losses and choices."""
        if self._observe is None or len(pieces[0]) == self._pieces:
            return
        seen = [np.concatenate(piece[self._pieces :]) for piece in pieces]
        self._pieces = len(pieces[0])
        self._observe([self._partial(seen, run) for run in self._place])

    def _partial(self, seen: Sequence[np.ndarray], run: int) -> Trace:
        return Trace(
            **evaluated(self._federation, self._panel, seen, run),
            cohort=NOBODY,
            weights=NOBODY.astype(np.float32),
            excluded=np.zeros(self._federation.clients, np.int32),
            upload=0.0,
            download=0.0,
            model=None,
        )
