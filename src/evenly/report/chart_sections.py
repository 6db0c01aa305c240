"""Sections of the page that are charts. A new section also needs an entry in `page.CONTENTS`."""

import re
from collections.abc import Sequence

import numpy as np

from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Comparison
from evenly.experiment.promises import shared_splits
from evenly.metrics import EVERY_METRIC, METRICS
from evenly.report.charts.accuracy import (
    accuracy_span,
    distribution,
    gini_of,
    lorenz_chart,
    named_accuracy,
    named_influence,
)
from evenly.report.charts.convergence import convergence
from evenly.report.charts.focus import Focus
from evenly.report.charts.tradeoff import CLIENT_MEASURES, GROUP_MEASURES, front_chart, points
from evenly.report.charts.weighing import (
    influence_chart,
    weigh_losses,
    weighing_chart,
    weight_history,
    weight_history_chart,
)
from evenly.report.html import (
    ChartFigure,
    Charts,
    Column,
    Html,
    details,
    element,
    figure_html,
    grid,
    legend_of,
    paragraph,
    section,
    sentence_case,
    specs_of,
    switch_html,
)
from evenly.report.values import (
    NAMED,
    SPLIT_WORDS,
    Values,
    count_events,
    defined_metrics,
    format_value,
    idle_words,
    influence,
    mean_effective_clients,
    means_words,
    over_seeds,
    took_part,
)

# The section on what fairness costs: the front of accuracy and a measure of fairness, and who is on
# it in words.

NAME = "chart-front"
CAPTION = (
    "The line joins the methods that no other method beats in both accuracy and fairness (filled"
    " marks). Hollow and grey marks are beaten: another method is at least as accurate and as fair,"
    " and better in one of the two."
)
CLOSE = (
    " Methods are compared by their means over seeds, so a method close to the line may be as good."
)


def front_section(values: Values, focus: Focus, lines: str) -> Charts:
    """The section on accuracy against fairness; empty for a single method, or if no measure of
    fairness is defined. `lines` explains the lines of the marks.
    """
    measures = defined_metrics(values, (*CLIENT_MEASURES, *GROUP_MEASURES))
    if not measures or len(values) < 2:
        return Charts({}, {})
    first, *rest = measures
    variants = {metric.replace("_", "-"): metric for metric in rest}
    figure = ChartFigure(
        NAME,
        front_chart(values, first, focus.series),
        f"{CAPTION}{CLOSE if lines else ''}{lines}",
        variants={
            name: front_chart(values, metric, focus.series) for name, metric in variants.items()
        },
        filtered=True,
        heading="Accuracy and fairness",
    )
    titles = {
        name: sentence_case(EVERY_METRIC[metric].title)
        for name, metric in {"": first, **variants}.items()
    }
    switch = switch_html("Fairness measured by", [figure], titles)
    legend = legend_of(focus.series, others=len(focus.series) < len(values))
    body = section(
        "tradeoff",
        "What does fairness cost?",
        legend,
        figure_html(figure, switch),
        _listed(values, measures, "; means over seeds" if lines else ""),
    )
    return Charts({"tradeoff": body}, specs_of([figure]))


def _listed(values: Values, measures: Sequence[str], seeds: str) -> Html:
    """A table of the methods on the front, for each measure of fairness."""
    rows = []
    for metric in measures:
        front = sorted(
            (point for point in points(values, metric) if point.front),
            key=lambda point: point.accuracy,
        )
        names = [
            element(
                "li",
                None,
                f"{p.label}: {format_value(p.measure, EVERY_METRIC[metric])} at {p.accuracy:.1f} %",
            )
            for p in front
        ]
        rows.append((sentence_case(EVERY_METRIC[metric].title), element("ul", None, *names)))
    columns = [Column("Measure"), Column("Not beaten in both, from the least accurate", words=True)]
    return details(
        "Who is on the front, for every measure",
        grid(f"Each method's measure, and its accuracy{seeds}.", columns, rows),
    )


# The sections of the page that are charts.

VALIDATION = "On the clients' validation rows: no client has test rows of its own."
HARDLY = 0.05  # of its share of the rows: a client with less weight is drawn at about 0
AXES = {"": "rounds of training", "bytes": "bytes that all clients sent and received"}


