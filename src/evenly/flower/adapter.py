"""Any algorithm as a strategy of Flower: the one adapter between their rounds and ours.

Per round it draws the simulator's cohort, sends the model, reads signals off the replies, lets the rule weigh, adds up and
moves. It knows no method: what a method needs is read from its parts.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from evenly.experiment.deployment import LeftOut
from evenly.flower import first, model_arrays, rounds, wire
from evenly.flower.caps import Caps
from evenly.flower.checking import Expected, Reply, check_reply, no_answer
from evenly.flower.drawing import Drawing
from evenly.flower.naming import algorithm_of, notation_of
from evenly.flower.nodes import Introduction, Roll, introduced, present, reads_census, unknown_clients
from evenly.flower.reporting import averaged
from evenly.flower.signals import signals_of
from evenly.records import replace, require
from evenly.sampling import Fraction, Full, Uniform
from evenly.types import Algorithm, RowRule, Rule, Seeds, Several, Task

LOG = logging.getLogger("flwr")  # Flower's own: our lines stand among its lines
TIMEOUT = 3600.0

Average = Callable[[list[RecordDict], str], MetricRecord]
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


def strategy(
    algorithm: Algorithm | Rule | str,
    *,
    task: Task | None = None,
    seeds: Seeds | None = None,
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
) -> "FairStrategy":
    """A strategy for `ServerApp`, from an Algorithm, a rule such as QFedAvg(q=1.0), or a notation such as "fairfed(metric=eod)+reweigh".

    Options that Flower's FedAvg has mean what they mean there. With `fraction_train` clients are drawn uniformly; without it by
    the sampling that the algorithm names, else everybody takes part. `introduce` asks clients for a census even if the method
    does not need one, so that a report knows their groups. `task` lets the server check that the first arrays are its model's.
    """
    options = Options(
        introduce, fraction_train, fraction_evaluate, min_train_nodes, min_evaluate_nodes, min_available_nodes, weighted_by_key,
        arrayrecord_key, configrecord_key, train_metrics_aggr_fn or averaged, evaluate_metrics_aggr_fn or averaged,
    )  # fmt: skip
    made = algorithm_of(algorithm, uniform=fraction_train is not None)
    return FairStrategy(made, options, seeds=seeds or Seeds(), task=task, caps=caps)


class Options(NamedTuple):
    """What Flower's own FedAvg can be told, too, and whether clients introduce themselves."""

    introduce: bool
    fraction_train: float | None
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: Average
    evaluate_metrics_aggr_fn: Average


class Asked(NamedTuple):
    """A round that is under way."""

    number: int  # from 1
    cohort: np.ndarray  # int32 [K]
    reached: dict[int, int]  # client -> node, of those that were sent a message


