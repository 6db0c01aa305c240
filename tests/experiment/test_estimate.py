"""What is said before a run is what the run then has."""

import dataclasses

import jax
import pytest

from evenly.commands.planned import duration, size
from evenly.experiment.estimate import estimate
from evenly.experiment.jobs import setting_of
from evenly.experiment.plan import Plan
from evenly.experiment.programs import programs
from evenly.experiment.store import Store

PLAN = Plan(
    name="test",
    data={"name": "synthetic", "clients": 5},
    methods=("fedavg", "q-fedavg(q=[1, 2])", "ditto"),
    rounds=7,
    seeds=(0, 1, 2),
    sampling="weighted(clients=2)",
)


def test_counts_are_those_of_the_plan(tmp_path):
    first = setting_of(PLAN, 0)
    found = estimate(PLAN, first)
    assert (found.methods, found.seeds, found.rounds) == (4, 3, 7)
    assert (found.programs, found.compiled, found.finished) == (6, 2, 0)  # Ditto's clients remember, so it has its own
    assert (found.clients, found.rows) == (5, len(first.federation.y))
    assert found.parameters == 61 * len(first.federation.labels)
    kept = next(programs(PLAN, first.task))
    (tmp_path / "traces").mkdir()
    Store.traces_in(tmp_path, kept.keys).write_bytes(b"")
    assert estimate(PLAN, first, tmp_path).finished == 1


@pytest.mark.parametrize(
    ("methods", "models"),
    [
        (("fedavg", "q-fedavg(q=[1, 2])"), 3),  # one model each
        (("ditto",), 1 + 5),  # the global model, and each of five clients its own
        (("ifca(groups=3)",), 3),  # three models of which clients choose
    ],
)
def test_memory_is_that_of_the_models(methods, models):
    first = setting_of(PLAN, 0)
    found = estimate(dataclasses.replace(PLAN, methods=methods), first)
    assert found.state_bytes == 4 * models * found.parameters
    assert found.data_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(first.federation))
    assert found.bytes == found.at_once * (found.state_bytes + found.data_bytes)


def test_groups_of_people_have_a_model_each():
    methods = ("e2fl(people=true)",)
    plan = dataclasses.replace(PLAN, data={"name": "synthetic-census"}, methods=methods, model="mlp(bias=false)", sampling="full")
    first = setting_of(plan, 0)
    found = estimate(plan, first)
    assert found.state_bytes == 4 * len(first.federation.groups) * found.parameters


@pytest.mark.parametrize(
    ("given", "said"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**30, "5 GiB"), (999 * 2**20, "999 MiB")]
)
def test_sizes_in_words(given, said):
    assert size(given) == said


@pytest.mark.parametrize(
    ("given", "said"), [(0.2, "1 seconds"), (90, "90 seconds"), (600, "10.0 minutes"), (9000, "2.5 hours"), (2e5, "2.3 days")]
)
def test_durations_in_words(given, said):
    assert duration(given) == said


def test_seeds_that_meet_are_all_in_memory(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    first = setting_of(PLAN, 0)
    assert estimate(PLAN, first).at_once == 2
    monkeypatch.setattr("evenly.experiment.estimate.worth_meeting", lambda task, runs: True)
    assert estimate(PLAN, first).at_once == 3