def chart_sections(
    comparison: Comparison, clients: Comparison, values: Values, focus: Focus
) -> Charts:
    """All chart sections, in reading order.

    `values` holds the metrics of clients and, if there are groups, of groups. `clients` holds the
    same results as `comparison` without hidden clients.
    """
    if not any(
        np.isfinite(seed["average"]) for seeds in values.values() for seed in seeds.values()
    ):
        return Charts({}, {})
    built = [
        (
            _named(clients, values, focus)
            if _few(comparison, focus)
            else _distribution(clients, focus, len(values))
        ),
        front_section(values, focus, _lines(comparison, "Lines")),
        _rounds(clients, focus, len(values)),
        _influence(comparison, focus, len(values)),
        _weighing(clients, focus),
    ]
    sections = {key: html for part in built for key, html in part.sections.items()}
    return Charts(sections, {key: spec for part in built for key, spec in part.specs.items()})


def _lines(comparison: Comparison, word: str) -> str:
    return (
        f" {word} reach from the lowest seed to the highest." if len(comparison.seeds) > 1 else ""
    )


def _few(comparison: Comparison, focus: Focus) -> bool:
    """Whether the visible clients are few enough to be drawn with their names."""
    return comparison.federation.clients - len(focus.hidden) < NAMED


def _named(comparison: Comparison, values: Values, focus: Focus) -> Charts:
    average = over_seeds(values, focus.baseline, "average").mean
    marks = (
        f"; a mark for each method{means_words(len(comparison.seeds))}" if len(values) > 1 else ""
    )
    lines = f"One line per client{' that is shown' if focus.hidden else ''}"
    caption = (
        f"{lines}, the one that {focus.baseline} serves worst on top{marks}. The dashed line"
        f" is the average over all rows under {focus.baseline}. Each client's figures"
        " are under “Worst-served clients”."
    )
    chart = named_accuracy(comparison, focus.series, focus.split, focus.hidden, average)
    figure = ChartFigure("chart-clients", chart, caption)
    parts = [
        *_notes(focus, len(values), by_client=True),
        legend_of(focus.series, others=False),
        figure_html(figure),
    ]
    return Charts(
        {"distribution": section("distribution", "How evenly are the clients served?", *parts)},
        specs_of([figure]),
    )


def _distribution(comparison: Comparison, focus: Focus, methods: int) -> Charts:
    span = accuracy_span(comparison, focus.series, focus.split)
    part = (
        ""
        if (span.low, span.high) == (0, 100)
        else f" The axis shows {span.low} to {span.high} % only."
    )
    caption = (
        f"Bars count the clients in each step of {span.step}"
        f" {'point' if span.step == 1 else 'points'}{means_words(len(comparison.seeds))}; dots are"
        " single clients."
        " The solid line is the mean of all clients, the dashed line that of the worst-served 10"
        f" %. The narrower and the further right, the better.{part}"
    )
    spread = ChartFigure(
        "chart-distribution",
        distribution(comparison, focus.series, focus.split, focus.hidden),
        caption,
    )
    curve = _lorenz(comparison, focus)
    # Names stand inside the distribution; the curves need the legend.
    later = (
        [
            element(
                "div", {"class": "later"}, legend_of(focus.series, others=False), figure_html(curve)
            )
        ]
        if curve
        else []
    )
    parts = [*_notes(focus, methods, by_client=True), figure_html(spread), *later]
    body = section("distribution", "How evenly are the clients served?", *parts)
    return Charts({"distribution": body}, specs_of([spread, *([curve] if curve else [])]))


def _lorenz(comparison: Comparison, focus: Focus) -> ChartFigure | None:
    """The Lorenz curves; nothing for a single client, or where all have an accuracy of 0."""
    ginis = {label: gini_of(comparison, label, focus.split) for label in focus.series}
    known = "; ".join(f"{label}: {gini:.3f}" for label, gini in ginis.items() if np.isfinite(gini))
    if not known or comparison.federation.clients < 2:
        return None
    caption = (
        "On the dashed line every client would be served alike; the further a curve hangs below"
        " it, the less the worst-served clients get. Twice the area between them is the Gini"
        f" coefficient{means_words(len(comparison.seeds), ', mean')}: {known}."
    )
    return ChartFigure("chart-lorenz", lorenz_chart(comparison, focus.series, focus.split), caption)


