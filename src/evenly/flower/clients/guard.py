"""Hold every request and every reply of a client against the policy of its site.

    app = ClientApp(mods=[site_policy])

Ready clients have this mod. It reads the policy that `policy` in the node's config names, reviews
the request before anybody answers it, and lets a reply leave only if the policy allows every number
in it. What is refused is answered with a sentence, and both are in the site's egress log. Whatever
goes wrong here refuses.

Ready clients also show the guard what a reply does not: the kind of model, the rows that they hold,
their weights, and how many of them move the model. A client that is written by hand can do the same
with `inspect_rows`, `inspect_model`, `inspect_training`, `inspect_cells`, `inspect_features`,
`inspect_losses` and `inspect_choice`.
"""

import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, MetricRecord, RecordDict

from evenly.flower import wire
from evenly.flower.clients import review as reviewing
from evenly.flower.clients.egress import (
    FAILED,
    LEFT,
    REFUSED,
    WITHHELD,
    EgressEntry,
    EgressLog,
    now,
    tables_that_left,
)
from evenly.flower.clients.ledger import ToldError
from evenly.flower.clients.policy import Policy, PolicyError, read_policy
from evenly.flower.clients.review import FEW, Refusal, Request
from evenly.flower.clients.rows import ClientData, ClientRows, RowOutcomes, rows_apart

Answering = Callable[[Message, Context], Message]  # what Flower calls next
LOG = logging.getLogger("flwr")
POLICY = "policy"  # in the node's config: the path of the file
SPLIT_PREFIX = {"test": "", "train": "train-", "valid": "valid-"}
LARGEST_FAIR = 50.0  # a loss above is that of a model which was made to single out rows
GRAIN = 1e-12  # rows whose loss is below do not move a model


class RequestInProgress:
    """What is known of one request and its reply, until the reply has left."""

    def __init__(self, policy: Policy, log: EgressLog, request: Request) -> None:
        self.policy, self.log, self.request = policy, log, request
        self.rows = ""
        self.once_released = list[Callable[[], None]]()

    def entry(self, decision: str, words: str = "", **more: Any) -> EgressEntry:
        asked = self.request
        return EgressEntry(
            time=now(), run=asked.run, kind=asked.kind, round=asked.round, decision=decision,
            words=words, method=asked.method, request=asked.digest, pinned=asked.pinned,
            state=self.policy.rows, rows=self.rows, **more,
        )  # fmt: skip


_IN_PROGRESS: ContextVar[RequestInProgress | None] = ContextVar("request in progress", default=None)


# The mod.


def site_policy(message: Message, context: Context, call_next: Answering) -> Message:
    """Answer a message within the policy of the site. A node without a policy answers nothing.

    Args:
        message: The server's request.
        context: The node's context. `policy` in its config is the path of the policy.
        call_next: The client.

    Returns:
        The client's reply, or an error whose reason says that the site refuses.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp(mods=[site_policy])
    """
    try:
        policy = read_policy(_policy_path(context))
        log = EgressLog(Path(policy.log))
        with log.locked():
            return _guarded(policy, log, message, context, call_next)
    except PolicyError as error:
        LOG.error("%s", error)
        return _refused(message, "it has no policy that can be read")
    except Exception as error:  # whatever it is, nothing leaves
        LOG.error("The egress log cannot be used, so nothing is answered: %s", error)
        return _refused(message, "its egress log cannot be written")


def site_policy_if_any(message: Message, context: Context, call_next: Answering) -> Message:
    """Answer within the policy of the site, or without limits where the node has none."""
    if POLICY in context.node_config:
        return site_policy(message, context, call_next)
    return call_next(message, context)


def _policy_path(context: Context) -> Path:
    path = context.node_config.get(POLICY)
    if not path:
        raise PolicyError(
            "This client answers only with a policy, and the node's config names none. Start the"
            " SuperNode with --node-config 'policy=\"/etc/evenly/policy.toml\"'."
        )
    return Path(str(path))


