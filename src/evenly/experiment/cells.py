"""The partitions of a study: one after another or, where one of them would not fill the GPU, side by side."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from evenly.experiment.execute import execute
from evenly.experiment.jobs import Setting, setting_of
from evenly.experiment.ledger import Progress, StoppedError, Where
from evenly.experiment.observing import Log, within
from evenly.experiment.plan import Plan
from evenly.experiment.programs import members_of
from evenly.experiment.record import timed
from evenly.experiment.results import Comparison
from evenly.experiment.store import Store, slug
from evenly.experiment.threads import Places, on_threads
from evenly.simulate import Meeting, worth_meeting, worth_streaming

MOST_SEATS = 32  # simulations that advance in one program
MOST_BYTES = 2**32  # of features, all of them together


class Cell(NamedTuple):
    """One partition, and where its results are kept."""

    name: str
    plan: Plan
    store: Store | None


def execute_cells(
    plans: dict[str, Plan],
    folder: Path | None,
    *,
    progress: Progress | None,
    command: str,
    where: Where,
    log: Log | None,
) -> dict[str, Comparison]:
    """Train everything that is not in the folder yet."""
    cells = [Cell(name, plan, Store(folder / "cells" / slug(name), plan) if folder else None) for name, plan in plans.items()]
    rounds = _Rounds(len(cells), progress)
    first = setting_of(cells[0].plan, cells[0].plan.seeds[0])

    def one(cell: Cell, where: Where) -> Comparison:
        own = first if cell is cells[0] else None
        followed = log and within(log, cell.name)
        return execute(
            cell.plan, cell.store, progress=rounds.of(cell.name), command=command, models=False, where=where, log=followed, first=own
        )  # fmt: skip

    found: dict[str, Comparison] = {}
    at_once = _at_once(cells, first) if where is on_threads and log is None else 1
    for start in range(0, len(cells), at_once):
        few = cells[start : start + at_once]
        traces = [cell.store.folder / "traces" for cell in few if cell.store]
        with timed(folder, *traces, command=command) if folder else nullcontext():
            made = [one(few[0], where)] if len(few) == 1 else _together(few, one, rounds.stop)
        found.update(zip((cell.name for cell in few), made, strict=True))
    return found


def _at_once(cells: Sequence[Cell], first: Setting) -> int:
    """How many partitions advance together: one, unless it would leave most of a GPU idle."""
    plan = cells[0].plan
    runs = len(members_of(plan))
    if len(cells) == 1 or worth_streaming(first.federation, runs) or not worth_meeting(first.task, runs):
        return 1
    return max(1, min(MOST_SEATS, MOST_BYTES // first.federation.x.nbytes) // len(plan.seeds))


def _together(cells: Sequence[Cell], one: Callable[[Cell, Where], Comparison], stop: Callable[[], None]) -> list[Comparison]:
    """Every partition in a thread of its own, all seeds of all of them in one meeting."""
    *firsts, seats = accumulate((len(cell.plan.seeds) for cell in cells), initial=0)
    meeting = Meeting(seats)

    def seated(cell: Cell, first: int) -> Comparison:
        try:
            return one(cell, partial(on_threads, places=Places(meeting, first)))
        finally:  # what failed before it sat down, or was finished earlier, is not waited for
            meeting.leave(range(first, first + len(cell.plan.seeds)))

    with ThreadPoolExecutor(max_workers=len(cells)) as pool:
        futures = [pool.submit(seated, *given) for given in zip(cells, firsts, strict=True)]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop()
            raise
    return [future.result() for future in futures]


class _Rounds:
    """Adds up the progress of partitions; those that have not begun are taken to be as long as the last that has."""

    def __init__(self, cells: int, progress: Progress | None) -> None:
        self._cells, self._progress, self._stopped = cells, progress, False
        self._seen: dict[str, tuple[int, int]] = {}

    def of(self, name: str) -> Progress:
        def report(done: int, of: int) -> None:
            if self._stopped:
                raise StoppedError
            self._seen[name] = done, of
            if self._progress:
                known = list(self._seen.values())
                self._progress(sum(d for d, _ in known), sum(t for _, t in known) + of * (self._cells - len(known)))

        return report

    def stop(self) -> None:
        """Make every partition stop where it next reports."""
        self._stopped = True
