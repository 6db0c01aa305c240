"""Executing a plan: stopped by the user or by a failure, it ends soon, keeps what it has, and goes
on later.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from evenly.experiment.execute import execute, refuse_unfit, setting_of
from evenly.experiment.folder import Store
from evenly.experiment.plan import Plan
from tests.simulations import same_bits

PLAN = Plan(
    name="test",
    data={"name": "synthetic", "clients": 6},
    methods=("fedavg",),
    rounds=60,
    seeds=(0, 1),
    sampling="weighted(clients=2)",
    evaluate_every=20,
)


def stop_after(calls):
    seen = []

    def progress(done, total):
        seen.append(done)
        if len(seen) == calls:
            raise KeyboardInterrupt

    return progress


def test_a_stopped_run_ends_soon_and_resumes_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("evenly.simulate.schedule.LARGEST_BLOCK_ROWS", 1)  # a block is one round
    whole = execute(PLAN)
    # what the federation says, not "natural" whatever the data
    assert whole.partition == "drawn with the data"
    store = Store(tmp_path / "out", PLAN)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        execute(PLAN, store, progress=stop_after(5))
    assert time.monotonic() - began < 20
    kept = list((tmp_path / "out" / "checkpoints").iterdir())
    assert kept, "the rounds done so far must be kept"
    rounds = []
    again = execute(PLAN, store, progress=lambda done, total: rounds.append(done))
    for one, other in zip(whole.runs, again.runs, strict=True):
        same_bits(one.trace, other.trace)


def test_rounds_of_an_earlier_execution_are_reported_in_one_step(tmp_path):
    """Otherwise they would count as the speed of this one."""
    plan = replace(PLAN, seeds=(0, 1, 2))
    store, rounds = Store(tmp_path / "out", plan), []
    execute(plan, store)
    next((tmp_path / "out" / "traces").iterdir()).unlink()
    execute(plan, store, progress=lambda done, total: rounds.append((done, total)))
    assert rounds[0] == (120, 180)
    assert rounds[-1] == (180, 180)


def test_a_failure_in_one_seed_stops_the_others(monkeypatch):
    from evenly.experiment import execute as module

    real = module.simulate

    def broken(task, federation, algorithms, rounds, *, seeds, **options):
        if seeds.model == 1:
            raise ValueError("seed 1 is broken")
        return real(task, federation, algorithms, rounds, seeds=seeds, **options)

    monkeypatch.setattr(module, "simulate", broken)
    monkeypatch.setattr("evenly.simulate.schedule.LARGEST_BLOCK_ROWS", 1)
    rounds = []
    with pytest.raises(ValueError, match="seed 1 is broken"):
        execute(PLAN, progress=lambda done, total: rounds.append(done))
    assert len(rounds) < PLAN.rounds, "seed 0 must not train to its end first"


def test_seeds_that_meet_do_not_wait_for_one_whose_data_cannot_be_loaded(monkeypatch):
    from evenly.experiment import execute as module

    really = module.setting_of

    def missing(plan, seed):
        if seed == 0:
            return really(plan, seed)
        raise ValueError(f"the data of seed {seed} are gone")

    monkeypatch.setattr(module, "worth_batching", lambda task, runs: True)
    monkeypatch.setattr(module, "setting_of", missing)
    with pytest.raises(ValueError, match="the data of seed 1 are gone"):
        ThreadPoolExecutor(1).submit(execute, PLAN).result(timeout=60)


def test_groups_of_people_that_vote_need_no_groups_of_clients():
    """`e2fl(people=true)` makes a client of each group of people, so data without groups of clients
    suit it.
    """
    plan = Plan(
        name="p",
        data={"name": "synthetic-census"},
        methods=("e2fl(people=true)+full",),
        rounds=1,
        seeds=(0,),
        model="mlp(bias=false)",
    )
    refuse_unfit(plan, setting_of(plan, 0))