def _guarded(
    policy: Policy, log: EgressLog, message: Message, context: Context, call_next: Answering
) -> Message:
    """Review, answer, release; a refusal leaves the node's state as it was."""
    current = RequestInProgress(policy, log, reviewing.read_request(message, context))
    before, token = dict(context.state), _IN_PROGRESS.set(current)
    decision = REFUSED
    try:
        reviewing.review(policy, log.entries, current.request, message)
        decision = WITHHELD  # from here on, a refusal follows from rows
        reply = call_next(message, context)
        release(current, reply)
        return reply
    except Refusal as refusal:
        _restore(context, before)
        log.append(current.entry(decision, refusal.private))
        LOG.warning("Refused by this site's policy: %s", refusal.private)
        return _refused(message, refusal.public)
    except ToldError as error:  # its words do not depend on rows
        _restore(context, before)
        log.append(current.entry(FAILED, str(error)))
        LOG.warning("Not answered: %s", error)
        return _refused(message, f"it could not answer: {str(error).removesuffix('.')}")
    except Exception as error:  # its words may quote rows, so they stay here
        _restore(context, before)
        log.append(current.entry(FAILED, f"{type(error).__name__}: {error}"))
        LOG.error("This client could not answer", exc_info=error)
        return _refused(message, "it could not answer, and its own log says why")
    finally:
        _IN_PROGRESS.reset(token)


def _restore(context: Context, before: dict[str, Any]) -> None:
    for key in set(context.state) - set(before):
        del context.state[key]
    for key, record in before.items():
        context.state[key] = record


def _refused(message: Message, reason: str) -> Message:
    return Message(Error(wire.REFUSED, f"{wire.REFUSES}{reason}."), reply_to=message)


# What a reply may hold.


def release(current: RequestInProgress, reply: Message) -> None:
    """Let a reply leave and note every number of it, or refuse it."""
    if reply.has_error():
        raise Refusal("it could not answer, and its own log says why", str(reply.error.reason))
    content = reply.content
    numbers = _numbers_of(content)
    _check_names(current, numbers)
    if not (current.policy.private and current.request.kind not in ("evaluate", "audit")):
        _check_counts(current.policy, numbers)  # counts that are not noised
        _check_changes(current, numbers)
    arrays = _arrays_of(current, content)
    about = {
        name: value for record in content.config_records.values() for name, value in record.items()
    }
    if about and current.request.kind != "census":
        raise Refusal("its reply held words", f"The reply held {', '.join(about)}.")
    for change in current.once_released:
        change()
    current.log.append(current.entry(LEFT, numbers=numbers, arrays=arrays, about=about))


def _numbers_of(content: RecordDict) -> dict[str, Any]:
    records = [record for record in content.values() if isinstance(record, MetricRecord)]
    return {name: value for record in records for name, value in record.items()}


def _check_names(current: RequestInProgress, numbers: dict[str, Any]) -> None:
    allowed = allowed_numbers(current.policy, current.request)
    for name, value in numbers.items():
        plain = name.removesuffix(wire.SHAPE)
        counted = current.request.kind == "audit" and plain + wire.SHAPE in numbers
        if plain not in allowed and not counted:
            raise Refusal(
                f"{plain!r} may not leave it", f"The reply held {plain!r} ({value!s:.60})."
            )


def allowed_numbers(policy: Policy, asked: Request) -> set[str]:
    """Names of the metrics that may leave in reply to a request."""
    names = {wire.EXAMPLES, *policy.metrics}
    if asked.kind == "census":
        return names | {wire.CELLS, wire.CLIENT, wire.CLIENT_GROUP}
    if asked.kind == "evaluate":
        split = {SPLIT_PREFIX[split] for split in policy.splits}
        plain = {wire.EXAMPLES, wire.TABLE} | (names & {wire.LOSS})
        own = {prefix + name for prefix in split for name in plain}
        return (names if "" in split else set(policy.metrics)) | own | {wire.CHOICE}
    if asked.algorithm is None:
        return names
    needs = asked.algorithm.needs & set(policy.allowed_signals)
    own = {wire.SIGNALS[need] for need in needs}
    own |= {wire.CHOICE} if asked.algorithm.rule.groups is not None else set()
    return names | own | {wire.SQUARE_NORM, wire.COEFFICIENT}


