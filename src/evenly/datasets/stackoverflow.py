"""StackOverflow: predict the next word of a post; every user is a client.

TensorFlow Federated publishes it as HDF5, which NumPy cannot read. This loader reads an export of
it, one post per line: JSON lines `{"client": "1001", "text": "how do i ..."}`, or CSV with the
columns client and text; both may be gzipped. docs/datasets.md has the dozen lines that make one.
Words are separated by blanks, as TFF leaves them.

A sample is a word and the 20 words before it, with padding before a post begins. Words outside the
vocabulary stay in the input as one symbol but are not targets. TFF's usual vocabulary is 10,000
words; counts by label and outcome are kept for every client here, so the default is smaller and the
most is 998.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from evenly.data import Rows, choose_clients, natural
from evenly.data.federation import Federation
from evenly.data.sensitive import MOST_CLASSES
from evenly.datasets.files import (
    DataError,
    DataFile,
    DatasetCard,
    MissingData,
    missing_sentence,
    path_of,
)
from evenly.datasets.formats import (
    PADDING,
    SPECIAL,
    UNKNOWN,
    Stream,
    join_sequences,
    vocabulary,
    word_numbers,
)
from evenly.records import require

EXPORT = DataFile(
    path="stackoverflow/stackoverflow.jsonl",
    what="an export of StackOverflow, one post per line",
    by_hand="export it from TensorFlow Federated as docs/datasets.md shows.",
)
ENDINGS = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz")
MOST_WORDS = MOST_CLASSES - len(SPECIAL)


def stackoverflow(
    *,
    users: int = 20,
    min_samples: int = 10_000,
    max_samples: int = 12_500,
    words: int = 500,
    length: int = 20,
    train: float = 0.5,
    valid: float = 0.0,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Return one client per user with `min_samples` to `max_samples` (0: no limit) samples. `users`
    of them are drawn by `seed` (0: all).

    The vocabulary has the `words` most frequent words of all posts. x is int32 [n, length], y the
    number of the next word.
    """
    require(
        1 <= words <= MOST_WORDS,
        f"stackoverflow: words must be between 1 and {MOST_WORDS}, got {words}.",
    )
    require(length >= 1, f"stackoverflow: length must be at least 1, got {length}.")
    posts = read_posts(_export())
    labels = vocabulary((post for texts in posts.values() for post in texts), words)
    streams = [_stream(texts, labels, length) for texts in posts.values()]
    sizes = np.array([len(text.targets) for text in streams])
    chosen = choose_clients(
        sizes,
        clients=users,
        min_samples=min_samples,
        max_samples=max_samples,
        seed=seed,
        what="stackoverflow",
    )
    parts = [streams[k].examples(length) for k in chosen]
    rows = Rows(
        np.concatenate([x for x, _ in parts]),
        np.concatenate([y for _, y in parts]),
        labels,
        "stackoverflow",
    )
    names = [list(posts)[k] for k in chosen]
    owner = np.repeat(np.arange(len(names)), sizes[chosen])
    return natural(rows, owner, names=names, shares=(train, valid), split_seed=split_seed)


def read_posts(path: Path) -> dict[str, list[list[str]]]:
    """Return the words of every post by client, in the order of the file."""
    posts: dict[str, list[list[str]]] = {}
    try:
        with (gzip.open if path.suffix == ".gz" else open)(
            path, "rt", encoding="utf-8", newline=""
        ) as lines:
            for client, text in _pairs(lines, path):
                posts.setdefault(client, []).append(text.split())
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not whole text: {error}. Export it again.") from None
    return posts


def _pairs(lines: Iterable[str], path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(csv.DictReader(lines) if ".csv" in path.name else lines, 1):
        try:
            row = json.loads(line) if isinstance(line, str) else line
            yield str(row["client"]), str(row["text"] or "")
        except (json.JSONDecodeError, KeyError, TypeError):
            raise DataError(
                f"{path}: row {number} must have client and text, as docs/datasets.md shows."
            ) from None


def _export() -> Path:
    start = str(path_of(EXPORT)).removesuffix(".jsonl")
    path = next(
        (Path(start + ending) for ending in ENDINGS if Path(start + ending).is_file()), None
    )
    if path is None:
        raise MissingData(missing_sentence(EXPORT))
    return path


def _stream(texts: list[list[str]], words: tuple[str, ...], length: int) -> Stream:
    """Return a client's posts as numbers. Unknown words are no targets."""
    stream = join_sequences(word_numbers(texts, words), length=length, padding=PADDING)
    return stream._replace(targets=stream.targets[stream.symbols[stream.targets] != UNKNOWN])


CARD = DatasetCard(
    name="stackoverflow",
    title="The next word of a StackOverflow post; every user is a client",
    load=stackoverflow,
    layouts=((EXPORT,),),
    papers=("PropFair",),
    licence="CC BY-SA 3.0 (Stack Exchange data dump, as TensorFlow Federated gives it)",
    provenance=(
        "Stack Overflow posts by user, published by the TensorFlow Federated authors (2019)."
    ),
    citation="The TensorFlow Federated Authors: TensorFlow Federated Stack Overflow dataset, 2019.",
    notes=(
        (
            "PropFair does not say what a sample is or how many words it knows; 20 users with"
            " 10,000 to 12,500 samples is all it gives."
        ),
        "A smaller vocabulary makes the task easier: do not compare with published accuracies.",
        "Posts are by real people: do not print or publish rows.",
        "Tested on files made in this export format, not on the published data.",
    ),
)
