"""The plan that is shown before a long run, and alone by `--plan`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenly.data.columns import Fact, column_facts
from evenly.data.federation import Federation, side_facts
from evenly.datasets.load import ASSUMED, available, size
from evenly.experiment.estimate import Estimate, estimate
from evenly.experiment.execute import Setting
from evenly.experiment.folder import read_record, slug
from evenly.experiment.plan import Plan


def show_plan(console: Console, plans: Mapping[str, Plan], folder: Path, first: Setting) -> None:
    """What will be trained, of which how much is done, and what it takes; `plans` are the partitions of a study, or one plan.

    Partitions of a study share data and methods, so the first, which is loaded, stands for all.
    """
    known = read_record(folder)
    many = len(plans) > 1
    parts = [estimate(plan, first, folder / "cells" / slug(name) if name else folder) for name, plan in plans.items()]
    one, done, total = parts[0], sum(part.finished for part in parts), sum(part.programs for part in parts)
    table = facts_table()
    study = f"{len(parts)} partitions, " if many else ""
    table.add_row("train", f"{study}{_count(one.methods, 'method')}, {_count(one.seeds, 'seed')}, {_count(one.rounds, 'round')}")
    table.add_row("programs", _programs(parts, done, total))
    table.add_row("data", f"{_count(one.clients, 'client')}, {_count(one.rows, 'row')}; models of {_count(one.parameters, 'number')}")
    _add(table, facts_of(first.federation, next(iter(plans.values())).data))
    table.add_row("memory", _memory(one))
    table.add_row("time", _time(known.seconds if known else 0.0, done, total))
    table.add_row("into", str(folder))
    console.print(table, highlight=False)


def facts_of(federation: Federation, data: Mapping[str, Any]) -> list[Fact]:
    """Whom fairness is about and, of a table of the user's own, what became of its columns; `data` are a plan's."""
    columns = column_facts(federation.encoder, federation.x) if federation.encoder is not None else []
    return [*side_facts(federation, data.get(ASSUMED, ())), *columns]


def facts_table(facts: Sequence[Fact] = ()) -> Table:
    """Lines of what something is about and what is said of it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    _add(table, facts)
    return table


def _add(table: Table, facts: Sequence[Fact]) -> None:
    for fact in facts:
        table.add_row(fact.about, Text(fact.text, style="yellow" if fact.warning else ""))


def _programs(parts: list[Estimate], done: int, total: int) -> str:
    if done == total:
        return f"all {total} are finished"
    compiled = max(part.compiled for part in parts)  # partitions of the same rows share them
    return f"{total - done:,} to run, {compiled:,} to compile" + (f"; {done:,} of {total:,} are finished" if done else "")


def _memory(one: Estimate) -> str:
    each = f" for each of {one.at_once} seeds at once" if one.at_once > 1 else ""
    parts = f"data {size(one.data_bytes)} and models {size(one.state_bytes)}{each}"
    return f"about {size(one.bytes)}, and what batches need: {parts}; {size(available())} are free"


def _time(spent: float, done: int, total: int) -> str:
    """Programs differ, so what the finished ones took is all that can be said of the others."""
    if done == total:
        return "nothing is left to train"
    if not (spent and done):
        return "not known before the first rounds"
    return f"about {duration(spent / done * (total - done))}, if the rest is like what is finished"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    for unit, many in (("days", 172800), ("hours", 7200), ("minutes", 120)):
        if seconds >= many:
            return f"{seconds / {'days': 86400, 'hours': 3600, 'minutes': 60}[unit]:.1f} {unit}"
    return f"{max(1, round(seconds))} seconds"