def _check_counts(policy: Policy, numbers: dict[str, Any]) -> None:
    """Every count is 0 or at least the least cell, and so is what is left of the whole."""
    least = policy.least_cell
    for name, value in numbers.items():
        if name.endswith((wire.SHAPE, wire.CELL_LOSS)) or name == wire.COEFFICIENT:
            continue
        table = name + wire.SHAPE in numbers
        if table or name.endswith((wire.EXAMPLES, wire.UNPRIVILEGED)):
            cells = np.asarray(value, float)
            if (cells != np.floor(cells)).any() or (cells < 0).any():
                raise Refusal(FEW, f"{name!r} holds a number that is no count.")
            _require_cells(name, cells, least)
    if wire.UNPRIVILEGED in numbers and wire.EXAMPLES in numbers:
        others = numbers[wire.EXAMPLES] - numbers[wire.UNPRIVILEGED]
        _require_cells(wire.UNPRIVILEGED, np.array([others]), least)
    if wire.CELL_LOSS in numbers and wire.TABLE not in numbers:
        raise Refusal(FEW, "Losses by cell may leave only beside the counts of these cells.")


def _require_cells(name: str, cells: np.ndarray, least: int) -> None:
    small = int(((cells > 0) & (cells < least)).sum())
    if small:
        raise Refusal(
            FEW,
            f"{name!r} has {small} counts from 1 to {least - 1}, and least_cell is {least}.",
        )


def _check_changes(current: RequestInProgress, numbers: dict[str, Any]) -> None:
    """Two tables of the same rows differ by no row or by several. Signals of training rows are
    exempt: they change a little in every round of the method that the site agreed to.
    """
    if current.request.kind in ("train", "measure"):
        return
    least = current.policy.least_change
    for name in numbers:
        if name + wire.SHAPE not in numbers:
            continue
        own = np.asarray(numbers[name]).reshape(numbers[name + wire.SHAPE])
        for earlier in tables_that_left(current.log.entries, name, current.rows):
            moved = _moved(own, earlier)
            if 0 < moved < least:
                raise Refusal(
                    FEW,
                    f"{name!r} differs by {moved} rows from one that left before, and least_change"
                    f" is {least}.",
                )


def _moved(table: np.ndarray, earlier: np.ndarray) -> int:
    """Rows that must change their cell, come or go to turn one table into the other."""
    if table.shape != earlier.shape:
        return 0
    change = table.astype(np.int64) - earlier.astype(np.int64)
    return int(max(change.clip(0).sum(), (-change).clip(0).sum()))


def _arrays_of(current: RequestInProgress, content: RecordDict) -> dict[str, list[int]]:
    """Shapes of the arrays that leave: a trained model, as large as those that were received."""
    found = {
        name: list(array.shape)
        for record in content.array_records.values()
        for name, array in record.items()
    }
    if found and current.request.kind != "train":
        raise Refusal("its reply held arrays", f"The reply held {', '.join(found)}.")
    received = current.request.arrays
    for name, shape in found.items():
        plain = name.partition("/")[2] or name
        known = {received.get(key) for key in (name, plain, f"0/{plain}")}
        if tuple(shape) not in known:
            raise Refusal("its reply held other arrays than the model", f"The reply held {name}.")
    return found


# What ready clients show the guard besides.


def allowed_splits(splits: Iterable[str]) -> tuple[str, ...]:
    """Those of these splits whose evaluation may leave."""
    current = _IN_PROGRESS.get()
    return tuple(split for split in splits if current is None or split in current.policy.splits)


def evaluated_losses_leave() -> bool:
    """Whether losses of evaluated rows may leave: only if the policy lists them in `metrics`. From
    a few exact losses, a server computes the row with a rare value.
    """
    current = _IN_PROGRESS.get()
    return current is None or wire.LOSS in current.policy.metrics


def once_released(change: Callable[[], None]) -> None:
    """Change what the client keeps: at once without a policy, else as soon as the reply may leave.

    Args:
        change: Makes the change.
    """
    current = _IN_PROGRESS.get()
    if current is None:
        change()
    else:
        current.once_released.append(change)


def watching() -> bool:
    """Whether a policy holds for the request that is being answered."""
    return _IN_PROGRESS.get() is not None


def most_epsilon() -> float | None:
    """The most that the policy lets be spent of row-level privacy; None: it does not say."""
    current = _IN_PROGRESS.get()
    return None if current is None else current.policy.epsilon


def least_cell() -> int:
    """Smallest count that a table may hold besides 0; 1 without a policy."""
    current = _IN_PROGRESS.get()
    return 1 if current is None else current.policy.least_cell


