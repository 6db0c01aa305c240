"""Simulate federated training: the host's side, which feeds the compiled program block by block."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenly import __version__, trees
from evenly.data.federation import Federation
from evenly.models import check_task
from evenly.models.layers import MOST_ROWS
from evenly.models.task import skeleton
from evenly.parts.row_privacy import PrivateTraining
from evenly.parts.sampling import Full
from evenly.privacy.row_account import calibrated
from evenly.records import replace
from evenly.round import Memory, form_of_own
from evenly.simulate import private_signals, program_cache
from evenly.simulate.checkpoints import CheckpointFile, fingerprint, task_text
from evenly.simulate.choosing import (
    ChoiceSetup,
    fit_to_data,
    initial_choices,
    initial_model,
    no_choices,
    served_models,
)
from evenly.simulate.gating import first_gates, gates_of
from evenly.simulate.layout import (
    NEVER,
    Advance,
    ClientMemories,
    ProgramSpec,
    Shape,
    State,
    choose_lanes,
    choose_strides,
    companions,
    faster_to_stream,
    group_runs,
    worth_streaming,
)  # fmt: skip
from evenly.simulate.measuring import (
    Resident,
    check_evaluated,
    evaluation_lists,
    prepare_weights,
    served_model,
)
from evenly.simulate.program import advance, fuses_loops, on_host
from evenly.simulate.schedule import (
    Block,
    Blocks,
    LoadBlock,
    Pace,
    PlannedBlock,
    Planner,
    block_rounds,
    evaluation_rounds,
)
from evenly.simulate.streaming import HostMemories, Streamed, most_rounds
from evenly.simulate.traces import (
    EvaluationFeed,
    Observe,
    RunHistory,
    join_people,
    layer_sizes,
    make_traces,
    row_owners,
    split_people,
)
from evenly.types import Algorithm, Rule, Seeds, Task, Trace, Tree

Progress = Callable[[int, int], None]  # rounds done, rounds in all

# simulations that begin at once would otherwise compile the same small steps several times
BEGINNING = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a simulation.

    Attributes:
        seeds: Seeds for initial model, client sampling and batches. Zeros by default.
        evaluate_every: Evaluate every this many rounds. With 0, evaluate only before the first and
            after the last round.
        dropout: Probability that a client of the cohort does not return.
        lanes: Clients that train side by side on a device. With 0, one on a CPU and many on a GPU.
        devices: Number of JAX devices to spread clients over. With 0, one on a CPU; on GPUs all,
            unless the model is small.
        stream: Whether the data stay on the host and only the rows in use are moved to the device.
            None streams large data, and on a CPU also smaller data where that is faster.
        panel: Numbers of the evaluated clients, where not all are evaluated.
        checkpoint: File to save progress to. A call with the same arguments resumes from it with
            the same bits. The file is not removed.
        progress: Called after each block with the rounds done and the number of rounds.
        observe: Called with each evaluation once. A resumed run begins with the evaluations before
            the interruption.
        advance: Function that runs a block: `evenly.simulate.advance`, or that of a member of a
            SeedBatch.
        leave: Called when no block is left to advance.
        memories: Whether traces hold what clients remember.
    """

    seeds: Seeds | None = None
    evaluate_every: int = 0
    dropout: float = 0.0
    lanes: int = 0
    devices: int = 0
    stream: bool | None = None
    panel: np.ndarray | None = None
    checkpoint: Path | None = None
    progress: Progress | None = None
    observe: Observe | None = None
    advance: Advance = advance
    leave: Callable[[], None] | None = None
    memories: bool = False


