"""How much one client that lies about a number moves the others, under each method, with and
without caps.

    python benchmarks/lying_client.py [--quick] [--json FILE]

Twenty clients of the synthetic federation train together; for FairFed twenty of the synthetic
census, because it needs groups. All train honestly, and all but the first say what is true. The
first tells the same lie in every round. The server's half of a round is the one that a Flower
strategy uses (`evenly.flower.aggregation`), so the result is that of a deployment. "Others" are all
clients but the liar: their accuracy is measured on their own test rows, in the synthetic census on
their validation rows.

The last line is no lie about a number: the client sends its update the other way round and fifty
times as long.
"""

import argparse
import datetime
import json
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import machine
import numpy as np

from evenly.algorithms import algorithm
from evenly.data.federation import Census, Federation, Shard
from evenly.datasets import synthetic, synthetic_census
from evenly.flower import aggregation
from evenly.flower.caps import Caps
from evenly.flower.clients.jax import first_rows, shard
from evenly.flower.clients.rows import PADDING, ClientData, batches_of, client_of
from evenly.models import Softmax
from evenly.types import Algorithm, Array, Signals, Task, Tree, Work

CLIENTS, ROUNDS, SEEDS = 20, 60, 3
LIAR = 0
CAPS = Caps(loss="3x", examples="3x", coefficient="3x", norm="3x")
HUGE_LOSS, TINY_LOSS, ROWS = 1e5, 1e-8, 1_000_000
LENGTH = -50.0


class Case(NamedTuple):
    """A method and the lie that its clients can tell."""

    method: str
    lie: str
    groups: bool = False  # needs data with groups


CASES = (
    Case("fedavg", "rows"),
    Case("propfair", "rows"),
    Case("q-fedavg(q=1)", "huge loss"),
    Case("q-fedavg(q=5)", "huge loss"),
    Case("q-fedavg(q=0.1)", "tiny loss"),
    Case("term(alpha=1)", "huge loss"),
    Case("term(alpha=1)", "rows"),
    Case("afl(form=local)", "huge loss"),
    Case("afl", "huge loss"),
    Case("p-fedavg", "huge loss"),
    Case("p-fedavg(family=geometric)", "huge loss"),
    Case("fairfed", "rows", groups=True),
    Case("fedavg", "update"),
)


class Found(NamedTuple):
    """What one run left."""

    weight: float  # of the liar, mean over rounds, percent of all
    average: float  # accuracy of the others, percent
    worst: float  # of the tenth of the others that is served worst


class Room(NamedTuple):
    """All clients, their training rows padded to one length."""

    data: Federation
    task: Task
    clients: tuple[ClientData, ...]
    rows: Shard  # [clients, most, ...]


@cache
def room_of(groups: bool, seed: int) -> Room:
    data = (
        synthetic_census(CLIENTS, seed=seed, valid=0.2)
        if groups
        else synthetic(clients=CLIENTS, seed=seed)
    )
    clients = tuple(client_of(data, k) for k in range(data.clients))
    most = max(client.train.size for client in clients)
    rows = stacked([first_rows(client.train, most) for client in clients])
    return Room(data, Softmax(features=data.x.shape[1], classes=len(data.labels)), clients, rows)


def stacked(shards: list[Shard]) -> Shard:
    return jax.tree.map(lambda *parts: np.stack(parts), *shards)


@jax.jit
def train(work: Work, task: Task, received: Tree, batches: Shard) -> Tree:
    """The vectors of all clients; `batches` are [clients, steps, batch, ...], and steps without
    rows do nothing.
    """

    def step(local: Tree, batch: Shard) -> tuple[Tree, None]:
        stepped = work.step(task, received, local, batch)
        return (
            jax.tree.map(lambda new, old: jnp.where(batch.mask.any(), new, old), stepped, local),
            None,
        )

    def one(own: Shard) -> Tree:
        local, _ = jax.lax.scan(step, work.start(task, received, None), own)
        return work.finish(task, received, local)[0]

    return jax.vmap(one)(batches)


@partial(jax.jit, static_argnames=("groups", "labels"))
def look(task: Task, model: Tree, rows: Shard, groups: int, labels: int) -> tuple[Array, Array]:
    """Mean losses [clients] and tables [clients, groups, labels, outcomes] of the model on the
    training rows.
    """

    def one(own: Shard) -> tuple[Array, Array]:
        loss = (task.losses(model, own._replace(weight=own.mask)) * own.mask).sum() / own.mask.sum()
        table = (
            jnp.zeros((groups, labels, labels))
            .at[own.group, own.y, task.predict(model, own.x)]
            .add(own.mask)
        )
        return loss + task.penalty(model), table

    return jax.vmap(one)(rows)


def told_lie(lie: str, signals: Signals) -> Signals:
    """What the server hears instead."""
    at = np.arange(len(signals.client)) == LIAR
    if lie in ("huge loss", "tiny loss"):
        return signals._replace(
            loss=np.where(at, HUGE_LOSS if lie == "huge loss" else TINY_LOSS, signals.loss).astype(
                np.float32
            )
        )
    if lie == "rows":
        more = np.where(at, ROWS / signals.examples, 1.0)  # tables must add up to the rows
        table = None if signals.table is None else (signals.table.T * more).T.astype(np.float32)
        return signals._replace(examples=(signals.examples * more).astype(np.float32), table=table)
    return signals


