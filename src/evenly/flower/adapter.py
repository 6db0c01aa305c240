"""The Flower strategy that runs any algorithm.

In every round it draws the cohort that the simulator would draw, sends the model, reads signals
from the replies, computes coefficients with the algorithm's rule, sums the updates and moves the
model. It contains no code for particular methods: the parts of an algorithm declare what it needs.
"""

import logging
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from evenly.data.encoding import Encoder
from evenly.flower import aggregation, messages, private_rounds, roster, wire
from evenly.flower import two_phase as two_phases
from evenly.flower.aggregation import RoundResult
from evenly.flower.caps import Caps
from evenly.flower.checks import replies_to
from evenly.flower.final_model import (
    ModelContext,
    finished_model,
    groups_of,
    questions,
    write_final,
)
from evenly.flower.lifecycle import (
    Evaluate,
    RunningDeployment,
    StartArguments,
    cluster_clients,
    lock_folder,
    open_deployment,
    wait_for_clients,
)
from evenly.flower.messages import DeploymentState, RoundRequest, TrainingReplies
from evenly.flower.recorder import read_metrics, write_metrics
from evenly.flower.roster import (
    Adding,
    Average,
    DeploymentSetting,
    Options,
    algorithm_of,
    evaluating_clients,
    notation_of,
    with_fraction,
)
from evenly.flower.server_state import identity_of
from evenly.flower.two_phase import Measurement
from evenly.privacy.row_account import calibrated, reads_census
from evenly.records import require
from evenly.simulate.schedule import CohortDraws
from evenly.types import Algorithm, Rule, Seeds, Task

LOG = logging.getLogger("flwr")  # the logger of Flower, so that all lines of a run are in one log
TIMEOUT = 3600.0


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
    encoder: Encoder | None = None,
) -> "FairStrategy":
    """Return a Flower strategy that runs an algorithm on real clients.

    Options that Flower's `FedAvg` also has mean the same here. In every round the strategy draws
    the cohort that a simulation with the same seeds would draw, sends the model, and aggregates the
    replies by the algorithm's rule.

    Args:
        algorithm: Notation such as ``"fairfed(metric=eod)+reweigh"``, an `Algorithm`, or a rule
            such as ``QFedAvg(q=1.0)``.
        task: If given, the initial arrays are checked to be a model of this task.
        seeds: Seeds for cohorts, batches and models. Defaults to zeros.
        folder: Where to keep every round. A server that is started again with the same folder
            resumes after the last complete round, and ``evenly report FOLDER`` writes the report.
        introduce: Whether to request a census from clients even if the method does not need one.
            The report then shows the names and groups of clients.
        fraction_train: Share of the clients that train in a round, drawn uniformly. Without it, the
            sampling in the notation decides; without that, all clients train.
        fraction_evaluate: Share of the connected clients that evaluate the model after each round.
        min_train_nodes: Smallest number of usable replies in a round. With fewer, the run stops
            with the reasons.
        min_evaluate_nodes: Smallest number of clients that evaluate.
        min_available_nodes: Number of connected clients to wait for before the first round.
        caps: Bounds on the numbers that clients report and on their coefficients. See
            :class:`evenly.flower.Caps`.
        weighted_by_key: Metric that holds a client's number of training rows.
        arrayrecord_key: Name of the array record in messages.
        configrecord_key: Name of the config record in messages.
        train_metrics_aggr_fn: Averages the metrics of training replies. Defaults to a mean weighted
            by training rows.
        evaluate_metrics_aggr_fn: Averages the metrics of evaluation replies, likewise.
        two_phase: Whether clients first measure, receive their coefficient, and then send
            coefficient times update, so that the server needs only the sum. A function in place of
            True computes the sum, for example of masked updates.
        max_reply_bytes: Largest size of a reply. Larger replies are left out. By default it follows
            from the size of the model.
        encoder: Encoding of a table's columns, which is stored with the final model so that it can
            predict from tables.

    Returns:
        A strategy for ``ServerApp``: call ``start(grid, initial_arrays, num_rounds=...)``.

    Raises:
        ValueError: If the notation is not valid, stands for several runs, or cannot run in two
            phases.

    Example:
        >>> from evenly.flower import strategy
        >>> strategy("q-fedavg(q=1)", min_available_nodes=3).reply_metrics
        ['num-examples', 'loss']
    """
    require(
        max_reply_bytes is None or max_reply_bytes > 0,
        f"max_reply_bytes must be None or above 0, got {max_reply_bytes}.",
    )
    options = Options(
        seeds or Seeds(), caps, introduce, fraction_train, fraction_evaluate, min_train_nodes,
        min_evaluate_nodes, min_available_nodes, weighted_by_key, arrayrecord_key, configrecord_key,
        train_metrics_aggr_fn or messages.average_metrics,
        evaluate_metrics_aggr_fn or messages.average_metrics,
        (two_phases.plain_sum if two_phase else None) if isinstance(two_phase, bool) else two_phase,
        max_reply_bytes,
    )  # fmt: skip
    made = algorithm_of(algorithm, uniform=fraction_train is not None)
    if options.two_phase is not None:
        two_phases.require_possible(made, caps)
    path = None if folder is None else Path(folder)
    private_rounds.refuse_unbounded(made, options, path)
    return FairStrategy(made, options, folder=path, task=task, encoder=encoder)


