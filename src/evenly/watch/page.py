"""The page that follows an experiment: no content yet, only places that its program fills. It asks for nothing but our state."""

import base64
import functools
import hashlib
from importlib import resources
from typing import Any, NamedTuple

from evenly.report.charts.theme import SHAPES, page_config
from evenly.report.html import Html, asset, bundle, colours, data_block, element, script, section


class Page(NamedTuple):
    """HTML and the policy that goes with it in a header."""

    text: str
    policy: str


@functools.cache
def page() -> Page:
    programs = [bundle(), _own("watch.js")]
    style = colours() + asset("page.css") + _own("watch.css")
    head = [
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("link", {"rel": "icon", "href": "data:,"}),
        element("title", None, "evenly watch"),
        element("style", None, Html(style)),
    ]
    block = data_block("figure", {"spec": chart(), "config": page_config(), "shapes": SHAPES})
    body = [element("main", None, *_places()), block, *(script(program) for program in programs)]
    text = f"<!doctype html>\n{element('html', {'lang': 'en'}, element('head', None, *head), element('body', None, *body))}\n"
    return Page(text, _policy(programs))


def _places() -> list[Html]:
    """What the program fills, in the order of reading."""
    status = element("p", {"id": "status", "role": "status", "class": "lead"}, "Asking how it stands …")
    bar = element("progress", {"id": "bar", "max": "1", "aria-labelledby": "far", "hidden": ""})
    far = element("p", {"id": "far", "class": "soft"})
    report = element("p", {"id": "report", "hidden": ""}, element("a", {"href": "report", "class": "go"}, "Open the report"))
    part = _choice("part", "Partition")
    counts = element("dl", {"id": "runs", "class": "counts"})
    tools = element("div", {"class": "tools"}, _choice("metric", "Metric"))
    figure = element("figure", None, element("div", {"id": "chart", "class": "chart"}), element("figcaption", {"id": "about"}))
    head, rows = element("thead", {"id": "head"}), element("tbody", {"id": "rows"})
    table = element("table", {"class": "methods"}, element("caption", {"id": "caption"}), head, rows)
    details = [section("rounds", "Rounds", tools, figure), section("methods", "Methods so far", table)]
    return [
        element("noscript", None, element("p", None, "Following an experiment needs JavaScript.")),
        element("p", {"id": "kicker", "class": "kicker"}, "evenly watch"),
        element("h1", {"id": "name"}, "An experiment"),
        status, report, bar, far, part, counts,
        element("div", {"id": "details", "hidden": ""}, *details),
    ]  # fmt: skip


def _choice(name: str, title: str) -> Html:
    label = element("label", {"for": name}, title)
    return element("p", {"class": "choice", "id": f"choose-{name}", "hidden": ""}, label, element("select", {"id": name}))


def chart() -> dict[str, Any]:
    """Vega-Lite: the mean over seeds by round, and a band from the lowest seed to the highest. The program adds methods and rows."""
    y = {"field": "mean", "type": "quantitative", "scale": {"zero": False}, "axis": {"tickCount": 5, "title": None}}
    x = {
        "field": "round", "type": "quantitative", "scale": {"nice": False, "zero": True},
        "axis": {"title": "Rounds of training", "tickMinStep": 1, "tickCount": 5, "format": ",d"},
    }  # fmt: skip
    tooltip = [
        {"field": "method", "type": "nominal", "title": "Method"},
        {"field": "round", "type": "quantitative", "title": "Round", "format": ",d"},
        {"field": "mean", "type": "quantitative", "title": "Mean", "format": ".4g"},
        {"field": "span", "type": "nominal", "title": "Seeds"},
    ]
    hit = {"name": "hit", "select": {"type": "point", "on": "pointerover", "clear": "pointerout"}}
    seen = {"condition": {"param": "hit", "empty": False, "value": 0.35}, "value": 0}
    shape = {"field": "method", "type": "nominal"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": "The metric by round, one line per method.",
        "width": "container",
        "height": 300,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"name": "lines"},
        "encoding": {"x": x, "color": {"field": "method", "type": "nominal"}},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.16}, "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
            {"mark": {"type": "line", "strokeWidth": 2, "clip": True}, "encoding": {"y": y}},
            {
                "transform": [{"filter": "datum.shaped"}],
                "mark": {"type": "point", "filled": True, "size": 42, "opacity": 0.9},
                "encoding": {"y": y, "shape": shape},
            },
            {"params": [hit], "mark": {"type": "circle", "size": 260}, "encoding": {"y": y, "opacity": seen, "tooltip": tooltip}},
        ],
    }


def _policy(programs: list[str]) -> str:
    """Only our own programs, and only requests to our own address. Vega compiles its expressions and sets styles on elements."""
    hashes = [base64.b64encode(hashlib.sha256(program.encode()).digest()).decode() for program in programs]
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _own(name: str) -> str:
    return (resources.files("evenly.watch") / name).read_text(encoding="utf-8")
