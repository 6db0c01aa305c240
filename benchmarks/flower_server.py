"""The server's part of a Flower round: evenly's strategy beside Flower's own FedAvg, on the very
same replies in one process.

    python benchmarks/flower_server.py [--json FILE]

Timed are `configure_train` and `aggregate_train`, from the messages as they lie in memory to the
next model, serialised. FedAvg has to be as good as Flower's FedAvg, q-FedAvg as Flower's QFedAvg;
the two take turns. Memory is what a round needs beyond the replies, counted in models: who holds
all replies twice needs as many models as there are replies.
"""

import argparse
import gc
import json
import logging
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import machine
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, QFedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity

from evenly.flower import strategy

TARGET = 1.10
RATE = 0.1
SIDE = 1000


class Nodes:
    """A grid that only knows who is there."""

    def __init__(self, count: int) -> None:
        self._count = count

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self._count + 1)


def arrays(parameters: int, seed: int) -> ArrayRecord:
    """Square layers of a thousand units, and their biases."""
    draw, layers = np.random.default_rng(seed), max(1, parameters // (SIDE * SIDE))
    shapes = {
        f"{kind}{i}": (SIDE, SIDE) if kind == "w" else (SIDE,)
        for i in range(layers)
        for kind in "wb"
    }
    return ArrayRecord(
        {name: Array(draw.normal(size=shape).astype(np.float32)) for name, shape in shapes.items()}
    )


class Server:
    """A strategy that does round after round, always with the same replies."""

    def __init__(
        self, made: Strategy, first: ArrayRecord, replies: dict[int, RecordDict], nodes: int
    ) -> None:
        self.model, self._made, self._replies, self._grid, self._round = (
            first,
            made,
            replies,
            Nodes(nodes),
            0,
        )

    def one_round(self) -> tuple[float, float]:
        """Seconds by the clock and of the processor. Flower's QFedAvg empties what it is given: all
        get copies of the replies.
        """
        answered = {
            node: RecordDict({**own, "arrays": ArrayRecord(dict(own.array_records["arrays"]))})
            for node, own in self._replies.items()
        }
        self._round += 1
        gc.collect()
        began, cpu = time.perf_counter(), time.process_time()
        asked = list(
            self._made.configure_train(
                self._round, self.model, ConfigRecord(), cast(Grid, self._grid)
            )
        )
        took, used = time.perf_counter() - began, time.process_time() - cpu
        answers = [Message(answered.pop(m.metadata.dst_node_id), reply_to=m) for m in asked]
        began, cpu = time.perf_counter(), time.process_time()
        model, _ = self._made.aggregate_train(self._round, answers)
        took, used = took + time.perf_counter() - began, used + time.process_time() - cpu
        assert model is not None
        self.model = model
        return took, used

    def models_needed(self) -> float:
        """The most memory that a round takes beyond the replies and the model, in models."""
        gc.collect()
        tracemalloc.start()
        self.one_round()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / self.model.count_bytes()


def contenders(nodes: int) -> dict[str, dict[str, Strategy]]:
    """Ours and Flower's, by method."""
    least: dict[str, Any] = {"min_train_nodes": nodes, "min_available_nodes": nodes}
    return {
        "fedavg": {"evenly": strategy("fedavg", **least), "flower": FedAvg(**least)},
        "q-fedavg": {
            "evenly": strategy(f"q-fedavg(q=1, learning_rate={RATE})", **least),
            "flower": QFedAvg(client_learning_rate=RATE, q=1.0, train_loss_key="loss", **least),
        },
    }


def measured(parameters: int, nodes: int, repeats: int, patience: float) -> dict[str, Any]:
    # messages are stamped with them
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    logging.getLogger("flwr").setLevel(logging.ERROR)
    draw, first = np.random.default_rng(0), arrays(parameters, 0)
    metrics = [
        MetricRecord(
            {"num-examples": int(draw.integers(50, 5000)), "loss": float(draw.uniform(0.2, 2))}
        )
        for _ in range(nodes)
    ]
    replies = {
        k + 1: RecordDict({"arrays": arrays(parameters, k + 1), "metrics": metrics[k]})
        for k in range(nodes)
    }
    found: dict[str, Any] = {}
    for name, made in contenders(nodes).items():
        servers = {
            who: Server(own, ArrayRecord(dict(first)), replies, nodes) for who, own in made.items()
        }
        taken: dict[str, list[tuple[float, float]]] = {who: [] for who in servers}
        machine.wait_for_quiet(patience)
        before, apart = machine.ticks(), 0.0
        for i in range(repeats + 1):
            # they take turns, and turns at being first
            for who, server in list(servers.items())[:: 1 if i % 2 else -1]:
                timed = server.one_round()
                # the first round waits for clients, compiles and warms up
                taken[who] += [timed] if i else []
            if not i:
                ours, theirs = (server.model for server in servers.values())
                apart = max(float(np.abs(ours[n].numpy() - theirs[n].numpy()).max()) for n in ours)
        wall, cpu = (
            {who: float(np.median([t[i] for t in own])) for who, own in taken.items()}
            for i in (0, 1)
        )
        found[name] = {
            "seconds": taken,
            "ratio": wall["evenly"] / wall["flower"],
            "cpu_ratio": cpu["evenly"] / cpu["flower"],
            "models_in_memory": {who: server.models_needed() for who, server in servers.items()},
            "largest_difference": apart,
            "busy": machine.others(before, machine.ticks()),
        }
    return {
        "parameters": sum(int(np.prod(a.shape)) for a in first.values()),
        "replies": nodes,
        "methods": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--replies", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--patience",
        type=float,
        default=20.0,
        help="seconds to wait for a quiet machine before each method",
    )
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    found = measured(given.parameters, given.replies, given.repeats, given.patience)
    for name, own in found["methods"].items():
        ours, theirs = (
            float(np.median([t[0] for t in own["seconds"][who]])) for who in ("evenly", "flower")
        )
        needed, apart, busy = own["models_in_memory"], own["largest_difference"], 100 * own["busy"]
        print(f"{name}: evenly {ours:.3f} s, Flower {theirs:.3f} s a round")
        print(
            f"  ratio {own['ratio']:.2f} by the clock, {own['cpu_ratio']:.2f} in processor time"
            f" (target: at most {TARGET})"
        )
        print(
            f"  memory beyond the replies: evenly {needed['evenly']:.1f} models, Flower"
            f" {needed['flower']:.1f}"
        )
        print(
            f"  the new models differ by at most {apart:.1e}; the machine was {busy:.0f} % busy"
            " with this and everything else"
        )
    if given.json:
        command = (
            f"python benchmarks/flower_server.py --parameters {given.parameters} --replies"
            f" {given.replies} --repeats {given.repeats}"
        )
        about = {
            "command": command,
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine.description(),
        }
        about |= {"versions": machine.versions("evenly", "numpy", "jax", "flwr")}
        given.json.write_text(json.dumps(about | found, indent=1) + "\n")


if __name__ == "__main__":
    main()
