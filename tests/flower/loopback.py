"""A real SuperLink with real SuperNodes for a module of tests: TLS, keys, and every wait with a
bound.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenly.flower.deploy.loopback import STARTING, Loopback, Process, start, stop, wait_until
from tests.flower.warm import write_shim

ROOT = Path(__file__).parents[2]
APP = Path(__file__).parent / "apps" / "loopback"
ENDING = 480.0  # seconds a run may take at most; on an idle machine it takes about twenty


@contextmanager
def deployed(
    folder: Path, clients: int, told: Mapping[int, Mapping[str, Any]] | None = None
) -> Iterator[Loopback]:
    """A SuperLink with so many clients connected; `told` adds to what some of them are told."""
    # The apps read the modules of these tests.
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"PYTHONPATH": path, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    with warm(folder, env) as bin, Loopback(folder, env={**env, "PATH": bin}) as loopback:
        configs = {
            f"client-{k}": {"partition-id": k, "num-partitions": clients, **(told or {}).get(k, {})}
            for k in range(clients)
        }
        loopback.connect(configs)
        yield loopback


@contextmanager
def warm(folder: Path, env: Mapping[str, str]) -> Iterator[str]:
    """A process whose copies are the ClientApps (see tests/flower/warm.py); the PATH that leads to
    it.
    """
    # a socket's address must not be long
    with tempfile.TemporaryDirectory(prefix="warm-") as short:
        address = Path(short) / "socket"
        write_shim(folder / "bin", address)
        command = [sys.executable, "-m", "tests.flower.warm", str(address)]
        process = start("warm", command, folder / "logs" / "warm.log", {**os.environ, **env})
        try:
            wait_until(address.exists, process, STARTING, "being ready")
            yield os.pathsep.join(
                [str(folder / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
            )
        finally:
            stop([process])


def finished(loopback: Loopback, *runs: Process, seconds: float = ENDING) -> list[tuple[str, str]]:
    """Wait until runs have ended; how."""
    end = time.monotonic() + seconds
    for run in runs:
        while run.running:
            assert time.monotonic() < end, (
                f"{run.name} has not ended within {seconds}"
                f" s:\n{run.text()}\n{loopback.server.text()}"
            )
            time.sleep(0.1)
    return loopback.status(*runs)
