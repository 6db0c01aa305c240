"""`evenly tune`: choose the settings of a method on validation rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from evenly.cli.interruption import working_in
from evenly.cli.options import (
    Data,
    OutputOptions,
    Plugins,
    RowColumns,
    TableColumns,
    TrainingOptions,
    data_source,
    plugin_records,
)
from evenly.cli.terminal import (
    plain_console,
    print_json,
    styled_console,
    this_command,
    titled_table,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from evenly.experiment.tuning import Tuning
    from evenly.experiment.tuning_space import TuningPlan

# the values of q that the q-FFL paper tries
Q_METHOD, Q_VALUES = "q-fedavg", "0.001,0.01,0.1,1,2,5,10,15"


class SearchOptions(NamedTuple):
    """Which settings are searched, and how one is chosen."""

    searches: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            help=(
                "One setting to search: q=0.001..10:log, q=0,1,5 or parity.p=0.1..0.9. May be given"
                " several times."
            ),
        ),
    ] = None
    grid: Annotated[str, typer.Option(help="Values of q to try. Short for --search q=...")] = ""
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric to improve; by default variance. Several metrics give a Pareto front."
        ),
    ] = None
    keep: Annotated[
        str, typer.Option(help="Metric that must stay within a margin of the baseline's.")
    ] = "average"
    within: Annotated[
        float | None,
        typer.Option(
            help=(
                "The margin, in the unit of --keep; inf for none. By default 1 with one objective,"
                " which is a point of accuracy, and none with several."
            )
        ),
    ] = None
    baseline: Annotated[
        str,
        typer.Option(
            help=(
                "Method from which the margin is measured. By default q = 0 if q is searched, else"
                " fedavg."
            )
        ),
    ] = ""
    trials: Annotated[
        int | None,
        typer.Option(
            help="Number of settings to try. By default 64, or all combinations if there are fewer."
        ),
    ] = None
    batch: Annotated[
        int, typer.Option(help="Number of trials that are proposed and trained together.")
    ] = 16

    def arguments(self, method: str) -> dict[str, Any]:
        """Return the options as arguments of `planned`."""
        options = self._asdict()
        searches, grid, objectives = (
            options.pop("searches"),
            options.pop("grid"),
            options.pop("objective"),
        )
        return {
            **options,
            "searches": _searches(method, searches or [], grid),
            "objectives": objectives or ["variance"],
        }


def tune(
    *,
    data: Data = "synthetic",
    method: Annotated[
        str,
        typer.Option(
            help=(
                "The method, with ranges or lists to search: q-fedavg(q=0.001..10:log,"
                " learning_rate=[0.1, 0.3])+parity(p=0.1..0.9). "
                "By default q-fedavg with the values of q in the q-FFL paper."
            )
        ),
    ] = "",
    search: SearchOptions,
    training: TrainingOptions,
    columns: TableColumns,
    rows: RowColumns,
    plugin: Plugins = None,
    output: OutputOptions,
) -> None:
    """Choose a method's settings on validation rows. Test rows are read once, for the chosen
    settings.

    Without further options, q is chosen as in the q-FFL paper: the least variance whose average
    stays within a point of q = 0.
    """
    from evenly.api.experiments import default_folder
    from evenly.api.settings import TrainingSettings, plan_fields
    from evenly.experiment.tuning_space import plan_tuning
    from evenly.report.tuning_page import write_tuning

    plan, number = plan_tuning(
        method or Q_METHOD,
        data_source(data, columns, rows),
        plugins=plugin_records(plugin),
        **search.arguments(method),
        **plan_fields(TrainingSettings(**training._asdict())),
    )
    _show_data(plan)
    folder = output.out or default_folder(plan)
    with working_in(folder, same_command_out=folder):
        tuning = _run_search(plan, number, folder, force=output.force)
        written = write_tuning(tuning, folder)
    _show(tuning, folder, written, as_json=output.as_json)


def _searches(method: str, searches: list[str], grid: str) -> list[str]:
    """Return the settings to search besides those in the method's notation. With neither, search q
    as in the q-FFL paper.
    """
    values = ",".join(value.strip() for value in grid.split(",") if value.strip())
    if not (method or searches or values):
        values = Q_VALUES
    return [*searches, *([f"q=[{values}]"] if values else [])]


def _show_data(plan: "TuningPlan") -> None:
    """Print how the columns of the user's own table are used, and whether the sizes of its clients
    count, before training.
    """
    from evenly.cli.terminal_tables import facts_of, facts_table
    from evenly.datasets.load import load
    from evenly.experiment.plan import sampling_facts

    data = plan.shared.data
    if "path" in data:
        federation = load(data, plan.shared.seeds[0])
        facts = sampling_facts(plan.final(plan.baseline), federation) + facts_of(federation, data)
        styled_console(stderr=True).print(facts_table(facts), highlight=False)


def _run_search(plan: "TuningPlan", number: int, folder: Path, *, force: bool) -> "Tuning":
    from evenly.api.progress import progress_bar
    from evenly.experiment.tuning import search

    what = f"trying {number} settings on {len(plan.shared.seeds)} seeds"
    with progress_bar(what, styled_console(stderr=True)) as report:
        return search(plan, number, folder, force=force, progress=report, command=this_command())


def _show(tuning: "Tuning", folder: Path, rows: list[dict[str, Any]], *, as_json: bool) -> None:
    from evenly.cli.terminal_tables import opening_of, results_table, warnings_of
    from evenly.experiment.tuning import trial_rows
    from evenly.report.tuning_page import finding, reasons

    console = styled_console(stderr=as_json)
    console.print(_table(tuning))
    console.print("\n".join([finding(tuning), *reasons(tuning)]) + "\n", highlight=False)
    for part in (
        results_table(tuning.final),
        *opening_of(tuning.final),
        *_size_warnings(tuning),
        *warnings_of(tuning.final),
    ):
        console.print(part)
    report = folder / "report.html"
    if as_json:
        print_json(
            rows,
            {"report": str(report), "chosen": tuning.choice.chosen, "trials": trial_rows(tuning)},
        )
    files = (
        f"Trials:  {folder / 'tuning.csv'}\nResults: {folder / 'chosen' / 'results.csv'}\nReport: "
        f" {report}"
    )
    plain_console(stderr=as_json).print(files)


def _size_warnings(tuning: "Tuning") -> "list[Text]":
    """Return a warning if the sizes of clients do not count, unless `_show_data` printed it."""
    from rich.text import Text

    from evenly.experiment.plan import sampling_facts

    plan = tuning.plan.final(tuning.plan.baseline)
    if "path" in plan.data:
        return []
    facts = sampling_facts(plan, tuning.final.everyone)
    return [Text(f"! {fact.text}", style="yellow") for fact in facts]


def _table(tuning: "Tuning") -> "Table":
    from evenly.report.tuning_trials import MOST, marks_words, trials_table
    from evenly.report.values import spread_words

    trials = trials_table(tuning, most=MOST)
    few = len(trials.lines) <= len(tuning.trials)
    left_out = (
        f"; {len(trials.lines) - 1} of {len(tuning.trials)} trials, all are in tuning.csv"
        if few
        else ""
    )
    title = (
        f"{tuning.plan.method} on validation rows:"
        f" {spread_words(len(tuning.plan.shared.seeds))}{left_out}"
    )
    table = titled_table(
        title,
        "trial",
        numbers=[*trials.settings, *(metric.title for metric in trials.metrics)],
        caption=marks_words(tuning, trials) or None,
    )
    table.add_column("")
    for line in trials.lines:
        table.add_row(line.name, *line.settings, *line.cells, ", ".join(line.marks))
    return table
