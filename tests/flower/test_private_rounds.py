"""A deployment whose server protects clients: its rounds are those of a simulation, and what it
releases is counted before it is made.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from flwr.app import Context, Message

from evenly.experiment.reopen import open_results
from evenly.flower import (
    Caps,
    aggregation,
    first_arrays,
    lifecycle,
    private_rounds,
    strategy,
    wire,
)
from evenly.flower.clients.jax import app
from evenly.flower.final_model import read_final
from evenly.parts.sampling import CohortDraws, Poisson
from evenly.privacy import Privacy
from evenly.privacy.claims import refuse
from evenly.records import replace
from evenly.simulate import simulate
from tests.flower.grids import NODES, OneProcess, settings
from tests.flower.small import SEEDS, algorithm_of, small, task_of

CLIENTS, ROUNDS = 4, 3
EXACT = "dp(noise_multiplier=0, clip=0.1, forced=true)"  # which cuts every update
NOISED = "dp(noise_multiplier=0.7, clip=0.1, forced=true)"
METHODS = ["fedavg(weights=equal)", "fairfed", "ifca(groups=2)"]


def grid_of(text: str) -> OneProcess:
    return OneProcess(app(small(CLIENTS), task_of(text)), NODES[:CLIENTS])


def deployed(text: str, folder: Path, grid: OneProcess | None = None, **more: Any) -> Any:
    """The strategy after all rounds, and its arrays."""
    given = {"min_available_nodes": CLIENTS, "min_train_nodes": 1, **more}
    rounds = given.pop("rounds", ROUNDS)
    server = strategy(algorithm_of(text), seeds=SEEDS, folder=folder, **given)
    first = first_arrays(algorithm_of(text), task_of(text), SEEDS)
    return server, server.start(grid or grid_of(text), first, num_rounds=rounds).arrays


def count(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "releases.json").read_text())


@pytest.mark.parametrize(
    "name", [METHODS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in METHODS[1:])]
)
def test_without_noise_it_is_the_simulation_with_the_same_bounds(name: str, tmp_path: Path):
    text = f"{name}+full+{EXACT}"
    _, arrays = deployed(text, tmp_path / "run")
    (trace,) = simulate(task_of(text), small(CLIENTS), [algorithm_of(text)], ROUNDS, seeds=SEEDS)
    assert trace.cut is not None
    assert (np.asarray(trace.cut) & 1).any()
    several = algorithm_of(text).rule.groups is not None
    for q in range(2 if several else 1):
        model = jax.tree.map(lambda leaf, q=q: leaf[q], trace.model) if several else trace.model
        for key, leaf in zip(wire.names_of(model), jax.tree.leaves(model), strict=True):
            found = wire.read(arrays[(wire.prefix_of(q) if several else "") + key])
            np.testing.assert_allclose(found, leaf, rtol=1e-4, atol=1e-5)
    assert count(tmp_path / "run")["promise"]["no_claim"] == "noise is 0"


def test_the_final_model_does_not_say_which_model_a_client_chose(tmp_path: Path):
    """The choice is the exact argmin of its losses."""
    deployed(f"ifca(groups=2)+full+{NOISED}", tmp_path / "run", rounds=1)
    assert read_final(tmp_path / "run")[1] == {}


def test_a_killed_server_goes_on_counting_and_stops_when_all_is_spent(tmp_path: Path):
    """It is killed in round 2, after its release and before the round was saved."""
    text, folder = f"fedavg(weights=equal)+full+{NOISED}", tmp_path / "run"
    honest = app(small(CLIENTS), task_of(text))

    def killing(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "evaluate" and settings(message)[wire.ROUND] == 2:
            raise KeyboardInterrupt
        return honest(message, context)

    with pytest.raises(KeyboardInterrupt):
        deployed(text, folder, OneProcess(killing, NODES[:CLIENTS]))
    assert count(folder)["used"] == 2
    before = count(folder)["promise"]
    # more rounds do not change what was promised
    server, _ = deployed(text, folder, rounds=ROUNDS + 4)
    assert server.history.done == ROUNDS - 1
    assert count(folder) == {"format": 1, "clients": CLIENTS, "used": ROUNDS, "promise": before}
    comparison = open_results(folder)
    assert comparison.privacy[comparison.runs[0].label]["epsilon"] == before["epsilon"]
    stored = json.loads((folder / "run.json").read_text())["privacy"]
    assert stored[comparison.runs[0].label] == before
    assert comparison.runs[0].trace.clip == pytest.approx([0.1] * (ROUNDS - 1))
    page = (folder / "report.html").read_text()
    assert "What privacy is promised" in page
    assert "The longest update that counted" in page
    assert "client 1" not in page
    assert "worst-served" not in page.split("What privacy is promised")[0]
    (folder / "releases.json").write_text("{}")
    with pytest.raises(ValueError, match="nobody knows what was released"):
        deployed(text, folder)


def test_a_round_with_too_few_replies_is_counted(tmp_path: Path):
    """Whoever sees that it ended learns that few replied."""
    text, folder = f"fedavg(weights=equal)+full+{NOISED}", tmp_path / "run"

    def failing(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            raise RuntimeError
        return app(small(CLIENTS), task_of(text))(message, context)

    with pytest.raises(ValueError, match="must send a usable reply"):
        deployed(text, folder, OneProcess(failing, NODES[:CLIENTS]))
    assert count(folder)["used"] == 1


def test_nobody_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The first clients to connect would take part, and one of them would keep another out."""
    text, folder = f"fedavg(weights=equal)+full+{NOISED}", tmp_path / "run"
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(lifecycle, "time", clock)

    class Returning(OneProcess):
        """After the first round its nodes come back one by one."""

        def get_node_ids(self) -> list[int]:
            trained = any(kind == "train" for kind, _ in self.asked)
            return list(self.nodes[: 1 + len(slept)] if trained else self.nodes)

    grid = Returning(app(small(CLIENTS), task_of(text)), NODES[:CLIENTS])
    with pytest.raises(ValueError, match=r"the 4 chosen clients must send .* and 1 did"):
        deployed(text, folder, grid, min_train_nodes=2)
    assert slept == []
    assert count(folder)["used"] == 2


