"""Simulate federated training: the host side that feeds the compiled program block by block."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly import __version__, trees
from evenly.algorithms.e2fl import E2FL
from evenly.federation import Federation
from evenly.metrics.communication import layer_sizes
from evenly.models import check_task
from evenly.records import replace
from evenly.sampling import Full
from evenly.simulate import beginning, people, several
from evenly.simulate import checkpoint as checkpoints
from evenly.simulate.company import companions, gather
from evenly.simulate.cost import cost_of
from evenly.simulate.device import device_data, evaluated_lists, prepared_weights
from evenly.simulate.evaluation import served
from evenly.simulate.layout import NEVER, Chosen, Data, Shape, State
from evenly.simulate.meeting import Advance
from evenly.simulate.multidevice import on_every_device
from evenly.simulate.observing import Observe, Teller, evaluated
from evenly.simulate.plan import Block, Planner
from evenly.simulate.program import Record, advance
from evenly.simulate.sharing import shared_out, stride
from evenly.types import Algorithm, ReportingRule, Seeds, Several, Task, Trace

Progress = Callable[[int, int], None]  # rounds done, rounds in all

LARGEST_BLOCK_ROWS = 2**21  # row numbers planned at a time: 8 MiB
LARGEST_BLOCK_CELLS = 2**22  # table cells kept on the device at a time
CHECKPOINT_SECONDS = 20.0
BEGINNING = threading.Lock()  # simulations that begin at once would all compile the same small steps, each for itself


class Collected(NamedTuple):
    """What finished blocks have left, on the host."""

    cohort: list[np.ndarray]
    chosen: list[np.ndarray]  # [rounds, K, selects]; no selects where there is one sampling only
    weights: list[np.ndarray]
    rounds: list[np.ndarray]
    tables: list[np.ndarray]
    losses: list[np.ndarray]
    choice: list[np.ndarray]  # [evaluations, clients, runs]; no clients where there is one model for all

    @property
    def evaluations(self) -> tuple[list[np.ndarray], ...]:
        return self.rounds, self.tables, self.losses, self.choice

    def whole(self) -> tuple[np.ndarray, ...]:
        return tuple(np.concatenate(pieces) for pieces in self)


def simulate(
    task: Task,
    federation: Federation,
    algorithms: Sequence[Algorithm],
    rounds: int,
    *,
    seeds: Seeds | None = None,
    evaluate_every: int = 0,
    dropout: float = 0.0,
    progress: Progress | None = None,
    observe: Observe | None = None,
    checkpoint: Path | None = None,
    lanes: int = 0,
    devices: int = 0,
    advance: Advance = advance,
) -> list[Trace]:
    """Train algorithms on one federation, in one program, on shared cohorts and batches; a Trace for each.

    The algorithms must be companions (see there). The model is evaluated before the first
    round, every `evaluate_every` rounds (0: never in between) and after the last. With `checkpoint`, progress is saved
    there now and then; called again with the same arguments, the run goes on from that point, to the same bits. It is left
    there: whoever asked for it removes it once the traces are safe.
    `observe` is told every evaluation once, soon after it was made; a run that goes on begins with those of before.
    `devices` is to how many of JAX's devices clients are dealt, and `lanes` how many train side by side on each; 0 chooses:
    on a CPU one device and one lane; on GPUs many lanes, and all devices unless the model is small. `advance` is another way
    to run a block: that of a seat in a Meeting.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}.")
    check_task(task, federation)
    if not algorithms:
        raise ValueError("At least one algorithm is needed, got none.")
    if all(isinstance(a.rule, E2FL) and a.rule.people for a in algorithms):
        federation, owner = people.by_group(federation, algorithms)
        apart = [replace(a, rule=replace(a.rule, people=False)) for a in algorithms]
        found = simulate(
            task, federation, apart, rounds, seeds=seeds, evaluate_every=evaluate_every, dropout=dropout, progress=progress,
            observe=observe and (lambda seen: observe([people.joined(trace, federation, owner) for trace in seen])),
            checkpoint=checkpoint, lanes=lanes, devices=devices, advance=advance,
        )  # fmt: skip
        return [people.joined(trace, federation, owner) for trace in found]
    algorithms = [beginning.suited(algorithm, federation) for algorithm in algorithms]
    if len(companions(algorithms, task, join=True)) != 1:  # what was joined on a GPU may go on here
        raise ValueError("These algorithms differ in more than numbers and cannot share a program; group them with companions().")
    seeds = seeds or Seeds()
    task = algorithms[0].task(task, seeds)
    simulation = _Simulation(task, federation, algorithms, rounds, seeds, evaluate_every, dropout, lanes, devices, advance)
    return simulation.run(progress, observe, checkpoint)


