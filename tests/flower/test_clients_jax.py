"""A client in JAX behind Flower's messages trains, measures and evaluates as the simulator does."""

from typing import Any

import jax
import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.flower import wire
from evenly.flower.clients.jax import app, shard
from evenly.flower.clients.rows import batches, client_of
from evenly.models import MLP, Softmax
from evenly.parts.client_groups import CHOOSERS
from evenly.randomness import Draws
from evenly.simulate import simulate
from evenly.types import Seeds, Tree
from tests.federations import with_broken_clients
from tests.flower.one_room import Room, config, plain_rounds

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
# Every method is compared with the simulator in test_every_method, through the strategy.
METHODS = (
    "q-fedavg(q=1, batch_size=5, epochs=2)+full",
    "fedavg(batch_size=5, max_steps=2)+reweigh+full+local-momentum+server-adam(learning_rate=0.1)",
)


@pytest.fixture(scope="module")
def room(tiny: Federation, task: Softmax) -> Room:
    return Room(app(tiny, task), tiny.clients)


def same(a: Tree, b: Tree) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), **CLOSE)


@pytest.mark.parametrize("notation", METHODS)
def test_three_rounds_are_the_simulators(
    notation: str, tiny: Federation, task: Softmax, room: Room
) -> None:
    (trace,) = simulate(task, tiny, [algorithm(notation)], 3)
    same(plain_rounds(notation, room, tiny, task, 3), trace.model)


def test_a_client_elsewhere_draws_the_batches_of_the_simulator(tiny: Federation) -> None:
    rows = tiny.train.of(5)
    shuffled = Draws(7, "batches").at(2, 5)
    expected = np.concatenate([shuffled.permutation(rows), shuffled.permutation(rows)])
    drawn = batches(7, 3, 5, len(rows), epochs=2, size=6)
    assert (drawn[:, -1] == -1).sum() == 2  # the last batch of each epoch is smaller
    np.testing.assert_array_equal(rows[drawn[drawn >= 0]], expected)
    np.testing.assert_array_equal(
        batches(7, 3, 5, len(rows), epochs=2, size=6, max_steps=4), drawn[:4]
    )
    with pytest.raises(ValueError, match="server_round must be at least 1"):
        batches(7, 0, 5, 10)


def test_a_server_that_sends_other_row_weights_reads_the_mean_of_a_cell(
    tiny: Federation, task: Softmax, room: Room
) -> None:
    """What docs/flower-deploy.md warns of. Who changes that clients accept any weights changes the
    page, too.
    """
    client = client_of(tiny, 5)
    rows = client.train
    cell = (int(rows.group[0]), int(rows.y[0]))
    weights = np.zeros(client.shape)
    weights[cell] = 1.0
    told = config("fedsgd+full", 1, 5)
    wire.put(told, wire.ROW_WEIGHTS, weights)
    nothing = jax.tree.map(np.zeros_like, task.init(jax.random.key(0)))
    sent = room.ask(5, "train", wire.to_arrays(nothing), told)[wire.ARRAYS]
    read = wire.read(sent["w"]) / wire.read(sent["b"])
    inside = (rows.group == cell[0]) & (rows.y == cell[1])
    np.testing.assert_allclose(read[:, cell[1]], rows.x[inside].mean(0), rtol=1e-4)


def test_places_are_sent_as_whole_numbers_and_elect_the_simulators_model(tiny: Federation) -> None:
    network = MLP(features=tiny.x.shape[1], classes=3, hidden=(6,), bias=False)
    notation = "frl(batch_size=5, round_decay=0.6, cosine=true)+full"
    (trace,) = simulate(network, tiny, [algorithm(notation)], 2)
    ranking = Room(app(tiny, network), tiny.clients)
    same(plain_rounds(notation, ranking, tiny, network, 2), trace.model)
    sent = ranking.ask(0, "train", wire.to_arrays(trace.model), config(notation, 3, 0))[wire.ARRAYS]
    places = wire.read(sent["0.w"])
    assert places.dtype == np.int32
    assert sorted(places.ravel()) == list(range(30))


