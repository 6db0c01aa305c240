"""The number that each setting of a part has by default, and the numbers it takes.

Pages and error messages show these bounds, also where another part would refuse the number anyway.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from evenly import algorithm
from evenly.parts.client_groups import rank_clustering
from evenly.parts.optimisers import Optimiser, fedopt
from evenly.parts.ranking import Frozen, Supernetwork, kth_lowest, supernetwork
from evenly.parts.ranking_work import EdgePopup
from evenly.parts.sampling import Fraction, Parity, Uniform, Weighted
from evenly.parts.work import (
    FullGradient,
    LocalTraining,
    NashBargaining,
    PersonalTraining,
    Reweigh,
    TrainingAlone,
)
from tests.signatures import default_numbers

Bounded = tuple[float, dict[str, float]]

RATE: Bounded = (0.1, {"above": 0})
BATCHES: dict[str, Bounded] = {
    "epochs": (1, {"at least": 1}),
    "batch_size": (10, {"at least": 1}),
    "max_steps": (0, {"at least": 0}),
}
LOCAL: dict[str, Bounded] = {"learning_rate": (0.1, {}), **BATCHES}
COHORT: dict[str, Bounded] = {"clients": (10, {"at least": 1})}
SETTINGS: dict[Any, dict[str, Bounded]] = {
    NashBargaining: {"M": (5.0, {"above": 0}), "epsilon": (0.2, {"above": 0})},
    LocalTraining: {**LOCAL, "mu": (0.0, {"at least": 0})},
    TrainingAlone: LOCAL,
    PersonalTraining: {**LOCAL, "pull": (1.0, {"at least": 0})},
    FullGradient: {
        "learning_rate": RATE,
        "batch_size": (128, {"at least": 1}),
        "epochs": (1, {"at least": 1}),
        "max_steps": (0, {}),
    },
    Reweigh: {"cap": (0.0, {"at least": 0})},
    Fraction: {"share": (0.1, {"above": 0, "at most": 1})},
    Parity: {
        "p": (0.5, {"at least": 0, "at most": 1}),
        "share": (0.7, {"above": 0, "at most": 1}),
    },
    Uniform: COHORT,
    Weighted: COHORT,
    Optimiser: {"learning_rate": RATE},
    EdgePopup: {
        "learning_rate": RATE,
        "momentum": (0.9, {"at least": 0, "below": 1}),
        "weight_decay": (1e-4, {"at least": 0}),
        "round_decay": (1.0, {"above": 0, "at most": 1}),
        "epochs": (2, {"at least": 1}),
        "batch_size": (8, {"at least": 1}),
        "max_steps": (0, {"at least": 0}),
    },
    Supernetwork: {"k": (0.5, {})},
    Frozen: {"k": (0.5, {})},
}
DEFAULTS: list[tuple[Callable[..., Any], dict[str, float]]] = [
    (rank_clustering, {"iterations": 20, "restarts": 5}),
    (fedopt, {"beta2": 0.0}),
    (supernetwork, {"k": 0.5, "seed": 0}),
    (kth_lowest, {"bits": 0}),
]


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_settings_have_their_default_and_their_bounds(kind: Any):
    found = {
        field.name: (field.default, field.metadata["bounds"])
        for field in dataclasses.fields(kind)
        if type(field.default) in (int, float)
    }
    assert found == SETTINGS[kind]


@pytest.mark.parametrize("function, expected", DEFAULTS, ids=[f.__name__ for f, _ in DEFAULTS])
def test_numbers_that_are_not_given_are_the_documented_ones(
    function: Callable[..., Any], expected: dict[str, float]
):
    assert default_numbers(function) == expected


@pytest.mark.parametrize(
    ("notation", "message"),
    [
        ("q-fedavg(q=1e400)", "q-fedavg: q must be a number of at most 3.4e+38, got inf."),
        ("fedavg(learning_rate=1e39)", "learning_rate must be a number of at most 3.4e+38"),
        ("fedavg(batch_size=9999999999)", "batch_size must be a whole number of at most 2,147,"),
        ("fedavg(epochs=9999999999)", "epochs must be a whole number of at most 2,147,483,647"),
        ("fedavg+uniform(clients=9999999999)", "uniform: clients must be a whole number of at"),
        ("fedavg+server-sgd(learning_rate=1e39)", "sgd: learning_rate must be a number of"),
    ],
)
def test_a_number_that_devices_cannot_represent_is_refused(notation: str, message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        algorithm(notation)
