"""Archives return what was written, a saved model predicts the same after loading, and other files
are refused with a reason.
"""

import json
import struct
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import evenly.saved_models
from evenly.algorithms import algorithm
from evenly.archives import Archive, DamagedError, leaves_of, read_archive, write_archive
from evenly.data.federation import Federation
from evenly.models import MLP, MODELS, Custom, LinearSVM, Logistic, Softmax, from_equinox
from evenly.records import replace
from evenly.saved_models import Model, from_trace, load, models_of, save
from evenly.simulate import simulate
from evenly.types import Seeds, Trace
from tests import federations


def table() -> pd.DataFrame:
    draw = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "site": draw.choice(["a", "b"], 40),
            "income": draw.choice(["high", "low"], 40),
            "age": draw.choice([20.0, 30.0, np.nan], 40),
            "job": draw.choice(["cook", "nurse"], 40),
            7: draw.integers(0, 9, 40),
        }
    )


@pytest.fixture
def from_table() -> Model:
    federation = Federation.from_frame(table(), client="site", label="income")
    return Model(
        task=Logistic(features=5),
        params={"w": jnp.linspace(-1, 1, 5), "b": jnp.array(0.1)},
        labels=federation.labels,
        shape=(5,),
        encoder=federation.encoder,
    )


def test_a_model_prints_its_task_features_and_labels(from_table: Model):
    assert repr(from_table) == (
        "Model: Logistic of 5 features ('age', 'age is missing', 'job=cook', 'job=nurse', '7');"
        " labels 'high', 'low'"
    )
    assert repr(arranged("softmax")).endswith("of 5 features; labels '0', '1'")


def arranged(name: str) -> Model:
    """A model on arrays, with parameters that are not the initial ones."""
    federation = federations.tiny(classes=2)
    task = MODELS[name](federation)
    params = jax.tree.map(
        lambda leaf: leaf + jax.random.normal(jax.random.key(1), leaf.shape),
        task.init(jax.random.key(0)),
    )
    return Model(task=task, params=params, labels=federation.labels, shape=(5,))


@pytest.mark.parametrize("name", MODELS)
def test_every_named_model_comes_back_the_same(name: str, tmp_path: Path):
    model, x = arranged(name), federations.tiny().x
    save(model, tmp_path / "new folder" / "model.npz")
    back = load(tmp_path / "new folder" / "model.npz")
    assert jax.tree.structure(back.params) == jax.tree.structure(model.params)
    for a, b in zip(jax.tree.leaves(back.params), jax.tree.leaves(model.params), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    np.testing.assert_array_equal(back.predict(x), model.predict(x))
    assert set(back.predict(x)) == {0, 1}


def test_settings_of_a_task_are_kept(tmp_path: Path):
    task = LinearSVM(features=2, reduction="sum", regularisation=0.25)
    save(
        Model(task=task, params=task.init(jax.random.key(0)), labels=("a", "b"), shape=(2,)),
        tmp_path / "m",
    )
    back = load(tmp_path / "m").task
    assert isinstance(back, LinearSVM)
    assert (back.features, back.reduction, back.regularisation) == (2, "sum", 0.25)


def test_the_encoder_comes_back_with_the_model(from_table: Model, tmp_path: Path):
    save(from_table, tmp_path / "m.npz")
    back = load(str(tmp_path / "m.npz"))
    assert back.features == ("age", "age is missing", "job=cook", "job=nurse", "7")
    new = pd.DataFrame({"job": ["pilot", None, "cook"], "age": [None, 25, 99], 7: [1, 2, 3]})
    np.testing.assert_array_equal(back.predict(new), from_table.predict(new))
    np.testing.assert_array_equal(back.probabilities(new), from_table.probabilities(new))
    assert set(back.predict(table())) <= {"high", "low"}
    assert back.predict(table()[:0]).shape == (0,)


def test_probabilities_are_those_of_the_labels(from_table: Model):
    p = from_table.probabilities(table())
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)
    np.testing.assert_array_equal(from_table.classes[p.argmax(1)], from_table.predict(table()))


