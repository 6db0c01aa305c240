"""Tables and progress bars in the terminal."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from evenly.algorithms import METHODS, Method, settings_of
from evenly.data.federation import unprivileged_words
from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.experiment.execute import Progress as Report
from evenly.experiment.paper import PaperLine, as_rows
from evenly.metrics import METRICS
from evenly.notation import unknown
from evenly.report import values as results
from evenly.report.choice import choose
from evenly.report.facts import WHO, divergence, figures
from evenly.report.facts import title as title_of
from evenly.report.group_values import rows_shown, with_groups
from evenly.report.values import idle_words
from evenly.report.worst_served import sentences, whom_of
from evenly.types import Select

# Few columns: the table must fit into eighty characters.
SHOWN = ("average", "worst10", "variance", "variance_noise")
WITH_GROUPS = ("average", "worst10", "eod_abs", "spd_abs")
# Where only a central test set is held out, the accuracy on it takes the place of the column that is missed least.
WITH_CENTRAL = (CENTRAL, "average", "worst10", "variance")
WITH_BOTH = (CENTRAL, "worst10", "eod_abs", "spd_abs")
MAIN = ("average", "average_devices", "worst10", "variance", "std")  # the report's folder and --json have every figure


@contextmanager
def progress(console: Console, what: str) -> Iterator[Report]:
    """A bar with time left. Compilation comes before the first step, so the bar starts when there is something to show."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(f"{what} (compiling)", total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield report


def main_table(comparison: Comparison, metrics: Sequence[str] = ()) -> tuple[results.Table, dict[str, str]]:
    """The figures that are shown first, and each column's title; or the metrics that are asked for.

    Where there are groups, two columns say how differently the unprivileged and the privileged are treated.
    """
    split = results.clients_split(comparison)
    values = results.final_values(comparison, split)
    central, tested = results.headline(values) == CENTRAL, bool(results.known_of(values, SHOWN))
    shown = WITH_CENTRAL if central else SHOWN
    if len(comparison.federation.groups) > 1:
        values, shown = with_groups(comparison, values), WITH_BOTH if central else WITH_GROUPS
    if central and not tested:  # nothing is known of the clients
        shown = tuple(name for name in shown if name not in METRICS)
    if metrics:
        known = set.intersection(*(set(seed) for seeds in values.values() for seed in seeds.values())) & set(results.COLUMNS)
        for name in metrics:
            if name not in known:
                raise unknown("metric", name, known)
        shown = tuple(metrics)
    return results.table_of(values, metrics=shown, split=split), {name: results.COLUMNS[name].title for name in shown}


def results_table(comparison: Comparison) -> Table:
    """One row per method, one column per metric; the best of each column is bold, those not clearly worse underlined."""
    found, shown = main_table(comparison)
    table = Table(title=about(comparison, found, results.spread_words(found.seeds)), caption=_marks(found), title_justify="left")
    table.caption_justify = "left"
    table.add_column("method", overflow="fold")
    for short in shown.values():
        table.add_column(short, justify="right")
    for row in found.rows:
        cells = (Text(c.text, style="bold" if c.best else "underline" if c.near else "") for c in row.cells.values())
        table.add_row(row.label, *cells)
    return table


def _marks(found: results.Table) -> str | None:
    """What bold and underlined figures mean."""
    if len(found.rows) < 2:
        return None
    return "bold: best" + (", underlined: not clearly worse" if found.seeds > 1 else "; with one seed nothing is clearly better")


def opening_of(comparison: Comparison) -> list[Text]:
    """Whom the first method serves worst, in the sentences that open the report."""
    values = results.final_values(comparison, results.clients_split(comparison))
    whom = whom_of(comparison, values, choose(comparison, values))
    return [] if whom is None else [Text(" ".join(sentences(whom)))]


def warnings_of(comparison: Comparison, name: str = "") -> list[Text]:
    """What a reader of the tables must know before trusting them: training that diverged, and rounds in which nobody counted.

    `name` says which of several comparisons it is.
    """
    found = [*divergence(comparison), *idle_words(comparison, comparison.labels)]
    return [Text(f"! {name and f'{name}: '}{words}", style="yellow") for words in found]


