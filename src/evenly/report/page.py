"""The report: one HTML file that needs nothing else, not even a network."""

import base64
import functools
import hashlib
from importlib import resources
from pathlib import Path

import altair
import vl_convert

from evenly.experiment.reproduce import Line
from evenly.experiment.results import Comparison
from evenly.report.beside import beside
from evenly.report.charts.theme import DARK, LIGHT, page_config, saved_config
from evenly.report.choice import choose
from evenly.report.facts import data_card, excluded, settings
from evenly.report.figures import charts
from evenly.report.group_section import group_section
from evenly.report.markup import Html, data_block, element, join, script
from evenly.report.opening import opening
from evenly.report.sections import privacy, results, worst_served
from evenly.report.table import clients_split, final_values
from evenly.writing import write_whole

CONTENTS = {
    "results": "Results",
    "paper": "The paper",
    "distribution": "Clients",
    "tradeoff": "Accuracy and fairness",
    "groups": "Groups",
    "rounds": "Rounds",
    "influence": "Influence",
    "weighing": "Weighing",
    "clients": "Worst served",
    "privacy": "Privacy",
    "data": "Data",
    "settings": "Settings",
    "excluded": "Excluded",
}
EXPOSED = "window.vegaEmbed = vegaEmbed;"  # the rest of the bundle serves it


def write_report(comparison: Comparison, path: str | Path, lines: list[Line] | None = None) -> Path:
    """Write the report of a comparison, with the paper's figures where there are any (`lines`)."""
    text = render(comparison, lines)
    return write_whole(Path(path), lambda file: file.write(text.encode()))


def render(comparison: Comparison, lines: list[Line] | None = None) -> str:
    """The page as text. The same results give the same page."""
    _check(comparison)
    values = final_values(comparison, clients_split(comparison))
    choice = choose(comparison, values)
    drawn, groups = charts(comparison, values, choice), group_section(comparison, choice)
    sections = {
        "results": results(comparison, values, choice),
        "paper": beside(lines or []),
        **groups.sections,
        **drawn.sections,
        "clients": worst_served(comparison, choice),
        "privacy": privacy(comparison, choice),
        "data": data_card(comparison),
        "settings": settings(comparison),
        "excluded": excluded(comparison),
    }
    shown = {key: text for key, text in sections.items() if text}
    body = [opening(comparison, values, choice), _contents(list(shown)), *shown.values()]
    block = data_block("figures", {"specs": groups.specs | drawn.specs, "page": page_config(), "saved": saved_config()})
    return _document(comparison.name, join(body), block)


def _check(comparison: Comparison) -> None:
    if not comparison.runs:
        raise ValueError("A report needs at least one run, got none.")
    for run in comparison.runs:
        clients = run.trace.tables.shape[2]
        if clients != comparison.federation.clients:
            raise ValueError(
                f"Every run must have the federation's {comparison.federation.clients} clients, but {run.label!r} with seed {run.seed} "
                f"has {clients}. Compare only runs on the same clients."
            )


def _contents(keys: list[str]) -> Html:
    items = [element("li", None, element("a", {"href": f"#{key}"}, CONTENTS[key])) for key in keys]
    return element("nav", {"aria-label": "Contents"}, element("ul", None, *items))


def _document(title: str, body: Html, block: Html) -> str:
    programs = [_bundle(), _asset("page.js")]
    head = [
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": _policy(programs)}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("link", {"rel": "icon", "href": "data:,"}),
        element("title", None, f"{title} · evenly"),
        element("style", None, Html(_colours() + _asset("page.css"))),
    ]
    fallback = element("noscript", None, element("p", None, "The charts need JavaScript; the tables do not."))
    scripts = [script(program) for program in programs]
    parts = [element("head", None, *head), element("body", None, element("main", None, fallback, body), block, *scripts)]
    return f"<!doctype html>\n{element('html', {'lang': 'en'}, *parts)}\n"


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


def _colours() -> str:
    light, dark = ("".join(f"--{name}:{value};" for name, value in theme.items()) for theme in (LIGHT, DARK))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one program, in the version that Altair writes for."""
    major, minor, *_ = altair.SCHEMA_VERSION.lstrip("v").split(".")
    return vl_convert.javascript_bundle(snippet=EXPOSED, vl_version=f"{major}.{minor}")


def _asset(name: str) -> str:
    return (resources.files("evenly.report") / name).read_text(encoding="utf-8")
