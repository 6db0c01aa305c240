"""Whatever stands in a file or on the command line, evenly answers with a sentence (ValueError),
never with another exception.

Each test takes something whole (notation, an experiment file, plan.json, a saved model, live.jsonl,
a Parquet table), changes it at random and reads it as the commands do.
"""

import copy
import io
import json
import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import evenly
from evenly.algorithms import METHODS
from evenly.datasets.load import load as load_data
from evenly.experiment.config import read
from evenly.experiment.deployment import Deployment
from evenly.experiment.observe import LIVE_FILE, Live
from evenly.experiment.plan import Plan
from evenly.experiment.reopen import read_plan
from evenly.experiment.study import StudyPlan
from evenly.models import MLP
from evenly.models.named_models import choose_model
from evenly.models.task import skeleton
from evenly.notation import parse, parse_list
from evenly.parts.sampling import SAMPLINGS
from evenly.saved_models import Model, load, save
from evenly.watch.state import WatchState

HOSTILE = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, 10**30, -(10**30)]),
    st.floats(),
    st.booleans(),
)
PLAIN = st.one_of(
    st.none(),
    NUMBERS,
    st.text(max_size=8),
    st.sampled_from(["fedavg", "name", "[[[[", "nan", "x" * 5000]),
)
JSON = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
LONGEST = 1500  # characters of a sentence: what is repeated in it is shortened


def only_sentences(function: Any, *given: Any) -> Any:
    """The result, or None where a mistake was answered with a sentence; any other exception fails
    the test.
    """
    sentence = "."
    try:
        return function(*given)
    except ValueError as error:
        sentence = str(error)
    assert 0 < len(sentence) < LONGEST, sentence[:300]
    return None


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where everything is in nested lists and objects."""
    yield at
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inner:
        yield from paths(each, (*at, key))


@st.composite
def changed(draw: Any, whole: Any) -> Any:
    """A copy of nested data in which one or two places hold something else, or are gone."""
    found = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.sampled_from(sorted(paths(found), key=str)))
        if not at:
            return draw(JSON)
        inside = found
        for key in at[:-1]:
            inside = inside[key]
        if isinstance(inside, dict) and draw(st.booleans()) and draw(st.booleans()):
            del inside[at[-1]]
        else:
            inside[at[-1]] = draw(JSON)
    return found


# Notation

WORDS = st.sampled_from([*METHODS, *SAMPLINGS, "server-adam", "local-sgd", "reweigh", "nothing"])
KEYS = st.sampled_from(
    sorted(
        {name for method in METHODS.values() for name in method.settings}
        | {"clients", "share", "p", "foo", "b1"}
    )
)
VALUES = st.one_of(
    NUMBERS.map(str),
    st.sampled_from(
        [
            "x",
            "[1,x]",
            "[]",
            "[[1]]",
            "'a,b'",
            '"',
            "'",
            "true",
            "[true,1]",
            "nan",
            "1e999",
            "9" * 5000,
        ]
    ),
    st.lists(st.integers(0, 2).map(str), max_size=3).map(lambda values: f"[{','.join(values)}]"),
)
PARTS = st.tuples(WORDS, st.lists(st.tuples(KEYS, VALUES), max_size=2)).map(
    lambda t: f"{t[0]}({','.join(f'{k}={v}' for k, v in t[1])})"
)
METHOD = st.one_of(
    st.lists(PARTS, min_size=1, max_size=3).map("+".join),
    st.text(alphabet="afedvg-q()[]=+,'\"1. ", max_size=30),
    st.sampled_from(
        [
            "(" * 3000,
            "fedavg(q=" + "[" * 5000 + "]" * 5000 + ")",
            "fedavg" * 2000,
            "fedavg(" + "q=1," * 3000 + ")",
        ]
    ),
)


@settings(HOSTILE, max_examples=200)
@given(METHOD, METHOD)
def test_methods_and_samplings(method: str, sampling: str):
    only_sentences(parse, method)
    only_sentences(parse_list, method)
    plan = only_sentences(lambda: Plan(name="x", data={}, methods=(method,), rounds=1, seeds=(0,)))
    if plan:
        only_sentences(plan.variants)
    other = only_sentences(
        lambda: Plan(
            name="x", data={}, methods=("fedavg",), rounds=1, seeds=(0,), sampling=sampling
        )
    )
    if other:
        only_sentences(other.variants)


@pytest.mark.parametrize(
    "sampling",
    ["weighted(foo=1)", "weighted(clients=x)", "fraction(share=x)", "uniform(clients=[1,2])"],
)
def test_a_sampling_with_wrong_settings(sampling: str):
    plan = Plan(name="x", data={}, methods=("fedavg",), rounds=1, seeds=(0,), sampling=sampling)
    with pytest.raises(ValueError, match=sampling.partition("(")[0]):
        plan.variants()


def test_a_list_of_members_holds_numbers():
    plan = Plan(name="x", data={}, methods=("multi-q(q=[1,x])",), rounds=1, seeds=(0,))
    with pytest.raises(ValueError, match=r"multi-q: q must be a list of numbers, got 'x' in it\."):
        plan.variants()


def test_a_model_with_wrong_settings():
    federation = load_data({"name": "synthetic", "clients": 2}, 0)
    with pytest.raises(
        ValueError, match=r"mlp: hidden must be a list \(a whole number each\), got 'x'\."
    ):
        choose_model("mlp(hidden=x)", federation)


def test_long_input_is_repeated_shortened():
    with pytest.raises(ValueError, match=r"'fedavg.{50,100}… \(12,002 characters\)") as caught:
        parse("fedavg" * 2000 + "((")
    assert len(str(caught.value)) < 300


# Experiment files

EXPERIMENT = """title = "t"
methods = ["fedavg", "q-fedavg(q=1)"]
rounds = 2
seeds = 2
sampling = "uniform(clients=2)"
dropout = 0.1

