"""Data that stay on the host: the same results, to the bit, as with all of them on the device; and
only a panel evaluated.
"""

from pathlib import Path

import jax
import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.models import Softmax
from evenly.records import replace
from evenly.simulate import layout, schedule, simulate, streaming
from evenly.types import Seeds, Trace
from tests.simulations import algorithms, same_bits

METHODS = [
    "fedavg(learning_rate=[0.1, 0.3])+uniform(clients=3)",
    "q-fedavg(q=2)",
    "ditto+uniform(clients=3)",  # clients keep a model
    "fedavg+reweigh+uniform(clients=3)",
    "fairfed(measured_on=valid)+uniform(clients=3)",
]
LESS_OFTEN = ["afl+full", "fairfed+full", "fedavg+server-adam", "local+full", "fedmgda"]


@pytest.fixture(scope="module")
def crowd() -> Federation:
    draw = np.random.default_rng(3)
    sizes = draw.integers(3, 40, 30)
    client = np.repeat(np.arange(30), sizes)
    x = draw.normal(size=(len(client), 5)).astype(np.float32)
    y = (x @ draw.normal(size=(5, 3)) + draw.normal(size=(30, 3))[client]).argmax(1)
    split = draw.choice(["train", "valid", "test", "central"], len(client), p=[0.6, 0.1, 0.2, 0.1])
    split[np.concatenate([[0], np.cumsum(sizes)[:-1]])] = "train"
    return Federation.from_arrays(x, y, client, group=draw.integers(0, 2, len(client)), split=split)


def run(federation: Federation, methods: str, rounds: int = 7, **more: object) -> list[Trace]:
    task = Softmax(features=5, classes=3)
    return simulate(
        task,
        federation,
        algorithms(methods),
        rounds,
        seeds=Seeds.all(1),
        evaluate_every=3,
        dropout=0.2,
        **more,
    )  # type: ignore[arg-type]


def same_training(a: Trace, b: Trace, *, stepped: bool = False) -> None:
    """To the bit, but for what other programs may round differently: losses that are only reported,
    and a server's optimiser.
    """
    np.testing.assert_allclose(a.losses, b.losses, rtol=1e-6)
    if stepped:
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6), a.model, b.model
        )
        a = a._replace(model=b.model)
    same_bits(a._replace(losses=b.losses), b)


@pytest.mark.parametrize(
    "methods", [*METHODS, *(pytest.param(text, marks=pytest.mark.slow) for text in LESS_OFTEN)]
)
def test_streamed_equals_resident(crowd: Federation, methods: str, monkeypatch: pytest.MonkeyPatch):
    resident = run(crowd, methods, stream=False)
    # some rounds a block, a client or a few an evaluation
    monkeypatch.setattr(streaming, "PIECE_BYTES", 20 * 60)
    streamed = run(crowd, methods, stream=True)
    for one, other in zip(resident, streamed, strict=True):
        same_training(one, other, stepped="server" in methods)


@pytest.mark.parametrize("lanes", [5, pytest.param(2, marks=pytest.mark.slow)])
def test_lanes_can_be_streamed(crowd: Federation, lanes: int):
    (resident,) = run(crowd, "q-fedavg(q=1)+full", lanes=lanes, stream=False)
    (streamed,) = run(crowd, "q-fedavg(q=1)+full", lanes=lanes, stream=True)
    same_training(resident, streamed)


