"""`evenly data`: list data sets, describe where they come from, and download and verify their
files.
"""

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenly.cli.options import Plugins
from evenly.cli.terminal import Commands, plain_console, styled_console, titled_table

if TYPE_CHECKING:
    from rich.table import Table

    from evenly.data.federation import Federation
    from evenly.datasets import DatasetCard

app = Commands("Show, fetch and check data sets.")
Name = Annotated[str, typer.Argument(help="A data set; `evenly data list` shows them.")]


@app.command("list")
def list_all(plugin: Plugins = None) -> None:
    """List every data set and whether its files are here."""
    from evenly.datasets import DATASETS, data_folder

    table = titled_table(
        f"data sets; files are looked for in {data_folder()}", "name", "title", "papers", "files"
    )
    for card in DATASETS.values():
        table.add_row(card.name, card.title, ", ".join(card.papers), card.state)
    styled_console().print(table)


@app.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="A data set, optionally with settings: adult-sex(partition=cov-same-size)."
        ),
    ],
    plugin: Plugins = None,
) -> None:
    """Describe one data set: provenance, licence and files. If its files are here, also its clients
    and groups.
    """
    from evenly.catalogue import dataset_facts
    from evenly.datasets.load import load
    from evenly.notation import parse_one

    part = parse_one(name, "data set")
    card, console, plain = _card(part.name), styled_console(), plain_console()
    for fact in dataset_facts(card):
        plain.print(fact)
    if card.state in ("here", "none needed"):
        federation = load({"name": part.name, **part.settings}, split_seed=0)
        console.print(_clients_table(federation))
        if coverage := _coverage(federation, card, part.settings):
            plain.print(coverage)
        if len(federation.groups) > 1:
            console.print(_groups_table(federation))


@app.command()
def fetch(name: Name) -> None:
    """Download a data set's files and verify them."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from evenly.datasets import fetch as fetch_file

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    card = _card(name)
    with Progress(*columns, console=styled_console(stderr=True), transient=True) as bar:
        for file in card.files:
            task = bar.add_task(file.path, total=None)
            fetch_file(
                file, lambda done, total, task=task: bar.update(task, completed=done, total=total)
            )
    styled_console().print(
        f"{name}: {len(card.files)} files in place and checked."
        if card.files
        else f"{name} needs no files."
    )


@app.command()
def check(
    name: Annotated[
        str | None, typer.Argument(help="A data set; by default all whose files are here.")
    ] = None,
) -> None:
    """Verify sizes and checksums of the files that are here."""
    from evenly.datasets import DATASETS
    from evenly.datasets import check as check_file

    cards = [_card(name)] if name else [card for card in DATASETS.values() if card.layouts]
    for card in cards:
        files = card.present
        for file in files:
            check_file(file)
        styled_console().print(
            f"{card.name}: {f'{len(files)} files whole' if files else 'no files here'}",
            highlight=False,
        )


def _card(name: str) -> "DatasetCard":
    from evenly.datasets import DATASETS
    from evenly.notation import unknown

    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def _clients_table(federation: "Federation") -> "Table":
    """Return the largest and the smallest clients."""
    from evenly.metrics.representation import describe as describe_clients
    from evenly.metrics.representation import left_over

    clients = sorted(describe_clients(federation), key=lambda client: -client.share)
    total = sum(client.train + client.valid + client.test for client in clients)
    dropped = f", {left_over(federation):,} left over" if left_over(federation) else ""
    title = (
        f"{federation.clients} clients, {total:,} rows, {len(federation.labels)} labels, "
        f"central test set of {len(federation.central):,}{dropped}"
    )
    grouped = len(federation.groups) > 1
    columns = [
        "train",
        "valid",
        "test",
        "share of rows",
        "commonest label",
        *(["unprivileged"] if grouped else []),
    ]
    table = titled_table(title, "client", numbers=columns)
    shown = clients if len(clients) <= 12 else [*clients[:6], *clients[-6:]]
    for client in shown:
        top = max(range(len(client.labels)), key=client.labels.__getitem__)
        commonest = f"{federation.labels[top]!r} {100 * client.labels[top]:.0f} %"
        cells = [
            client.name,
            f"{client.train:,}",
            f"{client.valid:,}",
            f"{client.test:,}",
            f"{100 * client.share:.1f} %",
            commonest,
        ]
        share = client.unprivileged / (client.train + client.valid + client.test)
        table.add_row(
            *cells, *([f"{client.unprivileged:,} ({100 * share:.1f} %)"] if grouped else [])
        )
    return table


def _coverage(federation: "Federation", card: "DatasetCard", settings: dict[str, Any]) -> str:
    """Return how many clients cover unprivileged people, if the partition is by coverage."""
    from evenly.metrics.representation import good_clients_of

    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(card.load).parameters.items()
    }
    settings = defaults | settings
    if not str(settings.get("partition", "")).startswith("cov"):
        return ""
    # of all rows, the test set included
    coverage = settings["coverage"] * (1 - len(federation.central) / len(federation.y))
    good = int(good_clients_of(federation, coverage).sum())
    return (
        f"good clients, with at least 90 % of a coverage of {coverage:,.0f} unprivileged rows:"
        f" {good} of {federation.clients}"
    )


def _groups_table(federation: "Federation") -> "Table":
    """Return the groups, their sizes and their shares of favourable labels."""
    from evenly.metrics.representation import describe_groups

    title = f"groups; the favourable label is {federation.labels[federation.favourable]!r}"
    table = titled_table(title, "group", "side", numbers=["rows", "share of rows", "favourable"])
    for group in describe_groups(federation):
        rate = f"{100 * group.favourable:.1f} %" if group.rows else "n/a"
        side = "unprivileged" if group.unprivileged else "privileged"
        table.add_row(group.name, side, f"{group.rows:,}", f"{100 * group.share:.1f} %", rate)
    return table
