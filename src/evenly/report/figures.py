"""A chart with its place on the page: title, controls, caption, legend."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from evenly.report.markup import Html, element

# Outlines of the shapes that the charts use, in a square from -1 to 1, in the order of `theme.SHAPES`.
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


class Figure(NamedTuple):
    """A chart with its place on the page."""

    identifier: str
    chart: alt.LayerChart
    caption: str
    legend: tuple[str, ...] = ()
    variants: Mapping[str, alt.LayerChart] = {}  # what can be shown instead, by a name that suits a file
    filtered: bool = False  # whether the filter of methods applies to it
    heading: str = ""  # on the page, where the chart's own title names one of its variants

    @property
    def spec(self) -> dict[str, Any]:
        return _spec(self.chart)

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        """The chart and its variants, as the page's script looks for them."""
        others = {f"{self.identifier}@{name}": _spec(chart) for name, chart in self.variants.items()}
        return {self.identifier: self.spec, **others}


class Charts(NamedTuple):
    """The chart sections, and the specifications that the page's script draws."""

    sections: dict[str, Html]
    specs: dict[str, dict[str, Any]]


def _spec(chart: alt.LayerChart) -> dict[str, Any]:
    spec = chart.to_dict(validate=False)  # checking takes a third of a page's time; tests check every kind of chart
    spec.pop("config", None)  # the page brings its own
    return spec


def specs_of(figures: Iterable[Figure]) -> dict[str, dict[str, Any]]:
    return {key: spec for figure in figures for key, spec in figure.specs.items()}


def switch_html(text: str, figures: Sequence[Figure], titles: Mapping[str, str]) -> Html:
    """A list of choices of what these figures show: name of a variant ("" for the chart itself) -> words."""
    options = [element("option", {"value": name}, title) for name, title in titles.items()]
    charts = " ".join(figure.identifier for figure in figures)
    choice = element("select", {"data-charts": charts, "autocomplete": "off"}, *options)
    return element("p", {"class": "controls chosen"}, element("label", None, f"{text} ", choice))


def figure_html(figure: Figure, *controls: Html) -> Html:
    """A figure; `controls` stand between its title and the chart."""
    title = figure.heading or str(figure.chart.title)
    save = [
        element("button", {"type": "button", "data-save": kind, "aria-label": f"Save “{title}” as {kind.upper()}"}, kind.upper())
        for kind in ("svg", "png")
    ]
    return element(
        "figure",
        {"aria-labelledby": f"{figure.identifier}-title"},
        element(
            "div", {"class": "head"}, element("h3", {"id": f"{figure.identifier}-title"}, title), element("span", {"class": "save"}, *save)
        ),
        *controls,
        element("div", {"class": "chart", "id": figure.identifier, **({"data-filtered": ""} if figure.filtered else {})}),
        element("figcaption", None, figure.caption),
    )


def legend_of(labels: Sequence[str], *, others: bool) -> Html:
    items = [element("li", None, _swatch(OUTLINES[i], f"series-{i + 1}"), label) for i, label in enumerate(labels)]
    grey = [element("li", None, _swatch(OUTLINES[0], "muted"), "all other methods")] if others else []
    return element("ul", {"class": "legend", "aria-label": "Legend"}, *items, *grey)


def _swatch(outline: str, colour: str) -> Html:
    path = element("path", {"d": outline, "fill": f"var(--{colour})"})
    return element("svg", {"viewBox": "-1.2 -1.2 2.4 2.4", "width": "12", "height": "12", "aria-hidden": "true"}, path)
