"""Clients dealt to several devices give what one device gives. The devices are simulated, in a
process of their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from evenly.experiment.execute import execute
from evenly.experiment.plan import Plan
from evenly.models import MLP, LeNet, ResNet, Softmax
from evenly.simulate import simulate
from evenly.simulate.layout import choose_lanes, group_runs
from evenly.types import Seeds, Trace
from tests import federations
from tests.simulations import Simulated, algorithms, same_bits

ROUNDS, DEVICES = 8, 8
CASES = [  # method, devices, lanes on each
    ("q-fedavg(q=[0, 1])", 2, 1),
    ("fedavg+local-momentum(learning_rate=0.05)+server-adam(learning_rate=0.05)", 3, 1),
    ("ditto(pull=0.5)", 2, 1),
    ("ditto(pull=0.5)+full", 2, 2),
    ("q-fedavg(q=1)+full", DEVICES, 1),
]


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulate.test_devices"], cwd=root,
        env=os.environ | {"XLA_FLAGS": flags.strip()}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_devices_change_nothing(differences: dict[str, float], case: tuple[str, int, int]):
    assert differences[str(case)] < 1e-6


def test_seeds_take_turns_on_the_devices(differences: dict[str, float]):
    assert differences["seeds"] == 0


def test_seeds_or_clients_are_spread_over_devices_but_never_both(differences: dict[str, Any]):
    # each on a device of its own, and on no other
    assert differences["several seeds"] == [[0, 1], [1, 1], [2, 1]]
    assert differences["one seed"] == [[0, 0]]  # as many devices as pay: see below


def test_a_cpu_uses_several_devices_only_when_asked(monkeypatch: pytest.MonkeyPatch, task: Softmax):
    run_group = group_runs(algorithms("fedavg"))
    monkeypatch.setattr(jax, "devices", lambda: [None] * 4)
    assert choose_lanes(LeNet(), run_group, 10, lanes=0, devices=0) == (1, 1)
    assert choose_lanes(LeNet(), run_group, 10, lanes=0, devices=4) == (1, 4)
    assert choose_lanes(task, run_group, 10, lanes=9, devices=2) == (5, 2)


def test_gpus_are_all_used_unless_the_model_is_small(
    monkeypatch: pytest.MonkeyPatch, task: Softmax
):
    run_group = group_runs(algorithms("fedavg"))
    monkeypatch.setattr(jax, "devices", lambda: [None] * 4)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_lanes(task, run_group, 10, lanes=0, devices=0) == (10, 1)
    assert choose_lanes(LeNet(), run_group, 10, lanes=0, devices=0) == (3, 4)
    assert choose_lanes(LeNet(), run_group, 3, lanes=0, devices=0) == (1, 3)


def test_a_resnet_trains_one_client_at_a_time_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    """Its convolutions would become one grouped convolution for all lanes."""
    run_group = group_runs(algorithms("fedavg"))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_lanes(ResNet(), run_group, 10, lanes=0, devices=1) == (1, 1)
    assert choose_lanes(LeNet(), run_group, 10, lanes=0, devices=1) == (10, 1)


def test_visits_that_must_stay_in_order_stay_on_one_device(
    monkeypatch: pytest.MonkeyPatch, task: Softmax
):
    monkeypatch.setattr(jax, "devices", lambda: [None] * 4)
    for text in ("fedmgda", "ditto+weighted(clients=3, replace=true)"):
        assert choose_lanes(task, group_runs(algorithms(text)), 3, lanes=0, devices=2)[1] == 1


def test_more_devices_than_there_are_cannot_be_had(task: Softmax):
    with pytest.raises(
        ValueError,
        match=r"devices must be between 0 \(choose\) and \d+, as many as JAX has here, got 99",
    ):
        choose_lanes(task, group_runs(algorithms("fedavg")), 3, lanes=0, devices=99)


def test_people_of_several_groups_use_no_more_devices_than_asked_for():
    federation = federations.tiny()
    network = MLP(
        features=federation.x.shape[1], classes=len(federation.labels), hidden=(6,), bias=False
    )
    with pytest.raises(ValueError, match="as many as JAX has here, got 99"):
        simulate(network, federation, algorithms("e2fl(people=true)+full"), 1, devices=99)


def compare() -> dict[str, Any]:
    """The largest difference that several devices make to a model, a weight or a loss; equal counts
    and bits are demanded.
    """
    federation = federations.tiny()
    simulated = Simulated(
        Softmax(features=federation.x.shape[1], classes=len(federation.labels)), federation
    )
    found: dict[str, Any] = {}
    for text, devices, lanes in CASES:
        one = simulated.all(text, ROUNDS, dropout=0.3, devices=1)
        many = simulated.all(text, ROUNDS, dropout=0.3, devices=devices, lanes=lanes)
        again = simulated.all(
            text, ROUNDS, dropout=0.3, devices=devices, lanes=lanes, progress=lambda *_: None
        )
        pairs = []
        for a, b, c in zip(one, many, again, strict=True):
            same_bits(b, c)
            np.testing.assert_array_equal(a.tables, b.tables)
            known = ~np.isnan(a.losses)
            pairs += [(a.weights, b.weights), (a.losses[known], b.losses[known])]
            pairs += zip(jax.tree.leaves(a.model), jax.tree.leaves(b.model), strict=True)
        found[str((text, devices, lanes))] = max(float(np.abs(x - y).max()) for x, y in pairs)
    found["seeds"] = seeds_together()
    found["several seeds"], found["one seed"] = places(0, 1, 2), places(0)
    return found


def seeds_together() -> float:
    """The largest difference between two seeds trained at once, each on a device of its own, and
    one after the other.
    """

    def models(*seeds: int) -> list[np.ndarray]:
        return [
            leaf
            for run in execute(planned(*seeds)).runs
            for leaf in jax.tree.leaves(run.trace.model)
        ]

    return max(
        float(np.abs(a - b).max())
        for a, b in zip(models(0, 1), [*models(0), *models(1)], strict=True)
    )


def planned(*seeds: int) -> Plan:
    return Plan(
        name="seeds",
        data={"name": "synthetic", "clients": 5},
        methods=("q-fedavg(q=1)",),
        rounds=3,
        seeds=seeds,
    )


def places(*seeds: int) -> list[tuple[int, int]]:
    """For each seed of an experiment, the device that it computes on and to how many its clients
    may be dealt (0: as many as pay).
    """
    found: dict[int, tuple[int, int]] = {}

    def recording(*given: Any, seeds: Seeds, devices: int, **options: Any) -> list[Trace]:
        (own,) = jax.numpy.zeros(1).devices()
        found[seeds.model] = own.id, devices
        return simulate(*given, seeds=seeds, devices=devices, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenly.experiment.execute.simulate", recording)
        execute(planned(*seeds))
    return [found[seed] for seed in seeds]


if __name__ == "__main__":
    print(json.dumps(compare()))
