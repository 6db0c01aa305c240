"""A federation on this machine: starts, follows and stops a SuperLink, SuperNodes and a run over
the loopback interface.
"""

import json
import os
import re
import secrets
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from evenly.flower import versions
from evenly.flower.app import SITES, policy_path, read_schema, site_name
from evenly.flower.deploy.security import (
    Certificates,
    NodeKey,
    key_at,
    make_certificates,
    write_secret,
)
from evenly.records import require

# What `evenly flower up` must know of an app: its settings, and what each SuperNode is told.


class App(NamedTuple):
    """A Flower app in a folder."""

    folder: Path
    name: str
    config: Mapping[str, Any]  # its run config, where nothing else is given
    nodes: Mapping[str, Mapping[str, Any]]  # what each SuperNode is told, by the client's name


def read_app(folder: Path, clients: int | None = None) -> App:
    """Read an app and the node config of each client."""
    told = _project(folder)
    config = told["tool"]["flwr"]["app"].get("config", {})
    package = str(told["tool"]["flwr"]["app"]["components"].get("clientapp", "")).partition(".")[0]
    schema = folder / package / "schema.json"
    table = told["tool"].get("evenly", {}).get("table")
    if table is None or not schema.is_file():
        count = clients or int(config.get("clients", 2))
        nodes = {site_name(k): {"partition-id": k, "num-partitions": count} for k in range(count)}
        return App(folder, str(told["project"]["name"]), config, _with_policies(folder, nodes))
    names, path = read_schema(schema).clients, (folder / table).resolve()
    require(
        path.is_file(),
        f"There is no table {path}. Put it back, or correct `table` in"
        f" {folder / 'pyproject.toml'}.",
    )
    require(
        clients is None or clients <= len(names),
        f"clients must be at most {len(names)}, the number of clients in the table, got {clients}.",
    )
    shown = {site_name(k, name): name for k, name in enumerate(names[: clients or len(names)])}
    nodes = {
        short: {"partition-id": k, "num-partitions": len(shown), "client": name, "table": str(path)}
        for k, (short, name) in enumerate(shown.items())
    }
    return App(folder, str(told["project"]["name"]), config, _with_policies(folder, nodes))


