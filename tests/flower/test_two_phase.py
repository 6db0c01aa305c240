"""Rounds of two phases end with the model of rounds of one; who breaks is named where that can be
known; what needs more is refused.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.serverapp.strategy import Strategy

from evenly.algorithms import METHODS
from evenly.data.federation import Federation
from evenly.flower import Caps, first_arrays, strategy, wire
from evenly.flower.clients.client import reply as client_reply
from evenly.flower.clients.jax import app
from evenly.flower.two_phase import plain_sum
from evenly.models import Softmax
from evenly.types import Algorithm, Task, Trace
from tests.flower.grids import NODES, OneProcess, reply, settings
from tests.flower.test_every_method import SEEDS, written
from tests.simulations import task_for

ROUNDS = 2  # the second starts from what the rule, the server and the clients keep
REFUSED = {
    "fedmgda": (None, "inner products of all updates"),
    "e2fl(groups=2, inference=rank-clustering)": (None, "choose another inference"),
    "fedavg": (Caps(norm="3x"), "norm = '3x' shortens updates one by one"),
}
FORMS = [
    "afl(form=stochastic)", "fairfed(metric=spd)+reweigh+full",
    "fedavg+server-adam(learning_rate=0.1)", "fedavg+weighted(clients=4, replace=true)",
    "e2fl(groups=3, final_pass=true, absent_vote=true)",
    "e2fl(groups=3, inference=binary, global_model=true)",
]  # fmt: skip
SUMMED = [*(METHODS[name].example or name for name in METHODS if name != "fedmgda"), *FORMS]


# Every method, with the clients of evenly.


@pytest.mark.parametrize("text", SUMMED)
def test_two_phases_are_one(text: str, tiny: Federation, task: Softmax):
    variant = written(text)
    own, algorithm = task_for(variant.method.name, task, tiny), variant.members[-1]
    answer = app(tiny, own)
    (plain, once), (summed, twice) = (
        run(algorithm, own, answer, two_phase=way) for way in (False, True)
    )
    close(summed, plain, 1e-5)
    np.testing.assert_array_equal(twice.cohort, once.cohort)
    np.testing.assert_allclose(twice.weights, once.weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(twice.tables[-1], once.tables[-1])


def run(
    algorithm: Algorithm, task: Task, answer: Any, **options: Any
) -> tuple[dict[str, np.ndarray], Trace]:
    made = strategy(
        algorithm,
        seeds=SEEDS,
        min_available_nodes=len(NODES),
        min_train_nodes=1,
        introduce=True,
        **options,
    )
    result = made.start(OneProcess(answer), first_arrays(algorithm, task, SEEDS), num_rounds=ROUNDS)
    return {
        name: wire.read(array) for name, array in result.arrays.items()
    }, made.history.recorder.trace()


def close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], error: float) -> None:
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        np.testing.assert_allclose(found[name], leaf, rtol=error, atol=error, err_msg=name)


@pytest.mark.parametrize("text", REFUSED)
def test_what_needs_each_update_is_refused(text: str):
    caps, why = REFUSED[text]
    with pytest.raises(ValueError, match=f"cannot run in two phases: .*{why}.*Remove two_phase"):
        strategy(text, two_phase=True, caps=caps)


# The same with clients written by hand: they measure, train, and reply with evenly's own function
# or without it.


SIZES, LOSSES = (10, 40, 20, 5, 30, 60), (0.5, 1.5, 0.9, 2.0, 0.3, 0.7)


def first() -> ArrayRecord:
    """A model in PyTorch's names, with a count and a statistic that are not learned."""
    weight = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    seen = {
        "norm.num_batches_tracked": Array(np.array(7)),
        "norm.running_var": Array(np.ones(3, np.float32)),
    }
    return ArrayRecord({"norm.weight": Array(weight), **seen})


def trained(message: Message, k: int) -> ArrayRecord:
    received = message.content["arrays"]
    assert isinstance(received, ArrayRecord)
    draw = np.random.default_rng(k)
    weight, count, seen = (wire.read(array) for array in received.values())
    moved = (weight + 0.1 * draw.normal(size=weight.shape)).astype(np.float32)
    return ArrayRecord(
        dict(
            zip(
                received,
                (Array(moved), Array(np.asarray(count + k)), Array(seen + np.float32(k))),
                strict=True,
            )
        )
    )


def client(message: Message, context: Context, *, said: Any = client_reply) -> Message:
    k = int(context.node_config["partition-id"])
    measured = {"num-examples": SIZES[k], "loss": LOSSES[k]}
    if message.metadata.message_type == "train":
        return said(message, trained(message, k), measured)
    return reply(message, None, measured | {"accuracy": 0.5})


