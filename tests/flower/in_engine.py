"""A run in Flower's simulation engine, in a process of its own: Ray leaves threads and files
behind.

python -m tests.flower.in_engine METHOD OUT.npz
"""

import os
import sys

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from evenly.flower import first_arrays, strategy
from evenly.flower.clients.jax import app
from tests.flower.small import SEEDS, algorithm_of, small, task_of

CLIENTS, ROUNDS = 2, 2


def clients(text: str) -> ClientApp:
    """An app that Ray can send to its workers, which make the clients themselves."""
    made = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        return app(small(CLIENTS), task_of(text))(message, context)

    for register in (made.train(), made.evaluate(), made.query("census")):
        register(answer)
    return made


def main(text: str, out: str) -> None:
    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        made = strategy(
            algorithm_of(text), seeds=SEEDS, min_available_nodes=CLIENTS, introduce=True
        )
        found = made.start(
            grid,
            first_arrays(algorithm_of(text), task_of(text), SEEDS),
            num_rounds=ROUNDS,
            timeout=150,
        )
        np.savez(out, **{name: array.numpy() for name, array in found.arrays.items()})  # pyright: ignore[reportArgumentType]

    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": 1, "include_dashboard": False},
    }
    run_simulation(server, clients(text), num_supernodes=CLIENTS, backend_config=backend)


if __name__ == "__main__":
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    main(*sys.argv[1:])
