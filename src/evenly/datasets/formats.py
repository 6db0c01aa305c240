"""File formats of data sets: IDX, LEAF's JSON, PNG, CIFAR's binaries, and text as numbers."""

import gzip
import json
import re
import struct
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.datasets.files import (
    Content,
    DataError,
    DataFile,
    Layout,
    MissingData,
    checked_files,
    missing_sentence,
    path_of,
)

# The IDX format of MNIST and Fashion-MNIST: a big-endian header, then bytes.

MAGIC = 0x08  # unsigned bytes
IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def read_idx(path: Path) -> np.ndarray:
    """Return the array in a gzipped IDX file of bytes."""
    try:
        with gzip.open(path, "rb") as stream:
            raw = stream.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} is not a whole gzip file: {error}. Delete it and get it again."
        ) from None
    axes = raw[3] if len(raw) >= 4 else 0
    if len(raw) < 4 + 4 * axes or raw[:3] != bytes([0, 0, MAGIC]):
        raise DataError(
            f"{path} must be an IDX file of bytes (it starts 00 00 08), found"
            f" {raw[:4].hex(' ') or 'nothing'}."
        )
    shape = tuple(np.frombuffer(raw, ">u4", axes, 4).tolist())
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * axes)
    if len(values) != np.prod(shape):
        raise DataError(
            f"{path} must hold {' x '.join(map(str, shape))} bytes, as its header says, got"
            f" {len(values)}. Get it again."
        )
    return values.reshape(shape)


def idx_layout(
    name: str, what: str, sums: tuple[tuple[int, str], ...], bases: tuple[str, ...]
) -> tuple[DataFile, ...]:
    """Return the four files of a data set in the layout of MNIST."""
    kinds = ("training images", "training labels", "test images", "test labels")
    return tuple(
        DataFile(
            path=f"{name}/{file}",
            what=f"{what} {kind}",
            contents=(Content(f"sha256:{digest}", size),),
            urls=tuple(f"{base}{file}" for base in bases),
        )
        for file, kind, (size, digest) in zip(IDX_NAMES, kinds, sums, strict=True)
    )


