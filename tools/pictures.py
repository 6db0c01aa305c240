"""Draw the pictures of the pages in docs/concepts.

    python -m tools.pictures                 draw all pictures
    python -m tools.pictures round q-cost    draw these

Charts show exact formulas, or runs that this script trains itself in about a minute. One of them,
`unfair-states`, needs the files of the data set `acs-income` (`evenly data fetch acs-income`) and
is left out where they are missing. Diagrams are written as SVG by hand.

Every picture has the colours of the report, light or dark as the reader's system asks.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import altair as alt
import jax.numpy as jnp
import numpy as np
import vl_convert
from scipy import stats

import evenly
from evenly import metrics
from evenly.datasets import DATASETS, synthetic_census
from evenly.datasets.files import complete
from evenly.models.named_models import choose_model
from evenly.parts.ranking import dropped, inverse, vote
from evenly.report.charts.theme import FONT, LIGHT, SHAPES, config, values
from evenly.report.charts.weighing import AFL, weigh_losses
from evenly.round import weigh
from evenly.types import Signals
from tools.colours import rules

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
SEEDS = range(5)
# what a chart repeats at each of its marks
REPEATED = re.compile(r' (font-family|pointer-events|aria-hidden|class|role)="[^"]*"| opacity="1"')


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.pictures", description="Draw the pictures of docs/concepts."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(PICTURES)}; all by default"
    )
    names = parser.parse_args().names or list(PICTURES)
    if unknown := set(names) - set(PICTURES):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}")
    for name in names:
        drawn = PICTURES[name]()
        if drawn:
            (FOLDER / f"{name}.svg").write_text(themed(drawn) + "\n")
        else:
            print(f"{name}: left out, because its data files are missing", file=sys.stderr)
    return 0


def colour(name: str) -> str:
    return f"var(--{name})"


def themed(svg: str) -> str:
    """The picture with its colours for light and for dark, on a background of its own."""
    svg = REPEATED.sub("", svg)
    used = [name for name in LIGHT if name == "paper" or colour(name) in svg]
    style = f"{rules(used)}text{{font-family:{FONT}}}"
    paper = f'<rect width="100%" height="100%" fill="{colour("paper")}"/>'
    head, end, body = svg.partition(">")
    return f"{head}{end}<style>{style}</style>{paper}{body}"


# Charts, drawn by Vega-Lite in the theme of the report.


def rendered(chart: Any) -> str:
    sides = {"left": 28, "right": 20, "top": 8, "bottom": 8}
    extra = {"concat": {"spacing": 60}, "facet": {"spacing": 18}, "header": HEADER, "aria": False}
    spec = chart.to_dict() | {"config": config(colour) | extra, "padding": sides}
    return vl_convert.vegalite_to_svg(spec)


HEADER = {"labelColor": colour("ink"), "labelFontSize": 13, "labelFontWeight": 600, "title": None}


def table(**columns: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows of a chart, from columns of equal length."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def heading(text: str, offset: int = 26) -> alt.TitleParams:
    return alt.TitleParams(text, fontSize=13, offset=offset)


def series(names: Sequence[str], columns: int = 3, *, shown: bool = True) -> dict[str, Any]:
    """Colour and shape by the field `series`, with one legend above the chart."""
    style = alt.Legend(title=None, offset=36, columns=columns, columnPadding=14) if shown else None
    domain = list(names)
    shapes = alt.Scale(domain=domain, range=list(SHAPES[: len(names)]))
    return {
        "color": alt.Color("series:N", scale=alt.Scale(domain=domain), legend=style),
        "shape": alt.Shape("series:N", scale=shapes, legend=style),
    }


def guide(at: float, axis: str, ends: tuple[float, float]) -> alt.Chart:
    """A dashed line at a value, on an axis between these ends."""
    line = alt.Chart(values([{"at": at}])).mark_rule(style="guide-line", strokeDash=[4, 3])
    scale = alt.Scale(domain=list(ends), nice=False)
    x_or_y = alt.X("at:Q", scale=scale) if axis == "x" else alt.Y("at:Q", scale=scale)
    return line.encode(x_or_y)


def beside(*panels: Any) -> str:
    """Charts next to each other, each with a legend of its own."""
    return rendered(alt.hconcat(*panels).resolve_scale(color="independent", shape="independent"))


# Clients and groups of the census in 35 states under FedAvg.

GROUPS = ("women, not White", "women, White", "men, not White", "men, White")


def states() -> str:
    """Accuracy of every state, and accuracy and true positive rate of every group."""
    if not any(complete(layout) for layout in DATASETS["acs-income"].layouts):
        return ""
    found = [census_tables(seed) for seed in SEEDS]
    tables, names = np.stack([one for one, _ in found]), np.array(found[0][1])
    accuracy = 100 * metrics.accuracy(tables).mean(0)
    order, average = np.argsort(accuracy), 100 * metrics.accuracy(tables.sum(1)).mean()
    x = alt.X("accuracy:Q", scale=alt.Scale(domain=[74, 84]), title="Accuracy (%)")
    y = alt.Y("place:Q", axis=None, scale=alt.Scale(reverse=True, padding=8))
    rows = table(place=range(35), accuracy=accuracy[order], state=names[order])
    dots = alt.Chart(values(rows)).encode(x=x, y=y)
    ends = dots.transform_filter("datum.place == 0 || datum.place == 34")
    left = alt.layer(
        guide(float(average), "x", (74, 84)),
        dots.mark_point(filled=True, size=50, opacity=0.85, style="weight"),
        ends.mark_text(style="guide-text", dx=16).encode(text="state:N"),
    ).properties(width=240, height=232, title=heading("35 states, one dot each"))
    return beside(left, people(tables))


def census_tables(seed: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Test counts [states, 4, 2, 2] as in `evenly reproduce beyond/acs-income`, and the states."""
    federation = DATASETS["acs-income"].load(
        sensitive="sex,race", rows_per_state=10_000, train=0.6, valid=0.2, split_seed=seed
    )
    algorithm = evenly.algorithm("fedavg+full", learning_rate=0.3, batch_size=32)
    task = choose_model("logistic", federation)
    (trace,) = evenly.train(task, federation, algorithm, rounds=50, seeds=seed)
    return trace.tables[-1, 2], federation.names


