"""The compiled simulator: the only place that compiles whole runs."""

from evenly.compilation import set_flags
from evenly.simulate.data import worth_streaming
from evenly.simulate.program import advance
from evenly.simulate.run import simulate
from evenly.simulate.sharing import Advance, Meeting, companions, worth_meeting

__all__ = ["Advance", "Meeting", "advance", "companions", "simulate", "worth_meeting", "worth_streaming"]

set_flags()  # before anybody asks JAX for a device, which reads them once: every way to train then has the same bits
