"""A whole federation on this machine: a SuperLink and SuperNodes that talk TLS over the loopback, each known by its key.

Everything lies in one folder, which should be the user's alone: `certificates/`, `keys/`, `logs/` and `homes/` (what Flower itself
keeps, one home for each process: two SuperNodes that unpack the same app into one home can meet in the middle of it).
"""

import json
import os
import re
import secrets
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from evenly.flower.deploy.certificates import Certificates, make_certificates
from evenly.flower.deploy.keys import NodeKey, make_key
from evenly.flower.deploy.private_files import write_secret
from evenly.flower.deploy.processes import Process, ProcessError, free_ports, program, start, stop, unhurried, wait_until

HOST = "127.0.0.1"
STARTING = 60.0  # seconds a process may take to be ready; Flower's own take about three on an idle machine
ANSWERING = 60.0  # seconds a command such as `flwr list` may take
POLLING = "0.25"  # seconds between two looks for a message to work on; Flower's default is one
CONNECTION = "loopback"  # what Flower's configuration calls the SuperLink
RUN_ID = re.compile(r"started run (\d+)")
NODE_ID = re.compile(r"SuperNode ID: (\d+)")


class Loopback:
    """A SuperLink and its SuperNodes. Use it in a `with`: whatever happens inside, every process is stopped at its end."""

    def __init__(self, folder: Path, logs: Path | None = None, env: Mapping[str, str] = {}) -> None:
        self.folder = folder.resolve()
        self.logs = (logs or folder / "logs").resolve()
        self.nodes: dict[str, Process] = {}
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
        """Stop everything, SuperNodes first; a Ctrl-C in the middle of that would leave processes behind, so it waits."""
        with unhurried():
            stop(reversed(self._processes))
            self._processes, self.nodes = [], {}

    def _start_superlink(self) -> None:
        """The process that everybody talks to, and the one that starts ServerApps for it."""
        self.certificates: Certificates = make_certificates(self.folder / "certificates", keep_authority=False)
        (self.port,) = free_ports(1)
        self.address = f"{HOST}:{self.port}"
        secret = write_secret(self.folder / "keys" / "superexec.secret", secrets.token_bytes(32))
        tls = [f"--ssl-{what}={path}" for what, path in zip(("ca-certfile", "certfile", "keyfile"), self.certificates, strict=True)]
        self._shared = [f"--superexec-auth-secret-file={secret}"]
        home = self._home("superlink")
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{self.address}"\n'
            f"root-certificates = {json.dumps(str(self.certificates.ca))}\n"
        )
        listening = [f"--host={HOST}", f"--port={self.port}", "--isolation=process", "--enable-supernode-auth"]
        link = self._start("superlink", ["flower-superlink", *tls, *self._shared, *listening])
        wait_until(self._healthy, link, STARTING, "answering on its port")
        self.start_server()

    def start_server(self) -> Process:
        """The process that starts ServerApps, in which strategies run; after it was killed, another one."""
        trusted = [f"--root-certificates={self.certificates.ca}", f"--runtime-api-address={self.address}"]
        self.server = self._start("serverapp", ["flower-superexec", *trusted, *self._shared], home="superlink")
        return self.server

    def register(self, name: str, key: NodeKey | None = None) -> NodeKey:
        """Make the key of a client known to the SuperLink; without one, a new one."""
        key = key or make_key(self.folder / "keys" / name)
        self.flwr("supernode", "register", str(key.public), CONNECTION)
        return key

    def start_node(self, name: str, key: NodeKey, config: Mapping[str, Any], *, ca: Path | None = None) -> Process:
        """Start a SuperNode; it need not be ready yet."""
        (port,) = free_ports(1)
        given = " ".join(f"{field}={json.dumps(value)}" for field, value in config.items())
        command = ["flower-supernode", f"--root-certificates={ca or self.certificates.ca}", f"--superlink={self.address}"]
        command += [f"--auth-supernode-private-key={key.private}", f"--host={HOST}", f"--port={port}", f"--node-config={given}"]
        self.nodes[name] = self._start(name, command)
        return self.nodes[name]

    def connect(self, configs: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Register and start one SuperNode for each name; the numbers by which the SuperLink knows them."""
        for name, config in configs.items():
            self.start_node(name, self.register(name), config)
        return {name: self.connected(name) for name in configs}

    def connected(self, name: str, seconds: float = STARTING) -> int:
        """Wait until a SuperNode is connected; its number."""
        node = self.nodes[name]
        wait_until(lambda: NODE_ID.search(node.text()) is not None, node, seconds, "connecting to the SuperLink")
        found = NODE_ID.search(node.text())
        assert found is not None
        return int(found[1])

    def run(self, app: Path, config: Mapping[str, Any] = {}, name: str = "run") -> Process:
        """Begin a run of an app; the process ends when the run has ended, and its log is what the ServerApp says."""
        given = [f"--run-config={field}={json.dumps(value)}" for field, value in config.items()]
        return self._start(name, ["flwr", "run", str(app), CONNECTION, "--stream", *given], home="superlink")

    def status(self, *runs: Process) -> list[tuple[str, str]]:
        """How runs stand: Flower's word for it (running, finished:completed, finished:failed, ...) and what it says in addition."""
        listed = json.loads(self.flwr("list", "--format", "json", CONNECTION))["runs"]
        told = {str(one["run-id"]): (str(one["status"]), str(one.get("status-details", ""))) for one in listed}
        return [told[self._number(run)] for run in runs]

    def _number(self, run: Process) -> str:
        found = RUN_ID.search(run.text())
        if found is None:
            raise run.failed("The run was not begun.")
        return found[1]

    def flwr(self, *words: str) -> str:
        """What one of Flower's own commands prints; raises what it complains of."""
        command = [program("flwr"), *words]
        try:
            done = subprocess.run(
                command, env=self._environment("superlink"), capture_output=True, text=True, timeout=ANSWERING, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise ProcessError(
                f"`flwr {' '.join(words)}` did not answer within {ANSWERING:g} seconds. Read {self.logs / 'superlink.log'}."
            ) from None
        if done.returncode:
            raise ProcessError(
                f"`flwr {' '.join(words)}` failed: {(done.stderr or done.stdout).strip()} Read {self.logs / 'superlink.log'}."
            )
        return done.stdout

    def _start(self, name: str, command: Sequence[str], home: str | None = None) -> Process:
        process = start(name, [program(command[0]), *command[1:]], self.logs / f"{name}.log", self._environment(home or name))
        self._processes.append(process)
        return process

    def _healthy(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        with suppress(OSError), direct.open(f"https://{self.address}/health", timeout=5) as answer:
            return answer.status == 200
        return False

    def _home(self, name: str) -> Path:
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _environment(self, name: str) -> dict[str, str]:
        """Ours, and what keeps Flower on this machine: nothing is downloaded, installed or reported, and no proxy is asked."""
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