def people(tables: np.ndarray) -> Any:
    rates = metrics.rates(tables.sum(1), favourable=1)
    names = ("accuracy", "true positive rate")
    rows = [
        {"group": group, "series": name, "rate": 100 * float(rate)}
        for name, found in zip(names, (rates.accuracy, rates.tpr), strict=True)
        for group, rate in zip(GROUPS, found.mean(0), strict=True)
    ]
    x = alt.X("rate:Q", scale=alt.Scale(domain=[40, 90]), title="Share of the rows (%)")
    y = alt.Y("group:N", sort=list(GROUPS), title=None, axis=alt.Axis(labelLimit=200, grid=True))
    points = alt.Chart(values(rows)).mark_point(filled=True, size=90, opacity=1)
    title = heading("Four groups of people in all states", offset=10)
    return alt.layer(points.encode(x=x, y=y, **series(names, 2))).properties(
        width=240, height=232, title=title
    )


# Client fairness and group fairness: the three models of docs/concepts/client-and-group-fairness.md

HOSPITALS, SEXES = ("north", "east", "south", "west"), ("women", "men")


def example_models() -> dict[str, np.ndarray]:
    """Counts by hospital, sex (women first), label and prediction, 25 people with each label."""

    def cells(found: Sequence[int], cleared: Sequence[int]) -> list[list[list[int]]]:
        pairs = zip(found, cleared, strict=True)
        return [[[c, 25 - c], [25 - f, f]] for f, c in pairs]

    return {
        "model A": np.array([cells((10, 25), (25, 20))] * 4),
        "model B": np.array([cells((n, n), (n, n)) for n in (24, 22, 19, 15)]),
        "model C": np.array([cells((15, 25), (20, 20))] * 2 + [cells((25, 15), (20, 20))] * 2),
    }


