"""Clients with private rows behind Flower's messages: the simulator's numbers without noise, and
secret ones with it.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from flwr.app import Context, Message

from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.flower import first_arrays, strategy, wire
from evenly.flower.clients import ledger as ledgers
from evenly.flower.clients import private
from evenly.flower.clients.egress import read_egress
from evenly.flower.clients.jax import JaxEngine, app
from evenly.flower.clients.ledger import RowLedger, SpentError, ToldError
from evenly.flower.clients.private import HiddenError, whole_counts
from evenly.flower.clients.rows import ClientData, batches_of, client_of
from evenly.flower.roster import notation_of
from evenly.models import Custom, Softmax
from evenly.privacy.row_account import calibrated, row_epsilon, run_epsilon
from evenly.records import replace
from evenly.simulate import simulate
from tests.flower.grids import NODES, OneProcess, settings
from tests.flower.one_room import Room, config, plain_rounds
from tests.flower.small import SEEDS, algorithm_of, small, task_of

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
QUIET = "noise_multiplier=0, signal_noise=0, rate=0.25, clip=0.5, measure_every=2"
LOUD = "noise_multiplier=1, signal_noise=3, rate=0.25, clip=0.5, epsilon=50"


def same(a: Any, b: Any) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), **CLOSE)


@pytest.fixture
def room(tiny: Federation, task: Softmax, tmp_path: Path) -> Room:
    """Nodes with a ledger each."""
    made = Room(app(tiny, task), tiny.clients)
    for k, context in enumerate(made.contexts):
        context.node_config["ledger"] = str(tmp_path / f"ledger-{k}.json")
    return made


def test_a_client_of_one_row_draws_batches_and_one_without_rows_is_refused():
    work = algorithm(f"fedavg+dp(unit=row, {QUIET})").work
    drawn = batches_of(work, 0, 1, 0, 1)
    assert drawn.shape[1] == 1
    assert set(drawn.ravel().tolist()) == {-1, 0}
    with pytest.raises(ValueError, match="Client 3 has no training rows"):
        batches_of(work, 0, 1, 3, 0)


def first_model(task: Softmax) -> Any:
    return wire.to_arrays(task.init(jax.random.key(0)))


@pytest.mark.parametrize(
    "method",
    [
        "fedavg(learning_rate=0.2)",
        "fairfed+reweigh",
        *(
            pytest.param(name, marks=pytest.mark.further)
            for name in ("q-fedavg(q=1)", "fedfb", "fedcvg")
        ),
    ],
)
def test_without_noise_three_rounds_are_the_simulators(
    method: str, tiny: Federation, task: Softmax
) -> None:
    notation = f"{method}+full+dp(unit=row, {QUIET})"
    (trace,) = simulate(task, tiny, [algorithm(notation)], 3)
    same(plain_rounds(notation, Room(app(tiny, task), tiny.clients), tiny, task, 3), trace.model)


def test_with_given_random_numbers_noised_rounds_are_the_simulators(
    tiny: Federation, task: Softmax, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Known:
        def randbits(self, bits: int) -> int:
            return 0  # the seed of the simulation

    monkeypatch.setattr(ledgers, "secrets", Known())
    notation = f"q-fedavg(q=1)+full+dp(unit=row, {LOUD})"
    (trace,) = simulate(task, tiny, [algorithm(notation)], 2)
    same(plain_rounds(notation, room, tiny, task, 2), trace.model)


def test_noise_is_secret_and_the_same_message_has_the_same_answer(
    task: Softmax, room: Room
) -> None:
    told = config(f"fedavg+dp(unit=row, {LOUD})", 1, 5)
    answers = [room.ask(5, "train", first_model(task), told)[wire.ARRAYS] for _ in range(2)]
    np.testing.assert_array_equal(wire.read(answers[0]["w"]), wire.read(answers[1]["w"]))
    path = Path(str(room.contexts[5].node_config["ledger"]))
    spent = RowLedger(path, row_epsilon).epsilon()
    assert spent == pytest.approx(
        run_epsilon(algorithm(f"fedavg+dp(unit=row, {LOUD})"), 1), abs=1e-6
    )
    path.unlink()  # another client with the same rows, or the same one with another secret
    other = room.ask(5, "train", first_model(task), told)[wire.ARRAYS]
    assert not np.allclose(wire.read(other["w"]), wire.read(answers[0]["w"]))


def test_a_restarted_client_goes_on_counting(task: Softmax, room: Room) -> None:
    notation = f"q-fedavg+dp(unit=row, {LOUD}, measure_every=2)"
    for t in (1, 2, 3):
        if t == 3:  # Flower keeps the state of a node in memory: after a restart it is gone
            room.contexts[5].state.clear()
        room.ask(5, "train", first_model(task), config(notation, t, 5))
    path = Path(str(room.contexts[5].node_config["ledger"]))
    expected = run_epsilon(algorithm(notation), 3)  # signals in rounds 1 and 3
    assert RowLedger(path, row_epsilon).epsilon() == pytest.approx(expected, abs=1e-6)


def test_a_client_stops_when_its_budget_is_spent(task: Softmax, room: Room) -> None:
    built = calibrated(algorithm("fedavg+full+dp(unit=row, epsilon=8, rate=0.25)"), 3)
    notation = notation_of(built)
    for t in (1, 2, 3):
        room.ask(5, "train", first_model(task), config(notation, t, 5))
    with pytest.raises(Exception, match=r"spent: epsilon 7\.9\d\d of 8") as caught:
        room.ask(5, "train", first_model(task), config(notation, 4, 5))
    assert isinstance(_cause(caught.value), SpentError)


def _cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def test_the_owner_limits_what_any_method_spends(task: Softmax, room: Room) -> None:
    room.contexts[5].node_config["epsilon"] = 1.0
    with pytest.raises(Exception, match=r"spent: epsilon 0\.000 of 1"):
        room.ask(5, "train", first_model(task), config(f"fedavg+dp(unit=row, {LOUD})", 1, 5))


def test_a_client_without_a_ledger_says_how_to_name_one(tiny: Federation, task: Softmax) -> None:
    bare = Room(app(tiny, task), tiny.clients)
    with pytest.raises(Exception, match=r"keep account.*ledger="):
        bare.ask(5, "train", first_model(task), config(f"fedavg+dp(unit=row, {LOUD})", 1, 5))


@pytest.mark.parametrize("kind", ["train", "query.measure", "evaluate", "query.audit"])
@pytest.mark.parametrize("method", ["q-fedavg(q=1)", "ditto", "ifca(groups=2)"])
def test_a_client_with_a_ledger_sends_nothing_exact(
    kind: str, method: str, task: Softmax, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither which of several models fits the rows best nor a model trained without noise shows in
    an audit: the model is not looked at.
    """
    monkeypatch.setattr(JaxEngine, "look", None)
    two = wire.record_of_models([task.init(jax.random.key(seed)) for seed in (0, 1)])
    arrays = two if "ifca" in method else first_model(task)
    with pytest.raises(ToldError, match="protects its rows"):
        room.ask(5, kind, arrays, config(method, 1, 5))


