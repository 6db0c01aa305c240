"""Which runs share a program, how clients are dealt to lanes and devices, and how several seeds advance together."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly import trees
from evenly.compilation import graphs, whole_loops
from evenly.models import LinearSVM, Logistic, Softmax
from evenly.models.linear import MOST_TERMS
from evenly.models.task import skeleton
from evenly.parts.sampling import Full
from evenly.parts.work import LocalTraining
from evenly.simulate.layout import SEATS, Band, Data, RunParts, Shape, State
from evenly.simulate.measuring import MEASURED
from evenly.simulate.program import RoundRecord, stretches
from evenly.simulate.schedule import FEWEST_ROUNDS, MOST_ROUNDS, Block
from evenly.types import Algorithm, Prepare, Select, Several, Task, Work

# Which runs can advance in one program, and how they lie side by side in it.
#
# Runs that share clients' work can share everything heavy: batches, products, local steps. Where the model is joint (all runs are one
# matrix product) they need not share anything else: rules and servers of the same structure form a band, rows may be prepared in
# several ways, and where everybody takes part anyway, other samplings are a mask.


class Company(NamedTuple):
    """Algorithms in the order in which they lie in a program."""

    algorithms: list[Algorithm]
    place: list[int]  # where each algorithm, in the order given, lies
    bands: tuple[int, ...]  # where each band starts, and the number of runs
    parts: RunParts
    selects: tuple[Select, ...]
    prepares: tuple[Prepare | None, ...]


def companions(algorithms: Sequence[Algorithm], task: Task, *, join: bool | None = None) -> list[list[int]]:
    """Group algorithms (by position) that can advance in one program; samplings share it where that pays here, or as `join` says."""
    join = jax.default_backend() != "cpu" if join is None else join
    joined = _joined_samplings(algorithms) if task.joint and join else {}
    groups: dict[str, list[int]] = {}
    for i, algorithm in enumerate(algorithms):
        groups.setdefault(_key(algorithm, task, joined), []).append(i)
    return list(groups.values())


def _key(algorithm: Algorithm, task: Task, joined: dict[str, str]) -> str:
    work, select = jax.tree.structure(algorithm.work), repr(algorithm.select)
    alone = "gram" in algorithm.rule.needs or isinstance(algorithm.rule, Several) or algorithm.network is not None
    if task.joint and not alone:
        return f"{work} {joined.get(select, select)}"
    return f"{work} {select} {jax.tree.structure((algorithm.rule, algorithm.server))} {algorithm.network!r}"


def _joined_samplings(algorithms: Sequence[Algorithm]) -> dict[str, str]:
    """Samplings that may share a program, by name. A GPU waits for steps, not for runs: once everybody takes part, training
    everybody in all runs costs nothing. On a CPU each run costs, and samplings are better kept apart."""
    names = {repr(a.select): a.select for a in algorithms}
    return dict.fromkeys(names, "joined") if any(isinstance(select, Full) for select in names.values()) else {}


def gather(algorithms: Sequence[Algorithm]) -> Company:
    """Lay companions side by side: equal structures together, those that look at the rows before training last."""
    structures = [str(jax.tree.structure((a.rule, a.server))) for a in algorithms]
    seen = {s: i for i, s in reversed(list(enumerate(structures)))}
    looks = [bool(a.rule.needs & MEASURED) for a in algorithms]
    order = sorted(range(len(algorithms)), key=lambda i: (looks[seen[structures[i]]], seen[structures[i]], i))
    ordered = [algorithms[i] for i in order]
    starts = [at for at, i in enumerate(order) if at == 0 or structures[i] != structures[order[at - 1]]]
    bounds = (*starts, len(order))
    selects, select = _numbered([a.select for a in ordered])
    prepares, prepared = _numbered([a.prepare for a in ordered])
    bands = [Band(*_stacked([(a.rule, a.server) for a in ordered[bounds[b] : bounds[b + 1]]])) for b in range(len(starts))]
    parts = RunParts(
        work=_stacked(_simplified([a.work for a in ordered])),
        bands=tuple(bands),
        prepared=jnp.asarray(prepared) if len(prepares) > 1 else None,
        cohort=jnp.asarray(select) if len(selects) > 1 else None,
    )
    return Company(ordered, [order.index(i) for i in range(len(order))], bounds, parts, selects, prepares)


def _simplified(works: Sequence[Work]) -> Sequence[Work]:
    """Clients' work without what does nothing in any run; as it is where some run needs it, because all share one structure."""
    simple = [work.simplified() if isinstance(work, LocalTraining) else work for work in works]
    return simple if len({str(jax.tree.structure(work)) for work in simple}) == 1 else works


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *trees)


