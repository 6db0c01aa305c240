"""What clients say of themselves before the first round: one that cannot be right is left out with
a reason, and the others begin.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest

from evenly.experiment.deployment import Exclusion
from evenly.flower import wire
from evenly.flower.checks import ReplySpec, read_or_exclude
from evenly.flower.replies import CensusReply, Introduction, consistent_censuses, parse_census
from evenly.flower.roster import roll_of

ABOUT = {"labels": ["no", "yes"], "groups": ["men", "women"], "unprivileged": [1], "favourable": 1}


def said(node: int, metrics: dict[str, Any] | None = None, **about: Any) -> Introduction:
    own: dict[str, Any] = {wire.EXAMPLES: 10}
    wire.put(own, wire.CELLS, np.array([[1, 2], [3, 4]]))
    return Introduction(node, own | (metrics or {}), {**ABOUT, "name": f"ward {node}", **about})


def checked(answers: list[Introduction]) -> tuple[list[CensusReply], list[Exclusion]]:
    """Those who can be clients together, and who was left out."""
    read = [
        read_or_exclude(ReplySpec(one.node, -1, 0, phase="census"), partial(parse_census, one))
        for one in answers
    ]
    agreed, strange = consistent_censuses(
        sorted((one for one in read if isinstance(one, CensusReply)), key=lambda one: one.node)
    )
    return agreed, [one for one in read if isinstance(one, Exclusion)] + strange


def test_the_roll_is_in_the_order_of_nodes_and_who_says_little_agrees():
    quiet = Introduction(5, said(5).metrics, {})
    told, wrong = checked([said(30), said(20), quiet])
    roll = roll_of(told)
    assert not wrong
    assert roll.nodes == (5, 20, 30)
    assert roll.names == ("client 0", "ward 20", "ward 30")
    assert (roll.labels, roll.groups) == (("no", "yes"), ("men", "women"))
    assert (roll.census.unprivileged, roll.census.favourable) == ((1,), 1)
    assert roll.census.cells.tolist() == [[[1, 2], [3, 4]]] * 3


WRONG = {
    "negative size": (said(3, {wire.EXAMPLES: -10}), "sent -10 as 'num-examples'"),
    "size not finite": (said(3, {wire.EXAMPLES: float("nan")}), "sent nan as 'num-examples'"),
    "size is a list": (said(3, {wire.EXAMPLES: [5, 5]}), "must be one number"),
    "no cells": (
        Introduction(3, {wire.EXAMPLES: 10}, {}),
        "did not say 'cells', which is its training rows counted by group",
    ),
    "cells do not add up": (
        said(3, {wire.EXAMPLES: 11}),
        "sent 'cells' that count 10 rows, but says that it has 11",
    ),
    "cells without a shape": (said(3, {"cells-shape": 4}), "cannot be read"),
    "other groups": (
        said(3, {"cells-shape": [4, 1]}, labels=[], groups=[], unprivileged=[0], favourable=0),
        "most clients say (2, 2)",
    ),
    "names in another order": (
        said(3, groups=["women", "men"]),
        "says ('women', 'men') of names of groups, where most clients say ('men', ",
    ),
    "too few names": (said(3, labels=["no"]), "must be a list of 2 names"),
    "others are unprivileged": (
        said(3, unprivileged=[0]),
        "says (0,) of unprivileged groups, where most clients say (1,)",
    ),
    "no such group": (
        said(3, unprivileged=[2]),
        "sent '2' as 'unprivileged', which must be from 0 to 1",
    ),
    "another label is favourable": (said(3, favourable=0), "says 0 of the favourable label"),
    "no value of an attribute": (
        said(3, **{"attribute sex": []}),
        "sent no value of the groups as 'attribute sex'",
    ),
    "an attribute without a name": (said(3, **{"attribute \n": ["f", "m"]}), "without a name"),
    "two attributes of one name": (
        said(3, **{"attribute sex": ["f", "m"], "attribute sex ": ["f", "m"]}),
        "two of one name",
    ),
    "no number of a client": (said(3, {wire.CLIENT: float("nan")}), "sent nan as 'client'"),
}


@pytest.mark.parametrize("answer, words", WRONG.values(), ids=WRONG)
def test_who_cannot_be_right_is_left_out(answer: Introduction, words: str):
    told, wrong = checked([answer, said(40), said(50)])
    assert [one.node for one in told] == [40, 50]
    assert [one.node for one in wrong] == [3]
    assert words in wrong[0].reason


def test_names_are_short_and_cannot_command_a_terminal():
    told, _ = checked([said(1, name="\x1b[2J\u202eward\n" + "x" * 1000)])
    assert told[0].name == ("[2J ward " + "x" * 1000)[:80]


def names_of(*answers: Introduction) -> tuple[str, ...]:
    told, wrong = checked(list(answers))
    assert not wrong
    return roll_of(told).names


def test_no_two_clients_have_one_name():
    """Nodes that say no number, or the same name, would be one client in the report."""
    assert names_of(said(10, name="ward"), said(20, name="ward"), said(30)) == (
        "ward (node 10)",
        "ward (node 20)",
        "ward 30",
    )
    nameless = Introduction(20, said(20).metrics, {})
    assert names_of(said(10, name="client 1"), nameless) == (
        "client 1 (node 10)",
        "client 1 (node 20)",
    )
    odd = names_of(said(10, name="a (node 20)"), said(20, name="a"), said(30, name="a"))
    assert odd == ("a (node 20)", "a (node 20) (node 20)", "a (node 30)")


def numbered(node: int, number: Any, **more: Any) -> Introduction:
    return said(node, {wire.CLIENT: number, **more})


UNUSABLE = {
    "twice": (
        numbered(40, 0),
        "says that it is client 0, as node 10 does: each client needs its own number",
    ),
    "huge": (numbered(40, 10**6), "sent 1,000,000 as 'client', which must be from 0 to 999,999"),
    "far beyond": (numbered(40, 2**62), "sent 4.61169e+18 as 'client'"),
    "none": (
        said(40),
        "did not say 'client', and most clients did: either all clients say it or none",
    ),
    "infinity": (numbered(40, float("inf")), "sent inf as 'client', which must be a finite number"),
    "nobody unprivileged": (
        said(40, {wire.CLIENT: 3}, unprivileged=[]),
        "sent [] as 'unprivileged', which must name at least one group",
    ),
    "one of them twice": (
        said(40, {wire.CLIENT: 3}, unprivileged=[1, 1]),
        "must name at least one group, each once",
    ),
    "true": (said(40, {wire.CLIENT: 3}, favourable=True), "sent 'True' as 'favourable'"),
    "no groups": (
        said(40, {wire.CLIENT: 3, "num-examples": 0, "cells": [], "cells-shape": [0, 2]}),
        "sent 'cells' without an entry",
    ),
}


@pytest.mark.parametrize("answer, words", UNUSABLE.values(), ids=UNUSABLE)
def test_a_number_that_cannot_be_used_costs_only_who_said_it(answer: Introduction, words: str):
    told, wrong = checked([numbered(10, 0), numbered(20, 1), numbered(30, 2), answer])
    assert [(one.node, one.phase) for one in wrong] == [(40, "census")]
    assert words in wrong[0].reason
    roll = roll_of(told)
    assert (roll.nodes, roll.numbers) == ((10, 20, 30), (0, 1, 2))
    assert roll.census.unprivileged == (1,)


def test_clients_whose_numbers_have_gaps_keep_their_order():
    told, wrong = checked([numbered(10, 7), numbered(20, 0), numbered(30, 4)])
    assert not wrong
    roll = roll_of(told)
    assert (roll.nodes, roll.numbers, roll.numbered) == ((20, 30, 10), (0, 4, 7), True)


def test_groups_of_whole_clients_are_said_by_all_and_are_few():
    grouped = [
        said(node, {wire.CLIENT_GROUP: group}) for node, group in ((10, 0), (20, 1), (30, 1))
    ]
    told, wrong = checked([*grouped, said(40), said(50, {wire.CLIENT_GROUP: 10**5})])
    assert [(one.node, one.reason.partition(",")[0]) for one in wrong] == [
        (40, "did not say 'client-group'"),
        (50, "says 'client-group' 100000"),
    ]
    assert roll_of(told).client_group.tolist() == [
        0,
        1,
        1,
    ]  # pyright: ignore[reportOptionalMemberAccess]
    alone, wrong = checked([said(10), said(20), said(30, {wire.CLIENT_GROUP: 1})])
    assert [one.node for one in wrong] == [30]
    assert roll_of(alone).client_group is None


def test_the_last_of_more_groups_than_labels_can_be_unprivileged():
    cells: dict[str, Any] = {}
    wire.put(cells, wire.CELLS, np.array([[1, 2], [3, 2], [1, 1]]))
    groups = ["men", "others", "women"]
    agreed, strange = checked([said(3, cells, groups=groups, unprivileged=[2])])
    assert strange == []
    assert agreed[0].unprivileged == (2,)
