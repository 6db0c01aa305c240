"""Plays become roles, roles become windows, and the 80 symbols of LEAF hold nearly all of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.datasets import DATASETS, DataError, MissingData, Sizes, shakespeare
from evenly.datasets.formats import join_sequences, thin_targets
from evenly.datasets.shakespeare import (
    LABELS,
    PLAYS,
    SYMBOLS,
    count_unknown,
    encode,
    parse_play,
    read_roles,
)
from tests.datasets.making import leaf, put, tar
from tests.datasets.real_data import need

PLAY = """
          A Short Play
Shakespeare_homepage | A_Short_Play | Entire play
**** ACT I ****
**** SCENE I. A room. ****
     Enter HAMLET and a Clown
HAMLET
     To be, or not
     to  be:
     Exit Clown
First Clown
     Enter'd is fine.
HAMLET
     Aside
     Ay.
**** SCENE II. Elsewhere. ****
     Re-enter HAMLET
     Some direction nobody marked
FIRST CLOWN
     Well.
Ghost
     Exeunt
"""


def text_of(x: np.ndarray) -> str:
    return "".join(SYMBOLS[i] for i in x)


def a_play(letters: str, speeches: int) -> str:
    return "".join(f"{name}\n     {'word ' * 20}{i}\n" for i in range(speeches) for name in letters)


def test_roles_and_speeches():
    assert parse_play("Short", PLAY) == [
        ("Short", "HAMLET", ("To be, or not to be:", "Ay.")),
        ("Short", "FIRST CLOWN", ("Enter'd is fine.", "Well.")),
    ]


def test_the_symbols_are_leafs():
    assert len(SYMBOLS) == len(set(SYMBOLS)) == len(set(LABELS)) == 80
    assert text_of(encode("To be, or not\n")) == "To be, or not\n"


def test_unknown_characters_become_one_symbol_and_are_counted():
    assert text_of(encode("a$é€𝄞z")) == "a}}}}z"
    assert count_unknown("a$é€𝄞z") == 4
    assert count_unknown("a}\n") == 0


def test_windows_see_padding_before_a_speech_and_never_another_speech():
    whole = join_sequences([encode("abc"), encode("de")], length=4, padding=encode(" ")[0])
    x, y = whole.examples(4)
    assert [text_of(row) for row in x] == ["    ", "   a", "  ab", "    ", "   d"]
    assert text_of(y) == "abcde"
    assert x.dtype == y.dtype == np.int32


@given(
    sizes=st.lists(st.integers(0, 9), max_size=5),
    length=st.integers(1, 6),
    stride=st.integers(1, 4),
    fraction=st.floats(0.05, 1.0),
)
def test_thinning_takes_some_of_the_same_examples(sizes, length, stride, fraction):
    sequences = [np.arange(10 * i, 10 * i + n) + 1 for i, n in enumerate(sizes)]
    whole = join_sequences(sequences, length=length, padding=0)
    x, y = whole.examples(length)
    assert y.tolist() == [symbol for sequence in sequences for symbol in sequence]
    if len(y):
        few = thin_targets(
            whole, stride=stride, fraction=fraction, generator=np.random.default_rng(0)
        )
        some_x, some_y = few.examples(length)
        places = np.searchsorted(y, some_y)
        assert (places % stride == 0).all()
        assert len(places) == max(1, int(np.floor(round(fraction * len(y[::stride]), 9))))
        np.testing.assert_array_equal(some_x, x[places])


@pytest.mark.data
def test_the_roles_of_the_real_plays():
    need("shakespeare")
    roles = read_roles()
    assert len({role.play for role in roles}) == 36
    assert len(roles) == 1334  # (play, speaker) pairs that speak; headings are not among them
    text = "".join(f"{speech}\n" for role in roles for speech in role.speeches)
    assert len(text) == 4_226_839
    assert count_unknown(text) == 1  # a misprinted $ in Henry VI, part 3
    hamlet = next(role for role in roles if (role.play, role.name) == ("Hamlet", "HAMLET"))
    assert hamlet.speeches[0] == "[Aside] A little more than kin, and less than kind."
    assert any("To be, or not to be: that is the question:" in speech for speech in hamlet.speeches)
    assert not any(
        word in {"Enter", "Exeunt"} for speech in hamlet.speeches for word in speech.split()[:1]
    )


@pytest.mark.data
def test_the_federation_of_the_real_plays():
    need("shakespeare")
    federation = shakespeare()
    assert Sizes.of(federation) == DATASETS["shakespeare"].expected
    assert federation.x.shape[1] == 80
    assert federation.x.dtype == federation.y.dtype == np.int32
    assert len(federation.labels) == 80
    assert (federation.train.counts + federation.valid.counts + federation.test.counts).min() >= 64
    propfair = shakespeare(roles=20, min_samples=10_000, train=0.5, valid=0.0, fraction=0.01)
    assert propfair.clients == 20
    assert (propfair.train.counts + propfair.test.counts).min() >= 100


def test_settings_thin_and_order_the_samples(made):
    plays = {"db/One.txt": a_play("AB", 6).encode(), "db/Two.txt": a_play("C", 9).encode()}
    put(made / "shakespeare/mit_plays_shakespeare-db.tar.bz2", tar(plays, "w:bz2"))
    whole = shakespeare(roles=0)
    assert whole.names == ("One: A", "One: B", "Two: C")
    sizes = whole.train.counts + whole.valid.counts + whole.test.counts
    # 20 five-letter words, a number and a newline
    assert sizes.tolist() == [6 * 102, 6 * 102, 9 * 102]
    assert shakespeare(roles=0, min_samples=900).names == ("Two: C",)
    assert len(shakespeare(roles=1).names) == 1
    assert len(shakespeare(roles=0, stride=2, fraction=0.5).y) == sum(n // 2 // 2 for n in sizes)
    ordered = shakespeare(roles=0, shuffle=False)
    assert (np.diff(ordered.train.of(2)) == 1).all()
    assert ordered.train.of(2).max() < ordered.valid.of(2).min() < ordered.test.of(2).min()
    assert shakespeare(roles=0, length=5).x.shape == (sum(sizes), 5)
    with pytest.raises(
        ValueError,
        match="shakespeare: 4 clients with at least 64 samples are required, but only 3 of 3",
    ):
        shakespeare(roles=4)


def test_the_plays_as_single_files(made):
    for file in PLAYS:
        put(made / file.path, a_play("AB", 3).encode())
    assert shakespeare(roles=0).clients == 72


@pytest.mark.parametrize(
    "settings", [{"length": 0}, {"stride": 0}, {"fraction": 0.0}, {"fraction": 1.5}]
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises(
        ValueError,
        match=(
            r"length and stride must be at least 1, got|fraction must be above 0 and at most 1, got"
        ),
    ):
        shakespeare(**settings)


def test_leafs_own_files(made):
    x = ["a" * 80, "b" * 79 + "$"]
    put(
        made / "shakespeare/all_data.json",
        leaf({"HAMLET": (x * 40, ["!", "\n"] * 40), "GHOST": (x, ["a", "b"])}),
    )
    federation = shakespeare("leaf", roles=0)
    assert federation.names == ("HAMLET",)  # the ghost has fewer than 64 samples
    assert text_of(federation.x[1]) == "b" * 79 + "}"
    assert federation.labels[federation.y[0]] == "!"
    assert federation.labels[federation.y[1]] == "newline"
    assert len(shakespeare("leaf", roles=0, fraction=0.25).y) == 20
    with pytest.raises(
        DataError, match="x must have 40 characters and y one, but 'HAMLET' has an x of 80"
    ):
        shakespeare("leaf", length=40)


def test_leafs_files_are_missing(made):
    with pytest.raises(
        MissingData,
        match=r"shakespeare/all_data.json .* run data/shakespeare/preprocess.sh of LEAF",
    ):
        shakespeare("leaf")
    with pytest.raises(ValueError, match="source must be one of plays, leaf"):
        shakespeare("gutenberg")


def test_a_broken_archive(made):
    put(
        made / "shakespeare/mit_plays_shakespeare-db.tar.bz2",
        tar({"a.txt": b"A\n     b\n" * 500}, "w:bz2")[:60],
    )
    with pytest.raises(DataError, match="is not a whole archive: file could not be opened"):
        shakespeare()
