"""`evenly flower`: write a Flower app, run it on this machine as a real federation, and create
certificates and keys. Commands for the operator of a site are in `evenly.cli.site_commands`.
"""

import datetime
import json
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from evenly.cli import site_commands
from evenly.cli.audit_command import NOT_MET, Required
from evenly.cli.options import Favourable, TableColumns, refuse_without_table
from evenly.cli.terminal import Commands, plain_console, styled_console, this_command

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from evenly.flower.deploy.loopback import App, Loopback, Process, RunProgress

app = Commands("Real federations with Flower: apps, trials and sites.")
Method = Annotated[
    str | None, typer.Option(help="A method such as q-fedavg(q=1); `evenly list` shows them.")
]


Clients = Annotated[
    int | None,
    typer.Option(help="Number of SuperNodes; by default one for each client of the app.", min=1),
]
FinalModel = Annotated[
    Path | None,
    typer.Option(help="Folder of a finished run; by default the last one in the app's results/."),
]
MODEL_FILE = Path("models") / "arrays.npz"


class OwnPredictions(NamedTuple):
    """Columns of the clients' tables, in place of a model."""

    prediction: Annotated[
        str | None,
        typer.Option(
            help="Column of the clients' tables with predicted labels, instead of a model."
        ),
    ] = None
    score: Annotated[
        str | None,
        typer.Option(help="Column with the probability of the favourable label, from 0 to 1."),
    ] = None


@app.command()
def new(
    *,
    folder: Annotated[
        Path, typer.Argument(help="Folder for the app; it must not exist yet.", metavar="DIR")
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="A .csv or .parquet table of all clients; without it, synthetic data."),
    ] = None,
    columns: TableColumns,
    method: Method = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds.", min=1)] = 5,
) -> None:
    """Write a Flower app for your table or for synthetic data. Nothing is overwritten."""
    from evenly.flower.app import write_synthetic_app, write_table_app

    facts, sensitive = [], []
    if data is None:
        refuse_without_table(columns, "--data is not given")
        files = write_synthetic_app(folder, method=method or "", rounds=rounds)
    else:
        from evenly.cli.terminal_tables import facts_of
        from evenly.datasets.load import ASSUMED, load, table_source

        if data.is_dir():
            raise ValueError(
                f"{str(data)!r} is a folder. The table of a new app is one .csv or .parquet file,"
                " because every site has one."
            )
        source = table_source(str(data), **columns._asdict())
        roles = {name: source[name] for name in ("client", "label", "sensitive")}
        federation = load(source, 0)
        facts = [f"{fact.about}: {fact.text}" for fact in facts_of(federation, source)]
        sensitive = source["sensitive"]
        files = write_table_app(
            folder, data, federation, **roles, assumed=source.get(ASSUMED, ()),
            method=method or "", rounds=rounds,
        )  # fmt: skip
    console, chosen = plain_console(), method or _default_words(sensitive)
    console.print("\n".join([*(f"Wrote {path}" for path in files), f"method: {chosen}", *facts]))
    console.print(_policies(folder))
    console.print(f"Next: evenly flower up {folder}")


def _policies(folder: Path) -> str:
    """Return what the policies of an app's sites are."""
    from evenly.flower.app import SITES
    from evenly.flower.clients.policy import read_policy

    found = [read_policy(path) for path in (folder / SITES).glob("*/policy.toml")]
    few = [one.least_cell for one in found].count(1)
    notes = (
        [
            f"{few} of them tell counts of single people, so that this trial runs; with real people"
            " set least_cell and least_change to 5 or more"
        ]
        if few
        else []
    )
    notes += ["they allow any model, for this trial"] if found[0].any_model else []
    words = f" ({'; '.join(notes)})" if notes else ""
    return f"policies: {folder / SITES}/*/policy.toml, one for each of {len(found)} sites{words}"


def _default_words(sensitive: list[str]) -> str:
    """Return the method of an app whose user names none, and why it is this one."""
    from evenly.flower.app import default_method

    why = (
        "there are sensitive columns: it aims at equal true positive rates of their groups"
        if sensitive
        else "there are no sensitive columns: it gives more weight to clients with a high loss"
    )
    return f"{default_method(sensitive)} (chosen because {why}; change it with --method)"


@app.command()
def up(
    *,
    folder: Annotated[Path, typer.Argument(help="Folder of a Flower app.", metavar="DIR")] = Path(),
    clients: Annotated[
        int | None,
        typer.Option(
            help="Number of SuperNodes; by default one for each client of the app.", min=1
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Number of rounds, instead of the app's.", min=1)
    ] = None,
    method: Method = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results and logs; by default a new one in the app's results/."
        ),
    ] = None,
) -> None:
    """Run an app as a real federation on this machine. It starts a SuperLink and SuperNodes with
    TLS and keys, and stops them again.
    """
    from evenly.flower.deploy.loopback import read_app

    flower_app = read_app(folder, clients)
    results = (out or _new_folder(folder / "results")).resolve()
    _federation(flower_app, results, {"rounds": rounds, "method": method})
    _show_results(results)
    _show_files(results)