def census_of(data: Federation, lie: str) -> Census:
    census = data.census()
    at = np.arange(data.clients) == LIAR
    return (
        census._replace(examples=np.where(at, ROWS, census.examples)) if lie == "rows" else census
    )


def run(case: Case, seed: int, *, lies: bool, caps: Caps | None, length: int) -> Found:
    """One training with all clients in every round."""
    room = room_of(case.groups, seed)
    made = algorithm(f"{case.method}+full", learning_rate=0.1, batch_size=20)
    lie = case.lie if lies else ""
    census = census_of(room.data, lie)
    census = census if caps is None else caps.census(census)[0]
    leaves, form = jax.tree.flatten(room.task.init(jax.random.key(seed)))
    state = aggregation.first_state(made, [np.asarray(leaf) for leaf in leaves], census)
    weights = []
    for number in range(1, length + 1):
        received = jax.tree.unflatten(form, state.model)
        vectors = [
            np.asarray(leaf)
            for leaf in jax.tree.leaves(
                train(made.work, room.task, received, batches(made, room, seed, number))
            )
        ]
        signals = told_lie(lie, signals_of(made, room, received))
        done = aggregation.round_from_replies(
            made, state, signals, [_sent(state, vectors, k, lie) for k in range(CLIENTS)], caps
        )
        state = done.state
        weights.append(float(done.coefficients[LIAR] / done.coefficients.sum()))
    served = jax.tree.unflatten(form, aggregation.served_model(made, state))
    each = [
        _accuracy(room.task, served, client) for k, client in enumerate(room.clients) if k != LIAR
    ]
    tenth = max(1, len(each) // 10)
    return Found(
        100 * float(np.mean(weights)),
        100 * float(np.mean(each)),
        100 * float(np.mean(sorted(each)[:tenth])),
    )


def batches(made: Algorithm, room: Room, seed: int, number: int) -> Shard:
    """Everybody's batches of a round, padded to the most steps of anybody."""
    own = [
        np.stack(list(batches_of(made.work, seed, number, k, c.train.size)))
        for k, c in enumerate(room.clients)
    ]
    most = max(len(numbers) for numbers in own)
    steps = [
        np.pad(numbers, ((0, most - len(numbers)), (0, 0)), constant_values=PADDING)
        for numbers in own
    ]
    return stacked(
        [shard(client.train, numbers) for client, numbers in zip(room.clients, steps, strict=True)]
    )


def signals_of(made: Algorithm, room: Room, received: Tree) -> Signals:
    loss, table = look(room.task, received, room.rows, len(room.data.groups), len(room.data.labels))
    clients = room.data.clients
    return Signals(
        client=np.arange(clients, dtype=np.int32),
        returned=np.ones(clients, bool),
        examples=room.data.train.counts.astype(np.float32),
        loss=np.asarray(loss) if "loss" in made.rule.needs else None,
        table=np.asarray(table) if "table" in made.rule.needs else None,
    )


def _sent(
    state: aggregation.ServerState, vectors: list[np.ndarray], k: int, lie: str
) -> list[np.ndarray]:
    factor = LENGTH if lie == "update" and k == LIAR else 1.0
    return [
        old + np.float32(factor) * new[k] for old, new in zip(state.model, vectors, strict=True)
    ]


def _accuracy(task: Task, model: Tree, client: ClientData) -> float:
    rows = client.test if client.test.size else client.valid
    return float(np.mean(np.asarray(task.predict(model, rows.x)) == rows.y))  # pyright: ignore[reportArgumentType]


def measure(quick: bool) -> list[dict[str, Any]]:
    """Every case honestly, lying, and lying under caps; means over seeds."""
    seeds, length = (1, 3) if quick else (SEEDS, ROUNDS)
    rows = []
    for case in CASES:
        found = {}
        for name, lies, caps in (
            ("honest", False, None),
            ("honest, capped", False, CAPS),
            ("lying", True, None),
            ("capped", True, CAPS),
        ):
            each = [run(case, seed, lies=lies, caps=caps, length=length) for seed in range(seeds)]
            found[name] = {
                field: round(float(np.mean([getattr(one, field) for one in each])), 2)
                for field in Found._fields
            }
        print(
            f"{case.method:28} {case.lie:10} "
            + "  ".join(f"{k}: {v['weight']:.1f} / {v['average']:.1f}" for k, v in found.items())
        )
        rows.append({"method": case.method, "lie": case.lie, **found})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--quick", action="store_true", help="one seed and three rounds: only whether it works"
    )
    parser.add_argument("--json", type=Path, help="keep the results here")
    given = parser.parse_args()
    rows = measure(given.quick)
    if given.json:
        kept = {
            "command": f"python benchmarks/lying_client.py{' --quick' if given.quick else ''}",
            "date": datetime.date.today().isoformat(),
            "machine": machine.description(),
            "versions": machine.versions("evenly", "jax", "numpy"),
            "clients": CLIENTS,
            "rounds": 3 if given.quick else ROUNDS,
            "seeds": 1 if given.quick else SEEDS,
            "caps": {name: value for name, value in vars(CAPS).items() if value is not None},
            "rows": rows,
        }
        given.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