def client_and_group() -> str:
    """Accuracy of each hospital, and true positive rates of women and men, under three models."""
    found = example_models()
    clients = [
        {"model": model, "hospital": hospital, "rate": 100 * float(accuracy)}
        for model, tables in found.items()
        for hospital, accuracy in zip(HOSPITALS, metrics.accuracy(tables), strict=True)
    ]
    groups = [
        {"model": model, "hospital": hospital, "series": sex, "rate": 100 * float(rate)}
        for model, tables in found.items()
        for hospital, rates in zip(HOSPITALS, metrics.rates(tables, 1).tpr, strict=True)
        for sex, rate in zip(SEXES, rates, strict=True)
    ]
    left = hospital_panel(clients, "Accuracy (%)", {"": 0})
    right = hospital_panel(groups, "True positive rate (%)", {"women": -4, "men": 4})
    return beside(left, right)


def hospital_panel(rows: list[dict], title: str, shifts: dict[str, int]) -> Any:
    """One line for each hospital, and a mark for each series, which is shifted from the line."""
    x = alt.X("rate:Q", title=title, scale=alt.Scale(domain=[30, 100]), axis=alt.Axis(tickCount=4))
    y = alt.Y("hospital:N", sort=list(HOSPITALS), title=None, axis=alt.Axis(grid=True))
    layers = []
    for name, shift in shifts.items():
        base = alt.Chart().transform_filter(f"!datum.series || datum.series == '{name}'")
        dots = base.mark_point(filled=True, size=70, opacity=1, yOffset=shift, style="weight")
        layers.append(dots.encode(x=x, y=y, **(series(SEXES, 2) if name else {})))
    layered = alt.layer(*layers, data=values(rows)).properties(width=180, height=88)
    header = alt.Header(title=None, labelOrient="top", labelAngle=0, labelAnchor="start")
    return layered.facet(row=alt.Row("model:N", header=header))


# What q-FFL weighs and what it costs.

LOSSES = np.linspace(0.1, 2, 20)  # of the twenty clients in the picture of how methods weigh them


def q_weights() -> str:
    """Weight against loss: for several q, and for the methods that minimise other means."""
    family = {
        f"q = {q:g}": len(LOSSES) * metrics.dual_weights(LOSSES, "q-ffl", q)
        for q in (0, 0.5, 1, 2, 5)
    }
    others = {one.name: one.weights for one in weigh_losses(LOSSES) if one.name != AFL}
    left = weight_panel(family, "q-FFL", 3, "q → ∞: 20 ↑")
    right = weight_panel(others, "Four means", 2, "AFL: 20 ↑")
    return beside(left, right)


def weight_panel(found: dict[str, np.ndarray], title: str, columns: int, limit: str) -> Any:
    """Lines with a mark at every second client, and a word about what lies above the chart."""
    rows = [
        row
        for name, weights in found.items()
        for row in table(loss=LOSSES, weight=weights, series=[name] * 20, client=range(20))
    ]
    x = alt.X("loss:Q", title="Loss of a client", axis=alt.Axis(tickCount=4))
    y = alt.Y("weight:Q", scale=alt.Scale(domain=[0, 6]), title="Weight (1: an equal share)")
    look = series(list(found), columns)
    base = alt.Chart(values(rows)).encode(x=x, y=y, color=look["color"])
    some = base.transform_filter("datum.client % 3 == 1").encode(shape=look["shape"])
    above = alt.Chart(values([{"loss": 2.0, "weight": 5.8, "text": limit}]))
    layers = (
        base.mark_line(strokeWidth=1.6, opacity=0.7),
        some.mark_point(filled=True, size=60, opacity=1),
        above.mark_text(style="guide-text", align="right", dx=-12).encode(x=x, y=y, text="text:N"),
    )
    return alt.layer(*layers).properties(width=250, height=240, title=heading(title, 12))


def q_cost() -> str:
    """Accuracy over the rounds for several q: mean over five splits, with its 95 % interval."""
    settings = (0, 1, 2, 5)
    found = np.stack([accuracies_over_rounds(settings, seed) for seed in SEEDS])
    titles = ("Average over all rows (%)", "Worst 10 % of the clients (%)")
    panels = [cost_panel(found[..., i], settings, title) for i, title in enumerate(titles)]
    return beside(*panels)