def ran(
    text: str, answer: Any = client, rounds: int = ROUNDS, **options: Any
) -> tuple[dict[str, np.ndarray], Any]:
    made = strategy(text, **{"two_phase": True, **options})
    result = made.start(OneProcess(answer), first(), num_rounds=rounds)
    return {name: wire.read(array) for name, array in result.arrays.items()}, made.history.recorder


def test_each_client_is_asked_twice_and_metrics_are_averaged_over_both():
    grid = OneProcess(client)
    made = strategy("q-fedavg(q=1)", two_phase=True, fraction_evaluate=0.0)
    result = made.start(grid, first(), num_rounds=1)
    assert Counter(kind for kind, _ in grid.asked) == {"query.measure": 6, "train": 6}
    np.testing.assert_allclose(
        result.train_metrics_clientapp[1]["loss"], np.average(LOSSES, weights=SIZES)
    )
    assert set(result.train_metrics_clientapp[1]) == {"loss", "accuracy"}


def test_flowers_own_loop_does_both_phases():
    made = strategy("q-fedavg(q=1)", two_phase=True)
    looped = Strategy.start(made, OneProcess(client), first(), num_rounds=ROUNDS)
    close(
        {name: wire.read(array) for name, array in looped.arrays.items()},
        ran("q-fedavg(q=1)")[0],
        0,
    )


def test_whole_numbers_move_by_the_weighted_mean_of_their_changes():
    found, _ = ran("fedavg", rounds=1)
    assert found["norm.num_batches_tracked"] == 7 + round(np.average(range(6), weights=SIZES))
    assert found["norm.num_batches_tracked"].dtype == np.int64


@pytest.mark.parametrize(
    "text", ["fedavg", "q-fedavg(q=1)", "term(alpha=1)+server-adam(learning_rate=0.1)"]
)
def test_statistics_become_the_mean_by_weight_in_one_phase_and_in_two(text: str):
    (plain, once), (summed, _) = (ran(text, rounds=1, two_phase=way) for way in (False, True))
    for name in ("norm.weight", "norm.running_var"):
        np.testing.assert_allclose(summed[name], plain[name], rtol=1e-5, atol=1e-6, err_msg=name)
    # clients are numbered by node
    added = np.average(np.argsort(NODES), weights=once.trace().weights[0])
    np.testing.assert_allclose(plain["norm.running_var"], 1 + added, rtol=1e-5)


def test_caps_on_signals_and_coefficients_hold():
    caps = Caps(loss="2x", coefficient=0.3)
    liar = lambda message, context: reply(message, None, {"num-examples": 10, "loss": 1e5})  # noqa: E731

    def answer(m, c):
        return (
            liar(m, c)
            if c.node_id == NODES[1] and m.metadata.message_type == "query.measure"
            else client(m, c)
        )

    _, recorder = ran("q-fedavg(q=3)", answer, rounds=1, caps=caps)
    weights = recorder.trace().weights[0]
    assert weights.max() <= 0.3 * weights.sum() + 1e-6
    assert {one.flag.what for one in recorder.flagged} == {"loss", "coefficient"}


def failing(phase: str, error: str = "the power went out") -> Any:
    """Clients of which number 2 fails in one phase."""

    def answer(message: Message, context: Context) -> Message:
        if context.node_id == NODES[2] and message.metadata.message_type == phase:
            raise RuntimeError(error)
        return client(message, context)

    return answer


@pytest.mark.parametrize("phase", ["query.measure", "train"])
def test_who_drops_out_in_either_phase_is_made_up_for(phase: str):
    """Weights by size are shares: whether they are made before or after somebody left, the others
    keep their proportions.
    """
    found, recorder = ran("fedavg", failing(phase))
    expected, _ = ran("fedavg", failing("train"), two_phase=False)
    close(found, expected, 1e-6)
    gone = [one for one in recorder.left_out if one.node == NODES[2]]
    assert [one.phase for one in gone] == [
        "measure" if phase == "query.measure" else "train"
    ] * ROUNDS
    assert all("the power went out" in one.reason for one in gone)
    sizes = np.where(np.arange(6) == 2, 0, SIZES)
    np.testing.assert_allclose(
        recorder.trace().weights[0], (sizes / sizes.sum())[np.argsort(NODES)], rtol=1e-5
    )


# Who drops out between the phases: the sum is divided by what belongs to those who returned.


