"""Charts of a comparison, one file each. Every chart takes its container's width and stands alone when saved."""

from evenly.report.charts.convergence import convergence
from evenly.report.charts.distribution import distribution, shown_span
from evenly.report.charts.group_tradeoff import group_tradeoff
from evenly.report.charts.influence import influence_chart
from evenly.report.charts.rates import rates_chart
from evenly.report.charts.theme import save_chart
from evenly.report.charts.tradeoff import tradeoff
from evenly.report.charts.weighing import weigh_alike, weighing_chart

__all__ = [
    "convergence", "distribution", "group_tradeoff", "influence_chart", "rates_chart", "save_chart", "shown_span", "tradeoff",
    "weigh_alike", "weighing_chart",
]  # fmt: skip
