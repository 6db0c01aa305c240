"""The strategy as a Flower user meets it: the same replies, the same options, and plain words where
something is missing.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg as FlowersFedAvg
from flwr.serverapp.strategy import QFedAvg as FlowersQFedAvg
from flwr.serverapp.strategy import Strategy

from evenly.algorithms import METHODS, algorithm, variants
from evenly.algorithms.q_fedavg import QFedAvg
from evenly.experiment.deployment import Exclusion
from evenly.experiment.reopen import open_results
from evenly.flower import Caps, strategy, wire
from evenly.flower.messages import START_AGAIN, quote_reasons
from evenly.flower.roster import algorithm_of, notation_of
from evenly.notation import parse
from evenly.parts.sampling import SAMPLINGS, Full, Weighted
from evenly.privacy.row_account import reads_census
from evenly.randomness import Draws
from evenly.records import replace
from evenly.types import Algorithm, Seeds
from tests.flower.grids import NODES, OneProcess, reply, settings

RATE = 0.1
SIZES, LOSSES = (10, 40, 20, 5, 30, 60), (0.5, 1.5, 0.9, 2.0, 0.3, 0.7)


def first() -> ArrayRecord:
    draw = np.random.default_rng(0)
    return ArrayRecord(
        {
            "layer.weight": Array(draw.normal(size=(4, 3)).astype(np.float32)),
            "layer.bias": Array(np.zeros(3, np.float32)),
        }
    )


def client(message: Message, context: Context, **metrics: Any) -> Message:
    """Moves every weight by something of its own; says how many rows it has and what the model it
    received costs it.
    """
    k = int(context.node_config["partition-id"])
    if message.metadata.message_type == "evaluate":
        return reply(
            message, None, {"num-examples": SIZES[k], "accuracy": k / 10, "loss": LOSSES[k]}
        )
    # there is none in a question such as a census: then it fails
    received = message.content["arrays"]
    assert isinstance(received, ArrayRecord)
    draw = np.random.default_rng(k)
    moved = {
        name: Array((a.numpy() + RATE * draw.normal(size=a.shape)).astype(np.float32))
        for name, a in received.items()
    }
    return reply(
        message, ArrayRecord(moved), {"num-examples": SIZES[k], "loss": LOSSES[k], **metrics}
    )


def ran(
    made: Strategy, answer: Any = client, rounds: int = 3, **more: Any
) -> dict[str, np.ndarray]:
    grid = OneProcess(answer, **more)
    return {
        name: array.numpy()
        for name, array in made.start(grid, first(), num_rounds=rounds).arrays.items()
    }


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-6, err_msg=name)


# Beside Flower's own strategies.


def test_fedavg_is_flowers():
    same(ran(strategy("fedavg")), ran(FlowersFedAvg()))


@pytest.mark.parametrize("q", [0.5, 2.0])
def test_q_fedavg_is_flowers(q: float):
    ours, theirs = (
        strategy(QFedAvg(q=q, lipschitz=1 / RATE)),
        FlowersQFedAvg(client_learning_rate=RATE, q=q, train_loss_key="loss"),
    )
    same(ran(ours, rounds=1), ran(theirs, rounds=1))


def test_flowers_own_loop_around_the_strategy_does_the_same():
    made = strategy("q-fedavg(q=1)")
    looped = Strategy.start(made, OneProcess(client), first(), num_rounds=3)
    same(
        {name: array.numpy() for name, array in looped.arrays.items()},
        ran(strategy("q-fedavg(q=1)")),
    )


def test_a_strategy_may_be_started_again_as_flowers_may():
    made = strategy("fedavg")
    same(ran(made), ran(made))
    once = made.start(OneProcess(client), first(), num_rounds=1)
    twice = made.start(OneProcess(client), once.arrays, num_rounds=2)
    assert list(twice.train_metrics_clientapp) == [1, 2]
    same({name: array.numpy() for name, array in twice.arrays.items()}, ran(strategy("fedavg")))


def test_a_strategy_around_it_may_change_the_model():
    made, grid = strategy("fedavg"), OneProcess(client)
    zeros = ArrayRecord({name: Array(np.zeros(a.shape, np.float32)) for name, a in first().items()})
    for number, arrays in ((1, first()), (2, zeros)):
        found, _ = made.aggregate_train(
            number,
            grid.send_and_receive(made.configure_train(number, arrays, ConfigRecord(), grid)),
        )
        made.configure_evaluate(number, arrays, ConfigRecord(), grid)
    assert found is not None
    mean = sum(
        n * RATE * np.random.default_rng(k).normal(size=(4, 3)) for k, n in enumerate(SIZES)
    ) / sum(SIZES)
    np.testing.assert_allclose(found["layer.weight"].numpy(), mean, rtol=1e-5)


def test_weights_never_touch_what_is_reported():
    made = strategy("q-fedavg(q=5)")
    result = made.start(
        OneProcess(lambda m, c: client(m, c, mine=[1.0, float(c.node_config["partition-id"])])),
        first(),
        num_rounds=2,
    )
    by_size = np.average(LOSSES, weights=SIZES)
    assert result.train_metrics_clientapp[2]["loss"] == pytest.approx(by_size)
    assert result.train_metrics_clientapp[2]["mine"] == pytest.approx(
        [1.0, np.average(np.arange(6), weights=SIZES)]
    )
    assert result.evaluate_metrics_clientapp[2]["accuracy"] == pytest.approx(
        np.average(np.arange(6) / 10, weights=SIZES)
    )
    # while the weights themselves are far from sizes
    assert made.history.recorder.trace().weights[1].max() > 0.5


@pytest.mark.parametrize(
    "metrics",
    [
        {"num-examples": [5, 6]},
        {"num-examples": float("nan")},
        {"num-examples": -100},
        {"accuracy": float("nan")},
    ],
)
def test_what_one_client_sends_does_not_cost_the_mean_of_the_others(metrics: dict[str, Any]):
    def odd(message: Message, context: Context) -> Message:
        sent = client(message, context)
        sent.content["mine"] = MetricRecord({"seconds": 1.0})  # a second record of metrics
        if message.metadata.message_type == "evaluate" and context.node_config["partition-id"] == 5:
            return reply(message, None, {"num-examples": 60, "accuracy": 0.5, **metrics})
        return sent

    result = strategy("fedavg").start(OneProcess(odd), first(), num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(
        np.average(np.arange(5) / 10, weights=SIZES[:5])
    )


def test_metrics_may_be_averaged_in_ones_own_way():
    mine = strategy(
        "fedavg",
        train_metrics_aggr_fn=lambda contents, key: MetricRecord(
            {"replies": len(contents), "by": len(key)}
        ),
    )
    result = mine.start(OneProcess(client), first(), num_rounds=1)
    assert dict(result.train_metrics_clientapp[1]) == {"replies": 6, "by": len("num-examples")}


def test_records_may_have_other_names():
    def renamed(message: Message, context: Context) -> Message:
        assert "settings" in message.content
        message.content["arrays"] = message.content.pop("weights")
        return client(message, context)

    same(
        ran(strategy("fedavg", arrayrecord_key="weights", configrecord_key="settings"), renamed),
        ran(strategy("fedavg")),
    )


# Who takes part.


@pytest.mark.parametrize(
    ("fraction", "least", "count"), [(0.5, 2, 3), (0.2, 2, 2), (1.0, 2, 6), (0.2, 4, 4)]
)
def test_a_fraction_is_drawn_uniformly_by_the_seed_and_as_many_as_flower_draws(
    fraction: float, least: int, count: int
):
    made = strategy(
        "fedavg",
        fraction_train=fraction,
        min_train_nodes=least,
        seeds=Seeds(cohort=7),
        min_available_nodes=6,
    )
    ran(made)
    cohort = made.history.recorder.trace().cohort
    expected = [Draws(7, "cohort").at(t).choice(6, count, replace=False) for t in range(3)]
    np.testing.assert_array_equal(cohort, expected)
    assert isinstance(made.algorithm.rule, type(algorithm("fedavg").rule))
    assert made.algorithm.rule.counts_sizes  # drawn uniformly, so sizes belong in the weights


def test_everybody_takes_part_where_no_sampling_is_named():
    assert isinstance(algorithm_of("q-fedavg(q=1)").select, Full)
    assert isinstance(algorithm_of("q-fedavg(q=1)+weighted(clients=3)").select, Weighted)
    with pytest.raises(
        ValueError, match=r"names the sampling \+weighted, and fraction_train is set, too"
    ):
        strategy("fedavg+weighted(clients=3)", fraction_train=0.5)


def test_only_some_evaluate():
    grid = OneProcess(client)
    strategy("fedavg", fraction_evaluate=0.5, min_available_nodes=6).start(
        grid, first(), num_rounds=1
    )
    assert len([kind for kind, _ in grid.asked if kind == "evaluate"]) == 3
    grid = OneProcess(client)
    strategy("fedavg", fraction_evaluate=0.0).start(grid, first(), num_rounds=1)
    assert {kind for kind, _ in grid.asked} == {"train"}


@pytest.mark.parametrize("text", ["q-fedavg(q=1)", "afl(form=per-domain)"])
def test_nodes_that_come_later_take_part(text: str):
    """Also where something is kept for each client. More of it is in test_joining.py."""
    grid = OneProcess(client)
    made = strategy(text)
    late, grid.nodes = grid.nodes[3:], grid.nodes[:3]
    made.aggregate_train(
        1, grid.send_and_receive(made.configure_train(1, first(), ConfigRecord(), grid))
    )
    grid.nodes += late
    asked = list(made.configure_train(2, first(), ConfigRecord(), grid))
    assert len(asked) == 6


# What clients are asked for.


@pytest.mark.parametrize("share", [None, 1.0])
def test_clients_keep_their_numbers_when_others_are_there_after_a_restart(
    share: float | None, tmp_path: Path
):
    def on(nodes: tuple[int, ...], rounds: int) -> Any:
        made = strategy("fedavg", folder=tmp_path / "run", fraction_train=share)
        made.start(OneProcess(client, nodes), first(), num_rounds=rounds)
        return made.history.recorder

    assert on((30, 60, 70), 1).about.nodes == (30, 60, 70)
    assert on((60, 10, 30), 2).about.nodes == (30, 60, 70, 10)
    # a server of Flower that numbers everybody anew
    assert on((5, 6), 3).about.nodes == (5, 6, 70, 10)
    found = open_results(tmp_path / "run")
    assert found.federation.clients == 4
    assert found.incidents is not None
    assert {(one.node, one.round) for one in found.incidents.left_out} == {
        (70, 2),
        (70, 3),
        (10, 3),
    }


def test_where_something_is_known_of_each_client_only_strangers_are_refused(tmp_path: Path):
    def introducing(message: Message, context: Context) -> Message:
        if message.metadata.message_type != wire.CENSUS:
            return client(message, context)
        size = SIZES[int(context.node_config["partition-id"])]
        return reply(message, None, {"num-examples": size, "cells": [size], "cells-shape": [1, 1]})

    def on(nodes: tuple[int, ...], rounds: int = 1) -> Any:
        made = strategy("fedavg", folder=tmp_path / "run", introduce=True)
        made.start(OneProcess(introducing, nodes), first(), num_rounds=rounds)
        return made.history.recorder.about

    on((30, 60, 70))
    assert on((60, 70, 30)).nodes == (30, 60, 70)
    # who is away keeps its number, and who is new gets the next one
    assert on((30, 60, 71), rounds=2).nodes == (30, 60, 70, 71)
    with pytest.raises(
        ValueError, match=r"clients cannot be matched\. Wait for all with min_available_nodes=4"
    ):
        on((31, 61, 72), rounds=3)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("fedavg", False),
        ("q-fedavg", False),
        ("term", False),
        ("p-fedavg", False),
        ("fedmgda", False),
        ("ditto", False),
        ("afl(form=full)", False),
        ("afl(form=local)", True),
        ("fairfed", True),
        ("fedfb", True),
        ("fedcvg-ratio", True),
        ("frl", False),
        ("fedcvg", True),
        ("fedavg+weighted(clients=2)", True),
        ("fedavg+parity", True),
        ("fedavg+uniform(clients=2)", False),
        ("e2fl", True),
        ("e2fl(inference=lowest-loss, groups=2)", False),
        ("ifca", False),
    ],
)
def test_a_census_is_asked_for_only_where_the_method_begins_with_one(text: str, asks: bool):
    assert reads_census(algorithm_of(text)) == asks


def test_without_an_answer_to_the_census_it_is_said_how_to_give_one():
    with pytest.raises(ValueError, match=r"needs a census of its clients.*@app.query\('census'\)"):
        ran(strategy("fedavg+weighted(clients=2)"))


def test_reasons_that_clients_share_are_quoted_once_and_without_where_in_their_code_it_was():
    def erring(message: Message, context: Context) -> Message:
        if context.node_id in NODES[:2]:
            raise ValueError("no such table")
        raise RuntimeError(
            'Traceback (most recent call last):\n  File "/home/ann/client.py", line 3\nKeyError:'
            " \x1b[31mage"
        )

    with pytest.raises(ValueError) as census:
        ran(strategy("fedavg", introduce=True), erring, silent=[NODES[5]])
    with pytest.raises(ValueError) as training:
        ran(strategy("fedavg"), erring, silent=[NODES[5]])
    asked = "was asked for the census and "
    assert str(census.value).endswith(
        f"Node 60, like 2 others, {asked}crashed: KeyError: [31mage. Node 70, like 1 other,"
        f" {asked}crashed: no such table. Node 20 {asked}did not answer in time. {START_AGAIN}"
    )
    assert "Node 10 (client 0), like 2 others, crashed: KeyError: [31mage. Node 30" in str(
        training.value
    )
    assert str(training.value).count("no such table") == 1


def test_of_many_reasons_the_most_frequent_are_quoted():
    left_out = [Exclusion(k, k, 1, f"reason {max(k, 3)}", "an error", "train") for k in range(10)]
    assert (
        quote_reasons(left_out)
        == "Node 0 (client 0), like 3 others, reason 3. Node 4 (client 4) reason 4. Node 5 (client"
        " 5) reason 5. Node 6 (client 6) reason 6. Node 7 (client 7) reason 7. 2 more were left"
        " out for other reasons."
    )


def test_a_missing_signal_names_the_node_the_key_and_how_to_send_it():
    def silent(message: Message, context: Context) -> Message:
        sent = client(message, context)
        metrics = sent.content["metrics"]
        assert isinstance(metrics, MetricRecord)
        del metrics["loss"]
        return sent

    with pytest.raises(
        ValueError,
        match=(
            r"Node \d+ \(client \d\), like 5 others, sent no 'loss'.*loss of the model it"
            r" received.*metrics\['loss'\] = "
        ),
    ):
        ran(strategy("q-fedavg(q=1)"), silent)


def test_the_round_goes_on_without_those_who_err_or_are_silent():
    def erring(message: Message, context: Context) -> Message:
        if context.node_id == NODES[1]:
            raise RuntimeError("out of memory")
        return client(message, context)

    made = strategy("fedavg", min_available_nodes=6)
    found = ran(made, erring, rounds=1, silent=[NODES[4]])
    left = {
        (one.node, one.reason) for one in made.history.recorder.left_out if one.phase == "train"
    }
    assert left == {(NODES[1], "crashed: out of memory"), (NODES[4], "did not answer in time")}
    others = [k for k in range(6) if k not in (1, 4)]
    mean = sum(
        SIZES[k] * RATE * np.random.default_rng(k).normal(size=(4, 3)) for k in others
    ) / sum(SIZES[k] for k in others)
    np.testing.assert_allclose(
        found["layer.weight"], first()["layer.weight"].numpy() + mean, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("fedavg", np.full(3, 1e300)),
        ("q-fedavg(q=1)", np.full(3, 1e30, np.float32)),
        ("fedmgda", np.full(3, 1e30, np.float32)),
    ],
)
def test_numbers_that_are_finite_and_too_large_are_left_out_and_told(text: str, sent: np.ndarray):
    def huge(message: Message, context: Context) -> Message:
        found = client(message, context)
        if message.metadata.message_type == "train" and context.node_id == NODES[1]:
            found.content.array_records["arrays"]["layer.bias"] = Array(sent)
        return found

    made = strategy(text)
    found = ran(made, huge, rounds=2)
    assert all(np.abs(array).max() < 10 for array in found.values())
    left = [
        (one.node, one.round)
        for one in made.history.recorder.left_out
        if "NaN or infinity" in one.reason
    ]
    assert left == [(NODES[1], 1), (NODES[1], 2)]
    assert made.history.recorder.trace().excluded.sum() == 2


def test_too_few_replies_stop_the_run_with_the_reasons():
    made = strategy("fedavg", min_available_nodes=6, min_train_nodes=3)
    with pytest.raises(
        ValueError,
        match=(
            r"Round 1 of fedavg: at least 3 of the 6 chosen clients .*min_train_nodes.*and 2"
            r" did.*did not answer in time"
        ),
    ):
        ran(made, silent=NODES[:4])


def test_what_is_sent_is_the_record():
    seen: list[ConfigRecord] = []

    def noting(message: Message, context: Context) -> Message:
        seen.append(settings(message))
        return client(message, context)

    made = strategy("q-fedavg(q=1, learning_rate=0.05)", seeds=Seeds(batches=9))
    made.start(
        OneProcess(noting),
        first(),
        num_rounds=1,
        train_config=ConfigRecord({"lr": 0.05}),
        evaluate_config=ConfigRecord({"big": True}),
    )
    train, evaluate = (next(c for c in seen if key in c) for key in ("lr", "big"))
    assert train[wire.METHOD] == "q-fedavg(lipschitz=20, learning_rate=0.05)+full"
    assert (train[wire.ROUND], train[wire.BATCH_SEED], evaluate[wire.ROUND]) == (1, 9, 1)
    assert sorted(int(c[wire.CLIENT]) for c in seen if "lr" in c) == list(range(6))  # pyright: ignore[reportArgumentType]


# Arrays of other kinds.


def test_whole_numbers_are_carried_and_half_precision_stays():
    start = ArrayRecord(
        {
            "weight": Array(np.ones(4, np.float16)),
            "num_batches_tracked": Array(np.array(3, np.int64)),
            "scale": Array(np.ones(2, np.float64)),
        }
    )

    def counting(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        received = message.content["arrays"]
        assert isinstance(received, ArrayRecord)
        step = {
            "weight": np.float16(k),
            "num_batches_tracked": np.int64(k),
            "scale": np.float64(1e-12),
        }
        moved = {
            name: Array(np.asarray(a.numpy() + step[name], a.numpy().dtype))
            for name, a in received.items()
        }
        return reply(message, ArrayRecord(moved), {"num-examples": 1})

    found = (
        strategy("fedavg", fraction_evaluate=0.0)
        .start(OneProcess(counting), start, num_rounds=1)
        .arrays
    )
    assert [found[name].dtype for name in start] == ["float16", "int64", "float64"]
    np.testing.assert_allclose(found["weight"].numpy(), 1 + 2.5, rtol=1e-3)
    assert found["num_batches_tracked"].numpy() == 6  # 3 and the mean of 0 to 5, rounded to even
    np.testing.assert_allclose(found["scale"].numpy() - 1, 1e-12, rtol=1e-3)


def test_statistics_of_normalisation_do_not_shorten_the_step():
    def answer(message: Message, context: Context) -> Message:
        received = message.content["arrays"]
        assert isinstance(received, ArrayRecord)
        moved = {
            name: Array(a.numpy() + np.float32(100 if "running" in name else 0.1))
            for name, a in received.items()
        }
        return reply(message, ArrayRecord(moved), {"num-examples": 1, "loss": 0.7})

    weight, seen = Array(np.ones(4, np.float32)), Array(np.ones(4, np.float32))
    found = {}
    for case, start in {
        "with": {"weight": weight, "norm.running_var": seen},
        "without": {"weight": weight},
    }.items():
        made = strategy(
            "q-fedavg(q=1, learning_rate=0.1)", fraction_evaluate=0.0, caps=Caps(norm=1.0)
        )
        found[case] = made.start(OneProcess(answer), ArrayRecord(start), num_rounds=1).arrays
    np.testing.assert_array_equal(
        found["with"]["weight"].numpy(), found["without"]["weight"].numpy()
    )
    np.testing.assert_allclose(found["with"]["norm.running_var"].numpy(), 101)


def test_the_first_arrays_must_be_the_tasks_model(task: Any):
    with pytest.raises(
        ValueError,
        match=r"The model has an array 'b', but the record holds only 'layer.weight', 'layer.bias'",
    ):
        strategy("fedavg", task=task).start(OneProcess(client), first())
    with pytest.raises(ValueError, match=r"holds floats, so there is nothing to learn"):
        strategy("fedavg").start(OneProcess(client), ArrayRecord({"n": Array(np.array(3))}))


def test_what_only_a_simulation_can_do_is_refused():
    def answer(message: Message, context: Context) -> Message:
        metrics: dict[str, Any] = {"num-examples": 3}
        wire.put(metrics, "cells", [[1, 2]])
        return reply(message, None, metrics)

    with pytest.raises(
        ValueError,
        match=r"people = true a client sends one order for each group.*Start a SuperNode for each",
    ):
        strategy("e2fl(groups=2, people=true)").start(OneProcess(answer), first())
    with pytest.raises(
        ValueError, match=r"known_votes measures in a simulation.*leave it out alone"
    ):
        strategy("e2fl(groups=2, inference=one-shot, known_votes=true)").start(
            OneProcess(answer), first()
        )


def test_clients_that_are_gone_for_a_while_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    class Reconnecting(OneProcess):
        """After the first round nobody is connected the next few times that somebody looks."""

        gone = 4

        def get_node_ids(self):
            if self.asked and self.asked[-1][0] == "evaluate" and self.gone:
                self.gone -= 1
                return []
            return list(self.nodes)

    paused: list[float] = []
    monkeypatch.setattr("evenly.flower.adapter.time.sleep", paused.append)
    grid = Reconnecting(client)
    found = strategy("fedavg").start(grid, first(), num_rounds=3)
    same({name: array.numpy() for name, array in found.arrays.items()}, ran(strategy("fedavg")))
    assert paused


# How an algorithm is written down.


EVERY_MEMBER = [(name, select) for name in METHODS for select in ("full", "weighted", "fraction")]


@pytest.mark.parametrize(("name", "select"), EVERY_MEMBER)
def test_clients_rebuild_the_same_algorithm_from_its_notation(name: str, select: str):
    common = {"learning_rate": 0.03, "batch_size": 7}
    known = {key: value for key, value in common.items() if key in METHODS[name].settings}
    text = METHODS[name].example or name
    for member in variants(parse(f"{text}+reweigh"), known, SAMPLINGS[select]())[0].members[:2]:
        again = algorithm(notation_of(member))
        assert plain(again) == plain(member)


def test_a_rule_is_called_by_its_settings():
    assert algorithm_of(QFedAvg(q=2.0, lipschitz=5.0)).label == "q-fedavg(q=2, lipschitz=5)"


def test_optimisers_are_told_too():
    made = algorithm(
        "fedavg(epochs=2)+server-adam(learning_rate=0.2, b1=0.5)+local-adam(learning_rate=0.01,"
        " eps=0.1)+uniform(clients=4)"
    )
    assert plain(algorithm(notation_of(made))) == plain(made)


def plain(made: Algorithm) -> str:
    """Everything about it but its label; 1 and 1.0 are the same."""
    return re.sub(r"\b(\d+)\.0\b", r"\1", repr(replace(made, label="")))


def test_a_method_of_several_runs_names_them():
    with pytest.raises(
        ValueError,
        match=r"'multi-q\(q=\[0, 1\]\)' stands for 2 runs.*'multi-q\(q=0\)', 'multi-q\(q=1\)'",
    ):
        strategy("multi-q(q=[0, 1])")
    assert strategy("multi-q(q=1)").algorithm.rule.needs == {"loss", "square_norm"}
    with pytest.raises(TypeError, match="A strategy needs a notation"):
        strategy(3)  # pyright: ignore[reportArgumentType]


# A census that cannot be used.


def introducing(message: Message, context: Context) -> Message:
    if message.metadata.message_type != wire.CENSUS:
        return client(message, context)
    k = int(context.node_config["partition-id"])
    return reply(
        message,
        None,
        {"num-examples": SIZES[k], "cells": [SIZES[k]], "cells-shape": [1, 1], "client": k},
    )


def erring_in_the_census(message: Message, context: Context) -> Message:
    if message.metadata.message_type == wire.CENSUS and context.node_id == NODES[2]:
        raise RuntimeError("no such file")
    return introducing(message, context)


def test_a_client_whose_census_cannot_be_used_does_not_stop_the_start():
    """Of clients that number themselves one errs: the others begin without it, in the order of
    their numbers.
    """
    made = strategy("fedavg", introduce=True, min_available_nodes=6)
    found = ran(made, erring_in_the_census, rounds=1)
    recorder = made.history.recorder
    assert recorder.about.nodes == (*NODES[:2], *NODES[3:])
    assert [(one.node, one.reason) for one in recorder.left_out] == [
        (NODES[2], "was asked for the census and crashed: no such file")
    ]
    others = [k for k in range(6) if k != 2]
    mean = sum(
        SIZES[k] * RATE * np.random.default_rng(k).normal(size=(4, 3)) for k in others
    ) / sum(SIZES[k] for k in others)
    np.testing.assert_allclose(
        found["layer.weight"], first()["layer.weight"].numpy() + mean, rtol=1e-5, atol=1e-6
    )


def test_too_few_usable_censuses_stop_the_start_with_every_reason():
    def wrong(message: Message, context: Context) -> Message:
        if message.metadata.message_type == wire.CENSUS and context.node_id != NODES[0]:
            raise RuntimeError(f"reason of {context.node_id}")
        return introducing(message, context)

    with pytest.raises(
        ValueError, match=r"from at least 2 nodes \(min_train_nodes\), and 1 of 6 nodes sent one"
    ) as stopped:
        ran(strategy("fedavg", introduce=True), wrong)
    assert all(
        f"Node {node} was asked for the census and crashed: reason of {node}" in str(stopped.value)
        for node in NODES[1:]
    )


def test_other_numbers_than_before_are_not_mixed_up_with_those_of_before(tmp_path: Path):
    """Without client 2 the clients from 3 on have other places. When it is there, after all, it
    gets the next one.
    """

    def on(answer: Any, rounds: int) -> Any:
        made = strategy("fedavg", introduce=True, folder=tmp_path / "run")
        made.start(OneProcess(answer), first(), num_rounds=rounds)
        return made.history

    five = (*NODES[:2], *NODES[3:])
    assert on(erring_in_the_census, 1).setting.roll.numbers == (0, 1, 3, 4, 5)
    assert on(erring_in_the_census, 2).setting.roll.nodes == five
    history = on(introducing, 3)
    assert history.setting.roll.numbers == (0, 1, 3, 4, 5, 2)
    assert history.recorder.about.nodes == (*five, NODES[2])
    assert history.setting.roll.census.examples.tolist() == [10, 40, 5, 30, 60, 20]
    sizes = [*(SIZES[k] for k in (0, 1, 3, 4, 5)), SIZES[2]]
    weights = history.recorder.trace().weights
    np.testing.assert_allclose(weights[2], np.array(sizes) / sum(sizes), rtol=1e-5)
    np.testing.assert_allclose(weights[1, :5], np.array(sizes[:5]) / sum(sizes[:5]), rtol=1e-5)


def test_lists_of_one_client_do_not_cost_the_mean_of_the_others():
    def odd(message: Message, context: Context) -> Message:
        own: Any = (
            [1.0, 2.0]
            if context.node_id == min(NODES)
            else 10**400
            if context.node_id == max(NODES)
            else 3.0
        )
        return (
            client(message, context, mine=own)
            if message.metadata.message_type == "train"
            else client(message, context)
        )

    result = strategy("fedavg").start(OneProcess(odd), first(), num_rounds=1)
    assert result.train_metrics_clientapp[1]["mine"] == pytest.approx(3.0)
