"""What is said before a run is what the run then has."""

import dataclasses
import functools
import inspect
import time
import tracemalloc

import jax
import numpy as np
import pytest

from evenly.cli.terminal_tables import duration
from evenly.data.federation import Federation
from evenly.datasets import DATASETS
from evenly.datasets.load import available, read_table, size
from evenly.experiment.estimate import estimate, refuse_large_models
from evenly.experiment.execute import execute, setting_of
from evenly.experiment.folder import Store
from evenly.experiment.plan import Plan, programs, sampling_facts
from evenly.records import replace

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
    # Ditto's clients remember, so it has its own
    assert (found.programs, found.compiled, found.finished) == (6, 2, 0)
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
    plan = dataclasses.replace(
        PLAN,
        data={"name": "synthetic-census"},
        methods=methods,
        model="mlp(bias=false)",
        sampling="full",
    )
    first = setting_of(plan, 0)
    found = estimate(plan, first)
    assert found.state_bytes == 4 * len(first.federation.groups) * found.parameters


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 * 2**30, "5 GiB"),
        (999 * 2**20, "999 MiB"),
    ],
)
def test_sizes_in_words(given, said):
    assert size(given) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (0.2, "1 seconds"),
        (90, "90 seconds"),
        (600, "10.0 minutes"),
        (9000, "2.5 hours"),
        (2e5, "2.3 days"),
    ],
)
def test_durations_in_words(given, said):
    assert duration(given) == said


def test_seeds_that_meet_are_all_in_memory(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    first = setting_of(PLAN, 0)
    assert estimate(PLAN, first).at_once == 2
    monkeypatch.setattr("evenly.experiment.estimate.worth_batching", lambda task, runs: True)
    assert estimate(PLAN, first).at_once == 3


@pytest.mark.parametrize(
    "data",
    [
        {"name": "synthetic", "clients": 10_000_000},
        {"name": "synthetic", "clients": 10**15},
        {"name": "synthetic", "spread": 500.0},
        {"name": "synthetic-census", "rows": 10**12},
        {"name": "synthetic-crowd", "clients": 10**9},
        {"name": "synthetic-crowd", "features": 10**12},
    ],
)
def test_data_that_do_not_fit_are_refused_before_they_are_drawn(data, monkeypatch):
    """Ten million clients took 11.5 GB and then the process, because the data were drawn before
    anything was estimated.
    """
    name = data["name"]
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], load=_never(DATASETS[name].load)))
    with pytest.raises(
        ValueError,
        match=(
            rf"Data set '{name}' .* needs about .* of memory at least, but .* are free on this"
            r" machine\. Choose"
        ),
    ):
        setting_of(dataclasses.replace(PLAN, data=data), 0)


def _never(load):
    @functools.wraps(load)
    def drawn(**settings):
        raise AssertionError("The data were drawn.")

    return drawn


def test_an_estimate_is_not_above_what_is_drawn():
    """So that nothing is refused that would fit."""
    for name, settings in (
        ("synthetic", {"clients": 30}),
        ("synthetic-census", {}),
        ("synthetic-crowd", {"clients": 500}),
    ):
        card = DATASETS[name]
        whole = {
            parameter.name: parameter.default
            for parameter in inspect.signature(card.load).parameters.values()
        } | settings
        tracemalloc.start()
        card.load(**settings)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert card.memory is not None
        assert 0.2 * peak < card.memory(whole) < peak


def test_a_table_that_does_not_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("k,y,x\n" + "a,0,1\nb,1,2\n" * 100)
    monkeypatch.setattr("evenly.datasets.load.available", lambda: 1000.0)
    with pytest.raises(
        ValueError,
        match=r"The table 't\.csv' needs about 1\.18 KiB of memory at least, but 1000 B are free",
    ):
        read_table(path)


def test_models_that_do_not_fit_are_refused(monkeypatch):
    first = setting_of(PLAN, 0)
    refuse_large_models(PLAN, first)
    monkeypatch.setattr("evenly.datasets.load.available", lambda: 1000.0)
    with pytest.raises(
        ValueError, match=r"Training these methods needs about .* Choose a smaller model"
    ):
        refuse_large_models(PLAN, first)


