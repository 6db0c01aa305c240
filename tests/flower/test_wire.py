"""What travels is what was meant: arrays, names and tables go there and come back."""

from io import BytesIO
from typing import Any

import jax
import numpy as np
import pytest
from flwr.app import Array
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from evenly.flower import wire
from evenly.flower.wire import ENVELOPE, Form
from evenly.models import MLP

KINDS = st.sampled_from(
    [np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_]
)
ANY = KINDS.flatmap(
    lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, min_side=0, max_side=4))
)


@given(ANY, st.booleans())
def test_an_array_is_written_as_flower_writes_it_and_read_as_it_was(
    array: np.ndarray, turned: bool
):
    array = np.asfortranarray(array) if turned else array
    ours, theirs = wire.write(array), Array(array)
    assert (ours.dtype, ours.shape, ours.stype) == (theirs.dtype, theirs.shape, theirs.stype)
    for held in (ours, theirs):
        np.testing.assert_array_equal(wire.read(held), array)
        np.testing.assert_array_equal(held.numpy(), array)
        assert wire.read(held).dtype == array.dtype


def test_reading_copies_nothing():
    held = wire.write(np.arange(1000.0))
    found = wire.read(held)
    assert not found.flags.owndata
    assert not found.flags.writeable


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions_of_numpys_format_are_read(version: Any):
    file = BytesIO()
    np.lib.format.write_array(file, np.arange(6).reshape(2, 3), version=version)
    found = wire.read(Array("int64", (2, 3), wire.NUMPY, file.getvalue()))
    np.testing.assert_array_equal(found, np.arange(6).reshape(2, 3))


def _pickled() -> bytes:
    file = BytesIO()
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    return file.getvalue()


def _headed(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(72)


HOSTILE = [
    "(" * 300,
    "'''",
    "\n  1\n 2",
    "-" * 9000 + "1",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1%s,), }" % ("0" * 300),
]


@pytest.mark.parametrize(
    "data",
    [
        *map(_headed, HOSTILE),
        b"",
        b"rubbish and more rubbish",
        wire.write(np.arange(9.0)).data[:90],
        wire.write(np.arange(9.0)).data[:-4],
        _pickled(),
    ],
)
def test_bytes_that_are_no_array_are_refused(data: bytes):
    with pytest.raises(ValueError, match=r".+"):
        wire.read(Array("float64", (9,), wire.NUMPY, data))


def test_a_model_is_known_by_its_names():
    model = MLP(features=3, classes=2, hidden=(4, 5)).init(jax.random.key(0))
    record = wire.to_arrays(model)
    assert tuple(record) == wire.names_of(model)
    assert len(set(record)) == len(jax.tree.leaves(model))
    again = wire.from_arrays(record, jax.eval_shape(lambda: model))
    assert jax.tree.structure(again) == jax.tree.structure(model)
    jax.tree.map(np.testing.assert_array_equal, again, model)
    both = wire.record_of_models([model, jax.tree.map(lambda leaf: leaf + 1, model)])
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a, b + 1),
        wire.from_arrays(both, model, "1/"),
        model,
    )


def test_another_model_is_refused_by_name_and_by_shape():
    with pytest.raises(
        ValueError, match=r"The model has an array 'b', but the record holds only 'w'"
    ):
        wire.from_arrays(wire.to_arrays({"w": np.ones(3)}), {"w": np.ones(3), "b": np.ones(1)})
    with pytest.raises(ValueError, match=r"Array 'w' must have shape \[2\], got \[3\]"):
        wire.from_arrays(wire.to_arrays({"w": np.ones(3)}), {"w": np.ones(2)})


@given(
    arrays_of.arrays(
        np.int64, arrays_of.array_shapes(min_dims=1, max_dims=3), elements=st.integers(0, 10**9)
    )
)
def test_tables_travel_as_lists(table: np.ndarray):
    metrics: dict[str, Any] = {}
    wire.put(metrics, "table", table)
    assert all(isinstance(value, int) for value in metrics["table"])
    np.testing.assert_array_equal(wire.get(metrics, "table"), table)  # pyright: ignore[reportArgumentType]


def test_what_is_missing_or_does_not_fit_is_said():
    assert wire.get({}, "table") is None
    assert wire.get({"loss": 0.5}, "loss") == 0.5
    with pytest.raises(ValueError, match=r"'table' has 3 entries, but 'table-shape' says \[2, 2\]"):
        wire.get({"table": [1, 2, 3], "table-shape": [2, 2]}, "table")


def test_every_signal_says_how_it_is_sent():
    assert {
        wire.EXAMPLES,
        wire.CELLS,
        wire.CLIENT_GROUP,
        wire.SQUARE_NORM,
        *wire.SIGNALS.values(),
    } == set(wire.HOW_TO_SEND)


@pytest.mark.parametrize("models, prefixes", [((), 0), ((3,), 3)])
def test_a_reply_may_be_as_long_as_its_numbers_in_double_precision(
    models: tuple[int, ...], prefixes: int
):
    form = Form(
        wire.Layout(("w", "bias"), ((3, 2), (2,)), (np.dtype(np.float32),) * 2),
        ranks=False,
        models=prefixes,
    )
    alone = 2 * ENVELOPE + len("w") + len("bias") + 8 * (3 * 2 + 2)
    named = sum(2 * len(wire.prefix_of(q)) for q in range(prefixes))
    assert form.most_bytes(models) == max(1, prefixes) * alone + named