[data]
name = "synthetic"
clients = 5

[training]
learning_rate = 0.1
batch_size = 4

[quick]
rounds = 1
seeds = 1
"""
TOML = st.one_of(
    st.integers(-2, 2).map(str),
    st.text(max_size=6).map(json.dumps),
    st.sampled_from(
        [
            "0",
            "[]",
            "{}",
            "true",
            "nan",
            "1979-05-27",
            "[1, 'a']",
            "{a = 1}",
            "0x" + "F" * 5000,
            "[" * 5000 + "]" * 5000,
        ]
    ),
    st.sampled_from(
        [".".join("a" * 3000) + " = 1", "[[data]]", "[data.name]", "'", "= 1", "\x00", "{" * 3000]
    ),
)


def planned(path: Path) -> Plan:
    experiment = read(path)
    with suppress(ValueError):
        experiment.plan("x", quick=True).variants()
    plan = experiment.plan("x")
    plan.variants()
    return plan


@settings(HOSTILE, max_examples=150)
@given(st.data())
def test_experiment_files(tmp_path: Path, data: st.DataObject):
    lines: list[str] = [*EXPERIMENT.splitlines()]
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(lines) - 1))
        key, equals, _ = lines[at].partition("=")
        lines[at] = (
            f"{key}{equals} {data.draw(TOML)}" if data.draw(st.booleans()) else data.draw(TOML)
        )
    path = tmp_path / "x.toml"
    path.write_text("\n".join(lines))
    only_sentences(planned, path)


@pytest.mark.parametrize(
    "line",
    [
        "name = 0",
        "name = " + "[" * 5000 + "]" * 5000,
        ".".join("a" * 5000) + " = 1",
        "clients = 'x'",
    ],
)
def test_data_of_another_kind_in_an_experiment_file(tmp_path: Path, line: str):
    path = tmp_path / "x.toml"
    path.write_text(
        'title = "t"\nmethods = ["fedavg"]\nrounds = 1\n[data]\n'
        + line
        + ('\nname = "synthetic"' if "name" not in line else "")
    )
    with pytest.raises(ValueError, match=r"x\.toml|synthetic"):
        load_data(read(path).data, 0)


# Plans

PLAN = Plan(
    name="x",
    data={"name": "synthetic", "clients": 3},
    methods=("fedavg",),
    rounds=1,
    seeds=(0, 1),
    training={"learning_rate": 0.1},
)
STUDY = StudyPlan(name="x", chosen=("learning_rate",), cells={"a": PLAN})
DEPLOYMENT = Deployment(
    name="x",
    method="fedavg",
    algorithm="fedavg",
    settings={},
    seeds={"cohort": 0},
    arrays=[["w", [2], "float32"]],
)
PLANS = [json.loads(plan.to_json()) for plan in (PLAN, STUDY, DEPLOYMENT)]


def opened(folder: Path) -> None:
    plan = read_plan(folder)
    for own in (
        plan.cells.values()
        if isinstance(plan, StudyPlan)
        else [plan]
        if isinstance(plan, Plan)
        else []
    ):
        own.variants()
        own.fingerprint()
        if own.data.get("name") not in ("synthetic", None):
            load_data(own.data, 0)


@settings(HOSTILE, max_examples=150)
@given(st.sampled_from(PLANS).flatmap(changed))
def test_plans(tmp_path: Path, plan: Any):
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    only_sentences(opened, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"data": 3},
        {"data": []},
        {"model": ["mlp"]},
        {"seeds": ["a"]},
        {"methods": [1]},
        {"rounds": "5"},
    ],
)
def test_a_plan_of_another_shape(tmp_path: Path, change: dict[str, Any]):
    (tmp_path / "plan.json").write_text(json.dumps(PLANS[0] | change))
    with pytest.raises(ValueError, match=f"is damaged.*{next(iter(change))} must be"):
        read_plan(tmp_path)


def test_a_plan_nested_too_deeply(tmp_path: Path):
    (tmp_path / "plan.json").write_text(
        '{"schema": 1, "data": ' + "[" * 100_000 + "]" * 100_000 + "}"
    )
    with pytest.raises(ValueError, match="nested 20 levels deep"):
        read_plan(tmp_path)


# Saved models


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "m.npz"
    task = MLP(features=2, classes=3, hidden=(4,))
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), skeleton(task))
    save(Model(task=task, params=params, labels=("a", "b", "c"), shape=(2,)), path)
    return path.read_bytes()


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def packed(parts: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return made.getvalue()


def array_bytes(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def forged(shape: str, dtype: str = "<f4") -> bytes:
    """An array that says it has this shape, and holds nothing."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text + b"\n"