def _with_policies(
    folder: Path, nodes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """The node configs with the policy of each site, where the app has any, and beside it the
    folder in which the site keeps models of its own.
    """
    if not (folder / SITES).is_dir():
        return dict(nodes)
    found = {site: policy_path(folder, site).resolve() for site in nodes}
    for site, path in found.items():
        require(
            path.is_file(),
            f"There is no policy {path}, so {site} would answer nothing. Copy that of another site"
            f" there, or remove {folder / SITES} if the app asks for no policy.",
        )
    return {
        site: {**config, "policy": str(path), "memory": str(path.with_name("memory"))}
        for (site, config), path in zip(nodes.items(), found.values(), strict=True)
    }


def _project(folder: Path) -> dict[str, Any]:
    path = folder / "pyproject.toml"
    require(
        path.is_file(),
        f"There is no Flower app in {folder}: pyproject.toml is missing. `evenly flower new"
        f" {folder}` writes one.",
    )
    try:
        told = tomllib.loads(path.read_text())
        require(
            bool(told["project"]["name"]) and bool(told["tool"]["flwr"]["app"]["components"]),
            f"{path} does not describe a Flower app.",
        )
    except (KeyError, TypeError):
        raise ValueError(
            f"{path} does not describe a Flower app: [project] name or [tool.flwr.app.components]"
            " is missing."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from None
    return told


# Processes with a log: started with their pid kept, waited for with a bound, stopped with
# everything they started.
#
# Each process leads a session of its own, so that a Ctrl-C in the terminal reaches only us, and so
# that whatever it starts can be stopped with it.

GRACE = 8.0  # seconds to end by itself after SIGTERM; Flower ends itself by force after 5
STEP = 0.05
TAIL = 15  # lines of a log that an error shows
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ProcessError(ValueError):
    """A process ended early or did not get ready in time. The message names its log."""


class Process(NamedTuple):
    """A process that was started here."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    since: int = 0  # where in the log it begins; what is before is of an earlier process

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def text(self) -> str:
        """Its log so far, without colours."""
        with open(self.log, "rb") as file:
            file.seek(self.since)
            return COLOURS.sub("", file.read().decode(errors="replace"))

    def failed(self, what: str) -> ProcessError:
        """Error with a message, the end of the log and its path."""
        last = "\n".join(f"  {line}" for line in self.text().rstrip().splitlines()[-TAIL:])
        return ProcessError(
            f"{what} Read {self.log}, which ends with:\n{last}"
            if last
            else f"{what} Its log, {self.log}, is empty."
        )


def program(name: str) -> str:
    """Path of one of Flower's programs in this environment."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise ValueError(
            f"Flower's program {name} is needed beside {sys.executable}. Run `pip install"
            ' "evenly[flower]"`.'
        )
    return str(path)


def start(name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Process:
    """Start a process that writes to a log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        since = file.tell()
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        popen = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
        )
    return Process(name, popen, log, since)


def wait_until(ready: Callable[[], bool], process: Process, seconds: float, what: str) -> None:
    """Wait until `ready` holds. Raise if the process ends before, or after this many seconds."""
    end = time.monotonic() + seconds
    while not ready():
        if not process.running and not ready():  # what it said last may be what was waited for
            raise process.failed(
                f"The {process.name} ended (exit code {process.popen.returncode}) before {what}."
            )
        if time.monotonic() > end:
            raise process.failed(
                f"The {process.name} did not reach this point within {seconds:g} seconds: {what}."
            )
        time.sleep(STEP)


def stop(processes: Iterable[Process], grace: float = GRACE) -> None:
    """Stop processes and their children: SIGTERM first, SIGKILL after the grace period."""
    rest = [process for process in processes if _alive(process)]
    for process in rest:
        _signal(process, signal.SIGTERM)
    end = time.monotonic() + grace
    while rest and time.monotonic() < end:
        time.sleep(STEP)
        rest = [process for process in rest if _alive(process)]
    for process in rest:
        kill(process)


def kill(process: Process) -> None:
    """Kill a process and its children at once."""
    _signal(process, signal.SIGKILL)
    process.popen.wait()


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that started processes are stopped."""
    with _signals((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        yield


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore all signals but SIGKILL."""
    with _signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIG_IGN):
        yield


@contextmanager
def _signals(numbers: Sequence[signal.Signals], handler: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears of signals
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


def free_ports(count: int) -> list[int]:
    """Free ports of the loopback interface."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def _signal(process: Process, number: int) -> None:
    """Send a signal to the process group, whose id stays reserved until its last process ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.popen.pid, number)


def _alive(process: Process) -> bool:
    """Whether the process or one of its children is running."""
    process.popen.poll()  # an ended child would be counted until somebody asks for its exit code
    try:
        os.killpg(process.popen.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


# A whole federation on this machine: a SuperLink and SuperNodes that talk TLS over the loopback,
# each known by its key.
#
# Everything lies in one folder, which should be the user's alone: `certificates/`, `keys/`, `logs/`
# and `homes/` (what Flower itself keeps, one home for each process: two SuperNodes that unpack the
# same app into one home can meet in the middle of it).

HOST = "127.0.0.1"
# seconds a process may take to be ready; Flower's own take about three on an idle machine
STARTING = 60.0
ANSWERING = 60.0  # seconds a command such as `flwr list` may take
POLLING = "0.25"  # seconds between two looks for a message to work on; Flower's default is one
CONNECTION = "loopback"  # what Flower's configuration calls the SuperLink
RUN_ID = re.compile(r"started run (\d+)")
NODE_ID = re.compile(r"SuperNode ID: (\d+)")


class Loopback:
    """A SuperLink and its SuperNodes. As a context manager, it stops every process at the end."""

    link_options: Sequence[str] = ()  # further options of the SuperLink

    def __init__(
        self, folder: Path, logs: Path | None = None, env: Mapping[str, str] = {}, *,
        keys: Path | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder.resolve()
        self.logs = (logs or folder / "logs").resolve()
        self.keys = (keys or folder / "keys").resolve()  # of the clients
        self.nodes: dict[str, Process] = {}
        self.version = versions.installed()
        self._env = dict(env)
        self._processes: list[Process] = []

    def __enter__(self) -> "Loopback":
        with ExitStack() as undo:
            undo.callback(self.close)
            self._start_superlink()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all processes, SuperNodes first. Ctrl-C is ignored meanwhile, because it would leave
        processes behind.
        """
        with signals_ignored():
            stop(reversed(self._processes))
            self._processes, self.nodes = [], {}

    def _start_superlink(self) -> None:
        """Start the SuperLink and the process that starts its ServerApps."""
        self.certificates: Certificates = make_certificates(
            self.folder / "certificates", keep_authority=False
        )
        ports = free_ports(versions.ports_needed(self.version))
        self.addresses = versions.addresses(HOST, ports, self.version)
        self.address = self.addresses.of(self.addresses.fleet)
        self._secret = write_secret(
            self.folder / "keys" / "superexec.secret", secrets.token_bytes(32)
        )
        control = self.addresses.of(self.addresses.control)
        (self._home("superlink") / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress ='
            f' "{control}"\nroot-certificates ='
            f" {json.dumps(str(self.certificates.ca), ensure_ascii=False)}\n"
        )
        self.start_link()
        self.start_server()

    def start_link(self) -> Process:
        """Start the SuperLink; again after it was killed."""
        command = versions.superlink(
            self.addresses, *self.certificates, self._secret, version=self.version
        )
        self.link = self._start("superlink", [*command, *self.link_options])
        wait_until(self._healthy, self.link, STARTING, "answering on its port")
        return self.link

    def start_server(self) -> Process:
        """Start the process that starts ServerApps; again after it was killed."""
        command = versions.superexec(
            self.addresses, self.certificates.ca, self._secret, version=self.version
        )
        self.server = self._start("serverapp", command, home="superlink")
        return self.server

    def register(self, name: str, key: NodeKey | None = None) -> NodeKey:
        """Register the key of a client with the SuperLink; without one, the key in `keys`, which is
        made if it is not there.
        """
        key = key or key_at(self.keys / name)
        self.flwr("supernode", "register", str(key.public), CONNECTION)
        return key

    def start_node(
        self, name: str, key: NodeKey, config: Mapping[str, Any], *, ca: Path | None = None,
        trusted: Path | None = None,
    ) -> Process:  # fmt: skip
        """Start a SuperNode, without waiting for it. With `trusted`, it runs only signed apps."""
        (port,) = free_ports(1)
        command = [
            "flower-supernode",
            f"--root-certificates={ca or self.certificates.ca}",
            f"--superlink={self.address}",
        ]
        command += [
            f"--auth-supernode-private-key={key.private}",
            *versions.node_address(HOST, port, self.version),
            f"--node-config={versions.config_text(config)}",
        ]
        command += [] if trusted is None else [f"--trusted-entities={trusted}"]
        self.nodes[name] = self._start(name, command)
        return self.nodes[name]

    def connect(self, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Register and start one SuperNode for each name, and return their node ids."""
        for name, config in configs.items():
            self.start_node(name, self.register(name), config)
        return {name: self.wait_connected(name) for name in configs}

    def wait_connected(self, name: str, seconds: float = STARTING) -> int:
        """Wait until a SuperNode is connected, and return its node id."""
        node = self.nodes[name]
        wait_until(
            lambda: NODE_ID.search(node.text()) is not None,
            node,
            seconds,
            "connecting to the SuperLink",
        )
        found = NODE_ID.search(node.text())
        assert found is not None
        return int(found[1])

    def run(self, app: Path, config: Mapping[str, Any] = {}, name: str = "run") -> Process:
        """Start a run of an app. The process ends with the run, and its log is that of the
        ServerApp.
        """
        given = [f"--run-config={versions.config_text({k: v})}" for k, v in config.items()]
        return self._start(
            name, ["flwr", "run", str(app), CONNECTION, "--stream", *given], home="superlink"
        )

    def status(self, *runs: Process) -> list[tuple[str, str]]:
        """Status of runs in Flower's words (running, finished:completed, finished:failed, ...),
        with details.
        """
        listed = json.loads(self.flwr("list", "--format", "json", CONNECTION))["runs"]
        told = {
            str(one["run-id"]): (str(one["status"]), str(one.get("status-details", "")))
            for one in listed
        }
        return [told[self._number(run)] for run in runs]

    def _number(self, run: Process) -> str:
        found = RUN_ID.search(run.text())
        if found is None:
            raise run.failed("The run did not start.")
        return found[1]

    def flwr(self, *words: str) -> str:
        """Output of one of Flower's commands. Raises with its error message if it fails."""
        command = [program("flwr"), *words]
        try:
            done = subprocess.run(
                command,
                env=self._environment("superlink"),
                capture_output=True,
                text=True,
                timeout=ANSWERING,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise ProcessError(
                f"`flwr {' '.join(words)}` did not answer within {ANSWERING:g} seconds. Read"
                f" {self.logs / 'superlink.log'}."
            ) from None
        if done.returncode:
            raise ProcessError(
                f"`flwr {' '.join(words)}` failed: {(done.stderr or done.stdout).strip()} Read"
                f" {self.logs / 'superlink.log'}."
            )
        return done.stdout

    def _start(self, name: str, command: Sequence[str], home: str | None = None) -> Process:
        process = start(
            name,
            [program(command[0]), *command[1:]],
            self.logs / f"{name}.log",
            self._environment(home or name),
        )
        self._processes.append(process)
        return process

    def _healthy(self) -> bool:
        if not versions.answers_http(self.version):
            return all(_listening(port) for port in self.addresses[1:])
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        url = f"https://{self.addresses.of(self.addresses.runtime)}/health"
        with suppress(OSError), direct.open(url, timeout=5) as answer:
            return answer.status == 200
        return False

    def _home(self, name: str) -> Path:
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _environment(self, name: str) -> dict[str, str]:
        """Environment of the processes: no downloads, installations, telemetry or proxies."""
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self._home(name)),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": POLLING,
            "NO_PROXY": f"{HOST},localhost",
            "no_proxy": f"{HOST},localhost",
            "PYTHONUNBUFFERED": "1",
            **self._env,
        }


# Follow a run by what its ServerApp says.

ROUND = re.compile(r"\[ROUND (\d+)")
# what Flower says before the first
WAITING = re.compile(r"Waiting for nodes to connect: (\d+) connected \(minimum required: (\d+)\)")
LOOK = 0.2


class RunProgress(NamedTuple):
    """Progress of a run."""

    done: int  # rounds
    rounds: int
    # seconds, if the other rounds take as long as those since it began; None: nobody can tell yet
    left: float | None = None
    # before the first round: how many clients are connected, and how many must be
    waiting: tuple[int, int] | None = None


def follow(
    run: Process, rounds: int, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[RunProgress]:
    """Yield the progress of a run whenever it changes, until the run ends."""
    first: tuple[int, float] | None = None  # an earlier server may have done some rounds
    told, waited = -1, None
    while True:
        ended = not run.running  # asked before the log is read: what it says last is not missed
        meanwhile()
        text, now = run.text(), time.monotonic()
        begun, waits = [int(found[1]) for found in ROUND.finditer(text)], WAITING.findall(text)
        if waits and not begun and waits[-1] != waited:
            waited = waits[-1]
            yield RunProgress(0, rounds, waiting=(int(waited[0]), int(waited[1])))
        if begun and begun[-1] - 1 != told:
            told = begun[-1] - 1
            first = first or (told, now)
            trained = told - first[0]
            yield RunProgress(
                told, rounds, (now - first[1]) / trained * (rounds - told) if trained else None
            )
        if ended:
            return
        time.sleep(LOOK)
