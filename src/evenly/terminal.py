"""What people see in a terminal: tables, progress with time left, and errors in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from evenly.algorithms import METHODS, Method, settings_of
from evenly.experiment.choose import Choice
from evenly.experiment.execute import Progress as Report
from evenly.experiment.reproduce import Line
from evenly.experiment.results import Comparison, over_seeds
from evenly.metrics import METRICS, Spread

SHOWN = ("average", "average_devices", "worst10", "best10", "variance", "variance_noise", "angle")


@contextmanager
def progress(console: Console, what: str) -> Iterator[Report]:
    """A bar with time left. Compilation comes before the first step, so the bar starts when there is something to show."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(f"{what} (compiling)", total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield report


def number(value: float) -> str:
    """A number as tables show it: undefined is n/a, large ones without decimals."""
    if value != value:
        return "n/a"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.3f}"


def with_spread(value: Spread) -> str:
    return number(value.mean) + (f" ± {number(value.half_width)}" if value.seeds > 1 else "")


def results_table(comparison: Comparison, split: str = "test") -> Table:
    """One row per method, one column per metric; the best of each column is bold."""
    seeds = len(comparison.seeds)
    interval = f", mean ± 95 % interval over {seeds} seeds" if seeds > 1 else ", one seed"
    table = Table(
        title=f"{comparison.federation.name}: {split} accuracy of {comparison.federation.clients} clients{interval}", title_justify="left"
    )
    table.add_column("method", overflow="fold")
    for name in SHOWN:
        table.add_column(METRICS[name].title, justify="right")
    values = {label: over_seeds(comparison, label, split) for label in comparison.labels}
    for label in comparison.labels:
        cells = [Text(with_spread(values[label][m]), style="bold" if _is_best(m, label, values) else "") for m in SHOWN]
        table.add_row(label, *cells)
    return table


def _is_best(metric: str, label: str, values: dict[str, dict[str, Spread]]) -> bool:
    better = METRICS[metric].better
    return bool(better) and len(values) > 1 and better * values[label][metric].mean >= max(better * v[metric].mean for v in values.values())


def reproduction_table(lines: list[Line], title: str) -> Table:
    """Paper and ours, figure by figure."""
    table = Table(title=title, title_justify="left")
    for name in ("split", "method", "metric"):
        table.add_column(name, overflow="fold")
    for name in ("paper", "ours", "difference"):
        table.add_column(name, justify="right")
    for line in sorted(lines, key=lambda item: (item.split != "test", item.label)):
        deviation = f" ± {number(line.paper_deviation)}" if line.paper_deviation is not None else ""
        ours = number(line.ours.mean) + (f" ± {number(line.ours.deviation)}" if line.ours.seeds > 1 else "")
        table.add_row(line.split, line.label, METRICS[line.metric].title, number(line.paper) + deviation, ours, f"{line.difference:+.3g}")
    return table


def choice_table(choice: Choice) -> Table:
    """What was seen on validation rows, and which value was taken."""
    table = Table(title="validation accuracy, mean over seeds", title_justify="left")
    table.add_column("method")
    for name in ("average", "variance", "within the margin", ""):
        table.add_column(name, justify="right" if name else "left")
    for label in choice.average:
        mark = "chosen" if label == choice.chosen else "baseline" if label == choice.baseline else ""
        allowed = "yes" if choice.allowed[label] else "no"
        table.add_row(label, number(choice.average[label]), number(choice.variance[label]), allowed, mark)
    return table


def methods_table() -> Table:
    table = Table(title="methods", title_justify="left")
    for name in ("name", "title", "clients reveal, besides the update", "reference"):
        table.add_column(name, overflow="fold")
    for method in METHODS.values():
        table.add_row(method.name, method.title, reveals(method), method.reference)
    return table


def reveals(method: Method) -> str:
    """What the method makes clients say besides their update."""
    needs = method.build({k: v[0] for k, v in method.defaults.items() if isinstance(v, list)}).rule.needs
    return ", ".join(sorted(needs - {"square_norm"})) or "nothing"


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
