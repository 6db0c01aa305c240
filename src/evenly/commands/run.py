"""`evenly run` and `evenly resume`: an experiment from a file, and whatever is in a folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenly.commands.options import Force, Json, LogTo, Out, Plugins, loggers, seeds_of
from evenly.commands.places import Address, On, place
from evenly.commands.running import How, folder_of
from evenly.commands.showing import finish
from evenly.mistakes import sentences

if TYPE_CHECKING:
    from evenly.experiment.config import Experiment
    from evenly.experiment.plan import Plan
    from evenly.experiment.study import StudyPlan


def run(
    file: Annotated[Path, typer.Argument(help="An experiment file: TOML with title, methods, rounds, [data] and more.")],
    plan_only: Annotated[bool, typer.Option("--plan", help="Only show what would be trained, and what it takes.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The short version that the file's [quick] describes.")] = False,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, instead of the file's own.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training, instead of the file's own.", min=1)] = None,
    on: On = None,
    address: Address = None,
    plugin: Plugins = None,
    log: LogTo = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run an experiment from a TOML file. The same command resumes it after an interruption."""
    with sentences():
        from evenly.commands.experiment import about, run_experiment
        from evenly.experiment.config import read

        experiment = read(file)
        experiment = experiment.model_copy(update={"plugins": [*experiment.plugins, *map(str, plugin or ())]})
        options: dict[str, Any] = {"quick": quick, "seeds": None if seeds is None else len(seeds_of(seeds)), "rounds": rounds}
        plan = _planned(experiment, file, options)
        if plan_only:
            _show_only(plan, out or folder_of(plan))
            return
        logs = loggers(log)
        with place(on, address) as where:
            done = run_experiment(plan, about(experiment, short=quick), out, force, how=How(where, logs))
        finish(done.folder, done.rows, as_json, *done.shown)


def resume(
    folder: Annotated[Path, typer.Argument(help="A folder of results that was begun.")],
    on: On = None,
    address: Address = None,
    plugin: Plugins = None,
    log: LogTo = None,
    as_json: Json = False,
) -> None:
    """Resume the interrupted experiment, study or search of a folder. What is finished is not trained again."""
    with sentences():
        from evenly.commands.experiment import run_experiment
        from evenly.commands.running import this_command
        from evenly.experiment.deployment import Deployment
        from evenly.experiment.folder import Record, read_record
        from evenly.experiment.reopen import read_plan, where_it_began
        from evenly.experiment.study import StudyPlan
        from evenly.plugins import load_planned

        plan, known = read_plan(folder), read_record(folder) or Record(command=this_command())
        if isinstance(plan, Deployment):
            raise ValueError(f"{str(folder)!r} is of a deployment: start its server again with the same folder, and it goes on.")
        plans = plan.cells.values() if isinstance(plan, StudyPlan) else [plan]
        there = folder.resolve() if any(own.has_files for own in plans) else folder
        logs = loggers(log)
        with place(on, address) as where, where_it_began(folder, *plans):
            load_planned(record for own in plans for record in own.plugins)
            done = run_experiment(plan, known, there, force=False, how=How(where, logs))
        finish(folder, done.rows, as_json, *done.shown)


def _planned(experiment: "Experiment", file: Path, options: dict[str, Any]) -> "Plan | StudyPlan":
    """The plan, with mistakes in it named with the file they are in."""
    try:
        if experiment.study:
            study = experiment.study_plan(file.stem, **options)
            for own in study.cells.values():
                own.variants()
            return study
        plan = experiment.plan(file.stem, **options)
        plan.variants()
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from None
    return plan


def _show_only(plan: "Plan | StudyPlan", folder: Path) -> None:
    from evenly.commands.planned import show_plan
    from evenly.experiment.estimate import refuse_large_models
    from evenly.experiment.execute import setting_of
    from evenly.experiment.study import StudyPlan

    plans = plan.cells if isinstance(plan, StudyPlan) else {"": plan}
    first = next(iter(plans.values()))
    setting = setting_of(first, first.seeds[0])
    refuse_large_models(first, setting)
    show_plan(Console(), plans, folder, setting)
