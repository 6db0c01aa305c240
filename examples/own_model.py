"""Your own model: any equinox module that maps one example to class scores.

Run it with `python examples/own_model.py`.
"""

import equinox as eqx
import jax
import numpy as np

from evenly.algorithms import algorithm
from evenly.datasets import synthetic
from evenly.metrics import accuracy
from evenly.models import from_equinox
from evenly.simulate import simulate


class Network(eqx.Module):
    """Two dense layers with a skip from the input to the scores."""

    hidden: eqx.nn.Linear
    scores: eqx.nn.Linear
    skip: eqx.nn.Linear

    def __init__(self, features: int, classes: int, key: jax.Array) -> None:
        first, second, third = jax.random.split(key, 3)
        self.hidden = eqx.nn.Linear(features, 32, key=first)
        self.scores = eqx.nn.Linear(32, classes, key=second)
        self.skip = eqx.nn.Linear(features, classes, key=third)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.scores(jax.nn.relu(self.hidden(x))) + self.skip(x)


def main() -> None:
    federation = synthetic(clients=20, features=30, classes=5)
    task = from_equinox(lambda key: Network(30, 5, key))
    for text in ("fedavg", "q-fedavg(q=2)"):
        [trace] = simulate(task, federation, [algorithm(f"{text}+uniform(clients=10)", learning_rate=0.05)], rounds=30)
        served = 100 * accuracy(trace.tables[-1, 2])  # after the last round, on the clients' test rows
        print(f"{text:14} mean {np.nanmean(served):.1f} %, worst client {np.nanmin(served):.1f} %")
        print("  by client:", " ".join(f"{a:.0f}" for a in np.sort(served)))


if __name__ == "__main__":
    main()
