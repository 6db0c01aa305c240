"""HTML tables that are readable on a phone: there, each row becomes a card and each cell carries its column's name."""

from collections.abc import Sequence
from typing import NamedTuple

from evenly.report.markup import Html, element

SHORT = 26


class Column(NamedTuple):
    """A column's name, and a word on how to read it."""

    name: str
    hint: str = ""
    words: bool = False  # text rather than numbers


class Entry(NamedTuple):
    """A cell that stands out: `kind` is its CSS class."""

    content: str
    kind: str


def grid(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Entry]],
    *,
    kind: str = "",
    methods: bool = False,
    clients: bool = False,
) -> Html:
    """A table whose first column names the row. Where rows are methods or clients, the page's script can sort and filter them.

    The roles are spelled out because browsers drop a table's own when a style changes its display.
    """
    body = [_row(columns, cells) for cells in rows]
    return element(
        "table",
        {
            "role": "table",
            **({"class": kind} if kind else {}),
            **({"data-methods": ""} if methods else {}),
            **({"data-clients": ""} if clients else {}),
        },
        element("caption", None, caption),
        element("thead", {"role": "rowgroup"}, element("tr", {"role": "row"}, *map(_head, columns))),
        element("tbody", {"role": "rowgroup"}, *body),
    )


def _head(column: Column) -> Html:
    hint = [element("small", None, column.hint)] if column.hint else []
    kind = {"class": "words"} if column.words else {}
    return element("th", {"scope": "col", "role": "columnheader", **kind}, column.name, *hint)


def _row(columns: Sequence[Column], cells: Sequence[str | Entry]) -> Html:
    first, *rest = cells
    name = first.content if isinstance(first, Entry) else first
    # A hyphen would let q-fedavg break; only names that are longer than a line may.
    name = element("span", {"class": "nowrap"}, name) if len(name) <= SHORT else name
    found = [_cell(column, cell) for column, cell in zip(columns[1:], rest, strict=True)]
    return element("tr", {"role": "row"}, element("th", {"scope": "row", "role": "rowheader"}, name), *found)


def _cell(column: Column, cell: str | Entry) -> Html:
    entry = cell if isinstance(cell, Entry) else Entry(cell, "")
    kind = " ".join(filter(None, ("words" if column.words else "", entry.kind)))
    # The content is wrapped so that on a phone it is one item beside the column's name.
    content = element("span", None, entry.content)
    return element("td", {"role": "cell", "data-column": column.name, **({"class": kind} if kind else {})}, content)
