"""A server that is killed and started again ends where it would have ended; one that loses too many
clients says whom it lost.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import Result

from evenly.experiment.deployment import read_exclusions
from evenly.experiment.folder import folder_lock
from evenly.experiment.reopen import open_results
from evenly.flower import Caps, first_arrays, lifecycle, server_state, strategy, wire
from evenly.flower.adapter import FairStrategy
from evenly.flower.clients.jax import app
from evenly.records import replace
from evenly.types import Trace
from tests.flower.grids import NODES, OneProcess, reply, settings
from tests.flower.small import SEEDS, algorithm_of, small, task_of

CLIENTS, ROUNDS, KILLED = 4, 4, 3
METHODS = ["fedavg+parity(p=0.9)+server-adam(learning_rate=0.1)", "ditto"]
MORE = [
    "afl(form=stochastic)",
    "q-fedavg(q=1)+weighted(clients=3)",
    "fairfed+reweigh",
    "fedfb",
    "ifca(groups=2)",
    "e2fl(groups=2, inference=lowest-loss)",
]

Answer = Callable[[Message, Context], Message]


def grid_of(answer: Answer) -> OneProcess:
    return OneProcess(answer, NODES[:CLIENTS])


def honest(text: str) -> Answer:
    return app(small(CLIENTS), task_of(text))


def made(text: str, folder: Path | None, **more) -> FairStrategy:
    given = {"min_available_nodes": CLIENTS, "min_train_nodes": 1, "introduce": True, **more}
    return strategy(algorithm_of(text), seeds=SEEDS, folder=folder, **given)


def start(server: FairStrategy, grid: OneProcess, text: str) -> tuple[Result, Trace]:
    result = server.start(
        grid, first_arrays(algorithm_of(text), task_of(text), SEEDS), num_rounds=ROUNDS
    )
    return result, server.history.recorder.trace()


def killing(answer: Answer) -> Answer:
    """Ends the server when it asks clients to train in a round, before any has: what clients keep
    between rounds is theirs.
    """

    def answered(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train" and settings(message)[wire.ROUND] == KILLED:
            raise KeyboardInterrupt
        return answer(message, context)

    return answered


@pytest.mark.parametrize(
    "text", [*METHODS, *(pytest.param(text, marks=pytest.mark.slow) for text in MORE)]
)
def test_a_killed_server_goes_on_to_the_same_bits(text: str, tmp_path: Path):
    whole, expected = start(made(text, None), grid_of(honest(text)), text)
    grid = grid_of(killing(honest(text)))
    with pytest.raises(KeyboardInterrupt):
        start(made(text, tmp_path / "run"), grid, text)
    again = grid_of(honest(text))
    again.contexts = grid.contexts  # clients were not killed: what they keep they have
    result, trace = start(made(text, tmp_path / "run"), again, text)
    slots = expected.cohort.shape[1]
    assert (
        0
        < len([kind for kind, _ in again.asked if kind == "train"])
        <= slots * (ROUNDS - KILLED + 1)
    )
    same_bits(result.arrays, whole.arrays)
    assert result.train_metrics_clientapp == whole.train_metrics_clientapp
    assert result.evaluate_metrics_clientapp == whole.evaluate_metrics_clientapp
    assert list(result.evaluate_metrics_clientapp) == list(range(1, ROUNDS + 1))
    for name in ("rounds", "tables", "losses", "cohort", "weights", "choice"):
        np.testing.assert_array_equal(getattr(trace, name), getattr(expected, name), err_msg=name)
    read = open_results(tmp_path / "run").runs[0].trace
    np.testing.assert_array_equal(read.tables, expected.tables)


class KilledError(BaseException):
    """Ends a server wherever it is."""


@pytest.mark.parametrize(
    "place, error",
    [
        ("evaluate_fn", KilledError),
        ("before the state", RuntimeError),
        ("after the state", KilledError),
        pytest.param("evaluate_fn", RuntimeError, marks=pytest.mark.further),
        pytest.param("before the state", KilledError, marks=pytest.mark.further),
        pytest.param("after the state", RuntimeError, marks=pytest.mark.further),
    ],
)
def test_metrics_of_the_round_that_was_interrupted_are_kept(
    place: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A kill while the server evaluates, or just before or after the state is written, loses no
    metric and trains no round twice that was stored.
    """
    text, rounds, interrupted = "fedavg", [], 2

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        rounds.append(number)
        if place == "evaluate_fn" and rounds.count(interrupted) == 1 and number == interrupted:
            raise error("killed")
        return MetricRecord({"sum": float(sum(np.sum(wire.read(a)) for a in arrays.values()))})

    def killed(*given: Any, round: int, **more: Any) -> None:
        if place == "after the state" or round != interrupted:
            server_state.save(*given, round=round, **more)
        if round == interrupted:
            raise error("killed")

    def run(folder: Path) -> Result:
        first = first_arrays(algorithm_of(text), task_of(text), SEEDS)
        return made(text, folder).start(
            grid_of(honest(text)), first, num_rounds=ROUNDS, evaluate_fn=evaluate
        )

    if place != "evaluate_fn":
        monkeypatch.setattr(lifecycle, "save", killed)
    with pytest.raises(error):
        run(tmp_path / "run")
    monkeypatch.undo()
    stored = interrupted - (place == "before the state")
    assert server_state.rounds_done(tmp_path / "run") == stored
    found = run(tmp_path / "run")
    rounds.append(interrupted)  # so that it is not interrupted
    whole = run(tmp_path / "undisturbed")
    for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        assert getattr(found, kind) == getattr(whole, kind)
        assert list(getattr(found, kind)) == list(range(1, ROUNDS + 1))
    assert found.evaluate_metrics_serverapp == whole.evaluate_metrics_serverapp
    assert list(found.evaluate_metrics_serverapp) == list(range(ROUNDS + 1))


