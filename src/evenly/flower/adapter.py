"""Any algorithm as a strategy of Flower: the one adapter between their rounds and ours.

Per round it draws the simulator's cohort, sends the model, reads signals off the replies, lets the rule weigh, adds up and
moves. It knows no method: what a method needs is read from its parts.
"""

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from evenly.flower import aggregation, messages, roster, wire
from evenly.flower import two_phase as two_phases
from evenly.flower.aggregation import RoundResult
from evenly.flower.caps import Caps
from evenly.flower.checks import replies_to
from evenly.flower.lifecycle import RunningDeployment, cluster_clients, lock_folder, open_deployment, with_fraction
from evenly.flower.messages import (
    DeploymentState,
    RoundRequest,
    TrainingReplies,
    average_metrics,
    leave_out_broken,
    read_evaluations,
    read_replies,
    require_enough,
    signals_of,
)
from evenly.flower.recorder import read_metrics, write_metrics
from evenly.flower.roster import Adding, Average, DeploymentSetting, Drawing, Options, algorithm_of, notation_of
from evenly.flower.two_phase import Measurement
from evenly.records import require
from evenly.types import Algorithm, Rule, Seeds, Several, Task

LOG = logging.getLogger("flwr")  # Flower's own: our lines stand among its lines
TIMEOUT = 3600.0
RECONNECT_SECONDS = 3.0  # between two looks at who is connected

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


def strategy(
    algorithm: Algorithm | Rule | str,
    *,
    task: Task | None = None,
    seeds: Seeds | None = None,
    folder: Path | str | None = None,
    introduce: bool = False,
    fraction_train: float | None = None,
    fraction_evaluate: float = 1.0,
    min_train_nodes: int = 2,
    min_evaluate_nodes: int = 2,
    min_available_nodes: int = 2,
    caps: Caps | None = None,
    weighted_by_key: str = wire.EXAMPLES,
    arrayrecord_key: str = wire.ARRAYS,
    configrecord_key: str = wire.CONFIG,
    train_metrics_aggr_fn: Average | None = None,
    evaluate_metrics_aggr_fn: Average | None = None,
    two_phase: bool | Adding = False,
    max_reply_bytes: int | None = None,
) -> "FairStrategy":
    """A strategy for `ServerApp`, from an Algorithm, a rule such as QFedAvg(q=1.0), or a notation such as "fairfed(metric=eod)+reweigh".

    Options that Flower's FedAvg has mean what they mean there. With `fraction_train` clients are drawn uniformly; without it by
    the sampling that the algorithm names, else everybody takes part. With a `folder` every round is kept there: a server that is
    started again goes on, and `evenly report FOLDER` writes the report. `introduce` asks clients for a census even if the method
    does not need one, so that the report knows their names and groups. With `task` the first arrays are checked to be its model's.

    With `two_phase` clients first measure, are told how much they count, and send that many times their update: the server needs
    only the sum. A function in its place makes the sum, of masked updates say: it is given what each client sent.

    A reply of more than `max_reply_bytes` does not count. Without it the limit follows from the model: see docs/flower-trust.md.
    """
    require(max_reply_bytes is None or max_reply_bytes > 0, f"max_reply_bytes must be None or above 0, got {max_reply_bytes}.")
    options = Options(
        seeds or Seeds(), caps, introduce, fraction_train, fraction_evaluate, min_train_nodes, min_evaluate_nodes, min_available_nodes,
        weighted_by_key, arrayrecord_key, configrecord_key,
        train_metrics_aggr_fn or average_metrics,
        evaluate_metrics_aggr_fn or average_metrics,
        (two_phases.plain_sum if two_phase else None) if isinstance(two_phase, bool) else two_phase,
        max_reply_bytes,
    )  # fmt: skip
    made = algorithm_of(algorithm, uniform=fraction_train is not None)
    if options.two_phase is not None:
        two_phases.require_possible(made, caps)
    return FairStrategy(made, options, folder=None if folder is None else Path(folder), task=task)


