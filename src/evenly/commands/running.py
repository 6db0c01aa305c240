"""Run a plan into its folder: traces, rows, models and the report."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from evenly.experiment.config import Experiment
    from evenly.experiment.plan import Plan
    from evenly.experiment.results import Comparison
    from evenly.experiment.study import StudyPlan


def this_command() -> str:
    """What the user typed."""
    return shlex.join(["evenly", *sys.argv[1:]])


def folder_of(plan: "Plan | StudyPlan") -> Path:
    """Where a plan's results go, unless the user says."""
    return Path("results") / f"{plan.name.replace('/', '-')}-{plan.fingerprint()[:8]}"


def run_plan(
    plan: "Plan", out: Path | None, force: bool, experiment: "Experiment | None" = None, title: str = "", again: Path | None = None
) -> "tuple[Comparison, Path, list[dict[str, Any]]]":
    """Execute a plan into its folder: traces, rows, models and the report, which says what experiment it is of, if any."""
    from evenly.experiment.execute import execute
    from evenly.experiment.files import write_rows
    from evenly.experiment.reproduce import side_by_side
    from evenly.experiment.store import Store
    from evenly.report.page import write_report
    from evenly.terminal import progress

    plan.variants()  # mistakes are reported before anything is written
    folder = out or folder_of(plan)
    store = Store(folder, plan, force=force)
    console = Console(stderr=True)
    try:
        with progress(console, f"training {len(plan.variants())} methods on {len(plan.seeds)} seeds") as report:
            comparison = execute(plan, store, progress=report, command=this_command())
    except KeyboardInterrupt:
        console.print(f"Stopped. What was finished is kept in {folder}; the same command with --out {again or folder} goes on from there.")
        raise typer.Exit(130) from None
    rows = write_rows(store, comparison)
    about = comparison._replace(title=title, notes=experiment.notes if experiment else "")
    paper = experiment.paper if experiment else None
    write_report(about, folder / "report.html", side_by_side(comparison, paper) if paper else [])
    return comparison, folder, rows
