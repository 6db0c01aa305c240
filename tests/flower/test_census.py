"""What clients say of themselves before the first round: one that cannot be right is left out with a reason, and the others begin."""

from typing import Any

import numpy as np
import pytest

from evenly.flower import wire
from evenly.flower.checking_census import Introduction, checked
from evenly.flower.nodes import introduced

ABOUT = {"labels": ["no", "yes"], "groups": ["men", "women"], "unprivileged": [1], "favourable": 1}


def said(node: int, metrics: dict[str, Any] | None = None, **about: Any) -> Introduction:
    own: dict[str, Any] = {wire.EXAMPLES: 10}
    wire.put(own, wire.CELLS, np.array([[1, 2], [3, 4]]))
    return Introduction(node, own | (metrics or {}), {**ABOUT, "name": f"ward {node}", **about})


def test_the_roll_is_in_the_order_of_nodes_and_who_says_little_agrees():
    quiet = Introduction(5, said(5).metrics, {})
    told, wrong = checked([said(30), said(20), quiet])
    roll = introduced(told)
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
    "no cells": (Introduction(3, {wire.EXAMPLES: 10}, {}), "did not say 'cells', which is its training rows counted by group"),
    "cells do not add up": (said(3, {wire.EXAMPLES: 11}), "sent 'cells' that count 10 rows, but says that it has 11"),
    "cells without a shape": (said(3, {"cells-shape": 4}), "cannot be read"),
    "other groups": (said(3, {"cells-shape": [4, 1]}, labels=[], groups=[], unprivileged=[0], favourable=0), "most clients say (2, 2)"),
    "names in another order": (
        said(3, groups=["women", "men"]),
        "says ('women', 'men') of names of groups, where most clients say ('men', ",
    ),
    "too few names": (said(3, labels=["no"]), "must be a list of 2 names"),
    "others are unprivileged": (said(3, unprivileged=[0]), "says (0,) of unprivileged groups, where most clients say (1,)"),
    "no such group": (said(3, unprivileged=[2]), "sent '2' as 'unprivileged', which must be from 0 to 1"),
    "another label is favourable": (said(3, favourable=0), "says 0 of the favourable label"),
    "no number of a client": (said(3, {wire.CLIENT: float("nan")}), "sent nan as 'client'"),
}


@pytest.mark.parametrize("answer, words", WRONG.values(), ids=WRONG)
def test_who_cannot_be_right_is_left_out(answer: Introduction, words: str):
    told, wrong = checked([answer, said(40), said(50)])
    assert [one.node for one in told] == [40, 50]
    assert [node for node, _ in wrong] == [3]
    assert words in wrong[0][1]


def test_names_are_short_and_cannot_command_a_terminal():
    told, _ = checked([said(1, name="\x1b[2J\u202eward\n" + "x" * 1000)])
    assert told[0].name == ("[2J ward " + "x" * 1000)[:80]
