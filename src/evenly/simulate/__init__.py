"""The compiled simulator: the only place that compiles whole runs."""

from evenly.simulate.company import companions
from evenly.simulate.meeting import Advance, Meeting
from evenly.simulate.program import advance
from evenly.simulate.run import simulate
from evenly.simulate.sharing import worth_meeting

__all__ = ["Advance", "Meeting", "advance", "companions", "simulate", "worth_meeting"]
