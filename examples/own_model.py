"""Your own model: any equinox module that maps one example to class scores.

Run it with `python examples/own_model.py`.
"""

import equinox as eqx
import jax
import numpy as np

import evenly
from evenly.metrics import accuracy
from evenly.simulate import simulate


class Network(eqx.Module):
    """Two dense layers."""

    hidden: eqx.nn.Linear
    scores: eqx.nn.Linear

    def __init__(self, features: int, classes: int, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.hidden = eqx.nn.Linear(features, 16, key=first)
        self.scores = eqx.nn.Linear(16, classes, key=second)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.scores(jax.nn.relu(self.hidden(x)))


def main() -> None:
    federation = evenly.synthetic(clients=50, features=30, classes=5)
    task = evenly.models.from_equinox(lambda key: Network(30, 5, key))
    for text in ("fedavg", "q-fedavg(q=2, lipschitz=1)"):
        [trace] = simulate(
            task, federation, [evenly.algorithm(text, learning_rate=0.02)], rounds=300
        )
        # after the last round, on each client's test rows
        served = np.sort(100 * accuracy(trace.tables[-1, 2]))
        print(
            f"{text:28} mean {served.mean():.1f} %, std {served.std():.1f} %; clients"
            f" {' '.join(f'{a:.0f}' for a in served)}"
        )


if __name__ == "__main__":
    main()
