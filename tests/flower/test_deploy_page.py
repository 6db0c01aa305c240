"""The page about a real deployment, done on the loopback: its units, its configuration and its
commands, with only places changed.

Between SuperNodes and SuperLink stands what the page puts there: a door that lets only /v1/fleet/
through.
"""

import json
import os
import re
import shlex
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from evenly.flower.clients.egress import read_egress
from evenly.flower.deploy.loopback import Process, free_ports, kill, start, stop, wait_until
from tests.flower.signing import Hub, bundle, serving, signed, trust
from tests.pages import ROOT, blocks, commands

PAGE = ROOT / "docs" / "flower-deploy.md"
HOSPITALS = ("east", "north", "west")
BIN = Path(sys.executable).parent
WAITING = 120.0

pytestmark = pytest.mark.slow


class Page:
    """What the page says, with its places moved into a folder and its names to the loopback."""

    def __init__(self, folder: Path, port: int, door: int) -> None:
        self.folder, self.hub = folder, ""
        self.moved = {
            "/etc/evenly": str(folder / "etc"),
            "/var/lib/evenly": str(folder / "var"),
            "/srv/evenly": str(folder / "srv"),
            "/opt/evenly/bin": str(BIN),
            "fl.example.org:9092": f"127.0.0.1:{door}",
            "127.0.0.1:8000": f"127.0.0.1:{port}",
            "--port 8000": f"--port {port}",
            "@example/ward": "@local/ward",
        }
        self.files = {
            block.title: self.move(block.text) for block in blocks(PAGE) if block.kind == "file"
        }
        shells = [block for block in blocks(PAGE) if block.kind == "shell"]
        self.said = [
            shlex.split(self.move(shlex.join(words)))
            for block in shells
            for words in commands(block)
        ]

    def move(self, text: str) -> str:
        for place, here in self.moved.items():
            text = text.replace(place, here)
        return text

    def command(self, *beginning: str) -> list[str]:
        """The one command of the page that begins like that."""
        (found,) = [words for words in self.said if words[: len(beginning)] == list(beginning)]
        return found

    def unit(self, name: str, **changed: str) -> tuple[list[str], dict[str, str]]:
        """What a unit executes, and its environment."""
        text = self.files[name]
        for old, new in changed.items():
            text = text.replace(old, new)
        (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        given = dict(
            pair.split("=", 1)
            for told in re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
            for pair in told.split()
        )
        return shlex.split(line), {**os.environ, **given, "NO_PROXY": "127.0.0.1"}


class Door(BaseHTTPRequestHandler):
    """Lets /v1/fleet/ through to the SuperLink and nothing else."""

    inside = ""
    trusted: Any = None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.path.startswith("/v1/fleet/"):
            return self._answer(403, b"", [])
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "content-length", "connection")
        }
        asked = urllib.request.Request(
            f"https://{self.inside}{self.path}", body, headers, method="POST"
        )
        try:
            with urllib.request.build_opener(
                urllib.request.HTTPSHandler(context=self.trusted)
            ).open(asked, timeout=60) as got:
                return self._answer(got.status, got.read(), got.getheaders())
        except urllib.error.HTTPError as error:
            return self._answer(error.code, error.read(), list(error.headers.items()))

    def _answer(self, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in (
                "content-length",
                "transfer-encoding",
                "connection",
                "server",
                "date",
            ):
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def running() -> Iterator[list[Process]]:
    begun: list[Process] = []
    yield begun
    stop(reversed(begun))


@pytest.fixture
def page(tmp_path: Path) -> Page:
    """A user's table, cut into one for each hospital, without the column that names it."""
    made = Page(tmp_path, *free_ports(2))
    draw, n = np.random.Generator(np.random.Philox(3)), 300
    age = draw.normal(60, 12, n).round()
    told = {"hospital": draw.choice(HOSPITALS, n), "sex": draw.choice(["f", "m"], n), "age": age}
    frame = pd.DataFrame(
        {**told, "returned": np.where(age + draw.normal(0, 8, n) > 60, "yes", "no")}
    )
    frame.to_csv(tmp_path / "table.csv", index=False)
    for name in HOSPITALS:
        (tmp_path / f"srv-{name}").mkdir()
        frame[frame.hospital == name].drop(columns="hospital").to_csv(
            tmp_path / f"srv-{name}" / "table.csv", index=False
        )
    (tmp_path / "var" / "flwr").mkdir(parents=True)
    return made


def done(page: Page, words: list[str], env: dict[str, str] | None = None, code: int = 0) -> str:
    command = [str(BIN / words[0]), *words[1:]]
    ran = subprocess.run(
        command,
        cwd=page.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == code, f"{shlex.join(words)}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout + ran.stderr


@pytest.fixture(autouse=True)
def _hub(page: Page) -> Iterator[None]:
    with serving() as page.hub:
        yield


def superlink(page: Page, running: list[Process], name: str) -> dict[str, str]:
    """Start what the unit of the server starts, with a hub of our own; its environment."""
    command, env = page.unit("flower-superlink.service")
    env["FLWR_SUPERGRID_API_URL"] = page.hub
    link = start(name, command, page.folder / f"{name}.log", env)
    running.append(link)
    wait_until(lambda: "Uvicorn running" in link.text(), link, WAITING, "answering")
    return env


def test_the_units_are_systemds(page: Page):
    analyze = "/usr/bin/systemd-analyze"
    if not Path(analyze).exists():
        pytest.skip("systemd-analyze, which reads units as systemd does, is not on this machine")
    for name in ("flower-superlink.service", "flower-supernode.service"):
        path = page.folder / name
        path.write_text(page.files[name].replace("User=flower\n", ""))
        ran = subprocess.run(
            [analyze, "verify", str(path)], capture_output=True, text=True, timeout=60
        )
        assert name not in ran.stderr, ran.stderr


def test_everything_on_the_page_works(page: Page, running: list[Process]):
    # Certificates and keys.
    done(page, page.command("evenly", "flower", "certificates"))
    (page.folder / "etc").mkdir()
    os.rename(page.folder / "tls", page.folder / "etc" / "tls")
    (page.folder / "etc" / "ca.pem").write_bytes(
        (page.folder / "etc" / "tls" / "ca.pem").read_bytes()
    )
    trust(SIGNER, page.folder / "etc" / "trusted.yaml")
    key = page.command("evenly", "flower", "key")
    for name in HOSPITALS:
        done(page, [*key[:-1], key[-1].replace("north", name)])
        os.rename(page.folder / "keys" / name, page.folder / "etc" / name)
    done(page, page.command("evenly", "flower", "new"))

    # The server, and the door in front of it.
    env = superlink(page, running, "superlink")
    (page.folder / "var" / "flwr" / "config.toml").write_text(page.files["config.toml"])
    tls = page.folder / "etc" / "tls"
    Door.inside, Door.trusted = (
        page.moved["127.0.0.1:8000"],
        ssl.create_default_context(cafile=str(tls / "ca.pem")),
    )
    door = ThreadingHTTPServer(
        ("127.0.0.1", int(page.moved["fl.example.org:9092"].split(":")[1])), Door
    )
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(tls / "server.pem", tls / "server.key")
    door.socket = secured.wrap_socket(door.socket, server_side=True)
    threading.Thread(target=door.serve_forever, daemon=True).start()
    try:
        through_the_door(page, running, env)
    finally:
        door.shutdown()
        door.server_close()


SIGNER = ed25519.Ed25519PrivateKey.generate()


def through_the_door(page: Page, running: list[Process], env: dict[str, str]) -> None:
    register = page.command("flwr", "supernode", "register")
    for name in HOSPITALS:
        done(page, [word.replace("north", name) for word in register], env)
    assert done(page, page.command("flwr", "supernode", "list"), env).count("registered") == len(
        HOSPITALS
    )

    # Nobody registers or runs anything through the door.
    outside = page.folder / "outside"
    outside.mkdir()
    inside, outward = page.moved["127.0.0.1:8000"], page.moved["fl.example.org:9092"]
    (outside / "config.toml").write_text(page.files["config.toml"].replace(inside, outward))
    done(page, register, {**env, "FLWR_HOME": str(outside)}, code=1)

    # The hospitals.
    nodes = {}
    for name in HOSPITALS:
        moved = {
            "north": name,
            str(page.folder / "srv"): str(page.folder / f"srv-{name}"),
            "var/flwr": f"var/{name}",
            "policy.toml": f"policy-{name}.toml",
        }
        (page.folder / "etc" / f"policy-{name}.toml").write_text(
            f'methods = ["fairfed(metric=eod)+reweigh"]\nlog = "{page.folder}/var/{name}.jsonl"\n'
            "least_cell = 1\nleast_change = 1\n"  # of a hundred rows, most counts are small
        )
        command, own = page.unit("flower-supernode.service", **moved)
        nodes[name] = start(
            name, [*command, "--port", str(free_ports(1)[0])], page.folder / f"{name}.log", own
        )
        running.append(nodes[name])
    for node in nodes.values():
        wait_until(lambda node=node: "SuperNode ID" in node.text(), node, WAITING, "connecting")

    # A run of one round; then the server's machine goes down, comes back with its keys, and a run
    # goes on to the second.
    run = page.command("flwr", "run")
    Hub.fab = bundle(page.folder / "ward")
    Hub.verifications = [signed(Hub.fab, SIGNER)]
    done(page, [*run, "--run-config", "rounds=1"], env)
    report = page.folder / "var" / "results" / "report.html"
    assert report.exists(), done(page, ["flwr", "list", "--format", "json"], env)
    kill(running[0])
    env = superlink(page, running, "superlink-again")
    time.sleep(1)
    done(page, [*run, "--run-config", "rounds=2"], env)
    runs = json.loads(done(page, ["flwr", "list", "--format", "json"], env))["runs"]
    assert [one["status"] for one in runs].count("finished:completed") == 2, runs
    assert len(list((page.folder / "var" / "results" / "history").glob("*"))) >= 2
    assert all(name in report.read_text() for name in HOSPITALS)
    kinds = {one.kind for one in read_egress(page.folder / "var" / "north.jsonl")}
    assert kinds == {"census", "train", "evaluate"}