@app.command()
def evaluate(
    *,
    folder: Annotated[Path, typer.Argument(help="Folder of a Flower app.", metavar="DIR")] = Path(),
    model: FinalModel = None,
    clients: Clients = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report; by default a new one in the app's results/."),
    ] = None,
) -> None:
    """Evaluate a finished model, without training.

    The clients of the app run on this machine, as with `up`.
    """
    from evenly.flower.deploy.loopback import read_app

    flower_app = read_app(folder, clients)
    _require_jobs(flower_app)
    finished = _finished_run(folder, model)
    results = (out or _new_folder(folder / "results", "evaluation")).resolve()
    job = {"job": "evaluate", "model": str(finished), "method": _method_of(finished)}
    _federation(flower_app, results, job)
    _show_results(results)
    _show_files(results)


@app.command("audit")
def audit_app(
    *,
    folder: Annotated[Path, typer.Argument(help="Folder of a Flower app.", metavar="DIR")] = Path(),
    model: FinalModel = None,
    own: OwnPredictions,
    favourable: Favourable = None,
    unprivileged: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=VALUE: the value that is compared with all other values."),
    ] = None,
    require: Required = None,
    clients: Clients = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report; by default a new one in the app's results/."),
    ] = None,
) -> None:
    """Audit a model or predictions without pooling rows.

    The model is that of a finished deployment; predictions are a column that clients have already.
    The clients of the app run on this machine, as with `up`.
    """
    from evenly.auditing.requirements import parse_requirement
    from evenly.auditing.result import refuse_replacing
    from evenly.flower.deploy.loopback import read_app

    for text in require or ():
        parse_requirement(text)
    _refuse_values_alone(unprivileged or [])
    flower_app = read_app(folder, clients)
    _require_jobs(flower_app)
    columns = {name: value for name, value in own._asdict().items() if value}
    job = {"job": "audit", "favourable": favourable, "require": ";".join(require or ())}
    job |= {"unprivileged": ";".join(unprivileged or ())}
    if columns:
        _refuse_both(model, columns)
        nodes = {name: {**told, **columns} for name, told in flower_app.nodes.items()}
        flower_app = flower_app._replace(nodes=nodes)
    else:
        finished = _finished_run(folder, model)
        job |= {"model": str(finished), "method": _method_of(finished)}
    results = (out or _new_folder(folder / "results", "audit")).resolve()
    refuse_replacing(results)
    with _unmet_shown_below(results / "audit.json"):
        _federation(flower_app, results, {name: value for name, value in job.items() if value})
    _show_audit(results)


def _require_jobs(flower_app: "App") -> None:
    if "job" not in flower_app.config:
        raise ValueError(
            f"The app in {flower_app.folder} can only train: its pyproject.toml has no 'job'. Write"
            " a new app with `evenly flower new`, or call evenly.flower.audit in its server."
        )


def _refuse_values_alone(unprivileged: list[str]) -> None:
    for text in unprivileged:
        if "=" not in text:
            raise ValueError(f"--unprivileged must be COLUMN=VALUE, got {text!r}.")


def _refuse_both(model: Path | None, columns: dict[str, str]) -> None:
    if model is not None:
        raise ValueError(
            "--model and --prediction are given, but an audit is about one of them. Remove one."
        )
    if "prediction" not in columns:
        raise ValueError("--score needs --prediction: name the column of the predicted labels.")


def _finished_run(folder: Path, model: Path | None) -> Path:
    """Return the folder of the deployment whose final model is meant: the last one of the app."""
    if model is not None:
        found = model.resolve()
        if not (found / MODEL_FILE).is_file():
            raise ValueError(
                f"There is no final model {found / MODEL_FILE}. Give the folder of a finished run."
            )
        return found
    runs = [path for path in (folder / "results").glob("run-*") if (path / MODEL_FILE).is_file()]
    if not runs:
        raise ValueError(
            f"{folder / 'results'} holds no finished run with a model. Train one with `evenly"
            f" flower up {folder}`, name a folder with --model, or audit predictions that clients"
            " have already with `evenly flower audit --prediction COLUMN`."
        )
    return max(runs, key=lambda path: (path / MODEL_FILE).stat().st_mtime).resolve()


def _method_of(finished: Path) -> str:
    from evenly.experiment.deployment import Deployment

    return Deployment.from_json((finished / "plan.json").read_text()).notation


