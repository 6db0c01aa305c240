"""Shakespeare: guess the next character of a play; every speaking role is a client.

As LEAF prepares it: a speech is one line that ends with a newline, every character of it is a target once, and the input is
the 80 characters before it, with spaces before the speech begins. The 80 symbols are LEAF's. A character that is not among
them becomes `}`, which is what LEAF's code does too (it looks up -1 and so takes the last symbol); in all plays here that is
one `$`, a misprint.

LEAF reads the complete works of Project Gutenberg. Here the plays come from shakespeare.mit.edu (36 of 37), or from LEAF's own
all_data.json for those who have it.
"""

import numpy as np

from evenly.data import Rows, choose_clients, natural
from evenly.data.federation import Federation
from evenly.datasets.card import DatasetCard, Sizes
from evenly.datasets.files import DataError
from evenly.datasets.leaf import leaf_file, leaf_paths, read_leaf
from evenly.datasets.play_files import LAYOUTS
from evenly.datasets.plays import read_roles
from evenly.datasets.windows import Stream, stream, thinned
from evenly.randomness import Draws

SYMBOLS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
UNKNOWN = SYMBOLS.index("}")
SPACE = SYMBOLS.index(" ")
LABELS = tuple({"\n": "newline", " ": "space"}.get(symbol, symbol) for symbol in SYMBOLS)
SOURCES = ("plays", "leaf")
LEAF = leaf_file("shakespeare", "LEAF's Shakespeare, 80 characters and the next")

_NUMBERS = np.full(257, UNKNOWN, np.int32)
_NUMBERS[[ord(symbol) for symbol in SYMBOLS]] = np.arange(len(SYMBOLS))
_KNOWN = np.isin(np.arange(257), [ord(symbol) for symbol in SYMBOLS])


def shakespeare(
    source: str = "plays",
    *,
    roles: int = 31,
    min_samples: int = 64,
    length: int = 80,
    stride: int = 1,
    fraction: float = 1.0,
    shuffle: bool = True,
    train: float = 0.8,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Roles drawn by `seed` (0: all) of those with at least `min_samples` characters; x int32 [n, length], y the next character.

    `stride` takes every so many-th character of a role as a target and `fraction` a random share of these. `shuffle` draws
    training, validation and test samples at random (the papers); without it they follow each other in the text, so that
    hardly any test input was seen in training.
    """
    _check(source, length, stride, fraction)
    texts = _plays(length) if source == "plays" else _leaf(length)
    sizes = np.array([len(text.targets) for text in texts.values()])
    chosen = choose_clients(sizes, clients=roles, min_samples=min_samples, seed=seed, what="shakespeare")
    names = [list(texts)[k] for k in chosen]
    draws = Draws(seed, "windows")
    few = [
        thinned(texts[name], stride=stride, fraction=fraction, generator=draws.at(int(k))) for k, name in zip(chosen, names, strict=True)
    ]
    rows, owner = _samples(few, length, f"shakespeare {source}")
    return natural(rows, owner, names=names, shares=(train, valid), shuffle=shuffle, split_seed=split_seed)


def _samples(texts: list[Stream], length: int, name: str) -> tuple[Rows, np.ndarray]:
    """The examples of all roles, and the role of each."""
    parts = [text.examples(length) for text in texts]
    owner = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    return Rows(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), LABELS, name), owner


def encode(text: str) -> np.ndarray:
    """Symbols of a text, int32; unknown characters become `}`."""
    return _NUMBERS[_codes(text)]


def count_unknown(text: str) -> int:
    """How many characters of a text are not among the 80 symbols."""
    return int((~_KNOWN[_codes(text)]).sum())


def _codes(text: str) -> np.ndarray:
    return np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), 256)


def _plays(length: int) -> dict[str, Stream]:
    return {
        f"{role.play}: {role.name}": stream([encode(f"{speech}\n") for speech in role.speeches], length=length, padding=SPACE)
        for role in read_roles()
    }


def _leaf(length: int) -> dict[str, Stream]:
    """LEAF gives the windows ready-made: each becomes a sequence of its own, of which only the last character is a target."""
    texts: dict[str, Stream] = {}
    for user in read_leaf(leaf_paths(LEAF)):
        strange = next((x for x, y in zip(user.x, user.y, strict=True) if len(x) != length or len(y) != 1), None)
        if strange is not None:
            raise DataError(f"shakespeare: x must have {length} characters and y one, but {user.name!r} has an x of {len(strange)}.")
        symbols = encode("".join(x + y for x, y in zip(user.x, user.y, strict=True)))
        texts[user.name] = Stream(symbols, np.arange(len(user.y)) * (length + 1) + length)
    return texts


def _check(source: str, length: int, stride: int, fraction: float) -> None:
    if source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {source!r}.")
    if length < 1 or stride < 1 or not 0 < fraction <= 1:
        raise ValueError(f"length and stride must be at least 1 and fraction above 0 and at most 1, got {length}, {stride} and {fraction}.")


CARD = DatasetCard(
    name="shakespeare",
    title="The next character in a play; every speaking role is a client",
    load=shakespeare,
    layouts=LAYOUTS,
    papers=("q-FFL", "PropFair"),
    licence="The plays are in the public domain; the repository that holds these texts is GPL-3 for its script.",
    provenance="shakespeare.mit.edu, scraped by ravexina/shakespeare-plays-dataset-scraper; 36 plays, without The Winter's Tale.",
    citation="Caldas et al.: LEAF: a benchmark for federated settings. arXiv:1812.01097, 2018.",
    notes=(
        "q-FFL reads LEAF's text (Project Gutenberg), so roles, spelling and sizes differ from the paper's.",
        "Samples overlap: a test input shares most of its characters with training inputs unless shuffle=false.",
        "Some stage directions remain in the speeches, since the files do not mark them.",
        "PropFair: roles=20, min_samples=10000, train=0.5, valid=0.",
    ),
    expected=Sizes(clients=31, train=65297, valid=8163, test=8177),
)