def accuracies_over_rounds(settings: Sequence[float], seed: int) -> np.ndarray:
    """Average and worst tenth at each evaluation on test rows. [settings, evaluations, 2]"""
    federation = evenly.synthetic(split_seed=seed)
    task = evenly.models.Softmax(features=60, classes=10)
    methods = [f"q-fedavg(q={q})" for q in settings]
    traces = evenly.train(task, federation, methods, 4000, seeds=seed, evaluate_every=200)
    every = [
        [metrics.measure(metrics.accuracy(t), metrics.examples(t)) for t in trace.tables[:, 2]]
        for trace in traces
    ]
    return np.array([[[one["average"], one["worst10"]] for one in run] for run in every])


def cost_panel(found: np.ndarray, settings: Sequence[float], title: str) -> Any:
    """One metric [seeds, settings, evaluations] over the rounds."""
    rows = []
    for i, q in enumerate(settings):
        spreads = [metrics.spread(found[:, i, j]) for j in range(found.shape[2])]
        rows += [
            {"series": f"q = {q:g}", "rounds": 200 * j, "mean": one.mean,
             "low": one.mean - one.half_width, "high": one.mean + one.half_width}
            for j, one in enumerate(spreads)
        ]  # fmt: skip
    x = alt.X("rounds:Q", title="Rounds", axis=alt.Axis(tickCount=4))
    y = alt.Y("mean:Q", title=None, axis=alt.Axis(tickCount=5))
    look = series([f"q = {q:g}" for q in settings], 4)
    base = alt.Chart(values(rows)).encode(x=x, color=look["color"])
    some = base.transform_filter("datum.rounds % 1000 == 0").encode(shape=look["shape"])
    layers = (
        base.mark_area(opacity=0.14).encode(y=alt.Y("low:Q", title=None), y2="high:Q"),
        base.mark_line(strokeWidth=1.8).encode(y=y),
        some.mark_point(filled=True, size=60, opacity=1).encode(y=y),
    )
    return alt.layer(*layers).properties(width=250, height=220, title=heading(title, 12))


# The weights of three clients in one round.


def round_weights() -> str:
    """Shares of three clients under several rules (docs/concepts/how-weights-come-about.md)."""
    rows, losses = jnp.array([10.0, 30.0, 60.0]), jnp.array([0.5, 2.0, 1.0])
    everybody = jnp.ones(3, bool)
    signals = Signals(client=jnp.arange(3), returned=everybody, examples=rows, loss=losses)
    names = ("10 rows, loss 0.5", "30 rows, loss 2", "60 rows, loss 1")
    shares = []
    for method in ("fedavg+full", "term(alpha=1)", "q-fedavg(q=1)", "q-fedavg(q=5)", "p-fedavg"):
        weight = np.asarray(weigh(evenly.algorithm(method).rule, (), signals).weight)
        share = 100 * weight / weight.sum()
        middle = share.cumsum() - share / 2
        label = [method.removesuffix("+full")] * 3
        shares += table(method=label, series=names, share=share, middle=middle, order=range(3))
    axis = alt.Axis(grid=False, labelLimit=200)
    base = alt.Chart(values(shares)).encode(y=alt.Y("method:N", sort=None, title=None, axis=axis))
    title, whole = "Share of the sum of all weights (%)", alt.Scale(domain=[0, 100])
    x = alt.X("share:Q", title=title, axis=alt.Axis(tickCount=5), scale=whole)
    bars = base.mark_bar(opacity=0.9).encode(x=x, color=series(names)["color"], order="order:Q")
    words = base.transform_filter("datum.share > 6").mark_text(fontSize=12, fontWeight=600)
    number, paper = alt.Text("share:Q", format=".0f"), alt.value(colour("paper"))
    text = words.encode(x="middle:Q", text=number, color=paper)
    return rendered(alt.layer(bars, text).properties(width=430, height=190))


# How much is chance.