def test_what_cannot_be_predicted_is_refused(from_table: Model):
    with pytest.raises(ValueError, match="must have the column 'job'"):
        from_table.predict(table().drop(columns="job"))
    with pytest.raises(
        ValueError, match=r"Rows must have shape \[n, 5\], as in training; got \[2, 4\]"
    ):
        from_table.predict(np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match="row 0"):
        from_table.predict(np.full((1, 5), np.nan, np.float32))
    with pytest.raises(
        TypeError,
        match=r"trained on arrays, so rows must be an array of shape \[n, 5\], not a table",
    ):
        arranged("softmax").predict(table())
    with pytest.raises(TypeError, match="LinearSVM has no probabilities"):
        arranged("svm").probabilities(np.ones((1, 5)))


def test_a_model_of_bytes_refuses_fractions():
    task = Custom(
        initialise=lambda key: jnp.zeros((4, 2)), apply=lambda p, x: x.reshape(len(x), -1) @ p
    )
    model = Model(
        task=task, params=jnp.ones((4, 2)), labels=("a", "b"), shape=(2, 2), dtype="uint8"
    )
    assert model.predict(np.full((1, 2, 2), 200, np.int64)).tolist() == ["a"]
    with pytest.raises(ValueError, match="Features must be uint8, as in training; got float32"):
        model.predict(np.full((1, 2, 2), 0.5))


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (("0", "1"), [0, 1]),
        (("-3", "12"), [-3, 12]),
        (("False", "True"), [False, True]),
        (("007", "7"), ["007", "7"]),  # two texts that are one number
        (("0", "9" * 30), ["0", "9" * 30]),  # beyond 64 bits
        (("no", "yes"), ["no", "yes"]),
    ],
)
def test_predictions_have_the_type_of_the_labels(labels: tuple[str, ...], classes: list[Any]):
    params = {"w": np.ones(1, np.float32), "b": np.zeros((), np.float32)}
    model = Model(task=Logistic(features=1), params=params, labels=labels, shape=(1,))
    predicted = model.predict([[-1.0], [1.0]])
    assert predicted.tolist() == classes
    assert model.score([[-1.0], [1.0]], classes) == 1


def test_a_trace_becomes_a_model(
    tiny: Federation, task: Softmax, some_trace: Trace, tmp_path: Path
):
    model = from_trace(some_trace, task, tiny)
    save(model, tmp_path / "m.npz")
    rows = tiny.test.rows
    right = (load(tmp_path / "m.npz").predict(tiny.x[rows]) == tiny.y[rows]).sum()
    counted = some_trace.tables[-1, 2].sum((0, 1))  # [labels, outcomes] on test rows
    assert right == np.trace(counted)
    with pytest.raises(
        ValueError,
        match=r"The trace must have the parameters that MLP has .* but has \['b'\] float32\[3\]",
    ):
        from_trace(some_trace, MODELS["mlp"](tiny), tiny)
    with pytest.raises(ValueError, match="Softmax has 4 classes, but the data have 3 labels"):
        from_trace(some_trace, Softmax(features=5, classes=4), tiny)


def test_rows_that_are_not_encoded_are_not_taken_as_features():
    """An array of raw numbers can have as many columns as there are features."""
    raw = pd.DataFrame({"site": list("ab") * 10, "age": range(40, 60), "bmi": range(20, 40)})
    raw["ill"] = np.where(raw["age"] > 50, "yes", "no")
    federation = Federation.from_frame(raw, client="site", label="ill")
    task = Logistic(features=2)
    [trace] = simulate(task, federation, [algorithm("fedavg+full")], rounds=20)
    model = from_trace(trace, task, federation)
    rows = raw[["age", "bmi"]]
    np.testing.assert_array_equal(model.predict(rows), model.predict(federation.x))
    for other in (rows.to_numpy(), rows.to_numpy(float), [[52, 33]], rows.iloc[0]):
        with pytest.raises(TypeError, match=r"a table with the columns 'age', 'bmi', got a "):
            model.predict(other)


