"""`evenly tune`: choose settings of a method on validation rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evenly.cli.running import (
    BatchSize,
    Client,
    Data,
    Drop,
    Favourable,
    Features,
    Force,
    Json,
    Label,
    LearningRate,
    Out,
    Plugins,
    Rounds,
    Seeds,
    Sensitive,
    Unprivileged,
    folder_of,
    plugin_records,
    print_json,
    sentences,
    source,
    this_command,
    working_in,
)

if TYPE_CHECKING:
    from evenly.experiment.tuning import Tuning
    from evenly.experiment.tuning_space import TuningPlan

Q = ("q-fedavg", "0.001,0.01,0.1,1,2,5,10,15")  # what q-FFL tries


def tune(
    data: Data = "synthetic",
    method: Annotated[
        str,
        typer.Option(
            help="The method, with what to search: q-fedavg(q=0.001..10:log, learning_rate=[0.1, 0.3])+parity(p=0.1..0.9). By default "
            "q-fedavg with the values of q that q-FFL tries."
        ),
    ] = "",
    searches: Annotated[
        list[str] | None, typer.Option("--search", help="One setting to search, as q=0.001..10:log, q=0,1,5 or parity.p=0.1..0.9.")
    ] = None,
    grid: Annotated[str, typer.Option(help="Values of q to try; short for --search q=...")] = "",
    objective: Annotated[list[str] | None, typer.Option(help="A metric to improve; several make a front. By default variance.")] = None,
    keep: Annotated[str, typer.Option(help="The metric that must stay within a margin of the baseline's.")] = "average",
    within: Annotated[
        float | None, typer.Option(help="The margin; inf: none. By default 1 point with one objective, none with several.")
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="What the margin is measured from. By default q = 0 where q is searched, else fedavg.")
    ] = "",
    trials: Annotated[
        int | None, typer.Option(help="How many settings to try. By default 64, or all combinations where there are fewer.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Trials that are proposed, and trained, together.")] = 16,
    rounds: Rounds = 2000,
    seeds: Seeds = 3,
    model: Annotated[str, typer.Option(help="softmax, logistic, svm or mlp; by default the plainest that fits.")] = "",
    learning_rate: LearningRate = 0.1,
    batch_size: BatchSize = 10,
    sampling: Annotated[str, typer.Option(help="Who takes part, where a method does not say.")] = "weighted(clients=10)",
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    favourable: Favourable = None,
    unprivileged: Unprivileged = None,
    features: Features = None,
    drop: Drop = None,
    plugin: Plugins = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose a method's settings on validation rows. Test rows are read once, for the chosen settings.

    Without further options q is chosen as q-FFL does: the least variance whose average stays within a point of q = 0.
    """
    with sentences():
        from evenly.experiment.tuning_space import planned
        from evenly.report.tuning_page import write_tuning

        plan, number = planned(
            method or Q[0],
            source(
                data,
                client=client,
                label=label,
                sensitive=sensitive,
                favourable=favourable,
                unprivileged=unprivileged,
                features=features,
                drop=drop,
            ),
            searches=_searches(method, searches or [], grid),
            objectives=objective or ["variance"],
            keep=keep,
            within=within,
            baseline=baseline,
            trials=trials,
            batch=batch,
            rounds=rounds,
            seeds=seeds,
            model=model,
            sampling=sampling,
            training={"learning_rate": learning_rate, "batch_size": batch_size},
            plugins=plugin_records(plugin),
        )
        _show_data(plan)
        folder = out or folder_of(plan)
        with working_in(folder, again=folder):
            tuning = _searched(plan, number, folder, force)
            rows = write_tuning(tuning, folder)
        _show(tuning, folder, rows, as_json)


def _searches(method: str, searches: list[str], grid: str) -> list[str]:
    """What is searched besides what the method's notation says; without any of it, q as q-FFL has it."""
    values = ",".join(value.strip() for value in grid.split(",") if value.strip())
    if not (method or searches or values):
        values = Q[1]
    return [*searches, *([f"q=[{values}]"] if values else [])]


def _show_data(plan: "TuningPlan") -> None:
    """What became of the columns of a table, before anything is trained."""
    from evenly.cli.experiment import facts_of, facts_table
    from evenly.datasets.load import load

    if "path" in plan.shared.data:
        Console(stderr=True).print(facts_table(facts_of(load(plan.shared.data, plan.shared.seeds[0]), plan.shared.data)), highlight=False)


def _searched(plan: "TuningPlan", number: int, folder: Path, force: bool) -> "Tuning":
    from evenly.cli.tables import progress
    from evenly.experiment.tuning import search

    with progress(Console(stderr=True), f"trying {number} settings on {len(plan.shared.seeds)} seeds") as report:
        return search(plan, number, folder, force=force, progress=report, command=this_command())


def _show(tuning: "Tuning", folder: Path, rows: list[dict[str, Any]], as_json: bool) -> None:
    from evenly.cli.tables import opening_of, results_table, warnings_of
    from evenly.experiment.tuning import trial_rows
    from evenly.report.tuning_page import caution, finding, rule

    console = Console(stderr=as_json)
    console.print(_table(tuning))
    said = filter(None, (finding(tuning), rule(tuning), caution(tuning)))
    console.print("\n".join(said) + "\n", highlight=False)
    for shown in (results_table(tuning.final), *opening_of(tuning.final), *warnings_of(tuning.final)):
        console.print(shown)
    report = folder / "report.html"
    if as_json:
        print_json(rows, {"report": str(report), "chosen": tuning.choice.chosen, "trials": trial_rows(tuning)})
    files = f"Trials:  {folder / 'tuning.csv'}\nResults: {folder / 'chosen' / 'results.csv'}\nReport:  {report}"
    console.print(files, soft_wrap=True, highlight=False)


def _table(tuning: "Tuning") -> Table:
    from evenly.report.tuning_trials import MOST, trials_table
    from evenly.report.values import spread_words

    found = trials_table(tuning, most=MOST)
    few = len(found.lines) <= len(tuning.trials)
    left_out = f"; {len(found.lines) - 1} of {len(tuning.trials)} trials, all are in tuning.csv" if few else ""
    spread = spread_words(len(tuning.plan.shared.seeds))
    table = Table(title=f"{tuning.plan.method} on validation rows: {spread}{left_out}", title_justify="left")
    table.add_column("trial")
    for name in (*found.settings, *(metric.title for metric in found.metrics)):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("")
    for line in found.lines:
        table.add_row(line.name, *line.settings, *line.cells, ", ".join(line.marks))
    return table
