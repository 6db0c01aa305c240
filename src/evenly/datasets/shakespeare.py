"""Shakespeare: predict the next character of a speaking role; every role is a client."""

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from evenly.data import Rows, choose_clients, natural
from evenly.data.federation import Federation
from evenly.datasets.files import Content, DataError, DataFile, DatasetCard, Sizes, checked_files
from evenly.datasets.formats import (
    Stream,
    archive_files,
    join_sequences,
    leaf_file,
    leaf_paths,
    read_leaf,
    thin_targets,
)
from evenly.randomness import Draws
from evenly.records import require

# The 36 plays as files: scraped from shakespeare.mit.edu into a public repository, one text each
# (The Winter's Tale is missing).

URL = "https://raw.githubusercontent.com/ravexina/shakespeare-plays-dataset-scraper/38061c392481af43e226b735480454851802c257/shakespeare-db/"

SUMS = """
874f563708473664c13f286bf33e4556064f04113a3249319e001afbe048f456 145435 All's Well That Ends Well.txt
cb32108aee0481c32d350db8525af65f61280b731316afd9556d7606653c88f9 169548 Antony and Cleopatra.txt
e3f44ec2346d68047d2c298b032c90337735c9f458e0a07f0211d58d6b3b0a82 134602 As You Like It.txt
55933102813b9be78728dd07852a1eda70a23267ea0342e83cf34df28739aba1 96686 Comedy of Errors.txt
55eca73723f16f30df8ce5e2763f87dab8171620503740a3c01db97da49eea80 180992 Coriolanus.txt
3e430189774078f4554d2d2e9c203bdc68c967b9dabb8702e11354a663d3113c 177616 Cymbeline.txt
7c8822f266034b11b078b835fd4a97be00ef3e8fc1531166c750e72d60075d26 196392 Hamlet.txt
044bd2b13a42bd8256a2177f2d75eed60277ccfab02b0b1982d03728d6831fc2 155693 Henry IV, part 1.txt
ca0a280090cb42efdb2b95ea60f4623a253f3493f141f40cb943c98718eca8fb 168615 Henry IV, part 2.txt
4a43b80d39f0f9a8f4020c46cbd0dff99efb7c862ce84f4b9bbd141af88628a1 166207 Henry V.txt
0dbfe13299e6d70e51fd555bf21db2fdd6e08a3589833e893f8c46191ae67dfa 142855 Henry VI, part 1.txt
54b1db6c417764e2043067b089ab0c4ac8036299817555a7588ff9885a22aac2 163176 Henry VI, part 2.txt
52d37825b8eb8ec1c7b84160fb9362d2f11f3cb20693c59c9870ee80149bfdc2 157821 Henry VI, part 3.txt
6e359f8ba7f78a48c989245bfdc7a2e9dfd37757375d9943a6d5fe18ae7de8e6 159232 Henry VIII.txt
320ce49d11e82826f1835abeb506edef809c65c97f1be8f46492b44df783fbc1 126454 Julius Caesar.txt
169b7201d2ddda3d2327bc4dc8173f63c18785fb7b0b14eaa6c2f1323f7e9ccd 131639 King John.txt
51b840cfd36c0c1b8e04ff04ed1da1bb05ec59b57a934dcac00d63580a9be9a6 169824 King Lear.txt
deb918c1514924f0dabd867b179d62fc5dc567465538d5c4421c01c703bc104b 140390 Love's Labour's Lost.txt
b8ce584b6dc7845e8f79c38601ee648c1ca1defd95956c4572857de2c253dbaf 113189 Macbeth.txt
babb3988c525929bf00014cabb5c83c232e33865eb0283b145c2cb564affd3e9 140306 Measure for Measure.txt
f54e502ee3e2ed14c4b9251870afbfc1290a1616fd044fc33e2074036939fba4 131655 Merchant of Venice.txt
235102c513057c57054ae3935adf1639242367b6a9647e9f5f74d6e640da7878 140721 Merry Wives of Windsor.txt
af8ed70096e6ab01d5c8e24b0111c18344c06855c5c327e65fd23472c44b251e 104100 Midsummer Night's Dream.txt
f020dd656deb707e3a99724bb5a25df92bc765d8c0796b5bc0f4e6d9c6e8cf62 132701 Much Ado About Nothing.txt
9a246d7f8f28cb56416837643e38023e6e01f4dd837a82ea3dcdd26769692ecf 168957 Othello.txt
3655d25532aa508c35aee317f91d4371fe007ffb3d4d016d467b98ffbf0064ba 119588 Pericles.txt
c81d18657e52dffd0ad9121f402fd8c3e5c441550690848f7b2d31f1e62cf428 144558 Richard II.txt
3e2d9c5f9624fe60f3b99d218af9d81b42541b7652a04ec756945ff172616324 192148 Richard III.txt
dbb48c61dd5a6e040fcb3953becedf3d70ea084624391af384a9dfafb08fedb5 154968 Romeo and Juliet.txt
6707a2867889372ca10f88724394388fa23160ab2b15cec4fe894f14d03e9921 133380 Taming of the Shrew.txt
db3139fc3989d1a82db7a2adfcce5c4ce123ef44438d07d0aee29c0a93bf53b3 107428 The Tempest.txt
9398e137a3758c09fe509bf51b82639b2187a0297871eb90fd1e5da2cc40bf72 121471 Timon of Athens.txt
5fea4cac7ff819190480e104cc893b7c4eb0d2f48c4463dfa4508d0d6934b490 133080 Titus Andronicus.txt
ce1974af56f70ea009d64bc72751951520f2e23e242f7645e5f436efbec1637b 171091 Troiles and Cressida.txt
71d5d96d124b364e17abbc189d135ddba0395663da0377dd63399f88acefb7d5 125638 Twelfth Night.txt
1309b96bbe6a4b7ac8f21be5ab7acde2014ef001220271823ebf5b258a42b44d 109549 Two Gentlemen of Verona.txt
"""  # sha256, bytes, name  # noqa: E501


