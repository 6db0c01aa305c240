"""A client in PyTorch, with a linear model and the simulator's batches, is the
simulator's client.
"""

import importlib
import sys
from typing import Any

import jax
import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, MetricRecord
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.flower import wire
from evenly.flower.clients import jax as in_jax
from evenly.flower.clients import torch as in_torch
from evenly.flower.clients import torch_popup
from evenly.flower.clients.rows import batches, client_of
from evenly.flower.clients.torch_training import outcome, shape_loss, training_batches
from evenly.models import MLP, Softmax
from evenly.parts.ranking import Frozen
from evenly.parts.ranking_work import EdgePopup
from evenly.parts.work import LocalTraining, NashBargaining
from evenly.simulate import simulate
from tests.flower.one_room import Room, config, plain_rounds

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
torch.set_num_threads(1)  # for models this small a second thread is only waited for


def linear() -> nn.Linear:
    return nn.Linear(5, 3)


def first() -> dict[str, Any]:
    return {"weight": np.zeros((3, 5), np.float32), "bias": np.zeros(3, np.float32)}


@pytest.fixture(scope="module")
def room(tiny: Federation) -> Room:
    return Room(in_torch.app(linear, tiny), tiny.clients)


@pytest.mark.parametrize(
    "notation",
    [
        "fedavg(batch_size=5, epochs=2)+full",
        "q-fedavg(q=1, batch_size=5)+full",
        "fedprox(mu=0.5, batch_size=5)+full",
        "propfair(batch_size=5)+full",
        "fairfed(metric=eod, batch_size=5)+reweigh+full",
    ],
)
def test_three_rounds_are_the_simulators(
    notation: str, tiny: Federation, task: Softmax, room: Room
) -> None:
    (trace,) = simulate(task, tiny, [algorithm(notation)], 3)
    found = plain_rounds(notation, room, tiny, task, 3, first())
    np.testing.assert_allclose(np.asarray(found["weight"]).T, trace.model["w"], **CLOSE)
    np.testing.assert_allclose(np.asarray(found["bias"]), trace.model["b"], **CLOSE)


@pytest.mark.parametrize(
    "notation",
    [
        "fedfb(batch_size=5)",
        "q-fedsgd(q=1)",
        "fedavg(batch_size=5, max_steps=4)+local-momentum",
        "fedavg(batch_size=5)+local-momentum(momentum=0.5, weight_decay=0.3)",
        "fedavg+local-adam",
    ],
)
def test_one_visit_is_that_of_a_client_in_jax(
    notation: str, tiny: Federation, task: Softmax, room: Room
) -> None:
    asked = config(notation, 2, 5)
    if notation.startswith("fedfb"):
        wire.put(asked, wire.ROW_WEIGHTS, np.array([[0.5, 1.0, 1.5], [1.5, 0.2, 0.5]]))
    start = {"w": np.full((5, 3), 0.1, np.float32), "b": np.array([0.0, 0.2, -0.1], np.float32)}
    expected = Room(in_jax.app(tiny, task), 6).ask(5, "train", wire.to_arrays(start), asked)
    found = room.ask(
        5, "train", wire.to_arrays({"weight": start["w"].T, "bias": start["b"]}), asked
    )
    np.testing.assert_allclose(
        wire.read(found[wire.ARRAYS]["weight"]).T, wire.read(expected[wire.ARRAYS]["w"]), **CLOSE
    )
    np.testing.assert_allclose(
        wire.read(found[wire.ARRAYS]["bias"]), wire.read(expected[wire.ARRAYS]["b"]), **CLOSE
    )
    for name, value in expected[wire.METRICS].items():
        np.testing.assert_allclose(found[wire.METRICS][name], value, **CLOSE)


@pytest.mark.parametrize("notation", ["ditto(batch_size=5)+full", "local(batch_size=5)+full"])
def test_a_personal_model_stays_with_its_client(
    notation: str, tiny: Federation, task: Softmax
) -> None:
    rooms = Room(in_torch.app(linear, tiny), 6), Room(in_jax.app(tiny, task), 6)
    start = {"weight": first()["weight"], "bias": first()["bias"]}
    model = plain_rounds(notation, rooms[0], tiny, task, 2, start)
    other = plain_rounds(notation, rooms[1], tiny, task, 2)
    asked = config(notation, 2, 5)
    a = rooms[0].ask(5, "evaluate", wire.to_arrays(model), asked)[wire.METRICS]
    b = rooms[1].ask(5, "evaluate", wire.to_arrays(other), asked)[wire.METRICS]
    np.testing.assert_allclose(a["train-loss"], b["train-loss"], **CLOSE)
    assert a[wire.TABLE] == b[wire.TABLE]
    assert abs(a["train-loss"] - np.log(3)) > 0.01  # it has learned


