"""The contender: the same training in Flower's simulation engine, as lean as its interface allows.

Run by `thesis.py` in an environment of its own: `python flower_adult.py PLAN.npz OUT.npz`. One node
for each client, two CPUs for Ray, FedAvg by size over all nodes, no evaluation by clients. Clients
are logistic regression in plain NumPy; rows, batches and rounds come from PLAN.npz, which every
worker reads once. Nothing leaves the machine.
"""

import functools
import os
import sys
import tempfile
import time

import numpy as np

# before flwr is imported
os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

PLAN = "THESIS_PLAN"  # names the file for Ray's workers, which inherit the environment
client_app, server_app = ClientApp(), ServerApp()
IMPATIENT = 0.002  # seconds


@functools.cache
def given() -> dict[str, np.ndarray]:
    with np.load(os.environ[PLAN]) as file:
        return dict(file)


def epoch(w: np.ndarray, b: np.ndarray, batches: list[np.ndarray]) -> None:
    """One step of gradient descent for each batch of row numbers, in place."""
    x, y, rate = given()["x"], given()["y"], given()["rate"]
    for rows in batches:
        features = x[rows]
        slope = (1 / (1 + np.exp(-(features @ w + b))) - y[rows]) * (rate / len(rows))
        w -= slope @ features
        b -= slope.sum()


def batches_of(t: int, client: int) -> list[np.ndarray]:
    """The batches of a client in a round, without padding."""
    plan = given()
    visit = t * plan["cohort"].shape[1] + int(np.flatnonzero(plan["cohort"][t] == client)[0])
    steps = plan["rows"][plan["first_step"][visit] : plan["first_step"][visit + 1]]
    return [rows[rows < len(plan["y"])] for rows in steps]


@client_app.train()
def train(message: Message, context: Context) -> Message:
    client, t = (
        int(context.node_config["partition-id"]),
        int(message.content["config"]["server-round"]) - 1,
    )
    w, b = (array.copy() for array in message.content["arrays"].to_numpy_ndarrays())
    batches = batches_of(t, client)
    epoch(w, b, batches)
    counts = MetricRecord({"num-examples": sum(map(len, batches))})
    return Message(RecordDict({"arrays": ArrayRecord([w, b]), "metrics": counts}), reply_to=message)


class Stamped(FedAvg):
    """FedAvg that notes when each round begins."""

    def __init__(self, clients: int) -> None:
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=clients,
            min_available_nodes=clients,
        )
        self.stamps: list[float] = []

    def configure_train(self, *args, **kwargs):
        self.stamps.append(time.perf_counter())
        return super().configure_train(*args, **kwargs)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Train twice: as Flower comes, and then asking for replies more often than it does by itself
    (every 0.1 s).
    """
    shipped, stamps = train_once(grid)
    grid.pull_interval = IMPATIENT
    _, impatient = train_once(grid)
    w, b = shipped
    np.savez(sys.argv[2], w=w, b=b, stamps=stamps, impatient=impatient)


def train_once(grid: Grid) -> tuple[list[np.ndarray], list[float]]:
    """The model, and when each round began and the last one ended."""
    rounds, clients = given()["cohort"].shape
    strategy = Stamped(clients)
    zero = ArrayRecord([np.zeros(given()["x"].shape[1], np.float32), np.zeros((), np.float32)])
    result = strategy.start(grid=grid, initial_arrays=zero, num_rounds=rounds)
    return result.arrays.to_numpy_ndarrays(), [*strategy.stamps, time.perf_counter()]


def main() -> None:
    os.environ[PLAN] = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        local = {
            "num_cpus": 2,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": folder,
        }
        backend = {"init_args": local, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(
            server_app,
            client_app,
            num_supernodes=given()["cohort"].shape[1],
            backend_config=backend,
        )


if __name__ == "__main__":
    # by name: workers then import this file once instead of being sent its functions with every
    # message
    import flower_adult

    flower_adult.main()