def simulate(
    task: Task,
    federation: Federation,
    algorithms: Sequence[Algorithm],
    rounds: int,
    settings: RunSettings | None = None,
    **options: Any,
) -> list[Trace]:
    """Train algorithms on one federation in one program, on the same cohorts and batches.

    Args:
        task: Model and loss.
        federation: Clients and their data.
        algorithms: Algorithms that can share a program (see `companions`).
        rounds: Number of communication rounds.
        settings: All other settings.
        **options: Single fields of the settings, such as ``evaluate_every=10``.

    Returns:
        One trace for each algorithm.

    Raises:
        ValueError: If the algorithms cannot share a program, or do not fit the task or the
            federation.
    """
    settings = replace(settings or RunSettings(), **options)
    program_cache.enable_cache()
    program_cache.record_compile_times()
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}.")
    check_task(task, federation)
    if not algorithms:
        raise ValueError("At least one algorithm is needed, got none.")
    if all(algorithm.rule.people for algorithm in algorithms):
        return _simulate_people(task, federation, algorithms, rounds, settings)
    census, client_group = federation.census(), federation.client_group
    # Most methods have one model, whose form does not depend on the clients.
    algorithms = [
        one
        if one.rule.groups is None and one.network is None
        else fit_to_data(one, census, client_group)
        for one in algorithms
    ]
    algorithms = [calibrated(one, rounds) for one in algorithms]
    for algorithm in algorithms:
        refuse_without_validation(algorithm, federation)
    # a run that was joined with others on a GPU may resume here
    if len(companions(algorithms, task, join=True)) != 1:
        raise ValueError(
            "These algorithms differ in more than numbers and cannot share a program. evenly.train"
            " groups them by itself."
        )
    seeds = settings.seeds or Seeds()
    panel = None if settings.panel is None else check_evaluated(settings.panel, federation)
    return _Simulation(
        algorithms[0].task(task, seeds),
        federation,
        algorithms,
        rounds,
        replace(settings, seeds=seeds, panel=panel),
    ).run()


def _simulate_people(
    task: Task,
    federation: Federation,
    algorithms: Sequence[Algorithm],
    rounds: int,
    settings: RunSettings,
) -> list[Trace]:
    """Simulate each group of people of a client as a client of its own, and join their traces."""
    if settings.panel is not None:
        raise ValueError(
            f"{algorithms[0].label}: with people = true all clients are evaluated; leave panel out."
        )
    names = federation.names
    federation, owner = split_people(federation, algorithms)
    plain = [replace(a, rule=replace(a.rule, people=False)) for a in algorithms]

    def join(traces: list[Trace]) -> list[Trace]:
        return [join_people(trace, owner, names) for trace in traces]

    observe = settings.observe
    settings = replace(settings, observe=observe and (lambda traces: observe(join(traces))))
    return join(simulate(task, federation, plain, rounds, settings))