def used(path: Path) -> None:
    model = load(path)
    assert len(model.predict(np.zeros((2, *model.shape), model.dtype))) == 2


@settings(HOSTILE, max_examples=120)
@given(st.data())
def test_headers_of_saved_models(tmp_path: Path, saved: bytes, data: st.DataObject):
    parts = members(saved)
    header = json.loads(str(np.load(io.BytesIO(parts["header.npy"]))))
    parts["header.npy"] = array_bytes(np.array(json.dumps(data.draw(changed(header)))))
    path = tmp_path / "m.npz"
    path.write_bytes(packed(parts))
    only_sentences(used, path)


@settings(HOSTILE, max_examples=60)
@given(st.data())
def test_bytes_of_saved_models(tmp_path: Path, saved: bytes, data: st.DataObject):
    content = bytearray(saved)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "m.npz"
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, 10]))])
    only_sentences(used, path)


@pytest.mark.parametrize(
    "shape",
    [
        "(1000000, 1000000)",
        "(10000000000000000000000,)",
        "(-1,)",
        "(2,)",
        "('a',)",
        "(" * 200 + ")" * 200,
        "-" * 5000,
        "-" * 5000 + "1",
        "[" * 9000,
    ],
)
@pytest.mark.parametrize("dtype", ["<f4", "|O", "<U999999999"])
def test_a_forged_shape_takes_no_memory(tmp_path: Path, saved: bytes, shape: str, dtype: str):
    path = tmp_path / "m.npz"
    path.write_bytes(packed(members(saved) | {"leaf0.npy": forged(shape, dtype)}))
    with pytest.raises(
        ValueError,
        match=r"m.npz is not a whole model file written by evenly.save \(.*\); save it again\.",
    ):
        load(path)


def test_one_flipped_bit_says_that_an_array_is_encrypted(tmp_path: Path, saved: bytes):
    path, content = tmp_path / "m.npz", bytearray(saved)
    content[content.rindex(b"PK\x01\x02") + 8] ^= 1  # the flags in the directory of the archive
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"m.npz is not a whole model file .*is encrypted"):
        load(path)


# What evenly watch reads

LINES = [
    {"label": "fedavg", "seed": 0, "round": 10, "values": {"test": {"average": 50.0}}, "time": 2.0},
    {"done": 3, "total": 80, "time": 3.0},
    {"started": [["fedavg", 0]], "time": 2.0},
    {"failed": [["fedavg", 1]], "error": "e", "time": 4.0},
    {"end": "finished", "time": 5.0},
]