def bare() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))


@pytest.mark.parametrize("scores", ["raw", "abs", "frl-compat"])
def test_edges_are_ranked_as_in_jax(scores: str, tiny: Federation) -> None:
    """With the same frozen weights; drawing them is each framework's own."""
    method, task = (
        algorithm(f"frl(batch_size=5, learning_rate=0.4, scores={scores})"),
        MLP(features=5, classes=3, hidden=(6,), bias=False),
    )
    network, work, module, rows = method.network, method.work, bare(), client_of(tiny, 5).train
    assert isinstance(network, Frozen)
    assert isinstance(work, EdgePopup)
    drawn_in_jax: Any = network.of(task, 0)
    received = drawn_in_jax.init(jax.random.key(3))
    reply = Room(in_jax.app(tiny, task), 6).ask(
        5, "train", wire.to_arrays(received), config(method.label, 1, 5)
    )

    module.load_state_dict(
        {
            f"{2 * i}.weight": torch.tensor(np.asarray(layer["w"]).T)
            for i, layer in enumerate(drawn_in_jax.weights)
        }
    )
    sent = {f"{2 * i}.weight": np.asarray(layer["w"]).T for i, layer in enumerate(received)}
    numbers = batches(0, 1, 5, rows.size, epochs=2, size=5)
    found = torch_popup.search_places(
        module,
        network,
        sent,
        training_batches(rows, 2, numbers),
        work=work,
        losses=in_torch.cross_entropy,
    )
    kept, expected = (
        torch_popup.subnetwork(module, network, sent),
        drawn_in_jax.subnetwork(drawn_in_jax.masks(received)),
    )
    for i in range(2):
        places = wire.read(reply[wire.ARRAYS][f"{i}.w"])
        assert (places != np.asarray(received[i]["w"])).any()
        np.testing.assert_array_equal(found[f"{2 * i}.weight"].T, places)
        np.testing.assert_allclose(kept[f"{2 * i}.weight"].T, expected[i]["w"], rtol=1e-6)


def test_votes_on_edges_travel_as_whole_numbers_and_lower_the_loss(
    tiny: Federation, task: Softmax
) -> None:
    ranking, notation = (
        Room(in_torch.app(bare, tiny), 6),
        "frl(batch_size=5, learning_rate=0.4)+full",
    )
    start = {
        name: np.asarray(p, np.float32) for name, p in in_torch.first_places(bare(), seed=1).items()
    }
    model = plain_rounds(notation, ranking, tiny, task, 4, start)
    losses = [
        _train_loss(ranking, wire.to_arrays(own), config(notation, 1, 0)) for own in (start, model)
    ]
    assert losses[1] < losses[0]
    reply = ranking.ask(0, "train", wire.to_arrays(model), config(notation, 5, 0))
    places = wire.read(reply[wire.ARRAYS]["0.weight"])
    assert places.dtype == np.int32
    assert sorted(places.ravel()) == list(range(30))


def _train_loss(room: Room, model: Any, asked: dict[str, Any]) -> float:
    return float(
        np.mean(
            [room.ask(k, "evaluate", model, asked)[wire.METRICS]["train-loss"] for k in range(6)]
        )
    )


