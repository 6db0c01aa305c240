"""Federations small enough to check by hand, and the same in every process."""

import numpy as np

from evenly.data.federation import Federation
from evenly.records import replace

SIZES = (4, 11, 17, 26, 13, 40)
FEATURES = 5


def tiny(classes: int = 3) -> Federation:
    """Clients that disagree: each has its own shift and its own true weights."""
    draw = np.random.default_rng(20)
    shared = draw.normal(size=(FEATURES, classes))
    xs, ys = [], []
    for size in SIZES:
        x = draw.normal(size=(size, FEATURES)) + draw.normal(size=FEATURES)
        own = shared + draw.normal(size=shared.shape)
        xs.append(x)
        ys.append((x @ own + draw.gumbel(size=(size, classes))).argmax(1))
    owner = np.repeat([f"client {k}" for k in range(len(SIZES))], SIZES)
    group = draw.choice(["a", "b"], len(owner))
    federation = Federation.from_arrays(
        np.concatenate(xs), np.concatenate(ys), owner, group=group, name="tiny"
    )
    return replace(
        federation,
        central=federation.test.rows[::2],
        client_group=np.array([0, 0, 1, 1, 2, 2], np.int32),
    )


def with_broken_clients(
    federation: Federation, clients: tuple[int, ...], value: float = 1e30
) -> Federation:
    """The same rows, but the training features of some clients are so large that their training
    overflows.
    """
    x = federation.x.copy()
    for k in clients:
        x[federation.train.of(k)] = value
    return replace(federation, x=x)
