"""Flower's simulation engine on Ray with two CPUs: its FedAvg and its QFedAvg, as lean as its
interface allows.

Clients are plain NumPy and read the plan, once for every worker; none evaluates. The server draws
nodes uniformly and then tells each which visit of the plan it makes. Workers start in the first
round, which is given apart. Nothing leaves the machine.
"""

import functools
import os
import tempfile
import time

import numpy as np

# before flwr is imported
os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, QFedAvg
from flwr.simulation import run_simulation
from plan import TINY, Plan
from protocol import Ran, serve

PLAN = "BENCHMARK_PLAN"  # names the file for Ray's workers, which inherit the environment
client_app = ClientApp()


@functools.cache
def plan() -> Plan:
    return Plan(os.environ[PLAN])


def slope(w: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """The gradient of the logits [n, outputs], and the mean loss."""
    z = x @ w.T + b
    if plan().kind == "logistic":
        z = z[:, 0]
        return (1 / (1 + np.exp(-z)) - y)[:, None], 0.0
    z = z - z.max(1, keepdims=True)
    p = np.exp(z)
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(p[rows, y]).mean()
    p[rows, y] -= 1
    return p, float(loss)


@client_app.train()
def train(message: Message, _: Context) -> Message:
    given = plan()
    visit = given.visit(int(message.content["visit"]["number"]))
    w, b = (array.copy() for array in message.content["arrays"].to_numpy_ndarrays())
    own = given.own(visit.client)
    metrics: dict[str, int | float] = {"num-examples": len(own)}
    if given.fair:
        metrics["train_loss"] = slope(w, b, given.x[own], given.y[own])[1] + TINY
    edges = np.cumsum(visit.sizes)
    for first, last in zip(edges - visit.sizes, edges, strict=True):
        rows = visit.rows[first:last]
        x = given.x[rows]
        z = slope(w, b, x, given.y[rows])[0] * np.float32(given.rate / len(rows))
        w -= z.T @ x
        b -= z.sum(0)
    return Message(
        RecordDict({"arrays": ArrayRecord([w, b]), "metrics": MetricRecord(metrics)}),
        reply_to=message,
    )


def planned(base: type[FedAvg], **settings: float) -> FedAvg:
    """The strategy, noting when each round begins and telling every node which visit it makes."""
    width = plan().cohort.shape[1]

    class Planned(base):
        stamps: list[float]

        def configure_train(self, server_round, *args, **kwargs):
            self.stamps.append(time.perf_counter())
            messages = list(super().configure_train(server_round, *args, **kwargs))
            for k, message in enumerate(messages):
                told = ConfigRecord({"number": (server_round - 1) * width + k})
                message.content = RecordDict({**message.content, "visit": told})
            return messages

    share = width / plan().clients
    strategy = Planned(
        fraction_train=share,
        fraction_evaluate=0.0,
        min_train_nodes=width,
        min_available_nodes=plan().clients,
        **settings,
    )
    strategy.stamps = []
    return strategy


class Flower:
    def __init__(self, given: Plan) -> None:
        os.environ[PLAN] = given.path

    def run(self, rounds: int) -> Ran:
        begun = time.perf_counter()
        strategy = (
            planned(QFedAvg, client_learning_rate=plan().rate, q=plan().q)
            if plan().fair
            else planned(FedAvg)
        )
        server_app, found = ServerApp(), {}

        @server_app.main()
        def serve_rounds(grid: Grid, _: Context) -> None:
            result = strategy.start(
                grid=grid, initial_arrays=ArrayRecord(plan().start), num_rounds=rounds
            )
            found.update(model=result.arrays.to_numpy_ndarrays(), end=time.perf_counter())

        with tempfile.TemporaryDirectory(prefix="ray") as folder:
            local = {
                "num_cpus": 2,
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": folder,
            }
            backend = {"init_args": local, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
            run_simulation(
                server_app, client_app, num_supernodes=plan().clients, backend_config=backend
            )
        second = strategy.stamps[1]  # its start is the end of the first round
        return Ran(
            found["model"], found["end"] - second, rounds - 1, {"first_seconds": second - begun}
        )


if __name__ == "__main__":
    # by name: workers then import this file once instead of being sent its functions with every
    # message
    import with_flower

    serve(with_flower.Flower, "flwr", "ray", "numpy")