class _Simulation:
    """One call of `simulate`: its shape, its source of data, and the loop over blocks."""

    def __init__(
        self,
        task: Task,
        federation: Federation,
        algorithms: Sequence[Algorithm],
        rounds: int,
        settings: RunSettings,
    ) -> None:
        self.task, self.federation, self.rounds, self.settings = task, federation, rounds, settings
        self.seeds, self.evaluated_clients = settings.seeds or Seeds(), settings.panel
        census = federation.census()
        gates = gates_of(task, algorithms, census, rounds)
        self.run_group = group_runs(algorithms, gates)
        self.algorithms, self.parts = self.run_group.algorithms, self.run_group.parts
        self.rule, self.work = algorithms[0].rule, algorithms[0].work
        if settings.stream and self.rule.groups is not None:
            raise ValueError(
                f"{algorithms[0].label} keeps several models, and needs the data on the device;"
                " leave stream out."
            )
        self.slots = max(select.slots(census) for select in self.run_group.selects)
        self.lanes, self.devices = choose_lanes(
            task, self.run_group, self.slots, lanes=settings.lanes, devices=settings.devices
        )
        self.private = isinstance(self.work, PrivateTraining)  # rows are clipped one by one
        batch = self.work.batch_size
        fused = not self.private and fuses_loops(task, len(algorithms), batch, self.lanes)
        self.stream = self._streams(fused) if settings.stream is None else settings.stream
        self.shape = self._choose_shape(fused)
        weight = prepare_weights(federation, self.run_group.prepares, self.seeds.batches)
        self.source, self.blocks = (
            self._stream_data(weight) if self.stream else self._load_data(weight)
        )
        # Blocks of other lengths would need other programs, or would let the other members of a
        # seed batch wait.
        self.steady = self.stream or fused or settings.advance is not advance

    def _streams(self, fused: bool) -> bool:
        """Whether data are streamed, where the caller does not decide."""
        # Longer steps do not wait for rows. Members of a seed batch must not have tables of
        # different sizes.
        small = fused and self.settings.advance is advance
        evaluations = len(evaluation_rounds(self.rounds, self.settings.evaluate_every))
        faster = small and faster_to_stream(self.federation, self.slots, self.rounds, evaluations)
        return self.rule.groups is None and (
            faster or worth_streaming(self.federation, len(self.algorithms))
        )

    def _choose_shape(self, fused: bool) -> Shape:
        """The shape of the program with all clients on the device."""
        runs, cpu = len(self.algorithms), jax.default_backend() == "cpu"
        several, joint = self.rule.groups is not None, self.task.joint and not self.private
        return Shape(
            runs=runs,
            bounds=self.run_group.bounds,
            axis=-1 if joint and runs > 1 and not fused and not several else 0,
            clients=self.federation.clients,
            groups=len(self.federation.groups),
            labels=len(self.federation.labels),
            lanes=self.lanes,
            **choose_strides(self.task, runs, self.lanes, self._planner().steps)._asdict(),
            devices=self.devices,
            chunk=256 if cpu else 1024,  # fewer rows do not fill a GPU
            # Networks read more rows in a loop of their own, and would do so twice: for the loss
            # and for the outcome.
            eval_chunk=MOST_ROWS if cpu and not self.task.joint else 1024,
            lists=0 if self.stream else len(evaluation_lists(self.federation)[0].counts),
            models=self.rule.groups or 0,
            fused=fused,
        )

    def _planner(self, load_block: LoadBlock | None = None) -> Planner:
        return Planner(
            self.federation, self.work, self.run_group.selects, seeds=self.seeds,
            dropout=self.settings.dropout, lanes=self.lanes, devices=self.devices,
            load_block=load_block,
        )  # fmt: skip

    def _blocks(self, planner: Planner, cells: int, most: int) -> Blocks:
        return Blocks(
            planner,
            rounds=self.rounds,
            every=self.settings.evaluate_every,
            runs=self.shape.runs,
            cells=cells,
            most=most,
        )

    def _spec(self) -> ProgramSpec:
        return ProgramSpec(self.task, self.shape, self.parts, self.settings.advance)

    def _load_data(self, weight: np.ndarray | None) -> tuple[Resident, Blocks]:
        """All data on the device."""
        cells = self.shape.owners * self.shape.groups * self.shape.labels**2 * self.shape.runs
        most = block_rounds(self.rounds, self.shape.fused)
        return Resident(self.federation, weight, self._spec()), self._blocks(
            self._planner(), cells, most
        )

    def _stream_data(self, weight: np.ndarray | None) -> tuple[Streamed, Blocks]:
        """Data that stay on the host. The program then has room for the clients of one block."""
        public = self._first_public()
        memory = jax.eval_shape(lambda: self._first_memory(self._first_model(), public))
        planner = self._planner()
        most = most_rounds(self.federation, planner.slots, memory)
        room = self._blocks(planner, 0, most).rounds * planner.slots
        self.shape = self.shape._replace(clients=min(room, self.federation.clients))
        everyone = np.arange(self.federation.clients, dtype=np.int32)
        evaluated_clients = everyone if self.evaluated_clients is None else self.evaluated_clients
        source = Streamed(self.federation, weight, evaluated_clients, self._spec(), memory)
        return source, self._blocks(self._planner(source.load_block), 0, most)

    def run(self) -> list[Trace]:
        """Train all rounds and return the traces."""
        file = (
            CheckpointFile(self.settings.checkpoint, self._fingerprint())
            if self.settings.checkpoint
            else None
        )
        state, history, done = self._begin(file)
        feed = EvaluationFeed(
            self.settings.observe, self.federation, self.evaluated_clients, self.run_group.positions
        )
        if not done:
            self._evaluate(history, state, 0)
        feed.send(history.evaluations)
        state = self._train(state, history, done, feed, file)
        if self.rule.final_pass:
            state = self._final_pass(state, history)
            feed.send(history.evaluations)
        model = (
            served_models(self.parts, state)
            if self.shape.models
            else served_model(self.shape, self.parts, state)
        )
        if self.settings.leave:
            self.settings.leave()
        # On the host from here on: separating the runs one by one on a device would take thousands
        # of small transfers.
        memory = self._memories(state) if self.settings.memories else ()
        state = jax.tree.map(
            np.asarray, state._replace(model=model, server=(), memory=memory, choices=())
        )
        return make_traces(
            history.arrays(), state, self.run_group, federation=self.federation,
            evaluated_clients=self.evaluated_clients, shape=self.shape,
            sizes=layer_sizes(skeleton(self.task)),
        )  # fmt: skip

    def _memories(self, state: State) -> Tree:
        """What all clients remember. [clients, ...]"""
        if not isinstance(state.memory, HostMemories):
            return state.memory
        clients = self.federation.clients
        return state.memory.of(np.arange(clients), clients)

    def _begin(self, file: CheckpointFile | None) -> tuple[State, RunHistory, int]:
        """State, history and number of rounds done: those of the checkpoint, or those before the
        first round.
        """
        with BEGINNING:
            state, history, done = self._first_state(), RunHistory.empty(), 0
        if file and (checkpoint := file.read()):
            done, leaves = checkpoint
            structure = jax.tree.structure(state)
            state = self.source.unpack(
                jax.tree.unflatten(structure, leaves[: structure.num_leaves])
            )
            history = RunHistory(*([leaf] for leaf in leaves[structure.num_leaves :]))
        elif isinstance(self.source, Resident) and self.shape.models:
            setup = ChoiceSetup(self.shape, self.source.inputs, state, self.federation, self.seeds)
            state = state._replace(choices=initial_choices(setup, self.algorithms))
        return self.source.to_device(state), history, done

    def _train(
        self,
        state: State,
        history: RunHistory,
        done: int,
        feed: EvaluationFeed,
        file: CheckpointFile | None,
    ) -> State:
        """Advance the state block by block until the last round."""
        pace = Pace(self.blocks.rounds if self.steady else 1, self.steady)
        # plans blocks and gathers their rows while the device works
        with ThreadPoolExecutor(max_workers=1) as planning:
            ahead = planning.submit(self.blocks.next, done, pace.rounds)
            while (now := ahead.result()) is not None:
                ahead, before = planning.submit(self.blocks.next, now.stop, pace.rounds), state
                begun = time.monotonic()
                state, record = self.source.advance(now.block, before)
                self._collect(history, now, record)
                state = self.source.settle(now.block, before, state)
                self._refuse_broken(state, now.start)
                self._evaluate(history, state, now.stop)
                pace.note(now.stop - now.start, time.monotonic() - begun)

                def arrays(state=state):
                    return (
                        self.source.pack(state),
                        history.arrays(),
                    )

                try:
                    feed.send(history.evaluations)
                    if self.settings.progress:
                        self.settings.progress(now.stop, self.rounds)
                except BaseException:  # the caller interrupts the run: save the progress
                    if file:
                        file.write(now.stop, arrays)
                    raise
                if file and now.stop < self.rounds:
                    file.write_if_due(now.stop, arrays)
        return state

    def _first_model(self) -> Tree:
        return trees.repeat(
            initial_model(self.task, self.algorithms[0].rule, self.seeds),
            self.shape.runs,
            self.shape.axis,
        )

    def _first_memory(self, models: Tree, publics: tuple[Tree, ...]) -> ClientMemories:
        """The initial memory of a client. What rules let it keep is zero until it takes part."""
        axis = self.shape.axis
        work = jax.vmap(lambda work, m: work.remember(m), (0, axis), axis)(self.parts.work, models)
        rules = [
            first_memory(group.rule, public, self.shape, self.shape.runs_of(i))
            for i, (group, public) in enumerate(zip(self.parts.rules, publics, strict=True))
        ]
        return ClientMemories(work, tuple(rules), private_signals.first(self.parts, self.shape))

    def _first_public(self) -> tuple[Tree, ...]:
        """The public numbers of each rule group before the first round."""
        with on_host():
            return self.run_group.begin(self.federation.census())

    def _first_state(self) -> State:
        shape = self.shape
        models = self._first_model()
        servers = []
        for i, group in enumerate(self.parts.rules):
            start = jax.vmap(lambda server, m: server.init(m), (0, shape.axis))
            servers.append(
                ()
                if group.server is None
                else start(
                    group.server, trees.cut(trees.learned(models), shape.runs_of(i), shape.axis)
                )
            )
        public = self._first_public()
        state = State(
            model=models,
            public=jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, public)),
            server=tuple(servers),
            memory=(),
            excluded=(),
            broken=jnp.full(shape.runs, NEVER, jnp.int32),
            choices=no_choices(shape) if shape.models else (),
            gates=first_gates(self.parts.rules, public),
        )
        return self.source.begin(state, self._first_memory(models, public))

    def _collect(self, history: RunHistory, now: PlannedBlock, record: Any) -> None:
        history.add_rounds(now.block, record, now.stop - now.start)
        self._collect_evaluations(history, now.block, record, now.start)

    def _collect_evaluations(
        self, history: RunHistory, block: Block, record: Any, start: int
    ) -> None:
        clients = self.evaluated_clients
        owners = slice(None) if clients is None else row_owners(clients, self.federation.clients)
        history.add_evaluations(
            block, record, start, owners, slice(None) if clients is None else clients
        )

    def _evaluate(self, history: RunHistory, state: State, done: int) -> None:
        """Evaluate streamed data if an evaluation is due after this many rounds. Data on the device
        are evaluated by the program.
        """
        if isinstance(self.source, Streamed) and done in self.blocks.evaluations():
            tables, losses = self.source.evaluate(state)
            no_choice = np.zeros((1, 0, self.shape.runs), np.int32)
            history.add_evaluation(
                np.array([done], np.int32), tables[None], losses[None], no_choice
            )

    def _final_pass(self, state: State, history: RunHistory) -> State:
        """One more round with full participation, and an evaluation of the result."""
        planner = Planner(
            self.federation, self.algorithms[0].work, [Full()], seeds=self.seeds,
            dropout=self.settings.dropout, lanes=self.lanes, devices=self.devices,
        )  # fmt: skip
        stops, evaluate, steps = (
            np.array([1], np.int32),
            np.array([True]),
            planner.most_steps_per_round,
        )
        block = planner.block(
            self.rounds, self.rounds + 1, rounds=1, steps=steps, stops=stops, evaluate=evaluate
        )
        state, record = self.source.advance(block, state)
        self._collect_evaluations(history, block, record, self.rounds)
        return state

    def _refuse_broken(self, state: State, start: int) -> None:
        broken = np.asarray(state.broken)
        if (broken < NEVER).any():
            run = int(broken.argmin())
            raise ValueError(
                f"{self.algorithms[run].label}: the weights of round {start + int(broken[run])} are"
                " not finite. A loss was negative or too large for this method; check the model's"
                " loss and the learning rate."
            )

    def _fingerprint(self) -> str:
        plain = [
            replace(a, select=Full(), prepare=None, privacy=None, label="") for a in self.algorithms
        ]
        # of additions, which decides the last bits
        order = [self.shape.lanes, self.shape.devices, self.shape.fused]
        settings: list[Any] = [
            self.rounds,
            self.settings.evaluate_every,
            self.settings.dropout,
            self.blocks.rounds,
            order,
        ]
        clients = self.evaluated_clients
        settings += [
            jax.__version__,
            __version__,
            self.stream,
            clients if clients is None else clients.tolist(),
        ]
        parts = [repr((a.select, a.prepare, a.privacy)) for a in self.algorithms]
        return fingerprint(
            self.federation, settings, plain, parts, repr(self.seeds), task_text(self.task)
        )


def first_memory(rule: Rule, public: Tree, shape: Shape, runs: slice) -> Memory:
    """The memory of a client that has not taken part, in the runs of a rule group: zeros in the
    form of what the rule remembers. [..., runs]
    """
    if type(rule).remember is Rule.remember:
        return Memory((), ())  # without tracing, which takes longer than a short run
    own = form_of_own(shape.groups, shape.labels)
    size = runs.stop - runs.start
    remember = jax.vmap(
        lambda rule, public, own: rule.remember(public, own), (0, 0, None), -1, axis_size=size
    )
    form = jax.eval_shape(remember, rule, public, own)
    if not jax.tree.leaves(form):
        return Memory((), form)
    value = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), form)
    return Memory(jnp.zeros(size, bool), value)


def refuse_without_validation(algorithm: Algorithm, federation: Federation) -> None:
    """Raise if the rule needs measurements on validation rows and no client has any."""
    if "valid_table" in algorithm.rule.needs and not len(federation.valid.rows):
        raise ValueError(
            f"{algorithm.label}: clients measure on validation rows, but"
            f" {federation.name or 'the data'} hold none out. Hold some out, or leave measured_on"
            " out to measure on training rows."
        )