def _rounds(comparison: Comparison, focus: Focus, methods: int) -> Charts:
    span, labels = _lines(comparison, "Bands"), focus.series
    captions = {
        "average": f"Over all {SPLIT_WORDS[focus.split]} rows.{span}",
        "worst10": f"The tenth of the clients with the lowest accuracy at that round.{span}",
        "variance": f"How far the clients' accuracies lie apart; lower is more even.{span}",
    }
    costs = any(run.trace.upload + run.trace.download > 0 for run in comparison.runs)
    figures = [
        ChartFigure(
            f"chart-rounds-{metric}",
            convergence(comparison, metric, labels, focus.split),
            text,
            variants=(
                {"bytes": convergence(comparison, metric, labels, focus.split, "bytes")}
                if costs
                else {}
            ),
            heading=sentence_case(METRICS[metric].title),
        )
        for metric, text in captions.items()
    ]
    switch = [switch_html("Drawn against", figures, AXES)] if costs else []
    note = (
        "Bytes include all clients that are sampled in a round, also those that drop out."
        if costs
        else ""
    )
    parts = [
        *_notes(focus, methods, by_client=True),
        *switch,
        *_soft(note),
        legend_of(labels, others=False),
        _grid(figures),
    ]
    return Charts({"rounds": section("rounds", "How did it develop?", *parts)}, specs_of(figures))


def _influence(comparison: Comparison, focus: Focus, methods: int) -> Charts:
    few = _few(comparison, focus)
    chart = (named_influence if few else influence_chart)(comparison, focus.series, focus.hidden)
    if chart is None:
        return Charts({}, {})
    whole = ChartFigure("chart-influence", chart, _influence_words(comparison, focus, few=few))
    figures, over = [whole], _history(comparison, focus)
    later = []
    if over is not None:
        figure, titles = over
        figures.append(figure)
        later = [
            element(
                "div",
                {"class": "later"},
                figure_html(figure, switch_html("Method", [figure], titles)),
            )
        ]
    parts = [
        *_notes(focus, methods),
        legend_of(focus.series, others=False),
        figure_html(whole),
        *later,
    ]
    return Charts(
        {"influence": section("influence", "Who shaped the model?", *parts)}, specs_of(figures)
    )


def _history(comparison: Comparison, focus: Focus) -> tuple[ChartFigure, dict[str, str]] | None:
    """The weights over the rounds: the leading method first, the others behind a list of
    choices.
    """
    order = [focus.lead, *(label for label in focus.series if label != focus.lead)]
    found = {
        label: history
        for label in order
        if (history := weight_history(comparison, label, focus.hidden)) is not None
    }
    if not found:
        return None
    charts = {label: weight_history_chart(history, label) for label, history in found.items()}
    first, *rest = charts
    names = {label: f"{i}-{_file_name(label)}" for i, label in enumerate(rest, start=2)}
    seeds = means_words(len(comparison.seeds), ", mean")
    caption = (
        "Rows are clients by their number of training rows, the largest on top. The area of a"
        f" square is their share of the weight in these rounds{seeds}. If the squares of a row are"
        " equally large, the influence of these clients did not change."
    )
    variants = {names[label]: charts[label] for label in rest}
    figure = ChartFigure(
        "chart-influence-rounds",
        charts[first],
        caption,
        variants=variants,
        heading="Who counted when",
    )
    return figure, {"": first, **{names[label]: label for label in rest}}


def _file_name(label: str) -> str:
    return re.sub(r"[^a-z0-9.=]+", "-", label.lower()).strip("-")[:60]


