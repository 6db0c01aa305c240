"""What the server, the clients and the tests of a deployment must agree on: a small federation, a
model and seeds.
"""

import numpy as np

from evenly.algorithms import Variant, variants
from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.notation import parse
from evenly.parts.sampling import Full
from evenly.records import replace
from evenly.types import Algorithm, Seeds, Task
from tests.simulations import COMMON, task_for

SEEDS = Seeds(data=1, model=2, cohort=3, batches=4)
FEATURES = 4
ROWS = 14


def small(clients: int) -> Federation:
    """Clients of about 14 rows that disagree, with two groups and two labels."""
    draw = np.random.default_rng(7)
    xs, ys, owner = [], [], []
    for k in range(clients):
        x = draw.normal(size=(ROWS + 2 * k, FEATURES)) + draw.normal(size=FEATURES)
        xs.append(x)
        ys.append((x @ draw.normal(size=FEATURES) + draw.logistic(size=len(x)) > 0).astype(int))
        owner += [f"client {k}"] * len(x)
    group = draw.choice(["a", "b"], len(owner))
    made = Federation.from_arrays(
        np.concatenate(xs), np.concatenate(ys), owner, group=group, name="small"
    )
    return replace(made, client_group=(np.arange(clients) % 2).astype(np.int32))


def variant_of(text: str) -> Variant:
    return variants(parse(text), COMMON, Full())[0]


def algorithm_of(text: str) -> Algorithm:
    """The method; of one that is several runs, the last."""
    return variant_of(text).members[-1]


def task_of(text: str) -> Task:
    """A model that suits the method."""
    return task_for(variant_of(text).method.name, Softmax(features=FEATURES, classes=2), small(2))
