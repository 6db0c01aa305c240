"""What a federation on this machine starts and asks, with Flower's programs replaced by notes of
how they were called.
"""

import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from evenly.flower.deploy import loopback
from evenly.flower.deploy.loopback import Loopback, ProcessError
from evenly.flower.deploy.security import NodeKey
from evenly.flower.versions import Addresses


class Started(NamedTuple):
    """A process that was never begun."""

    name: str
    command: list[str]
    log: Path
    env: dict[str, str]
    said: str = ""
    running: bool = True

    def text(self) -> str:
        return self.said

    def failed(self, what: str) -> ProcessError:
        return ProcessError(what)


class Machine:
    """Everything that would be started, and what Flower's commands would print."""

    def __init__(self) -> None:
        self.started: list[Started] = []
        self.stopped: list[str] = []
        self.asked: list[list[str]] = []
        self.prints, self.status, self.complains = "", 0, ""

    def start(self, name: str, command: list[str], log: Path, env: dict[str, str]) -> Started:
        said = "SuperNode ID: 4711\n" if name.startswith("client") else "started run 815\n"
        self.started.append(Started(name, [*command], log, env, said))
        return self.started[-1]

    def stop(self, processes: Any) -> None:
        self.stopped += [process.name for process in processes]

    def run(self, command: list[str], **_: Any) -> Any:
        self.asked.append(command)
        return SimpleNamespace(returncode=self.status, stdout=self.prints, stderr=self.complains)


def wait_until(ready: Any, process: Started, _seconds: float, what: str) -> None:
    if not ready():
        raise process.failed(f"not {what}")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(loopback, "start", made.start)
    monkeypatch.setattr(loopback, "stop", made.stop)
    monkeypatch.setattr(loopback, "wait_until", wait_until)
    monkeypatch.setattr(loopback, "program", lambda name: f"/bin/{name}")
    monkeypatch.setattr(loopback.subprocess, "run", made.run)
    monkeypatch.setattr(Loopback, "_healthy", lambda self: True)
    return made


@pytest.fixture
def link(machine: Machine, tmp_path: Path) -> Iterator[Loopback]:
    with Loopback(tmp_path / "here", env={"OWN": "1"}) as made:
        yield made


def test_everything_lies_in_one_folder(link: Loopback, machine: Machine, tmp_path: Path):
    folder = tmp_path / "here"
    superlink, server = machine.started
    assert (superlink.name, server.name) == ("superlink", "serverapp")
    assert (superlink.command[0], server.command[0]) == (
        "/bin/flower-superlink",
        "/bin/flower-superexec",
    )
    assert f"--ssl-certfile={folder}/certificates/server.pem" in superlink.command
    assert f"--port={link.addresses.runtime}" in superlink.command
    assert f"--root-certificates={folder}/certificates/ca.pem" in server.command
    secret = f"--superexec-auth-secret-file={folder}/keys/superexec.secret"
    assert secret in superlink.command
    assert secret in server.command
    assert len((folder / "keys" / "superexec.secret").read_bytes()) == 32
    assert [one.log for one in machine.started] == [
        folder / "logs" / "superlink.log",
        folder / "logs" / "serverapp.log",
    ]
    assert {one.env["FLWR_HOME"] for one in machine.started} == {
        str(folder / "homes" / "superlink")
    }
    assert (
        f'address = "127.0.0.1:{link.addresses.control}"'
        in (folder / "homes" / "superlink" / "config.toml").read_text()
    )
    assert (server.env["OWN"], server.env["FLWR_TELEMETRY_ENABLED"]) == ("1", "0")
    assert not (folder / "certificates" / "ca.key").exists()


def test_logs_can_lie_elsewhere(machine: Machine, tmp_path: Path):
    with Loopback(tmp_path / "here", tmp_path / "there"):
        assert {one.log.parent for one in machine.started} == {tmp_path / "there"}


