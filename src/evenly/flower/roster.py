"""Clients, cohorts, algorithm and options of a deployment: all that is fixed before its first
round.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from evenly.algorithms import METHODS, Method, settings_of, variants
from evenly.data.federation import Census
from evenly.data.sensitive import Attribute
from evenly.experiment.deployment import Exclusion
from evenly.flower import versions, wire
from evenly.flower.aggregation import Leaves
from evenly.flower.caps import Caps
from evenly.flower.replies import CensusReply, read_censuses
from evenly.flower.wire import Form
from evenly.notation import Composition, Part, parse, show
from evenly.parts.client_groups import drawn_groups, rank_clustering
from evenly.parts.optimisers import AveragingServer, OptimisedServer
from evenly.parts.sampling import SAMPLINGS, Fraction, Full, Uniform
from evenly.parts.work import PREPARES, LocalTraining
from evenly.plugins import load_installed
from evenly.privacy.row_account import is_calibrated, privacy_part, without_privacy
from evenly.randomness import Draws
from evenly.records import replace, require
from evenly.simulate.choosing import BEFORE_TRAINING, fit_to_data, initial_model
from evenly.types import Algorithm, Rule, Seeds, Select, Server, Task

# Numbers of clients, and their census before the first round.
#
# A client's number is the rank of its node id, or of the number that it sends in the census. Who
# joins later gets the next number. The census is taken only where the first public numbers or the
# sampling of the method depend on it.

LOG = logging.getLogger("flwr")
TELL_EVERY = 10.0  # seconds


class Roll(NamedTuple):
    """The clients of a deployment, in the order of their numbers."""

    nodes: tuple[int, ...]  # the node of each client
    census: Census
    numbers: tuple[int, ...] = ()  # that they said themselves; (): nobody did
    # whether clients were asked; else the census holds nothing but how many they are
    has_census: bool = False
    client_group: np.ndarray | None = None
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()  # which groups are made of
    assumed: tuple[str, ...] = ()  # what nobody named, of the favourable label and the attributes
    keys: tuple[str, ...] = ()  # digests of their registered keys; "" or (): not known

    @property
    def clients(self) -> int:
        return len(self.nodes)

    @property
    def numbered(self) -> bool:
        return bool(self.numbers)

    def number(self, node: int) -> int | None:
        return self.nodes.index(node) if node in self.nodes else None


def unknown_clients(nodes: Sequence[int]) -> Roll:
    """Roll of nodes without a census, in this order."""
    return Roll(tuple(nodes), _blank(len(nodes)))


def _blank(clients: int) -> Census:
    return Census(np.ones(clients, np.int64), np.ones((clients, 1, 1), np.int64))


def roll_of(answers: Sequence[CensusReply]) -> Roll:
    """Roll of clients with consistent censuses, ordered by the clients' own numbers where they have
    any.
    """
    numbers = tuple(sorted(answer.client for answer in answers if answer.client is not None))
    if numbers:
        answers = sorted(answers, key=lambda answer: numbers.index(answer.client or 0))
    if numbers != tuple(range(len(numbers))):
        LOG.warning(
            "Some client numbers are missing. Clients %s are numbered from 0 in this order.",
            numbers,
        )
    return roll_in_order(answers)


def roll_in_order(answers: Sequence[CensusReply]) -> Roll:
    """Roll of clients with consistent censuses, in this order."""
    numbers = tuple(answer.client for answer in answers if answer.client is not None)
    groups = [answer.client_group for answer in answers if answer.client_group is not None]
    return Roll(
        nodes=tuple(answer.node for answer in answers),
        census=Census(
            np.array([answer.examples for answer in answers], np.int64),
            np.stack([answer.cells for answer in answers]),
            next(
                (answer.unprivileged for answer in answers if answer.unprivileged is not None), (0,)
            ),
            next((answer.favourable for answer in answers if answer.favourable is not None), 1),
        ),
        numbers=numbers if len(numbers) == len(answers) else (),
        has_census=True,
        client_group=np.array(groups, np.int32) if len(groups) == len(answers) else None,
        names=_names(answers),
        labels=max(answer.labels for answer in answers),  # all the same, or ()
        groups=max(answer.groups for answer in answers),
        attributes=max(answer.attributes for answer in answers),
        assumed=max(answer.assumed for answer in answers),
        keys=tuple(answer.key for answer in answers),
    )


def answers_of(roll: Roll) -> list[CensusReply]:
    """What each client of a roll with a census said."""
    census, group = roll.census, roll.client_group
    return [
        CensusReply(
            node=node,
            examples=int(census.examples[k]),
            cells=census.cells[k],
            client=roll.numbers[k] if roll.numbers else None,
            client_group=None if group is None else int(group[k]),
            name=None if roll.names[k] == f"client {k}" else roll.names[k],
            labels=roll.labels,
            groups=roll.groups,
            unprivileged=census.unprivileged,
            favourable=census.favourable,
            attributes=roll.attributes,
            assumed=roll.assumed,
            key=roll.keys[k] if roll.keys else "",
        )
        for k, node in enumerate(roll.nodes)
    ]


def registered_censuses(
    grid: Any, replies: Iterable[Message], nodes: Iterable[int], *, most: int | None = None
) -> tuple[list[CensusReply], list[Exclusion]]:
    """Censuses that can be read, with the keys and the names under which the SuperLink knows their
    nodes, and exclusions with a reason. A registered name replaces the one that a client claims.
    """
    told, left_out = read_censuses(replies, nodes, most=most)
    known = versions.registered(grid)
    return [
        answer
        if (own := known.get(answer.node)) is None
        else answer._replace(key=own.key, name=own.name or answer.name)
        for answer in told
    ], left_out


def _names(answers: Sequence[CensusReply]) -> tuple[str, ...]:
    """Names of clients in the report. Clients with the same name get their node appended."""
    said = [
        f"client {k}" if answer.name is None else answer.name for k, answer in enumerate(answers)
    ]
    names: list[str] = []
    for name, answer in zip(said, answers, strict=True):
        own = name if said.count(name) == 1 else f"{name} (node {answer.node})"
        while own in names:  # somebody is called like that
            own = f"{own} (node {answer.node})"
        names.append(own)
    return tuple(names)


def wait_for_nodes(grid: Any, least: int) -> list[int]:
    """Wait until enough nodes are connected, and return them."""
    told = 0.0
    while len(nodes := list(grid.get_node_ids())) < least:
        if time.monotonic() - told > TELL_EVERY:
            LOG.info(
                "Waiting for nodes to connect: %d connected (minimum required: %d).",
                len(nodes),
                least,
            )
            told = time.monotonic()
        time.sleep(0.5)
    return nodes


def evaluating_clients(seed: int, number: int, present: np.ndarray, count: int) -> np.ndarray:
    """The present clients that evaluate after a round, in order. `seed` is that of cohorts."""
    draw = Draws(seed, "evaluated").at(number)
    return np.sort(draw.choice(present, min(count, len(present)), replace=False))


# Algorithms from their notation, and the notation that is sent to clients, with every setting that
# matters.

EVERYBODY = int(np.iinfo(np.int32).max)


def algorithm_of(given: Algorithm | Rule | str, *, uniform: bool = False) -> Algorithm:
    """An algorithm from its notation or from a rule. Without a sampling all clients take part, as
    in Flower's own strategies.

    With `uniform`, clients are sampled uniformly; their number is set later.
    """
    load_installed()
    select: Select = Uniform(clients=EVERYBODY) if uniform else Full()
    if isinstance(given, str):
        return _from_notation(parse(given), given, select, uniform)
    if isinstance(given, Algorithm):
        return replace(given, select=select) if uniform else given
    if not isinstance(given, Rule):
        raise TypeError(
            "A strategy needs a notation such as 'q-fedavg(q=1)', an Algorithm or a rule, got"
            f" {type(given).__name__}."
        )
    return _from_rule(given, select)


def _from_notation(composition: Composition, text: str, select: Select, uniform: bool) -> Algorithm:
    named = [part.name for part in composition[1:] if part.name in SAMPLINGS]
    if uniform and named:
        raise ValueError(
            f"{text!r} names the sampling +{named[0]}, and fraction_train is set, too. Remove one"
            " of them."
        )
    found = [
        member for variant in variants(composition, select=select) for member in variant.members
    ]
    if len(found) != 1:
        members = ", ".join(repr(member.label) for member in found)
        raise ValueError(
            f"{text!r} stands for {len(found)} runs, but a strategy runs one. Make a strategy for"
            f" each: {members}."
        )
    return found[0]


def _from_rule(rule: Rule, select: Select) -> Algorithm:
    method = next((m for m in METHODS.values() if m.rule is type(rule)), None)
    if method is None:  # somebody's own: clients train as they please
        return Algorithm(work=LocalTraining(), rule=rule, select=select, label=type(rule).__name__)
    given = {s.name: getattr(rule, s.name) for s in settings_of(type(rule), "rule")}
    built = replace(method.build(given, select=select), rule=rule)
    return replace(built, label=show((Part(method.name, _settings(method, built)),)))


def refuse_without_noise(algorithm: Algorithm) -> None:
    """Raise if clients could not know the noise that their privacy needs."""
    require(
        algorithm.privacy is None or is_calibrated(algorithm),
        f"{algorithm.label}: the noise follows from the number of rounds. Call `start` with"
        " num_rounds, or name noise_multiplier in the method.",
    )


def notation_of(algorithm: Algorithm) -> str:
    """Notation from which clients build this algorithm; only the label if its method is not
    registered.
    """
    name = parse(algorithm.label)[0].name if algorithm.label else ""
    if name not in METHODS:
        return algorithm.label or type(algorithm.rule).__name__
    method, privacy = METHODS[name], privacy_part(algorithm)
    algorithm = without_privacy(algorithm)
    head = Part(name, _settings(method, algorithm))
    rest = [
        _local(algorithm),
        _server(algorithm.server),
        _prepare(algorithm),
        _sampling(algorithm.select),
        privacy,
    ]
    return show((head, *(part for part in rest if part is not None)))


def _settings(method: Method, algorithm: Algorithm) -> dict[str, Any]:
    """Settings that differ from the method's defaults."""
    work = algorithm.work
    parts = {
        "rule": algorithm.rule,
        "work": work,
        "shape": getattr(work, "shape", None),
        "network": algorithm.network,
    }
    owned = {
        (kind, s.name)
        for kind, part in parts.items()
        if part is not None
        for s in settings_of(type(part), kind)
    }
    chosen = {
        s.name: getattr(parts[s.part], s.name)
        for s in method.settings.values()
        if (s.part, s.name) in owned
    }
    return {
        name: value
        for name, value in chosen.items()
        if value is not None and value != method.settings[name].default
    }