def _play(line: str) -> DataFile:
    digest, size, name = line.split(" ", 2)
    return DataFile(
        path=f"shakespeare/shakespeare-db/{name}",
        what=f"the play {name.removesuffix('.txt')}",
        contents=(Content(f"sha256:{digest}", int(size)),),
        urls=(URL + quote(name),),
    )


PLAYS = tuple(_play(line) for line in SUMS.strip().splitlines())
PACKED = DataFile(
    path="shakespeare/mit_plays_shakespeare-db.tar.bz2",
    what="the 36 plays in one archive",
    contents=(
        Content("sha256:ce3a6915630f249f1fc7c931f52152d710f3e89247cf40253d1329e38885206a", 1389051),
    ),
)
LAYOUTS = ((PACKED,), PLAYS)


# Take plays apart into roles and their speeches.
#
# In the files a speaker's name stands alone on a line that is not indented, the speech follows
# indented, and headings of acts and scenes start with four stars. Stage directions are indented
# like speech; those that are recognised by their first word (Enter, Exit, Exeunt, ...) or that are
# a single known word (Aside, Reads, Dies, Sings) are dropped, the rest stays.

DIRECTION = re.compile(
    r"(Enter|Enters|Re-enter|Exit|Exeunt|Flourish|Alarums?)\b(?!')|(Aside|Reads|Dies|Sings)$"
)
HEADING = "****"


class Role(NamedTuple):
    """A role of a play and its speeches, each on one line."""

    play: str
    name: str
    speeches: tuple[str, ...]


def read_roles() -> list[Role]:
    """Return every role of every play, plays by title and roles in the order of their
    first speech.
    """
    layout, paths = checked_files(LAYOUTS)
    texts = (
        _unpack(paths[0])
        if layout is LAYOUTS[0]
        else {path.stem: path.read_text(encoding="utf-8") for path in paths}
    )
    return [role for title in sorted(texts) for role in parse_play(title, texts[title])]


def parse_play(title: str, text: str) -> list[Role]:
    """Return the roles of one play. Names are compared without regard to case."""
    speeches: dict[str, list[list[str]]] = {}
    speech: list[str] | None = None
    for line in text.splitlines():
        words = " ".join(line.split())
        if not words or DIRECTION.match(words):
            continue
        if line.startswith(HEADING) or "Shakespeare_homepage" in line:
            speech = None
        elif not line[0].isspace():
            speech = []
            speeches.setdefault(words.upper(), []).append(speech)
        elif speech is not None:
            speech.append(words)
    roles = [
        Role(title, name, tuple(" ".join(lines) for lines in parts if lines))
        for name, parts in speeches.items()
    ]
    return [role for role in roles if role.speeches]


def _unpack(path: Path) -> dict[str, str]:
    """Return the texts of the plays in an archive by title."""
    try:
        return {
            Path(name).stem: text.decode("utf-8")
            for name, text in archive_files(path, lambda name: name.endswith(".txt"))
        }
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not a whole archive of plays: {error}. Delete it and get it again."
        ) from None