class _Simulation:
    """One call of `simulate`: shapes, device data and the loop over blocks."""

    def __init__(
        self,
        task: Task,
        federation: Federation,
        algorithms: Sequence[Algorithm],
        rounds: int,
        seeds: Seeds,
        every: int,
        dropout: float,
        lanes: int,
        devices: int,
        advance: Advance,
    ) -> None:
        self.task, self.federation, self.rounds, self.seeds = task, federation, rounds, seeds
        self.every, self.dropout, self.advance = every, dropout, advance
        self.company = company = gather(algorithms)
        self.algorithms = company.algorithms
        self.parts = company.parts
        runs, rule = len(algorithms), algorithms[0].rule
        slots = max(select.slots(federation.census()) for select in company.selects)
        lanes, devices = shared_out(task, company, slots, lanes=lanes, devices=devices)
        self.planner = Planner(federation, algorithms[0].work, company.selects, seeds=seeds, dropout=dropout, lanes=lanes, devices=devices)
        self.shape = Shape(
            runs=runs,
            bands=company.bands,
            axis=-1 if task.joint and runs > 1 and not isinstance(rule, Several) else 0,
            clients=federation.clients,
            groups=len(federation.groups),
            labels=len(federation.labels),
            lanes=lanes,
            stride=stride(task, runs, lanes),
            devices=devices,
            chunk=256 if jax.default_backend() == "cpu" else 1024,  # a GPU is not filled by less
            eval_chunk=1024,
            lists=len(evaluated_lists(federation)[0].counts),
            models=rule.groups if isinstance(rule, Several) else 0,
        )
        cells = self.shape.owners * self.shape.groups * self.shape.labels**2 * runs
        # At least two: the evaluation before the first round, and one that ends the block.
        self.stops = int(np.clip(LARGEST_BLOCK_CELLS // cells, 2, 64))
        self.steps = max(self.planner.steps_per_round(), 1)
        # A block is as many rounds as fit into arrays whose sizes do not depend on how rows are dealt to clients: partitions of
        # the same rows then share a compiled program.
        most = max(LARGEST_BLOCK_ROWS // (self.planner.batch * lanes), 1)
        self.block_steps = max(_rounded(min(rounds * self.steps, most)), self.steps)
        self.padded_rounds = int(np.clip(LARGEST_BLOCK_CELLS // (self.planner.slots * runs), 1, min(1024, rounds)))
        self.block_rounds = int(np.clip(self.block_steps // self.steps, 1, self.padded_rounds))

    def run(self, progress: Progress | None, observe: Observe | None, path: Path | None) -> list[Trace]:
        data = device_data(self.federation, prepared_weights(self.federation, self.company.prepares), self.shape.eval_chunk)
        data = on_every_device(data, self.shape.devices)
        with BEGINNING:
            state, collected, done = self._initial_state(), Collected([], [], [], [], [], [], []), 0
        name = self._fingerprint() if path else ""
        if path and (saved := checkpoints.read(path, name)):
            done, leaves = saved
            state, collected = _restored(leaves, jax.tree.structure(state))
        elif self.shape.models:
            state = state._replace(chosen=self._first_choices(data, state))
        state = on_every_device(state, self.shape.devices)
        rule = self.algorithms[0].rule
        teller = Teller(observe, self.federation, self.shape, self.company.place)
        teller.new(collected.evaluations)
        ahead = self._next_block(done) if done < self.rounds else None
        written, pause = time.monotonic(), CHECKPOINT_SECONDS
        while ahead is not None:
            start, stop, block = ahead
            state, record = self.advance(self.task, self.shape, self.parts, data, block, state)
            ahead = self._next_block(stop) if stop < self.rounds else None  # drawn while the device works
            _collect(collected, block, record, start, stop)
            self._refuse_broken(state, start)
            try:
                teller.new(collected.evaluations)
                if progress:
                    progress(stop, self.rounds)
            except BaseException:  # the caller wants to stop here: lose nothing
                if path:
                    checkpoints.write(path, name, stop, (state, collected.whole()))
                raise
            if path and ahead is not None and time.monotonic() - written > pause:
                began = time.monotonic()
                checkpoints.write(path, name, stop, (state, collected.whole()))
                written = time.monotonic()
                pause = max(CHECKPOINT_SECONDS, 10 * (written - began - 1))  # clients' memories may be gigabytes
        if isinstance(rule, Several) and rule.final_pass:
            state = self._final_pass(data, state, collected)
            teller.new(collected.evaluations)
        whole = collected.whole()
        model = several.served(self.parts, state) if self.shape.models else served(self.shape, self.parts, state)
        # On the host from here on: taking runs apart one by one, a device would be asked thousands of times.
        state = jax.tree.map(np.asarray, state._replace(model=model, server=(), memory=(), chosen=()))
        sizes = layer_sizes(jax.eval_shape(self.task.init, jax.random.key(0)))
        traces = [self._trace(whole, state, sizes, r) for r in range(self.shape.runs)]
        return [traces[self.company.place[i]] for i in range(self.shape.runs)]

    def _initial_state(self) -> State:
        runs, axis = self.shape.runs, self.shape.axis
        model = beginning.first_model(self.task, self.algorithms[0].rule, self.seeds)
        census = self.federation.census()
        copies = trees.repeat(model, runs, axis)
        memory = jax.vmap(lambda work, m: work.remember(m), (0, axis), axis)(self.parts.work, copies)
        rules, servers = [], []
        for i, band in enumerate(self.parts.bands):
            size = self.shape.bands[i + 1] - self.shape.bands[i]
            with _on_host():
                rules.append(jax.vmap(lambda rule: rule.init(census), axis_size=size)(band.rule))
            start = jax.vmap(lambda server, m: server.init(m), (0, axis))
            servers.append(() if band.server is None else start(band.server, trees.cut(copies, self.shape.band(i), axis)))
        return State(
            model=copies,
            rule=jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, tuple(rules))),
            server=tuple(servers),
            memory=trees.repeat(memory, self.shape.clients),
            excluded=jnp.zeros((self.shape.clients, runs), jnp.int32),
            broken=jnp.full(runs, NEVER, jnp.int32),
            chosen=beginning.nothing_chosen(self.shape) if self.shape.models else (),
        )

    def _first_choices(self, data: Data, state: State) -> Chosen:
        ask = beginning.Opening(self.task, self.shape, self.parts, data, state, self.federation, self.seeds)
        return beginning.first_choices(ask, self.algorithms)

    def _final_pass(self, data: Data, state: State, collected: Collected) -> State:
        """One more round in which everybody takes part, and an evaluation of what it leads to."""
        everyone = Planner(
            self.federation,
            self.algorithms[0].work,
            [Full()],
            seeds=self.seeds,
            dropout=self.dropout,
            lanes=self.shape.lanes,
            devices=self.shape.devices,
        )
        block = everyone.block(
            self.rounds,
            self.rounds + 1,
            rounds=1,
            steps=everyone.steps_per_round(),
            stops=np.array([1], np.int32),
            evaluate=np.array([True]),
        )
        state, record = self.advance(self.task, self.shape, self.parts, data, block, state)
        _collect_evaluations(collected, block, record, self.rounds)
        return state

    def _next_block(self, start: int) -> tuple[int, int, Block]:
        """Plan the rounds from `start`: as many as fit, with the evaluations that fall among them."""
        marks = [t for t in self._evaluations() if t >= start and (t > start or start == 0)]
        stop = min(start + self.block_rounds, self.rounds)
        if len(marks) > self.stops:  # the first evaluation that does not fit ends the block
            stop = min(stop, marks[self.stops - 1])
        inside = [t for t in marks if t <= stop][: self.stops]
        ends = inside if inside and inside[-1] == stop else [*inside, stop]
        stops = np.full(self.stops + 1, -1, np.int32)
        stops[: len(ends)] = np.array(ends) - start
        evaluate = np.zeros(self.stops + 1, bool)
        evaluate[: len(inside)] = True
        block = self.planner.block(start, stop, rounds=self.padded_rounds, steps=self.block_steps, stops=stops, evaluate=evaluate)
        return start, stop, block

    def _evaluations(self) -> list[int]:
        inner = range(self.every, self.rounds, self.every) if self.every else ()
        return [0, *inner, self.rounds]

    def _refuse_broken(self, state: State, start: int) -> None:
        broken = np.asarray(state.broken)
        if (broken < NEVER).any():
            run = int(broken.argmin())
            raise ValueError(
                f"{self.algorithms[run].label}: the weights of round {start + int(broken[run])} are not finite. "
                "A loss was negative or too large for this method; check the model's loss and the learning rate."
            )

    def _trace(self, whole: tuple[np.ndarray, ...], state: State, sizes: Sequence[int], run: int) -> Trace:
        shape = self.shape
        cohort, chosen, weights, *seen = whole
        own, weights = cohort, weights[..., run]
        if self.parts.cohort is not None:  # of everybody who trained, those whom this run's sampling chose
            mine = chosen[..., int(self.parts.cohort[run])]
            slots = np.argsort(~mine, axis=1, kind="stable")[:, : int(mine[0].sum())]
            own, weights = np.take_along_axis(cohort, slots, 1), np.take_along_axis(weights, slots, 1)
        algorithm = self.algorithms[run]
        cost = cost_of(algorithm, sizes, shape)
        return Trace(
            **evaluated(self.federation, shape, seen, run),
            cohort=own,
            weights=weights,
            excluded=np.asarray(state.excluded)[:, run],
            upload=cost.up,
            download=cost.down,
            model=jax.tree.map(np.array, trees.take(state.model, run, shape.axis)),  # its own, not a view of all
            reports=self._reports(state, run),
        )

    def _reports(self, state: State, run: int) -> dict[str, float]:
        rule = self.algorithms[run].rule
        if not isinstance(rule, ReportingRule):
            return {}
        band = int(np.searchsorted(self.shape.bands, run, side="right")) - 1
        own = trees.take(state.rule[band], run - self.shape.bands[band])
        return {name: float(value) for name, value in rule.report(own).items()}

    def _fingerprint(self) -> str:
        plain = [replace(a, select=Full(), prepare=None, label="") for a in self.algorithms]
        shared = [self.shape.lanes, self.shape.devices]  # sums in another order have other last bits
        settings: list[Any] = [self.rounds, self.every, self.dropout, self.block_rounds, shared, jax.__version__, __version__]
        return checkpoints.fingerprint(
            self.federation, settings, plain, [repr((a.select, a.prepare)) for a in self.algorithms], repr(self.seeds), _stable(self.task)
        )


def _on_host() -> AbstractContextManager[Any]:
    """For many tiny steps, each of which a GPU would have to compile and start; where JAX was told to do without the CPU, there."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return nullcontext()


def _collect(collected: Collected, block: Block, record: Record, start: int, stop: int) -> None:
    """Bring a block's results to the host; this waits for the device."""
    collected.cohort.append(block.cohort[: stop - start])
    collected.chosen.append(np.zeros((stop - start, 0, 0), bool) if block.chosen is None else block.chosen[: stop - start])
    collected.weights.append(np.asarray(record.weights)[: stop - start])
    _collect_evaluations(collected, block, record, start)


def _collect_evaluations(collected: Collected, block: Block, record: Record, start: int) -> None:
    marked = np.flatnonzero(block.evaluate)
    if len(marked):
        collected.rounds.append(start + block.stops[marked])
        collected.tables.append(np.asarray(record.tables)[marked])
        collected.losses.append(np.asarray(record.losses)[marked])
        none = np.zeros((len(record.losses), 0, 0), np.int32)
        collected.choice.append((none if record.choice is None else np.asarray(record.choice))[marked])


def _restored(leaves: list[np.ndarray], structure: Any) -> tuple[State, Collected]:
    own = structure.num_leaves
    state = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves[:own]])
    return state, Collected(*([leaf] for leaf in leaves[own:]))


def _rounded(n: int) -> int:
    """The next number with at most three significant bits after the first."""
    step = 2 ** max(0, n.bit_length() - 4)
    return -(-n // step) * step


def _stable(task: Task) -> str:
    """A task as text, without the addresses of functions, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(task))