def inspect_rows(client: ClientData) -> None:
    """Refuse if the client's rows are not those about which numbers left before.

    Args:
        client: The rows that the client answers from.
    """
    current = _IN_PROGRESS.get()
    if current is None:
        return
    current.rows = _digest_of(client)
    for one in current.log.entries:
        same_state = one.decision == LEFT and one.state == current.policy.rows
        if same_state and one.rows and one.rows != current.rows:
            raise Refusal(
                "its rows, or how they are split, changed since numbers about them left",
                f"The rows differ from those of {one.time[:10]}. Numbers of both would tell those"
                " that changed. If many rows changed, give `rows` in the policy another name.",
            )


def inspect_model(*, one_logit: bool, noised: bool = False) -> None:
    """Refuse a model for which losses do not tell how many rows move a weight.

    The other checks look at the loss of each row. It tells how much the row moves the model only if
    there is one number, the difference of two logits, through which rows move all weights. A unit
    of a network, one of three classes, and a hinge can rest on one row under ordinary losses.

    Args:
        one_logit: Whether the model is linear, tells two classes apart, and is trained on their
            cross-entropy.
        noised: Whether training clips and noises single rows. What an evaluation counts has no
            noise.
    """
    current = _IN_PROGRESS.get()
    if current is None or one_logit or current.policy.any_model:
        return
    if noised and current.request.kind in ("train", "measure"):
        return
    raise Refusal(
        "it answers only about linear models with two classes, and `any_model` is not set",
        "Under another model, a server can read single rows. If you trust the server, set"
        " any_model = true in the policy; else agree on softmax or logistic regression for two"
        " classes, or on a method with +dp(unit=row).",
    )


def inspect_training(
    client: ClientData, row_weights: np.ndarray | None, batches: Any, *, noised: bool = False
) -> None:
    """Refuse to train on too few rows, on other rows in each round, or with row weights that leave
    few of them or less than half.

    Args:
        client: The rows that the client trains on.
        row_weights: The server's weights by group and label; None if there are none.
        batches: Numbers of the rows of each batch; entries below 0 are padding.
        noised: Whether training clips and noises single rows. A refusal that follows from labels
            and groups would then reveal what the noise hides, so that only their shapes and numbers
            are looked at.
    """
    current = _IN_PROGRESS.get()
    if current is None:
        return
    least, rows = current.policy.least_batch, client.train
    if rows.size < least:
        raise Refusal(FEW, f"There are {rows.size} training rows, and least_batch is {least}.")
    _require_all_rows(rows.size, batches, noised)
    if row_weights is None:
        return
    if row_weights.shape != client.shape:
        raise Refusal(
            "its row weights have another shape than the site's groups and labels",
            f"Row weights have shape {row_weights.shape}, where {client.shape} is needed.",
        )
    if noised:
        return
    weight = row_weights[rows.group, rows.y].astype(np.float64)
    whole = [own[own >= 0] for own in np.asarray(batches)]
    for own in (np.arange(rows.size), *(batch for batch in whole if len(batch) >= least)):
        effective, needed = effective_rows(weight[own]), max(least, len(own) / 2)
        if effective < needed:
            raise Refusal(
                FEW,
                f"With the server's row weights a step rests on {effective:.1f} of {len(own)} rows,"
                f" where half of them and least_batch = {least} are needed.",
            )


def _require_all_rows(size: int, batches: Any, noised: bool) -> None:
    """Refuse rounds that train on a part of the rows: from sums over other parts in each round, the
    server would compute every row. With noise, that parts are drawn is what protects rows.
    """
    numbers = np.asarray(batches)
    trained = len(np.unique(numbers[numbers >= 0]))
    if trained < size and not noised:
        raise Refusal(
            "a round of its method trains on a part of the rows",
            f"A round trains on {trained} of {size} rows, and the next one on others. From as many"
            " rounds as there are rows, the server would know every row. Agree on a method without"
            " max_steps.",
        )


def inspect_cells(client: ClientData, *, by_group: bool) -> None:
    """Refuse if a label has few training rows: from two models that move all rows by known shares,
    a server computes the sum of the rows of each label.

    Args:
        client: The rows that the answer rests on.
        by_group: Whether rows are weighed by group and label, so that the same holds for each group
            and label.
    """
    current = _IN_PROGRESS.get()
    if current is None:
        return
    cells, least = client.cells if by_group else client.cells.sum(0), current.policy.least_cell
    small = int(((cells > 0) & (cells < least)).sum())
    if small:
        what = "pairs of group and label have" if by_group else "labels have"
        raise Refusal(
            FEW, f"{small} {what} 1 to {least - 1} training rows, and least_cell is {least}."
        )