@pytest.mark.parametrize("inference", ["lowest-loss", "one-shot", "binary"])
def test_groups_are_inferred_as_in_jax(inference: str, tiny: Federation) -> None:
    notation = f"e2fl(inference={inference}, groups=3, batch_size=5)+full"
    method = algorithm(notation)
    task: Any = Frozen().of(MLP(features=5, classes=3, hidden=(6,), bias=False), 0)
    module = bare()
    module.load_state_dict(
        {
            f"{2 * i}.weight": torch.tensor(np.asarray(layer["w"]).T)
            for i, layer in enumerate(task.weights)
        }
    )
    offered = [task.init(jax.random.key(seed)) for seed in range(3)]
    turned = [
        {f"{2 * i}.weight": np.asarray(layer["w"]).T for i, layer in enumerate(own)}
        for own in offered
    ]
    rows = client_of(tiny, 5)
    ranking = Room(in_jax.app(tiny, MLP(features=5, classes=3, hidden=(6,), bias=False)), 6)
    reply = ranking.ask(
        5,
        "query.measure",
        wire.to_arrays(offered[0]),
        config(notation, 2, 5),
        **{wire.OFFERED: wire.record_of_models(offered)},
    )
    if inference == "lowest-loss":
        weights = [torch_popup.subnetwork(module, Frozen(), own) for own in turned]
        losses = []
        for own in weights:
            module.load_state_dict(own)
            losses.append(in_torch.measure(module, rows.train)[wire.LOSS])
        found = int(np.argmin(losses))
    else:
        assert isinstance(method.network, Frozen)
        found = torch_popup.most_certain_model(
            module, method.network, turned, rows.train, inference
        )
    assert reply[wire.METRICS][wire.CHOICE] == found


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = (
            nn.Linear(5, 6, bias=False),
            nn.BatchNorm1d(6, affine=False),
            nn.Linear(6, 3, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)))


def test_modules_whose_edges_cannot_be_ranked_are_refused(tiny: Federation) -> None:
    for make, expected in (
        (Normalised, "norm.running_mean.*statistic"),
        (linear, "'bias'.*only weights"),
    ):
        room = Room(in_torch.app(make, tiny), 6)
        sent = wire.to_arrays(
            {name: np.zeros(tuple(p.shape), np.float32) for name, p in make().named_parameters()}
        )
        with pytest.raises(ValueError, match=expected):
            room.ask(0, "train", sent, config("frl", 1, 0))


@pytest.mark.parametrize("text", ["fedavg(batch_size=8)", "fedsgd"])
def test_a_batch_of_one_row_is_normalised_by_the_statistics_that_are_kept(text: str) -> None:
    x, y, model = torch.randn(9, 5), torch.arange(9) % 3, Normalised()
    rows = (x, y) if text != "fedsgd" else (x[:1], y[:1])
    before = model.first.weight.detach().clone()
    in_torch.train(model, rows, algorithm(text).work)
    assert not torch.equal(model.first.weight, before)
    assert model.norm.training
    assert int(model.state_dict()["norm.num_batches_tracked"]) == (1 if text != "fedsgd" else 0)


def test_a_module_with_normalisation_statistics_trains_and_carries_them(tiny: Federation) -> None:
    room, model = Room(in_torch.app(Normalised, tiny), 6), Normalised()
    sent = room.ask(5, "train", in_torch.arrays(model), config("fedavg(batch_size=8)", 1, 5))[
        wire.ARRAYS
    ]
    assert set(sent) == set(model.state_dict())
    assert wire.read(sent["norm.num_batches_tracked"]) == 4
    in_torch.load(model, sent)
    assert float(model.state_dict()["norm.running_mean"].abs().sum()) > 0


def loader(tiny: Federation, k: int) -> DataLoader[Any]:
    rows = client_of(tiny, k).train
    return DataLoader(
        TensorDataset(*(torch.tensor(np.asarray(part)) for part in rows[:3])), batch_size=7
    )


def test_measure_reads_loaders_and_tensors_alike(tiny: Federation, room: Room) -> None:
    torch.manual_seed(0)
    model, rows = linear(), client_of(tiny, 5).train
    needs = ("loss", "table", "cell_loss", "unprivileged")
    found = in_torch.measure(model, loader(tiny, 5), needs, labels=3, groups=2)
    whole = in_torch.measure(model, rows, needs, labels=3, groups=2)
    assert found.keys() == whole.keys()
    for name in whole:
        np.testing.assert_allclose(found[name], whole[name], rtol=1e-6)
    with torch.no_grad():
        logits = model(torch.tensor(rows.x))
    logp = torch.log_softmax(logits.double(), 1).numpy()
    assert found[wire.LOSS] == pytest.approx(-logp[np.arange(rows.size), rows.y].mean(), rel=1e-6)
    table = wire.get(found, wire.TABLE)
    assert table is not None
    assert (
        table[1, 2, 0]
        == ((rows.group == 1) & (rows.y == 2) & (logits.argmax(1).numpy() == 0)).sum()
    )
    assert found[wire.EXAMPLES] == rows.size
    assert found[wire.UNPRIVILEGED] == (rows.group == 0).sum(), "group 0, unless others are named"
    MetricRecord(found)  # holds nothing that Flower refuses
    with pytest.raises(ValueError, match="labels=2, groups=2"):
        in_torch.measure(model, rows, ("table",))


