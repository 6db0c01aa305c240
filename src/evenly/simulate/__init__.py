"""The compiled simulator: the only place that compiles whole runs."""

from evenly.simulate.company import companions
from evenly.simulate.run import simulate

__all__ = ["companions", "simulate"]
