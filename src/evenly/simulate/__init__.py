"""The compiled simulator.

Its vocabulary, one noun for each concept:

- run: the training of one algorithm with one seed.
- program: one compiled function that advances all runs of a run group.
- run group: runs that share a program, with their parts. Runs whose rules share a structure form a
  rule group within it.
- cohort, slot: the clients of a round, and a position among them.
- visit: the local training of one slot in one round.
- block: rounds that are planned together and handed to the device at once.
- segment: rounds of a block between two evaluations.
- lane: clients that train one after another on a device, side by side with those of other lanes.
- stride: steps of lanes between two checks whether all lanes are done.
- fused loop: a loop that XLA compiles as one function.
- coefficient: the factor of a client's vector in the sum.
- evaluated clients: the clients whose metrics are computed.
- owner: a list of evaluated rows belongs to a client's split, or to the central test set.
- source: the object that provides rows to the device: resident (all rows are there) or streamed
  (those of a block).
- seed batch: simulations of several seeds that advance together.

Two of these algorithms form a run group, because one program can train both:

>>> import evenly
>>> task = evenly.models.Softmax(features=60, classes=10)
>>> algorithms = [evenly.algorithm(name) for name in ("fedavg", "q-fedavg(q=1)", "ditto")]
>>> companions(algorithms, task)
[[0, 1], [2]]
"""

from evenly.simulate.layout import Advance, companions, worth_batching, worth_streaming
from evenly.simulate.program import advance
from evenly.simulate.run import RunSettings, simulate
from evenly.simulate.seed_batch import SeedBatch
from evenly.xla_flags import set_flags

__all__ = [
    "Advance",
    "RunSettings",
    "SeedBatch",
    "advance",
    "companions",
    "simulate",
    "worth_batching",
    "worth_streaming",
]

# before JAX uses a device, because it reads them only once: all ways to train then lead to the same
# bits
set_flags()