def inspect_features(own: ClientRows) -> None:
    """Refuse if all rows but a few share a value of a feature: two models that differ only in its
    weight tell the sum of these few rows.

    Args:
        own: The rows that the answer rests on.
    """
    current = _IN_PROGRESS.get()
    if current is None or current.policy.any_model or not own.size:
        return
    apart, least = rows_apart(own.x), current.policy.least_cell
    rare = np.flatnonzero((apart > 0) & (apart < least))
    if len(rare):
        raise Refusal(
            FEW,
            f"{len(rare)} of {len(apart)} features are rare: all but 1 to {least - 1} rows have the"
            f" same value, and least_cell is {least}. The first is feature {rare[0] + 1}. Merge"
            " rare categories, leave the column out, or agree on a method with +dp(unit=row).",
        )


def inspect_choice(losses: Sequence[np.ndarray]) -> None:
    """Refuse to tell which of several models fits best where few rows decide it.

    Args:
        losses: For each model, the loss of each row.
    """
    current = _IN_PROGRESS.get()
    if current is None:
        return
    for one, other in itertools.combinations(losses, 2):
        apart = np.abs(np.asarray(one, np.float64) - other)
        if apart.max(initial=0.0) > GRAIN and effective_rows(apart) < current.policy.least_cell:
            raise Refusal(
                FEW,
                f"Which of two models fits better would rest on {effective_rows(apart):.1f} rows,"
                f" and least_cell is {current.policy.least_cell}.",
            )


def inspect_losses(seen: RowOutcomes, cell: np.ndarray | None = None) -> None:
    """Refuse a model that is made so that few rows alone move it, make up its loss, or are decided
    by its next change.

    A row counts by 1 - exp(-loss), which is how much it moves a classifier. It is undecided by that
    times exp(-loss): a model of which all but few rows are certain, right or wrong, draws a line
    around these few, and two such models tell the rows between their lines.

    Args:
        seen: Loss and predicted label of each row under the model that was received.
        cell: A number of the group and label of each row, if rows are weighed or losses added up by
            both. The same must then hold among the rows of each.
    """
    current = _IN_PROGRESS.get()
    if current is None or not len(seen.losses):
        return
    losses = np.asarray(seen.losses, np.float64)
    if not np.isfinite(losses).all():
        raise Refusal("the model it received gives losses that are not finite", "Losses are NaN.")
    losses = losses.clip(0)
    if current.request.kind == "train" and -np.expm1(-losses.max()) <= GRAIN:
        # single precision hides which row moves it most
        raise Refusal(FEW, "The model that was received is certain of every row.")
    _require_many_behind(losses, "rows", current.policy)
    for number in [] if cell is None else np.unique(cell):
        _require_many_behind(losses[cell == number], "rows of a group and label", current.policy)


def _require_many_behind(losses: np.ndarray, rows: str, policy: Policy) -> None:
    """Refuse if few of these rows move a model, make up its loss, or are undecided under it."""
    pull = -np.expm1(-losses)
    if pull.max() <= GRAIN:
        return
    alone = effective_rows(losses) if losses.max() > LARGEST_FAIR else np.inf
    among = f"{len(losses)} {rows}"
    _require_many("would move", min(effective_rows(pull), alone), among, policy)
    _require_many("are undecided under", effective_rows(pull * np.exp(-losses)), among, policy)


def _require_many(what: str, effective: float, among: str, policy: Policy) -> None:
    if effective < policy.least_cell:
        raise Refusal(
            FEW,
            f"Only {effective:.1f} of {among} {what} the model that was received, and least_cell"
            f" is {policy.least_cell}.",
        )


def effective_rows(weight: np.ndarray) -> float:
    """Number of rows with equal weights that would be as concentrated as these.

    >>> effective_rows(np.array([1.0, 1.0, 1.0])), effective_rows(np.array([1.0, 0.0, 0.0]))
    (3.0, 1.0)
    """
    largest = float(weight.max(initial=0.0))
    if not np.isfinite(largest) or largest <= 0:
        return 0.0
    scaled = weight / largest
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def _digest_of(client: ClientData) -> str:
    digest = hashlib.sha256()
    for own in client.splits.values():
        for part in own:
            array = np.ascontiguousarray(part)
            digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
    return digest.hexdigest()
