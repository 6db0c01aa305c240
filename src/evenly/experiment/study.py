"""A study: every method on several partitions, each with several values of a setting of which one is chosen by validation."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.experiment.execute import BatchShare, Executor, SeedSetting, StoppedError, execute, on_threads, setting_of
from evenly.experiment.folder import Store, read_record, slug, training_timer
from evenly.experiment.observe import Log, log_part
from evenly.experiment.plan import SCHEMA, Plan, members_of, read_fields
from evenly.metrics import measure_groups, pooled
from evenly.notation import Part, expand, parse, parse_list, show
from evenly.outside import check_kinds, shortened
from evenly.simulate import SeedBatch, worth_batching, worth_streaming
from evenly.simulate.run import Progress

# The partitions of a study: one after another or, where one of them would not fill the GPU, side by side.

MOST_SEATS = 32  # simulations that advance in one program
MOST_BYTES = 2**32  # of features, all of them together


class StudyCell(NamedTuple):
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
    where: Executor,
    log: Log | None,
) -> dict[str, Comparison]:
    """Train everything that is not in the folder yet."""
    cells = [StudyCell(name, plan, Store(folder / "cells" / slug(name), plan) if folder else None) for name, plan in plans.items()]
    rounds = _Rounds(len(cells), progress)
    first = setting_of(cells[0].plan, cells[0].plan.seeds[0])

    def one(cell: StudyCell, where: Executor) -> Comparison:
        own = first if cell is cells[0] else None
        followed = log and log_part(log, cell.name)
        return execute(
            cell.plan, cell.store, progress=rounds.of(cell.name), command=command, models=False, where=where, log=followed, first=own
        )  # fmt: skip

    found: dict[str, Comparison] = {}
    at_once = _cells_per_batch(cells, first) if where is on_threads and log is None else 1
    for start in range(0, len(cells), at_once):
        few = cells[start : start + at_once]
        traces = [cell.store.folder / "traces" for cell in few if cell.store]
        with training_timer(folder, *traces, command=command) if folder else nullcontext():
            made = [one(few[0], where)] if len(few) == 1 else _run_together(few, one, rounds.stop)
        found.update(zip((cell.name for cell in few), made, strict=True))
    return found


def _cells_per_batch(cells: Sequence[StudyCell], first: SeedSetting) -> int:
    """How many partitions advance together: one, unless it would leave most of a GPU idle."""
    plan = cells[0].plan
    runs = len(members_of(plan))
    if len(cells) == 1 or worth_streaming(first.federation, runs) or not worth_batching(first.task, runs):
        return 1
    return max(1, min(MOST_SEATS, MOST_BYTES // first.federation.x.nbytes) // len(plan.seeds))


def _run_together(
    cells: Sequence[StudyCell], one: Callable[[StudyCell, Executor], Comparison], stop: Callable[[], None]
) -> list[Comparison]:
    """Every partition in a thread of its own, all seeds of all of them in one seed batch."""
    *firsts, members = accumulate((len(cell.plan.seeds) for cell in cells), initial=0)
    batch = SeedBatch(members)

    def run_cell(cell: StudyCell, first: int) -> Comparison:
        try:
            return one(cell, partial(on_threads, share=BatchShare(batch, first)))
        finally:  # what failed before it sat down, or was finished earlier, is not waited for
            batch.leave(range(first, first + len(cell.plan.seeds)))

    with ThreadPoolExecutor(max_workers=len(cells)) as pool:
        futures = [pool.submit(run_cell, *given) for given in zip(cells, firsts, strict=True)]
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


# A study: every method on several partitions, each with several values of a setting of which one is chosen afterwards.
#
# Two protocols choose. The *study's* takes the value with the least |EOD| on the test set, as FairFed's authors and the thesis do:
# optimistic, because the test set takes part in the choice. The *honest* one looks at validation rows only: of the values whose
# accuracy there is within one point of the best, the one with the least |EOD|; the test set is read once, afterwards. Both choose once
# for all seeds, by means over seeds, from the same trained models.

PROTOCOLS = ("study", "honest")
MARGIN = 1.0  # points of validation accuracy that the honest protocol gives away for fairness


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """Everything that determines a study, as plain data: one plan for each partition."""

    name: str
    chosen: tuple[str, ...]  # settings of which one value is chosen
    cells: dict[str, Plan]

    def to_json(self) -> str:
        cells = {name: json.loads(plan.to_json()) for name, plan in self.cells.items()}
        return json.dumps({"schema": SCHEMA, "name": self.name, "chosen": self.chosen, "cells": cells}, indent=2)

    @staticmethod
    def from_json(text: str) -> "StudyPlan":
        fields = read_fields(text)
        try:
            check_kinds(fields, {"name": str, "chosen": list[str], "cells": dict[str, dict[str, Any]]})
            cells = {name: Plan.from_json(json.dumps(plan)) for name, plan in fields["cells"].items()}
            return StudyPlan(name=fields["name"], chosen=tuple(fields["chosen"]), cells=cells)
        except (TypeError, KeyError) as error:
            raise ValueError(f"This is not a study of evenly: {shortened(str(error))}.") from None

    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


class Outcome(NamedTuple):
    """One method on one partition, with the setting that a protocol chose: its metrics on the central test set, by seed."""

    cell: str
    method: str
    protocol: str
    chosen: dict[str, Any]
    values: dict[str, np.ndarray]  # metric -> [seeds]

    def mean(self, metric: str) -> float:
        return float(self.values[metric].mean())


class Study(NamedTuple):
    """A study that was run."""

    plan: StudyPlan
    cells: dict[str, Comparison]
    outcomes: list[Outcome]
    seconds: float

    def of(self, protocol: str, cell: str | None = None) -> Iterator[Outcome]:
        return (o for o in self.outcomes if o.protocol == protocol and cell in (None, o.cell))

    def one(self, protocol: str, cell: str, method: str) -> Outcome:
        return next(o for o in self.of(protocol, cell) if o.method == method)


def add_sweep(methods: Sequence[str], settings: dict[str, list[Any]]) -> tuple[str, ...]:
    """The same methods with a sweep over these settings."""
    return tuple(
        show((Part(head.name, {**head.settings, **settings}), *rest)) for text in methods for head, *rest in parse_list(text)
    )  # fmt: skip


def drop_settings(label: str, settings: Sequence[str]) -> str:
    """A label without the settings that are chosen: what a row of the study is called."""
    head, *rest = parse(label)
    return show((Part(head.name, {k: v for k, v in head.settings.items() if k not in settings}), *rest))


def method_rows(plan: StudyPlan) -> list[str]:
    """The methods of a study, in order."""
    methods = next(iter(plan.cells.values())).methods
    every = (one for text in methods for part in parse_list(text) for one in expand(part))
    return list(dict.fromkeys(drop_settings(show(one), plan.chosen) for one in every))


def execute_study(
    plan: StudyPlan,
    folder: Path | None = None,
    *,
    progress: Progress | None = None,
    command: str = "",
    where: Executor = on_threads,
    log: Log | None = None,
) -> Study:
    """Train everything and choose. With a folder, each partition's finished runs are kept there and never made again."""
    began = time.monotonic()
    cells = execute_cells(plan.cells, folder, progress=progress, command=command, where=where, log=log)
    if folder and (known := read_record(folder)) and known.versions:  # of when it was trained
        cells = {name: cell._replace(versions=known.versions) for name, cell in cells.items()}
    outcomes = [outcome for name, comparison in cells.items() for outcome in choose(name, comparison, plan.chosen)]
    return Study(plan, cells, outcomes, time.monotonic() - began)


