"""A deployment from its start to its end: its clients, the files after every round, and how a
killed server resumes.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from evenly.data.federation import Census
from evenly.experiment.deployment import (
    CLIP,
    Deployment,
    DeploymentFacts,
    Exclusion,
    Flag,
    ServerOptions,
)
from evenly.experiment.folder import folder_lock, sweep
from evenly.flower import aggregation, joining, messages, private_rounds, roster, two_phase, wire
from evenly.flower.aggregation import RoundResult
from evenly.flower.checks import replies_to
from evenly.flower.joining import Asking, Enrolment
from evenly.flower.messages import (
    START_AGAIN,
    DeploymentState,
    EvaluationReplies,
    PersonalModels,
    RoundRequest,
    TrainingReplies,
    metrics_bytes,
    quote_reasons,
    read_replies,
    require_enough,
)
from evenly.flower.recorder import Recorder, Traffic, deployment_of
from evenly.flower.replies import CensusReply, consistent_censuses
from evenly.flower.roster import (
    DeploymentSetting,
    Options,
    Roll,
    notation_of,
    roll_of,
    unknown_clients,
    wait_for_nodes,
    with_fraction,
    with_sampling,
)
from evenly.flower.server_state import NAME, SavedState, claim, load, save
from evenly.flower.wire import Form
from evenly.privacy.row_account import reads_census
from evenly.records import require
from evenly.types import Algorithm, ReportingRule, Seeds

# Before the first round: the connected clients, their census where the method needs one, and their
# first models.

LOG = logging.getLogger("flwr")
RECONNECT_SECONDS = 3.0  # between two checks of the connected nodes


Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class StartArguments(NamedTuple):
    """Arguments of `start` that every round needs."""

    grid: Grid
    result: Result
    train: ConfigRecord
    evaluate: ConfigRecord
    evaluate_fn: Evaluate | None

    def evaluate_on_server(self, number: int) -> None:
        """Evaluate the model on the server, if the user gave a function for it, and keep the
        metrics.
        """
        metrics = None if self.evaluate_fn is None else self.evaluate_fn(number, self.result.arrays)
        if metrics is not None:
            LOG.info("\t└──> On the server: %s", dict(metrics))
            self.result.evaluate_metrics_serverapp[number] = metrics


class NewDeployment(NamedTuple):
    """A deployment before its first round."""

    setting: DeploymentSetting
    state: DeploymentState
    told: list[CensusReply]  # all censuses that can be read
    left_out: list[Exclusion]
    flagged: list[Flag]
    identity: str = ""  # under which clients keep models of their own


def open_deployment(
    algorithm: Algorithm,
    options: Options,
    arrays: ArrayRecord,
    *,
    config: ConfigRecord,
    grid: Grid,
    timeout: float,
    identity: str = "",
) -> NewDeployment:
    """Wait for enough clients, take the census where the method needs one, and prepare the first
    models.
    """
    nodes = wait_for_nodes(grid, options.min_available_nodes)
    roll, censuses, left_out = unknown_clients(sorted(nodes)), [], []
    # bounds on what clients say follow from the mean number of their rows
    if options.introduce or reads_census(algorithm) or private_rounds.is_private(algorithm):
        # Clients with a personal model start it from the initial model, even if they are drawn
        # late. Without a census they start it from the first model that they receive.
        personal = identity and messages.keeps_models(algorithm)
        records = {options.arrayrecord_key: arrays} if personal else {}
        asked = ConfigRecord({**config, wire.DEPLOYMENT: identity}) if personal else config
        questions = joining.census_questions(options, nodes, asked, records, algorithm=algorithm)
        most = options.max_reply_bytes or metrics_bytes(None)
        replies = replies_to(grid, questions, timeout)
        censuses, silent = roster.registered_censuses(grid, replies, nodes, most=most)
        roll, wrong = _first_roll(algorithm, options, censuses, silent)
        left_out = [*silent, *wrong]
    algorithm = roster.fit_to_clients(with_sampling(algorithm, options, roll.census), roll)
    census, flagged = roll.census, []
    if options.caps is not None:
        census, flagged = options.caps.census(census)
        options.caps.require_feasible(algorithm.select.slots(census))
    form, state = _first_state(algorithm, roll, arrays, census, options.seeds)
    return NewDeployment(
        DeploymentSetting(algorithm, options, roll, form, census), state, censuses, left_out,
        flagged, identity,
    )  # fmt: skip


def _first_state(
    algorithm: Algorithm, roll: Roll, arrays: ArrayRecord, census: Census, seeds: Seeds
) -> tuple[Form, DeploymentState]:
    """The form of the model on the wire, and the state before the first round."""
    rule = algorithm.rule
    form, (model, carried) = wire.read_initial(
        arrays,
        ranks=aggregation.ranks(algorithm),
        apart=(rule.groups or 0) if rule.apart else 0,
    )
    choice, begun = (
        roster.first_choices(algorithm, roll, seeds),
        roster.models_differ(algorithm, model),
    )
    state = aggregation.first_state(algorithm, model, census, choice=choice, begun=begun)
    require(
        not (private_rounds.is_private(algorithm) and carried),
        f"{algorithm.label}: running statistics (batch norm) are averaged without bounds or noise."
        " Choose a model without them.",
    )
    state = state._replace(gate=private_rounds.first_gate(algorithm, census, state.public))
    return form, DeploymentState(state, carried)


def _first_roll(
    algorithm: Algorithm,
    options: Options,
    told: Sequence[CensusReply],
    silent: Sequence[Exclusion],
) -> tuple[Roll, list[Exclusion]]:
    """The clients whose census can be used, and exclusions of the others that told one. Raises if
    too few can be used.
    """
    usable, wrong = consistent_censuses(told, joining.known_groups(algorithm.rule))
    left_out = [*silent, *wrong]
    least = max(min(options.min_train_nodes, options.min_available_nodes), 1)
    require(
        len(usable) >= least,
        f"{algorithm.label} needs a census of its clients ({wire.CENSUS!r}) from at least {least}"
        f" nodes (min_train_nodes), and {len(usable)} of {len(told) + len(silent)} nodes sent one"
        " that can be used. Add a function for it to the ClientApp, @app.query('census'): see"
        f" docs/flower-record.md. {quote_reasons(left_out, most=len(left_out))}"
        f" {START_AGAIN}",
    )
    return roll_of(usable), wrong


def cluster_clients(
    setting: DeploymentSetting,
    current: DeploymentState,
    config: ConfigRecord,
    grid: Grid,
    timeout: float,
) -> tuple[DeploymentState, list[Exclusion]]:
    """Assign clients to models by E2FL's rank clustering, where the method uses it.

    Every client trains once from the first order of edges, with its batches of the first round.
    """
    if setting.algorithm.rule.inference != "rank-clustering":
        return current, []
    everyone = tuple(range(setting.roll.clients))
    request = RoundRequest(0, np.array(everyone, np.int32), everyone)
    model = messages.trained_record(setting, current)
    training = messages.to_clients(
        MessageType.TRAIN, setting, current, number=1, clients=everyone, config=config, arrays=model
    )
    usable = read_replies(setting, request, replies_to(grid, training, timeout))
    require_enough(setting, request, usable)
    places = {
        k: wire.split_model(setting.form, r.arrays).model
        for k, r in usable.replies.items()
        if r.arrays is not None
    }
    assert current.state.choice is not None
    choice = roster.cluster_by_ranks(
        setting.algorithm, places, current.state.choice, setting.options.seeds
    )
    return current._replace(state=current.state._replace(choice=choice)), usable.left_out


def wait_for_clients(
    connected: Callable[[], set[int]], chosen: Sequence[int], least: int, timeout: float
) -> tuple[int, ...]:
    """The chosen clients that are connected. While they are too few, wait for others, at most until
    the timeout.
    """
    until, told = time.monotonic() + timeout, False
    while True:
        present, now = connected(), time.monotonic()
        found = tuple(k for k in chosen if k in present)
        if len(found) >= least or now >= until:
            return found
        if not told:
            LOG.warning(
                "%d of %d chosen clients are connected, %d are needed; waiting.",
                len(found),
                len(chosen),
                least,
            )
            told = True
        time.sleep(min(RECONNECT_SECONDS, until - now))


# A deployment that runs. Its record and its state are written after every round if there is a
# folder.


class RunningDeployment:
    """What one deployment keeps; an earlier server's work is found when it begins."""

    def __init__(self, opened: NewDeployment, folder: Path | None, *, rounds: int) -> None:
        setting = opened.setting
        self._folder, self._rounds = folder, rounds
        self.done, self.setting, self.state = 0, setting, opened.state
        self._refused: set[int] = set()  # nodes that are no clients
        self._met = set(opened.setting.roll.nodes)  # nodes that were connected in this run
        self._deployment = _deployment(setting, opened.identity)
        resumed = None
        if folder is not None:
            claim(folder, self._deployment)
            resumed = self._resume(folder, opened)
        told = options_record(setting.options, self.done + 1)
        self.recorder = Recorder(
            folder,
            self._deployment,
            facts_of(self.setting.roll),
            rounds=rounds,
            done=self.done,
            options=told,
        )
        self._trained = self.recorder.last_training()
        if resumed is None:
            for one in opened.left_out:
                LOG.warning("Node %d %s; it is not one of the clients.", one.node, one.reason)
            self._refused |= {one.node for one in opened.left_out}
            self.recorder.record_census(opened.left_out, opened.flagged)
        else:
            self._record_joining(resumed, self.done + 1)

    def _resume(self, folder: Path, opened: NewDeployment) -> Enrolment | None:
        """Continue the work of an earlier server, if there was one, with all of its clients."""
        setting, state = opened.setting, opened.state
        saved = load(folder, self._deployment, lambda clients: _of_clients(state, clients))
        if saved is None or not saved.round:  # an evaluation left it: nothing was trained
            return None
        before = _saved_roll(folder, saved)
        label, rule = setting.algorithm.label, setting.algorithm.rule
        keeps = bool(jax.tree.leaves(state.state.memory.value)) or rule.groups is not None
        keeps = keeps or messages.keeps_models(setting.algorithm)
        admission = joining.come_back(
            before, setting.roll, opened.told,
            label=label, keeps=keeps, groups=joining.known_groups(rule),
        )  # fmt: skip
        decided = {one.node for one in opened.told} if before.has_census else set[int]()
        silent = [one for one in opened.left_out if one.node not in decided]
        admission = admission._replace(left_out=[*silent, *admission.left_out])
        joined = joining.with_roll(setting, DeploymentState(*saved.state), admission.roll)
        self.done, self.setting, self.state = saved.round, joined.setting, joined.state
        LOG.info("Resuming after round %d, from %s", self.done, folder)
        left_out = joining.report_changes(before, admission, joined.setting, self.done + 1)
        return joined._replace(left_out=left_out)

    def welcome(self, grid: Grid, *, number: int, config: ConfigRecord, timeout: float) -> bool:
        """Add nodes that connected since the last round. Returns whether there are other clients
        now. A promise to clients is for a number of them that was settled before the first round.
        """
        if private_rounds.is_private(self.setting.algorithm):
            return False
        connected = set(grid.get_node_ids())
        new = sorted(connected - set(self.setting.roll.nodes) - self._refused)
        self._met |= connected
        if not new:
            return False
        before, asking = self.setting.roll, Asking(grid, number, config, timeout)
        joined = joining.welcome(self.setting, self.state, new, asking, held=frozenset(self._met))
        self.setting, self.state = joined.setting, joined.state
        self._record_joining(joined, number)
        return self.setting.roll is not before

    def _record_joining(self, joined: Enrolment, number: int) -> None:
        self._refused |= {one.node for one in joined.left_out}
        self.recorder.record_joining(
            number, facts_of(joined.setting.roll), joined.left_out, joined.flagged
        )

    @property
    def personal(self) -> PersonalModels | None:
        """What clients are told of the models that they keep; None where they keep none."""
        if not messages.keeps_models(self.setting.algorithm):
            return None
        return PersonalModels(self._deployment.identity, self._trained)

    def record_start(self, current: DeploymentState, left_out: Sequence[Exclusion]) -> None:
        """What was settled before the first round."""
        self.state = current
        self.recorder.record_census(left_out)

    def record_training(
        self,
        asked: RoundRequest,
        came: TrainingReplies,
        done: RoundResult,
        current: DeploymentState,
        *,
        seconds: float,
        download: float,
    ) -> None:
        """A round of training is over."""
        rule, gate = self.setting.algorithm.rule, self.state.state.gate
        self.done, self.state = asked.number, current
        self._trained |= dict.fromkeys(came.replies, asked.number)
        reports = (
            {k: float(v) for k, v in rule.report(current.state.public).items()}
            if isinstance(rule, ReportingRule)
            else {}
        )
        if private_rounds.is_private(self.setting.algorithm):
            reports[CLIP] = float(gate.clip)
        uploads = [reply.upload for reply in came.replies.values()]
        self.recorder.record_round(
            asked.number,
            asked.cohort,
            done.coefficients,
            left_out=came.left_out,
            flagged=done.flags,
            examples={k: reply.examples for k, reply in came.replies.items()},
            seconds=seconds,
            traffic=Traffic(sum(uploads) / max(len(uploads), 1), download),
            reports=reports,
        )

    def record_evaluation(self, number: int, found: EvaluationReplies, *, seconds: float) -> None:
        """A round is over: what clients found is noted, and all of it is written."""
        self.recorder.record_evaluation(number, found.replies, found.left_out, seconds=seconds)
        self.recorder.write()
        if self._folder is not None:
            save(
                self._folder,
                self._deployment,
                round=self.done,
                state=self.state,
                nodes=self.setting.roll.nodes,
                notes=joining.roll_notes(self.setting.roll),
            )