def test_a_shared_model_is_audited_on_test_rows(
    tiny: Federation, task: Softmax, room: Room
) -> None:
    told = config(f"fedavg+dp(unit=row, {LOUD})", 0, 5)
    table = wire.get(room.ask(5, "query.audit", first_model(task), told)[wire.METRICS], wire.TABLE)
    assert table is not None
    assert table.sum() == tiny.test.counts[5]


def test_errors_of_a_client_with_a_ledger_stay_in_its_log(
    task: Softmax, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Flower sends the words of an error to the server, and these may quote rows."""

    def broken(_: Context) -> ClientData:
        raise ValueError("patient 4711 has no label")

    told = config(f"fedavg+dp(unit=row, {LOUD})", 1, 0)
    room = Room(app(broken, task), 1)
    with pytest.raises(ValueError, match="4711"):
        room.ask(0, "train", first_model(task), told)
    room.contexts[0].node_config["ledger"] = str(tmp_path / "ledger.json")
    for kind in ("train", "query.census", "query.audit", "evaluate"):
        with pytest.raises(HiddenError, match=r"^ValueError\. This client protects") as caught:
            room.ask(0, kind, first_model(task), told)
        assert "4711" not in str(caught.value)
        assert caught.value.__cause__ is None
    assert "4711" in caplog.text


def test_row_weights_of_another_shape_are_refused_whatever_the_rows(
    task: Softmax, room: Room
) -> None:
    """A client with rows of the groups that are missing would fail, and another would not."""
    told = config(f"fedfb+dp(unit=row, {LOUD})", 1, 5)
    wire.put(told, wire.ROW_WEIGHTS, np.ones((1, 1)))
    with pytest.raises(ToldError, match=r"Row weights must have shape .* got \(1, 1\)"):
        room.ask(5, "train", first_model(task), told)
    assert ledger_of(room, 5).epsilon() == 0


def test_a_method_with_one_model_chooses_among_no_others(task: Softmax, room: Room) -> None:
    """The answer would say, without noise, which of two models fits the client's rows best."""
    two = wire.record_of_models([task.init(jax.random.key(seed)) for seed in (0, 1)])
    one = first_model(task)
    for arrays, more in ((two, {}), (one, {wire.OFFERED: two})):
        told = config(f"fedavg+dp(unit=row, {LOUD})", 1, 5)
        with pytest.raises(Exception, match=r"several models, but fedavg.* has one"):
            room.ask(5, "train", arrays, told, **more)
    assert ledger_of(room, 5).epsilon() == 0


def test_a_policy_bounds_noise_and_epsilon(task: Softmax, room: Room, tmp_path: Path) -> None:
    method = "fedavg+full+dp(unit=row, epsilon=8, rate=0.25)"
    path = tmp_path / "policy.toml"
    path.write_text(f'methods = ["{method}"]\nnoise = 0.5\nepsilon = 6.0')
    room.contexts[5].node_config["policy"] = str(path)
    built = notation_of(calibrated(algorithm(method), 3))
    for t, noise in enumerate((0.0, 0.4), 1):
        weak = notation_of(algorithm(f"{method[:-1]}, noise_multiplier={noise}, signal_noise=9)"))
        with pytest.raises(AssertionError):
            room.ask(5, "train", first_model(task), config(weak, t, 5))
    asked = [config("fedavg", 3, 5), *(config(built, t, 5) for t in (4, 5))]
    for one, answered in zip(asked, (False, True, False), strict=True):
        if answered:
            assert wire.ARRAYS in room.ask(5, "train", first_model(task), one)
        else:
            with pytest.raises(AssertionError):
                room.ask(5, "train", first_model(task), one)
    words = [one.words for one in read_egress(tmp_path / "egress.jsonl")]
    assert "noise multiplier of 0;" in words[0]
    assert "noise multiplier of 0.4" in words[1]
    assert "agreed to" in words[2]
    assert words[3] == ""
    assert "of 6 at delta" in words[4]


def test_the_census_is_noised_once_and_adds_up(tiny: Federation, room: Room) -> None:
    with pytest.raises(Exception, match="did not name its method"):
        room.ask(5, "query.census", config={})
    told = {wire.METHOD: f"fairfed+dp(unit=row, {LOUD})"}
    one, two = (room.ask(5, "query.census", config=told)[wire.METRICS] for _ in range(2))
    cells = wire.get(one, wire.CELLS)
    assert cells is not None
    assert cells.sum() == one[wire.EXAMPLES] == tiny.train.counts[5]
    assert not np.array_equal(cells, tiny.census().cells[5])
    np.testing.assert_array_equal(cells, wire.get(two, wire.CELLS))


def ledger_of(room: Room, client: int) -> RowLedger:
    return RowLedger(Path(str(room.contexts[client].node_config["ledger"])), row_epsilon)


def node_of(folder: Path) -> Any:
    return SimpleNamespace(node_config={"ledger": str(folder / "ledger.json")}, state={})


def counts_of(question: private.Question, client: ClientData, node: Any) -> np.ndarray:
    counts = private.admit(question, client, node).counts
    assert counts is not None
    return counts


def test_counts_have_one_draw_whatever_number_a_server_gives_a_client(
    tiny: Federation, tmp_path: Path
) -> None:
    """Otherwise two deployments, or one server that asks again, would average the noise away."""
    method, node = algorithm(f"fedavg+reweigh+dp(unit=row, {LOUD})"), node_of(tmp_path)
    client = client_of(tiny, 5)
    asked = [private.Question("census", method, 0, 5, 0, False)]
    asked += [private.Question("train", method, t, k, 0, True) for t, k in ((1, 5), (1, 7), (2, 5))]
    first, *others = [counts_of(one, client, node) for one in asked]
    assert not np.array_equal(first, client.cells)
    for counts in others:
        np.testing.assert_array_equal(counts, first)
    spent = RowLedger(tmp_path / "ledger.json", row_epsilon).epsilon()
    assert spent == pytest.approx(run_epsilon(method, 3), abs=1e-6)


@pytest.mark.parametrize("what", ["noise", "rows"])
def test_counts_with_other_noise_or_of_other_rows_are_another_release(
    what: str, tiny: Federation, tmp_path: Path
) -> None:
    notation = "fedavg+reweigh+dp(unit=row, epsilon=50, noise_multiplier=2, signal_noise={})"
    one, other = (algorithm(notation.format(noise)) for noise in (20, 10))
    client, node, ledger = client_of(tiny, 5), node_of(tmp_path), tmp_path / "ledger.json"
    first = counts_of(private.Question("census", one, 0, 0, 0, False), client, node)
    before = RowLedger(ledger, row_epsilon).epsilon()
    if what == "noise":
        one = other
    else:
        client = client._replace(train=client.train._replace(y=1 - client.train.y))
    again = counts_of(private.Question("census", one, 0, 0, 0, False), client, node)
    assert not np.array_equal(again, first)
    assert RowLedger(ledger, row_epsilon).epsilon() > before + 1e-3


def scaled(by: float) -> Custom:
    """A model whose code says what its text does not."""
    return Custom(
        initialise=lambda key: {"w": 0.01 * jax.random.normal(key, (5, 3))},
        apply=lambda params, x: by * x @ params["w"],
    )


@pytest.mark.parametrize("what", ["code", "random numbers"])
def test_a_message_is_answered_as_before_whatever_changed(
    what: str, tiny: Federation, room: Room
) -> None:
    """The difference of two answers with the same noise would be one without noise."""
    told = config(f"q-fedavg(q=1)+dp(unit=row, {LOUD})", 1, 5)
    first = wire.to_arrays(scaled(1.0).init(jax.random.key(0)))
    room.app = app(tiny, scaled(1.0))
    before = {kind: room.ask(5, kind, first, told) for kind in ("query.measure", "train")}
    spent = ledger_of(room, 5).epsilon()
    room.contexts[5].state.clear()
    room.app = app(tiny, scaled(0.5 if what == "code" else 1.0))
    with jax.threefry_partitionable(what == "code"):
        again = {kind: room.ask(5, kind, first, told) for kind in before}
    assert again == before
    assert ledger_of(room, 5).epsilon() == spent


@pytest.mark.parametrize("what", ["file", "task", "rows", "message"])
def test_an_answer_that_is_not_kept_is_another_release(
    what: str, tiny: Federation, task: Softmax, room: Room, tmp_path: Path
) -> None:
    told, first = config(f"fedavg+dp(unit=row, {LOUD})", 1, 5), first_model(task)
    before = room.ask(5, "train", first, told)[wire.ARRAYS]
    spent = ledger_of(room, 5).epsilon()
    if what == "file":
        (tmp_path / "ledger-5.json.train.npz").unlink()
    elif what == "task":
        room.app = app(tiny, replace(task, reduction="sum"))
    elif what == "rows":
        client = client_of(tiny, 5)
        room.app = app(client._replace(train=client.train._replace(y=1 - client.train.y)), task)
    else:
        told["learning-rate"] = 0.5
    again = room.ask(5, "train", first, told)[wire.ARRAYS]
    assert not np.allclose(wire.read(again["w"]), wire.read(before["w"]))
    assert ledger_of(room, 5).epsilon() > spent + 1e-3


def test_an_answer_that_was_counted_and_not_kept_is_counted_again(
    task: Softmax, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is killed while it trains sent nothing."""

    class KilledError(BaseException):
        pass

    def killed(*_: Any) -> Any:
        raise KilledError

    method = f"q-fedavg(q=1)+dp(unit=row, {LOUD})"
    told, first = config(method, 1, 5), first_model(task)
    with monkeypatch.context() as patch:
        patch.setattr(JaxEngine, "train", killed)
        with pytest.raises(KilledError):
            room.ask(5, "train", first, told)
    spent = ledger_of(room, 5).epsilon()
    assert spent == pytest.approx(run_epsilon(algorithm(method), 1), abs=1e-6)
    answers = [room.ask(5, "train", first, told) for _ in range(2)]
    assert answers[0] == answers[1]
    twice = row_epsilon([(0.25, 1.0, 8), (1.0, 3.0, 2)], 1e-5)
    assert ledger_of(room, 5).epsilon() == pytest.approx(twice, abs=1e-6)


@pytest.mark.parametrize("two_phase", [False, True], ids=["one phase", "two phases"])
def test_a_server_that_is_started_again_gets_the_answers_that_it_lost(
    two_phase: bool, tmp_path: Path
) -> None:
    """It is killed in round 2, after its clients have trained; Flower's states are lost, too."""
    text = f"fairfed+reweigh+full+dp(unit=row, {LOUD})"
    method, honest, rounds = algorithm_of(text), app(small(3), task_of(text)), 3

    def killing(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "evaluate" and settings(message)[wire.ROUND] == 2:
            raise KeyboardInterrupt
        return honest(message, context)

    def deployed(answer: Any) -> None:
        grid = OneProcess(answer, NODES[:3])
        for k, context in enumerate(grid.contexts.values()):
            context.node_config["ledger"] = str(tmp_path / f"ledger-{k}.json")
        server = strategy(
            method, seeds=SEEDS, folder=tmp_path / "run", two_phase=two_phase,
            min_available_nodes=3,
        )  # fmt: skip
        server.start(grid, first_arrays(method, task_of(text), SEEDS), num_rounds=rounds)

    with pytest.raises(KeyboardInterrupt):
        deployed(killing)
    deployed(honest)
    expected = run_epsilon(method, rounds, census=True)
    for k in range(3):
        spent = RowLedger(tmp_path / f"ledger-{k}.json", row_epsilon).epsilon()
        assert spent == pytest.approx(expected, abs=1e-6)


def test_the_report_promises_nothing_for_clients_without_a_ledger(tmp_path: Path) -> None:
    """A ClientApp that trains without noise sends what looks the same."""
    text = f"fedavg+full+dp(unit=row, {LOUD})"
    grid = OneProcess(app(small(3), task_of(text)), NODES[:3])
    for k, context in enumerate(grid.contexts.values()):
        context.node_config["ledger"] = str(tmp_path / f"ledger-{k}.json")
    method = algorithm_of(text)
    server = strategy(method, seeds=SEEDS, folder=tmp_path / "run", min_available_nodes=3)
    server.start(grid, first_arrays(method, task_of(text), SEEDS), num_rounds=1)
    page = (tmp_path / "run" / "report.html").read_text()
    promise = page.split('<section id="promise"')[1].split("</section>")[0]
    assert "A client with a ledger adds noise" in promise
    assert "no claim: the server cannot tell which clients have a ledger" in promise


def test_every_draw_of_counts_is_counted(tiny: Federation, task: Softmax, room: Room) -> None:
    """Counts by group and label, and the number of unprivileged rows, have noise of their own."""
    notation = f"fedcvg+reweigh+dp(unit=row, {LOUD})"
    room.ask(5, "query.census", config={wire.METHOD: notation})
    sent = room.ask(5, "train", first_model(task), config(notation, 1, 5))[wire.METRICS]
    expected = run_epsilon(algorithm(notation), 1)
    assert ledger_of(room, 5).epsilon() == pytest.approx(expected, abs=1e-6)

    def asked(number: int) -> Any:
        told = config(notation, 1, number)
        return room.ask(5, "query.measure", first_model(task), told)[wire.METRICS]

    assert asked(5) == asked(7) == sent
    assert ledger_of(room, 5).epsilon() == pytest.approx(expected, abs=1e-6)


def test_another_unprivileged_side_has_other_noise(
    tiny: Federation, task: Softmax, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of two counts with the same noise would be exact."""
    seeds, exact = [], private.signals
    monkeypatch.setattr(
        private, "signals", lambda asked, admitted, *args, **more: seeds.append(admitted.seed)
        or exact(asked, admitted, *args, **more),
    )  # fmt: skip
    told = config(f"fedcvg+dp(unit=row, {LOUD})", 1, 5)
    client, spent = client_of(tiny, 5), [0.0]
    for side in ((0,), (1,)):
        room.app = app(client._replace(unprivileged=side), task)
        room.ask(5, "query.measure", first_model(task), told)
        spent.append(ledger_of(room, 5).epsilon())
    assert seeds[0] != seeds[1]
    assert spent[0] < spent[1] < spent[2] - 1e-3


def test_a_round_without_a_measurement_is_answered_as_before(task: Softmax, room: Room) -> None:
    """It is asked again after another method took the place of the signals that were kept."""
    notation, other = (f"{name}+dp(unit=row, {LOUD})" for name in ("q-fedavg(q=1)", "term"))
    for t in (1, 2):  # signals are measured in round 1 and kept in round 2
        before = room.ask(5, "train", first_model(task), config(notation, t, 5))
    room.ask(5, "query.measure", first_model(task), config(other, 1, 5))
    spent = ledger_of(room, 5).epsilon()
    assert room.ask(5, "train", first_model(task), config(notation, 2, 5)) == before
    assert ledger_of(room, 5).epsilon() == spent


def test_a_census_is_part_of_the_budget(tiny: Federation, task: Softmax, room: Room) -> None:
    """A client that answered the census takes part until the last round."""
    method = algorithm("fairfed+full+dp(unit=row, epsilon=8, rate=0.25)")
    notation = notation_of(calibrated(method, 2, census=True))
    room.ask(5, "query.census", config={wire.METHOD: notation})
    told: dict[str, Any] = {}
    for t in (1, 2):
        room.ask(5, "train", first_model(task), config(notation, t, 5, **told))
    spent = ledger_of(room, 5).epsilon()
    assert 7.9 < spent <= 8
    assert spent == pytest.approx(run_epsilon(algorithm(notation), 2, census=True), abs=1e-6)


def test_training_rows_are_not_evaluated(task: Softmax, room: Room) -> None:
    found = room.ask(5, "evaluate", first_model(task), config(f"fedavg+dp(unit=row, {LOUD})", 1, 5))
    assert not [name for name in found[wire.METRICS] if name.startswith(("train-", "valid-"))]
    assert wire.TABLE in found[wire.METRICS]


def test_noised_counts_become_whole_numbers_with_the_right_total() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        total = int(draw.integers(0, 200))
        counts = whole_counts(draw.normal(10, 20, (2, 3)), total)
        assert counts.sum() == total
        assert counts.min() >= 0
    np.testing.assert_array_equal(whole_counts(np.array([3.0, 4.0]), 7), [3, 4])
    np.testing.assert_array_equal(whole_counts(np.array([-3.0, -4.0]), 6), [3, 3])


@pytest.mark.parametrize(
    "method", ["fedavg(learning_rate=0.2)", "fedsgd", "fedprox(mu=0.5)", "fairfed+reweigh(cap=1.5)"]
)
def test_clients_build_the_same_method_from_the_servers_notation(method: str) -> None:
    built = calibrated(algorithm(f"{method}+full+dp(unit=row, epsilon=4, clip=0.3)"), 20)
    again = algorithm(notation_of(built))
    assert jax.tree.structure(built.work) == jax.tree.structure(again.work)
    assert jax.tree.leaves(built.work) == pytest.approx(jax.tree.leaves(again.work))
    assert repr(built.prepare) == repr(again.prepare)
    assert again.privacy.epsilon == 4
