"""The compiled simulator: the only place that compiles whole runs."""

from evenly.compilation import set_flags
from evenly.simulate.layout import Advance, companions, worth_meeting, worth_streaming
from evenly.simulate.program import advance
from evenly.simulate.run import simulate
from evenly.simulate.seed_batch import Meeting

__all__ = ["Advance", "Meeting", "advance", "companions", "simulate", "worth_meeting", "worth_streaming"]

set_flags()  # before anybody asks JAX for a device, which reads them once: every way to train then has the same bits
