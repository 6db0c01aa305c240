import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import algorithm
from evenly.parts.work import PREPARES, Reweigh
from evenly.types import Prepare
from tests.oracles import groups

# y, group
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40).map(
    lambda r: np.array(r).T
)


def counted(cells: list) -> tuple[np.ndarray, np.ndarray]:
    """Labels and groups of rows with these counts of (group, label) = (0,0), (0,1),
    (1,0), (1,1).
    """
    return np.repeat([0, 1, 0, 1], cells), np.repeat([0, 0, 1, 1], cells)


@pytest.mark.parametrize(
    "cells, weights, total",
    [
        ([10, 20, 30, 40], [1.2, 0.9, 0.9333333333, 1.05], 100),  # Table 3.4 of the thesis
        ([0, 20, 30, 50], [None, 0.7, 0.8, 1.12], 94),
    ],
)
def test_worked_examples(cells: list, weights: list, total: float):
    y, group = counted(cells)
    found = Reweigh().weights(y, group)
    expected = np.repeat([w or 0 for w in weights], cells)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(groups.reweighing(y, group), expected, atol=1e-9)
    assert found.sum() == pytest.approx(total)


def test_effective_counts_of_the_thesis():
    y, group = counted([10, 20, 30, 40])
    found = Reweigh().weights(y, group)
    effective = [found[(group == a) & (y == label)].sum() for a in (0, 1) for label in (0, 1)]
    np.testing.assert_allclose(effective, [12, 18, 28, 42])


@given(rows)
def test_weights_are_the_papers(case: np.ndarray):
    y, group = case
    found = Reweigh().weights(y, group)
    assert found.shape == y.shape
    np.testing.assert_allclose(found, groups.reweighing(y, group), rtol=1e-12)


@given(
    rows,
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=9, max_size=9, unique=True),
)
def test_with_every_combination_present_groups_and_labels_are_independent_and_as_frequent_as_before(
    case: np.ndarray, every: list
):
    y, group = np.concatenate([case, np.array(every).T], axis=1)
    found = Reweigh().weights(y, group)
    assert found.sum() == pytest.approx(len(y))
    joint = np.array(
        [[found[(group == a) & (y == label)].sum() for label in range(3)] for a in range(3)]
    ) / len(y)
    np.testing.assert_allclose(joint, np.outer(joint.sum(1), joint.sum(0)), atol=1e-12)
    np.testing.assert_allclose(joint.sum(1), np.bincount(group) / len(y))
    np.testing.assert_allclose(joint.sum(0), np.bincount(y) / len(y))


@given(rows, st.sampled_from(["y", "group"]))
def test_one_label_or_one_group_leaves_rows_as_they_are(case: np.ndarray, constant: str):
    y, group = (
        (np.full_like(case[0], 2), case[1])
        if constant == "y"
        else (case[0], np.full_like(case[1], 2))
    )
    np.testing.assert_allclose(Reweigh().weights(y, group), 1)


@given(rows)
def test_independent_data_stay_as_they_are(case: np.ndarray):
    y, group = (part.ravel() for part in np.meshgrid(case[0], case[1]))
    np.testing.assert_allclose(Reweigh().weights(y, group), 1)


@given(rows)
def test_the_sum_never_exceeds_the_number_of_rows_and_rescaling_restores_it(case: np.ndarray):
    y, group = case
    assert Reweigh().weights(y, group).sum() <= len(y) + 1e-9
    found = Reweigh(rescale=True).weights(y, group)
    assert found.mean() == pytest.approx(1)
    plain = Reweigh().weights(y, group)
    np.testing.assert_allclose(found / found[0], plain / plain[0])


@given(rows, st.floats(0.5, 3), st.booleans())
def test_no_row_counts_more_than_the_cap(case: np.ndarray, cap: float, rescale: bool):
    y, group = case
    free, capped = (
        Reweigh(rescale=rescale).weights(y, group),
        Reweigh(cap=cap, rescale=rescale).weights(y, group),
    )
    np.testing.assert_array_equal(capped, np.minimum(free, cap))


@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_the_names_of_groups_do_not_matter(case: np.ndarray, random: object):
    y, group = case
    order = np.array(sorted(range(len(y)), key=lambda _: random.random()))  # pyright: ignore[reportAttributeAccessIssue]
    found = Reweigh().weights(y, group)
    np.testing.assert_array_equal(Reweigh().weights(y[order], group[order]), found[order])
    np.testing.assert_array_equal(Reweigh().weights(y + 5, 9 - group), found)


def test_notation():
    assert isinstance(Reweigh(), Prepare)
    assert PREPARES["reweigh"] is Reweigh
    assert algorithm("fedavg").prepare is None
    built = algorithm("q-fedavg(q=1)+reweigh(rescale=true, cap=4)+parity(p=0.5)")
    assert repr(built.prepare) == "Reweigh(rescale=True, cap=4)"
    assert built.label == "q-fedavg(q=1)+reweigh(rescale=true, cap=4)+parity(p=0.5)"


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("fedavg+reweigh(cap=-1)", r"reweigh: cap must be at least 0, got -1\. Meaning: .*"),
        ("fedavg+reweigh(rescale=2)", r"reweigh: rescale must be true or false, got 2\."),
        (
            "fedavg+reweigh(caps=2)",
            r"reweigh: There is no setting 'caps'\. Did you mean 'cap'\? Known: cap, rescale\.",
        ),
        ("fedavg+reweight", r"There is no part 'reweight'\. Did you mean 'reweigh'\? Known: .*"),
    ],
)
def test_mistakes_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}( Meaning: .*)?$"):
        algorithm(text)