def test_for_a_task_that_is_none_the_file_is_not_called_damaged(tiny: Federation, tmp_path: Path):
    task = Custom(
        initialise=lambda key: {"w": jax.numpy.zeros((5, 3))}, apply=lambda own, x: x @ own["w"]
    )
    [trace] = simulate(task, tiny, [algorithm("fedavg+full")], rounds=1)
    save(from_trace(trace, task, tiny), tmp_path / "own.npz")
    for other, named in ((object(), "object"), (Logistic, r"Logistic\(\.\.\.\)")):
        with pytest.raises(TypeError, match=named):
            load(tmp_path / "own.npz", task=other)  # pyright: ignore[reportArgumentType]


def test_an_own_model_needs_its_task_to_come_back(tiny: Federation, tmp_path: Path):
    import equinox as eqx

    def network(width: int) -> Custom:
        return from_equinox(lambda key: eqx.nn.MLP(5, 3, width, 1, key=key))

    task = network(4)
    [trace] = simulate(task, tiny, [algorithm("fedavg+full")], rounds=2)
    model = from_trace(trace, task, tiny)
    save(model, tmp_path / "own.npz")
    with pytest.raises(
        ValueError,
        match=r"own.npz holds a model of your own, whose code is not stored\. .* `task=\.\.\.`",
    ):
        load(tmp_path / "own.npz")
    np.testing.assert_array_equal(
        load(tmp_path / "own.npz", task=network(4)).predict(tiny.x), model.predict(tiny.x)
    )
    with pytest.raises(
        ValueError,
        match=(
            r"The model in own.npz must have the parameters that Custom has .*\[6, 5\].* but has"
            r" .*\[4, 5\]"
        ),
    ):
        load(tmp_path / "own.npz", task=network(6))


def test_half_precision_parameters_come_back(tmp_path: Path):
    task = Custom(initialise=lambda key: jnp.zeros((5, 2), jnp.bfloat16), apply=lambda p, x: x @ p)
    save(
        Model(task=task, params=jnp.full((5, 2), 1.5, jnp.bfloat16), labels=("a", "b"), shape=(5,)),
        tmp_path / "m",
    )
    assert load(tmp_path / "m", task=task).params.dtype == jnp.bfloat16


def rewritten(path: Path, **changes: Any) -> Path:
    """The same file with some entries of its header changed; ... removes one."""
    with np.load(path) as file:
        arrays = {k: file[k] for k in file.files}
    header = {
        k: v
        for k, v in {**json.loads(str(arrays.pop("header"))), **changes}.items()
        if v is not ...
    }
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)
    return path


def test_a_newer_format_is_refused(tmp_path: Path):
    save(arranged("mlp"), tmp_path / "m.npz")
    with pytest.raises(
        ValueError,
        match=(
            r"m.npz' has format 2, but this version of evenly reads up to format 1\. Update evenly"
        ),
    ):
        load(rewritten(tmp_path / "m.npz", format=2))


def test_an_unknown_task_or_half_a_header_is_refused(tmp_path: Path):
    save(arranged("mlp"), tmp_path / "m.npz")
    with pytest.raises(
        ValueError,
        match=(
            r"holds a 'forest' model, which this version of evenly does not have\. It has softmax"
        ),
    ):
        load(rewritten(tmp_path / "m.npz", task={"name": "forest", "settings": {}}))
    with pytest.raises(ValueError, match="labels is missing"):
        load(rewritten(tmp_path / "m.npz", labels=...))


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[: len(b) // 2],
        lambda b: b"hello",
        lambda b: b[:400] + b"\0\1" + b[402:],
    ],
)
def test_a_damaged_file_is_refused(damage: Any, tmp_path: Path):
    path = tmp_path / "m.npz"
    save(arranged("softmax"), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        ValueError, match=r"m.npz is not a whole model file written by evenly.save .*save it again"
    ):
        load(path)


