"""Clients keep models of their own in a folder. A server that resumes is a new Flower run, in which
nothing else is left of what they kept.
"""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message
from torch import nn

from evenly.experiment.deployment import read_exclusions
from evenly.flower import first_arrays, lifecycle, server_state, strategy, wire
from evenly.flower.adapter import FairStrategy
from evenly.flower.clients import torch as in_torch
from evenly.flower.clients.memory import Moment, keep, recall
from evenly.flower.roster import notation_of
from evenly.types import Trace
from tests.flower.grids import NODES, OneProcess, settings
from tests.flower.small import FEATURES, SEEDS, algorithm_of, small, task_of
from tests.flower.test_going_on import CLIENTS, KILLED, Answer, KilledError, honest, made

MORE_ROUNDS = 6
LOST = r"its own model after round \d of this deployment is lost\. Let each node keep its models"


def grid_of(answer: Answer, folder: Path | None, **config: Any) -> OneProcess:
    """Nodes of a new Flower run, which keep their models below a folder."""
    grid = OneProcess(answer, NODES[:CLIENTS])
    for k, context in enumerate(grid.contexts.values()):
        own = {} if folder is None else {"memory": str(folder / f"node-{k}")}
        context.node_config = {**context.node_config, **own, **config}
    return grid


def start(
    server: FairStrategy, grid: OneProcess, text: str, first: ArrayRecord | None = None
) -> Trace:
    first = first or first_arrays(algorithm_of(text), task_of(text), SEEDS)
    server.start(grid, first, num_rounds=MORE_ROUNDS)
    return server.history.recorder.trace()


def killing(answer: Answer, kind: str = "train") -> Answer:
    """Ends the server in a round after half of the clients answered."""
    asked: list[int] = []

    def answered(message: Message, context: Context) -> Message:
        if message.metadata.message_type == kind and settings(message)[wire.ROUND] == KILLED:
            if len(asked) == CLIENTS // 2:
                raise KilledError
            asked.append(context.node_id)
        return answer(message, context)

    return answered


def same(found: Trace, expected: Trace) -> None:
    for name in ("tables", "losses", "cohort", "weights"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def in_pytorch(text: str) -> Answer:
    torch.set_num_threads(1)
    return in_torch.app(lambda: nn.Linear(FEATURES, 2), small(CLIENTS))


def zeros() -> ArrayRecord:
    state = nn.Linear(FEATURES, 2).state_dict()
    return wire.to_arrays({name: np.zeros(leaf.shape, np.float32) for name, leaf in state.items()})


CASES = [
    ("ditto", honest, "train"),
    ("local", honest, "evaluate"),
    ("ditto+uniform(clients=2)", honest, "evaluate"),
    ("ditto", in_pytorch, "evaluate"),
    ("local+uniform(clients=2)", in_pytorch, "evaluate"),
]


@pytest.mark.parametrize("text, answer, kind", CASES)
def test_a_resumed_run_with_a_folder_equals_an_undisturbed_one(
    text: str, answer: Callable[[str], Answer], kind: str, tmp_path: Path
):
    """Also where clients had trained in the round that the server did not store."""
    first = zeros() if answer is in_pytorch else None
    expected = start(made(text, None), grid_of(answer(text), None), text, first)
    models, run = tmp_path / "models", tmp_path / "run"
    with pytest.raises(KilledError):
        start(made(text, run), grid_of(killing(answer(text), kind), models), text, first)
    same(start(made(text, run), grid_of(answer(text), models), text, first), expected)


@pytest.mark.parametrize("text", ["ditto", "local"])
def test_without_a_folder_nothing_is_trained_from_a_lost_model(text: str, tmp_path: Path):
    run = tmp_path / "run"
    with pytest.raises(KilledError):
        start(made(text, run), grid_of(killing(honest(text)), None), text)
    with pytest.raises(ValueError, match=rf"Round {KILLED} of {text}.*like 3 others,.*{LOST}"):
        start(made(text, run), grid_of(honest(text), None), text)
    assert server_state.rounds_done(run) == KILLED - 1


def test_one_client_that_lost_its_model_is_left_out_by_name(tmp_path: Path):
    run, models, lost = tmp_path / "run", tmp_path / "models", 2
    with pytest.raises(KilledError):
        start(made("ditto", run), grid_of(killing(honest("ditto")), models), "ditto")
    (models / f"node-{lost}").rename(tmp_path / "elsewhere")
    start(made("ditto", run), grid_of(honest("ditto"), models), "ditto")
    left, _ = read_exclusions(run)
    assert {(one.client, one.round) for one in left if one.phase == "train"} == {
        (lost, number) for number in range(KILLED, MORE_ROUNDS + 1)
    }
    assert all("its own model after round 2 of this deployment is lost" in o.reason for o in left)


def test_a_client_with_a_policy_says_so_too(tmp_path: Path):
    agreed = notation_of(algorithm_of("ditto"))

    def grid(answer: Answer) -> OneProcess:
        made = grid_of(answer, None)
        for k, context in enumerate(made.contexts.values()):
            path = tmp_path / f"node-{k}" / "policy.toml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                f"methods = ['{agreed}']\nleast_cell = 1\nleast_batch = 1\nleast_change = 1"
            )
            context.node_config = {**context.node_config, "policy": str(path)}
        return made

    run = tmp_path / "run"
    with pytest.raises(KilledError):
        start(made("ditto", run), grid(killing(honest("ditto"))), "ditto")
    with pytest.raises(ValueError, match=rf"refused by its policy: {LOST}"):
        start(made("ditto", run), grid(honest("ditto")), "ditto")


