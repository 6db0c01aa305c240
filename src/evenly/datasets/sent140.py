"""Sentiment140: tell glad tweets from sad ones; every user is a client. LEAF's JSON files.

In LEAF a tweet is [id, date, query, user, text] and its label 0 (sad) or 1 (glad). Here a tweet is its first 25 words as
numbers, x int32 [n, 25], for a model that learns its own word vectors. q-FFL looks words up in GloVe instead.
"""

import numpy as np

from evenly.data import Rows, choose_clients, natural
from evenly.data.federation import Federation
from evenly.datasets.card import DatasetCard
from evenly.datasets.files import DataError
from evenly.datasets.leaf import User, leaf_file, leaf_paths, read_leaf
from evenly.datasets.words import numbers, split_words, table, vocabulary

LABELS = ("negative", "positive")
TEXT = 4  # of LEAF's five entries
LEAF = leaf_file("sent140", "LEAF's Sentiment140, tweets by user")


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
    """One client per user with at least `min_samples` tweets; `users` of them drawn by `seed` (0: all).

    The `words` most frequent words of the chosen users' tweets are known, in whatever split they occur; all others are one.
    """
    if words < 1 or length < 1:
        raise ValueError(f"words and length must be at least 1, got {words} and {length}.")
    found = {user.name: _tweets(user) for user in read_leaf(leaf_paths(LEAF))}
    sizes = np.array([len(labels) for _, labels in found.values()])
    chosen = choose_clients(sizes, clients=users, min_samples=min_samples, seed=seed, what="sent140")
    names = [list(found)[k] for k in chosen]
    texts = [split_words(text) for name in names for text in found[name][0]]
    y = np.concatenate([found[name][1] for name in names])
    rows = Rows(table(numbers(texts, vocabulary(texts, words)), length), y, LABELS, "sent140")
    return natural(rows, np.repeat(np.arange(len(names)), sizes[chosen]), names=names, shares=(train, valid), split_seed=split_seed)


def _tweets(user: User) -> tuple[list[str], np.ndarray]:
    if any(not isinstance(x, list) or len(x) <= TEXT for x in user.x):
        raise DataError(f"sent140: a tweet must be [id, date, query, user, text]; user {user.name!r} has others.")
    y = np.asarray(user.y)
    if y.dtype.kind != "i" or not np.isin(y, [0, 1]).all():
        raise DataError(f"sent140: labels must be 0 or 1; user {user.name!r} has others.")
    return [str(x[TEXT]) for x in user.x], y.astype(np.int32)


CARD = DatasetCard(
    name="sent140",
    title="Glad and sad tweets; every user is a client",
    load=sent140,
    layouts=((LEAF,),),
    papers=("q-FFL",),
    licence="None given; tweets remain subject to Twitter's terms.",
    provenance="Go, Bhayani and Huang (2009), prepared by LEAF (Caldas et al., 2018).",
    citation="Go, Bhayani, Huang: Twitter sentiment classification using distant supervision. Technical report, Stanford, 2009.",
    notes=(
        "Tweets are by real people, with their user names: do not print or publish rows.",
        "Labels come from emoticons, not from readers.",
        "q-FFL embeds words with GloVe; here words are numbers and the model learns its vectors, so results will differ.",
        "Tested on files made in LEAF's format, not on LEAF's own output.",
    ),
)
