"""Simulate federated training: the host side that feeds the compiled program block by block, and its checkpoints."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenly import __version__, trees
from evenly.algorithms.e2fl import E2FL
from evenly.data.federation import Federation
from evenly.models import check_task
from evenly.models.layers import MOST_ROWS
from evenly.models.task import skeleton
from evenly.parts.groups import membership
from evenly.parts.ranking import MOST_BALLOTS
from evenly.parts.sampling import Full
from evenly.records import replace
from evenly.simulate import program, several
from evenly.simulate.checkpoints import fingerprint, read_checkpoint, write_checkpoint
from evenly.simulate.choosing import Opening, first_choices, nothing_chosen
from evenly.simulate.layout import NEVER, Advance, Shape, State, companions, faster_streamed, gather, shared_out, strides, worth_streaming
from evenly.simulate.measuring import Resident, evaluated_lists, prepared_weights, served
from evenly.simulate.program import advance, whole
from evenly.simulate.schedule import Ahead, Blocks, Pace, Planner, evaluated_after, rounds_at_once
from evenly.simulate.streaming import Streamed, most_rounds
from evenly.simulate.traces import Collected, Observe, Teller, by_group, joined, layer_sizes, owners_of, traces
from evenly.types import Algorithm, Rule, Seeds, Several, Task, Trace, Tree

# Simulate federated training: the host side that feeds the compiled program block by block.

Progress = Callable[[int, int], None]  # rounds done, rounds in all

CHECKPOINT_SECONDS = 20.0
BEGINNING = threading.Lock()  # simulations that begin at once would all compile the same small steps, each for itself


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
    stream: bool | None = None,
    panel: np.ndarray | None = None,
    advance: Advance = advance,
    leave: Callable[[], None] | None = None,
) -> list[Trace]:
    """Train algorithms on one federation, in one program, on shared cohorts and batches; a Trace for each.

    The algorithms must be companions (see there). The model is evaluated before the first
    round, every `evaluate_every` rounds (0: never in between) and after the last. With `checkpoint`, progress is saved
    there now and then; called again with the same arguments, the run goes on from that point, to the same bits. It is left
    there: whoever asked for it removes it once the traces are safe.
    `observe` is told every evaluation once, soon after it was made; a run that goes on begins with those of before.
    `devices` is to how many of JAX's devices clients are dealt, and `lanes` how many train side by side on each; 0 chooses:
    on a CPU one device and one lane; on GPUs many lanes, and all devices unless the model is small. With `stream` the data stay
    where they are, in memory or in a file, and only rows that are needed are moved to the device; by default, data that are
    large, and on a CPU smaller ones where that is faster. `panel` are the numbers of the clients that are evaluated, where not
    all are to be. `advance` is another way to run a block, that of a seat in a Meeting, and `leave` is called when nothing more
    is to be advanced.
    """
    program.keep()
    program.listen()
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}.")
    check_task(task, federation)
    if not algorithms:
        raise ValueError("At least one algorithm is needed, got none.")
    if all(isinstance(a.rule, E2FL) and a.rule.people for a in algorithms):
        if panel is not None:
            raise ValueError(f"{algorithms[0].label}: with people = true all clients are evaluated; leave panel out.")
        federation, owner = by_group(federation, algorithms)
        apart = [replace(a, rule=replace(a.rule, people=False)) for a in algorithms]
        found = simulate(
            task, federation, apart, rounds, seeds=seeds, evaluate_every=evaluate_every, dropout=dropout, progress=progress,
            observe=observe and (lambda seen: observe([joined(trace, federation, owner) for trace in seen])),
            checkpoint=checkpoint, lanes=lanes, devices=devices, stream=stream, advance=advance, leave=leave,
        )  # fmt: skip
        return [joined(trace, federation, owner) for trace in found]
    algorithms = [suited(algorithm, federation) for algorithm in algorithms]
    for algorithm in algorithms:
        refuse_without_validation(algorithm, federation)
    if len(companions(algorithms, task, join=True)) != 1:  # what was joined on a GPU may go on here
        raise ValueError("These algorithms differ in more than numbers and cannot share a program. evenly.train groups them by itself.")
    seeds = seeds or Seeds()
    task = algorithms[0].task(task, seeds)
    panel = None if panel is None else _checked(panel, federation)
    simulation = _Simulation(
        task, federation, algorithms, rounds, seeds, evaluate_every, dropout, lanes, devices, stream, panel, advance
    )  # fmt: skip
    return simulation.run(progress, observe, checkpoint, leave)


class _Simulation:
    """One call of `simulate`: shapes, where the data lie, and the loop over blocks."""

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
        stream: bool | None,
        panel: np.ndarray | None,
        advance: Advance,
    ) -> None:
        self.task, self.federation, self.rounds, self.seeds = task, federation, rounds, seeds
        self.every, self.dropout, self.panel = every, dropout, panel
        self.company = company = gather(algorithms)
        self.algorithms, self.parts = company.algorithms, company.parts
        runs, rule, work = len(algorithms), algorithms[0].rule, algorithms[0].work
        several_models = isinstance(rule, Several)
        if stream and several_models:
            raise ValueError(f"{algorithms[0].label} keeps several models, and needs the data on the device; leave stream out.")
        slots = max(select.slots(federation.census()) for select in company.selects)
        lanes, devices = shared_out(task, company, slots, lanes=lanes, devices=devices)
        planned = partial(
            Planner, federation, work, company.selects, seeds=seeds, dropout=dropout, lanes=lanes, devices=devices
        )  # fmt: skip
        in_turn = whole(task, runs, work.batch_size, lanes)
        if stream is None:
            # Longer steps do not wait for rows, and what shares a program with others must not have tables of its own size.
            small = in_turn and advance is program.advance
            faster = small and faster_streamed(federation, slots, rounds, len(evaluated_after(rounds, every)))
            stream = not several_models and (faster or worth_streaming(federation, runs))
        self.stream = stream
        shape = Shape(
            runs=runs,
            bands=company.bands,
            axis=-1 if task.joint and runs > 1 and not in_turn and not several_models else 0,
            clients=federation.clients,
            groups=len(federation.groups),
            labels=len(federation.labels),
            lanes=lanes,
            **strides(task, runs, lanes, planned().steps)._asdict(),
            devices=devices,
            chunk=256 if jax.default_backend() == "cpu" else 1024,  # a GPU is not filled by less
            # Networks read more rows in a loop of their own, and would do so twice: once for the loss, once for the outcome.
            eval_chunk=MOST_ROWS if jax.default_backend() == "cpu" and not task.joint else 1024,
            lists=0 if self.stream else len(evaluated_lists(federation)[0].counts),
            models=rule.groups if isinstance(rule, Several) else 0,
            whole=in_turn,
        )
        weight = prepared_weights(federation, company.prepares)
        if self.stream:
            memory = jax.eval_shape(lambda: self._first_memory(shape, self._first_model(shape)))
            most = most_rounds(federation, planned().slots, memory)
            blocks = Blocks(planned(), rounds=rounds, every=every, runs=runs, cells=0, most=most)
            shape = shape._replace(clients=min(blocks.rounds * planned().slots, federation.clients))
            watched = np.arange(federation.clients, dtype=np.int32) if panel is None else panel
            self.source = Streamed(federation, weight, watched, task, shape, self.parts, advance, memory)
            self.blocks = Blocks(planned(hold=self.source.hold), rounds=rounds, every=every, runs=runs, cells=0, most=most)
        else:
            self.source = Resident(federation, weight, task, shape, self.parts, advance)
            cells = shape.owners * shape.groups * shape.labels**2 * runs
            self.blocks = Blocks(planned(), rounds=rounds, every=every, runs=runs, cells=cells, most=rounds_at_once(rounds, in_turn))
        self.shape = shape
        # Blocks of other lengths would be other programs, or keep those waiting who advance side by side with us.
        self.steady = self.stream or shape.whole or advance is not program.advance

    def run(self, progress: Progress | None, observe: Observe | None, path: Path | None, leave: Callable[[], None] | None) -> list[Trace]:
        with BEGINNING:
            state, collected, done = self._first_state(), Collected([], [], [], [], [], [], []), 0
        name = self._fingerprint() if path else ""
        if path and (saved := read_checkpoint(path, name)):
            done, leaves = saved
            state, collected = _restored(leaves, jax.tree.structure(state))
            state = self.source.unpacked(state)
        elif isinstance(self.source, Resident) and self.shape.models:
            ask = Opening(self.task, self.shape, self.parts, self.source.data, state, self.federation, self.seeds)
            state = state._replace(chosen=first_choices(ask, self.algorithms))
        state = self.source.to_device(state)
        teller = Teller(observe, self.federation, self.panel, self.company.place)
        if not done:
            self._evaluate(collected, state, 0)
        teller.new(collected.evaluations)
        pace = Pace(self.blocks.rounds if self.steady else 1, self.steady)
        with ThreadPoolExecutor(max_workers=1) as planning:  # blocks are drawn, and their rows gathered, while the device works
            ahead = planning.submit(self.blocks.next, done, pace.rounds)
            written, pause = time.monotonic(), CHECKPOINT_SECONDS
            while (now := ahead.result()) is not None:
                ahead, before = planning.submit(self.blocks.next, now.stop, pace.rounds), state
                begun = time.monotonic()
                state, record = self.source.advance(now.block, before)
                self._collect(collected, now, record)
                state = self.source.settle(now.block, before, state)
                self._refuse_broken(state, now.start)
                self._evaluate(collected, state, now.stop)
                pace.note(now.stop - now.start, time.monotonic() - begun)
                try:
                    teller.new(collected.evaluations)
                    if progress:
                        progress(now.stop, self.rounds)
                except BaseException:  # the caller wants to stop here: lose nothing
                    if path:
                        write_checkpoint(path, name, now.stop, (self.source.packed(state), collected.whole()))
                    raise
                if path and now.stop < self.rounds and time.monotonic() - written > pause:
                    began = time.monotonic()
                    write_checkpoint(path, name, now.stop, (self.source.packed(state), collected.whole()))
                    written = time.monotonic()
                    pause = max(CHECKPOINT_SECONDS, 10 * (written - began - 1))  # clients' memories may be gigabytes
        rule = self.algorithms[0].rule
        if isinstance(rule, Several) and rule.final_pass:
            state = self._final_pass(state, collected)
            teller.new(collected.evaluations)
        model = several.served(self.parts, state) if self.shape.models else served(self.shape, self.parts, state)
        if leave:
            leave()
        # On the host from here on: taking runs apart one by one, a device would be asked thousands of times.
        state = jax.tree.map(np.asarray, state._replace(model=model, server=(), memory=(), chosen=()))
        sizes = layer_sizes(skeleton(self.task))
        return traces(collected.whole(), state, self.federation, self.panel, self.company, self.shape, sizes)

    def _first_model(self, shape: Shape) -> Tree:
        return trees.repeat(first_model(self.task, self.algorithms[0].rule, self.seeds), shape.runs, shape.axis)

    def _first_memory(self, shape: Shape, models: Tree) -> Tree:
        """What each client remembers at first."""
        return jax.vmap(lambda work, m: work.remember(m), (0, shape.axis), shape.axis)(self.parts.work, models)

    def _first_state(self) -> State:
        shape, census = self.shape, self.federation.census()
        models = self._first_model(shape)
        rules, servers = [], []
        for i, band in enumerate(self.parts.bands):
            size = shape.bands[i + 1] - shape.bands[i]
            with _on_host():
                rules.append(jax.vmap(lambda rule: rule.init(census), axis_size=size)(band.rule))
            start = jax.vmap(lambda server, m: server.init(m), (0, shape.axis))
            servers.append(() if band.server is None else start(band.server, trees.cut(models, shape.band(i), shape.axis)))
        state = State(
            model=models,
            rule=jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, tuple(rules))),
            server=tuple(servers),
            memory=(),
            excluded=(),
            broken=jnp.full(shape.runs, NEVER, jnp.int32),
            chosen=nothing_chosen(shape) if shape.models else (),
        )
        return self.source.begin(state, self._first_memory(shape, models))

    def _collect(self, collected: Collected, now: Ahead, record: Any) -> None:
        collected.add_rounds(now.block, record, now.stop - now.start)
        self._collect_evaluations(collected, now.block, record, now.start)

    def _collect_evaluations(self, collected: Collected, block: Any, record: Any, start: int) -> None:
        panel = slice(None) if self.panel is None else self.panel
        owners = slice(None) if self.panel is None else owners_of(self.panel, self.federation.clients)
        collected.add_evaluations(block, record, start, owners, panel)

    def _evaluate(self, collected: Collected, state: State, done: int) -> None:
        """Evaluate after so many rounds, if it is time; where all data are on the device, the program has done it."""
        if isinstance(self.source, Streamed) and done in self.blocks.evaluations():
            tables, losses = self.source.evaluate(state)
            none = np.zeros((1, 0, self.shape.runs), np.int32)
            collected.add_evaluation(np.array([done], np.int32), tables[None], losses[None], none)

    def _final_pass(self, state: State, collected: Collected) -> State:
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
            steps=everyone.most_steps_per_round,
            stops=np.array([1], np.int32),
            evaluate=np.array([True]),
        )
        state, record = self.source.advance(block, state)
        self._collect_evaluations(collected, block, record, self.rounds)
        return state

    def _refuse_broken(self, state: State, start: int) -> None:
        broken = np.asarray(state.broken)
        if (broken < NEVER).any():
            run = int(broken.argmin())
            raise ValueError(
                f"{self.algorithms[run].label}: the weights of round {start + int(broken[run])} are not finite. "
                "A loss was negative or too large for this method; check the model's loss and the learning rate."
            )

    def _fingerprint(self) -> str:
        plain = [replace(a, select=Full(), prepare=None, label="") for a in self.algorithms]
        shared = [self.shape.lanes, self.shape.devices, self.shape.whole]  # sums in another order have other last bits
        settings: list[Any] = [self.rounds, self.every, self.dropout, self.blocks.rounds, shared, jax.__version__, __version__]
        settings += [self.stream, self.panel if self.panel is None else self.panel.tolist()]
        return fingerprint(
            self.federation, settings, plain, [repr((a.select, a.prepare)) for a in self.algorithms], repr(self.seeds), _stable(self.task)
        )


def _checked(panel: np.ndarray, federation: Federation) -> np.ndarray:
    panel = np.asarray(panel)
    whole = panel.ndim == 1 and len(panel) > 0 and panel.dtype.kind in "iu"
    if not whole or panel.min() < 0 or panel.max() >= federation.clients or len(np.unique(panel)) < len(panel):
        raise ValueError(f"panel must be different numbers of clients from 0 to {federation.clients - 1}, at least one, got {panel}.")
    return panel.astype(np.int32)


def _on_host() -> AbstractContextManager[Any]:
    """For many tiny steps, each of which a GPU would have to compile and start; where JAX was told to do without the CPU, there."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return nullcontext()


