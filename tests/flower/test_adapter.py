"""The server's loop: what is called in which order, how long it waits, and what it refuses."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import Result

from evenly.flower import first_arrays, lifecycle, recorder, strategy
from evenly.flower.clients.jax import app
from evenly.flower.recorder import Recorder
from evenly.watch.state import WatchState
from tests.flower.grids import NODES, OneProcess, reply, settings
from tests.flower.small import SEEDS, algorithm_of, small, task_of

SIZES = (10, 40, 20, 5, 30, 60)
EMPTY = ConfigRecord()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of the log reach the tests, and no report is written: tests/flower/test_recorder.py is
    about those.
    """
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    monkeypatch.setattr(Recorder, "_write_report", lambda *_: None)


def first() -> ArrayRecord:
    return ArrayRecord(
        {"w": Array(np.zeros(3, np.float32)), "running_mean": Array(np.zeros(2, np.float32))}
    )


def client(message: Message, context: Context) -> Message:
    """Adds its number to every entry."""
    k = int(context.node_config["partition-id"])
    if message.metadata.message_type == "evaluate":
        return reply(message, None, {"num-examples": SIZES[k], "accuracy": 0.5})
    moved = {
        name: Array(array.numpy() + np.float32(k))
        for name, array in message.content.array_records["arrays"].items()
    }
    return reply(message, ArrayRecord(moved), {"num-examples": SIZES[k], "loss": 1.0})


def test_a_round_is_configured_before_it_is_aggregated():
    made, grid = strategy("fedavg"), OneProcess(client)
    with pytest.raises(ValueError, match="has not begun"):
        made.aggregate_train(1, [])
    asked = made.configure_train(1, first(), EMPTY, grid)
    with pytest.raises(ValueError, match="Round 2 was not configured"):
        made.aggregate_train(2, [])
    with pytest.raises(ValueError, match="evaluation of round 1 was not configured"):
        made.aggregate_evaluate(1, [])
    arrays, _ = made.aggregate_train(1, grid.send_and_receive(asked))
    assert arrays is not None
    with pytest.raises(ValueError, match="Round 1 was not configured"):
        made.aggregate_train(1, [])
    with pytest.raises(ValueError, match="evaluation of round 1 was not configured"):
        made.aggregate_evaluate(1, [])
    evaluating = grid.send_and_receive(made.configure_evaluate(1, arrays, EMPTY, grid))
    with pytest.raises(ValueError, match="evaluation of round 2 was not configured"):
        made.aggregate_evaluate(2, evaluating)
    found = made.aggregate_evaluate(1, evaluating)
    assert found is not None
    assert found["accuracy"] == pytest.approx(0.5)


def test_traffic_is_the_model_once_in_each_direction():
    made = strategy("fedavg")
    found = made.start(OneProcess(client), first(), num_rounds=1)
    trace = made.history.recorder.trace()
    assert trace.download == found.arrays.count_bytes()
    assert trace.upload == sum(len(array.data) for array in found.arrays.values())


