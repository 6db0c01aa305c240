"""How the unprivileged groups are named on pages and in the terminal."""

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.sides import unprivileged_words
from evenly.records import replace


def federation() -> Federation:
    return Federation.from_arrays(
        np.zeros((12, 1)),
        [0, 1] * 6,
        client=[0] * 12,
        group={"sex": ["F", "M"] * 6, "race": ["a"] * 6 + ["b"] * 6},
    )


@pytest.mark.parametrize(
    "unprivileged, words",
    [
        ((1,), "sex=F, race=b"),
        ((1, 2), "sex=F, race=b; sex=M, race=a"),
        ((0, 1, 2), "3 groups"),
        ((2, 3), "sex=M (compared here), race=a"),
    ],
)
def test_groups_that_no_column_determines_are_named_up_to_two_and_counted_beyond(
    unprivileged: tuple[int, ...], words: str
):
    made = federation()
    sex, race = made.attributes
    chosen = replace(
        made,
        unprivileged=unprivileged,
        attributes=(sex._replace(unprivileged=1), race._replace(unprivileged=0)),
    )
    assert unprivileged_words(chosen) == words