def read_idx_set(layout: tuple[DataFile, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images uint8 [n, 28, 28, 1], labels, and a mask of the official test images. Training
    images come first.
    """
    _, paths = checked_files((layout,))
    train_x, train_y, test_x, test_y = (read_idx(path) for path in paths)
    for images, labels, path in ((train_x, train_y, paths[0]), (test_x, test_y, paths[2])):
        if images.ndim != 3 or len(images) != len(labels):
            raise DataError(
                f"{path} must hold one image per label, got shape {images.shape} for {len(labels)}"
                " labels."
            )
    in_test = np.repeat([False, True], [len(train_y), len(test_y)])
    return np.concatenate([train_x, test_x])[..., None], np.concatenate([train_y, test_y]), in_test


# The JSON format of LEAF: `users`, `num_samples`, and `user_data`, which gives every user its `x`
# and `y`.
#
# LEAF's scripts write `all_data.json` or several files `all_data_0.json`, `all_data_1.json`, ...;
# any of them may be gzipped. One file is in memory at a time.

HOME = "https://github.com/TalwalkarLab/leaf"


class User(NamedTuple):
    """One user's examples, as in the file."""

    name: str
    x: list[Any]
    y: list[Any]


def leaf_file(name: str, what: str, *, first: str = "all_data.json") -> DataFile:
    """Return the first file of a LEAF data set, which stands for all of them where they are
    missing.
    """
    return DataFile(
        path=f"{name}/{first}",
        what=what,
        by_hand=(
            f"run data/{name}/preprocess.sh of LEAF ({HOME}) and copy the files of"
            f" data/{name}/data/all_data here."
        ),
    )


def leaf_paths(file: DataFile) -> list[Path]:
    """Return every all_data*.json of the data set, gzipped or not, in order."""
    folder = path_of(file).parent
    paths = sorted(
        path for path in folder.glob("all_data*.json*") if path.name.endswith((".json", ".json.gz"))
    )
    if not paths:
        raise MissingData(missing_sentence(file))
    return paths


def read_leaf(paths: list[Path]) -> Iterator[User]:
    """Yield every user of every file, in the order of the files."""
    for path in paths:
        content = read_json(path)
        _check_keys(path, content)
        for name, size in zip(content["users"], content["num_samples"], strict=True):
            data = content["user_data"].pop(name)
            if not isinstance(data, dict) or "x" not in data or "y" not in data:
                raise DataError(f"{path}: user {name!r} must have x and y.")
            if not len(data["x"]) == len(data["y"]) == size:
                raise DataError(
                    f"{path}: user {name!r} must have {size} samples as num_samples says, got"
                    f" {len(data['x'])} x and {len(data['y'])} y."
                )
            yield User(str(name), data["x"], data["y"])


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, gzipped or not."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
            return json.load(stream)
    except (
        json.JSONDecodeError,
        UnicodeDecodeError,
        gzip.BadGzipFile,
        EOFError,
        zlib.error,
    ) as error:
        raise DataError(
            f"{path} is not whole JSON: {error}. It may be cut off; get it again."
        ) from None


def _check_keys(path: Path, content: Any) -> None:
    keys = ("users", "num_samples", "user_data")
    if not isinstance(content, dict) or any(key not in content for key in keys):
        raise DataError(
            f"{path} must be a LEAF file, an object with users, num_samples and user_data."
        )
    users, data = content["users"], content["user_data"]
    if len(users) != len(content["num_samples"]) or sorted(users) != sorted(data):
        raise DataError(
            f"{path}: users, num_samples and user_data must list the same users, got {len(users)}"
            f" users and {len(data)} in data."
        )


# Read PNG pictures with NumPy and zlib alone: 8 bits per channel, not interlaced; gray, RGB,
# palette, with or without alpha.
#
# Undoing PNG's filters is sequential: a pixel needs its left, upper and upper-left neighbours. All
# pixels on an anti-diagonal are independent of each other, though, and so are all pictures of a
# batch: `unfilter` walks the diagonals of many pictures at once. In a table with one column of
# padding a diagonal is a plain slice with a constant stride.

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # colour type -> bytes per pixel


class Picture(NamedTuple):
    """A parsed PNG file, its pixels still filtered."""

    height: int
    width: int
    colour: int
    palette: np.ndarray | None  # uint8 [256, 3]
    scanlines: np.ndarray  # uint8 [height, 1 + width * channels]; the first byte names the filter


def decode_png(files: list[bytes], what: str = "a picture") -> np.ndarray:
    """Return pictures of one size as RGB, uint8 [n, height, width, 3]. Gray is repeated, alpha is
    dropped.
    """
    pictures = [parse_png(content, what) for content in files]
    sizes = {(p.height, p.width) for p in pictures}
    if len(sizes) != 1:
        raise DataError(
            f"{what}: all pictures must have the same size, got"
            f" {' and '.join(f'{w} x {h}' for h, w in sorted(sizes))}."
        )
    ((height, width),) = sizes
    out = np.empty((len(files), height, width, 3), np.uint8)
    for colour in {p.colour for p in pictures}:
        chosen = [i for i, p in enumerate(pictures) if p.colour == colour]
        pixels = unfilter(np.stack([pictures[i].scanlines for i in chosen]), CHANNELS[colour])
        for i, picture in zip(chosen, pixels, strict=True):
            out[i] = _rgb(picture, pictures[i])
    return out


def parse_png(content: bytes, what: str = "a picture") -> Picture:
    """Parse the chunks of a PNG file, and check its signature, checksums and length."""
    if not content.startswith(SIGNATURE):
        raise DataError(
            f"{what} must be a PNG file, but it starts with {content[:8].hex(' ') or 'nothing'}."
        )
    chunks = _chunks(content, what)
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks["IHDR"])
    if depth != 8 or interlaced or colour not in CHANNELS:
        raise DataError(
            f"{what} must be a PNG with 8 bits per channel, not interlaced; got {depth} bits,"
            f" colour type {colour}."
        )
    try:
        raw = np.frombuffer(zlib.decompress(chunks["IDAT"]), np.uint8)
    except zlib.error as error:
        raise DataError(f"{what} is damaged: {error}. Get it again.") from None
    line = 1 + width * CHANNELS[colour]
    if len(raw) != height * line or (raw[::line] > 4).any():
        raise DataError(
            f"{what} is damaged: {len(raw)} bytes of pixels where {height * line} in known filters"
            " were announced."
        )
    palette = (
        None
        if colour != 3
        else np.frombuffer(chunks.get("PLTE", b"").ljust(3 * 256, b"\0"), np.uint8).reshape(-1, 3)
    )
    return Picture(height, width, colour, palette, raw.reshape(height, line))


def unfilter(scanlines: np.ndarray, channels: int) -> np.ndarray:
    """Pixels uint8 [n, height, width, channels] from filtered scanlines uint8 [n, height, 1 + width
    * channels].
    """
    n, height, line = scanlines.shape
    width = (line - 1) // channels
    filters = scanlines[:, :, 0]
    padded = np.zeros((n, height + 1, width + 1, channels), np.uint8)
    padded[:, 1:, 1:] = scanlines[:, :, 1:].reshape(n, height, width, channels)
    if not filters.any():
        return padded[:, 1:, 1:]
    flat = padded.reshape(n, (height + 1) * (width + 1), channels)
    for diagonal in range(height + width - 1):
        # rows on this diagonal
        first, last = max(0, diagonal - width + 1), min(height - 1, diagonal)
        # Pixel (row, diagonal - row) sits one row and one column further in the padded table; each
        # next one is `width` on.
        start = (first + 1) * (width + 1) + diagonal - first + 1
        where = slice(start, start + (last - first) * width + 1, width)
        here, left, up, corner = (
            flat[:, _shift(where, -by)] for by in (0, 1, width + 1, width + 2)
        )
        here += _predict(filters[:, first : last + 1, None], left, up, corner)
    return padded[:, 1:, 1:]


def _predict(
    filters: np.ndarray, left: np.ndarray, up: np.ndarray, corner: np.ndarray
) -> np.ndarray:
    a, b, c = left.astype(np.int16), up.astype(np.int16), corner.astype(np.int16)
    by_left, by_up, by_corner = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    paeth = np.where(
        (by_left <= by_up) & (by_left <= by_corner), a, np.where(by_up <= by_corner, b, c)
    )
    return np.choose(filters, [np.int16(0), a, b, (a + b) >> 1, paeth]).astype(np.uint8)


def _shift(where: slice, by: int) -> slice:
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
        raise DataError(
            f"{what} is damaged: it is cut off, or a checksum does not hold. Get it again."
        )
    return {name: b"".join(parts) for name, parts in chunks.items()}


def _rgb(pixels: np.ndarray, picture: Picture) -> np.ndarray:
    if picture.palette is not None:
        return picture.palette[pixels[..., 0]]
    return pixels[..., :3] if picture.colour in (2, 6) else np.repeat(pixels[..., :1], 3, axis=2)


# The binary format of CIFAR: per picture one byte per label, then 1,024 bytes each of red, green
# and blue, row by row.
#
# Read from the published archive, or from its files unpacked. Nothing is unpickled.

SIDE = 32
PIXELS = 3 * SIDE * SIDE


def cifar_layouts(
    archive: DataFile, folder: str, sums: dict[str, tuple[int, str]]
) -> tuple[Layout, Layout]:
    """Return two layouts: the unpacked files, and the archive. `sums` has size and md5 of each
    file.
    """
    name = archive.path.split("/")[0]
    unpacked = tuple(
        DataFile(
            path=f"{name}/{folder}/{file}",
            what=f"{name} in the binary layout",
            contents=(Content(f"md5:{md5}", size),),
            by_hand=f"unpack {archive.path.split('/')[1]}.",
        )
        for file, (size, md5) in sums.items()
    )
    return unpacked, (archive,)


def read_cifar_files(accepted: tuple[Layout, Layout]) -> dict[str, bytes]:
    """Return the contents of the binary files by name, from the layout that is present."""
    unpacked, _ = accepted
    layout, paths = checked_files(accepted)
    if layout is unpacked:
        return {path.name: path.read_bytes() for path in paths}
    members = [file.path.split("/", 1)[1] for file in unpacked]
    contents = {
        Path(name).name: content
        for name, content in archive_files(
            paths[0], lambda name: name.removeprefix("./") in members
        )
    }
    missing = [member for member in members if Path(member).name not in contents]
    if missing:
        raise DataError(
            f"{paths[0]} must hold {missing[0]}, but it does not. Is it the binary version?"
        )
    return contents


def archive_files(path: Path, select: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files in a tar archive whose names `select` accepts."""
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                if member.isfile() and select(member.name):
                    stream = archive.extractfile(member)
                    yield member.name, b"" if stream is None else stream.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise DataError(
            f"{path} is not a whole archive: {reason}. Delete it and get it again."
        ) from None


def read_cifar_records(
    content: bytes, *, label_bytes: int, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures uint8 [n, 32, 32, 3] and labels uint8 [n, label_bytes]."""
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(
            f"{what} must hold whole records of {record} bytes, got {len(content)} bytes. It may be"
            " cut off."
        )
    table = np.frombuffer(content, np.uint8).reshape(-1, record)
    planes = table[:, label_bytes:].reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), table[:, :label_bytes]


def write_cifar_records(x: np.ndarray, y: np.ndarray) -> bytes:
    """Return the bytes of a CIFAR-10 file with pictures uint8 [n, 32, 32, 3] and labels [n]."""
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), PIXELS)
    return np.concatenate([np.asarray(y, np.uint8)[:, None], planes], axis=1).tobytes()