def test_measure_counts_rows_that_are_held_out(tiny: Federation, room: Room) -> None:
    model, client = linear(), client_of(tiny, 5)
    found = in_torch.measure(
        model, client.train, ("valid_table",), labels=3, groups=2, valid=client.valid
    )
    expected = in_torch.measure(model, client.valid, ("table",), labels=3, groups=2)
    assert found.keys() == {wire.EXAMPLES, wire.VALID_TABLE, wire.VALID_TABLE + wire.SHAPE}
    assert (found[wire.EXAMPLES], found[wire.VALID_TABLE]) == (
        client.train.size,
        expected[wire.TABLE],
    )
    MetricRecord(found)
    none = in_torch.measure(
        model, client.train, ("valid_table",), labels=3, groups=2, valid=client_of(tiny, 0).valid
    )
    assert not any(none[wire.VALID_TABLE]), "the smallest client has no such rows, and says so"
    with pytest.raises(
        ValueError, match="measure needs held-out rows for valid_table: pass valid="
    ):
        in_torch.measure(model, client.train, ("valid_table",), labels=3, groups=2)


def test_a_census_by_hand_is_that_of_a_ready_client(tiny: Federation, room: Room) -> None:
    names = {
        "labels": tiny.labels,
        "groups": tiny.groups,
        "unprivileged": tiny.unprivileged,
        "favourable": tiny.favourable,
    }
    assert tiny.client_group is not None
    found = in_torch.census(
        loader(tiny, 5),
        **names,
        number=5,
        name=tiny.names[5],
        client_group=int(tiny.client_group[5]),
    )
    asked = room.ask(5, wire.CENSUS)
    assert dict(found.metric_records[wire.METRICS]) == dict(asked.metric_records[wire.METRICS])
    about = dict(asked.config_records[wire.ABOUT])
    # a loader knows the groups alone
    assert about.pop(wire.ATTRIBUTE + "group") == list(tiny.groups)
    assert about.pop(wire.SIDE + "group") == "a"
    assert dict(found.config_records[wire.ABOUT]) == about
    unnamed = in_torch.census(loader(tiny, 5), **names).config_records[wire.ABOUT]
    assert "name" not in unnamed  # the server then calls it by its number
    with pytest.raises(
        ValueError,
        match=(
            r"census names 1 labels, so rows have numbers from 0 to 0, got 0 to 2\. Name all labels"
        ),
    ):
        in_torch.census(loader(tiny, 5), labels=("only",), groups=tiny.groups)


def test_a_loader_may_shuffle(tiny: Federation) -> None:
    model, rows = linear(), client_of(tiny, 5).train
    mixed = DataLoader(loader(tiny, 5).dataset, batch_size=7, shuffle=True)
    found = in_torch.measure(model, mixed, ("cell_loss",), labels=3, groups=2)
    expected = in_torch.measure(model, rows, ("cell_loss",), labels=3, groups=2)
    np.testing.assert_allclose(found[wire.CELL_LOSS], expected[wire.CELL_LOSS], rtol=1e-5)


def test_rows_that_are_reweighed_by_hand_count_as_in_a_ready_client(
    tiny: Federation, room: Room
) -> None:
    asked = config("fairfed(metric=eod, batch_size=5)+reweigh", 2, 5)
    ready = room.ask(5, "train", wire.to_arrays(first()), asked)
    rows, now, model = client_of(tiny, 5).train, in_torch.read_config(asked), linear()
    in_torch.load(model, wire.to_arrays(first()))
    weights = in_torch.row_weights(now, loader(tiny, 5), labels=3, groups=2)
    in_torch.train(
        model,
        rows,
        now.algorithm.work,
        batches=batches(0, 2, 5, rows.size, size=5),
        row_weights=weights,
    )
    np.testing.assert_allclose(
        model.weight.detach(), wire.read(ready[wire.ARRAYS]["weight"]), rtol=1e-6, atol=1e-7
    )
    plain = room.ask(5, "train", wire.to_arrays(first()), config("fedavg(batch_size=5)", 2, 5))
    assert not np.allclose(
        wire.read(plain[wire.ARRAYS]["weight"]), model.weight.detach(), atol=1e-4
    )


