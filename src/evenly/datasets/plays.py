"""Take plays apart into roles and their speeches.

In the files a speaker's name stands alone on a line that is not indented, the speech follows indented, and headings of acts
and scenes start with four stars. Stage directions are indented like speech; those that are recognised by their first word
(Enter, Exit, Exeunt, ...) or that are a single known word (Aside, Reads, Dies, Sings) are dropped, the rest stays.
"""

import re
import tarfile
from pathlib import Path
from typing import NamedTuple

from evenly.datasets.files import DataError, use
from evenly.datasets.play_files import LAYOUTS

DIRECTION = re.compile(r"(Enter|Enters|Re-enter|Exit|Exeunt|Flourish|Alarums?)\b(?!')|(Aside|Reads|Dies|Sings)$")
HEADING = "****"


class Role(NamedTuple):
    """A speaker of a play and the speeches, each on one line."""

    play: str
    name: str
    speeches: tuple[str, ...]


def read_roles() -> list[Role]:
    """Every role of every play, plays by title and roles in the order of their first speech."""
    layout, paths = use(LAYOUTS)
    texts = _unpacked(paths[0]) if layout is LAYOUTS[0] else {path.stem: path.read_text(encoding="utf-8") for path in paths}
    return [role for title in sorted(texts) for role in parse_play(title, texts[title])]


def parse_play(title: str, text: str) -> list[Role]:
    """The roles of one play. A name counts the same in capitals or not."""
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
    spoken = ((name, tuple(" ".join(lines) for lines in said if lines)) for name, said in speeches.items())
    return [Role(title, name, said) for name, said in spoken if said]


def _unpacked(path: Path) -> dict[str, str]:
    try:
        with tarfile.open(path, "r:bz2") as archive:
            members = [member for member in archive if member.isfile() and member.name.endswith(".txt")]
            streams = {Path(member.name).stem: archive.extractfile(member) for member in members}
            return {title: stream.read().decode("utf-8") for title, stream in streams.items() if stream is not None}
    except (tarfile.TarError, EOFError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a whole archive of plays: {error}. Delete it and get it again.") from None