def test_training_in_the_folder_of_an_evaluation_starts_from_the_given_model(tmp_path: Path):
    text, folder = "fedavg", tmp_path / "run"
    whole, expected = start(made(text, None), grid_of(honest(text)), text)
    made(text, folder).evaluate(grid_of(honest(text)), whole.arrays)
    result, trace = start(made(text, folder), grid_of(honest(text)), text)
    same_bits(result.arrays, whole.arrays)
    np.testing.assert_array_equal(trace.tables, expected.tables)


def dying(answer: Answer, kind: str, lost: int) -> Answer:
    """One node is killed while it works in a round, and then the server is, before the round is
    over.
    """
    asked: list[int] = []

    def answered(message: Message, context: Context) -> Message:
        if message.metadata.message_type != kind or settings(message)[wire.ROUND] != KILLED:
            return answer(message, context)
        asked.append(int(context.node_config["partition-id"]))
        if asked[-1] == lost:
            answer(message, context)  # its work is lost
            raise RuntimeError("killed")
        if lost in asked and len(asked) > 2:
            raise KeyboardInterrupt
        return answer(message, context)

    return answered


@pytest.mark.parametrize(
    "text, kind",
    [
        ("fairfed", "train"),
        ("afl(form=local)", "query.measure"),
        ("fairfed", "evaluate"),
        pytest.param("afl(form=local)", "train", marks=pytest.mark.further),
        pytest.param("fairfed", "query.measure", marks=pytest.mark.further),
        pytest.param("afl(form=local)", "evaluate", marks=pytest.mark.further),
    ],
)
def test_a_node_and_then_the_server_killed_in_the_middle_of_a_round_change_nothing(
    text: str, kind: str, tmp_path: Path
):
    """The node comes back with another id and without anything that it kept, and the server from
    the file of the last round. Together they end with the bits of a run that was not interrupted.
    """
    options: dict[str, Any] = {"two_phase": kind == "query.measure"}
    undisturbed, lost = made(text, None, **options), 1
    whole, expected = start(undisturbed, grid_of(honest(text)), text)
    grid = grid_of(dying(honest(text), kind, lost))
    with pytest.raises(KeyboardInterrupt):
        start(made(text, tmp_path / "run", **options), grid, text)
    assert server_state.rounds_done(tmp_path / "run") == KILLED - 1
    again = OneProcess(honest(text), [999 if k == lost else NODES[k] for k in range(CLIENTS)])
    server = made(text, tmp_path / "run", **options)
    result, trace = start(server, again, text)
    same_bits(result.arrays, whole.arrays)
    for name in ("tables", "losses", "cohort", "weights"):
        np.testing.assert_array_equal(getattr(trace, name), getattr(expected, name), err_msg=name)
    after, kept = (one.history.state.state.memory for one in (server, undisturbed))
    np.testing.assert_array_equal(after.value, kept.value)
    assert after.seen.all()
    assert server.history.setting.roll.nodes[lost] == 999


def test_a_deployment_of_an_earlier_version_is_refused_and_not_restarted(tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start(made("fedavg", folder), grid_of(killing(honest("fedavg"))), "fedavg")
    path = folder / server_state.NAME
    with np.load(path) as file:
        held = dict(file)
    held["header"] = np.array(str(held["header"]).replace('"format": 2', '"format": 1'))
    with open(path, "wb") as file:
        np.savez(file, **held)  # pyright: ignore[reportArgumentType]
    before = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    grid = grid_of(honest("fedavg"))
    with pytest.raises(
        ValueError,
        match=r"run/state\.npz' was written by an earlier version.*only that version can train",
    ):
        start(made("fedavg", folder), grid, "fedavg")
    assert not [kind for kind, _ in grid.asked if kind != wire.CENSUS]
    after = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    assert {one.name for one in before.keys() ^ after.keys()} <= {".lock"}
    assert all(after[one] == text for one, text in before.items() if one.name != ".lock")


def same_bits(one: ArrayRecord, other: ArrayRecord) -> None:
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name].numpy(), other[name].numpy())


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished") / "run"
    return folder, start(made("fedavg", folder), grid_of(honest("fedavg")), "fedavg")[0]