@settings(HOSTILE, max_examples=150)
@given(st.data())
def test_live_files(tmp_path: Path, data: st.DataObject):
    about = {
        "name": "test",
        "data": "tiny",
        "rounds": 20,
        "every": 10,
        "splits": ["test", "central"],
    }
    Live(tmp_path, about, [("fedavg", 0), ("fedavg", 1)]).end("stopped")
    head = json.loads((tmp_path / LIVE_FILE).read_text().splitlines()[0])
    whole = [head, *LINES] * 2
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(changed(whole[at]))
    (tmp_path / LIVE_FILE).write_text("".join(json.dumps(line) + "\n" for line in whole))
    (tmp_path / "plan.json").write_text(
        json.dumps(data.draw(changed(PLANS[1]))) if data.draw(st.booleans()) else "[" * 5000
    )
    json.dumps(WatchState(tmp_path).look(), allow_nan=False)


@pytest.mark.parametrize(
    "line",
    [
        {"live": 1},
        {"live": 1, "time": 1, "runs": 3},
        [],
        3,
        {"live": 1, "time": 1e300, "runs": [], "rounds": 1},
    ],
)
def test_a_live_file_with_a_head_that_is_not_whole(tmp_path: Path, line: Any):
    (tmp_path / LIVE_FILE).write_text(json.dumps(line) + "\n")
    assert WatchState(tmp_path).look()["status"] == "waiting"


# Tables

KINDS = st.sampled_from(
    [
        pa.list_(pa.int64()),
        pa.list_(pa.list_(pa.string())),
        pa.list_(pa.int64(), 2),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.binary(),
        pa.null(),
        pa.bool_(),
        pa.timestamp("ms"),
        pa.date32(),
        pa.time32("s"),
        pa.duration("s"),
        pa.float64(),
        pa.int8(),
        pa.uint64(),
        pa.decimal128(5, 2),
        pa.string(),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
    ]
)


def column(kind: pa.DataType) -> pa.Array:
    values: list[Any] = [0, 1]
    if pa.types.is_map(kind):
        values = [[("a", 1)], [("b", 2)]]
    elif pa.types.is_struct(kind):
        values = [{"a": 1}, None]
    elif pa.types.is_nested(kind):
        values = [[["x"]], []] if pa.types.is_nested(kind.value_type) else [[1, 2], [3, 4]]
    elif (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_dictionary(kind)
    ):
        values = ["a", "b"]
    elif pa.types.is_null(kind) or pa.types.is_boolean(kind):
        values = [None, None] if pa.types.is_null(kind) else [True, False]
    return (
        pa.array(values * 10, kind)
        if not pa.types.is_dictionary(kind)
        else pa.array(values * 10).dictionary_encode()
    )


@settings(HOSTILE, max_examples=50)
@given(st.fixed_dictionaries(dict.fromkeys(("y", "p", "s", "k", "g"), KINDS)), st.data())
def test_parquet_tables(tmp_path: Path, kinds: dict[str, pa.DataType], data: st.DataObject):
    # most columns are as they should be
    kept = data.draw(st.sets(st.sampled_from(sorted(kinds)), min_size=3))
    plain = {
        "y": pa.int64(),
        "p": pa.int64(),
        "s": pa.float64(),
        "k": pa.string(),
        "g": pa.string(),
    }
    path = tmp_path / "t.parquet"
    parquet.write_table(
        pa.table({name: column(plain[name] if name in kept else kinds[name]) for name in kinds}),
        path,
    )
    only_sentences(
        lambda: evenly.audit(
            path, label="y", prediction="p", score="s", client="k", sensitive="g", min_cell=0
        )
    )
    source = {"path": str(path), "client": "k", "label": "y", "sensitive": ["g"], "drop": ["p"]}
    only_sentences(lambda: load_data(source, 0))


@pytest.mark.parametrize("role", ["label", "prediction", "client", "sensitive", "score"])
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())]
)
def test_nested_columns_are_named(tmp_path: Path, role: str, kind: pa.DataType):
    path = tmp_path / "t.parquet"
    plain = {name: column(pa.int64()) for name in ("y", "p", "k", "g")} | {"odd": column(kind)}
    parquet.write_table(pa.table(plain), path)
    roles: dict[str, Any] = {
        "label": "y",
        "prediction": "p",
        "client": "k",
        "sensitive": "g",
        role: "odd",
    }
    with pytest.raises(
        ValueError,
        match=(
            r"t.parquet: column 'odd' must hold one word or number in each row, but holds"
            r" .(list|struct|map)"
        ),
    ):
        evenly.audit(path, **roles)
