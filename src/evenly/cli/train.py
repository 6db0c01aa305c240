"""Commands that train: `evenly compare`, `run`, `resume` and `reproduce`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenly.cli.running import (
    Address,
    BatchSize,
    Client,
    Data,
    Drop,
    Favourable,
    Features,
    Force,
    How,
    Json,
    Label,
    LearningRate,
    LogTo,
    On,
    Out,
    Plugins,
    Rounds,
    Seeds,
    Sensitive,
    Unprivileged,
    finish,
    folder_of,
    loggers,
    place,
    plugin_records,
    print_json,
    run_plan,
    seeds_of,
    sentences,
    source,
)

if TYPE_CHECKING:
    from evenly.cli.experiment import Reproduced
    from evenly.experiment.config import Experiment
    from evenly.experiment.plan import Plan
    from evenly.experiment.study import StudyPlan


# `evenly compare`: several methods on the same data.


def compare(
    data: Data = "synthetic",
    algorithms: Annotated[
        str, typer.Option(help="Methods, separated by commas; a list in brackets is a sweep.")
    ] = "fedavg,q-fedavg(q=[1, 5])",
    rounds: Rounds = 2000,
    seeds: Seeds = 3,
    model: Annotated[str, typer.Option(help="softmax, logistic, svm or mlp; by default the plainest that fits.")] = "",
    learning_rate: LearningRate = 0.1,
    batch_size: BatchSize = 10,
    epochs: Annotated[int, typer.Option(help="Passes over a client's rows in a round.")] = 1,
    sampling: Annotated[str, typer.Option(help="Who takes part, where a method does not say.")] = "weighted(clients=10)",
    dropout: Annotated[float, typer.Option(help="Probability that a chosen client does not return.")] = 0.0,
    evaluate_every: Annotated[int, typer.Option(help="Rounds between evaluations; 0: about fifty in all.")] = 0,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    favourable: Favourable = None,
    unprivileged: Unprivileged = None,
    features: Features = None,
    drop: Drop = None,
    plugin: Plugins = None,
    log: LogTo = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train several methods on the same data and write one report. All of them see the same clients and batches."""
    with sentences():
        from evenly.experiment.plan import Plan

        plan = Plan(
            name="compare",
            data=source(
                data,
                client=client,
                label=label,
                sensitive=sensitive,
                favourable=favourable,
                unprivileged=unprivileged,
                features=features,
                drop=drop,
            ),
            methods=(algorithms,),
            rounds=rounds,
            seeds=seeds_of(seeds),
            model=model,
            sampling=sampling,
            training={"learning_rate": learning_rate, "batch_size": batch_size, "epochs": epochs},
            evaluate_every=evaluate_every,
            dropout=dropout,
            plugins=plugin_records(plugin),
        )
        comparison, folder, rows = run_plan(plan, out, force, how=How(logs=loggers(log)))
        from evenly.cli.tables import opening_of, results_table, warnings_of

        finish(folder, rows, as_json, results_table(comparison), *opening_of(comparison), *warnings_of(comparison))


# `evenly run` and `evenly resume`: an experiment from a file, and whatever is in a folder.


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
        from evenly.cli.experiment import about, run_experiment
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
        from evenly.cli.experiment import run_experiment
        from evenly.cli.running import this_command
        from evenly.experiment.deployment import Deployment
        from evenly.experiment.folder import RunRecord, read_record
        from evenly.experiment.reopen import read_plan, where_it_began
        from evenly.experiment.study import StudyPlan
        from evenly.plugins import load_planned

        plan, known = read_plan(folder), read_record(folder) or RunRecord(command=this_command())
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
    from evenly.cli.experiment import show_plan
    from evenly.experiment.estimate import refuse_large_models
    from evenly.experiment.execute import setting_of
    from evenly.experiment.study import StudyPlan

    plans = plan.cells if isinstance(plan, StudyPlan) else {"": plan}
    first = next(iter(plans.values()))
    setting = setting_of(first, first.seeds[0])
    refuse_large_models(first, setting)
    show_plan(Console(), plans, folder, setting)


# `evenly reproduce`: a paper's experiments, and its figures beside ours.


def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment such as qffl/synthetic, or a paper such as thesis; `evenly list` shows them.")],
    quick: Annotated[bool, typer.Option("--quick", help="A short version, to see that it works.")] = False,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, instead of the experiment's own.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training, instead of the experiment's own.", min=1)] = None,
    on: On = None,
    address: Address = None,
    plugin: Plugins = None,
    log: LogTo = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run a paper's experiments and print its figures beside ours. Name one experiment, or a paper to run all of them."""
    with sentences():
        from evenly.experiment.config import of_paper

        options: dict[str, Any] = {"quick": quick, "seeds": None if seeds is None else len(seeds_of(seeds)), "rounds": rounds}
        logs = loggers(log)
        with place(on, address) as where:
            how = How(where, logs)
            if of_paper(name):
                _every_experiment(name, out, force, as_json, options, how, plugin)
                return
            done = _one_experiment(name, out, force, options, how, plugin)
        extra = {"findings": [found._asdict() for found in done.found]} if done.found else None
        finish(done.folder, done.rows, as_json, *done.shown, extra=extra)


def _one_experiment(
    name: str, out: Path | None, force: bool, options: dict[str, Any], how: How, plugin: list[Path] | None, again: Path | None = None
) -> "Reproduced":
    """Run one experiment into its folder: a comparison, or a study of several partitions."""
    from evenly.cli.experiment import about, run_experiment
    from evenly.experiment.config import read_packaged

    experiment = read_packaged(name).model_copy(update={"plugins": list(map(str, plugin or ()))})
    plan = experiment.study_plan(name, **options) if experiment.study else experiment.plan(name, **options)
    return run_experiment(plan, about(experiment, short=options["quick"]), out, force, again, how)


def _every_experiment(
    paper: str, out: Path | None, force: bool, as_json: bool, options: dict[str, Any], how: How, plugin: list[Path] | None
) -> None:
    """Every experiment of a paper, each into its folder; one that cannot be run is named and the others go on."""
    from evenly.cli.experiment import findings_json, findings_text, write_joint_report
    from evenly.experiment.config import of_paper
    from evenly.papers.findings import findings

    # The options are in the name, so that the same command finds what it finished before.
    settings = [key if value is True else f"{key}{value}" for key, value in options.items() if value]
    root = out or Path("results") / "-".join([paper, *settings])
    console, done, failed = Console(stderr=as_json), {}, False
    for name in of_paper(paper):
        try:
            done[name] = _one_experiment(name, root / name.partition("/")[2], force, options, how, plugin, again=root)
        except (ValueError, OSError) as error:
            console.print(f"error: {name} was not run. {error}", style="red", soft_wrap=True, highlight=False, markup=False)
            failed = True
            continue
        for table in done[name].shown:
            console.print(table)
    studies, extra = [one.study for one in done.values() if one.study], {}
    if len(studies) > 1:
        found = findings(studies)
        console.print(f"[bold]{len(studies)} studies together[/bold]\n")
        console.print(findings_text(found))
        extra = {"report": str(write_joint_report(studies, root, paper)), "findings": findings_json(found)}
    reports = {name: str(one.folder / "report.html") for name, one in done.items()}
    if as_json:
        rows = [row for one in done.values() for row in one.rows]
        print_json(rows, {"report": None, "reports": reports, **extra})
    for report in dict.fromkeys([*reports.values(), *([extra["report"]] if extra else [])]):
        console.print(f"Report:  {report}", soft_wrap=True, highlight=False)
    if failed:
        raise typer.Exit(2)