def chance_rows() -> str:
    """The range in which the accuracy of one client lies, by its number of test rows."""
    rows = np.array([5, 10, 20, 50, 100, 200, 500, 1000])
    low, high = (100 * stats.binom.ppf(share, rows, 0.8) / rows for share in (0.025, 0.975))
    x = alt.X("rows:O", title="Test rows of the client", axis=alt.Axis(labelAngle=0, grid=False))
    scale = alt.Scale(domain=[30, 105], nice=False)
    y = alt.Y(
        "low:Q",
        scale=scale,
        title="Accuracy shown by a client whose true accuracy is 80 % (%)",
        axis=alt.Axis(tickCount=6),
    )
    base = alt.Chart(values(table(rows=rows, low=low, high=high))).encode(x=x)
    ends = [
        base.mark_text(style="guide-text", dy=shift).encode(
            y=field, text=alt.Text(field, format=".0f")
        )
        for field, shift in (("low:Q", 11), ("high:Q", -9))
    ]
    bars = base.mark_bar(width=16, opacity=0.85, style="weight").encode(y=y, y2="high:Q")
    return rendered(
        alt.layer(bars, guide(80.0, "y", (30, 105)), *ends).properties(width=460, height=240)
    )


def chance_pairs() -> str:
    """|EOD| of two methods on five draws of a synthetic census, and the five differences."""
    found = np.array([census_gaps(seed) for seed in SEEDS])  # [seeds, methods]
    names = ("fedavg", "fedavg+reweigh")
    rows = [
        {"method": name, "gap": float(gap), "seed": seed}
        for seed, gaps in enumerate(found)
        for name, gap in zip(names, gaps, strict=True)
    ]
    x = alt.X("method:N", sort=None, title=None, axis=alt.Axis(labelAngle=0, grid=False))
    y = alt.Y("gap:Q", title="|EOD|", scale=alt.Scale(domain=[0, 0.25]), axis=alt.Axis(tickCount=5))
    lines = alt.Chart(values(rows)).encode(x=x, y=y, detail="seed:N")
    left = alt.layer(
        lines.mark_line(style="guide-line", opacity=0.8),
        lines.mark_point(filled=True, size=70, opacity=1, style="weight"),
    ).properties(width=230, height=230, title=heading("Each line is one seed"))
    return beside(left, difference_panel(found[:, 1] - found[:, 0]))


def census_gaps(seed: int) -> list[float]:
    """|EOD| on the central test set, without and with reweighing."""
    federation = synthetic_census(rows=3000, seed=seed)
    task = evenly.models.Softmax(features=11, classes=2)
    traces = evenly.train(task, federation, ["fedavg+full", "fedavg+full+reweigh"], 20, seeds=seed)
    sides = {"favourable": federation.favourable, "unprivileged": federation.unprivileged}
    return [
        float(metrics.measure_groups(metrics.pooled(trace, "central")[-1], **sides)["eod_abs"])
        for trace in traces
    ]


def difference_panel(differences: np.ndarray) -> Any:
    one = metrics.spread(differences)
    y = alt.Y("gap:Q", title="difference", axis=alt.Axis(tickCount=6, format=".2f"),
              scale=alt.Scale(domain=[-0.1, 0.02]))  # fmt: skip
    x = alt.X("what:N", title=None, sort=None, axis=alt.Axis(labelAngle=0, grid=False))
    ends = {"low": one.mean - one.half_width, "high": one.mean + one.half_width}
    mean = alt.Chart(values([{"what": "mean, 95 % interval", "gap": one.mean, **ends}]))
    dots = alt.Chart(values([{"what": "seeds", "gap": float(d)} for d in differences]))
    layers = (
        guide(0.0, "y", (-0.1, 0.02)),
        dots.mark_point(filled=True, size=70, opacity=0.85, style="weight").encode(x=x, y=y),
        mean.mark_rule(strokeWidth=2.5, style="front").encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        mean.mark_point(filled=True, size=90, opacity=1, style="front").encode(x=x, y=y),
    )
    title = heading("Differences, seed by seed")
    return alt.layer(*layers).properties(width=250, height=230, title=title)


# Diagrams.


