"""How a round's clients are shared out: to how many devices, and to how many lanes on each."""

from typing import NamedTuple

import jax
import numpy as np

from evenly import trees
from evenly.compiling import whole_loops
from evenly.models import LinearSVM, Logistic, Softmax
from evenly.models.linear import MOST_TERMS
from evenly.models.task import skeleton
from evenly.simulate.blocks import FEWEST_ROUNDS, MOST_ROUNDS
from evenly.simulate.company import Company
from evenly.types import Task

LANE_BYTES = 2**24  # the largest model of which several train side by side on a GPU
MOST_LANES = 64
LINEAR = (Softmax, Logistic, LinearSVM)  # models whose products can be written as sums
BLOCKS = 4  # of a run, at least
STRIDE = 16  # small steps of lanes between two looks, of the host, at whether that was all
DEVICES_BYTES = 2**20  # the smallest model whose clients are dealt to several GPUs: below, steps are too short to fill even one


def shared_out(task: Task, company: Company, slots: int, *, lanes: int, devices: int) -> tuple[int, int]:
    """Lanes on each device, and devices: as many as asked for and of use, or where 0 is asked, as many as pay.

    Host devices share the cores that one of them uses anyway: on two cores a LeNet step took 6.5 ms of wall time on one device,
    and the same work 6.8 to 7.6 ms on two. So a CPU's are used only when asked for.
    """
    model = skeleton(task)
    size = 4 * trees.size(model) * len(company.algorithms)
    there = len(jax.devices())
    if not 0 <= devices <= there:
        raise ValueError(f"devices must be between 0 (choose) and {there}, as many as JAX has here, got {devices}.")
    if any("gram" in a.rule.needs for a in company.algorithms):
        return 1, 1  # vectors are kept one by one
    worth = there if jax.default_backend() != "cpu" and size >= DEVICES_BYTES else 1
    devices = 1 if _reads_its_own_memory(company, model) else min(slots, devices or worth)
    return _lanes(lanes, -(-slots // devices), size), devices


class Strides(NamedTuple):
    """How steps of lanes follow one another; see Shape."""

    stride: int = 1
    unroll: int = 1
    equal: int = 0


def strides(task: Task, runs: int, lanes: int, steps: np.ndarray) -> Strides:
    """How many steps of lanes follow one another unasked, how many of them are written out in the program, and how many all clients
    take, where that is always the same.

    Where a step is shorter than the asking, several; written out, a GPU starts them all at once. Where it is long, one, because
    lanes that are done wait for the others; but all where all clients take equally many (`steps`, of each client).
    """
    size = 4 * trees.size(skeleton(task)) * runs
    if lanes > 1 and size < DEVICES_BYTES:
        return Strides(STRIDE, 1 if jax.default_backend() == "cpu" else STRIDE)
    return Strides(equal=int(steps[0]) if lanes > 1 and (steps == steps[0]).all() else 0)


def rounds_at_once(rounds: int, small: bool) -> int:
    """Rounds for which a block has room at most. Small steps take hardly longer than drawing their batches, so such a run has several
    blocks: the next is drawn while one is trained. Blocks of other runs have room for many, and take as many as their Pace says."""
    return max(FEWEST_ROUNDS, -(-rounds // BLOCKS)) if small else MOST_ROUNDS


def whole(task: Task, runs: int, batch: int, lanes: int) -> bool:
    """Whether a client's steps are compiled as one function, runs one after another: on a CPU, while all runs' steps together are
    small. From there on one product for all runs is faster, and a library's product than a compiled one."""
    size = trees.size(skeleton(task))
    return isinstance(task, LINEAR) and lanes == 1 and runs * batch * size <= MOST_TERMS and whole_loops()


def worth_meeting(task: Task, runs: int) -> bool:
    """Whether several seeds' programs should be advanced together: where one alone would not fill the one device there is."""
    size = 4 * trees.size(skeleton(task)) * runs
    return jax.default_backend() != "cpu" and len(jax.devices()) == 1 and size < DEVICES_BYTES


def _lanes(asked: int, slots: int, size: int) -> int:
    """Side by side, small steps of many clients fill a GPU; on a CPU unequal clients would leave lanes empty."""
    if asked:
        return min(asked, slots)
    if jax.default_backend() == "cpu" or size > LANE_BYTES:  # a larger model fills a GPU by itself
        return 1
    return min(slots, MOST_LANES)


def _reads_its_own_memory(company: Company, model: object) -> bool:
    """Whether a client that is drawn twice in a round reads at its second visit what it kept at the first."""
    memory = jax.eval_shape(company.algorithms[0].work.remember, model)
    return bool(jax.tree.leaves(memory)) and any(getattr(select, "replace", False) for select in company.selects)
