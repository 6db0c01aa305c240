"""FEMNIST, Sentiment140 and StackOverflow: clients are writers and users; files are made here in
the published formats.
"""

import gzip
import json

import numpy as np
import pytest

from evenly.datasets import DataError, MissingData, Sizes, femnist, sent140, stackoverflow
from evenly.datasets.formats import pad_texts, split_words, vocabulary, word_numbers
from tests.datasets.making import leaf, put


def writer(n: int, seed: int) -> tuple[list, list]:
    draw = np.random.default_rng(seed)
    return (draw.integers(0, 256, (n, 784)) / 255).tolist(), (np.arange(n) % 62).tolist()


def tweets(*texts: str) -> tuple[list, list]:
    return [["1", "Mon", "NO_QUERY", "me", text] for text in texts], [
        i % 2 for i in range(len(texts))
    ]


def test_writers_from_several_files_get_their_bytes_back(made):
    put(made / "femnist/all_data_0.json", leaf({"f1": writer(20, 0), "f2": writer(4, 1)}))
    put(made / "femnist/all_data_1.json.gz", gzip.compress(leaf({"f3": writer(30, 2)})))
    federation = femnist(pixels="bytes")
    assert federation.names == ("f1", "f2", "f3")
    assert federation.x.shape == (54, 28, 28, 1)
    np.testing.assert_array_equal(
        federation.x[0].ravel(), np.random.default_rng(0).integers(0, 256, (20, 784))[0]
    )
    assert len(federation.labels) == 62
    assert federation.labels[10] == "A"
    assert femnist(min_samples=5).names == ("f1", "f3")
    assert femnist(writers=1, min_samples=5).clients == 1
    assert Sizes.of(federation) == (3, 16 + 3 + 24, 2 + 0 + 3, 2 + 1 + 3, 0)


@pytest.mark.parametrize(
    "user, sentence",
    [
        (([[0.5] * 784], [3]), "must be 784 numbers byte / 255; writer 'w' has other values"),
        (([[0.0] * 783], [3]), "must be 784 numbers"),
        (
            ([[0.0] * 784], [62]),
            "labels must be whole numbers from 0 to 61; writer 'w' has other values",
        ),
    ],
)
def test_other_pictures_are_refused(made, user, sentence):
    put(made / "femnist/all_data_0.json", leaf({"w": user}))
    with pytest.raises(DataError, match=sentence):
        femnist()


def test_words_are_cut_counted_and_padded():
    texts = [split_words("It's a dog, a DOG!"), split_words("a cat"), []]
    assert texts[0] == ["it's", "a", "dog", ",", "a", "dog", "!"]
    words = vocabulary(texts, 3)
    assert words == ("(padding)", "(unknown)", "a", "dog", "!")  # ties by name: "!" before ","
    assert vocabulary(reversed(texts), 3) == words
    found = pad_texts(word_numbers(texts, words), 4)
    assert found.tolist() == [[1, 2, 3, 1], [2, 1, 0, 0], [0, 0, 0, 0]]
    assert found.dtype == np.int32


def test_tweets_by_user(made):
    put(
        made / "sent140/all_data.json",
        leaf({"ann": tweets(*["good day"] * 10), "bob": tweets("bad day", "sad")}),
    )
    federation = sent140(length=3, words=2)
    assert federation.names == ("ann", "bob")
    assert federation.labels == ("negative", "positive")
    assert federation.x.tolist() == [[3, 2, 0]] * 10 + [[1, 2, 0], [1, 0, 0]]
    assert federation.y[:2].tolist() == [0, 1]
    assert sent140(min_samples=3).names == ("ann",)
    with pytest.raises(ValueError, match="words and length must be at least 1"):
        sent140(length=0)


def test_other_tweets_are_refused(made):
    put(made / "sent140/all_data.json", leaf({"ann": (["just text"], [1])}))
    with pytest.raises(
        DataError,
        match=r"a tweet must be \[id, date, query, user, text\]; user 'ann' has other values",
    ):
        sent140()
    put(made / "sent140/all_data.json", leaf({"ann": (tweets("hi")[0], [4])}))
    with pytest.raises(DataError, match="labels must be 0 or 1; user 'ann' has other values"):
        sent140()


POSTS = [
    ("7", "how do i sort a list"),
    ("8", "sort a list"),
    ("7", "a list a list"),
    ("9", "zebra"),
]
SMALL = {"users": 0, "min_samples": 1, "max_samples": 0, "words": 3, "length": 3, "train": 1.0}


def exported(kind: str) -> bytes:
    if kind.startswith("csv"):
        text = "client,text\n" + "".join(f'{client},"{text}"\n' for client, text in POSTS)
    else:
        text = "".join(
            json.dumps({"client": client, "text": text}) + "\n" for client, text in POSTS
        )
    return gzip.compress(text.encode()) if kind.endswith(".gz") else text.encode()


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "csv", "csv.gz"])
def test_posts_by_user_in_every_form(made, kind):
    put(made / f"stackoverflow/stackoverflow.{kind}", exported(kind))
    federation = stackoverflow(**SMALL)
    assert federation.labels == ("(padding)", "(unknown)", "a", "list", "sort")
    assert federation.names == ("7", "8")  # 9 says nothing that is known
    # User 7: "how do i" and nothing else is unknown; those are not targets but stay in the input.
    assert federation.x[:3].tolist() == [[1, 1, 1], [1, 1, 4], [1, 4, 2]]
    assert federation.y[:3].tolist() == [4, 2, 3]
    assert federation.x[3:5].tolist() == [[0, 0, 0], [0, 0, 2]]
    assert federation.train.counts.tolist() == [7, 3]
    assert stackoverflow(**{**SMALL, "max_samples": 5}).names == ("8",)


def test_an_export_without_its_columns_is_refused(made):
    put(
        made / "stackoverflow/stackoverflow.jsonl", b'{"client": "7", "text": "a"}\n{"user": "7"}\n'
    )
    with pytest.raises(
        DataError, match=r"row 2 must have client and text, as docs/datasets.md shows"
    ):
        stackoverflow()
    put(made / "stackoverflow/stackoverflow.jsonl", b"\xff\xfe")
    with pytest.raises(DataError, match="is not whole text"):
        stackoverflow()


def test_too_many_words_are_refused():
    with pytest.raises(ValueError, match="words must be between 1 and 998"):
        stackoverflow(words=10_000)


def test_a_gzip_cut_off_is_refused(made):
    put(made / "stackoverflow/stackoverflow.jsonl.gz", exported("jsonl.gz")[:-12])
    with pytest.raises(DataError, match="is not whole text"):
        stackoverflow()
    put(made / "femnist/all_data_0.json.gz", gzip.compress(leaf({"w": writer(2, 0)}))[:-12])
    with pytest.raises(DataError, match="is not whole JSON"):
        femnist()


def test_leaf_files_missing(folder):
    with pytest.raises(
        MissingData, match=r"femnist/all_data_0.json .* run data/femnist/preprocess.sh of LEAF"
    ):
        femnist()