def about(comparison: Comparison, found: results.Table, interval: str) -> str:
    """What the figures of a table are of."""
    federation = comparison.federation
    clients = f"{results.SPLIT_WORDS[found.split]} accuracy in percent of {_how_many(comparison)} clients"
    clients += " (they have no test rows)" if found.split == "valid" else ""
    if CENTRAL in found.rows[0].cells:
        tested = any(name in SHOWN for name in found.rows[0].cells)
        clients = "accuracy in percent on the central test set" + (f", and {clients}" if tested else "")
    figures = f"{clients} after {comparison.rounds:,} rounds; {interval}"
    if len(federation.groups) < 2:
        return f"{federation.name}: {figures}"
    whose = "these" if comparison.registered else "all"
    rows = "the central test set" if rows_shown(comparison) == CENTRAL else f"{whose} clients' {results.SPLIT_WORDS[found.split]} rows"
    label = federation.labels[federation.favourable]
    return f"{federation.name}: {figures}; groups on {rows}, unprivileged: {unprivileged_words(federation)}, favourable: {label}"


def _how_many(comparison: Comparison) -> str:
    evaluated, everyone = comparison.federation.clients, comparison.everyone.clients
    return f"{evaluated:,}" if evaluated == everyone else f"{evaluated:,} of {everyone:,}"


def reproduction_table(lines: list[PaperLine], title: str) -> Table:
    """Paper, ours and the difference: three rows per method and split, one column per main metric."""
    main = [line for line in lines if line.metric in MAIN or line.metric.startswith("client:")]
    metrics, rows = as_rows(main or lines)
    table = Table(title=title, title_justify="left")
    table.add_column("method", overflow="fold")
    table.add_column("")
    for name in metrics:
        table.add_column(title_of(name), justify="right")
    for row in rows:
        cells = [figures(line) for line in row.lines]
        for i, who in enumerate(WHO):
            table.add_row((row.label, row.split, "")[i], who, *(cell[i] for cell in cells), end_section=i == 2)
    return table


def methods_table() -> Table:
    table = Table(title="methods", title_justify="left")
    for name in ("name", "title", "clients reveal, besides the update", "reference"):
        table.add_column(name, overflow="fold")
    for method in METHODS.values():
        table.add_row(method.name, method.title, reveals(method), method.reference)
    return table


def reveals(method: Method) -> str:
    """What the method makes clients say besides their update; of the update itself, the squared norm is part of it."""
    return ", ".join(sorted(_needs(method))) or "nothing"


def _needs(method: Method) -> frozenset[str]:
    built = method.build({k: v[0] for k, v in method.defaults.items() if isinstance(v, list)})
    return built.rule.needs - {"chance"}  # what the server draws is not revealed


def sampling_reveals(select: Select) -> str:
    """What the server must know of clients to choose them; it is told once."""
    return ", ".join(f"{need} (once)" for need in sorted(select.needs)) or "nothing"


def trial(method: Method) -> str:
    """A command that compares the method with FedAvg, on data with groups where it needs them."""
    groups = {"table", "valid_table", "cell_loss", "unprivileged"} & _needs(method)
    edges = "--model 'mlp(bias=false)' " if method.network else ""
    wanted = f"'fedavg,{method.example}'" if method.example else f"fedavg,{method.name}"
    return f"evenly compare {'--data synthetic-census ' if groups else ''}{edges}--algorithms {wanted}"


def settings_table(method: Method) -> Table:
    table = Table(title="settings", title_justify="left")
    for name in ("name", "default", "meaning"):
        table.add_column(name, overflow="fold")
    for setting in method.settings.values():
        default = "auto" if setting.default in (None, "") else str(setting.default)
        table.add_row(setting.name, default, setting.doc)
    return table


def part_table(name: str, part: type) -> Table:
    table = Table(title=f"settings of {name}", title_justify="left")
    for column in ("name", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for setting in settings_of(part, "select"):
        table.add_row(setting.name, str(setting.default), setting.doc)
    return table
