"""`evenly reproduce`: a paper's experiments, and its figures beside ours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evenly.commands.options import Force, Json, LogTo, Out, Plugins, loggers, seeds_of
from evenly.commands.places import Address, On, place
from evenly.commands.running import How
from evenly.commands.showing import finish, print_json
from evenly.mistakes import sentences

if TYPE_CHECKING:
    from evenly.commands.study import Reproduced


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
    from evenly.commands.experiment import about, run_experiment
    from evenly.experiment.config import read_packaged

    experiment = read_packaged(name).model_copy(update={"plugins": list(map(str, plugin or ()))})
    plan = experiment.study_plan(name, **options) if experiment.study else experiment.plan(name, **options)
    return run_experiment(plan, about(experiment, short=options["quick"]), out, force, again, how)


def _every_experiment(
    paper: str, out: Path | None, force: bool, as_json: bool, options: dict[str, Any], how: How, plugin: list[Path] | None
) -> None:
    """Every experiment of a paper, each into its folder; one that cannot be run is named and the others go on."""
    from evenly.commands.study import findings_json, findings_text, write_joint_report
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