def test_clients_of_one_folder_are_refused(tmp_path: Path):
    shared = {"memory": str(tmp_path / "shared")}
    server = made("ditto", None, min_train_nodes=CLIENTS)
    with pytest.raises(ValueError, match="its folder of models is that of another client"):
        start(server, grid_of(honest("ditto"), None, **shared), "ditto")


def test_a_client_that_was_never_drawn_starts_from_the_model_of_the_first_start(tmp_path: Path):
    """Also where the server is started again with other arrays, such as a new random model."""
    text = "local+uniform(clients=1)"
    expected = start(made(text, None), grid_of(honest(text), None), text)
    assert set(expected.cohort[: KILLED - 1].ravel()) < set(expected.cohort.ravel())

    def killed(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train" and settings(message)[wire.ROUND] == KILLED:
            raise KilledError
        return honest(text)(message, context)

    run, models = tmp_path / "run", tmp_path / "models"
    with pytest.raises(KilledError):
        start(made(text, run), grid_of(killed, models), text)
    like = first_arrays(algorithm_of(text), task_of(text), SEEDS)
    other = wire.record_of(list(like), [wire.read(array) + 1 for array in like.values()])
    same(start(made(text, run), grid_of(honest(text), models), text, other), expected)


def test_a_new_deployment_with_the_same_settings_begins_anew(tmp_path: Path):
    text, models = "ditto+uniform(clients=2)", tmp_path / "models"
    expected = start(made(text, tmp_path / "a"), grid_of(honest(text), models), text)
    same(start(made(text, tmp_path / "b"), grid_of(honest(text), models), text), expected)
    folders = list((models / "node-0").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert 1 <= len(list(folder.iterdir())) <= 2


def test_clients_without_numbers_are_not_given_the_models_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """New nodes that do not say who they are cannot be matched to those of before."""
    text = "ditto"

    def server() -> FairStrategy:
        return strategy(algorithm_of(text), seeds=SEEDS, folder=tmp_path, min_available_nodes=4)

    monkeypatch.setattr(lifecycle, "reads_census", lambda _: False)
    with pytest.raises(KilledError):
        start(server(), grid_of(killing(honest(text)), None), text)
    with pytest.raises(ValueError, match="none of the connected nodes took part before"):
        start(server(), OneProcess(honest(text), [1, 2, 3, 4]), text)


def context_of(folder: Path) -> Context:
    return next(iter(grid_of(honest("ditto"), folder).contexts.values()))


def moment(number: int, trained: int | None, deployment: str = "0" * 16) -> Moment:
    return Moment(deployment, number, trained, 0)


def test_a_round_that_is_repeated_starts_from_the_same_model(tmp_path: Path):
    context, first = context_of(tmp_path), {"w": np.zeros(3)}
    for number, trained in ((1, 0), (3, 1), (4, 1), (4, 1)):  # the reply of round 3 was lost
        start = recall(context, moment(number, trained), first)
        assert start["w"].tolist() == [trained] * 3
        keep(context, moment(number, trained), {"w": np.full(3, float(number))})
    assert recall(context, moment(0, 9), first)["w"].tolist() == [4.0] * 3
    assert recall(context, moment(0, 3), first)["w"].tolist() == [1.0] * 3


def test_damage_and_a_forged_id_are_refused(tmp_path: Path):
    context, model = context_of(tmp_path), {"w": np.ones(30)}
    keep(context, moment(1, 0), model)
    (path,) = tmp_path.rglob("round-1.npz")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"round-1\.npz' is damaged .*Restore it from a backup"):
        recall(context, moment(2, 1), model)
    with pytest.raises(ValueError, match="must be 16 hexadecimal digits"):
        recall(context, moment(2, 1, "../../somewhere"), model)
