"""Four clients, one of which sends whatever somebody wants: real messages of Flower, made wrong in
arbitrary ways.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from hypothesis import strategies as st

from evenly.auditing import Audit
from evenly.data.sensitive import Attribute, attributes_from
from evenly.experiment.deployment import Exclusion
from evenly.flower import audit, strategy, wire
from evenly.metrics.score_cells import counts_of_cells
from tests.flower.grids import OneProcess, settings

NODES = (30, 10, 40, 20)
LIAR = 30
TABLE = np.array([[[3, 1], [0, 1]], [[2, 0], [1, 2]]])  # ten rows
CELLS = [[0, 0, 0, 39, 4], [0, 1, 60, 99, 1], [1, 0, 0, 49, 2], [1, 1, 40, 99, 3]]  # their scores
SCORES = counts_of_cells(np.array(CELLS), 2)
MODEL = {
    "w": np.arange(6, dtype=np.float32).reshape(3, 2),
    "b": np.zeros(2, np.float32),
    "steps": np.array(3, np.int32),
}
TWO_PHASES = {"measure": wire.MEASURE, "add": "train"}
Spoil = Callable[["Parts"], Message | RecordDict]


class Parts(NamedTuple):
    """An honest reply, taken apart."""

    message: Message  # that is answered
    metrics: dict[str, Any]
    arrays: dict[str, Array]
    about: dict[str, Any]

    @property
    def content(self) -> RecordDict:
        records: dict[str, Any] = {"metrics": MetricRecord(self.metrics)}
        records |= {"arrays": ArrayRecord(self.arrays)} if self.arrays else {}
        return RecordDict(records | ({"about": ConfigRecord(self.about)} if self.about else {}))


def honest(message: Message, context: Context) -> Parts:
    """A client of ten rows that moves every weight a little, and says everything that any method
    asks for.
    """
    k, kind = int(context.node_config["partition-id"]), message.metadata.message_type
    metrics: dict[str, Any] = {"num-examples": 10}
    if kind == wire.CENSUS:
        wire.put(metrics, "cells", TABLE.sum(-1))
        about = {
            "name": f"ward {k}",
            "labels": ["no", "yes"],
            "groups": ["a", "b"],
            "unprivileged": [1],
            "favourable": 1,
        }
        return Parts(message, {**metrics, "client": k}, {}, about)
    if kind == wire.AUDIT:
        wire.put(metrics, wire.TABLE, TABLE)
        for key, own in zip((wire.SCORE_FIRST, wire.SCORE_LAST), SCORES, strict=True):
            wire.put(metrics, key, own)
        return Parts(message, metrics, {}, {})
    metrics |= {"loss": 0.5 + k / 10}
    wire.put(metrics, "table", TABLE)
    if kind == "evaluate":
        wire.put(metrics, "train-table", TABLE)
        wire.put(metrics, "valid-table", TABLE // 2)
        return Parts(message, {**metrics, "accuracy": 0.8, "valid-loss": 0.5}, {}, {})
    wire.put(metrics, "valid-table", TABLE // 2)
    wire.put(metrics, "cell-loss", np.full((2, 2), 1.0 + k))
    metrics |= {"unprivileged-examples": 5, "square-norm": 0.5, "seconds": [1.0, 2.0]}
    if kind == wire.MEASURE:
        return Parts(message, metrics, {}, {})
    told, received = settings(message), message.content.array_records["arrays"]
    metrics |= {
        key: told[key] for key in (wire.COEFFICIENT, wire.COEFFICIENT + wire.SHAPE) if key in told
    }
    several = any("/" in name for name in received)
    metrics |= {"choice": 0} if several else {}
    own = {
        name.removeprefix("0/"): array.numpy()
        for name, array in received.items()
        if not several or name.startswith("0/")
    }
    scale = float(told[wire.COEFFICIENT]) if wire.COEFFICIENT in told else None  # pyright: ignore[reportArgumentType]
    moved = {n: Array(np.asarray(a + a.dtype.type(k + 1), a.dtype)) for n, a in own.items()}
    scaled = {
        n: Array(np.full(a.shape, (scale or 0.0) * (k + 1), np.float32)) for n, a in own.items()
    }
    return Parts(message, metrics, moved if scale is None else scaled, {})


class Outcome(NamedTuple):
    """What became of a run of one round."""

    model: dict[str, np.ndarray]
    left_out: list[Exclusion]
    tables: np.ndarray  # [splits, clients, ...] of the evaluation
    names: tuple[str, ...]
    attributes: tuple[Attribute, ...]


def grid_with_a_liar(kind: str, spoil: Spoil) -> OneProcess:
    """Clients of whom the liar spoils its replies to one kind of message."""

    def answer(message: Message, context: Context) -> Message:
        parts = honest(message, context)
        if context.node_id != LIAR or message.metadata.message_type != kind:
            return Message(parts.content, reply_to=message)
        made = spoil(parts)
        return made if isinstance(made, Message) else Message(made, reply_to=message)

    return OneProcess(answer, NODES)


def audited(kind: str, spoil: Spoil) -> Audit:
    """An audit in which the liar's reply to one kind of message is spoilt."""
    return audit(grid_with_a_liar(kind, spoil), min_cell=0)


