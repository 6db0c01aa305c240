"""Charts of a comparison. Every chart takes its container's width and stands alone when saved."""

from evenly.report.charts.clients import distribution, gini_of, lorenz, lorenz_chart, named_accuracy, named_influence, shown_span
from evenly.report.charts.rounds import convergence, influence_chart, weigh_alike, weighing_chart, weight_history, weight_history_chart
from evenly.report.charts.theme import save_chart
from evenly.report.charts.tradeoff import front_chart, rates_chart

__all__ = [
    "convergence", "distribution", "front_chart", "gini_of", "influence_chart", "lorenz", "lorenz_chart", "named_accuracy",
    "named_influence", "rates_chart", "save_chart", "shown_span", "weigh_alike", "weighing_chart", "weight_history",
    "weight_history_chart",
]  # fmt: skip
