"""Data sets in LEAF's format: FEMNIST and Sentiment140. Every user is a client."""

import string

import numpy as np

from evenly.data import Rows, choose_clients, natural
from evenly.data.federation import Federation
from evenly.datasets.files import DataError, DatasetCard
from evenly.datasets.formats import (
    User,
    leaf_file,
    leaf_paths,
    pad_texts,
    read_leaf,
    split_words,
    vocabulary,
    word_numbers,
)
from evenly.datasets.partitioning import scale_pixels
from evenly.records import require

# FEMNIST: handwritten digits and letters; every writer is a client. LEAF's JSON files.
#
# LEAF stores pictures as 784 numbers byte / 255, so the bytes come back exactly; white is 255.
# Labels are 0-9, A-Z, a-z.

CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
SIDE = 28
FEMNIST_FILE = leaf_file("femnist", "LEAF's FEMNIST, pictures by writer", first="all_data_0.json")


def femnist(
    *,
    writers: int = 0,
    min_samples: int = 1,
    pixels: str = "unit",
    train: float = 0.8,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Return one client per writer with at least `min_samples` pictures. `writers` of them are
    drawn by `seed` (0: all).
    """
    users = {user.name: _pictures(user) for user in read_leaf(leaf_paths(FEMNIST_FILE))}
    sizes = np.array([len(y) for _, y in users.values()])
    chosen = choose_clients(
        sizes, clients=writers, min_samples=min_samples, seed=seed, what="femnist"
    )
    names = [list(users)[k] for k in chosen]
    x, y = (np.concatenate([users[name][part] for name in names]) for part in (0, 1))
    owner = np.repeat(np.arange(len(names)), sizes[chosen])
    rows = Rows(scale_pixels(x, pixels), y, CHARACTERS, "femnist")
    return natural(rows, owner, names=names, shares=(train, valid), split_seed=split_seed)


def _pictures(user: User) -> tuple[np.ndarray, np.ndarray]:
    x, y = 255 * np.asarray(user.x, np.float64).reshape(len(user.y), -1), np.asarray(user.y)
    if (
        x.shape[1] != SIDE * SIDE
        or not (0 <= x.min() <= x.max() <= 255)
        or abs(x - np.round(x)).max() > 0.01
    ):
        raise DataError(
            f"femnist: pictures must be {SIDE * SIDE} numbers byte / 255; writer {user.name!r} has"
            " other values."
        )
    if y.dtype.kind != "i" or not (0 <= y.min() <= y.max() < len(CHARACTERS)):
        raise DataError(
            f"femnist: labels must be whole numbers from 0 to {len(CHARACTERS) - 1}; writer"
            f" {user.name!r} has other values."
        )
    return np.round(x).astype(np.uint8).reshape(-1, SIDE, SIDE, 1), y.astype(np.int32)


FEMNIST_CARD = DatasetCard(
    name="femnist",
    title="Handwritten digits and letters; every writer is a client",
    load=femnist,
    layouts=((FEMNIST_FILE,),),
    licence="US public domain (NIST Special Database 19); LEAF's scripts are BSD-2.",
    provenance="NIST Special Database 19, by writer, prepared by LEAF (Caldas et al., 2018).",
    citation="Caldas et al.: LEAF: a benchmark for federated settings. arXiv:1812.01097, 2018.",
    notes=(
        "Of the papers we follow, E2FL uses it.",
        "Tested on files made in LEAF's format, not on LEAF's own output.",
        (
            "Reading all 3,550 writers takes several GiB of memory: LEAF's files are text. LEAF's"
            " `--sf` makes smaller ones."
        ),
    ),
)


# Sentiment140: tell glad tweets from sad ones; every user is a client. LEAF's JSON files.
#
# In LEAF a tweet is [id, date, query, user, text] and its label 0 (sad) or 1 (glad). Here a tweet
# is its first 25 words as numbers, x int32 [n, 25], for a model that learns its own word vectors.
# q-FFL looks words up in GloVe instead.

LABELS = ("negative", "positive")
TEXT = 4  # of LEAF's five entries
SENT140_FILE = leaf_file("sent140", "LEAF's Sentiment140, tweets by user")


def sent140(
    *,
    users: int = 0,
    min_samples: int = 1,
    words: int = 10_000,
    length: int = 25,
    train: float = 0.8,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Return one client per user with at least `min_samples` tweets. `users` of them are drawn by
    `seed` (0: all).

    The vocabulary has the `words` most frequent words of these users' tweets in all splits. All
    other words share one number.
    """
    require(
        words >= 1 and length >= 1,
        f"sent140: words and length must be at least 1, got {words} and {length}.",
    )
    tweets = {user.name: _tweets(user) for user in read_leaf(leaf_paths(SENT140_FILE))}
    sizes = np.array([len(labels) for _, labels in tweets.values()])
    chosen = choose_clients(
        sizes, clients=users, min_samples=min_samples, seed=seed, what="sent140"
    )
    names = [list(tweets)[k] for k in chosen]
    texts = [split_words(text) for name in names for text in tweets[name][0]]
    y = np.concatenate([tweets[name][1] for name in names])
    rows = Rows(
        pad_texts(word_numbers(texts, vocabulary(texts, words)), length), y, LABELS, "sent140"
    )
    return natural(
        rows,
        np.repeat(np.arange(len(names)), sizes[chosen]),
        names=names,
        shares=(train, valid),
        split_seed=split_seed,
    )


def _tweets(user: User) -> tuple[list[str], np.ndarray]:
    if any(not isinstance(x, list) or len(x) <= TEXT for x in user.x):
        raise DataError(
            f"sent140: a tweet must be [id, date, query, user, text]; user {user.name!r} has other"
            " values."
        )
    y = np.asarray(user.y)
    if y.dtype.kind != "i" or not np.isin(y, [0, 1]).all():
        raise DataError(f"sent140: labels must be 0 or 1; user {user.name!r} has other values.")
    return [str(x[TEXT]) for x in user.x], y.astype(np.int32)


SENT140_CARD = DatasetCard(
    name="sent140",
    title="Glad and sad tweets; every user is a client",
    load=sent140,
    layouts=((SENT140_FILE,),),
    papers=("q-FFL",),
    licence="None given; tweets remain subject to Twitter's terms.",
    provenance="Go, Bhayani and Huang (2009), prepared by LEAF (Caldas et al., 2018).",
    citation=(
        "Go, Bhayani, Huang: Twitter sentiment classification using distant supervision. Technical"
        " report, Stanford, 2009."
    ),
    notes=(
        "Tweets are by real people, with their user names: do not print or publish rows.",
        "Labels come from emoticons, not from readers.",
        (
            "q-FFL embeds words with GloVe; here words are numbers and the model learns its"
            " vectors, so results will differ."
        ),
        "Tested on files made in LEAF's format, not on LEAF's own output.",
    ),
)