def test_statistics_that_nobody_learns_are_averaged_by_coefficients():
    found = strategy("fedavg").start(OneProcess(client), first(), num_rounds=1).arrays
    expected = np.average(np.arange(6), weights=SIZES)
    np.testing.assert_allclose(found["running_mean"].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(found["w"].numpy(), expected, rtol=1e-6)


def test_statistics_stay_in_a_round_in_which_nobody_counts():
    found = strategy("local").start(OneProcess(client), first(), num_rounds=1).arrays
    assert not found["running_mean"].numpy().any()
    assert not found["w"].numpy().any()


@pytest.mark.parametrize(
    "fraction, least, count", [(0.1, 2, 2), (0.1, 0, 0), (0.67, 2, 4), (1.0, 9, 6)]
)
def test_a_share_of_the_clients_evaluates_but_not_fewer_than_the_least(
    fraction: float, least: int, count: int
):
    grid = OneProcess(client)
    made = strategy(
        "fedavg", fraction_evaluate=fraction, min_evaluate_nodes=least, min_available_nodes=6
    )
    made.start(grid, first(), num_rounds=1)
    assert len([kind for kind, _ in grid.asked if kind == "evaluate"]) == count


def test_the_summary_names_what_clients_must_send(caplog: pytest.LogCaptureFixture):
    plain, masked = (
        strategy("q-fedavg(q=1)", weighted_by_key="rows"),
        strategy("fairfed", two_phase=True),
    )
    assert plain.reply_metrics == ["rows", "loss"]
    assert masked.reply_metrics == ["num-examples", "table"]
    with caplog.at_level("INFO", "flwr"):
        plain.summary()
        assert "arrays, rows, loss" in caplog.text
        assert "wo phases" not in caplog.text
        masked.summary()
        assert "wo phases" in caplog.text


# The clock: nobody really waits.


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_missing_clients_are_waited_for_in_steps_until_the_timeout(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    class Lost(OneProcess):
        def get_node_ids(self) -> list[int]:
            return (
                self.nodes[:1]
                if any(kind == "train" for kind, _ in self.asked)
                else list(self.nodes)
            )

    clock = Clock()
    monkeypatch.setattr(lifecycle, "time", clock)
    with pytest.raises(ValueError, match=r"the 6 chosen clients must send .* and 1 did"):
        strategy("fedavg", fraction_evaluate=0.0).start(
            Lost(client), first(), num_rounds=2, timeout=7.0
        )
    assert clock.slept == [3.0, 3.0, 1.0]
    assert (
        len([one for one in caplog.records if "1 of 6 chosen clients are connected" in one.message])
        == 1
    )


def test_one_client_that_is_enough_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    clock = Clock()
    monkeypatch.setattr(lifecycle, "time", clock)
    grid = OneProcess(client)
    made = strategy("fedavg", min_train_nodes=1, fraction_evaluate=0.0)
    made.configure_train(1, first(), EMPTY, grid)
    grid.nodes = grid.nodes[:1]
    asked = list(made.configure_train(1, first(), EMPTY, grid))
    assert [message.metadata.dst_node_id for message in asked] == [NODES[0]]
    assert clock.slept == []


def test_nodes_that_come_late_are_reported_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "flwr")
    grid = OneProcess(client, NODES)
    # it keeps a number for each client
    made = strategy("afl(form=per-domain)", fraction_evaluate=0.0)
    said = []
    for number, nodes in enumerate([NODES[:3], NODES[:4], NODES[:4], NODES[:6], NODES[:3]], 1):
        grid.nodes = [*map(int, nodes)]
        caplog.clear()
        made.aggregate_train(
            number, grid.send_and_receive(made.configure_train(number, first(), EMPTY, grid))
        )
        said.append([one.args for one in caplog.records if "join from now on" in one.message])
    assert said == [[], [([3],)], [], [([4, 5],)], []]


# The run as a whole.


def central(numbers: list[int]) -> Any:
    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        numbers.append(number)
        return (
            MetricRecord({"norm": float(np.abs(arrays["w"].numpy()).sum())})
            if number != 2
            else None
        )

    return evaluate


def test_the_server_evaluates_before_the_first_round_and_after_each_and_not_again_after_a_restart(
    tmp_path: Path,
):
    def run(rounds: int) -> tuple[list[int], Result]:
        numbers: list[int] = []
        made = strategy("fedavg", folder=tmp_path / "run")
        return numbers, made.start(
            OneProcess(client), first(), num_rounds=rounds, evaluate_fn=central(numbers)
        )

    numbers, before = run(1)
    assert numbers == [0, 1]
    step = 3 * np.average(np.arange(6), weights=SIZES)
    assert before.evaluate_metrics_serverapp[0]["norm"] == 0
    assert before.evaluate_metrics_serverapp[1]["norm"] == pytest.approx(step)
    numbers, after = run(3)
    assert numbers == [2, 3]
    assert list(after.evaluate_metrics_serverapp) == [0, 1, 3]
    assert after.evaluate_metrics_serverapp[3]["norm"] == pytest.approx(3 * step)
    assert (
        list(after.train_metrics_clientapp) == list(after.evaluate_metrics_clientapp) == [1, 2, 3]
    )
    numbers, again = run(3)
    assert numbers == []
    np.testing.assert_array_equal(again.arrays["w"].numpy(), after.arrays["w"].numpy())


def test_averages_of_later_rounds_than_the_state_are_not_put_back(tmp_path: Path):
    kept = Result()
    kept.train_metrics_clientapp = {
        number: MetricRecord({"loss": float(number)}) for number in (1, 2, 3)
    }
    recorder.write_metrics(tmp_path, kept)
    found = Result()
    recorder.read_metrics(tmp_path, found, 2)
    assert found.train_metrics_clientapp == {1: {"loss": 1.0}, 2: {"loss": 2.0}}
    (tmp_path / recorder.METRICS).write_text(json.dumps({"schema": 1, "train": {"one": 3}}))
    damaged = Result()
    recorder.read_metrics(tmp_path, damaged, 2)
    assert damaged.train_metrics_clientapp == {}


@pytest.mark.parametrize(
    "error, status", [(KeyboardInterrupt, "stopped"), (RuntimeError, "failed")]
)
def test_a_run_that_ends_early_is_followed_to_its_end(
    error: type[BaseException], status: str, tmp_path: Path
):
    def broken(number: int, arrays: ArrayRecord) -> None:
        if number:
            raise error("somebody ended it")

    with pytest.raises(error):
        strategy("fedavg", folder=tmp_path / "run").start(
            OneProcess(client), first(), num_rounds=2, evaluate_fn=broken
        )
    assert WatchState(tmp_path / "run").look()["status"] == status


def test_a_server_that_is_stopped_in_the_final_pass_does_it_once(tmp_path: Path):
    """In the final pass everybody takes part, after the last of so many rounds in which two do."""
    text, rounds = "e2fl(groups=2, final_pass=true)+uniform(clients=2)", 2
    honest = app(small(4), task_of(text))
    stopped = SimpleNamespace(at=rounds + 1)

    def answer(message: Message, context: Context) -> Message:
        if (
            message.metadata.message_type == "train"
            and settings(message)["server-round"] == stopped.at
        ):
            raise KeyboardInterrupt
        return honest(message, context)

    def run() -> list[int]:
        grid = OneProcess(answer, NODES[:4])
        made = strategy(
            text,
            seeds=SEEDS,
            folder=tmp_path / "run",
            min_available_nodes=4,
            introduce=True,
            fraction_evaluate=0.5,
        )
        try:
            made.start(
                grid, first_arrays(algorithm_of(text), task_of(text), SEEDS), num_rounds=rounds
            )
        except KeyboardInterrupt:
            return [-1]
        cohorts = made.history.recorder.trace().cohort
        return [len([kind for kind, _ in grid.asked if kind == "train"]), len(cohorts)]

    assert run() == [-1]
    stopped.at = 0
    assert run() == [4, 3]
    assert run() == [0, 3]
