"""Pictures come out as they went in, whatever filters and colours a file uses."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.datasets.files import DataError
from evenly.datasets.formats import decode_png
from tests.datasets.making import png


def noise(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    filters=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
)
def test_any_filters_are_undone(height, width, filters, seed):
    pixels = noise(height, width, 3, seed)
    (found,) = decode_png([png(pixels, filters)])
    np.testing.assert_array_equal(found, pixels)


def test_a_batch_of_pictures_with_different_filters_and_colours():
    rgb, other, gray, clear = noise(8, 8, 3), noise(8, 8, 3, 1), noise(8, 8, 1), noise(8, 8, 4)
    found = decode_png(
        [
            png(rgb, [4]),
            png(gray, [1, 3]),
            png(other, [0, 1, 2, 3, 4]),
            png(clear, [2]),
            png(clear[..., [0, 3]], [3]),
        ]
    )
    np.testing.assert_array_equal(found[0], rgb)
    np.testing.assert_array_equal(found[1], np.repeat(gray, 3, axis=2))
    np.testing.assert_array_equal(found[2], other)
    np.testing.assert_array_equal(found[3], clear[..., :3])
    np.testing.assert_array_equal(found[4], np.repeat(clear[..., :1], 3, axis=2))


def test_a_palette_is_looked_up():
    palette, chosen = noise(16, 1, 3)[:, 0], noise(5, 4, 1) % 16
    (found,) = decode_png([png(chosen, [0, 4], palette)])
    np.testing.assert_array_equal(found, palette[chosen[..., 0]])


@pytest.mark.parametrize(
    "damage, sentence",
    [
        (lambda c: b"GIF89a" + c, "must be a PNG file, but it starts with 47 49 46"),
        (lambda c: c[:-20], "cut off, or a checksum does not hold"),
        (lambda c: c[:60] + bytes([c[60] ^ 1]) + c[61:], "cut off, or a checksum does not hold"),
        (lambda c: b"", "it starts with nothing"),
    ],
)
def test_damage_is_noticed(damage, sentence):
    with pytest.raises(DataError, match=sentence):
        decode_png([damage(png(noise(6, 6, 3), [1]))])


def test_pictures_of_different_sizes_are_refused():
    with pytest.raises(DataError, match="same size, got 5 x 4 and 4 x 5"):
        decode_png([png(noise(4, 5, 3), [0]), png(noise(5, 4, 3), [0])])


def test_sixteen_bits_are_refused():
    content = bytearray(png(noise(4, 4, 3), [0]))
    content[24] = 16  # bit depth, then its chunk's checksum
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    with pytest.raises(DataError, match="8 bits per channel, not interlaced; got 16 bits"):
        decode_png([bytes(content)])
