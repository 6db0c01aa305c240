"""What a server asks of a client, read from a message, and its review by the site's policy.

Nothing of the client's data is looked at here. A request is refused before it is answered if its
kind, its size, its records, its config, its method, its seeds or its round are outside the policy.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message

from evenly.flower import wire
from evenly.flower.clients.egress import LEFT, EgressEntry, examined_today, now
from evenly.flower.clients.policy import Policy
from evenly.flower.replies import size_of
from evenly.flower.roster import algorithm_of
from evenly.types import Algorithm, RowRule

FEW = "its answer would rest on too few rows"
KINDS = {wire.CENSUS: "census", wire.MEASURE: "measure", wire.AUDIT: "audit"}
UNREADABLE = "unreadable"  # the kind of a message that holds no request
MEGABYTE = 2**20
# the same in all requests of a run but the census, and 0 where a request does not name them
PINNED = (wire.CLIENT, wire.BATCH_SEED, wire.MODEL_SEED)
ENTRIES = {
    wire.ROUND, wire.METHOD, *PINNED, wire.ROW_WEIGHTS, wire.MODELS, wire.GROUP, wire.COEFFICIENT,
    wire.DEPLOYMENT, wire.TRAINED,
}  # fmt: skip
RECORDS = (wire.ARRAYS, wire.CONFIG, wire.OFFERED)
LARGEST_COEFFICIENT = 1e6


class Refusal(Exception):  # noqa: N818 (an answer, no error)
    """A refusal: the reason that the server hears, and the one that stays at the site."""

    def __init__(self, public: str, private: str) -> None:
        super().__init__(public)
        self.public, self.private = public, private


class Request(NamedTuple):
    """A request of the server."""

    kind: str
    run: str
    round: int
    method: str
    algorithm: Algorithm | None  # None: none was named, or none that is known
    config: Mapping[str, Any]
    pinned: Mapping[str, int]
    arrays: Mapping[str, tuple[int, ...]]  # shapes by name
    digest: str  # of everything that was asked


def read_request(message: Message, context: Context) -> Request:
    """Read a message; what is missing or has a wrong type is refused later, by the review."""
    try:
        return _read_request(message, context)
    except Exception:  # whatever a server put together, its request is in the log
        return Request(UNREADABLE, str(context.run_id), -1, "", None, {}, {}, {}, "")


def _read_request(message: Message, context: Context) -> Request:
    given = message.metadata.message_type
    content = message.content
    config = dict(next(iter(content.config_records.values()), {}))
    method, number = config.get(wire.METHOD, ""), config.get(wire.ROUND, 0)
    return Request(
        kind=KINDS.get(given, given),
        run=str(context.run_id),
        round=number if isinstance(number, int) else -1,
        method=str(method)[:300],
        algorithm=_algorithm(str(method)),
        config=config,
        pinned={
            key: int(value)
            for key in PINNED
            if given != wire.CENSUS and isinstance(value := config.get(key, 0), int)
        },
        arrays={
            name: tuple(array.shape)
            for record in content.array_records.values()
            for name, array in record.items()
        },
        digest=_digest(message, config),
    )


def _algorithm(method: str) -> Algorithm | None:
    try:
        return algorithm_of(method)
    except ValueError:
        return None


def _digest(message: Message, config: Mapping[str, Any]) -> str:
    """Digest of a request. The length of each part is part of it, so that no two requests share a
    digest because bytes of one array look like the next array.
    """
    parts = [message.metadata.message_type.encode(), repr(sorted(config.items())).encode()]
    for key, record in sorted(message.content.array_records.items()):
        for name, array in record.items():
            form = f"{array.shape} {array.dtype} {array.stype}"
            parts += [key.encode(), name.encode(), form.encode(), array.data]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def review(policy: Policy, before: Sequence[EgressEntry], asked: Request, message: Message) -> None:
    """Refuse a request that is outside the policy.

    Args:
        policy: The site's policy.
        before: Entries of the site's egress log.
        asked: The request.
        message: The message that it was read from.

    Raises:
        Refusal: With a reason for the server and one for the site.
    """
    if asked.kind not in policy.answers:
        _refuse(f"requests of kind {asked.kind!r:.60} are not answered", "`answers` lacks it.")
    size = size_of(message.content)
    if size > policy.request_megabytes * MEGABYTE:
        _refuse(
            f"it is larger than {policy.request_megabytes} MiB",
            f"The request has {size:,} bytes (request_megabytes = {policy.request_megabytes}).",
        )
    _review_records(asked, message)
    _review_entries(policy, asked)
    if asked.kind != "census" or wire.METHOD in asked.config:
        _review_method(policy, asked)
    if policy.private and asked.kind not in ("evaluate", "audit"):
        _review_noise(policy, asked)
    _review_history(policy, before, asked)


def _review_records(asked: Request, message: Message) -> None:
    groups = None if asked.algorithm is None else asked.algorithm.rule.groups
    for name, record in message.content.items():
        legal = ConfigRecord if name == wire.CONFIG else ArrayRecord
        if name not in RECORDS or not isinstance(record, legal):
            _refuse(f"it holds a record {name!r:.60} that no method has", "Forged record.")
        if name == wire.OFFERED and groups is None:
            _refuse("it offers models to choose from, which its method does not", "Forged record.")
        if isinstance(record, ArrayRecord) and groups != 0:  # 0: the method leaves it to the server
            _review_models(record, groups or 0)


def _review_models(record: ArrayRecord, groups: int) -> None:
    """Refuse more models than the method has: which of many fits best would tell too much."""
    for name in record:
        number, slash, _ = name.partition("/")
        if slash and not (number.isdecimal() and int(number) < groups):
            _refuse(
                "it holds more models than its method has",
                f"It holds {name!r:.60}, and the method has {groups or 1}.",
            )


def _review_entries(policy: Policy, asked: Request) -> None:
    known = ENTRIES | set(policy.config)
    for key, value in asked.config.items():
        if key.removesuffix(wire.SHAPE) not in known:
            _refuse(
                f"its config has an entry {key!r:.60} that no method has", f"It is {value!r:.60}."
            )
        if key in (wire.ROUND, *PINNED, wire.MODELS, wire.GROUP, wire.TRAINED) and (
            not isinstance(value, int) or isinstance(value, bool) or value < 0
        ):
            _refuse(f"{key!r} must be a whole number from 0", f"It is {value!r:.60}.")
    grouped = asked.algorithm is not None and asked.algorithm.rule.groups is not None
    if not grouped and asked.config.keys() & {wire.MODELS, wire.GROUP}:
        _refuse("it names one of several models, and its method has one", "Forged entry.")


def _review_method(policy: Policy, asked: Request) -> None:
    if asked.algorithm is None or not policy.allows(asked.method):
        _refuse(
            f"the method {asked.method!r} is not one that it agreed to",
            f"`methods` lists {', '.join(policy.methods)}.",
        )
    assert asked.algorithm is not None
    _review_weights(asked, asked.algorithm)
    coefficient = wire.get(asked.config, wire.COEFFICIENT)
    if coefficient is None:
        return
    most = max(asked.algorithm.rule.groups or 1, 1)
    legal = (
        asked.kind == "train"
        and coefficient.size <= most
        and np.isfinite(coefficient).all()
        and (np.abs(coefficient) <= LARGEST_COEFFICIENT).all()
    )
    if not legal:
        _refuse("its coefficients are none that the method has", f"Got {coefficient!r:.60}.")


def _review_noise(policy: Policy, asked: Request) -> None:
    """Nothing about training rows leaves without the noise that the policy asks for."""
    noise = getattr(asked.algorithm.work, "noise_multiplier", 0.0) if asked.algorithm else 0.0
    if not noise or noise < (policy.noise or 0):
        _refuse(
            "its rows are private, and the method adds too little noise",
            f"{asked.method!r} has a noise multiplier of {noise}; the policy asks for"
            f" {'noise above 0' if policy.noise is None else policy.noise}.",
        )


def _review_weights(asked: Request, known: Algorithm) -> None:
    """Row weights only where the method has them, and none that are negative or not finite."""
    if not any(key.startswith(wire.ROW_WEIGHTS) for key in asked.config):
        return
    if not isinstance(known.rule, RowRule) or asked.kind == "audit":
        _refuse(
            "it gives weights to rows, which its method does not",
            "A server with row weights can single out the rows of one group and label.",
        )
    weights = wire.get(asked.config, wire.ROW_WEIGHTS)
    if weights is None or not np.isfinite(weights).all() or (weights < 0).any():
        _refuse("its row weights are not finite numbers from 0", "Forged row weights.")


def _review_history(policy: Policy, before: Sequence[EgressEntry], asked: Request) -> None:
    """Within a run, each round is asked once, or again with the same words, and seeds stay; over
    all runs, days have a limit.
    """
    earlier = [one for one in before if one.run == asked.run and one.decision == LEFT]
    for one in earlier:
        for key, value in asked.pinned.items():
            if one.pinned.get(key, value) != value:
                _refuse(f"{key!r} changed within the run", f"{one.pinned[key]} became {value}.")
    same = [one for one in earlier if one.kind == asked.kind]
    if any(one.request == asked.digest for one in same):
        return  # it is told nothing new
    if asked.kind == "train" and asked.round < 1:
        _refuse("rounds of training count from 1", f"It is {asked.round}.")
    if asked.kind != "census" and any(one.round >= asked.round for one in same):
        _refuse(
            "this round, or a later one, was answered for another request",
            f"{asked.kind} of round {asked.round} was asked with other contents before.",
        )
    today = now()[:10]
    if len(examined_today(before, asked.kind, today)) >= policy.rounds_a_day:
        _refuse(
            "it answered as many rounds as it does on one day",
            f"rounds_a_day is {policy.rounds_a_day}.",
        )


def _refuse(public: str, private: str) -> None:
    raise Refusal(public, f"{public[:1].upper()}{public[1:]}. {private}")