def _local(algorithm: Algorithm) -> Part | None:
    kind = getattr(algorithm.work, "optimiser", "sgd")
    require(
        isinstance(kind, str),
        f"{algorithm.label}: a local optimiser that is a function cannot be sent to clients. Choose"
        " one by its name.",
    )
    options = dict(getattr(algorithm.work, "options", {}))
    return None if kind == "sgd" and not options else Part(f"local-{kind}", options)


def _server(server: Server | None) -> Part | None:
    if isinstance(server, AveragingServer):
        return _server(server.inner)
    if not isinstance(server, OptimisedServer) or not isinstance(server.optimiser.kind, str):
        return None
    own = server.optimiser
    return Part(f"server-{own.kind}", {"learning_rate": own.learning_rate, **own.options})


def _prepare(algorithm: Algorithm) -> Part | None:
    own = algorithm.prepare
    name = next((name for name, kind in PREPARES.items() if kind is type(own)), None)
    return None if own is None or name is None else Part(name, _fields(own))


def _sampling(select: Select) -> Part:
    name = next(
        (name for name, kind in SAMPLINGS.items() if kind is type(select)),
        "weighted" if select.by_size else "full",
    )
    return Part(
        name, _fields(select) if name in SAMPLINGS and type(select) is SAMPLINGS[name] else {}
    )