def test_supernodes_are_registered_started_and_known_by_their_number(
    link: Loopback, machine: Machine, tmp_path: Path
):
    assert link.connect(
        {
            "client-0": {"partition-id": 0, "client": "St. Mary's"},
            "client-1": {"client": 'St. "Mary" 🏥'},
        }
    ) == {"client-0": 4711, "client-1": 4711}
    keys = tmp_path / "here" / "keys"
    assert machine.asked == [
        ["/bin/flwr", "supernode", "register", f"{keys}/client-{k}.pub", "loopback"]
        for k in range(2)
    ]
    first, second = machine.started[2:]
    assert first.command[0] == "/bin/flower-supernode"
    assert f"--auth-supernode-private-key={keys}/client-0" in first.command
    assert '--node-config=partition-id=0 client="St. Mary\'s"' in first.command
    assert """--node-config=client='St. "Mary" 🏥'""" in second.command
    assert (
        first.env["FLWR_HOME"]
        != second.env["FLWR_HOME"]
        == str(tmp_path / "here" / "homes" / "client-1")
    )
    assert list(link.nodes) == ["client-0", "client-1"]


def test_a_key_that_is_there_is_used(link: Loopback, machine: Machine, tmp_path: Path):
    own = NodeKey(tmp_path / "mine", tmp_path / "mine.pub")
    assert link.register("client-9", own) is own
    assert machine.asked[-1][3] == str(own.public)
    assert not (tmp_path / "here" / "keys" / "client-9").exists()
    node = link.start_node("client-9", own, {}, ca=tmp_path / "other.pem")
    assert f"--root-certificates={tmp_path / 'other.pem'}" in machine.started[-1].command
    link.nodes["client-9"] = machine.started[-1]._replace(said="nothing yet")  # pyright: ignore[reportArgumentType]
    assert node.text()
    with pytest.raises(ProcessError, match="not connecting to the SuperLink"):
        link.wait_connected("client-9")


def test_runs_are_begun_in_the_home_of_the_superlink_and_their_status_is_read_by_number(
    link: Loopback, machine: Machine, tmp_path: Path
):
    run = link.run(tmp_path / "app", {"rounds": 2, "folder": 'a "b" 🏥'})
    command = [
        "/bin/flwr",
        "run",
        str(tmp_path / "app"),
        "loopback",
        "--stream",
        "--run-config=rounds=2",
        """--run-config=folder='a "b" 🏥'""",
    ]
    assert machine.started[-1].command == command
    assert machine.started[-1].env["FLWR_HOME"] == str(tmp_path / "here" / "homes" / "superlink")
    machine.prints = (
        '{"runs": [{"run-id": 4, "status": "running"}, {"run-id": 815, "status": "finished:failed",'
        ' "status-details": "why"}]}'
    )
    assert link.status(run) == [("finished:failed", "why")]
    with pytest.raises(ProcessError, match="did not start"):
        link.status(machine.started[-1]._replace(said="no such app"))  # pyright: ignore[reportArgumentType]


def test_what_flower_complains_of_is_told(
    link: Loopback, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    machine.prints = "fine"
    assert link.flwr("list") == "fine"
    machine.status, machine.complains = 2, "no such run"
    with pytest.raises(
        ProcessError, match=r"`flwr list` failed: no such run Read .*superlink\.log"
    ):
        link.flwr("list")

    def slow(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("flwr", 60)

    monkeypatch.setattr(loopback.subprocess, "run", slow)
    with pytest.raises(ProcessError, match="did not answer within 60 seconds"):
        link.flwr("list")


def test_all_is_stopped_at_the_end_the_last_first(machine: Machine, tmp_path: Path):
    with Loopback(tmp_path / "here") as made:
        made.connect({"client-0": {}})
    assert machine.stopped == ["client-0", "serverapp", "superlink"]
    assert made.nodes == {}


def test_what_was_started_is_stopped_if_the_superlink_does_not_answer(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Loopback, "_healthy", lambda self: False)
    with (
        pytest.raises(ProcessError, match="not answering on its port"),
        Loopback(tmp_path / "here"),
    ):
        pass
    assert machine.stopped == ["superlink"]


@pytest.mark.parametrize("status, healthy", [(200, True), (204, False), (503, False)])
def test_a_superlink_is_healthy_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, healthy: bool
):
    made = Loopback(tmp_path)
    made.certificates = loopback.make_certificates(tmp_path)
    made.addresses, made.version = Addresses("127.0.0.1", 1, 1, 1), (1, 41)
    answer: Any = SimpleNamespace(status=status)
    opener = SimpleNamespace(open=lambda *_, **__: nullcontext(answer))
    monkeypatch.setattr(loopback.urllib.request, "build_opener", lambda *_: opener)
    assert made._healthy() is healthy