def check_labels(y: np.ndarray, classes: int, what: str) -> np.ndarray:
    """Return labels as int32. Raise `DataError` if one is not below the number of classes."""
    if y.max(initial=0) >= classes:
        raise DataError(
            f"{what}: labels must be below {classes}, got {int(y.max())}. Is it another data set?"
        )
    return y.astype(np.int32)


# Sequences as examples: a symbol is the target, and the symbols before it are the input. Only
# selected examples are built.


class Stream(NamedTuple):
    """A client's sequences, joined. Padding before each one keeps windows from reaching into the
    sequence before.
    """

    symbols: np.ndarray  # int32 [total]
    targets: np.ndarray  # int64 [n], positions to predict

    def examples(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return x int32 [n, length], the symbols before each target, and y int32 [n],
        the targets.
        """
        if not len(self.targets):
            return np.zeros((0, length), np.int32), np.zeros(0, np.int32)
        views = np.lib.stride_tricks.sliding_window_view(self.symbols, length)
        return views[self.targets - length], self.symbols[self.targets]


def join_sequences(sequences: Sequence[np.ndarray], *, length: int, padding: int) -> Stream:
    """Join sequences. Every symbol is a target once; windows at the start of a sequence contain
    padding.
    """
    before = np.full(length, padding, np.int32)
    pieces = [piece for sequence in sequences for piece in (before, sequence.astype(np.int32))]
    sizes = np.array([len(sequence) for sequence in sequences], np.int64)
    shift = np.repeat((np.arange(len(sizes)) + 1) * length, sizes)
    return Stream(
        np.concatenate(pieces) if pieces else np.zeros(0, np.int32), np.arange(sizes.sum()) + shift
    )


def thin_targets(
    whole: Stream, *, stride: int, fraction: float, generator: np.random.Generator
) -> Stream:
    """Keep every `stride`-th target, and of these a random fraction (at least one), in order."""
    targets = whole.targets[::stride]
    if fraction < 1:
        count = max(1, int(np.floor(round(fraction * len(targets), 9))))
        targets = np.sort(generator.permutation(targets)[:count])
    return whole._replace(targets=targets)


# Words as numbers: 0 is padding, 1 an unknown word, then the most frequent words.

PADDING, UNKNOWN = 0, 1
SPECIAL = ("(padding)", "(unknown)")
_WORD = re.compile(r"[\w']+|[.,!?;]")


def split_words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text in lower case, as LEAF splits them."""
    return _WORD.findall(text.lower())


def vocabulary(texts: Iterable[Sequence[str]], size: int) -> tuple[str, ...]:
    """Return padding, unknown and the `size` most frequent words. Ties are broken by name, so that
    the order of rows does not matter.
    """
    counts = Counter(word for text in texts for word in text)
    return (*SPECIAL, *sorted(counts, key=lambda word: (-counts[word], word))[:size])


def word_numbers(texts: Iterable[Sequence[str]], words: tuple[str, ...]) -> list[np.ndarray]:
    """Return the numbers of the words of every text, int32."""
    index = {word: i for i, word in enumerate(words)}
    return [np.array([index.get(word, UNKNOWN) for word in text], np.int32) for text in texts]


def pad_texts(texts: Sequence[np.ndarray], length: int) -> np.ndarray:
    """Return the first `length` numbers of every text, padded at the end: int32 [texts, length]."""
    out = np.full((len(texts), length), PADDING, np.int32)
    for row, text in zip(out, texts, strict=True):
        row[: len(text)] = text[:length]
    return out
