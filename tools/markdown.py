"""Markdown tables, and the sentence parts that several generated pages share."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

WIDTH = 100  # columns of a line of text


def table(head: Sequence[str], rows: Sequence[Sequence[str]], marks: Sequence[str] = ()) -> str:
    """Return a Markdown table. `marks` aligns the columns (`---` or `---:`). Bars inside cells are
    escaped.
    """
    return lines([head, marks or ["---"] * len(head), *rows])


def lines(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of a table, below a head that is written elsewhere."""
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def numbers(words: int, columns: int) -> list[str]:
    """Return the alignment of a table: `words` columns of text, then columns of numbers, `columns`
    in all.
    """
    return ["---"] * words + ["---:"] * (columns - words)


def versions(packages: Mapping[str, str]) -> str:
    """Return names and versions of packages as a list in words."""
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def wrapped(text: str, indent: str = "") -> str:
    """Return text in lines of at most 100 columns. Lines after the first are indented."""
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def listed(parts: Iterable[str]) -> str:
    """Return parts as a list in words.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


def folded(text: str) -> str:
    """Return Markdown with its paragraphs and list items in lines of at most 100 columns. Tables,
    code, pictures and headings stay as they are.
    """
    return "\n".join(
        line
        if len(line) <= WIDTH or line.startswith(("|", "    ", "!", "#"))
        else wrapped(line, "  " if line.startswith("- ") else "")
        for line in text.splitlines()
    )