def _numbered(values: Sequence[Any]) -> tuple[tuple[Any, ...], np.ndarray]:
    """The different values in order of appearance, and for each entry which one it is."""
    different = {repr(value): value for value in reversed(values)}
    names = list(dict.fromkeys(map(repr, values)))
    return tuple(different[name] for name in names), np.array([names.index(repr(value)) for value in values], np.int32)


# How a round's clients are shared out: to how many devices, and to how many lanes on each.

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


# Simulations that advance together: each in a thread of its own, their blocks in one program, side by side.
#
# On a GPU the steps of a small model take the time of starting them, not of computing. Seeds and partitions cannot share batches as the
# runs of one seed do, but they can share the start: many of them take hardly longer than the longest.

Advance = Callable[[Task, Shape, RunParts, Data, Block, State], tuple[State, RoundRecord]]


class Ask(NamedTuple):
    """The arguments of one `advance`."""

    task: Task
    parts: RunParts
    data: Data
    block: Block
    state: State

    def form(self, shape: Shape) -> Any:
        """Equal for those that one program can advance side by side."""
        leaves, structure = jax.tree.flatten(self)
        return shape, structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)

    def idle(self) -> "Ask":
        """The same with no round to do."""
        return self._replace(block=self.block._replace(stops=np.full_like(self.block.stops, -1)))


class Meeting:
    """As many seats as there will be simulations. Whoever sits waits until everybody has a block to advance.

    Who has left goes on as an idle member of the programs it took part in: they keep their widths, and are not compiled again.
    """

    def __init__(self, seats: int) -> None:
        self._present = set(range(seats))
        self._asked: dict[int, tuple[Any, Ask]] = {}  # with their form
        self._found: dict[int, tuple[State, RoundRecord] | Exception] = {}
        self._last: dict[int, dict[Any, Ask]] = {seat: {} for seat in range(seats)}  # by form
        self._changed = threading.Condition()

    @contextmanager
    def seat(self, number: int) -> Iterator[Advance]:
        """Sit down, and get what to call instead of `advance`; leave at the end, also after an error."""
        try:
            yield lambda task, shape, *rest: self._ask(number, shape, Ask(task, *rest))
        finally:
            self.leave([number])

    def leave(self, seats: Iterable[int]) -> None:
        """Nobody sits, or will sit, there any more."""
        with self._changed:
            self._present.difference_update(seats)
            self._settle()

    def _ask(self, seat: int, shape: Shape, ask: Ask) -> tuple[State, RoundRecord]:
        form = ask.form(shape)
        with self._changed:
            self._asked[seat] = form, ask
            self._settle()
            self._changed.wait_for(lambda: seat in self._found)
            found = self._found.pop(seat)
        if isinstance(found, Exception):
            raise found
        return found

    def _settle(self) -> None:
        """Once everybody waits, advance all: those of one form together, in the order of their seats."""
        if not self._asked or set(self._asked) != self._present:
            return
        forms: dict[Any, dict[int, Ask]] = {}
        for seat, (form, ask) in self._asked.items():
            forms.setdefault(form, {})[seat] = ask
        for form, asks in forms.items():
            idle = {seat: own[form].idle() for seat, own in self._last.items() if seat not in asks and form in own}
            everyone = dict(sorted({**idle, **asks}.items()))
            try:
                found = dict(zip(everyone, advance_side_by_side(form[0], list(everyone.values())), strict=True))
            except Exception as error:  # all took part in it
                found = dict.fromkeys(everyone, error)
            for seat, ask in asks.items():
                self._found[seat], self._last[seat] = found[seat], {form: ask}
        self._asked.clear()
        self._changed.notify_all()


def advance_side_by_side(shape: Shape, asked: list[Ask]) -> list[tuple[State, RoundRecord]]:
    """`advance` for several at once, in the order given. Nothing is donated: small states are all that is worth it here."""
    return _compiled()(shape, asked)


@cache
def _compiled() -> Any:
    def side_by_side(shape: Shape, asked: list[Ask]) -> list[tuple[State, RoundRecord]]:
        def one(ask: Ask) -> tuple[State, RoundRecord]:
            return stretches(shape._replace(seats=len(asked)), ask.block, (ask.task, ask.parts, ask.data, ask.state))

        found = jax.vmap(one, axis_name=SEATS)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *asked))
        return [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(len(asked))]

    return jax.jit(side_by_side, static_argnames=("shape",), compiler_options=graphs())
