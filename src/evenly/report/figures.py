"""The sections of the page that are charts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.experiment.results import Comparison
from evenly.federation import SPLITS
from evenly.report.charts import convergence, distribution, influence_chart, shown_span, tradeoff, weigh_alike, weighing_chart
from evenly.report.choice import Choice
from evenly.report.markup import Html, element, section
from evenly.report.served import influence, mean_effective_clients, reported
from evenly.report.table import SPLIT_WORDS, Values

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
BY_CLIENT = ("distribution", "tradeoff", "rounds")  # sections that show clients' accuracies


class Figure(NamedTuple):
    """A chart with its place on the page."""

    identifier: str
    chart: alt.LayerChart
    caption: str
    legend: tuple[str, ...] = ()

    @property
    def spec(self) -> dict[str, Any]:
        spec = self.chart.to_dict()
        spec.pop("config", None)  # the page brings its own
        return spec


class Charts(NamedTuple):
    """The chart sections, and the specifications that the page's script draws."""

    sections: dict[str, Html]
    specs: dict[str, dict[str, Any]]


def charts(comparison: Comparison, values: Values, choice: Choice) -> Charts:
    """All figures, in the order in which they are read."""
    if not any(np.isfinite(seed["average"]) for seeds in values.values() for seed in seeds.values()):
        return Charts({}, {})
    several = len(comparison.seeds) > 1
    lines, bands = (f" {word} reach from the lowest seed to the highest." if several else "" for word in ("Lines", "Bands"))
    groups = [
        ("distribution", "How evenly are the clients served?", _distribution(comparison, choice)),
        ("tradeoff", "What does fairness cost?", _tradeoff(values, choice, lines)),
        ("rounds", "How did it develop?", _rounds(comparison, choice, bands)),
        ("influence", "Who shaped the model?", _influence(comparison, choice)),
        ("weighing", "Whom would each method favour?", _weighing(comparison, choice)),
    ]
    built = [(key, title, figures) for key, title, figures in groups if figures]
    sections = {key: _section(key, title, figures, choice, len(values)) for key, title, figures in built}
    return Charts(sections, {figure.identifier: figure.spec for _, _, figures in built for figure in figures})


def _distribution(comparison: Comparison, choice: Choice) -> list[Figure]:
    span = shown_span(comparison, choice.coloured, choice.split)
    part = "" if (span.low, span.high) == (0, 100) else f" The axis shows {span.low} to {span.high} % only."
    caption = (
        f"Bars count the clients in each step of {span.step} {'point' if span.step == 1 else 'points'} (mean over seeds); dots are single "
        "clients. The solid line is the mean of all clients, the dashed line that of the worst-served 10 %. The narrower and the further "
        f"right, the better.{part}"
    )
    return [Figure("chart-distribution", distribution(comparison, choice.coloured, choice.split), caption)]


def _tradeoff(values: Values, choice: Choice, span: str) -> list[Figure]:
    captions = {
        "variance": f"The lower right is best: accurate and even.{span}",
        "worst10": f"The upper right is best: accurate, also for those served worst.{span}",
    }
    return [Figure(f"chart-tradeoff-{m}", tradeoff(values, m, choice.coloured), text) for m, text in captions.items()]


def _rounds(comparison: Comparison, choice: Choice, span: str) -> list[Figure]:
    captions = {
        "average": f"Over all {SPLIT_WORDS[choice.split]} rows.{span}",
        "worst10": f"The tenth of the clients with the lowest accuracy at that round.{span}",
        "variance": f"How far the clients' accuracies lie apart; lower is more even.{span}",
    }
    return [Figure(f"chart-rounds-{m}", convergence(comparison, m, choice.coloured, choice.split), text) for m, text in captions.items()]


