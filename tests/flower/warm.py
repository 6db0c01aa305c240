"""ClientApps that start at once.

Flower starts a process for every message, and each of them imports Flower and JAX: two seconds of a
processor to train a model of ten numbers. Here a process that has imported everything is copied
instead. It runs Flower's own `flwr-clientapp`, with the same arguments and environment; SuperLink,
SuperNodes and SuperExec are as ever and start `flwr-clientapp` by its name, which a folder in front
of their PATH gives to `SHIM`.

    python -m tests.flower.warm SOCKET
"""

import json
import os
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

WARM = (
    "flwr.supernode.cli.flwr_clientapp",
    "evenly.flower.clients.jax",
    "tests.flower.faults",
    "tests.flower.small",
)
SHIM = """#!{python} -ISs
import json, os, socket, sys

with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as warm:
    warm.connect({address!r})
    told = json.dumps({{"argv": sys.argv, "env": dict(os.environ)}}).encode()
    socket.send_fds(warm, [len(told).to_bytes(8, "big")], [1, 2])
    warm.sendall(told)
    warm.recv(1)
"""


def write_shim(folder: Path, address: Path) -> None:
    """Put a `flwr-clientapp` into a folder that asks for a copy of the process at this address."""
    folder.mkdir(parents=True, exist_ok=True)
    shim = folder / "flwr-clientapp"
    shim.write_text(SHIM.format(python=sys.executable, address=str(address)))
    shim.chmod(0o755)


def serve(address: str) -> None:
    """Copy this process for everybody who asks."""
    flower, *_ = [import_module(name) for name in WARM]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies that have ended are forgotten
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(address)
        door.listen(64)
        while True:
            asking, _ = door.accept()
            head, files, _, _ = socket.recv_fds(asking, 8, 2)
            told = b""
            while len(told) < int.from_bytes(head, "big"):
                told += asking.recv(65536)
            if os.fork() == 0:
                door.close()
                become(json.loads(told), files, asking)
                flower.flwr_clientapp()
                os._exit(0)
            asking.sendall(b".")
            asking.close()
            for file in files:
                os.close(file)


def become(told: dict[str, Any], files: list[int], asking: socket.socket) -> None:
    """What asked for this copy: its arguments, its environment and where it writes to."""
    asking.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for own, given in zip((1, 2), files, strict=True):
        os.dup2(given, own)
        os.close(given)
    sys.argv = told["argv"]
    os.environ.clear()
    os.environ.update(told["env"])


if __name__ == "__main__":
    serve(sys.argv[1])