@pytest.mark.parametrize("notation", ["ditto(batch_size=5)+full", "local(batch_size=5)+full"])
def test_a_personal_model_stays_with_its_client(
    notation: str, tiny: Federation, task: Softmax
) -> None:
    (trace,) = simulate(task, tiny, [algorithm(notation)], 2, evaluate_every=1)
    personal = Room(app(tiny, task), tiny.clients)
    model = plain_rounds(notation, personal, tiny, task, 2)
    same(model, trace.model)
    for k in (0, 5):
        seen = personal.ask(k, "evaluate", wire.to_arrays(model), config(notation, 2, k))[
            wire.METRICS
        ]
        for split, prefix in enumerate(("train-", "valid-", "")):
            np.testing.assert_array_equal(
                wire.get(seen, prefix + wire.TABLE), trace.tables[-1, split, k]
            )
            if np.isfinite(trace.losses[-1, split, k]):
                np.testing.assert_allclose(
                    seen[prefix + wire.LOSS], trace.losses[-1, split, k], **CLOSE
                )
            else:
                assert seen[prefix + wire.EXAMPLES] == 0
                assert prefix + wire.LOSS not in seen


def test_the_census_counts_rows_and_says_who_is_who(tiny: Federation, room: Room) -> None:
    said = room.ask(2, "query.census")
    np.testing.assert_array_equal(wire.get(said[wire.METRICS], wire.CELLS), tiny.census().cells[2])
    assert said[wire.METRICS][wire.CLIENT] == 2
    assert said[wire.METRICS][wire.CLIENT_GROUP] == 1
    assert said[wire.ABOUT]["name"] == "client 2"
    assert said[wire.ABOUT]["groups"] == list(tiny.groups)


def test_two_phases_send_signals_first_and_then_only_a_scaled_vector(
    tiny: Federation, task: Softmax, room: Room
) -> None:
    model = wire.to_arrays(task.init(jax.random.key(0)))
    notation = "q-fedavg(q=1, batch_size=5)"
    whole = room.ask(4, "train", model, config(notation, 1, 4))
    measured = room.ask(4, "query.measure", model, config(notation, 1, 4))
    assert wire.ARRAYS not in measured
    assert dict(measured[wire.METRICS]) == dict(whole[wire.METRICS])
    scaled = room.ask(4, "train", model, config(notation, 1, 4, coefficient=0.25))
    for name in model:
        np.testing.assert_allclose(
            wire.read(scaled[wire.ARRAYS][name]),
            0.25 * wire.read(whole[wire.ARRAYS][name]),
            rtol=1e-6,
        )
    square = sum((wire.read(array) ** 2).sum() for array in whole[wire.ARRAYS].values())
    np.testing.assert_allclose(scaled[wire.METRICS][wire.SQUARE_NORM], square, rtol=1e-5)
    assert wire.LOSS not in scaled[wire.METRICS]


def test_a_client_chooses_among_several_models_and_trains_the_one(
    tiny: Federation, task: Softmax, room: Room
) -> None:
    rows = client_of(tiny, 5).train
    zero = task.init(jax.random.key(0))
    other = {"w": np.asarray(zero["w"]), "b": np.array([5.0, -5.0, 0.0], np.float32)}
    notation, offered = "ifca(groups=2, batch_size=5)", wire.record_of_models([other, zero])
    reply = room.ask(5, "train", offered, config(notation, 1, 5))
    alone = room.ask(5, "train", wire.to_arrays(zero), config("fedavg(batch_size=5)", 1, 5))
    assert reply[wire.METRICS][wire.CHOICE] == 1
    assert set(rows.y) != {0}
    for name, array in alone[wire.ARRAYS].items():
        np.testing.assert_array_equal(wire.read(reply[wire.ARRAYS][name]), wire.read(array))
    # where models cannot be told apart, the server draws
    drawn = room.ask(5, "train", offered, config(notation, 1, 5, group=0))
    assert drawn[wire.METRICS][wire.CHOICE] == 0


