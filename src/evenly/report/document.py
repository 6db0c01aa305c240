"""One HTML file that needs nothing else, not even a network: head, style, scripts and the charts' specifications."""

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import altair
import vl_convert

from evenly.report.charts.theme import DARK, LIGHT, page_config, saved_config
from evenly.report.markup import Html, data_block, element, script

EXPOSED = "window.vegaEmbed = vegaEmbed;"  # the rest of the bundle serves it


def document(title: str, body: Html, specs: Mapping[str, Any], *, assets: Sequence[str] = ()) -> str:
    """The whole page. `assets` are styles and programs besides the usual.

    `specs` are charts by the identifier of their place; `PLACE@NAME` is what a list of choices on the page shows there instead.
    """
    block = data_block("figures", {"specs": dict(specs), "page": page_config(), "saved": saved_config()})
    programs = [bundle(), asset("page.js"), asset("tables.js"), *(asset(name) for name in assets if name.endswith(".js"))]
    styles = [colours(), asset("page.css"), *(asset(name) for name in assets if name.endswith(".css"))]
    head = [
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": _policy(programs)}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("link", {"rel": "icon", "href": "data:,"}),
        element("title", None, f"{title} · evenly"),
        element("style", None, Html("".join(styles))),
    ]
    fallback = element("noscript", None, element("p", None, "The charts need JavaScript; the tables do not."))
    scripts = [script(program) for program in programs]
    parts = [element("head", None, *head), element("body", None, element("main", None, fallback, body), block, *scripts)]
    return f"<!doctype html>\n{element('html', {'lang': 'en'}, *parts)}\n"


def contents(entries: Mapping[str, str]) -> Html:
    """Links to the sections of the page: identifier -> name."""
    items = [element("li", None, element("a", {"href": f"#{key}"}, name)) for key, name in entries.items()]
    return element("nav", {"aria-label": "Contents"}, element("ul", None, *items))


def _policy(programs: list[str]) -> str:
    """Forbid all requests and all scripts but our own, so that even a slip in escaping could do nothing.

    Vega compiles its expressions, which needs 'unsafe-eval', and sets styles on elements.
    """
    hashes = [base64.b64encode(hashlib.sha256(program.encode()).digest()).decode() for program in programs]
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def colours() -> str:
    """The page's colours as CSS variables, light and dark."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in theme.items()) for theme in (LIGHT, DARK))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


@functools.cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one program, in the version that Altair writes for."""
    major, minor, *_ = altair.SCHEMA_VERSION.lstrip("v").split(".")
    return vl_convert.javascript_bundle(snippet=EXPOSED, vl_version=f"{major}.{minor}")


def asset(name: str) -> str:
    """A style or program that lies beside this module."""
    return (resources.files("evenly.report") / name).read_text(encoding="utf-8")
