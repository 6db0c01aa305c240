"""HTML of the pages: escaping by default, tables that suit a phone, figures, and documents that
need no network.

Jinja2 templates hold what is mostly markup; small parts are put together with `element`.
"""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import jinja2
import vl_convert
from markupsafe import Markup as Html
from markupsafe import escape

from evenly.report.charts.theme import DARK, LIGHT, ROOM, SAVED_WIDTH, page_config, saved_config
from evenly.writing import write_whole

# HTML with escaping by default: text is escaped unless it is already Html.

VOID = {"meta", "link", "br", "wbr", "input"}
NOTATION = re.compile(r"(?<=[\w)])(?=[(+_]\w)")  # where notation may break
# a short name in notation, such as q-fedavg, or an option: both would break after a hyphen
HYPHENATED = re.compile(
    r"(?<![\w-])(?:(?=[\w-]{3,20}<wbr>\()\w+(?:-\w+)+(?=<wbr>\()|--[a-z][a-z-]{0,20}\b)"
)
# an option of a command, or a short word with hyphens
HYPHENATED_WORD = re.compile(r"(?<![\w/.-])(?:--\w+(?:-\w+)*|(?=[\w-]{3,24}(?![\w-]))\w+(?:-\w+)+)")


def nonbreaking(text: str) -> str:
    """Text in which a number and its percent sign stay on one line."""
    return text.replace(" %", "\u00a0%")


def breakable(text: str) -> Html:
    """Text in which notation may break before "(", "+" and "_" rather than inside of words or after
    hyphens, and in which a number stays with its percent sign.

    >>> breakable("fedavg(mu=1)+local_adam")
    Markup('fedavg<wbr>(mu=1)<wbr>+local<wbr>_adam')
    >>> breakable("worst-served: q-fedavg(q=1)")
    Markup('worst-served: <span class="nowrap">q-fedavg</span><wbr>(q=1)')
    """
    if isinstance(text, Html):
        return text
    broken = NOTATION.sub("<wbr>", str(escape(nonbreaking(text))))
    return Html(HYPHENATED.sub(r'<span class="nowrap">\g<0></span>', broken))


def breakable_command(command: str) -> Html:
    """A command whose options and names stay in one piece. It may also break after commas and
    before the settings and parts of a method.

    >>> print(breakable_command("evenly tune --min-cell 10 --drop id,day"))
    evenly tune <span class="nowrap">--min-cell</span> 10 \
<span class="nowrap">--drop</span> id,<wbr>day
    """
    broken = re.sub(r"(?<=[\w)])(?=[(+]\w)|(?<=,)(?=\S)", "<wbr>", str(escape(command)))
    return Html(HYPHENATED_WORD.sub(r'<span class="nowrap">\g<0></span>', broken))


def sentence_case(text: str) -> str:
    """The text with its first letter in upper case, and without breaks before percent signs."""
    return nonbreaking(text[:1].upper() + text[1:])


TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("evenly.report"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["nonbreaking"] = nonbreaking
TEMPLATES.filters["breakable"] = breakable


def fill(template: str, **context: Any) -> Html:
    """Fill in a file of `templates/`. Text is escaped unless it is already Html."""
    return Html(TEMPLATES.get_template(template).render(context))


def element(name: str, attributes: Mapping[str, str] | None = None, *children: str) -> Html:
    """`<name attributes>children</name>`; attribute values and children that are not Html are
    escaped.

    >>> element("p", {"class": "note"}, "1 < 2")
    Markup('<p class="note">1 &lt; 2</p>')
    """
    start = "".join(f' {key}="{escape(value)}"' for key, value in (attributes or {}).items())
    return Html(f"<{name}{start}>" if name in VOID else f"<{name}{start}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    return Html("").join(children)


def data_block(identifier: str, value: Any) -> Html:
    """JSON for a script to read. Escaped so that no text in it can end the block or open
    a comment.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')


def script(source: str) -> Html:
    """A program of our own. It must hold no user text, and nothing that would end the element."""
    if "</script" in source.lower() or "<!--" in source:
        raise ValueError(
            "A script on the page must not contain '</script' or '<!--'; write '<\\/script'"
            " instead."
        )
    return Html(f"<script>{source}</script>")


def definitions(pairs: Sequence[tuple[str, str]]) -> Html:
    """A list of terms and their values."""
    return element(
        "dl",
        None,
        *(
            element(
                "div",
                None,
                element("dt", None, breakable(term)),
                element("dd", None, breakable(text)),
            )
            for term, text in pairs
        ),
    )


def command_html(title: str, command: str) -> list[Html]:
    """A heading and a command that breaks between its words; nothing without a command."""
    if not command:
        return []
    code = element("code", None, breakable_command(command))
    return [element("h3", None, title), element("pre", {"tabindex": "0"}, code)]


def section(identifier: str, title: str, *children: str) -> Html:
    heading = element("h2", {"id": f"{identifier}-title"}, title)
    return element(
        "section", {"id": identifier, "aria-labelledby": f"{identifier}-title"}, heading, *children
    )


def paragraph(text: str, kind: str = "") -> Html:
    """A paragraph of CSS class `kind`; numbers stay with their percent signs."""
    return element("p", {"class": kind} if kind else None, breakable(text))


def bullets(texts: Iterable[str]) -> Html:
    """A list of sentences."""
    return element(
        "ul", {"class": "words"}, *(element("li", None, breakable(text)) for text in texts)
    )


def search_field(identifier: str, label: str, hint: str) -> Html:
    """A field in which the page's script filters rows by name, and what it says about them."""
    field = {"type": "search", "id": identifier, "placeholder": hint, "autocomplete": "off"}
    status = {
        "id": f"{identifier}-status",
        "class": "soft",
        "for": identifier,
        "aria-live": "polite",
    }
    parts = (
        element("label", {"for": identifier}, label),
        element("input", field),
        element("output", status),
    )
    return element("div", {"class": "controls", "role": "search"}, *parts)


def details(summary: str, *children: Html, opened: bool = False) -> Html:
    """Children behind a summary that the reader clicks on."""
    return element(
        "details",
        {"open": ""} if opened else None,
        element("summary", None, breakable(summary)),
        *children,
    )


# HTML tables that are readable on a phone: there, each row becomes a card and each cell carries its
# column's name.

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
    """A table whose first column names the row. Where rows are methods or clients, the page's
    script can sort and filter them.

    The roles are spelled out because browsers drop a table's own when a style changes its display.
    """
    lines = [
        [cell if isinstance(cell, Entry) else Entry(cell, "") for cell in cells] for cells in rows
    ]
    body = [(name.content, list(zip(columns[1:], cells, strict=True))) for name, *cells in lines]
    return fill(
        "table.html",
        caption=caption,
        columns=columns,
        rows=body,
        kind=kind,
        methods=methods,
        clients=clients,
        short=SHORT,
    )


# One HTML file that needs nothing else, not even a network: head, style, scripts and the charts'
# specifications.

EXPOSED = "window.vegaEmbed = vegaEmbed;"  # the rest of the bundle serves it


def document(
    title: str, body: Html, specs: Mapping[str, Any], *, assets: Sequence[str] = ()
) -> str:
    """The whole page. `assets` are styles and programs besides the usual.

    `specs` are charts by the identifier of their place; `PLACE@NAME` is what a list of choices on
    the page shows there instead.
    """
    block = data_block(
        "figures", {"specs": dict(specs), "page": page_config(), "saved": saved_config()}
    )
    programs = [
        bundle(),
        asset("page.js"),
        asset("tables.js"),
        *(asset(name) for name in assets if name.endswith(".js")),
    ]
    styles = [
        colours(),
        asset("page.css"),
        *(asset(name) for name in assets if name.endswith(".css")),
    ]
    page = fill(
        "document.html",
        title=title,
        policy=_policy(programs),
        style=Html("".join(styles)),
        body=body,
        data=block,
        programs=map(script, programs),
    )
    return f"{page}\n"


def contents(entries: Mapping[str, str]) -> Html:
    """Links to the sections of the page: identifier -> name."""
    items = [
        element("li", None, element("a", {"href": f"#{key}"}, name))
        for key, name in entries.items()
    ]
    return element("nav", {"aria-label": "Contents"}, element("ul", None, *items))


def _policy(programs: list[str]) -> str:
    """Forbid all requests and all scripts but our own, so that even a slip in escaping could do
    nothing.

    Vega compiles its expressions, which needs 'unsafe-eval', and sets styles on elements.
    """
    hashes = [
        base64.b64encode(hashlib.sha256(program.encode()).digest()).decode() for program in programs
    ]
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline';"
        " img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def colours() -> str:
    """The page's colours as CSS variables, light and dark."""
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in theme.items()) for theme in (LIGHT, DARK)
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


@functools.cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one program, in the version that Altair writes for."""
    return vl_convert.javascript_bundle(snippet=EXPOSED, vl_version=_version())


def asset(name: str) -> str:
    """A style or program that lies beside this module."""
    return (resources.files("evenly.report") / name).read_text(encoding="utf-8")


# A chart with its place on the page: title, controls, caption, legend.

# Outlines of the shapes that the charts use, in a square from -1 to 1, in the order of
# `theme.SHAPES`.
OUTLINES = (
    "M0,-1A1,1 0 1 1 0,1A1,1 0 1 1 0,-1Z",
    "M-.9,-.9H.9V.9H-.9Z",
    "M0,-.95L1,.85H-1Z",
    "M0,-1.1L.85,0L0,1.1L-.85,0Z",
    "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
    "M0,.95L1,-.85H-1Z",
    "M.95,0L-.85,1V-1Z",
    "M-.95,0L.85,1V-1Z",
)


class ChartFigure(NamedTuple):
    """A chart with its place on the page."""

    identifier: str
    chart: alt.LayerChart
    caption: str
    legend: tuple[str, ...] = ()
    # what can be shown instead, by a name that suits a file
    variants: Mapping[str, alt.LayerChart] = {}
    filtered: bool = False  # whether the filter of methods applies to it
    heading: str = ""  # on the page, where the chart's own title names one of its variants

    @property
    def spec(self) -> dict[str, Any]:
        return _spec(self.chart)

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        """The chart and its variants, as the page's script looks for them."""
        others = {
            f"{self.identifier}@{name}": _spec(chart) for name, chart in self.variants.items()
        }
        return {self.identifier: self.spec, **others}


class Charts(NamedTuple):
    """The chart sections, and the specifications that the page's script draws."""

    sections: dict[str, Html]
    specs: dict[str, dict[str, Any]]


def _spec(chart: alt.LayerChart) -> dict[str, Any]:
    # checking takes a third of a page's time; tests check every kind of chart
    spec = chart.to_dict(validate=False)
    spec.pop("config", None)  # the page brings its own
    return spec


def specs_of(figures: Iterable[ChartFigure]) -> dict[str, dict[str, Any]]:
    return {key: spec for figure in figures for key, spec in figure.specs.items()}


def switch_html(text: str, figures: Sequence[ChartFigure], titles: Mapping[str, str]) -> Html:
    """A list of choices of what these figures show: name of a variant ("" for the chart itself) ->
    words.
    """
    options = [element("option", {"value": name}, title) for name, title in titles.items()]
    charts = " ".join(figure.identifier for figure in figures)
    choice = element("select", {"data-charts": charts, "autocomplete": "off"}, *options)
    return element("p", {"class": "controls chosen"}, element("label", None, f"{text} ", choice))


def figure_html(figure: ChartFigure, *controls: Html) -> Html:
    """A figure; `controls` stand between its title and the chart."""
    title = figure.heading or str(figure.chart.title)
    return fill("figure.html", figure=figure, title=title, controls=controls)


def legend_of(labels: Sequence[str], *, others: bool) -> Html:
    entries = [(OUTLINES[i], f"series-{i + 1}", label) for i, label in enumerate(labels)]
    grey = [(OUTLINES[0], "muted", "all other methods")] if others else []
    return fill("legend.html", entries=[*entries, *grey])


# Every chart of a report as a file of its own: PNG, SVG or PDF, drawn without a browser or a
# network.

SCALE = 2.0  # of PNG: sharp on paper and on dense screens
FORMATS = ("png", "svg", "pdf")


def write_figures(
    specs: Mapping[str, dict[str, Any]], folder: Path, kind: str = "svg"
) -> list[Path]:
    """Write the charts of a page (`specs` as in `page.build`) into a folder; the files are called
    as the charts are.
    """
    if kind not in FORMATS:
        raise ValueError(
            f"The format of figures must be one of {', '.join(FORMATS)}, got {kind!r}."
        )
    return [
        _write(folder / f"{file_name(key)}.{kind}", draw(spec, kind)) for key, spec in specs.items()
    ]


def draw(spec: dict[str, Any], kind: str) -> bytes:
    """One chart as it stands alone: with its title and legend, light colours and a fixed width."""
    config = saved_config()
    # between legends; Altair's schema has no word for it
    config["legend"] = config["legend"] | {"layout": {"top": {"margin": ROOM}}}
    found = _convert(kind)(
        vl_spec={**spec, "width": SAVED_WIDTH}, config=config, vl_version=_version()
    )
    return found.encode() if isinstance(found, str) else found


def file_name(key: str) -> str:
    """
    >>> file_name("chart-rounds-average@bytes")
    'rounds-average-bytes'
    """
    return re.sub(r"[^A-Za-z0-9.=]+", "-", key.removeprefix("chart-")).strip("-")


def _write(path: Path, content: bytes) -> Path:
    return write_whole(path, lambda file: file.write(content))


def _convert(kind: str) -> Callable[..., str | bytes]:
    png = functools.partial(vl_convert.vegalite_to_png, scale=SCALE)
    return {"png": png, "svg": vl_convert.vegalite_to_svg, "pdf": vl_convert.vegalite_to_pdf}[kind]


def _version() -> str:
    """The version of Vega-Lite that Altair writes for."""
    major, minor, *_ = alt.SCHEMA_VERSION.lstrip("v").split(".")
    return f"{major}.{minor}"