def test_a_file_is_read_where_it_lies(
    crowd: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    np.save(tmp_path / "x.npy", crowd.x)
    mapped = replace(crowd, x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    monkeypatch.setattr(layout, "LARGEST_RESIDENT", crowd.x.nbytes - 1)
    assert layout.worth_streaming(mapped, 1)
    (one,), (other,) = run(mapped, "fedavg"), run(crowd, "fedavg", stream=False)
    same_training(one, other)


def test_scattered_rows_are_streamed_where_few_are_needed_and_evaluations_are_rare(
    crowd: Federation, monkeypatch: pytest.MonkeyPatch
):
    bytes_of_row, all_rows = crowd.x.nbytes / len(crowd.x), len(crowd.x)
    three = 3 * len(crowd.train.rows) / 30  # rows of three clients
    monkeypatch.setattr(layout, "SCATTERED_BYTES", crowd.x.nbytes - 1)
    monkeypatch.setattr(layout, "CACHED_BYTES", 1.01 * three * bytes_of_row)
    enough = int(2 * 5 * all_rows / three) + 1  # rounds for five evaluations
    assert layout.faster_to_stream(crowd, 3, enough, 5)
    assert not layout.faster_to_stream(crowd, 3, enough - 2, 5)
    assert not layout.faster_to_stream(crowd, 3, enough, 6)
    assert not layout.faster_to_stream(crowd, 4, enough, 5)
    monkeypatch.setattr(layout, "SCATTERED_BYTES", crowd.x.nbytes)
    assert not layout.faster_to_stream(crowd, 3, enough, 5)


def test_what_is_streamed_to_be_faster_is_the_same(
    crowd: Federation, monkeypatch: pytest.MonkeyPatch
):
    asked: list[tuple[int, int, int]] = []

    def yes(federation: Federation, *about: int) -> bool:
        asked.append(about)  # type: ignore[arg-type]
        return True

    monkeypatch.setattr("evenly.simulate.run.faster_to_stream", yes)
    load_block = streaming.Streamed.load_block
    monkeypatch.setattr(
        streaming.Streamed,
        "load_block",
        lambda self, cohort: asked.append((0, 0, 0)) or load_block(self, cohort),
    )
    (streamed,), (resident,) = (
        run(crowd, "fedavg+uniform(clients=3)"),
        run(crowd, "fedavg+uniform(clients=3)", stream=False),
    )
    assert asked[0] == (3, 7, 4)  # clients a round, rounds, evaluations
    assert len(asked) > 1, "it was streamed"
    same_training(streamed, resident)
    run(crowd, "ifca(groups=2)")  # several models are not streamed, whatever would be faster


def test_many_cells_are_counted_piece_by_piece(crowd: Federation, monkeypatch: pytest.MonkeyPatch):
    assert not layout.worth_streaming(crowd, 1)
    monkeypatch.setattr(layout, "MOST_CELLS", 91 * 2 * 9)  # owners, groups, labels and outcomes
    assert not layout.worth_streaming(crowd, 1)
    assert layout.worth_streaming(crowd, 2)


@pytest.mark.parametrize(
    "methods, stream",
    [
        ("q-fedavg(q=1)", False),
        ("ditto", True),
        pytest.param("q-fedavg(q=1)", True, marks=pytest.mark.further),
        pytest.param("ditto", False, marks=pytest.mark.further),
    ],
)
def test_a_panel_is_some_of_the_clients(crowd: Federation, stream: bool, methods: str):
    panel = np.array([17, 2, 29])
    (everyone,), (some,) = (
        run(crowd, methods, stream=False),
        run(crowd, methods, stream=stream, panel=panel),
    )
    assert some.panel is not None
    assert some.panel.tolist() == panel.tolist()
    np.testing.assert_array_equal(some.tables, everyone.tables[:, :, panel])
    np.testing.assert_allclose(some.losses, everyone.losses[:, :, panel], rtol=1e-6)
    assert some.clients == tuple(everyone.clients[k] for k in panel)
    shared = {name: getattr(some, name) for name in ("tables", "losses", "panel", "clients")}
    same_bits(everyone._replace(**shared), some)


def test_a_panel_sees_its_own_choices(crowd: Federation):
    panel = np.array([4, 9])
    (everyone,), (some,) = run(crowd, "ifca(groups=2)"), run(crowd, "ifca(groups=2)", panel=panel)
    np.testing.assert_array_equal(some.choice, everyone.choice[:, panel])


@pytest.mark.parametrize("panel", [[], [3, 3], [30], [-1], [0.5], [[1, 2]]])
def test_a_panel_must_be_clients(crowd: Federation, panel: list[float]):
    with pytest.raises(
        ValueError,
        match="panel must hold at least one client number from 0 to 29, none of them twice, got",
    ):
        run(crowd, "fedavg", panel=np.array(panel))


def test_several_models_need_the_data_on_the_device(crowd: Federation):
    with pytest.raises(
        ValueError, match="keeps several models, and needs the data on the device; leave stream out"
    ):
        run(crowd, "ifca(groups=2)", stream=True)


@pytest.mark.parametrize(
    "methods",
    ["ditto+uniform(clients=3)", pytest.param("q-fedavg(q=[0, 1])", marks=pytest.mark.further)],
)
def test_a_stopped_run_goes_on_to_the_same_bits(
    crowd: Federation, methods: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_ROWS", 1)  # a round a block

    def stop(done: int, of: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    whole = run(crowd, methods, stream=True)
    with pytest.raises(KeyboardInterrupt):
        run(crowd, methods, stream=True, checkpoint=tmp_path / "half.npz", progress=stop)
    begun: list[int] = []
    resumed = run(
        crowd,
        methods,
        stream=True,
        checkpoint=tmp_path / "half.npz",
        progress=lambda done, of: begun.append(done),
    )
    assert begun[0] == 5
    for one, other in zip(whole, resumed, strict=True):
        same_bits(one, other)


def test_features_in_a_file_stay_there(crowd: Federation, tmp_path: Path):
    np.save(tmp_path / "x.npy", crowd.x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    client = np.arange(len(crowd.y)) % 7
    assert np.shares_memory(Federation.from_arrays(mapped, crowd.y, client).x, mapped)
    # the caller may change its own
    assert not np.shares_memory(Federation.from_arrays(crowd.x, crowd.y, client).x, crowd.x)


def test_only_as_many_memories_are_moved_as_there_is_room_for(
    crowd: Federation, monkeypatch: pytest.MonkeyPatch
):
    moved: list[int] = []
    of = streaming.HostMemories.of
    monkeypatch.setattr(streaming, "MEMORY_BYTES", 5 * 18 * 4)  # five softmaxes
    monkeypatch.setattr(
        streaming.HostMemories,
        "of",
        lambda kept, clients, room: moved.append(room) or of(kept, clients, room),
    )
    (streamed,) = run(crowd, "ditto+uniform(clients=3)", stream=True)
    assert max(moved) == 5
    (resident,) = run(crowd, "ditto+uniform(clients=3)", stream=False)
    same_training(resident, streamed)


def test_a_checkpoint_holds_only_those_who_trained(tmp_path: Path):
    draw = np.random.default_rng(0)
    many = Federation.from_arrays(
        draw.normal(size=(3000, 5)), draw.integers(0, 3, 3000), np.repeat(np.arange(1500), 2)
    )

    def stop(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            many,
            "ditto+uniform(clients=2)",
            1,
            stream=True,
            panel=np.array([0]),
            checkpoint=tmp_path / "half.npz",
            progress=stop,
        )
    assert (tmp_path / "half.npz").stat().st_size < 1500 * 18 * 4


@pytest.mark.parametrize(
    "methods",
    [
        "fedavg+reweigh+weighted(clients=4)",
        pytest.param("ditto+uniform(clients=3)", marks=pytest.mark.further),
    ],
)
def test_bytes_weights_and_missing_splits_are_streamed_too(crowd: Federation, methods: str):
    draw = np.random.default_rng(1)
    odd = replace(
        crowd,
        x=draw.integers(0, 255, (len(crowd.y), 5)).astype(np.uint8),
        y=crowd.y.astype(np.uint8),
        weight=draw.random(len(crowd.y)),
        valid=Ragged(crowd.valid.rows[:0], np.zeros(31, np.int64)),
        central=crowd.central[:0],
    )
    (resident,), (streamed,) = run(odd, methods, stream=False), run(odd, methods, stream=True)
    same_training(resident, streamed)
