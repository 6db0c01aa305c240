"""`evenly data`: what data sets there are, where they come from, and whether their files are here and whole."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from evenly.cli.running import Commands, Plugins, sentences

if TYPE_CHECKING:
    from evenly.data.federation import Federation
    from evenly.datasets import DataFile, DatasetCard

app = Commands("Show, fetch and check data sets.")
Name = Annotated[str, typer.Argument(help="A data set; `evenly data list` shows them.")]


@app.command("list")
def list_all(plugin: Plugins = None) -> None:
    """Show every data set and whether its files are here."""
    with sentences():
        from evenly.datasets import DATASETS, data_folder

        table = Table(title=f"data sets; files are looked for in {data_folder()}", title_justify="left")
        for name in ("name", "title", "papers", "files"):
            table.add_column(name, overflow="fold")
        for card in DATASETS.values():
            table.add_row(card.name, card.title, ", ".join(card.papers), state_of(card))
        Console().print(table)


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="A data set, with settings as elsewhere: adult-sex(partition=cov-same-size).")],
    plugin: Plugins = None,
) -> None:
    """Explain one data set: provenance, licence and files. Where its files are here, also its clients and groups."""
    with sentences():
        from evenly.datasets.load import load
        from evenly.notation import parse_one

        part = parse_one(name, "data set")
        card, console = _card(part.name), Console()
        facts = {"papers": ", ".join(card.papers), "from": card.provenance, "licence": card.licence, "cite": card.citation}
        console.print(f"[bold]{card.name}[/bold]: {card.title}", highlight=False)
        for what, text in facts.items():
            console.print(f"  {what}: {text or 'not given'}", highlight=False, markup=False)
        for note in card.notes:
            console.print(f"  note: {note}", highlight=False, markup=False)
        console.print(f"  files: {state_of(card)}", highlight=False)
        if state_of(card) in ("here", "none needed"):
            federation = load({"name": part.name, **part.settings}, split_seed=0)
            console.print(_clients(federation))
            if good := _good(federation, card, part.settings):
                console.print(good, highlight=False)
            if len(federation.groups) > 1:
                console.print(_groups(federation))


@app.command()
def fetch(name: Name) -> None:
    """Download a data set's files, check them and put them in place."""
    with sentences():
        from evenly.datasets import fetch as fetch_file

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        card = _card(name)
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            for file in card.files:
                task = bar.add_task(file.path, total=None)
                fetch_file(file, lambda done, total, task=task: bar.update(task, completed=done, total=total))
        Console().print(f"{name}: {len(card.files)} files in place and checked." if card.files else f"{name} needs no files.")


@app.command()
def check(name: Annotated[str | None, typer.Argument(help="A data set; all that are here by default.")] = None) -> None:
    """Verify sizes and checksums of the files that are here."""
    with sentences():
        from evenly.datasets import DATASETS
        from evenly.datasets import check as check_file

        cards = [_card(name)] if name else [card for card in DATASETS.values() if card.layouts]
        for card in cards:
            files = _present(card)
            for file in files:
                check_file(file)
            Console().print(f"{card.name}: {f'{len(files)} files whole' if files else 'no files here'}", highlight=False)


def _card(name: str) -> "DatasetCard":
    from evenly.datasets import DATASETS
    from evenly.notation import unknown

    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def _present(card: "DatasetCard") -> "tuple[DataFile, ...]":
    """The files of the first layout that is complete."""
    from evenly.datasets.files import complete

    return next((layout for layout in card.layouts if complete(layout)), ())


def state_of(card: "DatasetCard") -> str:
    if not card.layouts:
        return "none needed"
    if _present(card):
        return "here"
    return "fetch" if all(file.urls and file.contents for file in card.files) else "by hand"


def _clients(federation: "Federation") -> Table:
    """The largest and smallest clients."""
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
    table = Table(title=title, title_justify="left")
    columns = ["client", "train", "valid", "test", "share of rows", "commonest label", *(["unprivileged"] if grouped else [])]
    for column in columns:
        table.add_column(column, justify="left" if column == "client" else "right")
    shown = clients if len(clients) <= 12 else [*clients[:6], *clients[-6:]]
    for client in shown:
        top = max(range(len(client.labels)), key=client.labels.__getitem__)
        commonest = f"{federation.labels[top]!r} {100 * client.labels[top]:.0f} %"
        cells = [client.name, f"{client.train:,}", f"{client.valid:,}", f"{client.test:,}", f"{100 * client.share:.1f} %", commonest]
        share = client.unprivileged / (client.train + client.valid + client.test)
        table.add_row(*cells, *([f"{client.unprivileged:,} ({100 * share:.1f} %)"] if grouped else []))
    return table


def _good(federation: "Federation", card: "DatasetCard", settings: dict[str, Any]) -> str:
    """How many clients cover unprivileged people, where the partition is by coverage."""
    from evenly.metrics.representation import good_clients_of

    usual = {name: parameter.default for name, parameter in inspect.signature(card.load).parameters.items()} | settings
    if not str(usual.get("partition", "")).startswith("cov"):
        return ""
    dealt = usual["coverage"] * (1 - len(federation.central) / len(federation.y))  # a coverage is of all rows, the test set included
    good = int(good_clients_of(federation, dealt).sum())
    return f"good clients, with at least 90 % of a coverage of {dealt:,.0f} unprivileged rows: {good} of {federation.clients}"


def _groups(federation: "Federation") -> Table:
    """The groups, how large they are and how often they have the favourable label."""
    from evenly.metrics.representation import describe_groups

    table = Table(title=f"groups; the favourable label is {federation.labels[federation.favourable]!r}", title_justify="left")
    for column in ("group", "side", "rows", "share of rows", "favourable"):
        table.add_column(column, justify="right" if column not in ("group", "side") else "left")
    for group in describe_groups(federation):
        rate = f"{100 * group.favourable:.1f} %" if group.rows else "n/a"
        side = "unprivileged" if group.unprivileged else "privileged"
        table.add_row(group.name, side, f"{group.rows:,}", f"{100 * group.share:.1f} %", rate)
    return table
