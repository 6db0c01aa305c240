"""What is on the pages of the documentation: blocks of code, in order, and what their authors said
about running them.

A comment before a block says how it is tested, visibly in the source of the page:

    <!-- not run: why -->            the block is only read; its `evenly` commands must parse
    <!-- needs data: adult, mnist --> it runs where the files of these data sets are

A fenced block with `title="name"` is written into the folder in which the page's commands run. One
that begins with `>>>` is a session: it is run, and must print what it shows.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
SHELLS = {"sh", "bash", "shell", "console"}
PROGRAMS = {
    "cd",
    "docker",
    "evenly",
    "export",
    "git",
    "make",
    "mlflow",
    "pip",
    "pytest",
    "python",
    "ray",
    "tensorboard",
    "uv",
    "wandb",
}
SAID = re.compile(r"<!-- (not run|needs data): (.*?) -->")
FENCE = re.compile(r"^( *)(```+|~~~+)\s*([\w-]*)(.*)$")
BREAKS = {"|", ">", ">>", "&&", "||", ";", "&"}


class Block(NamedTuple):
    kind: str  # "python", "session", "shell", "file" or "other"
    text: str
    line: int
    title: str = ""
    not_run: str = ""
    needs: tuple[str, ...] = ()


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, fenced or indented."""
    lines = page.read_text().splitlines()
    said: dict[str, str] = {}
    i = 0
    while i < len(lines):
        fence, start = FENCE.match(lines[i]), i
        if fence:
            indent, mark, language, rest = fence.groups()
            i += 1
            while i < len(lines) and not lines[i].strip().startswith(mark):
                i += 1
            body = [line.removeprefix(indent) for line in lines[start + 1 : i]]
            title = re.search(r'title="([^"]+)"', rest)
            yield _block(language, body, start + 2, said, title[1] if title else "")
            said = {}
        elif lines[i].startswith("    ") and not lines[i - 1].strip():
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            yield _block("", [line[4:] for line in lines[start:i]], start + 1, said, "")
            said = {}
            continue
        elif comment := SAID.match(lines[i].strip()):
            said = {**said, comment[1]: comment[2]}
        elif lines[i].strip():
            said = {}
        i += 1


def _block(language: str, body: list[str], line: int, said: dict[str, str], title: str) -> Block:
    first = (body[0].removeprefix("$ ").split() or [""])[0] if body else ""
    if title:
        kind = "file"
    elif first == ">>>":
        kind = "session"
    elif language == "python":
        kind = "python"
    else:
        kind = "shell" if language in SHELLS or first in PROGRAMS else "other"
    needs = tuple(name.strip() for name in said.get("needs data", "").split(",") if name.strip())
    return Block(kind, "\n".join(body) + "\n", line, title, said.get("not run", ""), needs)


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a shell block as words; comments are left out, and so is what follows a pipe
    or a redirection.
    """
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        stop = next((i for i, word in enumerate(words) if word in BREAKS), len(words))
        if words[:stop]:
            yield words[:stop]


def inline_commands(page: Path) -> Iterator[list[str]]:
    """The `evenly ...` commands inside the sentences of a page."""
    fenced = re.sub(
        r"^( *)(```+|~~~+).*?^\1?\2`*$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    for text in re.findall(
        r"`(evenly(?: [^`\n]+)?)`",
        "\n".join(line for line in fenced.splitlines() if not line.startswith("    ")),
    ):
        yield shlex.split(text)