def _fields(part: Any) -> dict[str, Any]:
    return {
        s.name: getattr(part, s.name)
        for s in settings_of(type(part), "part")
        if getattr(part, s.name) != s.default
    }


# Initial models and choices of a deployment, like those of `evenly.simulate.run`.


def first_arrays(
    algorithm: Algorithm | Rule | str, task: Task, seeds: Seeds | None = None
) -> ArrayRecord:
    """Return the initial model, or models, that a simulation with the same seeds starts from.

    Args:
        algorithm: Notation, `Algorithm` or rule, as for :func:`evenly.flower.strategy`.
        task: Model and loss.
        seeds: Seeds of the run. Defaults to zeros.

    Returns:
        Arrays for ``strategy(...).start(grid, initial_arrays)``.

    Example:
        >>> from evenly.flower import first_arrays
        >>> from evenly.models import Softmax
        >>> list(first_arrays("fedavg", Softmax(features=4, classes=2)))
        ['b', 'w']
    """
    seeds, algorithm = seeds or Seeds(), algorithm_of(algorithm)
    task, rule = algorithm.task(task, seeds), algorithm.rule
    model = initial_model(task, rule, seeds)
    if not rule.apart:
        return wire.to_arrays(model, dtype=np.int32 if algorithm.network is not None else None)
    names, leaves = wire.names_of(model), wire.leaves_of(model)
    return wire.merge(
        wire.record_of(names, [leaf[q] for leaf in leaves], wire.prefix_of(q))
        for q in range(rule.groups or 0)
    )