class FairStrategy(Strategy):
    """What `strategy` makes."""

    def __init__(self, algorithm: Algorithm, options: Options, *, folder: Path | None = None, task: Task | None = None) -> None:
        self.algorithm, self.options = algorithm, options
        self._folder, self._task = folder, task
        self._kept: RunningDeployment | None = None
        self._drawing: Drawing | None = None
        self._asked: RoundRequest | None = None
        self._measured: Measurement | None = None  # the first half of a round of two phases
        self._since = 0.0
        self._served: ArrayRecord | None = None  # what the last round returned
        self._everybody = False
        self._late: set[int] = set()  # nodes that came too late
        self._timeout, self._rounds = TIMEOUT, 0

    # What Flower calls in every round.

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Messages to the clients that take part."""
        kept = self._begin(arrays, config, grid)
        self._since = time.monotonic()
        self._welcome(grid)
        setting, standing = kept.setting, self._unless_changed(arrays)
        cohort = np.arange(setting.roll.clients, dtype=np.int32) if self._everybody else self._draw().cohort(server_round - 1)
        reached = self._reached(grid, cohort)
        choosing = messages.clients_choose_now(setting, standing)
        needs = (setting.algorithm.rule.needs & wire.SIGNALS.keys()) - (frozenset() if choosing else {"choice"})
        self._asked = asked = RoundRequest(server_round, cohort, reached, needs)
        LOG.info("configure_train: %d of %d clients chosen, %d connected", len(asked.chosen), setting.roll.clients, len(reached))
        model = self._trained_record(setting, standing)
        if self.options.two_phase is None:
            return messages.to_train(setting, standing, server_round, reached, config, model)
        looking = messages.to_measure(setting, standing, server_round, reached, config, model)
        replies = replies_to(grid, looking, self._timeout)
        before = two_phases.weigh_measurements(setting, standing, asked, replies, self._draw().chance(server_round - 1))
        self._enough(asked, before.replies)
        self._measured, self._asked = before, two_phases.sum_request(setting, before)
        return messages.to_add(setting, standing, server_round, two_phases.sum_configs(before, self._asked), config, model)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, and metrics averaged by examples."""
        asked, kept = self._asked, self._keeper()
        if asked is None or asked.number != server_round:
            raise ValueError(f"Round {server_round} was not configured; call configure_train for it first.")
        setting, standing, before = kept.setting, kept.state, self._measured
        came = read_replies(setting, asked, replies)
        self._enough(asked, came)
        if before is None:
            done, after, came = self._from_models(asked, came)
        else:
            done, after, came = two_phases.finish_round(setting, standing, before, asked, came)
            asked = before.request
        self._asked, self._measured, self._served = None, None, messages.served_record(setting, after)
        seconds, down = time.monotonic() - self._since, float(self._served.count_bytes()) * (1 if before is None else 2)
        kept.record_training(asked, came, done, after, seconds=seconds, download=down)
        return self._served, self.options.train_metrics_aggr_fn(came.contents, self.options.weighted_by_key)

    def _from_models(self, asked: RoundRequest, came: TrainingReplies) -> tuple[RoundResult, DeploymentState, TrainingReplies]:
        """A round of one phase: weigh, and add up the models that came."""
        kept = self._keeper()
        setting, standing = kept.setting, kept.state
        parts = {k: wire.split_model(setting.form, r.arrays) for k, r in came.replies.items() if r.arrays is not None}
        signals = signals_of(setting.algorithm, standing.state, asked.cohort, came.replies, self._draw().chance(asked.number - 1))
        trained = [parts[k].model if k in parts else None for k in asked.cohort.tolist()]
        done = aggregation.one_round(setting.algorithm, standing.state, signals, trained, self.options.caps)
        counted = {int(k) for k, came_back in zip(asked.cohort, done.counted, strict=True) if came_back}
        weights = np.array([done.coefficients[asked.cohort == k].sum() for k in sorted(counted)])
        carried = wire.average_carried(standing.carried, [parts[k].carried for k in sorted(counted)], weights)
        return done, DeploymentState(done.state, carried), leave_out_broken(setting, asked, came, counted)

    def _enough(self, asked: RoundRequest, came: TrainingReplies) -> None:
        kept = self._keeper()
        try:
            require_enough(kept.setting, asked, came)
        except ValueError:
            kept.recorder.record_left_out(came.left_out)  # the report of what there was says who was missing then
            raise

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Messages to the clients that evaluate what they are served."""
        self._since = time.monotonic()
        kept, options = self._keeper(), self.options
        there = sorted(self._connected(grid)) if options.fraction_evaluate > 0 else []
        count = max(int(len(there) * options.fraction_evaluate), options.min_evaluate_nodes)
        chosen = self._draw().evaluated(server_round, np.array(there, np.int32), count) if there else np.zeros(0, np.int32)
        self._asked = RoundRequest(server_round, chosen, tuple(chosen.tolist()), phase="evaluate")
        return messages.to_evaluate(kept.setting, kept.state, server_round, chosen.tolist(), config, arrays)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Metrics averaged by examples; and the round is written down."""
        asked, kept = self._asked, self._keeper()
        if asked is None or asked.number != server_round or asked.phase != "evaluate":
            raise ValueError(f"The evaluation of round {server_round} was not configured; call configure_evaluate for it first.")
        found = read_evaluations(kept.setting, asked, replies)
        self._asked = None
        kept.record_evaluation(server_round, found, seconds=time.monotonic() - self._since)
        return self.options.evaluate_metrics_aggr_fn(found.contents, self.options.weighted_by_key) if found.contents else None

    def summary(self) -> None:
        """Say what will be done, among Flower's own lines."""
        options = self.options
        LOG.info("\t├──> Method: %s", notation_of(with_fraction(self.algorithm, options)))
        LOG.info("\t├──> Clients reply with: arrays, %s", ", ".join(self.reply_metrics))
        if options.two_phase is not None:
            LOG.info("\t├──> In two phases: metrics to %r, then arrays multiplied by %r", wire.MEASURE, wire.COEFFICIENT)
        LOG.info("\t├──> Nodes: at least %d connected, %d in a round", options.min_available_nodes, options.min_train_nodes)
        LOG.info("\t└──> Evaluated by a share of %.2f of the connected clients", options.fraction_evaluate)

    @property
    def reply_metrics(self) -> list[str]:
        """What the metrics of a reply to "train" must hold."""
        return [self.options.weighted_by_key, *(wire.SIGNALS[need] for need in sorted(self.algorithm.rule.needs & wire.SIGNALS.keys()))]

    @property
    def history(self) -> RunningDeployment:
        """What was recorded: `history.recorder.trace()` is a simulation's."""
        return self._keeper()

    # The run as a whole.

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, timeout: float = TIMEOUT,
        train_config: ConfigRecord | None = None, evaluate_config: ConfigRecord | None = None, evaluate_fn: Evaluate | None = None,
    ) -> Result:  # fmt: skip
        """Run all rounds, as Flower's own strategies do. With a folder, those that were done before are not done again."""
        self._timeout, self._rounds = timeout, num_rounds
        self._kept, self._asked, self._measured, self._served = None, None, None, None  # another run than one before
        self._everybody = False
        LOG.info("Starting %s:", self.algorithm.label)
        self.summary()
        with lock_folder(self._folder):
            return self._run(grid, initial_arrays, train_config or ConfigRecord(), evaluate_config or ConfigRecord(), evaluate_fn)

    def _run(
        self, grid: Grid, initial_arrays: ArrayRecord, train: ConfigRecord, evaluate: ConfigRecord, evaluate_fn: Evaluate | None
    ) -> Result:
        rule, num_rounds = self.algorithm.rule, self._rounds
        kept, result = self._begin(initial_arrays, train, grid), Result()
        try:
            if self._folder is not None:
                read_metrics(self._folder, result, kept.done)
            result.arrays = initial_arrays if kept.done == 0 else self._last_served(kept)
            if evaluate_fn is not None and kept.done == 0:
                _central(evaluate_fn, 0, result)
            for number in range(kept.done + 1, num_rounds + 1):
                LOG.info("[ROUND %d/%d]", number, num_rounds)
                self._one_round(number, grid, result, train, evaluate, evaluate_fn)
            if isinstance(rule, Several) and rule.final_pass and kept.done <= num_rounds:
                LOG.info("[FINAL PASS] everybody takes part")
                self._everybody = True
                self._one_round(num_rounds + 1, grid, result, train, evaluate, evaluate_fn)
        except BaseException as error:
            kept.recorder.end("stopped" if isinstance(error, KeyboardInterrupt) else "failed", str(error))
            raise
        kept.recorder.end()
        return result

    def _one_round(
        self, number: int, grid: Grid, result: Result, train: ConfigRecord, evaluate: ConfigRecord, evaluate_fn: Evaluate | None
    ) -> None:
        told = self.configure_train(number, result.arrays, train, grid)
        arrays, metrics = self.aggregate_train(number, replies_to(grid, told, self._timeout))
        assert arrays is not None
        result.arrays = arrays
        if metrics is not None:
            LOG.info("\t└──> Training: %s", dict(metrics))
            result.train_metrics_clientapp[number] = metrics
        asked = self.configure_evaluate(number, arrays, evaluate, grid)
        found = self.aggregate_evaluate(number, replies_to(grid, asked, self._timeout))
        if found is not None:
            LOG.info("\t└──> Evaluation: %s", dict(found))
            result.evaluate_metrics_clientapp[number] = found
        if evaluate_fn is not None:
            _central(evaluate_fn, number, result)
        if self._folder is not None:
            write_metrics(self._folder, result)

    def _begin(self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> RunningDeployment:
        if self._kept is not None:
            return self._kept
        if self._task is not None:
            wire.require_task(arrays, self.algorithm, self._task, self.options.seeds)
        made = open_deployment(self.algorithm, self.options, arrays, config, grid, self._timeout)
        self._kept = kept = RunningDeployment(made, self._folder, rounds=self._rounds)
        self.algorithm = kept.setting.algorithm
        self._drawing = Drawing(self.algorithm.select, kept.setting.census, self.options.seeds)
        if kept.done == 0:
            kept.record_start(*cluster_clients(kept.setting, kept.state, config, grid, self._timeout))
        return kept

    def _welcome(self, grid: Grid) -> None:
        """Nodes that connected since, where the method neither asked the others anything nor keeps anything for each client."""
        kept = self._keeper()
        roll = kept.setting.roll
        new = sorted(set(grid.get_node_ids()) - set(roll.nodes))
        if not new:
            return
        if roll.has_census or kept.setting.models or not roster.grows(self.algorithm.rule):
            if not self._late.issuperset(new):
                LOG.warning("%d nodes connected after the start and do not take part; wait for all with min_available_nodes.", len(new))
            self._late = set(new)
            return
        kept.add_clients(roster.with_nodes(roll, new))
        self.algorithm = kept.setting.algorithm
        self._drawing = Drawing(self.algorithm.select, kept.setting.census, self.options.seeds)

    def _unless_changed(self, arrays: ArrayRecord) -> DeploymentState:
        """Where the deployment stands; if somebody changed the model in between, as a strategy around this one may, at theirs."""
        kept = self._keeper()
        if self._served is not None and arrays is not self._served and not kept.setting.models:
            _, (model, carried) = wire.read_initial(arrays, ranks=kept.setting.form.ranks, apart=0)
            kept.state = DeploymentState(kept.state.state._replace(model=model), carried)
            self._served = None
        return kept.state

    def _trained_record(self, setting: DeploymentSetting, standing: DeploymentState) -> ArrayRecord:
        """What clients train: what they are served, unless that is something else."""
        if self._served is not None and not setting.models and aggregation.serves_its_model(setting.algorithm, standing.state):
            return self._served
        return messages.trained_record(setting, standing)

    def _last_served(self, kept: RunningDeployment) -> ArrayRecord:
        self._served = messages.served_record(kept.setting, kept.state)
        return self._served

    def _reached(self, grid: Grid, cohort: np.ndarray) -> tuple[int, ...]:
        """Those of the cohort that are connected. While they are too few, others may come back: as long as replies are waited for."""
        chosen, until = list(dict.fromkeys(cohort.tolist())), time.monotonic() + self._timeout
        least, told = min(self.options.min_train_nodes, len(chosen)), False
        while True:
            there, now = self._connected(grid), time.monotonic()
            reached = tuple(k for k in chosen if k in there)
            if len(reached) >= least or now >= until:
                return reached
            if not told:
                LOG.warning("%d of %d chosen clients are connected, and %d are needed: waiting for more.", len(reached), len(chosen), least)
                told = True
            time.sleep(min(RECONNECT_SECONDS, until - now))

    def _connected(self, grid: Grid) -> set[int]:
        there = set(grid.get_node_ids())
        return {k for k, node in enumerate(self._keeper().setting.roll.nodes) if node in there}

    def _keeper(self) -> RunningDeployment:
        require(self._kept is not None, "The strategy has not begun; call start, or configure_train first.")
        assert self._kept is not None
        return self._kept

    def _draw(self) -> Drawing:
        assert self._drawing is not None  # made when it began
        return self._drawing


def _central(evaluate_fn: Evaluate, number: int, result: Result) -> None:
    """What the server finds itself."""
    found = evaluate_fn(number, result.arrays)
    if found is not None:
        LOG.info("\t└──> On the server: %s", dict(found))
        result.evaluate_metrics_serverapp[number] = found