def _influence_words(comparison: Comparison, focus: Focus, *, few: bool) -> str:
    seeds = " Means over seeds." if len(comparison.seeds) > 1 else ""
    caption = (
        "Above the dashed line a client counted for more than its share of the training rows, below"
        f" it for less.{_weightless(comparison, focus)} The axes are square roots.{seeds}"
    )
    if few:
        caption = (
            "The largest client is on top. The vertical stroke is a client's share of the training"
            " rows. A mark to its right means that the client counted for more than its share of"
            f" rows under that method.{_weightless(comparison, focus)}{seeds}"
        )
    absent = [
        label
        for label in focus.series
        if not np.isfinite(influence(comparison, label).weight).all()
    ]
    if absent:
        caption += (
            f" Not drawn, because there are no weights of a single model: {', '.join(absent)}."
        )
    idle = "".join(f" {words}" for words in idle_words(comparison, focus.series))
    return caption + _effective(comparison, focus) + _fallbacks(comparison, focus) + idle


def _weightless(comparison: Comparison, focus: Focus) -> str:
    """What a weight of 0 or about 0 means, where there is one."""
    absent = hardly = False
    for label in focus.series:
        own, sampled = influence(comparison, label), took_part(comparison, label)
        absent |= bool((~sampled & (own.weight == 0)).any())
        hardly |= bool((sampled & (own.weight < HARDLY * own.rows)).any())
    texts = [" A client that was never sampled has weight 0."] if absent else []
    texts += (
        [" A client that took part has a weight of about 0 where the method hardly counted it."]
        if hardly
        else []
    )
    return "".join(texts)


def _effective(comparison: Comparison, focus: Focus) -> str:
    found = {label: mean_effective_clients(comparison, label) for label in focus.series}
    known = [f"{label}: {number:.3g}" for label, number in found.items() if np.isfinite(number)]
    return (
        f" Effective number of clients per round (1 / Σa², mean over rounds): {'; '.join(known)}."
        if known
        else ""
    )


def _fallbacks(comparison: Comparison, focus: Focus) -> str:
    """How often a method that weighs clients by group metrics, such as FairFed, had to use the
    accuracy instead.
    """
    found = {label: count_events(comparison, label, "fallbacks") for label in focus.series}
    return "".join(
        f" Under {label}, in {times:,} of {of:,} client-rounds a client lacked one of the groups;"
        " its accuracy gap was used instead."
        for label, (times, of) in found.items()
        if times
    )


def _weighing(comparison: Comparison, focus: Focus) -> Charts:
    if "train" not in shared_splits(comparison.privacy):
        return Charts({}, {})
    losses = np.mean(
        [run.trace.losses[-1, SPLITS.index("train")] for run in comparison.of(focus.baseline)],
        axis=0,
    ).astype(np.float64)
    losses = losses[np.isfinite(losses) & (losses >= 0)]
    if len(losses) < 2 or losses.min() == losses.max():
        return Charts({}, {})  # equal losses are weighed alike by all of them
    found = weigh_losses(losses)
    means = "; ".join(f"{weighed.name}: {weighed.mean:.3g}" for weighed in found)
    seeds = means_words(len(comparison.seeds))
    caption = (
        f"The clients' training losses at the end of {focus.baseline}{seeds}, and how much each"
        " method's objective would weigh their gradients there. Nothing is trained for this chart,"
        " and client sizes are ignored. AFL considers only the worst client. The mean of the losses"
        f" that each method minimises: {means}."
    )
    figure = ChartFigure("chart-weighing", weighing_chart(losses), caption)
    legend = legend_of([weighed.name for weighed in found], others=False)
    return Charts(
        {
            "weighing": section(
                "weighing", "Whom would each method favour?", legend, figure_html(figure)
            )
        },
        specs_of([figure]),
    )


def _notes(focus: Focus, methods: int, *, by_client: bool = False) -> list[Html]:
    few = (
        f"Drawn here: {len(focus.series)} of {methods} methods, the baseline and those that do"
        " best."
    )
    notes = _soft(few) if len(focus.series) < methods else []
    return notes + (_soft(VALIDATION) if by_client and focus.split == "valid" else [])


def _soft(text: str) -> list[Html]:
    return [paragraph(text, "soft")] if text else []


def _grid(figures: Sequence[ChartFigure]) -> Html:
    return element("div", {"class": f"figures of-{len(figures)}"}, *map(figure_html, figures))
