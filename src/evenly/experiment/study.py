"""Studies: every method on several partitions, with a setting whose value is chosen by a protocol.

The *study* protocol takes the value with the lowest |EOD| on the test set, as FairFed's authors and
the thesis do. It is optimistic, because the test set takes part in the choice. The *honest*
protocol uses validation rows only: of the values whose validation accuracy is within one point of
the best, it takes the one with the lowest |EOD|. Both choose once for all seeds, by means over
seeds, from the same trained models.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.experiment.execute import (
    BatchShare,
    Executor,
    SeedSetting,
    StoppedError,
    execute,
    on_threads,
    run_threads,
    setting_of,
    with_promises,
)
from evenly.experiment.folder import Store, read_record, slug, training_timer
from evenly.experiment.observe import Log, log_part
from evenly.experiment.plan import SCHEMA, Plan, members_of, read_fields
from evenly.metrics import measure_groups, pooled
from evenly.notation import Part, expand, parse, parse_list, show
from evenly.privacy.claims import withheld
from evenly.records import require
from evenly.simulate import SeedBatch, worth_batching, worth_streaming
from evenly.simulate.run import Progress
from evenly.validation import check_kinds, shortened

# Training the partitions of a study: one after another or, if one would not fill the GPU, together.

MOST_MEMBERS = 32  # simulations that advance in one program
MOST_BYTES = 2**32  # of features, all of them together


class StudyCell(NamedTuple):
    """One partition and the store of its results."""

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
    """Train all partitions, except for runs that are stored in the folder."""
    cells = [
        StudyCell(name, plan, Store(folder / "cells" / slug(name), plan) if folder else None)
        for name, plan in plans.items()
    ]
    rounds = _Rounds(len(cells), progress)
    first = setting_of(cells[0].plan, cells[0].plan.seeds[0])

    def one(cell: StudyCell, where: Executor) -> Comparison:
        own = first if cell is cells[0] else None
        followed = log and log_part(log, cell.name)
        return execute(
            cell.plan, cell.store, progress=rounds.of(cell.name), command=command, models=False,
            where=where, log=followed, first=own
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
    """Number of partitions that advance together: one, unless a single partition would leave most
    of a GPU idle.
    """
    plan = cells[0].plan
    runs = len(members_of(plan))
    if (
        len(cells) == 1
        or worth_streaming(first.federation, runs)
        or not worth_batching(first.task, runs)
    ):
        return 1
    return max(1, min(MOST_MEMBERS, MOST_BYTES // first.federation.x.nbytes) // len(plan.seeds))


def _run_together(
    cells: Sequence[StudyCell],
    one: Callable[[StudyCell, Executor], Comparison],
    stop: Callable[[], None],
) -> list[Comparison]:
    """Train partitions in parallel threads, with the seeds of all of them in one seed batch."""
    *firsts, members = accumulate((len(cell.plan.seeds) for cell in cells), initial=0)
    batch = SeedBatch(members)

    def run_cell(cell: StudyCell, first: int) -> Comparison:
        try:
            return one(cell, partial(on_threads, share=BatchShare(batch, first)))
        finally:  # the others do not wait for seeds that failed early or were finished before
            batch.leave(range(first, first + len(cell.plan.seeds)))

    tasks = [partial(run_cell, cell, first) for cell, first in zip(cells, firsts, strict=True)]
    return run_threads(tasks, len(cells), stop)


class _Rounds:
    """Adds up the progress of partitions. A partition that has not started counts as long as the
    last one that has.
    """

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
                self._progress(
                    sum(d for d, _ in known),
                    sum(t for _, t in known) + of * (self._cells - len(known)),
                )

        return report

    def stop(self) -> None:
        """Stop every partition at its next progress report."""
        self._stopped = True


# Plans, results and choices of studies.

PROTOCOLS = ("study", "honest")
MARGIN = 1.0  # points of validation accuracy that the honest protocol gives away for fairness


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """Everything that determines a study, as plain data: one plan for each partition."""

    name: str
    chosen: tuple[str, ...]  # settings of which one value is chosen
    cells: dict[str, Plan]

    def to_json(self) -> str:
        return self._json(Plan.to_json)

    def _json(self, of_cell: Callable[[Plan], str]) -> str:
        cells = {name: json.loads(of_cell(plan)) for name, plan in self.cells.items()}
        return json.dumps(
            {"schema": SCHEMA, "name": self.name, "chosen": self.chosen, "cells": cells}, indent=2
        )

    @staticmethod
    def from_json(text: str) -> "StudyPlan":
        fields = read_fields(text)
        try:
            check_kinds(
                fields, {"name": str, "chosen": list[str], "cells": dict[str, dict[str, Any]]}
            )
            cells = {
                name: Plan.from_json(json.dumps(plan)) for name, plan in fields["cells"].items()
            }
            return StudyPlan(name=fields["name"], chosen=tuple(fields["chosen"]), cells=cells)
        except (TypeError, KeyError) as error:
            raise ValueError(f"This is not a study of evenly: {shortened(str(error))}.") from None

    def fingerprint(self) -> str:
        return hashlib.sha256(self._json(Plan.canonical_json).encode()).hexdigest()[:16]


class Outcome(NamedTuple):
    """One method on one partition with the setting that a protocol chose: metrics on the central
    test set, by seed.
    """

    cell: str
    method: str
    protocol: str
    chosen: dict[str, Any]
    values: dict[str, np.ndarray]  # metric -> [seeds]

    def mean(self, metric: str) -> float:
        return float(self.values[metric].mean())


class Study(NamedTuple):
    """The result of a study."""

    plan: StudyPlan
    cells: dict[str, Comparison]
    outcomes: list[Outcome]
    seconds: float

    def of(self, protocol: str, cell: str | None = None) -> Iterator[Outcome]:
        return (o for o in self.outcomes if o.protocol == protocol and cell in (None, o.cell))

    def one(self, protocol: str, cell: str, method: str) -> Outcome:
        return next(o for o in self.of(protocol, cell) if o.method == method)


def add_sweep(methods: Sequence[str], settings: dict[str, list[Any]]) -> tuple[str, ...]:
    """The methods with a sweep over these settings."""
    return tuple(
        show((Part(head.name, {**head.settings, **settings}), *rest)) for text in methods for head,
        *rest in parse_list(text)
    )  # fmt: skip


def drop_settings(label: str, settings: Sequence[str]) -> str:
    """A label without these settings: the name of a row of the study."""
    head, *rest = parse(label)
    return show(
        (Part(head.name, {k: v for k, v in head.settings.items() if k not in settings}), *rest)
    )


def method_rows(plan: StudyPlan) -> list[str]:
    """The methods of a study, in order."""
    methods = next(iter(plan.cells.values())).methods
    every = (one for text in methods for part in parse_list(text) for one in expand(part))
    return list(dict.fromkeys(drop_settings(show(one), plan.chosen) for one in every))


def study_with_promises(plan: StudyPlan) -> StudyPlan:
    """The study with what its private methods promise, and their noise.

    Raises:
        ValueError: If a method withholds figures without noise, all of which a study shows.
    """
    for variant in (variant for cell in plan.cells.values() for variant in cell.variants()):
        require(
            not withheld(variant.members[0].privacy),
            f"{variant.label}: a study shows figures of all methods without noise, which"
            " +dp(unit=client) withholds. Compare the method on one partition instead, or add"
            " publish=true and claim nothing.",
        )
    cells = {name: with_promises(cell) for name, cell in plan.cells.items()}
    return dataclasses.replace(plan, cells=cells)


def execute_study(
    plan: StudyPlan,
    folder: Path | None = None,
    *,
    progress: Progress | None = None,
    command: str = "",
    where: Executor = on_threads,
    log: Log | None = None,
) -> Study:
    """Train everything and choose settings. With a folder, finished runs are stored there and not
    trained again.

    Raises:
        ValueError: If a method withholds its figures (see `study_with_promises`).
    """
    began, plan = time.monotonic(), study_with_promises(plan)
    cells = execute_cells(
        plan.cells, folder, progress=progress, command=command, where=where, log=log
    )
    if folder and (known := read_record(folder)) and known.versions:  # of when it was trained
        cells = {name: cell._replace(versions=known.versions) for name, cell in cells.items()}
    outcomes = [
        outcome
        for name, comparison in cells.items()
        for outcome in choose(name, comparison, plan.chosen)
    ]
    return Study(plan, cells, outcomes, time.monotonic() - began)


def choose(
    cell: str, comparison: Comparison, settings: Sequence[str], margin: float = MARGIN
) -> Iterator[Outcome]:
    """The choices of both protocols for every method of one partition."""
    seen = {split: _final_metrics(comparison, split) for split in ("valid", CENTRAL)}
    rows: dict[str, list[str]] = {}
    for label in comparison.labels:
        rows.setdefault(drop_settings(label, settings), []).append(label)
    for method, labels in rows.items():
        for protocol in PROTOCOLS:
            label = (
                _best_on_test(labels, seen[CENTRAL])
                if protocol == "study"
                else _best_on_validation(labels, seen["valid"], margin)
            )
            taken = {k: v for k, v in parse(label)[0].settings.items() if k in settings}
            yield Outcome(cell, method, protocol, taken, seen[CENTRAL][label])


def _final_metrics(comparison: Comparison, split: str) -> dict[str, dict[str, np.ndarray]]:
    """Metrics after the last round: label -> metric -> [seeds]."""
    where = comparison.federation
    tables = np.stack([pooled(run.trace, split)[-1] for run in comparison.runs])
    values = measure_groups(tables, favourable=where.favourable, unprivileged=where.unprivileged)
    at: dict[str, list[int]] = {}
    for i, run in enumerate(comparison.runs):
        at.setdefault(run.label, []).append(i)
    return {
        label: {metric: value[rows] for metric, value in values.items()}
        for label, rows in at.items()
    }


def _best_on_test(labels: Sequence[str], test: dict[str, dict[str, np.ndarray]]) -> str:
    return min(labels, key=lambda label: _mean(test[label]["eod_abs"]))


def _best_on_validation(
    labels: Sequence[str], valid: dict[str, dict[str, np.ndarray]], margin: float
) -> str:
    accuracy = {label: _mean(valid[label]["accuracy"]) for label in labels}
    close = [label for label in labels if accuracy[label] >= max(accuracy.values()) - margin]
    return min(close, key=lambda label: _mean(valid[label]["eod_abs"]))


def _mean(values: np.ndarray) -> float:
    """The mean over the seeds with a defined value, or infinity if there is none, so that it is not
    chosen.
    """
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("inf")
