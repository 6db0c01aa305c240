"""The command line. Every command is a short call of the library; imports wait until a command runs."""

import json
import os
import shlex
import sys
from inspect import cleandoc
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenly import data_commands
from evenly.mistakes import sentences

if TYPE_CHECKING:
    from evenly.experiment.config import Experiment
    from evenly.experiment.plan import Plan
    from evenly.experiment.results import Comparison
    from evenly.experiment.study import StudyPlan
    from evenly.study_commands import Reproduced

app = typer.Typer(
    help="Fair federated learning: train one model that works for every client, and see whom it fails.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(data_commands.app, name="data")

Data = Annotated[str, typer.Option(help="A data set such as synthetic or synthetic(kind=hybrid), or a .csv or .parquet file.")]
Client = Annotated[str | None, typer.Option(help="Column of your table that names the client of each row.")]
Label = Annotated[str | None, typer.Option(help="Column to be predicted.")]
Sensitive = Annotated[str | None, typer.Option(help="Sensitive columns, separated by commas.")]
Favourable = Annotated[str | None, typer.Option(help="The label that people want to get.")]
Unprivileged = Annotated[
    list[str] | None, typer.Option(help="Value of the sensitive column whose people are expected to be served worse; or COLUMN=VALUE.")
]
Rounds = Annotated[int, typer.Option(help="Rounds of training.")]
Seeds = Annotated[int, typer.Option(help="How many seeds: splits, cohorts and batches drawn anew.")]
LearningRate = Annotated[float, typer.Option(help="Local step size, where a method does not set its own.")]
BatchSize = Annotated[int, typer.Option(help="Rows in a local step.")]
Out = Annotated[Path | None, typer.Option(help="Folder for results; by default results/ and a name made from the settings.")]
Force = Annotated[bool, typer.Option("--force", help="Replace evenly's results of other settings in the output folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print rows as JSON on stdout and everything else on stderr.")]


@app.command()
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
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train several methods on the same data, clients and batches, and write one report."""
    with sentences():
        from evenly.experiment.plan import Plan

        plan = Plan(
            name="compare",
            data=_source(data, client=client, label=label, sensitive=sensitive, favourable=favourable, unprivileged=unprivileged),
            methods=(algorithms,),
            rounds=rounds,
            seeds=_seeds(seeds),
            model=model,
            sampling=sampling,
            training={"learning_rate": learning_rate, "batch_size": batch_size, "epochs": epochs},
            evaluate_every=evaluate_every,
            dropout=dropout,
        )
        comparison, folder, rows = _run(plan, out, force)
        from evenly.terminal import results_table

        _finish(folder, rows, as_json, results_table(comparison))


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment such as qffl/synthetic, or a paper such as thesis; `evenly list` shows them.")],
    quick: Annotated[bool, typer.Option("--quick", help="A short version, to see that it works.")] = False,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, instead of the experiment's own.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training, instead of the experiment's own.", min=1)] = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run an experiment of a paper, or all of them, and print the paper's figures beside ours."""
    with sentences():
        from evenly.experiment.config import of_paper

        options: dict[str, Any] = {"quick": quick, "seeds": None if seeds is None else len(_seeds(seeds)), "rounds": rounds}
        if of_paper(name):
            _reproduce_all(name, out, force, as_json, options)
            return
        done = _reproduce(name, out, force, options)
        extra = {"findings": [found._asdict() for found in done.found]} if done.found else None
        _finish(done.folder, done.rows, as_json, *done.shown, extra=extra)


@app.command()
def tune(
    data: Data = "synthetic",
    grid: Annotated[str, typer.Option(help="Values of q to try; 0 is always among them.")] = "0.001,0.01,0.1,1,2,5,10,15",
    within: Annotated[float, typer.Option(help="How many points of average accuracy fairness may cost.")] = 1.0,
    rounds: Rounds = 2000,
    seeds: Seeds = 3,
    learning_rate: LearningRate = 0.1,
    batch_size: BatchSize = 10,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    favourable: Favourable = None,
    unprivileged: Unprivileged = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose q on validation rows as q-FFL does: the least variance whose average stays within a margin of q = 0."""
    with sentences():
        from evenly.experiment.choose import choose_fairest
        from evenly.experiment.plan import Plan
        from evenly.terminal import choice_table, results_table

        values = ", ".join(dict.fromkeys(["0", *(v.strip() for v in grid.split(",") if v.strip())]))
        plan = Plan(
            name="tune",
            data=_source(data, client=client, label=label, sensitive=sensitive, favourable=favourable, unprivileged=unprivileged),
            methods=(f"q-fedavg(q=[{values}])",),
            rounds=rounds,
            seeds=_seeds(seeds),
            training={"learning_rate": learning_rate, "batch_size": batch_size},
        )
        comparison, folder, rows = _run(plan, out, force)
        choice = choose_fairest(comparison, "q-fedavg(q=0)", within=within)
        kept = comparison._replace(runs=[r for r in comparison.runs if r.label in (choice.baseline, choice.chosen)])
        _finish(folder, rows, as_json, choice_table(choice), results_table(kept), extra={"chosen": choice.chosen})


@app.command("list")
def list_all() -> None:
    """Show every method, sampling, model, data set, metric and experiment."""
    with sentences():
        from evenly.clients import PREPARES
        from evenly.clients.optimiser import OPTIMISERS
        from evenly.datasets import DATASETS
        from evenly.experiment.config import packaged
        from evenly.experiment.plan import ALL_MODELS
        from evenly.metrics import EVERY_METRIC
        from evenly.sampling import SAMPLINGS
        from evenly.terminal import methods_table

        console = Console()
        console.print(methods_table())
        parts = {
            "sampling": SAMPLINGS,
            "before the first round": PREPARES,
            "server and local optimisers": [f"{side}-{name}" for side in ("server", "local") for name in OPTIMISERS],
            "models": ALL_MODELS,
            "data sets": [*DATASETS, "any .csv or .parquet file"],
            "metrics": EVERY_METRIC,
            "experiments": packaged(),
        }
        for title, names in parts.items():
            console.print(f"[bold]{title}[/bold]: {', '.join(names)}")
        console.print("Details: evenly describe NAME")


@app.command()
def describe(name: Annotated[str, typer.Argument(help="A method, sampling or metric.")]) -> None:
    """Explain one method, sampling or metric: formula, settings, what clients reveal."""
    with sentences():
        from evenly.algorithms import METHODS
        from evenly.clients import PREPARES
        from evenly.metrics import EVERY_METRIC
        from evenly.notation import unknown
        from evenly.sampling import SAMPLINGS
        from evenly.terminal import part_table, reveals, sampling_reveals, settings_table, trial

        console = Console()
        if name in METHODS:
            method = METHODS[name]
            console.print(f"[bold]{method.title}[/bold] ({method.reference})\n\n  {method.formula}\n", highlight=False)
            console.print(settings_table(method))
            console.print(f"Clients reveal, besides their update: {reveals(method)}.")
            console.print(f"Try it: {trial(method)}", highlight=False)
        elif name in (parts := {**SAMPLINGS, **PREPARES}):
            console.print(cleandoc(parts[name].__doc__ or ""), highlight=False)
            console.print(part_table(name, parts[name]))
            if name in SAMPLINGS:
                console.print(f"Clients reveal, to be chosen: {sampling_reveals(SAMPLINGS[name]())}.")
        elif name in EVERY_METRIC:
            metric = EVERY_METRIC[name]
            console.print(f"[bold]{metric.title}[/bold]\n\n  {metric.formula}\n\n{metric.range}; {metric.direction}.", highlight=False)
            console.print(metric.doc, highlight=False)
        else:
            raise unknown("method, sampling or metric", name, [*METHODS, *parts, *EVERY_METRIC])


def _source(data: str, **columns: Any) -> dict[str, Any]:
    """A plan's `data`: a data set with its settings, or a user's own table and what its columns mean."""
    from evenly.experiment.sources import is_table, table_source
    from evenly.notation import parse

    if is_table(data):
        return table_source(data, **columns)
    if any(columns.values()):
        *most, last = (f"--{name}" for name in columns)
        raise ValueError(f"{', '.join(most)} and {last} are for a table of your own, but --data is {data!r}. Give a .csv or .parquet file.")
    (part,) = parse(data)
    return {"name": part.name, **part.settings}


def _seeds(count: int) -> tuple[int, ...]:
    if count < 1:
        raise ValueError(f"seeds must be at least 1, got {count}.")
    return tuple(range(count))


def _folder(plan: "Plan | StudyPlan") -> Path:
    return Path("results") / f"{plan.name.replace('/', '-')}-{plan.fingerprint()[:8]}"


def _run(
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
    folder = out or _folder(plan)
    store = Store(folder, plan, force=force)
    console = Console(stderr=True)
    command = shlex.join(["evenly", *sys.argv[1:]])
    try:
        with progress(console, f"training {len(plan.variants())} methods on {len(plan.seeds)} seeds") as report:
            comparison = execute(plan, store, progress=report, command=command)
    except KeyboardInterrupt:
        console.print(f"Stopped. What was finished is kept in {folder}; the same command with --out {again or folder} goes on from there.")
        raise typer.Exit(130) from None
    rows = write_rows(store, comparison)
    about = comparison._replace(title=title, notes=experiment.notes if experiment else "")
    paper = experiment.paper if experiment else None
    write_report(about, folder / "report.html", side_by_side(comparison, paper) if paper else [])
    return comparison, folder, rows


def _reproduce(name: str, out: Path | None, force: bool, options: dict[str, Any], again: Path | None = None) -> "Reproduced":
    """Run one experiment into its folder: a comparison, or a study of several partitions."""
    from evenly.experiment.config import read_packaged
    from evenly.experiment.reproduce import side_by_side
    from evenly.study_commands import Reproduced, run_study
    from evenly.terminal import reproduction_table, results_table

    experiment = read_packaged(name)
    if experiment.study:
        plan = experiment.study_plan(name, **options)
        folder = out or _folder(plan)
        command = shlex.join(["evenly", *sys.argv[1:]])
        return run_study(plan, experiment, folder, force=force, command=command, again=again or folder)
    title = f"{experiment.title} (short version)" if options["quick"] else experiment.title
    comparison, folder, rows = _run(experiment.plan(name, **options), out, force, experiment, title, again)
    if not experiment.paper:
        return Reproduced(folder, rows, [results_table(comparison)])
    lines = side_by_side(comparison, experiment.paper)
    quick = " (quick version: not comparable)" if options["quick"] else ""
    shown = f"{experiment.title}. Mean ± standard deviation over seeds{quick}"
    return Reproduced(folder, rows, [results_table(comparison), reproduction_table(lines, shown)])


def _reproduce_all(paper: str, out: Path | None, force: bool, as_json: bool, options: dict[str, Any]) -> None:
    """Every experiment of a paper, each into its folder; one that cannot be run is named and the others go on."""
    from evenly.experiment.config import of_paper
    from evenly.experiment.findings import findings
    from evenly.study_commands import findings_json, findings_text, write_joint_report

    # The options are in the name, so that the same command finds what it finished before.
    settings = [key if value is True else f"{key}{value}" for key, value in options.items() if value]
    root = out or Path("results") / "-".join([paper, *settings])
    console, done, failed = Console(stderr=as_json), {}, False
    for name in of_paper(paper):
        try:
            done[name] = _reproduce(name, root / name.partition("/")[2], force, options, again=root)
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
        _print_json(rows, {"report": None, "reports": reports, **extra})
    for report in dict.fromkeys([*reports.values(), *([extra["report"]] if extra else [])]):
        console.print(f"Report:  {report}", soft_wrap=True, highlight=False)
    if failed:
        raise typer.Exit(2)


def _finish(folder: Path, rows: list[dict[str, Any]], as_json: bool, *tables: Any, extra: dict[str, Any] | None = None) -> None:
    """Show the tables and say where everything is."""
    console = Console(stderr=as_json)
    for table in tables:
        console.print(table)
    report = folder / "report.html"
    if as_json:
        _print_json(rows, {"report": str(report), **(extra or {})})
    console.print(f"Results: {folder / 'results.csv'}\nReport:  {report}", soft_wrap=True, highlight=False)


def _print_json(rows: list[dict[str, Any]], rest: dict[str, Any]) -> None:
    plain = [{**row, "value": row["value"] if isfinite(row["value"]) else None} for row in rows]  # JSON has no NaN
    print(json.dumps({"schema": 1, "rows": plain, **rest}))


def main() -> None:
    """Entry point. XLA's own threads slow small steps down; seeds use the other cores instead."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    app()
