"""The two sides that group fairness compares, and the limits of labels, groups and shares."""

import numpy as np
import pytest

from evenly.data import ratio_dirichlet
from evenly.data.federation import Census, Federation
from evenly.data.partition_coverage import SideCounts, quota
from evenly.data.sensitive import MOST_CLASSES
from evenly.data.sides import sides
from evenly.data.splits import split_rows
from tests.data.test_group_partitions import people


def census(cells: list[list[list[int]]], unprivileged: tuple[int, ...]) -> Census:
    counts = np.array(cells)
    return Census(counts.sum((1, 2)), counts, unprivileged=unprivileged)


def test_unprivileged_groups_are_on_one_side_and_all_others_on_the_other():
    three = census([[[1, 0], [2, 0], [0, 1]]], (0, 2))
    assert sides(three, "FairFed").tolist() == [[True, False, True], [False, True, False]]


@pytest.mark.parametrize(
    "cells, unprivileged, sentence",
    [
        ([[[1, 2]]], (0,), "FairFed compares groups of people, but .* only one group"),
        ([[[0, 0], [1, 2]]], (0,), "no training row belongs to a person who is unprivileged"),
        ([[[0, 1], [0, 0]]], (0,), "a person who is privileged. 1 of 2 groups are marked"),
    ],
)
def test_a_side_without_people_is_refused(
    cells: list[list[list[int]]], unprivileged: tuple[int, ...], sentence: str
):
    with pytest.raises(ValueError, match=sentence):
        sides(census(cells, unprivileged), "FairFed")


def test_one_row_is_enough_for_a_side():
    assert sides(census([[[0, 1], [0, 0]], [[0, 0], [1, 0]]], (1,)), "FairFed").shape == (2, 2)


def test_shares_may_exceed_1_by_rounding_only():
    train, valid, test = split_rows(np.zeros(4, int), 1, shares=(1.0, 1e-9), seed=0)
    assert [len(part.rows) for part in (train, valid, test)] == [4, 0, 0]
    for shares in ((1.0, 2e-9), (0.0, 0.5), (0.5, -0.1)):
        with pytest.raises(ValueError, match="shares must be"):
            split_rows(np.zeros(4, int), 1, shares=shares, seed=0)


def test_a_client_trains_on_one_row_at_least():
    parts = split_rows(np.array([0, 0, 0, 1]), 2, shares=(0.3, 0.4), seed=0)
    assert [part.counts.tolist() for part in parts] == [[1, 1], [1, 0], [1, 0]]


def test_labels_and_groups_may_have_as_many_values_as_allowed():
    rows = np.arange(MOST_CLASSES + 1)
    made = Federation.from_arrays(np.ones((MOST_CLASSES, 1)), rows[:-1], rows[:-1] % 2)
    assert len(made.labels) == MOST_CLASSES
    with pytest.raises(ValueError, match=f"y must have at most {MOST_CLASSES} different values"):
        Federation.from_arrays(np.ones((MOST_CLASSES + 1, 1)), rows, rows % 2)
    grouped = Federation.from_arrays(
        np.ones((MOST_CLASSES, 1)), rows[:-1] % 2, rows[:-1] % 2, group=rows[:-1]
    )
    assert len(grouped.groups) == MOST_CLASSES


def test_there_are_never_more_good_clients_than_clients():
    """A third good client would have to take rows that the two others do not have."""
    with pytest.raises(ValueError, match=r"2 clients.* The limit is coverage=7\."):
        quota(SideCounts(7, 20), 2, 10, tolerance=0.6)


@pytest.mark.parametrize("counts", [(0, 10), (10, 0)])
def test_ratio_dirichlet_needs_people_of_both_sides(counts: tuple[int, int]):
    with pytest.raises(ValueError, match=f"has {counts[0]} and {counts[1]}"):
        ratio_dirichlet(people(*counts), clients=2, min_samples=1)
