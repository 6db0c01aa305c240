"""Run a plan into its folder: traces, rows, models and the report. Whatever stops it, it says how to go on."""

import errno
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from evenly.experiment.plan import Plan
    from evenly.experiment.record import Record
    from evenly.experiment.results import Comparison
    from evenly.experiment.study import StudyPlan

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def this_command() -> str:
    """What the user typed."""
    return shlex.join(["evenly", *sys.argv[1:]])


def folder_of(plan: "Plan | StudyPlan") -> Path:
    """Where a plan's results go, unless the user says."""
    return Path("results") / f"{plan.name.replace('/', '-')}-{plan.fingerprint()[:8]}"


@contextmanager
def working_in(folder: Path, again: Path | None = None) -> Iterator[None]:
    """Keep a folder for this process, tidy up after one that was killed, and say how to go on if this one is stopped.

    `again` is the folder that the same command continues when it is given as --out, where there is more to do than this folder's run.
    """
    from evenly.experiment.lock import held
    from evenly.experiment.store import sweep

    how = f"the same command with --out {again}" if again else f"`evenly resume {shlex.quote(str(folder))}`"
    with held(folder):
        sweep(folder)
        try:
            yield
        except KeyboardInterrupt:
            said = f"Stopped. What was finished is kept in {folder}; {how} goes on from there."
            Console(stderr=True).print(said, soft_wrap=True, highlight=False, markup=False)
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno not in FULL:
                raise
            kept = f"What was finished is kept in {folder}; make room, and {how} goes on from there."
            raise OSError(f"{error.strerror}: {error.filename}. {kept}") from None


def run_plan(
    plan: "Plan", out: Path | None, force: bool, about: "Record | None" = None, again: Path | None = None
) -> "tuple[Comparison, Path, list[dict[str, Any]]]":
    """Execute a plan into its folder: traces, rows, models and the report, which says what experiment it is of, if any."""
    from evenly.experiment import record
    from evenly.experiment.files import write_rows
    from evenly.experiment.store import Store

    plan.variants()  # mistakes are reported before anything is written
    folder = out or folder_of(plan)
    with working_in(folder, again):
        store = Store(folder, plan, force=force)
        record.begin(folder, about or record.Record(command=this_command()))
        comparison = _trained(plan, store)
        rows = write_rows(store, comparison)
        _report(comparison, folder)
        record.finish(folder)
    return comparison, folder, rows


def _trained(plan: "Plan", store: Any) -> "Comparison":
    from evenly.experiment import record
    from evenly.experiment.execute import execute
    from evenly.terminal import progress

    what = f"training {len(plan.variants())} methods on {len(plan.seeds)} seeds"
    with progress(Console(stderr=True), what) as report, record.timed(store.folder, store.folder / "traces"):
        comparison = execute(plan, store, progress=report)
    return record.told(comparison, store.folder)


def _report(comparison: "Comparison", folder: Path) -> None:
    from evenly.experiment.reproduce import lines_of
    from evenly.report.page import write_report

    write_report(comparison, folder / "report.html", lines_of(comparison, folder))
