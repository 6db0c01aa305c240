"""Read PNG pictures with NumPy and zlib alone: 8 bits per channel, not interlaced; gray, RGB, palette, with or without alpha.

Undoing PNG's filters is sequential: a pixel needs its left, upper and upper-left neighbours. All pixels on an anti-diagonal
are independent of each other, though, and so are all pictures of a batch: `unfilter` walks the diagonals of many pictures at
once. In a table with one column of padding a diagonal is a plain slice with a constant stride.
"""

import struct
import zlib
from typing import NamedTuple

import numpy as np

from evenly.datasets.files import DataError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # colour type -> bytes per pixel


class Picture(NamedTuple):
    """A PNG file taken apart, its pixels still filtered."""

    height: int
    width: int
    colour: int
    palette: np.ndarray | None  # uint8 [256, 3]
    scanlines: np.ndarray  # uint8 [height, 1 + width * channels]; the first byte names the filter


def decode(files: list[bytes], what: str = "a picture") -> np.ndarray:
    """Pictures of one size as RGB, uint8 [n, height, width, 3]. Gray is repeated, alpha is dropped."""
    pictures = [take_apart(content, what) for content in files]
    sizes = {(p.height, p.width) for p in pictures}
    if len(sizes) != 1:
        raise DataError(f"{what}: all pictures must have the same size, got {' and '.join(f'{w} x {h}' for h, w in sorted(sizes))}.")
    ((height, width),) = sizes
    out = np.empty((len(files), height, width, 3), np.uint8)
    for colour in {p.colour for p in pictures}:
        chosen = [i for i, p in enumerate(pictures) if p.colour == colour]
        pixels = unfilter(np.stack([pictures[i].scanlines for i in chosen]), CHANNELS[colour])
        for i, picture in zip(chosen, pixels, strict=True):
            out[i] = _rgb(picture, pictures[i])
    return out


def take_apart(content: bytes, what: str = "a picture") -> Picture:
    """Read a PNG's chunks; checks its signature, checksums and length."""
    if not content.startswith(SIGNATURE):
        raise DataError(f"{what} must be a PNG file, but it starts with {content[:8].hex(' ') or 'nothing'}.")
    chunks = _chunks(content, what)
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks["IHDR"])
    if depth != 8 or interlaced or colour not in CHANNELS:
        raise DataError(f"{what} must be a PNG with 8 bits per channel, not interlaced; got {depth} bits, colour type {colour}.")
    try:
        raw = np.frombuffer(zlib.decompress(chunks["IDAT"]), np.uint8)
    except zlib.error as error:
        raise DataError(f"{what} is damaged: {error}. Get it again.") from None
    line = 1 + width * CHANNELS[colour]
    if len(raw) != height * line or (raw[::line] > 4).any():
        raise DataError(f"{what} is damaged: {len(raw)} bytes of pixels where {height * line} in known filters were announced.")
    palette = None if colour != 3 else np.frombuffer(chunks.get("PLTE", b"").ljust(3 * 256, b"\0"), np.uint8).reshape(-1, 3)
    return Picture(height, width, colour, palette, raw.reshape(height, line))


def unfilter(scanlines: np.ndarray, channels: int) -> np.ndarray:
    """Pixels uint8 [n, height, width, channels] from filtered scanlines uint8 [n, height, 1 + width * channels]."""
    n, height, line = scanlines.shape
    width = (line - 1) // channels
    filters = scanlines[:, :, 0]
    padded = np.zeros((n, height + 1, width + 1, channels), np.uint8)
    padded[:, 1:, 1:] = scanlines[:, :, 1:].reshape(n, height, width, channels)
    if not filters.any():
        return padded[:, 1:, 1:]
    flat = padded.reshape(n, (height + 1) * (width + 1), channels)
    for diagonal in range(height + width - 1):
        first, last = max(0, diagonal - width + 1), min(height - 1, diagonal)  # rows on this diagonal
        # Pixel (row, diagonal - row) sits one row and one column further in the padded table; each next one is `width` on.
        start = (first + 1) * (width + 1) + diagonal - first + 1
        where = slice(start, start + (last - first) * width + 1, width)
        here, left, up, corner = (flat[:, _moved(where, -by)] for by in (0, 1, width + 1, width + 2))
        here += _predicted(filters[:, first : last + 1, None], left, up, corner)
    return padded[:, 1:, 1:]


def _predicted(filters: np.ndarray, left: np.ndarray, up: np.ndarray, corner: np.ndarray) -> np.ndarray:
    a, b, c = left.astype(np.int16), up.astype(np.int16), corner.astype(np.int16)
    by_left, by_up, by_corner = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    paeth = np.where((by_left <= by_up) & (by_left <= by_corner), a, np.where(by_up <= by_corner, b, c))
    return np.choose(filters, [np.int16(0), a, b, (a + b) >> 1, paeth]).astype(np.uint8)


def _moved(where: slice, by: int) -> slice:
    return slice(where.start + by, where.stop + by, where.step)


def _chunks(content: bytes, what: str) -> dict[str, bytes]:
    chunks: dict[str, list[bytes]] = {}
    at = len(SIGNATURE)
    while at + 12 <= len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        body = content[at + 4 : at + 8 + length]
        if content[at + 8 + length : at + 12 + length] != struct.pack(">I", zlib.crc32(body)):
            break
        chunks.setdefault(body[:4].decode("latin-1"), []).append(body[4:])
        at += 12 + length
    if not {"IHDR", "IDAT", "IEND"} <= set(chunks):
        raise DataError(f"{what} is damaged: it is cut off, or a checksum does not hold. Get it again.")
    return {name: b"".join(parts) for name, parts in chunks.items()}


def _rgb(pixels: np.ndarray, picture: Picture) -> np.ndarray:
    if picture.palette is not None:
        return picture.palette[pixels[..., 0]]
    return pixels[..., :3] if picture.colour in (2, 6) else np.repeat(pixels[..., :1], 3, axis=2)