class FairStrategy(Strategy):
    """Strategy that `strategy` returns. It implements Flower's `Strategy`."""

    def __init__(
        self,
        algorithm: Algorithm,
        options: Options,
        *,
        folder: Path | None = None,
        task: Task | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        self.algorithm, self.options = algorithm, options
        self._folder, self._task, self._encoder = folder, task, encoder
        self._deployment: RunningDeployment | None = None
        self._draws: CohortDraws | None = None
        self._request: RoundRequest | None = None
        self._measurement: Measurement | None = None  # first half of a two-phase round
        self._since = 0.0
        self._served: ArrayRecord | None = None  # arrays that the last round returned
        self._everybody = False
        self._timeout, self._rounds, self._result = TIMEOUT, 0, Result()
        self._releases: private_rounds.ReleaseCount | None = None  # where clients are protected

    # Methods that Flower calls in every round.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the cohort and return the messages to its connected clients."""
        deployment = self._begin(arrays, config, grid)
        self._since = time.monotonic()
        joined = deployment.welcome(grid, number=server_round, config=config, timeout=self._timeout)
        if joined or self._releases is not None:  # whose cohorts do not follow from earlier ones
            self._use_clients(deployment)
        setting, current = deployment.setting, self._unless_changed(arrays)
        everyone = np.arange(setting.roll.clients, dtype=np.int32)
        cohort = everyone if self._everybody else self._cohorts().cohort(server_round - 1)
        connected = self._wait_for_cohort(grid, cohort)
        needs = messages.needs_of(setting, current)
        self._request = RoundRequest(server_round, cohort, connected, needs)
        LOG.info(
            "configure_train: %d of %d clients chosen, %d connected",
            len(self._request.chosen),
            setting.roll.clients,
            len(connected),
        )
        sending = partial(
            messages.to_clients,
            number=server_round,
            config=config,
            arrays=self._trained_record(setting, current),
            personal=deployment.personal,
        )
        if self.options.two_phase is None:
            return sending(MessageType.TRAIN, setting, current, clients=connected)
        replies = replies_to(
            grid, sending(wire.MEASURE, setting, current, clients=connected), self._timeout
        )
        measurement = self._measure(self._request, replies)
        self._measurement, self._request = measurement, two_phases.sum_request(setting, measurement)
        coefficients = two_phases.sum_configs(measurement, self._request)
        return sending(
            MessageType.TRAIN, setting, current, clients=coefficients, coefficients=coefficients
        )

    def _measure(self, request: RoundRequest, replies: Iterable[Message]) -> Measurement:
        """Compute coefficients from the replies to the first half of a two-phase round."""
        deployment, chance = self._running(), self._cohorts().chance(request.number - 1)
        measurement = two_phases.weigh_measurements(
            deployment.setting, deployment.state, request, replies, chance
        )
        self._enough(request, measurement.replies)
        return measurement

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies: return the next model, and metrics averaged by training rows."""
        request, deployment = self._request, self._running()
        if request is None or request.number != server_round:
            raise ValueError(
                f"Round {server_round} was not configured. Call configure_train first."
            )
        setting, current, measurement = deployment.setting, deployment.state, self._measurement
        usable = messages.read_replies(setting, request, replies)
        self._enough(request, usable)
        if measurement is None:
            outcome, after, usable = self._from_models(request, usable)
        else:
            outcome, after, usable = two_phases.finish_round(
                setting, current, measurement, request, usable
            )
            request = measurement.request
        self._request, self._measurement = None, None
        self._served = messages.served_record(setting, after)
        seconds = time.monotonic() - self._since
        down = float(self._served.count_bytes()) * (1 if measurement is None else 2)
        deployment.record_training(request, usable, outcome, after, seconds=seconds, download=down)
        return self._served, self.options.train_metrics_aggr_fn(
            usable.contents, self.options.weighted_by_key
        )

    def _from_models(
        self, request: RoundRequest, usable: TrainingReplies
    ) -> tuple[RoundResult, DeploymentState, TrainingReplies]:
        """Aggregate the models of a one-phase round."""
        deployment = self._running()
        setting, current = deployment.setting, deployment.state
        parts = {
            k: wire.split_model(setting.form, r.arrays)
            for k, r in usable.replies.items()
            if r.arrays is not None
        }
        slots, cells = request.cohort, None
        if not len(slots):  # nobody was drawn: as if one were who does not return
            slots, cells = np.zeros(1, np.int32), setting.census.cells.shape[1:]
        chance = self._cohorts().chance(request.number - 1)
        signals = messages.signals_of(
            setting.algorithm, current.state, slots, usable.replies, chance, cells=cells
        )
        trained = [parts[k].model if k in parts else None for k in slots.tolist()]
        guard = None if self._releases is None else self._releases.guard(current.state.gate)
        outcome = aggregation.round_from_replies(
            setting.algorithm, current.state, signals, trained, self.options.caps, guard=guard
        ).of_slots(request.cohort)
        counted = {
            int(k)
            for k, came_back in zip(request.cohort, outcome.counted, strict=True)
            if came_back
        }
        weights = np.array(
            [outcome.coefficients[request.cohort == k].sum() for k in sorted(counted)]
        )
        carried = wire.average_carried(
            current.carried, [parts[k].carried for k in sorted(counted)], weights
        )
        return (
            outcome,
            DeploymentState(outcome.state, carried),
            messages.leave_out_broken(setting, request, usable, counted),
        )

    def _enough(self, request: RoundRequest, usable: TrainingReplies) -> None:
        deployment = self._running()
        if not request.chosen and self.options.two_phase is None:
            return  # a draw of nobody is a round, in which the model moves by noise or not at all
        try:
            messages.require_enough(deployment.setting, request, usable)
        except ValueError:
            # so that the report names the clients that are missing
            deployment.recorder.record_left_out(usable.left_out)
            if self._releases is not None and not self._releases.spent:
                self._releases.count()
            raise

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages to the clients that evaluate the served model."""
        deployment = self._running()
        return messages.to_clients(
            MessageType.EVALUATE,
            deployment.setting,
            deployment.state,
            number=server_round,
            clients=self._evaluators(server_round, grid),
            config=config,
            arrays=arrays,
            personal=deployment.personal,
        )

    def _evaluators(self, number: int, grid: Grid) -> tuple[int, ...]:
        """Draw the clients that evaluate, and expect their replies."""
        self._since, options = time.monotonic(), self.options
        present = sorted(self._connected(grid)) if options.fraction_evaluate > 0 else []
        count = max(int(len(present) * options.fraction_evaluate), options.min_evaluate_nodes)
        chosen = np.array(present, np.int32)
        if present:
            chosen = evaluating_clients(options.seeds.cohort, number, chosen, count)
        connected = tuple(chosen.tolist())
        self._request = RoundRequest(number, chosen, connected, phase="evaluate")
        return connected

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Record the evaluation, write the round, and return metrics averaged by rows."""
        request, deployment = self._request, self._running()
        if request is None or request.number != server_round or request.phase != "evaluate":
            raise ValueError(
                f"The evaluation of round {server_round} was not configured. Call"
                " configure_evaluate first."
            )
        found = messages.read_evaluations(deployment.setting, request, replies)
        self._request, metrics = None, None
        if found.contents:
            metrics = self.options.evaluate_metrics_aggr_fn(
                found.contents, self.options.weighted_by_key
            )
            self._result.evaluate_metrics_clientapp[server_round] = metrics
        if self._folder is not None:  # before the state, or a kill between both would lose them
            write_metrics(self._folder, self._result)
        deployment.record_evaluation(server_round, found, seconds=time.monotonic() - self._since)
        return metrics

    def summary(self) -> None:
        """Log the settings of the run."""
        options, least = self.options, self.options.min_train_nodes
        LOG.info("\t├──> Method: %s", notation_of(with_fraction(self.algorithm, options)))
        LOG.info("\t├──> Clients reply with: arrays, %s", ", ".join(self.reply_metrics))
        if options.two_phase is not None:
            words = "\t├──> In two phases: metrics to %r, then arrays multiplied by %r"
            LOG.info(words, wire.MEASURE, wire.COEFFICIENT)
        words = "\t├──> Nodes: at least %d connected, %d in a round"
        LOG.info(words, options.min_available_nodes, least)
        words = "\t└──> Evaluated by a share of %.2f of the connected clients"
        LOG.info(words, options.fraction_evaluate)

    @property
    def reply_metrics(self) -> list[str]:
        """Names of the metrics that a reply to "train" must contain."""
        return [
            self.options.weighted_by_key,
            *(
                wire.SIGNALS[need]
                for need in sorted(self.algorithm.rule.needs & wire.SIGNALS.keys())
            ),
        ]

    @property
    def history(self) -> RunningDeployment:
        """The running deployment. `history.recorder.trace()` is a trace like that of a
        simulation.
        """
        return self._running()

    # The run as a whole.

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3,
        timeout: float = TIMEOUT, train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None, evaluate_fn: Evaluate | None = None,
    ) -> Result:  # fmt: skip
        """Run all rounds, like Flower's own strategies. With a folder, completed rounds are not
        repeated.
        """
        self._timeout, self._rounds, self._result = timeout, num_rounds, Result()
        self._deployment, self._request, self._measurement = None, None, None
        self._served, self._everybody = None, False
        census = self.options.introduce or reads_census(self.algorithm)
        self.algorithm = calibrated(self.algorithm, num_rounds, census=census)
        LOG.info("Starting %s:", self.algorithm.label)
        self.summary()
        with lock_folder(self._folder):
            train, evaluate = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
            return self._run_all(
                StartArguments(grid, self._result, train, evaluate, evaluate_fn), initial_arrays
            )

    def _run_all(self, run: StartArguments, initial_arrays: ArrayRecord) -> Result:
        rule, num_rounds, result = self.algorithm.rule, self._rounds, run.result
        deployment = self._begin(initial_arrays, run.train, run.grid)
        try:
            if self._folder is not None and deployment.done:
                read_metrics(self._folder, result, deployment.done)
            result.arrays = (
                initial_arrays if deployment.done == 0 else self._last_served(deployment)
            )
            if deployment.done not in result.evaluate_metrics_serverapp:
                run.evaluate_on_server(deployment.done)
            for number in range(deployment.done + 1, num_rounds + 1):
                if self._releases is not None and self._releases.spent:
                    LOG.warning(
                        "%s Training ends with round %d.", private_rounds.SPENT, deployment.done
                    )
                    break
                LOG.info("[ROUND %d/%d]", number, num_rounds)
                self._one_round(number, run)
            if rule.final_pass and deployment.done <= num_rounds:
                LOG.info("[FINAL PASS] all clients take part")
                self._everybody = True
                self._one_round(num_rounds + 1, run)
        except BaseException as error:
            deployment.recorder.end(
                "stopped" if isinstance(error, KeyboardInterrupt) else "failed", str(error)
            )
            raise
        if self._folder is not None and deployment.done:
            self._write_model(self._folder, deployment, result.arrays)
        deployment.recorder.end()
        return result

    def _write_model(
        self, folder: Path, deployment: RunningDeployment, arrays: ArrayRecord
    ) -> None:
        roll, seeds = deployment.setting.roll, self.options.seeds
        groups = groups_of(self.algorithm, roll, deployment.state.state.choice)
        context = ModelContext(
            self.algorithm, seeds, self._task, self._encoder, roll.labels, groups
        )
        write_final(folder, arrays, context)

    def evaluate(
        self, grid: Grid, arrays: ArrayRecord | str | Path, *, timeout: float = TIMEOUT
    ) -> MetricRecord | None:
        """Let clients evaluate a model without training it, and record that as round 0.

        Args:
            grid: Flower's grid.
            arrays: The model, or the folder of the finished deployment that trained it. Methods
                whose clients keep a model of their own need the folder.
            timeout: Seconds to wait for answers.

        Returns:
            The metrics of clients, averaged by rows. With a folder, the report is written there.
        """
        self._timeout, self._rounds, self._deployment = timeout, 0, None
        self._result, model = Result(), finished_model(arrays, self.algorithm)
        with lock_folder(self._folder):
            first = model.first(self.algorithm)
            deployment = self._begin(first, ConfigRecord(), grid, trains=False)
            require(
                deployment.done == 0,
                f"{self._folder} holds rounds of training already. Choose another folder.",
            )
            asked = questions(
                MessageType.EVALUATE, model, self.algorithm, deployment.setting.roll,
                seeds=self.options.seeds, clients=self._evaluators(0, grid),
                keys=(self.options.arrayrecord_key, self.options.configrecord_key),
            )  # fmt: skip
            metrics = self.aggregate_evaluate(0, replies_to(grid, asked, timeout))
            deployment.recorder.end()
        return metrics

    def _one_round(self, number: int, run: StartArguments) -> None:
        grid, result = run.grid, run.result
        training = self.configure_train(number, result.arrays, run.train, grid)
        arrays, metrics = self.aggregate_train(number, replies_to(grid, training, self._timeout))
        assert arrays is not None
        result.arrays = arrays
        if metrics is not None:
            LOG.info("\t└──> Training: %s", dict(metrics))
            result.train_metrics_clientapp[number] = metrics
        evaluating = self.configure_evaluate(number, arrays, run.evaluate, grid)
        metrics = self.aggregate_evaluate(number, replies_to(grid, evaluating, self._timeout))
        if metrics is not None:
            LOG.info("\t└──> Evaluation: %s", dict(metrics))
            result.evaluate_metrics_clientapp[number] = metrics
        run.evaluate_on_server(number)
        if self._folder is not None:
            write_metrics(self._folder, result)

    def _begin(
        self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid, *, trains: bool = True
    ) -> RunningDeployment:
        if self._deployment is not None:
            return self._deployment
        roster.refuse_without_noise(self.algorithm)
        if self._task is not None:
            wire.require_task(arrays, self.algorithm, self._task, self.options.seeds)
        made = open_deployment(
            self.algorithm, self.options, arrays, config=config, grid=grid, timeout=self._timeout,
            identity=identity_of(self._folder) if trains else "",
        )  # fmt: skip
        self._deployment = deployment = RunningDeployment(made, self._folder, rounds=self._rounds)
        self._use_clients(deployment)
        self._releases = private_rounds.open_release_count(
            deployment.setting, self._folder, self._rounds, done=deployment.done
        )
        if deployment.done == 0 and trains:
            deployment.record_start(
                *cluster_clients(deployment.setting, deployment.state, config, grid, self._timeout)
            )
        return deployment

    def _use_clients(self, deployment: RunningDeployment) -> None:
        """Draw cohorts of the clients that the deployment has now."""
        setting = deployment.setting
        self.algorithm = setting.algorithm
        seeds = private_rounds.cohort_seeds(self.algorithm, self.options.seeds)
        self._draws = CohortDraws(self.algorithm.select, setting.census, seeds)

    def _unless_changed(self, arrays: ArrayRecord) -> DeploymentState:
        """State of the deployment, with `arrays` as the model where a strategy around this one
        changed them.
        """
        deployment = self._running()
        if (
            self._served is not None
            and arrays is not self._served
            and not deployment.setting.models
        ):
            _, (model, carried) = wire.read_initial(
                arrays, ranks=deployment.setting.form.ranks, apart=0
            )
            deployment.state = DeploymentState(
                deployment.state.state._replace(model=model), carried
            )
            self._served = None
        return deployment.state

    def _trained_record(self, setting: DeploymentSetting, current: DeploymentState) -> ArrayRecord:
        """The arrays that clients train: those that they are served, unless the method serves
        others.
        """
        if (
            self._served is not None
            and not setting.models
            and aggregation.serves_its_model(setting.algorithm, current.state)
        ):
            return self._served
        return messages.trained_record(setting, current)

    def _last_served(self, deployment: RunningDeployment) -> ArrayRecord:
        self._served = messages.served_record(deployment.setting, deployment.state)
        return self._served

    def _wait_for_cohort(self, grid: Grid, cohort: np.ndarray) -> tuple[int, ...]:
        """The clients of the cohort that are connected. While they are too few, wait for others, at
        most until the timeout; but not under privacy, where one would decide who else takes part.
        """
        chosen = list(dict.fromkeys(cohort.tolist()))
        least = min(self.options.min_train_nodes, len(chosen)) if self._releases is None else 0
        return wait_for_clients(lambda: self._connected(grid), chosen, least, self._timeout)

    def _connected(self, grid: Grid) -> set[int]:
        present = set(grid.get_node_ids())
        return {k for k, node in enumerate(self._running().setting.roll.nodes) if node in present}

    def _running(self) -> RunningDeployment:
        require(
            self._deployment is not None,
            "The strategy has not begun. Call start or configure_train first.",
        )
        assert self._deployment is not None
        return self._deployment

    def _cohorts(self) -> CohortDraws:
        assert self._draws is not None  # made when it began
        return self._draws
