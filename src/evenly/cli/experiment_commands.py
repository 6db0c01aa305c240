"""Commands that train: `evenly compare`, `run`, `resume` and `reproduce`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenly.cli.options import (
    Data,
    Execution,
    ExecutionOptions,
    Json,
    LogTo,
    OutputOptions,
    Plugins,
    RowColumns,
    ShortOptions,
    TableColumns,
    TrainingOptions,
    checked_loggers,
    data_source,
)
from evenly.cli.terminal import styled_console, this_command

if TYPE_CHECKING:
    from evenly.cli.experiment_runs import RunResult, RunTarget
    from evenly.experiment.config import Experiment
    from evenly.experiment.plan import Plan
    from evenly.experiment.study import StudyPlan


def compare(
    *,
    data: Data = "synthetic",
    algorithms: Annotated[
        str,
        typer.Option(help="Methods, separated by commas. A list in brackets tries every value."),
    ] = "fedavg,q-fedavg(q=[1, 5])",
    training: TrainingOptions,
    columns: TableColumns,
    rows: RowColumns,
    plugin: Plugins = None,
    log: LogTo = None,
    output: OutputOptions,
) -> None:
    """Train several methods on the same data and write one report. All methods see the same clients
    and batches.
    """
    from evenly.api.settings import plan_comparison
    from evenly.cli.experiment_runs import RunTarget, run_experiment, show_result
    from evenly.experiment.folder import RunRecord

    source = data_source(data, columns, rows)
    plan = plan_comparison(source, algorithms, training._asdict(), plugin or ())
    target = RunTarget(output.out, output.force, Execution(loggers=checked_loggers(log)))
    result = run_experiment(plan, RunRecord(command=this_command()), target)
    show_result(result, as_json=output.as_json)


def run(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            help="An experiment file: TOML with title, methods, rounds, [data] and more."
        ),
    ],
    plan_only: Annotated[
        bool,
        typer.Option("--plan", help="Only show the plan: what would be trained, and its cost."),
    ] = False,
    short: ShortOptions,
    execution: ExecutionOptions,
    plugin: Plugins = None,
    output: OutputOptions,
) -> None:
    """Run an experiment from a TOML file. The same command resumes it after an interruption."""
    from evenly.api.execution import experiment_record
    from evenly.api.experiments import default_folder
    from evenly.cli.experiment_runs import RunTarget, run_experiment, show_result
    from evenly.experiment.config import read

    experiment = read(file)
    experiment = experiment.model_copy(
        update={"plugins": [*experiment.plugins, *map(str, plugin or ())]}
    )
    plan = _file_plan(experiment, file, short.arguments())
    if plan_only:
        _show_plan_only(plan, output.out or default_folder(plan))
        return
    with execution.open() as where:
        target = RunTarget(output.out, output.force, where)
        record = experiment_record(experiment, this_command(), short=short.quick)
        result = run_experiment(plan, record, target)
    show_result(result, as_json=output.as_json)


def _file_plan(
    experiment: "Experiment", file: Path, arguments: dict[str, Any]
) -> "Plan | StudyPlan":
    """Return the plan of an experiment file. Errors begin with the name of the file."""
    try:
        if experiment.study:
            study = experiment.study_plan(file.stem, **arguments)
            for cell in study.cells.values():
                cell.variants()
            return study
        plan = experiment.plan(file.stem, **arguments)
        plan.variants()
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from None
    return plan


def _show_plan_only(plan: "Plan | StudyPlan", folder: Path) -> None:
    from evenly.cli.terminal_tables import show_plan
    from evenly.experiment.estimate import refuse_large_models
    from evenly.experiment.execute import setting_of
    from evenly.experiment.study import StudyPlan

    plans = plan.cells if isinstance(plan, StudyPlan) else {"": plan}
    first = next(iter(plans.values()))
    setting = setting_of(first, first.seeds[0])
    refuse_large_models(first, setting)
    show_plan(styled_console(), plans, folder, setting)


def resume(
    *,
    folder: Annotated[Path, typer.Argument(help="A folder with unfinished results.")],
    execution: ExecutionOptions,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Resume the interrupted experiment or study of a folder. Finished parts are not
    trained again.
    """
    from evenly.cli.experiment_runs import RunTarget, run_experiment, show_result
    from evenly.experiment.deployment import Deployment
    from evenly.experiment.folder import RunRecord, read_record, starting_directory
    from evenly.experiment.reopen import read_plan
    from evenly.experiment.study import StudyPlan
    from evenly.plugins import load_planned

    plan, record = read_plan(folder), read_record(folder) or RunRecord(command=this_command())
    if isinstance(plan, Deployment):
        raise ValueError(
            f"{str(folder)!r} holds a deployment. Start its server again with the same folder to"
            " resume it."
        )
    plans = list(plan.cells.values()) if isinstance(plan, StudyPlan) else [plan]
    out = folder.resolve() if any(one.has_files for one in plans) else folder
    with execution.open() as where, starting_directory(folder, *plans):
        load_planned(plugin for one in plans for plugin in one.plugins)
        plan = plan if isinstance(plan, StudyPlan) else plan.with_objects()
        result = run_experiment(plan, record, RunTarget(out, place=where))
    show_result(result._replace(folder=folder), as_json=as_json)


def reproduce(
    *,
    name: Annotated[
        str,
        typer.Argument(
            help=(
                "An experiment such as qffl/synthetic, or a paper such as thesis; `evenly list`"
                " shows them."
            )
        ),
    ],
    short: ShortOptions,
    execution: ExecutionOptions,
    plugin: Plugins = None,
    output: OutputOptions,
) -> None:
    """Run a paper's experiments and print its figures beside ours. Name one experiment, or a paper
    to run all of them.
    """
    from evenly.api.execution import paper_folder
    from evenly.cli.experiment_runs import RunTarget, run_paper, show_result
    from evenly.experiment.config import paper_experiments

    with execution.open() as where:
        target = RunTarget(output.out, output.force, where)
        if names := paper_experiments(name):
            out = output.out or paper_folder(name, short.arguments())
            target = target._replace(same_command_out=out)
            experiments = {one: partial(_run_packaged, one, short, plugin, target) for one in names}
            if not run_paper(experiments, name, out=out, as_json=output.as_json):
                raise typer.Exit(2)
            return
        result = _run_packaged(name, short, plugin, target, output.out)
    show_result(result, as_json=output.as_json, answers=result.findings)


def _run_packaged(
    name: str,
    short: ShortOptions,
    plugin: list[Path] | None,
    target: "RunTarget",
    out: Path | None,
) -> "RunResult":
    """Run one experiment of a paper, a comparison or a study of several partitions, into its
    folder.
    """
    from evenly.api.execution import experiment_record
    from evenly.cli.experiment_runs import run_experiment
    from evenly.experiment.config import read_packaged

    experiment = read_packaged(name).model_copy(update={"plugins": list(map(str, plugin or ()))})
    arguments = short.arguments()
    plan = (
        experiment.study_plan(name, **arguments)
        if experiment.study
        else experiment.plan(name, **arguments)
    )
    record = experiment_record(experiment, this_command(), short=short.quick)
    return run_experiment(plan, record, target._replace(out=out))
