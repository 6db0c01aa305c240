"""An experiment as `reproduce`, `run` and `resume` do it: a comparison, or a study of several partitions."""

from pathlib import Path

from evenly.commands.running import How, folder_of, run_plan, this_command
from evenly.commands.study import Reproduced, run_study
from evenly.experiment.config import Experiment
from evenly.experiment.folder import Record
from evenly.experiment.paper import lines_of
from evenly.experiment.plan import Plan
from evenly.experiment.study import StudyPlan
from evenly.report.facts import SPREADS
from evenly.terminal import opening_of, reproduction_table, results_table, warnings_of


def about(experiment: Experiment, *, short: bool) -> Record:
    """What an experiment's folder says of it besides the plan."""
    return Record(
        command=this_command(),
        title=f"{experiment.title} (short version)" if short else experiment.title,
        notes=experiment.notes,
        paper=experiment.paper.model_dump() if experiment.paper else None,
        short=short,
    )


def run_experiment(
    plan: Plan | StudyPlan, known: Record, out: Path | None, force: bool, again: Path | None = None, how: How | None = None
) -> Reproduced:
    """Run it into its folder, or finish what is there. `again` is as in `working_in`."""
    if isinstance(plan, StudyPlan):
        return run_study(plan, known, out or folder_of(plan), force, again, how)
    comparison, folder, rows = run_plan(plan, out, force, known, again, how)
    lines = lines_of(comparison, folder)
    shown = [results_table(comparison), *opening_of(comparison)]
    if lines:
        quick = " (not comparable)" if known.short else ""
        shown.append(reproduction_table(lines, f"{known.title}{quick}. {SPREADS}"))
    return Reproduced(folder, rows, [*shown, *warnings_of(comparison)])
