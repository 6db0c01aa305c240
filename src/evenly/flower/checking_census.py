"""What clients say of themselves before the first round. Who cannot be right, or knows other groups or labels than most, is left out."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenly.flower import checking_numbers as numbers
from evenly.flower import wire
from evenly.flower.expecting import SIZES, Wrong, printable

LONGEST_NAME = 80


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


# What all clients must agree on, where they say it.
COMMON: dict[str, Callable[[Told], Hashable]] = {
    "groups and labels": lambda told: told.cells.shape,
    "names of labels": lambda told: told.labels,
    "names of groups": lambda told: told.groups,
    "unprivileged groups": lambda told: told.unprivileged,
    "the favourable label": lambda told: told.favourable,
}


def checked(answers: Sequence[Introduction]) -> tuple[list[Told], list[tuple[int, str]]]:
    """Answers that can be used, in the order of their nodes, and why the others cannot."""
    told: list[Told] = []
    wrong: list[tuple[int, str]] = []
    for answer in sorted(answers, key=lambda answer: answer.node):
        try:
            told.append(_told(answer))
        except Wrong as error:
            wrong.append((answer.node, f"{error.args[0]}, in its reply to {wire.CENSUS!r}"))
    for what, said in COMMON.items():
        usual = Counter(value for one in told if (value := said(one)) not in (None, ())).most_common(1)
        agreed = (None, (), *(value for value, _ in usual))
        wrong += [
            (one.node, f"says {said(one)!r} of {what}, where most clients say {agreed[-1]!r}: all must know the same, in the same order")
            for one in told
            if said(one) not in agreed
        ]
        told = [one for one in told if said(one) in agreed]
    return told, wrong


def _told(answer: Introduction) -> Told:
    metrics, about = answer.metrics, answer.about
    examples = numbers.count(wire.EXAMPLES, _wanted(metrics, wire.EXAMPLES), SIZES)
    _wanted(metrics, wire.CELLS)
    cells = numbers.array(wire.CELLS, metrics, (None, None))
    if (cells != np.floor(cells)).any() or cells.sum() != examples:
        raise Wrong(f"sent {wire.CELLS!r} that count {cells.sum():g} rows, but says that it has {examples:,}", SIZES)
    labels, groups = _words(about, "labels", cells.shape[1]), _words(about, "groups", cells.shape[0])
    unprivileged = about.get("unprivileged")
    return Told(
        answer.node,
        examples,
        cells.astype(np.int64),
        _whole(metrics, wire.CLIENT),
        _whole(metrics, wire.CLIENT_GROUP),
        printable(str(about["name"]), LONGEST_NAME) if "name" in about else None,
        labels,
        groups,
        None if unprivileged is None else tuple(_below(cells.shape[0], "unprivileged", g) for g in np.ravel(unprivileged)),
        None if "favourable" not in about else _below(cells.shape[1], "favourable", about["favourable"]),
    )


def _wanted(metrics: Mapping[str, Any], key: str) -> Any:
    if key not in metrics:
        raise Wrong(f"did not say {key!r}, which is {wire.HOW_TO_SEND[key]}", SIZES)
    return metrics[key]


def _whole(metrics: Mapping[str, Any], key: str) -> int | None:
    return numbers.count(key, metrics[key], SIZES) if key in metrics else None


def _words(about: Mapping[str, Any], key: str, count: int) -> tuple[str, ...]:
    found = about.get(key, [])
    if not isinstance(found, list) or len(found) not in (0, count):
        raise Wrong(f"sent {str(found)[:LONGEST_NAME]!r} as {key!r}, which must be a list of {count} names, as in {wire.CELLS!r}", SIZES)
    return tuple(printable(str(word), LONGEST_NAME) for word in found)


def _below(count: int, key: str, value: Any) -> int:
    if not isinstance(value, int | np.integer) or not 0 <= value < count:
        raise Wrong(f"sent {str(value)[:LONGEST_NAME]!r} as {key!r}, which must be from 0 to {count - 1}", SIZES)
    return int(value)