def test_a_finished_run_is_not_done_again(finished: tuple[Path, Result]):
    """And what a killed server left half-written is removed."""
    folder, first = finished
    (folder / ".state.npz.123").write_bytes(b"half")
    (folder / "history" / ".000009.npz.123").write_bytes(b"half")
    grid = grid_of(honest("fedavg"))
    second, _ = start(made("fedavg", folder), grid, "fedavg")
    assert not [kind for kind, _ in grid.asked if kind in ("train", "evaluate")]
    same_bits(second.arrays, first.arrays)
    assert not [path.name for path in folder.rglob(".*")]


def test_another_method_is_refused(finished: tuple[Path, Result]):
    with pytest.raises(
        ValueError,
        match=r"belongs to another run: the method differs, there fedavg.*, here q-fedavg",
    ):
        start(made("q-fedavg", finished[0]), grid_of(honest("q-fedavg")), "q-fedavg")


def test_another_setting_of_a_method_that_is_an_object_is_refused(finished: tuple[Path, Result]):
    plain = algorithm_of("fedavg")
    other = strategy(
        replace(plain, work=replace(plain.work, epochs=7)),
        seeds=SEEDS,
        folder=finished[0],
        introduce=True,
    )
    with pytest.raises(
        ValueError,
        match=r"belongs to another run: .* differs, there fedavg.*, here fedavg.*epochs=7",
    ):
        start(other, grid_of(honest("fedavg")), "fedavg")


def test_too_few_are_left_and_the_folder_says_who(tmp_path: Path):
    """All but one send rubbish in round 2."""
    good = honest("fedavg")

    def answer(message: Message, context: Context) -> Message:
        found = good(message, context)
        number = context.node_config["partition-id"]
        if (
            message.metadata.message_type == "train"
            and settings(message)[wire.ROUND] == 2
            and number != 0
        ):
            return reply(message, found.content["arrays"], {wire.EXAMPLES: -5})  # pyright: ignore[reportArgumentType]
        return found

    server = made("fedavg", tmp_path / "run", min_train_nodes=2)
    with pytest.raises(
        ValueError,
        match=(
            r"Round 2 .* of the 4 chosen clients must send a usable reply.*and 1 did.*sent -5 as"
            r" 'num-ex"
        ),
    ):
        start(server, grid_of(answer), "fedavg")
    left, _ = read_exclusions(tmp_path / "run")
    assert sorted(one.client for one in left if one.round == 2) == [1, 2, 3]
    comparison = open_results(tmp_path / "run")
    assert comparison.incidents is not None
    assert "sent -5 as" in comparison.incidents.left_out[-1].reason


LIED_TO = [
    "q-fedavg(q=1)",
    "afl(form=local)",
    "term(alpha=1, weights=equal)",
    "p-fedavg(family=geometric)",
]


@pytest.mark.parametrize(
    "text", [*LIED_TO[:2], *(pytest.param(text, marks=pytest.mark.slow) for text in LIED_TO[2:])]
)
def test_a_client_that_claims_a_huge_loss_is_bounded_and_flagged(text: str, tmp_path: Path):
    good = honest(text)

    def answer(message: Message, context: Context) -> Message:
        found = good(message, context)
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 2:
            found.content.metric_records["metrics"][wire.LOSS] = 1e5
        return found

    _, free = start(made(text, None), grid_of(answer), text)
    _, bound = start(
        made(text, tmp_path / "run", caps=Caps(loss="5x", coefficient=0.4)), grid_of(answer), text
    )
    liar = [int(np.flatnonzero(row == 2)[0]) for row in free.cohort]
    assert max(free.weights[np.arange(ROUNDS), liar]) > 0.5
    assert max(bound.weights[np.arange(ROUNDS), liar]) <= 0.4 + 1e-6
    np.testing.assert_allclose(bound.weights.sum(1), 1.0, rtol=1e-5)
    _, flagged = read_exclusions(tmp_path / "run")
    assert {
        one.flag.client for one in flagged if one.flag.what == "loss" and one.flag.said > 1e4
    } == {2}
    page = (tmp_path / "run" / "report.html").read_text()
    section = page[page.index('<section id="left-out"') :].split("</section>")[0]
    assert "client 2" in section
    assert "1e+05" in section


def test_one_server_at_a_time_works_in_a_folder(tmp_path: Path):
    grid = grid_of(honest("fedavg"))
    with (
        folder_lock(tmp_path / "run"),
        pytest.raises(ValueError, match=r"is working in the folder .* or choose another folder\."),
    ):
        start(made("fedavg", tmp_path / "run"), grid, "fedavg")
    assert not grid.asked
