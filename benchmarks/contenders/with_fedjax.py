"""fedjax: its own federated averaging. It has no q-FedAvg, which is therefore written on its
`for_each_client`.

Its clients shuffle their own batches, as evenly's do; `drawn` gives them those of the plan instead,
to compare parameters.
"""

from collections.abc import Iterator
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from plan import TINY, Plan, Visit
from protocol import Ran, serve

Batch = dict[str, np.ndarray]
LOSS_BATCH = 512  # rows of a client's loss at a time


def convolved(x, w, b):
    return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME") + b[None, :, None, None])


def lenet(p, x):
    x = convolved(convolved(x[:, None], p[0], p[1]), p[2], p[3])
    x = jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
    ).reshape(len(x), -1)
    return jax.nn.relu(x @ p[4].T + p[5]) @ p[6].T + p[7]


class PlannedClient:
    """What fedjax asks of a client's data: its size and its batches. These are the plan's."""

    def __init__(self, plan: Plan, visit: Visit) -> None:
        self.plan, self.visit = plan, visit

    def __len__(self) -> int:
        return int(self.plan.sizes[self.visit.client])

    def shuffle_repeat_batch(self, _: object) -> Iterator[Batch]:
        x, y = self.plan.x[self.visit.rows], self.plan.y[self.visit.rows]
        edges = np.cumsum(self.visit.sizes)
        return (
            {"x": x[a:b], "y": y[a:b]} for a, b in zip(edges - self.visit.sizes, edges, strict=True)
        )


class FedJax:
    def __init__(self, plan: Plan, drawn: bool = False) -> None:
        self.plan, self.drawn = plan, drawn
        self.how = fedjax.ShuffleRepeatBatchHParams(
            batch_size=plan.batch, num_epochs=plan.epochs, drop_remainder=False
        )
        self.mean = fed_avg.federated_averaging(
            self.slopes, fedjax.optimizers.sgd(plan.rate), fedjax.optimizers.sgd(1.0), self.how
        )
        tree = jax.tree_util.tree_map
        self.train = fedjax.for_each_client(
            lambda received, _: received,
            lambda p, batch: tree(lambda a, g: a - plan.rate * g, p, self.slopes(p, batch, None)),
            lambda received, p: tree(lambda a, b: (a - b) / plan.rate, received, p),
        )
        self.measure = fedjax.for_each_client(
            lambda received, _: (received, 0.0, 0.0),
            self.add_losses,
            lambda _, s: s[1] / s[2] + TINY,
        )
        self.combine = jax.jit(self.combined)
        data = fedjax.InMemoryFederatedData(
            {
                b"%d" % k: {"x": plan.x[plan.own(k)], "y": plan.y[plan.own(k)]}
                for k in range(plan.clients)
            }
        )
        self.own = [data.get_client(b"%d" % k) for k in range(plan.clients)]

    def client(self, visit: Visit) -> Any:
        return PlannedClient(self.plan, visit) if self.drawn else self.own[visit.client]

    def logits(self, p, x):
        return lenet(p, x) if self.plan.kind == "lenet" else x @ p[0].T + p[1]

    def losses(self, p, batch):
        z = self.logits(p, batch["x"])
        if self.plan.kind == "logistic":
            return jnp.logaddexp(0, z[:, 0]) - batch["y"] * z[:, 0]
        return -jnp.take_along_axis(jax.nn.log_softmax(z), batch["y"][:, None], 1)[:, 0]

    def slopes(self, p, batch, _):
        return jax.grad(lambda p: self.losses(p, batch).mean())(p)

    def add_losses(self, seen, batch):
        received, total, rows = seen
        return (
            received,
            total + (self.losses(received, batch) * batch["__mask__"]).sum(),
            rows + batch["__mask__"].sum(),
        )

    def combined(self, received, moved, losses):
        """Algorithm 1 of q-FFL with d_k = L (w - w_k) and L = 1 / rate."""
        q, rate, loss = self.plan.q, self.plan.rate, jnp.stack(losses)
        square = jnp.stack([sum((v * v).sum() for v in d) for d in moved])
        scale = (q * loss ** (q - 1) * square + loss**q / rate).sum()
        return [
            w - sum(f**q * d[i] for f, d in zip(loss, moved, strict=True)) / scale
            for i, w in enumerate(received)
        ]

    def run(self, rounds: int) -> Ran:
        model = [jnp.asarray(part) for part in self.plan.start]
        model = (
            self.fair_rounds(model, rounds) if self.plan.fair else self.mean_rounds(model, rounds)
        )
        return Ran([np.asarray(part) for part in jax.block_until_ready(model)])

    def mean_rounds(self, model, rounds: int):
        state, luck = self.mean.init(model), jax.random.PRNGKey(0)
        for t in range(rounds):
            state, _ = self.mean.apply(
                state, [(b"%d" % v.client, self.client(v), luck) for v in self.plan.visits(t)]
            )
        return state.params

    def fair_rounds(self, model, rounds: int):
        for t in range(rounds):
            visits = list(self.plan.visits(t))
            asked = [
                (v.client, self.own[v.client].padded_batch(batch_size=LOSS_BATCH), None)
                for v in visits
            ]
            losses = [loss for _, loss in self.measure(model, asked)]
            moved = [
                d
                for _, d in self.train(
                    model,
                    [
                        (v.client, self.client(v).shuffle_repeat_batch(self.how), None)
                        for v in visits
                    ],
                )
            ]
            model = self.combine(model, moved, losses)
        return model


if __name__ == "__main__":
    serve(FedJax, "fedjax", "jax", "jaxlib", "numpy")
