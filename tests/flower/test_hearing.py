"""Reasons in one sentence, and how large a reply may be."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evenly.experiment.deployment import UNKNOWN, Exclusion
from evenly.flower.messages import (
    RoundRequest,
    TrainingReplies,
    metrics_bytes,
    quote_reasons,
    require_enough,
)


def out(node: int, reason: str, client: int | None = None) -> Exclusion:
    return Exclusion(node, node // 10 if client is None else client, 1, reason, "an error", "train")


def test_every_reason_is_said_once_the_most_frequent_first():
    assert quote_reasons([out(10, "crashed")]) == "Node 10 (client 1) crashed."
    assert (
        quote_reasons([out(10, "lied"), out(20, "crashed"), out(30, "crashed")])
        == "Node 20 (client 2), like 1 other, crashed. Node 10 (client 1) lied."
    )
    assert (
        quote_reasons([out(k, "crashed", UNKNOWN) for k in (10, 20, 30)])
        == "Node 10, like 2 others, crashed."
    )
    assert quote_reasons([]) == ""


def test_of_many_reasons_the_others_are_counted():
    many = [out(10 * k, f"said {k}") for k in range(1, 8)]
    assert quote_reasons(many).endswith(
        "Node 50 (client 5) said 5. 2 more were left out for other reasons."
    )
    assert "more were left out" not in quote_reasons(many[:5])
    assert (
        quote_reasons([*many[:2], out(90, "said 2")], most=1)
        == "Node 20 (client 2), like 1 other, said 2. 1 more were left out for other reasons."
    )


def test_metrics_may_be_as_large_as_tables_of_all_splits_and_some_more():
    assert metrics_bytes(None) == 2**26 + 2**24
    # Four tables of groups, labels and outcomes, and two of groups and labels, in eight bytes each.
    assert metrics_bytes((3, 5)) == 8 * (4 * 3 * 5 * 5 + 2 * 3 * 5) + 2**24


@pytest.mark.parametrize(
    "least, chosen, heard, enough",
    [
        (2, 4, 2, True),
        (2, 4, 1, False),
        (9, 3, 3, True),
        (9, 3, 2, False),
        (0, 3, 1, True),
        (0, 3, 0, False),
        (1, 1, 1, True),
    ],
)
def test_a_round_needs_so_many_replies_or_all_that_were_chosen_and_at_least_one(
    least: int, chosen: int, heard: int, enough: bool
):
    setting: Any = SimpleNamespace(
        options=SimpleNamespace(min_train_nodes=least),
        algorithm=SimpleNamespace(label="fedavg"),
        roll=SimpleNamespace(names=("north", "south", "west", "client 3")),
    )
    asked = RoundRequest(3, np.array([*range(chosen), 0]), ())
    came: Any = TrainingReplies(dict.fromkeys(range(heard)), [], [out(10, "crashed")])  # pyright: ignore[reportArgumentType]
    if enough:
        require_enough(setting, asked, came)
        return
    said = (
        rf"Round 3 of fedavg: at least {least} of the {chosen} chosen clients must .*, and {heard}"
        r" did. Node 10 \(south\) crashed"
    )
    with pytest.raises(ValueError, match=said) as caught:
        require_enough(setting, asked, came)
    assert "evenly flower egress" not in str(caught.value)
    refused = came._replace(left_out=[out(10, "refused by its policy: 'cells' has 1 count")])
    with pytest.raises(ValueError, match=r"the log of that site \(`evenly flower egress`\)"):
        require_enough(setting, asked, refused)
