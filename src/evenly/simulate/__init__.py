"""The compiled simulator: the only place that compiles whole runs."""

from evenly.simulate.run import companions, simulate

__all__ = ["companions", "simulate"]