@pytest.mark.parametrize("inference", ["lowest-loss", "one-shot", "binary"])
def test_groups_are_inferred_from_the_models_that_are_offered(
    inference: str, tiny: Federation
) -> None:
    network = MLP(features=tiny.x.shape[1], classes=3, hidden=(6,), bias=False)
    notation = f"e2fl(inference={inference}, groups=2, batch_size=5)+full"
    method = algorithm(notation)
    frozen: Any = method.task(network, Seeds())
    shared, *offered = (frozen.init(jax.random.key(seed)) for seed in range(3))
    ranking = Room(app(tiny, network), tiny.clients)
    found = [
        ranking.ask(
            k,
            "train",
            wire.to_arrays(shared),
            config(notation, 2, k),
            **{wire.OFFERED: wire.record_of_models(offered)},
        )
        for k in (0, 5)
    ]
    masks = jax.tree.map(
        lambda *leaves: np.stack(leaves), *(frozen.masks(model) for model in offered)
    )
    for k, reply in zip((0, 5), found, strict=True):
        rows = client_of(tiny, k).train
        expected = CHOOSERS[inference](frozen, masks, shard(rows, np.arange(rows.size)))
        assert reply[wire.METRICS][wire.CHOICE] == int(expected)
    plain = ranking.ask(0, "train", wire.to_arrays(shared), config("frl(batch_size=5)", 2, 0))
    for name, array in plain[wire.ARRAYS].items():
        np.testing.assert_array_equal(wire.read(found[0][wire.ARRAYS][name]), wire.read(array))


def test_data_of_ones_own_need_no_federation(tiny: Federation, task: Softmax, room: Room) -> None:
    own = client_of(tiny, 3)
    model, asked = (
        wire.to_arrays(task.init(jax.random.key(0))),
        config("q-fedavg(batch_size=5)", 1, 3),
    )
    whole = room.ask(3, "train", model, asked)
    for source in (own, lambda context: own):
        alone = Room(app(source, task), 1).ask(0, "train", model, asked)
        assert dict(alone[wire.METRICS]) == dict(whole[wire.METRICS])


def test_a_config_without_a_method_says_what_to_do(task: Softmax, room: Room) -> None:
    with pytest.raises(ValueError, match="evenly-method"):
        room.ask(0, "train", wire.to_arrays(task.init(jax.random.key(0))), {"server-round": 1})
    nobody = Room(app(Federation.from_arrays(np.eye(4), [0, 1, 0, 1], [0, 0, 1, 1]), task), 3)
    with pytest.raises(ValueError, match="clients 0 to 1"):
        nobody.ask(2, "query.census")


@pytest.mark.parametrize(
    "notation", ["fedavg(batch_size=5)", "ditto(batch_size=5)", "frl(batch_size=5)"]
)
def test_training_that_breaks_is_seen_and_nothing_of_it_kept(
    notation: str, tiny: Federation, task: Softmax
) -> None:
    network = (
        MLP(features=5, classes=3, hidden=(6,), bias=False) if notation.startswith("frl") else task
    )
    broken = Room(app(with_broken_clients(tiny, (5,), 3e38), network), 6)
    model = algorithm(notation).task(network, Seeds()).init(jax.random.key(0))
    sent = broken.ask(5, "train", wire.to_arrays(model), config(notation, 1, 5))[wire.ARRAYS]
    assert any(not np.isfinite(wire.read(array)).all() for array in sent.values())
    if notation.startswith("ditto"):
        seen = broken.ask(5, "evaluate", wire.to_arrays(model), config(notation, 1, 5))[
            wire.METRICS
        ]
        # the personal model is still the first one
        assert seen[wire.LOSS] == pytest.approx(np.log(3))
