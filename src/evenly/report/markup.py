"""HTML with escaping by default: text is escaped unless it is already Html."""

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

VOID = {"meta", "link", "br", "wbr", "input"}


class Html(str):
    """Markup, safe to put into a page as it is."""


def element(name: str, attributes: Mapping[str, str] | None = None, *children: str) -> Html:
    """`<name attributes>children</name>`; attribute values and children that are not Html are escaped.

    >>> element("p", {"class": "note"}, "1 < 2")
    '<p class="note">1 &lt; 2</p>'
    """
    given = "".join(f' {key}="{html.escape(value)}"' for key, value in (attributes or {}).items())
    return Html(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{join(children)}</{name}>")


def join(children: Sequence[str]) -> Html:
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def data_block(identifier: str, value: Any) -> Html:
    """JSON for a script to read. Escaped so that no text in it can end the block or open a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{html.escape(identifier)}">{text}</script>')


def script(source: str) -> Html:
    """A program of our own. It must hold no user text, and nothing that would end the element."""
    if "</script" in source.lower() or "<!--" in source:
        raise ValueError("A script on the page must not contain '</script' or '<!--'; write '<\\/script' instead.")
    return Html(f"<script>{source}</script>")


def definitions(pairs: Sequence[tuple[str, str]]) -> Html:
    """A list of terms and their values."""
    return element("dl", None, *(element("div", None, element("dt", None, term), element("dd", None, text)) for term, text in pairs))


def section(identifier: str, title: str, *children: str) -> Html:
    heading = element("h2", {"id": f"{identifier}-title"}, title)
    return element("section", {"id": identifier, "aria-labelledby": f"{identifier}-title"}, heading, *children)


def unbroken(text: str) -> str:
    """Text in which a number and its percent sign stay on one line."""
    return text.replace(" %", "\u00a0%")