def test_memory_is_what_the_system_says(monkeypatch, tmp_path):
    assert 2**20 < available() < 2**50
    limit = tmp_path / "memory.max"
    limit.write_text("12345\n")
    monkeypatch.setattr("evenly.datasets.load.LIMITS", (str(limit), str(tmp_path / "nothing")))
    assert available() == 12345
    limit.write_text("max\n")
    assert available() > 2**20


def test_a_sweep_is_counted_before_it_is_expanded():
    """A hundred thousand values took 34 seconds to become methods."""
    many = ",".join(map(str, range(100_001)))
    for text in (
        f"q-fedavg(q=[{many}])",
        "fedavg(learning_rate=[1,2,3,4,5,6,7,8,9,10])"
        + "+server-adam(learning_rate=[1,2,3,4,5,6,7,8,9,10])" * 30,
    ):
        with pytest.raises(
            ValueError, match=r"its sweeps may stand for at most 10,000 methods, got 1[0,]+"
        ):
            dataclasses.replace(PLAN, methods=(text,)).variants()


def test_a_large_sweep_is_quick():
    began = time.process_time()
    found = dataclasses.replace(
        PLAN, methods=(f"q-fedavg(q=[{','.join(map(str, range(2000)))}])",)
    ).variants()
    assert len(found) == 2000
    assert time.process_time() - began < 2


def told(sampling: str, *methods: str, sizes: tuple[int, ...] = (30, 20, 10)) -> str:
    """What is said of the sampling of three clients with these training rows."""
    owner = np.repeat(["a", "b", "c"], sizes)
    data = Federation.from_arrays(np.zeros((len(owner), 1)), np.arange(len(owner)) % 2, owner)
    plan = dataclasses.replace(PLAN, methods=methods, sampling=sampling)
    return " ".join(fact.text for fact in sampling_facts(plan, data))


def test_sizes_that_do_not_count_are_said_to():
    """Sampling by size weighs the clients of a round equally: where all take part, nothing depends
    on their size.
    """
    everybody = "All 3 clients take part in every round, and larger ones do not count more."
    add = "Add --sampling full (in a file: sampling = 'full') to weigh them by size"
    assert told("weighted(clients=10)", "fedavg", "ditto") == f"{everybody} {add}."
    assert told("weighted(clients=3)", "fedavg", "q-fedavg(q=1)") == (
        f"{everybody} {add} under fedavg."
    )
    # q-FedAvg never weighs by size: only sampling lets it count
    assert told("weighted(clients=10)", "q-fedavg(q=0)") == (
        f"{everybody} To let size count, sample fewer, as with --sampling 'weighted(clients=1)'."
    )


@pytest.mark.parametrize(
    ("sampling", "method"),
    [
        ("full", "fedavg"),
        ("weighted(clients=2)", "fedavg"),
        ("weighted(clients=5, replace=true)", "fedavg"),
        ("uniform(clients=10)", "fedavg"),
        ("weighted(clients=10)", "fedavg+full"),
        ("weighted(clients=10)", "fedavg(weights=equal)"),
    ],
)
def test_nothing_is_said_where_sizes_count_or_are_not_to(sampling, method):
    assert told(sampling, method) == ""


def test_nothing_is_said_of_clients_of_equal_size():
    assert told("weighted(clients=10)", "fedavg", sizes=(20, 20, 20)) == ""


def test_results_say_that_sizes_did_not_count():
    """The terminal said so before training, and the report did not."""
    plan = dataclasses.replace(
        PLAN, methods=("fedavg",), rounds=1, seeds=(0,), sampling="weighted(clients=10)"
    )
    assert execute(plan).sizes.startswith("All 5 clients take part in every round, and larger")
    assert execute(dataclasses.replace(plan, sampling="weighted(clients=2)")).sizes == ""