# Shakespeare: predict the next character of a play; every speaking role is a client.
#
# As LEAF prepares it: a speech is one line that ends with a newline, every character of it is a
# target once, and the input is the 80 characters before it, with spaces before the speech begins.
# The 80 symbols are LEAF's. A character that is not among them becomes `}`, which is what LEAF's
# code does too (it looks up -1 and so takes the last symbol); in all plays here that is one `$`, a
# misprint.
#
# LEAF reads the complete works of Project Gutenberg. Here the plays come from shakespeare.mit.edu
# (36 of 37), or from LEAF's own all_data.json for those who have it.

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
    """Return one client per role with at least `min_samples` characters. `roles` of them are drawn
    by `seed` (0: all).

    x int32 [n, length] has the characters before the target y. `stride` keeps every `stride`-th
    target of a role, and `fraction` a random share of these. With `shuffle`, training, validation
    and test samples are drawn at random, as in the papers. Without it they follow each other in the
    text, so that test inputs hardly overlap with training inputs.
    """
    _check(source, length, stride, fraction)
    texts = _plays(length) if source == "plays" else _leaf(length)
    sizes = np.array([len(text.targets) for text in texts.values()])
    chosen = choose_clients(
        sizes, clients=roles, min_samples=min_samples, seed=seed, what="shakespeare"
    )
    names = [list(texts)[k] for k in chosen]
    draws = Draws(seed, "windows")
    generators = [draws.at(int(k)) for k in chosen]
    parts = [
        thin_targets(texts[n], stride=stride, fraction=fraction, generator=g)
        for n, g in zip(names, generators, strict=True)
    ]
    rows, owner = _samples(parts, length, f"shakespeare {source}")
    return natural(
        rows, owner, names=names, shares=(train, valid), shuffle=shuffle, split_seed=split_seed
    )


def _samples(texts: list[Stream], length: int, name: str) -> tuple[Rows, np.ndarray]:
    """Return the examples of all roles, and the role of each."""
    parts = [text.examples(length) for text in texts]
    owner = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    return (
        Rows(
            np.concatenate([x for x, _ in parts]),
            np.concatenate([y for _, y in parts]),
            LABELS,
            name,
        ),
        owner,
    )


def encode(text: str) -> np.ndarray:
    """Return the symbols of a text, int32. Unknown characters become `}`."""
    return _NUMBERS[_codes(text)]


def count_unknown(text: str) -> int:
    """Count the characters of a text that are not among the 80 symbols."""
    return int((~_KNOWN[_codes(text)]).sum())


def _codes(text: str) -> np.ndarray:
    return np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), 256)


def _plays(length: int) -> dict[str, Stream]:
    return {
        f"{role.play}: {role.name}": join_sequences(
            [encode(f"{speech}\n") for speech in role.speeches], length=length, padding=SPACE
        )
        for role in read_roles()
    }


def _leaf(length: int) -> dict[str, Stream]:
    """Return LEAF's windows by role. Each window is a sequence of its own; only its last character
    is a target.
    """
    texts: dict[str, Stream] = {}
    for user in read_leaf(leaf_paths(LEAF)):
        wrong = next(
            (x for x, y in zip(user.x, user.y, strict=True) if len(x) != length or len(y) != 1),
            None,
        )
        if wrong is not None:
            raise DataError(
                f"shakespeare: x must have {length} characters and y one, but {user.name!r} has an"
                f" x of {len(wrong)}."
            )
        symbols = encode("".join(x + y for x, y in zip(user.x, user.y, strict=True)))
        texts[user.name] = Stream(symbols, np.arange(len(user.y)) * (length + 1) + length)
    return texts


def _check(source: str, length: int, stride: int, fraction: float) -> None:
    require(
        source in SOURCES,
        f"shakespeare: source must be one of {', '.join(SOURCES)}, got {source!r}.",
    )
    require(
        length >= 1 and stride >= 1,
        f"shakespeare: length and stride must be at least 1, got {length} and {stride}.",
    )
    require(
        0 < fraction <= 1, f"shakespeare: fraction must be above 0 and at most 1, got {fraction}."
    )


CARD = DatasetCard(
    name="shakespeare",
    title="The next character in a play; every speaking role is a client",
    load=shakespeare,
    layouts=LAYOUTS,
    papers=("q-FFL", "PropFair"),
    licence=(
        "The plays are in the public domain; the repository that holds these texts is GPL-3 for its"
        " script."
    ),
    provenance=(
        "shakespeare.mit.edu, scraped by ravexina/shakespeare-plays-dataset-scraper; 36 plays,"
        " without The Winter's Tale."
    ),
    citation="Caldas et al.: LEAF: a benchmark for federated settings. arXiv:1812.01097, 2018.",
    notes=(
        (
            "q-FFL reads LEAF's text (Project Gutenberg), so roles, spelling and sizes differ from"
            " the paper's."
        ),
        (
            "Samples overlap: a test input shares most of its characters with training inputs"
            " unless shuffle=false."
        ),
        "Some stage directions remain in the speeches, since the files do not mark them.",
        "PropFair: roles=20, min_samples=10000, train=0.5, valid=0.",
    ),
    expected=Sizes(clients=31, train=65297, valid=8163, test=8177),
)
