"""A real SuperLink with real SuperNodes for a module of tests: TLS, keys, and every wait with a bound."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenly.flower.deploy.loopback import Loopback
from evenly.flower.deploy.processes import Process

ROOT = Path(__file__).parents[2]
APP = Path(__file__).parent / "apps" / "loopback"
ENDING = 240.0  # seconds a run may take at most on a loaded machine


@contextmanager
def deployed(folder: Path, clients: int, told: Mapping[int, Mapping[str, Any]] | None = None) -> Iterator[Loopback]:
    """A SuperLink with so many clients connected; `told` adds to what some of them are told."""
    # One line of path: the apps read this folder's modules, as the tests do.
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with Loopback(folder, env={"PYTHONPATH": path, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}) as loopback:
        configs = {f"client-{k}": {"partition-id": k, "num-partitions": clients, **(told or {}).get(k, {})} for k in range(clients)}
        loopback.connect(configs)
        yield loopback


def finished(loopback: Loopback, *runs: Process, seconds: float = ENDING) -> list[tuple[str, str]]:
    """Wait until runs have ended; how."""
    end = time.monotonic() + seconds
    for run in runs:
        while run.running:
            assert time.monotonic() < end, f"{run.name} has not ended within {seconds} s:\n{run.text()}\n{loopback.server.text()}"
            time.sleep(0.1)
    return loopback.status(*runs)