class Drawing:
    """An SVG that is put together from boxes, words and arrows."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" role="img" font-family="{escape(FONT, QUOTE)}"'
            f' font-size="14"><title>{escape(title)}</title>'
        ]

    def add(self, tag: str, text: str = "", **settings: Any) -> None:
        named = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in settings.items())
        self.parts.append(f"<{tag}{named}>{escape(text)}</{tag}>")

    def text(self, x: float, y: float, words: str, ink: str = "ink", **settings: Any) -> None:
        for i, line in enumerate(words.split("\n")):
            self.add("text", line, x=x, y=y + 18 * i, fill=colour(ink), **settings)

    def box(self, x: float, y: float, width: float, height: float, **settings: Any) -> None:
        look = {"rx": 6, "fill": colour("card"), "stroke": colour("line")} | settings
        self.add("rect", x=x, y=y, width=width, height=height, **look)

    def arrow(self, x: float, start: float, end: float, **settings: Any) -> None:
        """An upright line with a head."""
        look = {"stroke": colour("accent"), "stroke_width": 2, "fill": "none"}
        self.add("line", x1=x, y1=start, x2=x, y2=end, **look, **settings)
        back = end + (8 if end < start else -8)
        self.add("polyline", points=f"{x - 5},{back} {x},{end} {x + 5},{back}", **look)

    def __str__(self) -> str:
        return "".join(self.parts) + "</svg>"


QUOTE = {'"': "&quot;"}
RIGHT = {"women": (8, 7, 4), "men": (9, 9, 6)}  # of ten people each, in three hospitals


def levels() -> str:
    """Ten women and ten men in each of three hospitals: whom the model serves."""
    picture = Drawing(720, 296, "Predictions that are right, by hospital and by sex")
    columns = (96, 272, 448)
    for i, x in enumerate(columns):
        picture.box(x - 12, 34, 160, 196)
        picture.text(x, 24, f"Hospital {i + 1}", font_weight=600)
    for (sex, right), y, ink in zip(
        RIGHT.items(), (50, 138), ("series-3", "series-2"), strict=True
    ):
        picture.text(16, y + 30, sex, font_weight=600)
        for x, count in zip(columns, right, strict=True):
            persons(picture, (x, y), count, square=sex == "men", ink=ink)
            picture.text(x, y + 74, f"{count} of 10", "soft")
        picture.text(620, y + 30, f"{sum(right)} of 30", font_weight=600)
    picture.text(620, 24, "all", font_weight=600)
    picture.text(16, 254, "all", font_weight=600)
    for x, counts in zip(columns, zip(*RIGHT.values(), strict=True), strict=True):
        picture.text(x, 254, f"{sum(counts)} of 20", font_weight=600)
    picture.text(96, 282, "this row: fairness between clients", "soft")
    picture.text(704, 282, "last column: fairness between groups", "soft", text_anchor="end")
    return str(picture)


def persons(
    picture: Drawing, at: tuple[float, float], right: int, *, square: bool, ink: str
) -> None:
    """Ten marks in two lines, those with a right prediction filled."""
    for i in range(10):
        fill = colour(ink) if i < right else "none"
        look = {"fill": fill, "stroke": colour(ink), "stroke_width": 2}
        x, y = at[0] + 27 * (i % 5), at[1] + 28 * (i // 5)
        if square:
            picture.add("rect", x=x + 1, y=y + 1, width=16, height=16, **look)
        else:
            picture.add("circle", cx=x + 9, cy=y + 9, r=9, **look)


STEPS = {
    "1 select": ("cohort\nmodel w", "receives w"),
    "2 measure": ("", "own numbers:\nrows nₖ, loss Fₖ,\ncounts by group"),
    "3 weigh": ("S = Σ sₖ\n(some methods)", "weight aₖ from\npublic numbers,\nown and S"),
    "4 train": ("Σ aₖ vₖ, Σ aₖ", "trains to wₖ\nvₖ = wₖ − w"),
    "5 step": ("new model w⁺\nnew public\nnumbers", ""),
}


def one_round() -> str:
    """What the server does, what a client does, and what travels between them."""
    picture = Drawing(740, 326, "One round")
    for y, name in ((44, "server"), (210, "client k")):
        picture.box(76, y, 654, 98)
        picture.text(10, y + 54, name, font_weight=600)
    for i, (name, (server, client)) in enumerate(STEPS.items()):
        x = 92 + 128 * i
        picture.text(x, 28, name, "accent", font_weight=600)
        picture.text(x, 74, server)
        picture.text(x, 240, client)
    dashed = {"stroke_dasharray": "5 4"}
    for words, x, (start, end), look in (
        ("w", 104, (146, 206), {}),
        ("sₖ", 360, (206, 146), dashed),
        ("S", 410, (146, 206), dashed),
        ("aₖ vₖ, aₖ", 488, (206, 146), {}),
    ):
        picture.arrow(x, start, end, **look)
        picture.text(x + 8, 181, words, "soft")
    return str(picture)


BALLOTS = {
    "A": ([4, 0, 2, 3, 5, 1], [0, 2, 4, 5, 3, 1], [0, 2, 5, 4, 3, 1]),
    "B": ([0, 2, 1, 3, 4, 5], [0, 2, 3, 4, 1, 5]),
    "C": ([5, 3, 1, 0, 2, 4],),
}  # fmt: skip


def elected(rankings: Sequence[Sequence[int]]) -> list[int]:
    """The ranking that a vote decides."""
    places = jnp.stack([inverse(jnp.array(one)) for one in rankings]).astype(jnp.float32)
    return inverse(vote(places)).tolist()


def ranked_edges() -> str:
    """A layer of six edges: places and kept half for a client, its group, and all groups."""
    groups = [elected(ballots) for ballots in BALLOTS.values()]
    rankings = {"client 1": BALLOTS["A"][0], "group A": groups[0], "all groups": elected(groups)}
    picture = Drawing(744, 286, "Places of six edges, and the half that is kept")
    picture.text(16, 26, "edges", font_weight=600)
    network(picture, 16, list(range(6)), kept=6)
    for i, (name, ranking) in enumerate(rankings.items()):
        x = 204 + 188 * i
        picture.text(x, 26, f"places: {name}", font_weight=600)
        network(picture, x, [ranking.index(edge) for edge in range(6)], kept=dropped(6, 0.5))
        picture.text(x, 272, f"ranking {' '.join(map(str, ranking))}", "soft")
    return str(picture)


def network(picture: Drawing, x: float, numbers: Sequence[int], *, kept: int) -> None:
    """Three inputs, two outputs and an edge from each to each; numbers from `kept` on are thick."""
    inputs, outputs = [(x + 12, 60 + 80 * i) for i in range(3)], [(x + 136, 100), (x + 136, 180)]
    ends = [(inputs[edge // 2], outputs[edge % 2]) for edge in range(6)]
    inks = [("accent", 3.5) if number >= kept else ("muted", 1.2) for number in numbers]
    for ((x1, y1), (x2, y2)), (ink, width) in zip(ends, inks, strict=True):
        picture.add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour(ink), stroke_width=width)
    for ((x1, y1), (x2, y2)), (ink, _), number, share in zip(
        ends, inks, numbers, LABELS, strict=True
    ):
        cx, cy = round(x1 + share * (x2 - x1)), round(y1 + share * (y2 - y1))
        picture.add("circle", cx=cx, cy=cy, r=11, fill=colour("paper"), stroke=colour(ink))
        picture.text(cx, cy + 5, str(number), text_anchor="middle")
    for cx, cy in (*inputs, *outputs):
        picture.add("circle", cx=cx, cy=cy, r=9, fill=colour("card"), stroke=colour("ink"))


LABELS = (0.44, 0.22, 0.36, 0.36, 0.22, 0.44)  # how far along each edge its number stands
PICTURES: dict[str, Callable[[], str]] = {
    "unfair-levels": levels,
    "unfair-states": states,
    "client-and-group": client_and_group,
    "q-weights": q_weights,
    "q-cost": q_cost,
    "ranked-edges": ranked_edges,
    "round": one_round,
    "round-weights": round_weights,
    "chance-rows": chance_rows,
    "chance-pairs": chance_pairs,
}


if __name__ == "__main__":
    sys.exit(main())
