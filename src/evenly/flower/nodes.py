"""Which node is which client, and what is known of them before the first round.

A node's number is its place among the sorted node ids, unless clients say their own numbers in the census. The census is asked
for only where the method would begin differently from another one.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly.federation import Census
from evenly.flower import wire
from evenly.records import require
from evenly.types import Algorithm, Rule, Select, Several

LOG = logging.getLogger("flwr")
TELL_EVERY = 10.0  # seconds


class Roll(NamedTuple):
    """The clients of a federation."""

    nodes: tuple[int, ...]  # the node of each client
    census: Census
    introduced: bool = False  # whether clients were asked; else the census holds nothing but how many they are
    client_group: np.ndarray | None = None
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def clients(self) -> int:
        return len(self.nodes)

    def number(self, node: int) -> int | None:
        return self.nodes.index(node) if node in self.nodes else None


def unknown_clients(nodes: Sequence[int]) -> Roll:
    """Nodes of which nothing is known."""
    return Roll(tuple(sorted(nodes)), _blank(len(nodes)))


def _blank(clients: int) -> Census:
    return Census(np.ones(clients, np.int64), np.ones((clients, 1, 1), np.int64))


def grown(roll: Roll, more: Sequence[int]) -> Roll:
    """With nodes that came later; nobody changes its number."""
    nodes = (*roll.nodes, *more)
    return Roll(nodes, _blank(len(nodes)))


def reads_census(algorithm: Algorithm) -> bool:
    """Whether rule or sampling begin with more than the number of clients: two different censuses then lead to different states."""
    if isinstance(algorithm.rule, Several) and algorithm.rule.inference == "known":
        return True
    one = Census(np.array([3, 5]), np.array([[[1, 1], [1, 0]], [[1, 2], [1, 1]]]), (0,), 1)
    other = Census(np.array([7, 4]), np.array([[[2, 1], [3, 1]], [[1, 1], [0, 2]]]), (1,), 0)
    return not all(_same(part.init(one), part.init(other)) for part in (algorithm.rule, algorithm.select))


def _same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


def grows(part: Rule | Select) -> bool:
    """Whether a rule keeps nothing for each client, so that clients may join later."""
    few, more = (part.init(Census(np.full(n, 4), np.ones((n, 2, 2), np.int64))) for n in (2, 3))
    return [np.shape(leaf) for leaf in jax.tree.leaves(few)] == [np.shape(leaf) for leaf in jax.tree.leaves(more)]


class Introduction(NamedTuple):
    """One node's answer to the census."""

    node: int
    metrics: Mapping[str, Any]
    about: Mapping[str, Any]


def introduced(answers: Sequence[Introduction]) -> Roll:
    """The roll that the nodes' answers make."""
    answers = sorted(answers, key=lambda answer: answer.node)
    numbered = [int(answer.metrics[wire.CLIENT]) for answer in answers if wire.CLIENT in answer.metrics]
    if numbered:
        require(
            sorted(numbered) == list(range(len(answers))),
            f"Clients that number themselves must be numbered from 0 to {len(answers) - 1}, each once; got {numbered} from "
            f"{len(answers)} nodes. Correct {wire.CLIENT!r} in the replies to {wire.CENSUS!r}, leave it out of all of them, or wait "
            f"for all clients: min_available_nodes={max(numbered) + 1}.",
        )
        answers = [answers[numbered.index(k)] for k in range(len(answers))]
    cells = np.stack(_fitting([_wanted(answer, wire.CELLS) for answer in answers], answers))
    about = answers[0].about
    return Roll(
        nodes=tuple(answer.node for answer in answers),
        census=Census(
            np.array([int(_wanted(answer, wire.EXAMPLES)) for answer in answers], np.int64),
            cells,
            tuple(int(g) for g in about.get("unprivileged", (0,))),
            int(about.get("favourable", 1)),
        ),
        introduced=True,
        client_group=_client_groups(answers),
        names=tuple(str(answer.about.get("name", f"client {k}")) for k, answer in enumerate(answers)),
        labels=tuple(map(str, about.get("labels", ()))),
        groups=tuple(map(str, about.get("groups", ()))),
    )  # fmt: skip


def _client_groups(answers: Sequence[Introduction]) -> np.ndarray | None:
    given = [answer.metrics.get(wire.CLIENT_GROUP) for answer in answers]
    if all(group is None for group in given):
        return None
    return np.array([int(_wanted(answer, wire.CLIENT_GROUP)) for answer in answers], np.int32)


def _wanted(answer: Introduction, key: str) -> np.ndarray:
    found = wire.get(answer.metrics, key)
    require(
        found is not None,
        f"Node {answer.node} did not say {key!r} in its reply to {wire.CENSUS!r}. It is {wire.HOW_TO_SEND[key]}; "
        f"put it into the reply's {wire.METRICS!r}.",
    )
    return np.asarray(found)


def _fitting(cells: list[np.ndarray], answers: Sequence[Introduction]) -> list[np.ndarray]:
    for own, answer in zip(cells, answers, strict=True):
        require(
            own.ndim == 2 and own.shape == cells[0].shape and bool((own >= 0).all()),
            f"Node {answer.node} counts its rows in {list(own.shape)} groups and labels, node {answers[0].node} in "
            f"{list(cells[0].shape)}. All clients must know the same groups and labels, in the same order.",
        )
    return [own.astype(np.int64) for own in cells]


def present(grid: Any, least: int) -> list[int]:
    """The nodes that are connected, once there are enough of them; waits as Flower's own strategies do."""
    told = 0.0
    while len(nodes := list(grid.get_node_ids())) < least:
        if time.monotonic() - told > TELL_EVERY:
            LOG.info("Waiting for nodes to connect: %d connected (minimum required: %d).", len(nodes), least)
            told = time.monotonic()
        time.sleep(0.5)
    return nodes