@contextmanager
def lock_folder(folder: Path | None) -> Iterator[None]:
    """Hold the folder for one server, and remove incomplete files that a killed server left."""
    if folder is None:
        yield
        return
    with folder_lock(folder, "folder"):
        sweep(folder)
        yield


def facts_of(roll: Roll) -> DeploymentFacts:
    """Names, groups and sizes of the clients, for the report."""
    census = roll.census
    return DeploymentFacts(
        names=roll.names or tuple(f"client {k}" for k in range(roll.clients)),
        nodes=roll.nodes,
        examples=tuple(int(n) for n in census.examples) if roll.has_census else (),
        labels=roll.labels,
        groups=roll.groups,
        unprivileged=census.unprivileged,
        favourable=census.favourable,
        client_group=() if roll.client_group is None else tuple(int(g) for g in roll.client_group),
        attributes=tuple(one._asdict() for one in roll.attributes),
        assumed=roll.assumed,
    )


def options_record(options: Options, since: int) -> ServerOptions:
    """The options, as the report shows them."""
    return ServerOptions(
        since,
        options.fraction_train,
        options.fraction_evaluate,
        options.min_train_nodes,
        options.min_evaluate_nodes,
        options.min_available_nodes,
        options.two_phase is not None,
        options.two_phase not in (None, two_phase.plain_sum),
    )


def _deployment(setting: DeploymentSetting, identity: str) -> Deployment:
    algorithm, options = setting.algorithm, setting.options
    arrays = list(zip(*setting.form.layout, strict=True))
    return deployment_of(
        algorithm,
        options.seeds,
        arrays,
        notation=notation_of(with_fraction(algorithm, options)),
        caps=options.caps,
        identity=identity,
    )


def _of_clients(current: DeploymentState, clients: int) -> DeploymentState:
    """A state of the same form for so many clients."""
    state = current.state
    choice = None if state.choice is None else np.zeros(clients, state.choice.dtype)
    memory = aggregation.with_clients(state.memory, clients)
    return current._replace(state=state._replace(memory=memory, choice=choice))


def _saved_roll(folder: Path, saved: SavedState) -> Roll:
    try:
        return joining.roll_from(saved.nodes, saved.notes)
    except ValueError:
        raise ValueError(
            f"{str(folder / NAME)!r} is damaged. Remove it to start the deployment over; its"
            " history is removed then, too."
        ) from None
