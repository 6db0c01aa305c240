"""`evenly flower`: write a Flower app, run it on this machine as a real federation, and make certificates and keys for another one."""

import datetime
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from evenly.cli.running import Client, Commands, Drop, Favourable, Features, Label, Sensitive, Unprivileged, sentences, this_command

if TYPE_CHECKING:
    from evenly.flower.deploy.local import App, Loopback, Stand

app = Commands("Real federations with Flower: apps, trials, certificates, keys.")
Method = Annotated[str | None, typer.Option(help="A method such as q-fedavg(q=1); `evenly list` shows them.")]


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="Folder for the app; it must not exist yet.", metavar="DIR")],
    data: Annotated[Path | None, typer.Option(help="A .csv or .parquet table of all clients; without it, a synthetic federation.")] = None,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    favourable: Favourable = None,
    unprivileged: Unprivileged = None,
    features: Features = None,
    drop: Drop = None,
    method: Method = None,
    rounds: Annotated[int, typer.Option(help="Rounds of training.", min=1)] = 5,
) -> None:
    """Write a Flower app for your table or for synthetic data. Nothing is overwritten."""
    with sentences(), _flower():
        from evenly.flower.app import write_synthetic_app, write_table_app

        about = {
            "client": client, "label": label, "sensitive": sensitive, "favourable": favourable, "unprivileged": unprivileged,
            "features": features, "drop": drop,
        }  # fmt: skip
        facts = []
        if data is None:
            _refuse(about)
            written = write_synthetic_app(folder, **({"method": method} if method else {}), rounds=rounds)
        else:
            from evenly.cli.experiment import facts_of
            from evenly.datasets.load import load, table_source

            source = table_source(str(data), **about)
            columns = {name: source[name] for name in ("client", "label", "sensitive")}
            federation = load(source, 0)
            facts = [f"{fact.about}: {fact.text}" for fact in facts_of(federation, source)]
            written = write_table_app(folder, data, federation, **columns, method=method or "", rounds=rounds)
        console = Console(soft_wrap=True, highlight=False, markup=False)
        console.print("\n".join([*(f"Wrote {path}" for path in written), *facts]))
        console.print(f"Next: evenly flower up {folder}")


