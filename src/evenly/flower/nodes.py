"""Which node is which client, and what is known of them before the first round.

A node's number is its place among the sorted node ids, or among the numbers that clients say themselves in the census. The census
is asked for only where the method would begin differently from another one.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly.data.federation import Census
from evenly.flower.checking_census import Told
from evenly.types import Algorithm, Rule, Select, Several

LOG = logging.getLogger("flwr")
TELL_EVERY = 10.0  # seconds


class Roll(NamedTuple):
    """The clients of a federation."""

    nodes: tuple[int, ...]  # the node of each client
    census: Census
    numbers: tuple[int, ...] = ()  # that they said themselves, ascending; (): nobody did
    introduced: bool = False  # whether clients were asked; else the census holds nothing but how many they are
    client_group: np.ndarray | None = None
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def clients(self) -> int:
        return len(self.nodes)

    @property
    def numbered(self) -> bool:
        return bool(self.numbers)

    def number(self, node: int) -> int | None:
        return self.nodes.index(node) if node in self.nodes else None


def unknown_clients(nodes: Sequence[int]) -> Roll:
    """Nodes of which nothing is known, in this order."""
    return Roll(tuple(nodes), _blank(len(nodes)))


def _blank(clients: int) -> Census:
    return Census(np.ones(clients, np.int64), np.ones((clients, 1, 1), np.int64))


def grown(roll: Roll, more: Sequence[int]) -> Roll:
    """With nodes that came later; nobody changes its number."""
    return unknown_clients((*roll.nodes, *more))


def reads_census(algorithm: Algorithm) -> bool:
    """Whether rule or sampling begin with more than the number of clients: two different censuses then lead to different states, or one
    that says nothing is refused."""
    if isinstance(algorithm.rule, Several) and algorithm.rule.inference == "known":
        return True
    one = Census(np.array([3, 5]), np.array([[[1, 1], [1, 0]], [[1, 2], [1, 1]]]), (0,), 1)
    other = Census(np.array([7, 4]), np.array([[[2, 1], [3, 1]], [[1, 1], [0, 2]]]), (1,), 0)
    parts = (algorithm.rule, algorithm.select)
    return any(_refuses(part, _blank(2)) or not _same(part.init(one), part.init(other)) for part in parts)


def _refuses(part: Rule | Select, census: Census) -> bool:
    try:
        part.init(census)
    except ValueError:
        return True
    return False


def _same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


def grows(part: Rule | Select) -> bool:
    """Whether a rule keeps nothing for each client, so that clients may join later."""
    few, more = (part.init(Census(np.full(n, 4), np.ones((n, 2, 2), np.int64))) for n in (2, 3))
    return [np.shape(leaf) for leaf in jax.tree.leaves(few)] == [np.shape(leaf) for leaf in jax.tree.leaves(more)]


def introduced(answers: Sequence[Told]) -> Roll:
    """The roll that the nodes' answers make, which agree with each other: in the order of the clients' own numbers, where they have any."""
    numbers = tuple(sorted(answer.client for answer in answers if answer.client is not None))
    if numbers:
        answers = sorted(answers, key=lambda answer: numbers.index(answer.client or 0))
    if numbers != tuple(range(len(numbers))):
        LOG.warning("Some numbers of clients are missing. The clients that are there, %s, are numbered from 0 in this order.", numbers)
    groups = [answer.client_group for answer in answers if answer.client_group is not None]
    return Roll(
        nodes=tuple(answer.node for answer in answers),
        census=Census(
            np.array([answer.examples for answer in answers], np.int64),
            np.stack([answer.cells for answer in answers]),
            next((answer.unprivileged for answer in answers if answer.unprivileged is not None), (0,)),
            next((answer.favourable for answer in answers if answer.favourable is not None), 1),
        ),
        numbers=numbers,
        introduced=True,
        client_group=np.array(groups, np.int32) if groups else None,
        names=_names(answers),
        labels=max(answer.labels for answer in answers),  # all the same, or ()
        groups=max(answer.groups for answer in answers),
    )


def _names(answers: Sequence[Told]) -> tuple[str, ...]:
    """What the report calls each client. Those who say the same name are told apart by their nodes."""
    said = [f"client {k}" if answer.name is None else answer.name for k, answer in enumerate(answers)]
    names: list[str] = []
    for name, answer in zip(said, answers, strict=True):
        own = name if said.count(name) == 1 else f"{name} (node {answer.node})"
        while own in names:  # somebody is called like that
            own = f"{own} (node {answer.node})"
        names.append(own)
    return tuple(names)


def present(grid: Any, least: int) -> list[int]:
    """The nodes that are connected, once there are enough of them; waits as Flower's own strategies do."""
    told = 0.0
    while len(nodes := list(grid.get_node_ids())) < least:
        if time.monotonic() - told > TELL_EVERY:
            LOG.info("Waiting for nodes to connect: %d connected (minimum required: %d).", len(nodes), least)
            told = time.monotonic()
        time.sleep(0.5)
    return nodes
