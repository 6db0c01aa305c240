"""What clients say of themselves before the first round. Who cannot be right, or knows other groups or labels than most, is left out."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Message

from evenly.experiment.deployment import UNKNOWN, LeftOut
from evenly.flower import checking_numbers as numbers
from evenly.flower import wire
from evenly.flower.checking import content_of, no_answer
from evenly.flower.expecting import SIZES, Expected, Wrong, printable, read_or_left_out

LONGEST_NAME = 80
MOST_CLIENTS = 1_000_000  # numbers of clients are below


class Introduction(NamedTuple):
    """One node's answer to the census."""

    node: int
    metrics: Mapping[str, Any]
    about: Mapping[str, Any]


class Told(NamedTuple):
    """An answer that can be used. What a client did not say is None; of labels and groups, ()."""

    node: int
    examples: int
    cells: np.ndarray  # int64 [groups, labels]
    client: int | None
    client_group: int | None
    name: str | None
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    unprivileged: tuple[int, ...] | None
    favourable: int | None


# What is each client's own. Either all of them say it or nobody does.
OWN: dict[str, Callable[[Told], int | None]] = {
    wire.CLIENT: lambda told: told.client,
    wire.CLIENT_GROUP: lambda told: told.client_group,
}

# What all clients must agree on, where they say it.
COMMON: dict[str, Callable[[Told], Hashable]] = {
    "groups and labels": lambda told: told.cells.shape,
    "names of labels": lambda told: told.labels,
    "names of groups": lambda told: told.groups,
    "unprivileged groups": lambda told: told.unprivileged,
    "the favourable label": lambda told: told.favourable,
}


def check_censuses(
    replies: Iterable[Message], nodes: Iterable[int], *, groups: int = 0, most: int | None = None
) -> tuple[list[Told], list[LeftOut]]:
    """The answers of these nodes that can be used, in the order of nodes, and why the others cannot."""
    told: list[Told] = []
    left_out: list[LeftOut] = []
    silent = set(nodes)
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in silent:
            continue
        silent.remove(node)
        expected = Expected(node, UNKNOWN, 0, phase="census", most_bytes=most)
        found = read_or_left_out(expected, partial(_read, reply, expected))
        told.append(found) if isinstance(found, Told) else left_out.append(found)
    left_out += [no_answer(Expected(node, UNKNOWN, 0, phase="census")) for node in sorted(silent)]
    agreed, wrong = agreeing(sorted(told, key=lambda one: one.node), groups)
    return agreed, [one._replace(reason=f"was asked for the census and {one.reason}") for one in left_out] + wrong


def _read(message: Message, expected: Expected) -> Told:
    content = content_of(message, expected.most_bytes)
    metrics = content.metric_records.get(wire.METRICS) or next(iter(content.metric_records.values()), {})
    return told_by(Introduction(expected.node, metrics, content.config_records.get(wire.ABOUT, {})))


def agreeing(told: Sequence[Told], groups: int = 0) -> tuple[list[Told], list[LeftOut]]:
    """Those who can be clients together, and why the others cannot: most decide what all must know, and every number is one client's.

    `groups` are those that whole clients may belong to; 0: as many as there are clients.
    """
    kept, strange = list(told), []
    for what, said in COMMON.items():
        usual = Counter(value for one in kept if (value := said(one)) not in (None, ())).most_common(1)
        agreed = (None, (), *(value for value, _ in usual))
        reason = "says {!r} of {}, where most clients say {!r}: all must know the same, in the same order"
        strange += [(one, reason.format(said(one), what, agreed[-1])) for one in kept if said(one) not in agreed]
        kept = [one for one in kept if said(one) in agreed]
    for key, said in OWN.items():
        saying, silent = [one for one in kept if said(one) is not None], [one for one in kept if said(one) is None]
        kept, others = (saying, silent) if len(saying) >= len(silent) else (silent, saying)
        how = f"did not say {key!r}, and most clients did" if kept is saying else f"says {key!r}, and most clients do not"
        strange += [(one, f"{how}: either all clients say it or nobody does") for one in others]
    first: dict[int, Told] = {}
    for one in kept:
        holder = one if one.client is None else first.setdefault(one.client, one)
        if holder is not one:
            strange.append((one, f"says that it is client {one.client}, as node {holder.node} does: each needs a number of its own"))
        elif one.client_group is not None and one.client_group >= (groups or len(kept)):
            strange.append((one, f"says {wire.CLIENT_GROUP!r} {one.client_group}, where {groups or len(kept)} groups are possible, from 0"))
    wrong = {one.node for one, _ in strange}
    left_out = [Expected(one.node, UNKNOWN, 0, phase="census").left_out(f"{reason} ({wire.CENSUS!r})", SIZES) for one, reason in strange]
    return [one for one in kept if one.node not in wrong], left_out


def told_by(answer: Introduction) -> Told:
    """What an answer says, if it can be."""
    metrics, about = answer.metrics, answer.about
    examples = numbers.count(wire.EXAMPLES, _wanted(metrics, wire.EXAMPLES), SIZES)
    _wanted(metrics, wire.CELLS)
    cells = numbers.array(wire.CELLS, metrics, (None, None))
    if (cells != np.floor(cells)).any() or cells.sum() != examples:
        raise Wrong(f"sent {wire.CELLS!r} that count {cells.sum():g} rows, but says that it has {examples:,}", SIZES)
    labels, groups = _words(about, "labels", cells.shape[1]), _words(about, "groups", cells.shape[0])
    return Told(
        answer.node,
        examples,
        cells.astype(np.int64),
        _number(metrics, wire.CLIENT),
        _number(metrics, wire.CLIENT_GROUP),
        printable(str(about["name"]), LONGEST_NAME) if "name" in about else None,
        labels,
        groups,
        _unprivileged(about["unprivileged"], cells.shape[0]) if "unprivileged" in about else None,
        None if "favourable" not in about else _below(cells.shape[1], "favourable", about["favourable"]),
    )


def _wanted(metrics: Mapping[str, Any], key: str) -> Any:
    if key not in metrics:
        raise Wrong(f"did not say {key!r}, which is {wire.HOW_TO_SEND[key]}", SIZES)
    return metrics[key]


def _number(metrics: Mapping[str, Any], key: str) -> int | None:
    """The client's number, or its group's."""
    found = numbers.count(key, metrics[key], SIZES) if key in metrics else None
    if found is not None and found >= MOST_CLIENTS:
        raise Wrong(f"sent {found:,} as {key!r}, which must be from 0 to {MOST_CLIENTS - 1:,}", SIZES)
    return found


def _unprivileged(said: Any, groups: int) -> tuple[int, ...]:
    """Which groups are unprivileged: at least one, each once."""
    found = [_below(groups, "unprivileged", group) for group in (said if isinstance(said, list) else [said])]
    if not found or len(set(found)) < len(found):
        raise Wrong(f"sent {str(said)[:LONGEST_NAME]} as 'unprivileged', which must name at least one group, each once", SIZES)
    return tuple(found)


def _words(about: Mapping[str, Any], key: str, count: int) -> tuple[str, ...]:
    found = about.get(key, [])
    if not isinstance(found, list) or len(found) not in (0, count):
        raise Wrong(f"sent {str(found)[:LONGEST_NAME]!r} as {key!r}, which must be a list of {count} names, as in {wire.CELLS!r}", SIZES)
    return tuple(printable(str(word), LONGEST_NAME) for word in found)


def _below(count: int, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise Wrong(f"sent {str(value)[:LONGEST_NAME]!r} as {key!r}, which must be from 0 to {count - 1}", SIZES)
    return int(value)
