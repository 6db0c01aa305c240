"""Small files in published formats, written the plain way so that readers are checked against
another hand.
"""

import gzip
import io
import json
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> colour type


def png(pixels: np.ndarray, filters: list[int], palette: np.ndarray | None = None) -> bytes:
    """A PNG of uint8 [height, width, channels], row r filtered with filters[r % len(filters)],
    pixel data in two chunks.
    """
    height, width, channels = pixels.shape
    colour = 3 if palette is not None else COLOURS[channels]
    lines = b"".join(_filtered(pixels, row, filters[row % len(filters)]) for row in range(height))
    packed = zlib.compress(lines)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)),
        (b"tEXt", b"made by a test"),
    ]
    chunks += [] if palette is None else [(b"PLTE", palette.astype(np.uint8).tobytes())]
    chunks += [(b"IDAT", packed[:10]), (b"IDAT", packed[10:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def _filtered(pixels: np.ndarray, row: int, kind: int) -> bytes:
    """One scanline, byte by byte as the PNG specification writes it."""
    channels = pixels.shape[2]
    line = pixels[row].reshape(-1).astype(int)
    above = pixels[row - 1].reshape(-1).astype(int) if row else np.zeros_like(line)
    out = [kind]
    for i, value in enumerate(line):
        a = line[i - channels] if i >= channels else 0
        b = above[i]
        c = above[i - channels] if i >= channels else 0
        guess = min((a, b, c), key=lambda v: abs(a + b - c - v))  # ties: a before b before c
        out.append(int(value - [0, a, b, (a + b) // 2, guess][kind]) % 256)
    return bytes(out)


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def idx(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + b"".join(struct.pack(">I", n) for n in values.shape)
    return gzip.compress(header + values.astype(np.uint8).tobytes())


def tar(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def leaf(users: dict[str, tuple[list[Any], list[Any]]]) -> bytes:
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    return json.dumps(content).encode()