def test_other_files_and_pickles_are_refused(tmp_path: Path):
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    np.savez(tmp_path / "pickle.npz", header=np.array([{"format": 1}], dtype=object))
    for name in ("other.npz", "pickle.npz"):
        with pytest.raises(ValueError, match="not a whole model file"):
            load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="There is no model file"):
        load(tmp_path / "nothing.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save(arranged("softmax"), tmp_path / "m.npz")
    before = (tmp_path / "m.npz").read_bytes()

    def full_disk(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(evenly.saved_models.np, "savez", full_disk)
    with pytest.raises(OSError, match="disk full"):
        save(replace(arranged("softmax"), labels=("x", "y")), tmp_path / "m.npz")
    assert (tmp_path / "m.npz").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.npz"]


def contents(path: Path, newest: int = 0) -> Archive:
    return read_archive(path, lambda archive: archive, newest=newest)


@pytest.mark.parametrize("compress", [False, True])
def test_an_archive_returns_its_header_and_arrays(tmp_path: Path, compress: bool):
    tree = {"a": np.arange(3, dtype=np.int16), "b": [np.float64(0.5), np.zeros((2, 0))]}
    path = write_archive(
        tmp_path / "a.npz",
        leaves_of(tree),
        {"done": 7},
        format=3,
        fingerprint="me",
        compress=compress,
    )
    archive = contents(path, newest=3)
    assert archive.header == {"format": 3, "fingerprint": "me", "done": 7}
    for leaf, expected in zip(archive.leaves(), [tree["a"], *tree["b"]], strict=True):
        np.testing.assert_array_equal(leaf, expected)
        assert leaf.dtype == expected.dtype


def test_an_archive_without_a_format_number_has_format_zero(tmp_path: Path):
    path = write_archive(tmp_path / "a.npz", {"x": np.ones(2)}, {"number": 1})
    assert contents(path).header == {"number": 1}
    with pytest.raises(
        ValueError, match="has format 1, but this version of evenly reads up to format 0"
    ):
        contents(write_archive(path, {}, {}, format=1))


def test_contents_that_cannot_be_parsed_are_reported_as_damage(tmp_path: Path):
    path = write_archive(tmp_path / "a.npz", {"x": np.ones(2)}, {})
    with pytest.raises(DamagedError, match="leaf0"):
        read_archive(path, Archive.leaves)
    with pytest.raises(DamagedError, match=r"format must be a whole number, got '1'"):
        contents(write_archive(path, {}, {"format": "1"}))


def test_a_compressed_array_may_not_claim_more_than_its_bytes_can_expand_to(tmp_path: Path):
    path = write_archive(tmp_path / "a.npz", {"x": np.zeros(100_000)}, {}, compress=True)
    content = path.read_bytes()
    true, claimed = (struct.pack("<I", 800_128 + more) for more in (0, 2_000_000))
    assert content.count(true) == 2, "in the member's own header and in the directory"
    path.write_bytes(content.replace(true, claimed))
    with pytest.raises(DamagedError, match="claims 2,800,128 bytes, more than the file can hold"):
        contents(path)


@pytest.mark.parametrize("text", ["frl", "e2fl", "ifca(groups=2)"])
def test_models_of_ranked_edges_and_of_several_groups_predict_what_clients_were_served(
    tiny: Federation, text: str, tmp_path: Path
):
    mlp = MLP(features=5, classes=3, hidden=(6,), bias=False)
    member = algorithm(text + "+uniform(clients=3)")
    (trace,) = simulate(mlp, tiny, [member], 2)
    models = models_of(trace, member.task(mlp, Seeds()), tiny)
    assert len(models) == {"frl": 1, "e2fl": 3, "ifca(groups=2)": 2}[text]
    for number, model in enumerate(models):
        save(model, tmp_path / f"{number}.npz")
    kept = [load(tmp_path / f"{number}.npz") for number in range(len(models))]
    for k in range(tiny.clients):
        rows = tiny.test.of(k)
        model = kept[trace.choice[-1, k] if trace.choice.size else 0]
        right = (model.predict(tiny.x[rows]) == model.classes[tiny.y[rows]]).sum()
        assert right == np.trace(trace.tables[-1, 2, k].sum(0))