def _restored(leaves: list[np.ndarray], structure: Any) -> tuple[State, Collected]:
    own = structure.num_leaves
    return jax.tree.unflatten(structure, leaves[:own]), Collected(*([leaf] for leaf in leaves[own:]))


def _stable(task: Task) -> str:
    """A task as text, without the addresses of functions, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(task))


def suited(algorithm: Algorithm, federation: Federation) -> Algorithm:
    """The algorithm with its number of models, where the federation decides it; raises where the two do not fit."""
    if algorithm.network is not None:
        _check_ballots(algorithm, federation)
    rule = algorithm.rule
    if not isinstance(rule, Several):
        return algorithm
    given = federation.client_group
    known = rule.inference == "known" or rule.known_votes
    if known and given is None:
        raise ValueError(
            f"{algorithm.label}: the data do not say which group each client belongs to (client_group). "
            "Give it, or let groups be inferred, such as e2fl(inference=lowest-loss, groups=2)."
        )
    groups = rule.groups or (0 if given is None else int(given.max()) + 1)
    if not groups:
        raise ValueError(f"{algorithm.label}: say how many groups there are, such as groups=2; the data do not.")
    if groups > federation.clients:
        raise ValueError(f"{algorithm.label}: {groups} groups need at least as many clients, but there are {federation.clients}.")
    if known:
        _check_membership(algorithm.label, given, groups)
    if rule.groups:
        return algorithm
    server = algorithm.server
    return replace(algorithm, rule=replace(rule, groups=groups), server=server and replace(server, groups=groups))


def refuse_without_validation(algorithm: Algorithm, federation: Federation) -> None:
    """Raise if clients are to measure on validation rows and nobody has any."""
    if "valid_table" in algorithm.rule.needs and not len(federation.valid.rows):
        raise ValueError(
            f"{algorithm.label}: clients measure on validation rows, but {federation.name or 'the data'} hold none out. "
            "Hold some out, or leave measured_on out to measure on training rows."
        )


def _check_membership(label: str, given: np.ndarray | None, groups: int) -> None:
    try:
        membership(given, groups)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None


def _check_ballots(algorithm: Algorithm, federation: Federation) -> None:
    rule = algorithm.rule
    everyone = isinstance(rule, Several) and rule.final_pass
    slots = federation.clients if everyone else algorithm.select.slots(federation.census())
    if slots > MOST_BALLOTS:
        raise ValueError(f"{algorithm.label}: at most {MOST_BALLOTS} clients can vote in a round, got {slots}. Sample fewer.")


def first_model(task: Task, rule: Rule, seeds: Seeds) -> Tree:
    """One first model; or, where clients train several apart, as many different ones, of which the first is the usual."""
    key = jax.random.key(seeds.model)
    if not (isinstance(rule, Several) and rule.apart):
        return task.init(key)
    others = [jax.random.fold_in(key, q) for q in range(1, rule.groups)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(task.init(k) for k in (key, *others)))
