"""One federation with the version of Flower of this environment: TLS, keys, two clients, two
rounds.

    python -m tests.flower.one_federation FOLDER

It prints one line of JSON: the version, the time, and how far the model is from that of a
simulation. `python -m tools.versions` runs it in an environment for each version.
"""

import argparse
import json
import os
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.serverapp import Grid

from evenly.flower import versions, wire
from evenly.flower.deploy.loopback import Loopback, program
from evenly.simulate import simulate
from tests.flower.loopback import APP, ROOT, finished
from tests.flower.small import SEEDS, algorithm_of, small, task_of

METHOD = "fairfed(metric=eod)+reweigh"  # clients send a census, a loss and tables
CLIENTS, ROUNDS = 2, 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.flower.one_federation")
    parser.add_argument("folder", type=Path, help="an empty folder")
    folder = parser.parse_args().folder
    began = time.monotonic()
    model = deployed(folder)
    seconds = time.monotonic() - began
    expected = simulated()
    assert model.keys() == expected.keys()
    assert all(np.abs(own).max() > 0 for own in model.values()), "the model was not trained"
    away = max(float(np.abs(model[name] - expected[name]).max()) for name in model)
    told = {"version": metadata.version("flwr"), "seconds": round(seconds, 1), "away": away}
    flat = np.concatenate([model[name].ravel() for name in sorted(model)])
    print(json.dumps({**told, **facts(), "model": flat.tolist()}))


def deployed(folder: Path) -> dict[str, np.ndarray]:
    """The model of the federation, which leaves its files in a folder."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"PYTHONPATH": path, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    with Loopback(folder, env=env) as loopback:
        names = {f"client-{k}": k for k in range(CLIENTS)}
        loopback.connect(
            {name: {"partition-id": k, "num-partitions": CLIENTS} for name, k in names.items()}
        )
        config = {"method": METHOD, "rounds": ROUNDS, "clients": CLIENTS}
        run = loopback.run(APP, {**config, "save": str(folder / "model.npz")})
        ((status, details),) = finished(loopback, run)
        if status != "finished:completed":
            raise SystemExit(f"{status}: {details}\n{run.text()}")
    with np.load(folder / "model.npz") as saved:
        return {name: saved[name] for name in saved}


def simulated() -> dict[str, np.ndarray]:
    """The model of the simulator, with the same data and seeds."""
    (trace,) = simulate(
        task_of(METHOD), small(CLIENTS), [algorithm_of(METHOD)], ROUNDS, seeds=SEEDS
    )
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(trace.model)]
    return dict(zip(wire.names_of(trace.model), leaves, strict=True))


def facts() -> dict[str, Any]:
    """What differs by version, as this package uses it."""
    own = versions.installed()
    return {
        "ports": versions.ports_needed(own),
        "secret": own >= versions.SECRET,
        "tls": own >= versions.RUNTIME_TLS,
        "keys": hasattr(Grid, "get_nodes"),
        "signed apps": "--trusted-entities" in help_of("flower-supernode"),
        "packages": {name: metadata.version(name) for name in ("grpcio", "protobuf", "typer")},
    }


def help_of(name: str) -> str:
    """What one of Flower's programs says of its options."""
    return subprocess.run([program(name), "--help"], capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