class FairStrategy(Strategy):
    """What `strategy` makes."""

    def __init__(self, algorithm: Algorithm, options: Options, *, seeds: Seeds, task: Task | None, caps: Caps | None) -> None:
        self.algorithm, self.options, self.seeds, self.task, self.caps = algorithm, options, seeds, task, caps
        self.roll: Roll | None = None
        self.form: model_arrays.Form | None = None
        self.state: rounds.State | None = None
        self.carried: rounds.Leaves = []
        self.left_out: list[LeftOut] = []
        self.weights: list[np.ndarray] = []  # of each round
        self.cohorts: list[np.ndarray] = []
        self._drawing: Drawing | None = None
        self._asked: Asked | None = None
        self._handed_out: ArrayRecord | None = None
        self._timeout = TIMEOUT
        self._everybody = False

    # What Flower calls in every round.

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Messages to the clients that take part."""
        self._open(arrays, config, grid)
        roll, state = self._begun()
        cohort = np.arange(roll.clients, dtype=np.int32) if self._everybody else self._draw().cohort(server_round - 1)
        here = set(grid.get_node_ids())
        reached = {int(k): roll.nodes[k] for k in cohort if roll.nodes[k] in here}
        self._asked = Asked(server_round, cohort, reached)
        LOG.info("configure_train: %d of %d clients chosen, %d of them connected", len(set(cohort.tolist())), roll.clients, len(reached))
        records = self._training_records(state)
        return [
            self._message(MessageType.TRAIN, node, records, self._told(server_round, config, k, choosing=True))
            for k, node in reached.items()
        ]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, and metrics averaged by examples."""
        roll, state = self._begun()
        asked, form = self._asked, self.form
        require(asked is not None and asked.number == server_round, f"Round {server_round} was not configured; call configure_train first.")
        assert asked is not None and form is not None
        heard, contents = self._heard(asked, replies)
        parts = {k: model_arrays.received(form, reply.arrays) for k, reply in heard.items() if reply.arrays is not None}
        signals = signals_of(self.algorithm, state, asked.cohort, heard, self._draw().chance(server_round - 1))
        trained = [parts[k].model if k in parts else None for k in asked.cohort.tolist()]
        done = rounds.one_round(self.algorithm, state, signals, trained, self.caps)
        counted = {int(k) for k, came in zip(asked.cohort, done.counted, strict=True) if came}
        self.carried = model_arrays.carried_on(form, self.carried, [parts[k].carried for k in sorted(counted)])
        self.state = done.state
        self.weights.append(done.weights)
        self.cohorts.append(asked.cohort)
        self._asked = None
        self._handed_out = self._served_record()
        metrics = self.options.train_metrics_aggr_fn(contents, self.options.weighted_by_key)
        return self._handed_out, metrics

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Messages to the clients that evaluate what they are served."""
        options = self.options
        if options.fraction_evaluate == 0.0:
            return []
        roll, state = self._begun()
        here = set(grid.get_node_ids())
        there = np.array([k for k in range(roll.clients) if roll.nodes[k] in here])
        count = max(int(len(there) * options.fraction_evaluate), options.min_evaluate_nodes)
        records = {options.arrayrecord_key: arrays} | ({wire.OFFERED: self._offered(state)} if self._offers(state) else {})
        return [
            self._message(MessageType.EVALUATE, roll.nodes[k], records, self._told(server_round, config, int(k), choosing=False))
            for k in (self._draw().evaluated(server_round, there, count) if len(there) else ())
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Metrics averaged by examples."""
        contents = [message.content for message in replies if not message.has_error()]
        return self.options.evaluate_metrics_aggr_fn(contents, self.options.weighted_by_key) if contents else None

    def summary(self) -> None:
        """Say what will be done, among Flower's own lines."""
        options = self.options
        LOG.info("\t├──> Method: %s", notation_of(self.algorithm))
        LOG.info("\t├──> Clients send: arrays, %s", ", ".join(self.signals_needed()))
        LOG.info("\t├──> Evaluated by a share of %.2f of the clients", options.fraction_evaluate)
        LOG.info("\t└──> At least %d clients, %d in a round", options.min_available_nodes, options.min_train_nodes)

    def signals_needed(self) -> list[str]:
        """What a reply's metrics must hold."""
        needed = [wire.SIGNALS[need] for need in sorted(self.algorithm.rule.needs & wire.SIGNALS.keys())]
        return [self.options.weighted_by_key, *needed]

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, timeout: float = TIMEOUT,
        train_config: ConfigRecord | None = None, evaluate_config: ConfigRecord | None = None, evaluate_fn: Evaluate | None = None,
    ) -> Result:  # fmt: skip
        """Run all rounds, as Flower's own strategies do; methods with a final pass add one more in which everybody takes part."""
        self._timeout = timeout
        rule = self.algorithm.rule
        result = super().start(grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        if isinstance(rule, Several) and rule.final_pass:
            self._final_pass(grid, result, num_rounds + 1, train_config or ConfigRecord(), evaluate_config or ConfigRecord(), evaluate_fn)
        return result

    # Before the first round.

    def _open(self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        if self.state is None:
            self._begin(arrays, config, grid)
        elif arrays is not self._handed_out and not isinstance(self.algorithm.rule, Several):
            # Somebody changed the model in between, as a strategy around this one may.
            assert self.form is not None
            _, parts = model_arrays.opened(arrays, ranks=rounds.ranks(self.algorithm), apart=0)
            self.state, self.carried = self.state._replace(model=parts.model), parts.carried

    def _begin(self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        """Who is there, what they are like where the method asks, and whose model is whose."""
        nodes = present(grid, self.options.min_available_nodes)
        asks = self.options.introduce or reads_census(self.algorithm)
        self.roll = roll = self._introduced(nodes, config, grid) if asks else unknown_clients(nodes)
        self.algorithm = algorithm = first.suited(self._with_sampling(roll), roll)
        rule = algorithm.rule
        apart = rule.groups if isinstance(rule, Several) and rule.apart else 0
        self.form, (model, self.carried) = model_arrays.opened(arrays, ranks=rounds.ranks(algorithm), apart=apart)
        choice = first.given_choices(algorithm, roll, self.seeds)
        begun = first.tell_apart(algorithm, model)
        self._drawing = Drawing(algorithm.select, roll.census, self.seeds)
        self.state = rounds.begin(algorithm, model, roll.census, choice=choice, begun=begun)
        if isinstance(rule, Several) and rule.inference == "rank-clustering":
            self.state = self.state._replace(choice=self._clustered(config, grid))

    def _with_sampling(self, roll: Roll) -> Algorithm:
        """With `fraction_train`, as many clients as Flower would draw."""
        options = self.options
        if options.fraction_train is None:
            return self.algorithm
        share = Fraction(share=options.fraction_train).slots(roll.census)
        return replace(self.algorithm, select=Uniform(clients=max(share, options.min_train_nodes)))

    def _introduced(self, nodes: list[int], config: ConfigRecord, grid: Grid) -> Roll:
        """Ask every client for its census."""
        asked = [self._message(wire.CENSUS, node, {}, ConfigRecord(dict(config))) for node in nodes]
        answers = []
        for message in grid.send_and_receive(asked, timeout=self._timeout):
            node = message.metadata.src_node_id
            if message.has_error():
                LOG.warning("Node %d did not answer the census and is not one of the clients: %s", node, message.error.reason)
                continue
            metrics = next(iter(message.content.metric_records.values()), {})
            answers.append(Introduction(node, metrics, message.content.config_records.get(wire.ABOUT, {})))
        least = self.options.min_available_nodes
        require(
            len(answers) >= least,
            f"{self.algorithm.label} asks clients for a census before the first round ({wire.CENSUS!r}), and {len(answers)} of "
            f"{len(nodes)} answered; at least {least} must. Give the ClientApp a function for it: @app.query('census').",
        )
        return introduced(answers)

    def _clustered(self, config: ConfigRecord, grid: Grid) -> np.ndarray:
        """Every client trains once from the first order, on its batches of the first round; the server clusters what they send."""
        roll, state = self._begun()
        assert self.form is not None and state.choice is not None
        records = self._training_records(state)
        told = [
            self._message(MessageType.TRAIN, node, records, self._told(1, config, k, choosing=False)) for k, node in enumerate(roll.nodes)
        ]
        asked = Asked(0, np.arange(roll.clients, dtype=np.int32), dict(enumerate(roll.nodes)))
        heard, _ = self._heard(asked, grid.send_and_receive(told, timeout=self._timeout))
        places = {k: model_arrays.received(self.form, reply.arrays).model for k, reply in heard.items() if reply.arrays is not None}
        return first.clustered(self.algorithm, places, state.choice, self.seeds)

    def _final_pass(
        self, grid: Grid, result: Result, number: int, train: ConfigRecord, evaluate: ConfigRecord, evaluate_fn: Evaluate | None
    ) -> None:
        self._everybody = True
        replies = grid.send_and_receive(self.configure_train(number, result.arrays, train, grid), timeout=self._timeout)
        arrays, metrics = self.aggregate_train(number, replies)
        assert arrays is not None
        result.arrays = arrays
        if metrics is not None:
            result.train_metrics_clientapp[number] = metrics
        replies = grid.send_and_receive(self.configure_evaluate(number, arrays, evaluate, grid), timeout=self._timeout)
        if (found := self.aggregate_evaluate(number, replies)) is not None:
            result.evaluate_metrics_clientapp[number] = found
        if evaluate_fn is not None and (central := evaluate_fn(number, arrays)) is not None:
            result.evaluate_metrics_serverapp[number] = central

    # Messages.

    def _message(self, kind: str, node: int, records: dict[str, Any], config: ConfigRecord) -> Message:
        return Message(RecordDict({**records, self.options.configrecord_key: config}), message_type=kind, dst_node_id=node)

    def _told(self, number: int, config: ConfigRecord, client: int, *, choosing: bool) -> ConfigRecord:
        """The user's own config and what the method has to say to this client."""
        _, state = self._begun()
        told = ConfigRecord({**config, wire.ROUND: number, wire.METHOD: notation_of(self.algorithm), wire.CLIENT: client})
        told[wire.BATCH_SEED], told[wire.MODEL_SEED] = self.seeds.batches, self.seeds.model
        rule = self.algorithm.rule
        if isinstance(rule, RowRule):
            wire.put(told, wire.ROW_WEIGHTS, np.asarray(rule.row_weights(state.rule)))
        if isinstance(rule, Several):
            told[wire.MODELS] = rule.groups
            if not self._chooses(state):
                assert state.choice is not None
                told[wire.GROUP] = int(state.choice[client])
        return told

    def _training_records(self, state: rounds.State) -> dict[str, ArrayRecord]:
        """What clients train, and beside it what they choose from."""
        assert self.form is not None
        rule = self.algorithm.rule
        if isinstance(rule, Several) and rule.apart:
            return {self.options.arrayrecord_key: model_arrays.sent_several(self.form, state.model, self.carried)}
        own = model_arrays.sent(self.form, model_arrays.Parts(state.model, self.carried))
        return {self.options.arrayrecord_key: own} | ({wire.OFFERED: self._offered(state)} if self._offers(state) else {})

    def _chooses(self, state: rounds.State) -> bool:
        return first.clients_choose(self.algorithm, state.begun)

    def _offers(self, state: rounds.State) -> bool:
        """Whether clients choose among models that they do not train."""
        rule = self.algorithm.rule
        return isinstance(rule, Several) and not rule.apart and self._chooses(state)

    def _offered(self, state: rounds.State) -> ArrayRecord:
        assert self.form is not None
        return model_arrays.sent_several(self.form, rounds.offered(self.algorithm, state), self.carried)

    def _served_record(self) -> ArrayRecord:
        """What clients are given to use."""
        _, state = self._begun()
        assert self.form is not None
        model = rounds.served(self.algorithm, state)
        if isinstance(self.algorithm.rule, Several):
            return model_arrays.sent_several(self.form, model, self.carried)
        return model_arrays.sent(self.form, model_arrays.Parts(model, self.carried))

    def _heard(self, asked: Asked, replies: Iterable[Message]) -> tuple[dict[int, Reply], list[RecordDict]]:
        """Replies that can be used, by client, and their contents; the others are left out, with a reason."""
        roll, state = self._begun()
        assert self.form is not None
        rule, clients = self.algorithm.rule, {node: k for k, node in asked.reached.items()}
        needs = rule.needs if self._chooses(state) else rule.needs - {"choice"}
        heard, contents, left_out = {}, [], []
        for message in replies:
            node = message.metadata.src_node_id
            if node not in clients:
                continue  # an answer to an earlier round
            k = clients.pop(node)
            found = check_reply(message, self._expected(node, k, asked.number, needs if asked.number else frozenset()))
            if isinstance(found, LeftOut):
                left_out.append(found)
            else:
                heard[k] = found
                contents.append(message.content)
        left_out += [no_answer(self._expected(node, k, asked.number, needs)) for node, k in clients.items()]
        away = sorted(set(asked.cohort.tolist()) - set(asked.reached))
        left_out += [no_answer(self._expected(roll.nodes[k], k, asked.number, needs), "is not connected") for k in away]
        for one in left_out:
            LOG.warning("Round %d: client %d (node %d) %s", one.round, one.client, one.node, one.reason)
        self.left_out += left_out
        least = min(self.options.min_train_nodes, len(set(asked.cohort.tolist())))
        why = f" Node {left_out[0].node} (client {left_out[0].client}) {left_out[0].reason}." if left_out else ""
        require(
            len(heard) >= max(least, 1),
            f"Round {asked.number}: {len(heard)} of {len(set(asked.cohort.tolist()))} clients sent a reply that can be used, and "
            f"min_train_nodes asks for {self.options.min_train_nodes}.{why}",
        )
        return heard, contents

    def _expected(self, node: int, client: int, number: int, needs: frozenset[str]) -> Expected:
        roll, _ = self._begun()
        assert self.form is not None
        rule = self.algorithm.rule
        return Expected(
            node=node, client=client, round=number, method=self.algorithm.label, needs=needs, layout=self.form.layout,
            ranked=self.form.ranks, cells=roll.census.cells.shape[1:] if roll.introduced else None,
            examples=int(roll.census.examples[client]) if roll.introduced else None,
            models=rule.groups if isinstance(rule, Several) else 1,
            arrays_key=self.options.arrayrecord_key, examples_key=self.options.weighted_by_key,
        )  # fmt: skip

    def _begun(self) -> tuple[Roll, rounds.State]:
        require(self.roll is not None and self.state is not None, "The strategy has not begun; call start, or configure_train first.")
        assert self.roll is not None and self.state is not None
        return self.roll, self.state

    def _draw(self) -> Drawing:
        assert self._drawing is not None
        return self._drawing