@contextmanager
def _unmet_shown_below(path: Path) -> Iterator[None]:
    """Pass over the failure of a run that wrote its audit and fails because of its requirements."""
    from evenly.flower.deploy.loopback import ProcessError

    before = path.stat().st_mtime_ns if path.exists() else None
    try:
        yield
    except ProcessError:
        if not path.exists() or path.stat().st_mtime_ns == before:
            raise
        if all(check["met"] for check in json.loads(path.read_text())["requirements"]):
            raise


def _show_audit(results: Path) -> None:
    """Print the findings of an audit in a folder. Exits with status 1 if a requirement is not
    met.
    """
    path, console = results / "audit.json", plain_console()
    if not path.is_file():
        raise ValueError(f"The app wrote no audit into {results}. Read {_logs(results)}.")
    told = json.loads(path.read_text())
    for sentence in told["sentences"]:
        console.print(f"• {sentence}")
    for sentence in told["warnings"]:
        console.print(f"! {sentence}", style="yellow")
    for check in told["requirements"]:
        console.print(check["sentence"], style="" if check["met"] else "bold red")
    _show_files(results)
    if not all(check["met"] for check in told["requirements"]):
        raise typer.Exit(NOT_MET)


def _show_files(results: Path) -> None:
    """Print where the report, the final model and the logs are."""
    console, report, model = plain_console(stderr=True), results / "report.html", results / "models"
    console.print(
        f"Report: {report}" if report.exists() else f"The app wrote no report into {results}."
    )
    if model.exists():
        console.print(f"Model:  {model}")
    console.print(f"Logs:   {_logs(results)}")


def _federation(flower_app: "App", results: Path, options: dict[str, Any]) -> None:
    """Run an app with these entries of its run config, and stop everything again."""
    from evenly.flower.deploy.loopback import Loopback, interruptible
    from evenly.flower.versions import config_text

    facts = {"clients": len(flower_app.nodes), "folder": str(results)}
    config, console = _run_config(flower_app, options, facts), plain_console(stderr=True)
    for told in (config, *flower_app.nodes.values()):
        config_text(told)  # raises before anything is started
    with (
        tempfile.TemporaryDirectory(prefix="evenly-flower-") as secrets,
        interruptible(),
        _resumable(console, results),
    ):
        logs = _logs(results)
        # A client is known by its key: the nodes of a trial that goes on are those of before.
        loopback = Loopback(Path(secrets), logs, keys=logs / "keys")
        _run(console, loopback, flower_app, config)


@app.command()
def certificates(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder for ca.pem, ca.key, server.pem and server.key.", metavar="DIR"),
    ],
    host: Annotated[
        list[str],
        typer.Option(
            help="Name or address of the SuperLink, as clients use it. May be given several times."
        ),
    ],
    days: Annotated[
        int,
        typer.Option(help="Number of days for which the SuperLink's certificate is valid.", min=1),
    ] = 397,
) -> None:
    """Create a certificate for a SuperLink. The authority that signs it is created too, unless the
    folder has one.
    """
    from evenly.flower.deploy.security import make_certificates

    files = make_certificates(folder, host, days=days)
    console = plain_console()
    console.print(
        f"For the SuperLink: {files.certificate} and {files.key}\nFor every client:  {files.ca}"
    )
    console.print(f"Signs the next certificate; keep it off the network: {folder / 'ca.key'}")


@app.command()
def key(
    path: Annotated[
        Path,
        typer.Argument(
            help="File for the private key; the public key goes to FILE.pub.", metavar="FILE"
        ),
    ],
) -> None:
    """Create the key with which a client identifies itself."""
    from evenly.flower.deploy.security import make_key

    pair = make_key(path)
    plain_console().print(
        f"Stays with the client: {pair.private}\nFor the SuperLink:     {pair.public}"
    )


app.command()(site_commands.egress)
app.command()(site_commands.node)


def _run_config(
    flower_app: "App", options: dict[str, Any], facts: dict[str, Any]
) -> dict[str, Any]:
    """Return the run config of an app: the user's options, and the facts for which the app has an
    entry.
    """
    for name, value in options.items():
        if value is not None and name not in flower_app.config:
            raise ValueError(
                f"--{name} is given, but {flower_app.folder / 'pyproject.toml'} has no {name!r} in"
                " [tool.flwr.app.config]. Add it there and have the app read"
                f" context.run_config[{name!r}], or leave --{name} out."
            )
    return {
        name: value
        for name, value in {**options, **facts}.items()
        if value is not None and name in flower_app.config
    }


def _new_folder(results: Path, what: str = "run") -> Path:
    """Return the first folder run-1, run-2, ... that does not exist."""
    return next(
        folder
        for number in range(1, 10_000)
        if not (folder := results / f"{what}-{number}").exists()
    )


def _logs(results: Path) -> Path:
    """Return the folder of logs. It is beside the results, because the strategy owns
    their folder.
    """
    return results.with_name(f"{results.name}-logs")


