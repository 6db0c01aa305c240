"""Charts of a comparison, one file each. Every chart takes its container's width and stands alone when saved."""

from evenly.report.charts.convergence import convergence
from evenly.report.charts.distribution import distribution, shown_span
from evenly.report.charts.front import front_chart
from evenly.report.charts.influence import influence_chart
from evenly.report.charts.lorenz import gini_of, lorenz, lorenz_chart
from evenly.report.charts.named import named_accuracy, named_influence
from evenly.report.charts.rates import rates_chart
from evenly.report.charts.theme import save_chart
from evenly.report.charts.weighing import weigh_alike, weighing_chart
from evenly.report.charts.weight_history import weight_history, weight_history_chart

__all__ = [
    "convergence", "distribution", "front_chart", "gini_of", "influence_chart", "lorenz", "lorenz_chart", "named_accuracy",
    "named_influence", "rates_chart", "save_chart", "shown_span", "weigh_alike", "weighing_chart", "weight_history",
    "weight_history_chart",
]  # fmt: skip
