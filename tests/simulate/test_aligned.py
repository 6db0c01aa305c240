"""Arrays that a CPU device uses where they lie."""

import jax
import numpy as np
import pytest

from evenly.simulate import layout


@pytest.mark.parametrize("shape", [(1,), (3, 5), (1000, 7, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.float64])
def test_they_are_like_those_of_numpy_and_begin_at_a_multiple(shape: tuple[int, ...], dtype: type):
    for found, expected in (
        (layout.zeros(shape, dtype), np.zeros(shape, dtype)),
        (layout.full(shape, 7, dtype), np.full(shape, 7, dtype)),
    ):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
        assert found.ctypes.data % layout.BYTES == 0
        found[...] = 1  # and they can be written to


def test_padding_comes_after_the_values():
    values = np.arange(6, dtype=np.int64).reshape(3, 2)
    found = layout.pad_rows(values, 5, np.int32)
    assert found.dtype == np.int32
    assert found.tolist() == [[0, 1], [2, 3], [4, 5], [0, 0], [0, 0]]
    assert layout.pad_rows(values, 3).dtype == values.dtype
    assert layout.pad_rows(values, 5, first=True)[2:].tolist() == [[4, 5], [0, 1], [0, 1]]


@pytest.mark.skipif(
    jax.default_backend() != "cpu",
    reason="other devices have memory of their own, to which everything is copied",
)
def test_a_cpu_uses_them_where_they_lie():
    found = layout.full((2**20,), 1.0, np.float32)
    assert jax.device_put(found).unsafe_buffer_pointer() == found.ctypes.data