def fit_to_clients(algorithm: Algorithm, roll: Roll) -> Algorithm:
    """The algorithm with its number of models, where that depends on the clients. Raises if they do
    not fit.
    """
    require(
        not algorithm.rule.people,
        f"{algorithm.label}: with people = true a client sends one order for each group of people"
        " in its rows, which only a simulation can do. Start a SuperNode for each of these groups,"
        " with client-group in its census, and leave people out.",
    )
    require(
        not algorithm.rule.known_votes,
        f"{algorithm.label}: known_votes measures in a simulation how well clients would find their"
        " group. In a deployment either leave it and the inference out, so that groups are known,"
        " or leave it out alone, so that clients infer them.",
    )
    return fit_to_data(algorithm, roll.census, roll.client_group)


def first_choices(algorithm: Algorithm, roll: Roll, seeds: Seeds) -> np.ndarray | None:
    """Each client's model before the first round: known, or random until the models differ."""
    rule = algorithm.rule
    if rule.groups is None:
        return None
    if rule.inference == "known":
        return np.asarray(roll.client_group, np.int32)
    return drawn_groups(roll.clients, rule.groups, seeds.cohort)


def cluster_by_ranks(
    algorithm: Algorithm, places: dict[int, Leaves], drawn: np.ndarray, seeds: Seeds
) -> np.ndarray:
    """Assign clients to models by E2FL's rank clustering; clients without a reply keep their random
    model.
    """
    rule: Any = algorithm.rule
    who = sorted(places)
    count = len(places[who[0]])
    if rule.layer > count:
        raise ValueError(
            f"{algorithm.label}: layer must be 0 (all) or from 1 to {count}, got {rule.layer}."
        )
    layers = range(count) if not rule.layer else [rule.layer - 1]
    votes = [np.stack([places[k][i].astype(np.float32) for k in who]) for i in layers]
    found = rank_clustering(
        votes, rule.groups, seed=seeds.cohort, iterations=rule.iterations, restarts=rule.restarts
    )
    choice = drawn.copy()
    choice[who] = found.choice
    return choice


def models_differ(algorithm: Algorithm, model: Leaves) -> bool:
    """Whether the initial models differ, so that clients can choose from the first round on."""
    apart = algorithm.rule.apart
    return apart and any(bool((leaf != leaf[:1]).any()) for leaf in model)


def clients_choose(algorithm: Algorithm, begun: bool) -> bool:
    """Whether clients choose their model themselves in this round."""
    rule = algorithm.rule
    return rule.groups is not None and rule.inference not in BEFORE_TRAINING and begun


# Options of a strategy, and the setting of a deployment.

Average = Callable[[list[RecordDict], str], MetricRecord]
# Computes the sum of a two-phase round from the arrays of each client, by the names of the arrays
# ("0/...", "1/..." for several models).
Adding = Callable[[Mapping[int, ArrayRecord]], Mapping[str, np.ndarray]]


class Options(NamedTuple):
    """Options of a strategy. See `evenly.flower.strategy`."""

    seeds: Seeds
    caps: Caps | None
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
    two_phase: Adding | None = None  # None: rounds of one phase
    max_reply_bytes: int | None = None  # None: reckoned from the model


def with_sampling(algorithm: Algorithm, options: Options, census: Census) -> Algorithm:
    """The algorithm with uniform sampling of as many clients as Flower draws for
    `fraction_train`.
    """
    if options.fraction_train is None:
        return algorithm
    share = Fraction(share=options.fraction_train).slots(census)
    return replace(algorithm, select=Uniform(clients=max(share, options.min_train_nodes)))


def with_fraction(algorithm: Algorithm, options: Options) -> Algorithm:
    """The algorithm with `fraction_train` as a share, which does not depend on the number of
    clients.
    """
    if options.fraction_train is None:
        return algorithm
    return replace(algorithm, select=Fraction(share=options.fraction_train))


class DeploymentSetting(NamedTuple):
    """What stays the same through a deployment, unless clients join."""

    algorithm: Algorithm
    options: Options
    roll: Roll
    form: Form
    census: Census  # what rule and sampling begin with: the roll's, within the caps

    @property
    def models(self) -> int:
        """Number of models; 0 if all clients share one."""
        return self.algorithm.rule.groups or 0

    @property
    def apart(self) -> bool:
        """Whether clients train the model that they chose; otherwise all train the same one."""
        return self.algorithm.rule.apart