def choose(cell: str, comparison: Comparison, settings: Sequence[str], margin: float = MARGIN) -> Iterator[Outcome]:
    """Both protocols' choices for every method of one partition."""
    seen = {split: _final_metrics(comparison, split) for split in ("valid", CENTRAL)}
    rows: dict[str, list[str]] = {}
    for label in comparison.labels:
        rows.setdefault(drop_settings(label, settings), []).append(label)
    for method, labels in rows.items():
        for protocol in PROTOCOLS:
            label = _best_on_test(labels, seen[CENTRAL]) if protocol == "study" else _best_on_validation(labels, seen["valid"], margin)
            taken = {k: v for k, v in parse(label)[0].settings.items() if k in settings}
            yield Outcome(cell, method, protocol, taken, seen[CENTRAL][label])


def _final_metrics(comparison: Comparison, split: str) -> dict[str, dict[str, np.ndarray]]:
    """label -> metric -> [seeds]"""
    where = comparison.federation
    tables = np.stack([pooled(run.trace, split)[-1] for run in comparison.runs])
    values = measure_groups(tables, favourable=where.favourable, unprivileged=where.unprivileged)
    at: dict[str, list[int]] = {}
    for i, run in enumerate(comparison.runs):
        at.setdefault(run.label, []).append(i)
    return {label: {metric: value[rows] for metric, value in values.items()} for label, rows in at.items()}


def _best_on_test(labels: Sequence[str], test: dict[str, dict[str, np.ndarray]]) -> str:
    return min(labels, key=lambda label: _mean(test[label]["eod_abs"]))


def _best_on_validation(labels: Sequence[str], valid: dict[str, dict[str, np.ndarray]], margin: float) -> str:
    accuracy = {label: _mean(valid[label]["accuracy"]) for label in labels}
    close = [label for label in labels if accuracy[label] >= max(accuracy.values()) - margin]
    return min(close, key=lambda label: _mean(valid[label]["eod_abs"]))


def _mean(values: np.ndarray) -> float:
    """The mean over the seeds where it is defined; infinite where it never is, so that it is not chosen."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("inf")
