"""The compiled simulator: the only place that compiles whole runs."""

from evenly.compiling import set_flags
from evenly.simulate.company import companions
from evenly.simulate.meeting import Advance, Meeting
from evenly.simulate.program import advance
from evenly.simulate.run import simulate
from evenly.simulate.sharing import worth_meeting
from evenly.simulate.streaming import worth_streaming

__all__ = ["Advance", "Meeting", "advance", "companions", "simulate", "worth_meeting", "worth_streaming"]

set_flags()  # before anybody asks JAX for a device, which reads them once: every way to train then has the same bits
