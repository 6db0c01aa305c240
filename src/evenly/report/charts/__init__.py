"""Charts of a comparison, one file each. Every chart takes its container's width and stands alone when saved."""

from evenly.report.charts.convergence import convergence
from evenly.report.charts.distribution import distribution
from evenly.report.charts.influence import influence_chart
from evenly.report.charts.theme import save_chart
from evenly.report.charts.tradeoff import tradeoff

__all__ = ["convergence", "distribution", "influence_chart", "save_chart", "tradeoff"]