def test_local_reweighing_and_what_the_server_says_are_multiplied(tiny: Federation) -> None:
    said = np.array([[1.0, 0.5, 2.0], [0.25, 1.0, 1.5]])
    own = in_torch.read_config(config("fedavg+reweigh", 2, 5))
    local = in_torch.row_weights(own, loader(tiny, 5), labels=3, groups=2)
    both = in_torch.row_weights(own._replace(row_weights=said), loader(tiny, 5), labels=3, groups=2)
    assert local is not None
    assert both is not None
    assert len(set(local.ravel())) > 2
    np.testing.assert_allclose(both, local * said)
    plain = in_torch.read_config(config("fedavg", 2, 5))
    assert in_torch.row_weights(plain, loader(tiny, 5), labels=3, groups=2) is None
    np.testing.assert_array_equal(
        in_torch.row_weights(plain._replace(row_weights=said), loader(tiny, 5), labels=3, groups=2),
        said,
    )


def test_rows_without_groups_are_all_of_one(tiny: Federation) -> None:
    """With one group, groups and labels are independent already: no row counts for more."""
    rows = client_of(tiny, 5).train
    data = DataLoader(
        TensorDataset(torch.tensor(np.asarray(rows.x)), torch.tensor(np.asarray(rows.y))),
        batch_size=7,
    )
    weights = in_torch.row_weights(
        in_torch.read_config(config("fedavg+reweigh", 2, 5)), data, labels=3
    )
    assert weights is not None
    np.testing.assert_allclose(weights, np.ones((1, 3)))


@pytest.mark.parametrize("huber", [False, True])
def test_propfairs_loss_is_the_one_in_jax_on_both_sides_of_its_border(huber: bool) -> None:
    shape = NashBargaining(M=2.0, epsilon=0.2, huber=huber)
    for value in (0.0, 1.7, 1.9, 30.0):
        loss = torch.tensor(value, requires_grad=True)
        found = shape_loss(loss, shape)
        found.backward()
        expected, slope = jax.value_and_grad(shape)(value)
        assert float(found.detach()) == pytest.approx(float(expected), rel=1e-5)
        assert float(loss.grad) == pytest.approx(float(slope), rel=1e-5)  # pyright: ignore[reportArgumentType]


def test_without_pytorch_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "evenly.flower.clients.torch")
    with pytest.raises(ImportError, match=r"evenly\[flower,torch\]"):
        importlib.import_module("evenly.flower.clients.torch")


def test_a_loader_trains_as_the_same_batches_of_tensors_do(tiny: Federation) -> None:
    rows, told_so = client_of(tiny, 5).train, np.array([[1.0, 0.5, 2.0], [0.0, 1.0, 1.5]])
    models = [linear(), linear()]
    for model in models:
        in_torch.load(model, wire.to_arrays(first()))
    work = LocalTraining(epochs=2, mu=0.1)
    in_torch.train(models[0], loader(tiny, 5), work, row_weights=told_so)
    numbers = batches(0, 1, 5, rows.size, epochs=2, size=7, shuffle=False)
    in_torch.train(models[1], rows, work, batches=numbers, row_weights=told_so)
    assert torch.equal(models[0].weight, models[1].weight)
    assert float(models[0].weight.detach().abs().sum()) > 0


def test_one_logit_is_enough_for_two_classes() -> None:
    output, y = torch.tensor([[0.3], [-2.0]]), torch.tensor([1, 1])
    both = torch.cat([torch.zeros(2, 1), output], 1)
    torch.testing.assert_close(in_torch.cross_entropy(output, y), in_torch.cross_entropy(both, y))
    assert outcome(output).tolist() == outcome(both).tolist() == [1, 0]


def test_the_method_is_read_from_the_config() -> None:
    now = in_torch.read_config(ConfigRecord(config("fairfed(metric=eod)+reweigh", 3, 1)))
    assert "table" in now.algorithm.needs
    assert now.algorithm.prepare is not None
