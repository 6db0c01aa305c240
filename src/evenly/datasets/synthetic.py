"""The synthetic federation of q-FFL: a known, tunable amount of disagreement between clients.

Li et al., "Fair Resource Allocation in Federated Learning", Appendix E. Client k has its own linear model: u_k and B_k
standard normal; entries of W_k and b_k around u_k; features around v_k, itself around B_k, with variance j^-1.2 for
feature j; y = argmax(x W_k + b_k). Nothing is downloaded.

The paper says only that sizes follow a power law. The authors' scripts draw floor(lognormal(4, s)) + 50; s = 1 fits the
paper's totals (12,697 rows, deviation 73) and is the default.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evenly.data.federation import DRAWN, Federation
from evenly.randomness import generator
from evenly.records import replace

FEWEST, MOST_DRAWN = 50, 10**7  # rows of a client, and clients whose rows are counted exactly before they are drawn
KINDS = ("non-iid", "iid", "hybrid")


def synthetic(
    kind: str = "non-iid",
    *,
    clients: int = 100,
    features: int = 60,
    classes: int = 10,
    spread: float = 1.0,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """A synthetic federation. `seed` draws the data, `split_seed` who of a client's rows is training, validation or test.

    `kind` is "non-iid" (every client its own model), "iid" (one model for all) or "hybrid" (the first half shares a model).
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if clients < 1 or features < 1 or classes < 2:
        raise ValueError(f"synthetic needs at least 1 client, 1 feature and 2 classes, got {clients}, {features} and {classes}.")
    if not spread >= 0:
        raise ValueError(f"spread must be at least 0, got {spread}.")
    sizes = _sizes(clients, spread, seed).astype(int)
    alike = {"non-iid": 0, "iid": clients, "hybrid": clients // 2}[kind]
    shared = generator(seed, "shared model")
    shared_model = shared.normal(size=(features, classes)), shared.normal(size=classes)
    deviation = np.sqrt(np.arange(1, features + 1) ** -1.2)
    xs, ys = [], []
    for k in range(clients):
        draw = generator(seed, "client", k)
        if k < alike:
            (weight, bias), centre = shared_model, np.zeros(features)
        else:
            u, b = draw.normal(size=2)
            weight, bias = draw.normal(u, 1, (features, classes)), draw.normal(u, 1, classes)
            centre = draw.normal(b, 1, features)
        x = centre + draw.normal(size=(sizes[k], features)) * deviation
        xs.append(x)
        ys.append((x @ weight + bias).argmax(1))
    owner = np.repeat([f"client {k:0{len(str(clients - 1))}d}" for k in range(clients)], sizes)
    federation = Federation.from_arrays(np.concatenate(xs), np.concatenate(ys), owner, seed=split_seed, name=f"synthetic {kind}")
    return replace(federation, partition=DRAWN)


def _sizes(clients: int, spread: float, seed: int) -> np.ndarray:
    """Rows of each client, as floating-point numbers."""
    return np.floor(generator(seed, "sizes").lognormal(4, spread, clients)) + FEWEST


def memory(settings: Mapping[str, Any]) -> float:
    """Bytes of the features, which are drawn in double precision and then joined."""
    clients, spread = settings["clients"], settings["spread"]
    if clients < 1 or not spread >= 0:
        return 0.0  # refused elsewhere
    rows = float(_sizes(clients, spread, settings["seed"]).sum()) if clients <= MOST_DRAWN else FEWEST * clients
    return 2 * 8 * rows * settings["features"]