def dropping(honest: Any, phase: str, k: int = 2) -> Any:
    """Clients of which number k is lost in one phase of every round."""

    def answer(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == k and message.metadata.message_type == phase:
            raise RuntimeError("the power went out")
        return honest(message, context)

    return answer


def too_long(honest: Any, k: int = 2) -> Any:
    """Clients of which number k trains a model whose distance has no finite square."""

    def answer(message: Message, context: Context) -> Message:
        found = honest(message, context)
        if context.node_config["partition-id"] == k and message.metadata.message_type == "train":
            arrays = found.content.array_records["arrays"]
            for name in list(arrays):
                arrays[name] = Array(np.full_like(wire.read(arrays[name]), 1e30))
        return found

    return answer


@pytest.mark.parametrize(
    "text",
    ["fedavg", "q-fedavg(q=1)", "fairfed(beta=0)", "fedsgd(q=1)", "ifca(groups=2)", "frl"],
)
def test_who_drops_out_between_the_phases_is_as_one_who_never_was_there(
    text: str, tiny: Federation, task: Softmax
):
    """Equal to plain rounds of those who returned. Where the weights do not follow from sums over
    the cohort, nothing is left of who dropped out.
    """
    variant = written(f"{text}+full")
    own, algorithm = task_for(variant.method.name, task, tiny), variant.members[-1]
    answer = dropping(app(tiny, own), "train")
    (plain, once), (summed, twice) = (
        run(algorithm, own, answer, two_phase=way) for way in (False, True)
    )
    close(summed, plain, 1e-5)
    np.testing.assert_allclose(twice.weights, once.weights, rtol=1e-5, atol=1e-6)
    assert not twice.weights[twice.cohort == 2].any()


@pytest.mark.parametrize("text", ["fairfed", "afl(form=local)", "fedcvg-ratio", "fedfb"])
def test_sums_before_training_are_over_all_who_measured(text: str, tiny: Federation, task: Softmax):
    """What the others know of the client that drops out is what it measured. The same numbers
    count in a plain round in which its update cannot be added.
    """
    algorithm, honest = written(f"{text}+full").members[-1], app(tiny, task)
    summed, twice = run(algorithm, task, dropping(honest, "train"), two_phase=True)
    plain, once = run(algorithm, task, too_long(honest), caps=Caps(norm=1e9))
    close(summed, plain, 1e-5)
    np.testing.assert_allclose(twice.weights, once.weights, rtol=1e-5, atol=1e-6)
    assert not twice.weights[twice.cohort == 2].any()
    np.testing.assert_allclose(twice.weights.sum(1), 1.0, rtol=1e-5)


def test_who_drops_out_between_the_phases_remembers_nothing_of_the_round(
    tiny: Federation, task: Softmax
):
    algorithm = written("fairfed+full").members[-1]
    made = strategy(algorithm, seeds=SEEDS, min_available_nodes=len(NODES), two_phase=True)
    made.start(
        OneProcess(dropping(app(tiny, task), "train")),
        first_arrays(algorithm, task, SEEDS),
        num_rounds=1,
    )
    memory = made.history.state.state.memory
    assert memory.seen.tolist() == [True, True, False, True, True, True]
    assert memory.value[2] == 0
    assert memory.value.sum() > 0


def test_clients_are_told_a_coefficient_and_not_a_number_of_rows():
    """FedSGD divides by sizes: what clients multiply by is as small as ever, so that a masked sum
    has room for it.
    """
    told: dict[int, float] = {}

    def answer(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            told[int(context.node_config["partition-id"])] = settings(message)["coefficient"]  # pyright: ignore[reportArgumentType]
        return client(message, context)

    found, _ = ran("fedsgd(q=1)", answer, rounds=1)
    expected = np.array(SIZES) * LOSSES / sum(SIZES)
    np.testing.assert_allclose([told[k] for k in range(6)], expected, rtol=1e-5)
    plain, _ = ran("fedsgd(q=1)", rounds=1, two_phase=False)
    close({"w": found["norm.weight"]}, {"w": plain["norm.weight"]}, 1e-6)


def without(key: str) -> Any:
    """Replies that lack a metric."""

    def said(message: Message, arrays: ArrayRecord, metrics: dict[str, Any]) -> Message:
        whole = client_reply(message, arrays, metrics)
        del whole.content.metric_records["metrics"][key]
        return whole

    return said


def twice(message: Message, arrays: ArrayRecord, metrics: dict[str, Any]) -> Message:
    whole = client_reply(message, arrays, metrics)
    whole.content.metric_records["metrics"]["coefficient"] = 2.0
    return whole


def whole_model(message: Message, arrays: ArrayRecord, metrics: dict[str, Any]) -> Message:
    return reply(message, arrays, metrics)


def broken(message: Message, arrays: ArrayRecord, metrics: dict[str, Any]) -> Message:
    nan = {name: Array(np.asarray(wire.read(array) * np.nan)) for name, array in arrays.items()}
    return client_reply(message, ArrayRecord(nan), metrics)


WRONG = {
    "a client of one phase": (
        whole_model,
        "sent no 'coefficient'. In two-phase rounds it must multiply",
    ),
    "another coefficient": (twice, "multiplied its update by 2.0, where it was told 0."),
    "no length": (
        without("square-norm"),
        "sent no 'square-norm'. q-fedavg(q=1) needs the squared length",
    ),
    "broken training": (broken, "Training gave NaN or infinity, so nothing is sent"),
}


@pytest.mark.parametrize("what", WRONG)
def test_who_cannot_be_added_is_left_out_with_a_reason(what: str):
    said, why = WRONG[what]
    answer = lambda m, c: client(m, c, said=said if c.node_id == NODES[4] else client_reply)  # noqa: E731
    _, recorder = ran("q-fedavg(q=1)", answer, rounds=1)
    (one,) = recorder.left_out
    assert one.node == NODES[4]
    assert why in one.reason


def test_a_sum_that_is_not_finite_changes_nothing_and_says_so():
    found, recorder = ran(
        "fedavg",
        rounds=1,
        two_phase=lambda sent: {name: leaf * np.inf for name, leaf in plain_sum(sent).items()},
    )
    close(found, {name: wire.read(array) for name, array in first().items()}, 0)
    assert {one.reason for one in recorder.left_out} == {
        "was part of a sum that is not finite, and the client that caused it cannot be identified"
    }
    assert not recorder.trace().weights.any()


def test_a_sum_that_cannot_be_made_changes_nothing_and_names_all_who_were_part_of_it():
    """Under masks nobody looks at what clients send, so that one of them chooses what the function
    raises.
    """

    def failing(sent: Any) -> Any:
        raise OverflowError("not in the field")

    found, recorder = ran("fedavg", rounds=2, two_phase=failing)
    close(found, {name: wire.read(array) for name, array in first().items()}, 0)
    why = (
        "was part of a sum that cannot be computed (OverflowError: not in the field), and the"
        " client that caused it cannot be identified"
    )
    assert {(one.reason, one.round) for one in recorder.left_out} == {(why, 1), (why, 2)}


def test_a_sum_of_another_form_is_refused():
    with pytest.raises(
        ValueError, match=r"must hold 'norm.weight' with shape \[4, 3\], got \[12\]"
    ):
        ran(
            "fedavg",
            two_phase=lambda sent: {name: leaf.ravel() for name, leaf in plain_sum(sent).items()},
        )


def test_clients_that_do_not_measure_are_named():
    def old(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "query.measure":
            raise ValueError("No query function registered")
        return client(message, context)

    with pytest.raises(
        ValueError, match=r"must send a usable reply .*and 0 did.*No query function registered"
    ):
        ran("fedavg", old)


def test_clients_are_told_the_model_that_they_chose():
    told = []

    def answer(message: Message, context: Context) -> Message:
        k, kind = int(context.node_config["partition-id"]), message.metadata.message_type
        if kind != "train":
            return reply(
                message, None, {"num-examples": SIZES[k], "choice": k % 2, "accuracy": 0.5}
            )
        told.append((k, settings(message)["group"], len(settings(message)["coefficient"])))  # pyright: ignore[reportArgumentType]
        received = message.content["arrays"]
        assert isinstance(received, ArrayRecord)
        own = ArrayRecord(
            {
                name[2:]: Array(wire.read(array) + k)
                for name, array in received.items()
                if name.startswith(f"{k % 2}/")
            }
        )
        return client_reply(message, own, {"num-examples": SIZES[k]})

    two = ArrayRecord({f"{q}/w": Array(np.full((2, 2), q, np.float32)) for q in range(2)})
    result = strategy("ifca(groups=2)", two_phase=True).start(OneProcess(answer), two, num_rounds=1)
    assert sorted(told) == [(k, k % 2, 2) for k in range(6)]
    for q in range(2):
        moved = np.average(range(q, 6, 2), weights=SIZES[q::2])
        np.testing.assert_allclose(wire.read(result.arrays[f"{q}/w"]), q + moved, rtol=1e-6)
