"""Every method of the registry, through Flower's messages, is what the simulator makes of it: three
rounds, the same seeds and data.
"""

from typing import Any

import jax
import numpy as np
import pytest
from flwr.app import Context, Message
from torch import nn

from evenly import from_torch
from evenly.algorithms import METHODS, Variant, variants
from evenly.data.federation import Federation
from evenly.flower import first_arrays, strategy, wire
from evenly.flower.clients.jax import app
from evenly.models import Augmented, Softmax
from evenly.notation import parse
from evenly.randomness import Draws
from evenly.simulate import simulate
from evenly.types import Algorithm, Seeds, Task
from tests.flower.grids import OneProcess, settings
from tests.models.stateful import Normalised
from tests.simulations import COHORT, COMMON, task_for

ROUNDS = 3
SEEDS = Seeds(data=1, model=2, cohort=3, batches=4)
# One method of every kind, and with other parts; the others are further tests.
OFTEN = [
    "afl", "fedcvg", "fedfb", "ditto", "fedmgda", "ifca", "afl(form=local)", "fedavg+parity(p=0.9)",
    "fairfed(metric=spd)+reweigh+full", "q-fedavg(q=2)+local-momentum",
    "fedavg+weighted(clients=4, replace=true)", "e2fl(groups=3, final_pass=true, absent_vote=true)",
    "e2fl(groups=2, inference=rank-clustering)",
]  # fmt: skip
# Other forms of the methods, and every way to come to a group.
FORMS = [
    "afl(form=stochastic)", "afl(form=per-domain)", "fairfed(measured_on=valid)+full",
    "fedavg+server-adam(learning_rate=0.1)", "ditto+full", "ifca(groups=3)+full", "e2fl(groups=3)",
    "e2fl(groups=3, global_model=true)", "e2fl(groups=2, inference=one-shot)",
    "e2fl(groups=3, inference=binary)",
]  # fmt: skip
EVERY = {*(METHODS[name].example or name for name in METHODS), *FORMS}


def written(text: str) -> Variant:
    return variants(parse(text), COMMON, COHORT)[0]


@pytest.mark.parametrize(
    "text",
    [*OFTEN, *(pytest.param(text, marks=pytest.mark.further) for text in sorted(EVERY - {*OFTEN}))],
)
def test_a_deployment_is_the_simulation(text: str, tiny: Federation, task: Softmax):
    variant = written(text)
    own = task_for(variant.method.name, task, tiny)
    # of a method of many runs the first and the last
    for algorithm in variant.members[:: max(len(variant.members) - 1, 1)]:
        compare(algorithm, own, tiny)


@pytest.mark.parametrize(
    "text",
    [
        "q-fedavg(q=1)+full",
        "ditto+full",
        pytest.param("fedavg+server-adam", marks=pytest.mark.further),
    ],
)
def test_dropout_and_batch_statistics_are_those_of_the_simulation(text: str, tiny: Federation):
    own = Normalised(features=tiny.x.shape[1], classes=len(tiny.labels), dropout=0.3)
    compare(written(text).members[0], own, tiny)


@pytest.mark.further
def test_augmentation_is_that_of_the_simulation(tiny: Federation):
    inner = Normalised(features=tiny.x.shape[1], classes=len(tiny.labels), dropout=0.3)
    noise = lambda key, x: x + 0.1 * jax.random.normal(key, x.shape)  # noqa: E731
    own = Augmented(task=inner, augment=noise)
    compare(written("q-fedavg(q=1)+full").members[0], own, tiny)


def test_a_translated_module_is_that_of_the_simulation(tiny: Federation):
    def network() -> nn.Module:
        return nn.Sequential(
            nn.Linear(tiny.x.shape[1], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(8, len(tiny.labels)),
        )  # fmt: skip

    own = from_torch(network, tiny.x[:2])
    compare(written("q-fedavg(q=1)+full").members[0], own, tiny)


@pytest.mark.parametrize(
    "text",
    [
        "q-fedavg(q=1)+full",
        "fairfed+full",
        "fedmgda+full",
        "e2fl(groups=3)+full",
        pytest.param("ifca+full", marks=pytest.mark.further),
    ],
)
def test_clients_that_fail_are_those_that_drop_out_of_a_simulation(
    text: str, tiny: Federation, task: Softmax
):
    share, drops = 0.4, Draws(SEEDS.cohort, "dropout")
    gone = {
        (t, k)
        for t in range(ROUNDS)
        for k in np.flatnonzero(drops.at(t).random(tiny.clients) < share)
    }
    variant = written(text)
    own = task_for(variant.method.name, task, tiny)
    honest = app(tiny, own)

    def answer(message: Message, context: Context) -> Message:
        told = settings(message)
        if (
            message.metadata.message_type == "train"
            and (told[wire.ROUND] - 1, told[wire.CLIENT]) in gone
        ):  # pyright: ignore[reportOperatorIssue]
            raise RuntimeError("the power went out")
        return honest(message, context)

    compare(variant.members[0], own, tiny, answer, dropout=share)


def compare(
    algorithm: Algorithm,
    task: Task,
    federation: Federation,
    answer: Any = None,
    *,
    dropout: float = 0.0,
) -> None:
    (trace,) = simulate(task, federation, [algorithm], ROUNDS, seeds=SEEDS, dropout=dropout)
    made = strategy(
        algorithm,
        task=task,
        seeds=SEEDS,
        min_available_nodes=federation.clients,
        min_train_nodes=1,
        introduce=True,
    )
    grid = OneProcess(answer or app(federation, task))
    result = made.start(grid, first_arrays(algorithm, task, SEEDS), num_rounds=ROUNDS)
    recorded = made.history.recorder.trace()
    slots = trace.cohort.shape[1]  # a final pass has more
    np.testing.assert_array_equal(recorded.cohort[:ROUNDS, :slots], trace.cohort)
    np.testing.assert_allclose(
        recorded.weights[:ROUNDS, :slots], trace.weights, rtol=1e-4, atol=1e-5
    )
    rule = made.algorithm.rule
    models = [""] if rule.groups is None else [wire.prefix_of(q) for q in range(rule.groups)]
    for q, prefix in enumerate(models):
        expected = jax.tree.map(lambda leaf, q=q: leaf[q], trace.model) if prefix else trace.model
        found = wire.from_arrays(result.arrays, expected, prefix)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    # What clients found afterwards is what the simulator counts.
    np.testing.assert_array_equal(recorded.tables[-1], trace.tables[-1])