@pytest.mark.parametrize("name", METHODS)
def test_a_round_of_nobody_is_released_with_its_noise(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whoever sees that a run ended, or that the model stood still, would know the draw."""
    monkeypatch.setattr(Poisson, "__call__", lambda own, state, draw: (np.zeros(0, int), state))
    first = first_arrays(algorithm_of(name), task_of(name), SEEDS)
    for part in ("", f"+{NOISED}"):
        text, folder = f"{name}+poisson(rate=0.5){part}", tmp_path / f"run{part}"
        server, arrays = deployed(text, folder)
        assert server.history.done == ROUNDS
        moved = [(wire.read(arrays[key]) != wire.read(first[key])).any() for key in first]
        assert all(moved) if part else not any(moved)
    assert count(folder)["used"] == ROUNDS
    assert open_results(folder).runs[0].trace.cohort.size == 0


def test_traffic_does_not_tell_how_many_rounds_nobody_was_drawn_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The page of a private deployment shows it."""
    found, text = [], f"fedavg(weights=equal)+poisson(rate=0.5)+{NOISED}"
    for empty in (0, 2):
        drawn = [0] * empty + [CLIENTS] * (ROUNDS - empty)
        monkeypatch.setattr(
            CohortDraws, "cohort", lambda _, t, drawn=drawn: np.arange(drawn[t], dtype=np.int32)
        )
        deployed(text, tmp_path / f"{empty}")
        trace = open_results(tmp_path / f"{empty}").runs[0].trace
        found.append((trace.upload, trace.download))
    assert found[0] == found[1]
    assert all(found[0])


def test_a_restart_keeps_the_sampling_that_was_promised(tmp_path: Path):
    text, folder = f"fedavg(weights=equal)+{NOISED}", tmp_path / "run"
    given = {"fraction_train": 0.5, "rounds": 1}
    deployed(text, folder, **given, min_train_nodes=2)
    with pytest.raises(ValueError, match="rounds of about 2 clients, and now 3 would take part"):
        deployed(text, folder, **given, min_train_nodes=3)


def test_rounds_without_their_count_are_not_continued(tmp_path: Path):
    text, folder = f"fedavg(weights=equal)+full+{NOISED}", tmp_path / "run"
    deployed(text, folder, rounds=1)
    (folder / "releases.json").unlink()
    with pytest.raises(ValueError, match=r"1 rounds and no releases\.json"):
        deployed(text, folder, rounds=2)
    assert not (folder / "releases.json").exists()


@pytest.mark.parametrize("field", ["final_pass", "people"])
def test_updates_that_the_account_does_not_count_are_refused(field: str):
    made = algorithm_of("fedavg(weights=equal)+full")
    rule = made.rule
    kept = type(rule.__class__.__name__, (type(rule),), {field: True})
    with pytest.raises(ValueError, match=f"Leave {field}=true out"):
        refuse(replace(made, rule=kept(**{f: getattr(rule, f) for f in rule.__dataclass_fields__}),
                       privacy=Privacy(epsilon=8.0, forced=True)), 100)  # fmt: skip


def test_a_release_is_counted_before_it_is_made_and_has_noise_of_its_own(tmp_path: Path):
    made, census = algorithm_of(f"q-fedavg+full+{NOISED}"), small(CLIENTS).census()
    state = private_rounds.first_gate(made, census, ())
    counted = private_rounds.ReleaseCount(made, census, tmp_path, 2)
    one = counted.guard(state)
    assert count(tmp_path)["used"] == 1
    other = private_rounds.ReleaseCount(made, census, tmp_path, 2).guard(
        state
    )  # a server started again
    assert count(tmp_path)["used"] == 2
    keys = [np.asarray(jax.random.key_data(guard.key)) for guard in (one, other)]
    assert (keys[0] != keys[1]).any()
    assert float(one.gate.noise) == 0.7
    with pytest.raises(ValueError, match="would break the promise"):
        private_rounds.ReleaseCount(made, census, tmp_path, 5).guard(state)
    with pytest.raises(ValueError, match="among 4 clients, and 5 are registered"):
        private_rounds.ReleaseCount(made, small(5).census(), tmp_path, 2)
    seeds = {private_rounds.cohort_seeds(made, SEEDS).cohort for _ in range(5)}
    assert len(seeds) == 5
    assert private_rounds.cohort_seeds(algorithm_of("q-fedavg+full"), SEEDS) == SEEDS


def test_noise_of_a_round_is_that_of_the_gate(tmp_path: Path):
    """Clients that send what they received: all that moves the model is noise."""
    text = "fedavg(weights=equal)+full+dp(noise_multiplier=2, clip=0.5, forced=true)"
    made, census = algorithm_of(text), small(CLIENTS).census()
    model = [np.zeros((200, 100), np.float32)]
    state = aggregation.first_state(made, model, census)
    state = state._replace(gate=private_rounds.first_gate(made, census, state.public))
    guard = private_rounds.ReleaseCount(made, census, tmp_path, 1).guard(state.gate)
    signals = aggregation.Signals(
        client=np.arange(CLIENTS), returned=np.ones(CLIENTS, bool), examples=census.examples
    )
    done = aggregation.round_from_replies(made, state, signals, [model] * CLIENTS, guard=guard)
    assert np.std(done.state.model[0]) == pytest.approx(2 * 0.5 / CLIENTS, rel=0.03)
    with pytest.raises(ValueError, match="adds noise for differential privacy"):
        aggregation.round_from_replies(made, state, signals, [model] * CLIENTS)


@pytest.mark.parametrize(
    "more, words",
    [
        ({"caps": Caps()}, "Remove caps"),
        ({"two_phase": True}, "Remove two_phase"),
        ({"folder": None}, "Give a folder"),
        ({"text": f"fedavg+full+{NOISED[:-1]}, histogram=3)"}, "Leave histogram out"),
    ],
)
def test_what_would_void_the_promise_is_refused(more: dict[str, Any], words: str, tmp_path: Path):
    given = {"text": f"fedavg+full+{NOISED}", "folder": tmp_path / "run", **more}
    with pytest.raises(ValueError, match=words):
        strategy(algorithm_of(given.pop("text")), seeds=SEEDS, **given)