@app.command()
def up(
    folder: Annotated[Path, typer.Argument(help="Folder of a Flower app.", metavar="DIR")] = Path(),
    clients: Annotated[int | None, typer.Option(help="How many SuperNodes; as many as the app has clients by default.", min=1)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of training, instead of the app's own.", min=1)] = None,
    method: Method = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results and logs; by default a new one in the app's results/.")] = None,
) -> None:
    """Run an app as a real federation on this machine. It has a SuperLink, SuperNodes, TLS and keys; afterwards nothing is left running."""
    with sentences(), _flower():
        from evenly.flower.deploy.local import Loopback, interruptible, read_app

        found = read_app(folder, clients)
        place = (out or _fresh(folder / "results")).resolve()
        config = _config(found, {"rounds": rounds, "method": method}, {"clients": len(found.nodes), "folder": str(place)})
        console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
        with tempfile.TemporaryDirectory(prefix="evenly-flower-") as own, interruptible(), _stopped(console, place):
            loopback = Loopback(Path(own), _logs(place))
            _show(console, loopback, found, config)
        _told(console, place)


@app.command()
def certificates(
    folder: Annotated[Path, typer.Argument(help="Folder for ca.pem, ca.key, server.pem and server.key.", metavar="DIR")],
    host: Annotated[list[str], typer.Option(help="Name or address under which clients reach the SuperLink. May be given several times.")],
    days: Annotated[int, typer.Option(help="How long the SuperLink's certificate is valid.", min=1)] = 397,
) -> None:
    """Make a certificate for a SuperLink. The authority that signs it is made too, unless one is in the folder already."""
    with sentences(), _flower():
        from evenly.flower.deploy.security import make_certificates

        made = make_certificates(folder, host, days=days)
        console = Console(soft_wrap=True, highlight=False, markup=False)
        console.print(f"For the SuperLink: {made.certificate} and {made.key}\nFor every client:  {made.ca}")
        console.print(f"Signs the next certificate; keep it off the network: {folder / 'ca.key'}")


@app.command()
def key(
    path: Annotated[Path, typer.Argument(help="File for the private key; the public one gets .pub after its name.", metavar="FILE")],
) -> None:
    """Make the key by which a SuperLink knows one client."""
    with sentences(), _flower():
        from evenly.flower.deploy.security import make_key

        made = make_key(path)
        console = Console(soft_wrap=True, highlight=False, markup=False)
        console.print(f"Stays with the client: {made.private}\nFor the SuperLink:     {made.public}")


@contextmanager
def _flower() -> Iterator[None]:
    """Without Flower, one sentence says how to get it."""
    try:
        yield
    except ImportError as error:
        if "evenly[flower]" not in str(error):
            raise
        raise ValueError(str(error)) from None


def _refuse(columns: dict[str, Any]) -> None:
    given = [f"--{name}" for name, value in columns.items() if value]
    if given:
        raise ValueError(f"{given[0]} is about a table of your own, but --data is not given. Give a .csv or .parquet file.")


def _config(found: "App", asked: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """What to run the app with: what the user asked for, and what we know where the app wants to know it."""
    for name, value in asked.items():
        if value is not None and name not in found.config:
            raise ValueError(
                f"--{name} is given, but {found.folder / 'pyproject.toml'} has no {name!r} in [tool.flwr.app.config]. "
                f"Add it there and have the app read context.run_config[{name!r}], or leave --{name} out."
            )
    return {name: value for name, value in {**asked, **ours}.items() if value is not None and name in found.config}


def _fresh(results: Path) -> Path:
    """The first folder run-1, run-2, ... that is not there."""
    return next(place for number in range(1, 10_000) if not (place := results / f"run-{number}").exists())


@contextmanager
def _stopped(console: Console, place: Path) -> Iterator[None]:
    """Say how to go on after a Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        again = this_command() if "--out" in this_command() else f"{this_command()} --out {shlex.quote(str(place))}"
        console.print(f"Stopped; nothing is left running. `{again}` goes on after the last round that was kept. Logs: {_logs(place)}")
        raise typer.Exit(130) from None


@contextmanager
def _saying(stopping: Callable[[], None]) -> Iterator[None]:
    """Whatever ends the body, it is said at once that everything is being stopped: that takes seconds."""
    try:
        yield
    finally:
        stopping()


def _show(console: Console, loopback: "Loopback", found: "App", config: dict[str, Any]) -> None:
    """Start everything, follow the run round by round, and stop everything."""
    from evenly.flower.deploy.local import ProcessError, follow

    rounds = int(config.get("rounds", found.config.get("rounds", 0)))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    gone: set[str] = set()

    def meanwhile() -> None:
        for name, node in loopback.nodes.items():
            if not node.running and name not in gone:
                gone.add(name)
                console.print(f"! {name} has ended; the run goes on without it. Read {node.log}", style="yellow")

    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting the SuperLink", total=None, left="")
        with loopback, _saying(lambda: bar.update(task, description="stopping everything", left="")):
            for number, (name, told) in enumerate(found.nodes.items()):
                bar.update(task, description="starting SuperNodes", completed=number, total=len(found.nodes))
                loopback.start_node(name, loopback.register(name), told)
            for name in found.nodes:
                loopback.connected(name)
            console.print(f"SuperLink at {loopback.address} with {len(found.nodes)} SuperNodes: {', '.join(found.nodes)}")
            bar.remove_task(task)  # one that counted SuperNodes cannot be told that nobody knows how many rounds there are
            task = bar.add_task("starting the app", total=rounds or None, left="")
            run = loopback.run(found.folder, config)
            for stand in follow(run, rounds, meanwhile):
                left = "" if stand.left is None else f"about {datetime.timedelta(seconds=round(stand.left))} left"
                bar.update(task, description=_doing(stand), completed=stand.done, total=rounds or None, left=left)
            ((status, details),) = loopback.status(run)
        if status != "finished:completed":
            why = details.removeprefix("ServerApp failed with exception: ").rstrip(".")
            raise ProcessError(f"The run did not end well ({status}): {why}. Read {loopback.server.log}.")


def _doing(stand: "Stand") -> str:
    if stand.waiting is not None:
        connected, needed = stand.waiting
        return f"waiting: {connected} of the {needed} clients that the app wants are connected"
    return f"round {stand.done + 1}" + (f" of {stand.rounds}" if stand.rounds else "")


def _logs(place: Path) -> Path:
    """Beside the results: their folder is the strategy's own."""
    return place.with_name(f"{place.name}-logs")


def _told(console: Console, place: Path) -> None:
    """Where to look."""
    report = place / "report.html"
    console.print(f"Report: {report}" if report.exists() else f"The app wrote no report into {place}.")
    console.print(f"Logs:   {_logs(place)}")
