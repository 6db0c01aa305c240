"""The section on what fairness costs: the front of accuracy and a measure of fairness, and who is on it in words."""

from evenly.metrics import EVERY_METRIC
from evenly.report.charts.front import CLIENT_MEASURES, GROUP_MEASURES, front_chart, measure_title, points
from evenly.report.choice import Choice
from evenly.report.figures import Charts, Figure, figure_html, legend_of, specs_of, switch_html
from evenly.report.grid import Column, grid
from evenly.report.markup import Html, element, section
from evenly.report.method_table import folded, title_of
from evenly.report.table import Values, format_value, known_of

NAME = "chart-front"
CAPTION = (
    "The line joins the methods that no other one beats in both: filled marks. Hollow and grey ones are beaten: another is at least "
    "as accurate and as fair, and better in one. Means over seeds decide, so a method close to the line may be as good."
)


def front_section(values: Values, choice: Choice, lines: str) -> Charts:
    """Every method's accuracy and fairness; nothing where no measure is known. `lines` says what the marks' lines mean."""
    measures = [m for m in (*CLIENT_MEASURES, *GROUP_MEASURES) if _has(values, m) and known_of(values, (m,))]
    if not measures:
        return Charts({}, {})
    first, *rest = measures
    variants = {metric.replace("_", "-"): metric for metric in rest}
    figure = Figure(
        NAME,
        front_chart(values, first, choice.coloured),
        f"{CAPTION}{lines}",
        variants={name: front_chart(values, metric, choice.coloured) for name, metric in variants.items()},
        filtered=True,
        heading="Accuracy and fairness",
    )
    titles = {"": measure_title(first), **{name: measure_title(metric) for name, metric in variants.items()}}
    switch = switch_html("Fairness measured by", [figure], {name: title_of(title) for name, title in titles.items()})
    legend = legend_of(choice.coloured, others=len(choice.coloured) < len(values))
    body = section("tradeoff", "What does fairness cost?", legend, figure_html(figure, switch), _listed(values, measures))
    return Charts({"tradeoff": body}, specs_of([figure]))


def _has(values: Values, metric: str) -> bool:
    return all(metric in seed for seeds in values.values() for seed in seeds.values())


def _listed(values: Values, measures: list[str]) -> Html:
    """The front in words: for every measure who is on it."""
    rows = []
    for metric in measures:
        front = sorted((point for point in points(values, metric) if point.front), key=lambda point: point.accuracy)
        names = [element("li", None, f"{p.label}: {format_value(p.measure, EVERY_METRIC[metric])} at {p.accuracy:.1f} %") for p in front]
        rows.append((title_of(measure_title(metric)), element("ul", None, *names)))
    columns = [Column("Measure"), Column("Not beaten in both, from the least accurate", words=True)]
    return folded(
        "Who is on the front, for every measure", grid("Each method's measure, and its accuracy; means over seeds.", columns, rows)
    )