@contextmanager
def _resumable(console: "Console", results: Path) -> Iterator[None]:
    """Print how to resume after a Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        again = (
            this_command()
            if "--out" in this_command()
            else f"{this_command()} --out {shlex.quote(str(results))}"
        )
        console.print(
            f"Stopped; nothing is left running. {_remedy(results, again)} Logs: {_logs(results)}"
        )
        raise typer.Exit(130) from None


def _remedy(results: Path, again: str) -> str:
    """Return what the same command does after an interruption."""
    from evenly.flower.server_state import rounds_done

    done = rounds_done(results)
    if not done:
        return f"No round was stored; `{again}` starts again from the first round."
    rounds = "1 round is" if done == 1 else f"{done:,} rounds are"
    return f"{rounds} stored; `{again}` resumes after the last one."


def _show_results(results: Path) -> None:
    """Print the main figures, whom the model serves worst, and warnings, as `compare` does. An app
    of another kind leaves none.
    """
    if not (results / "plan.json").exists():
        return
    from evenly.cli.terminal_tables import opening_of, results_table, warnings_of
    from evenly.experiment.reopen import open_results

    console = styled_console()
    try:
        comparison = open_results(results)
    except ValueError as error:  # no client has evaluated the model
        console.print(f"! {error}", style="yellow", markup=False)
        return
    for part in (results_table(comparison), *opening_of(comparison), *warnings_of(comparison)):
        console.print(part)


def _run(
    console: "Console", loopback: "Loopback", flower_app: "App", config: dict[str, Any]
) -> None:
    """Start the SuperLink, the SuperNodes and the app, show its rounds, and stop everything."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    from evenly.flower.deploy.loopback import ProcessError

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting the SuperLink", total=None, left="")
        with loopback, _stopping_task(bar):
            _start_nodes(bar, task, loopback, flower_app)
            console.print(
                f"SuperLink at {loopback.address} with {len(flower_app.nodes)} SuperNodes:"
                f" {', '.join(flower_app.nodes)}"
            )
            # its total cannot be unset again, and the number of rounds may be unknown
            bar.remove_task(task)
            run = _follow_run(bar, loopback, flower_app, config)
            ((status, details),) = loopback.status(run)
        if status != "finished:completed":
            reason = details.removeprefix("ServerApp failed with exception: ").rstrip(".")
            raise ProcessError(
                f"The run did not end well ({status}): {reason}. Read"
                f" {loopback.logs / 'run.log'} and {loopback.server.log}."
            )


def _start_nodes(bar: "Progress", task: "TaskID", loopback: "Loopback", flower_app: "App") -> None:
    for number, (name, node_config) in enumerate(flower_app.nodes.items()):
        bar.update(
            task, description="starting SuperNodes", completed=number, total=len(flower_app.nodes)
        )
        loopback.start_node(name, loopback.register(name), node_config)
    for name in flower_app.nodes:
        loopback.wait_connected(name)


def _follow_run(
    bar: "Progress", loopback: "Loopback", flower_app: "App", config: dict[str, Any]
) -> "Process":
    """Run the app to its end. Show its rounds, and warn about SuperNodes that end."""
    from evenly.flower.deploy.loopback import follow

    ended: set[str] = set()

    def check_nodes() -> None:
        for name, node in loopback.nodes.items():
            if not node.running and name not in ended:
                ended.add(name)
                bar.console.print(
                    f"! {name} has ended; the run continues without it. Read {node.log}",
                    style="yellow",
                )

    trains = config.get("job", "train") == "train"
    rounds = int(config.get("rounds", flower_app.config.get("rounds", 0))) if trains else 0
    begins = "starting the app" if trains else "asking the clients"
    task = bar.add_task(begins, total=rounds or None, left="")
    run = loopback.run(flower_app.folder, config)
    for state in follow(run, rounds, check_nodes):
        left = (
            ""
            if state.left is None
            else f"about {datetime.timedelta(seconds=round(state.left))} left"
        )
        bar.update(
            task,
            description=_activity(state),
            completed=state.done,
            total=rounds or None,
            left=left,
        )
        if not bar.console.is_terminal:  # a bar cannot be drawn: a line for each round
            bar.console.print(" ".join(filter(None, (_activity(state), left and f"({left})"))))
    return run


@contextmanager
def _stopping_task(bar: "Progress") -> Iterator[None]:
    """Show at the end that processes are being stopped, which takes seconds."""
    try:
        yield
    finally:
        for task in bar.task_ids:
            bar.update(task, description="stopping everything", left="")


def _activity(state: "RunProgress") -> str:
    if state.waiting is not None:
        connected, needed = state.waiting
        return f"waiting: {connected} of the {needed} clients that the app needs are connected"
    return f"round {state.done + 1}" + (f" of {state.rounds}" if state.rounds else "")