def _influence(comparison: Comparison, choice: Choice) -> list[Figure]:
    chart = influence_chart(comparison, choice.coloured)
    caption = (
        "Above the dashed line a client counted for more than its share of the training rows, below it for less. "
        "A client that was never chosen lies at 0. Mean over seeds; axes grow with the square root."
    )
    absent = [label for label in choice.coloured if not np.isfinite(influence(comparison, label).weight).all()]
    if absent:
        caption += f" Without weights of a single model, and so not drawn: {', '.join(absent)}."
    caption += _effective(comparison, choice) + _fallbacks(comparison, choice)
    return [Figure("chart-influence", chart, caption)] if chart is not None else []


def _effective(comparison: Comparison, choice: Choice) -> str:
    found = {label: mean_effective_clients(comparison, label) for label in choice.coloured}
    known = [f"{label}: {number:.3g}" for label, number in found.items() if np.isfinite(number)]
    return f" As if so many clients had counted alike in a round (1 / Σa², mean over rounds): {'; '.join(known)}." if known else ""


def _fallbacks(comparison: Comparison, choice: Choice) -> str:
    """Where a client could not be judged by groups, as FairFed does."""
    found = {label: reported(comparison, label, "fallbacks") for label in choice.coloured}
    return "".join(
        f" Under {label}, in {times:,} of {of:,} client-rounds a client lacked one of the groups; its accuracy gap was used instead."
        for label, (times, of) in found.items()
        if times
    )


def _weighing(comparison: Comparison, choice: Choice) -> list[Figure]:
    losses = np.mean([run.trace.losses[-1, SPLITS.index("train")] for run in comparison.of(choice.baseline)], axis=0).astype(np.float64)
    losses = losses[np.isfinite(losses) & (losses >= 0)]
    if len(losses) < 2 or losses.min() == losses.max():
        return []  # equal losses are weighed alike by all of them
    found = weigh_alike(losses)
    means = "; ".join(f"{weighed.name}: {weighed.mean:.3g}" for weighed in found)
    caption = (
        f"The clients' training losses at the end of {choice.baseline} (mean over seeds), and how much each method's objective would weigh "
        "their gradients there. This is arithmetic, not another training, and leaves the sizes of clients aside. AFL looks only at the "
        f"worst client. The mean of the losses that each one minimises: {means}."
    )
    return [Figure("chart-weighing", weighing_chart(losses), caption, tuple(weighed.name for weighed in found))]


def _section(key: str, title: str, figures: Sequence[Figure], choice: Choice, methods: int) -> Html:
    own = figures[0].legend  # of what is drawn, where that is not the methods compared
    few = len(choice.coloured) < methods and not own
    # Names stand inside the distribution; everything else needs the legend.
    legend = [] if key == "distribution" else [legend_of(own or choice.coloured, others=few and key == "tradeoff")]
    note = f"Drawn here: {len(choice.coloured)} of {methods} methods, the baseline and those that do best."
    notes = [element("p", {"class": "soft"}, note)] if few and key != "tradeoff" else []
    if choice.split == "valid" and key in BY_CLIENT:
        notes.append(element("p", {"class": "soft"}, "On the clients' validation rows: no client has test rows of its own."))
    body = element("div", {"class": f"figures of-{len(figures)}"}, *map(figure_html, figures))
    return section(key, title, *notes, *legend, body)


def figure_html(figure: Figure) -> Html:
    title = str(figure.chart.title)
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
        element("div", {"class": "chart", "id": figure.identifier}),
        element("figcaption", None, figure.caption),
    )


def legend_of(labels: Sequence[str], *, others: bool) -> Html:
    items = [element("li", None, _swatch(OUTLINES[i], f"series-{i + 1}"), label) for i, label in enumerate(labels)]
    grey = [element("li", None, _swatch(OUTLINES[0], "muted"), "all other methods")] if others else []
    return element("ul", {"class": "legend", "aria-label": "Methods"}, *items, *grey)


def _swatch(outline: str, colour: str) -> Html:
    path = element("path", {"d": outline, "fill": f"var(--{colour})"})
    return element("svg", {"viewBox": "-1.2 -1.2 2.4 2.4", "width": "12", "height": "12", "aria-hidden": "true"}, path)