def outcome(method: str, kind: str, spoil: Spoil, *, introduce: bool = True) -> Outcome:
    """A run in which the liar's reply to one kind of message is spoilt: to "train", "evaluate", the
    census, or one of two phases.
    """

    made = strategy(method, two_phase=kind in TWO_PHASES, introduce=introduce)
    first = ArrayRecord({name: Array(array) for name, array in MODEL.items()})
    result = made.start(grid_with_a_liar(TWO_PHASES.get(kind, kind), spoil), first, num_rounds=1)
    recorder = made.history.recorder
    model = {name: array.numpy() for name, array in result.arrays.items()}
    about, tables = recorder.about, recorder.trace().tables[-1]
    return Outcome(model, recorder.left_out, tables, about.names, attributes_from(about.attributes))


def crash(parts: Parts) -> Message:
    return Message(Error(8, "no memory"), reply_to=parts.message)


@lru_cache
def without_the_liar(method: str, kind: str) -> Outcome:
    """The same run if the liar does not answer this kind of message at all."""
    return outcome(method, kind, crash)


@lru_cache
def audited_without_the_liar(kind: str) -> Audit:
    """The same audit if the liar does not answer this kind of message at all."""
    return audited(kind, crash)


# What a liar can send.

HUGE = [2**31, 2**31 - 1, 2**40, 2**63 - 1, 10**400, 1e30, 1e300, 1.7e308]
ODD = [float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 0.5, 1e300, 2.0**63]
numbers: st.SearchStrategy[Any] = st.sampled_from([*ODD, -1, 0, 3, 10**6, *HUGE])
shapes: st.SearchStrategy[Any] = st.sampled_from(
    [
        [side, *rest]
        for side in (*ODD, *[float("inf")] * 4)
        for rest in ([1.0], [1.0, 1.0], [2.0, 2.0])
    ]
) | st.sampled_from([[-1, -8, 1], [2, 2], [0, 2, 2], [8], [2**62, 2**62, 2], [], 8, 1.5, [1] * 40])
lists: st.SearchStrategy[Any] = st.lists(st.sampled_from(ODD), max_size=9) | st.lists(
    st.integers(-5, 12), min_size=8, max_size=8
)
lists |= st.sampled_from(HUGE).map(lambda number: [number] * 8)  # each alone can be too many
values = numbers | lists | shapes
words: st.SearchStrategy[Any] = (
    values
    | st.booleans()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from(
        [[], ["a"], ["b", "a"], [True], [0, 0], [1, 0], [b"x", b"y"], "\x1b[2J" * 99, ["a", "a"]]
    )
)
codes = st.integers(0, 12) | st.sampled_from([-1, 900, 10**6])
ABOUT = [
    *("name", "labels", "groups", "unprivileged", "favourable", "assumed"),
    *(
        f"{key}{name}"
        for key in (wire.ATTRIBUTE, wire.SIDE)
        for name in ("sex", "", "\x1b[2J" * 99)
    ),
]
errors = st.builds(
    Error,
    codes,
    st.text(max_size=40)
    | st.sampled_from([None, "<class 'a.b.C'>:<'" + "x\n" * 999, "\x1b[31m'>"]),
)

HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "{'descr': '<f4', 'fortran_order': True, 'shape': (99999999999, 99999999999), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
    "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (3, 2), }",
    "{'descr': '>f4', 'fortran_order': False, 'shape': (3, 2), }",
    "{'descr': '<f16', 'fortran_order': False, 'shape': (3, 2), }",
    "[" * 400,
]


def forged(header: str, body: bytes, version: int = 1) -> Array:
    """Bytes that begin as NumPy's do."""
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return Array(
        "float32",
        (3, 2),
        wire.NUMPY,
        b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + body,
    )


plain_arrays = st.sampled_from(
    [
        np.full((3, 2), fill, kind)
        for fill in (np.nan, np.inf, 3e38, 1.0)
        for kind in (np.float16, np.float32, np.float64, np.complex64)
        if np.isnan(fill) or np.isinf(fill) or kind != np.float16 or fill < 100
    ]
    + [
        np.array(v, kind)
        for v, kind in ((2**62, np.int64), (-1, np.int8), (2**64 - 1, np.uint64), (1, np.bool_))
    ]
    + [
        np.zeros((0, 2), np.float32),
        np.zeros((2, 3), np.float32),
        np.array(["x"]),
        np.zeros(2, np.float32),
    ]
)
arrays = (
    plain_arrays.map(Array)
    | st.builds(
        forged,
        st.sampled_from(HEADERS),
        st.sampled_from([b"", bytes(24), bytes(96), bytes(23)]),
        st.sampled_from([1, 2, 3, 9]),
    )
    | st.builds(
        lambda data, stype: Array("float32", (3, 2), stype, data),
        st.binary(max_size=40),
        st.sampled_from([wire.NUMPY, "torch", ""]),
    )
)


@st.composite
def spoilt(draw: st.DrawFn, keys: tuple[str, ...]) -> Spoil:
    """Changes some fields of an honest reply, leaves some out and adds others; or sends something
    else altogether.
    """
    if draw(st.integers(0, 19)) == 0:
        error = draw(errors)
        return lambda parts: Message(error, reply_to=parts.message)
    names = st.sampled_from(keys)
    tables = [key for key in keys if "table" in key or "cell" in key]
    one = st.tuples(names, values) | st.tuples(st.text(max_size=4), values)
    if tables:
        one = st.tuples(st.sampled_from(tables).map(lambda key: f"{key}{wire.SHAPE}"), shapes) | one
    # of several, one can hide another
    changed = dict(draw(st.lists(one, min_size=1, max_size=1) | st.lists(one, max_size=3)))
    missing = draw(st.just([]) | st.lists(names, max_size=1))
    moved = draw(
        st.just({})
        | st.dictionaries(st.sampled_from(["w", "b", "steps", "0/w", "more"]), arrays, max_size=2)
    )
    about = st.dictionaries(st.sampled_from(ABOUT), words, max_size=3)
    told = draw(about if "cells" in keys else st.just({}))
    renamed = draw(st.sampled_from(["", "", "", "", "", "metrics", "arrays", "about"]))

    def spoil(parts: Parts) -> RecordDict:
        metrics = {
            key: value for key, value in {**parts.metrics, **changed}.items() if key not in missing
        }
        own = {**parts.arrays, **moved} if parts.arrays or moved else {}
        content = parts._replace(
            metrics=metrics, arrays=own, about={**parts.about, **told} if parts.about else told
        ).content
        if renamed in content:
            content["else"] = content.pop(renamed)
        return content

    return spoil
