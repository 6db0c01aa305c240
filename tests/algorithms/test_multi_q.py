import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import METHODS, variants
from evenly.algorithms.multi_q import GRID, combine, pick
from evenly.data.splits import SPLITS
from evenly.metrics import accuracy
from evenly.notation import parse
from evenly.types import Trace
from tests.oracles.choice import choose
from tests.simulations import Simulated, same_bits

QS = [0.0, 0.1, 1.0]
VALID, TEST = SPLITS.index("valid"), SPLITS.index("test")


def trace(right: np.ndarray, rows: np.ndarray, tag: float = 0.0) -> Trace:
    """A trace in which `right` [splits, clients] of `rows` are predicted right, in one group with
    two labels.
    """
    tables = np.zeros((1, 3, right.shape[1], 1, 2, 2), np.int32)
    tables[0, :, :, 0, 0, 0] = right
    tables[0, :, :, 0, 0, 1] = rows - right
    empty = np.zeros(0)
    losses = np.full((1, 3, right.shape[1]), tag, np.float32)
    excluded = np.ones(right.shape[1], np.int32)
    return Trace(
        np.array([5]),
        tables,
        losses,
        empty,
        empty,
        empty,
        excluded,
        upload=8.0,
        download=4.0,
        model=tag,
    )


@given(st.integers(0, 2**32 - 1))
def test_every_client_gets_the_model_that_suits_its_validation_rows(seed: int):
    draw = np.random.default_rng(seed)
    rows = draw.integers(0, 5, (3, 6))  # few rows: ties and empty sets are common
    rights = [draw.integers(0, rows + 1) for _ in QS]
    traces = [trace(right, rows, q) for q, right in zip(QS, rights, strict=True)]
    shares = [
        {
            q: right[VALID, k] / rows[VALID, k] if rows[VALID, k] else None
            for q, right in zip(QS, rights, strict=True)
        }
        for k in range(6)
    ]
    expected = choose(shares, QS)
    assert [QS[i] for i in pick(traces)[0]] == expected
    combined = combine(traces)
    for k, q in enumerate(expected):
        own = traces[QS.index(q)]
        np.testing.assert_array_equal(combined.tables[:, :, k], own.tables[:, :, k])
        np.testing.assert_array_equal(combined.losses[:, :, k], own.losses[:, :, k])


def test_the_choice_never_looks_at_test_rows():
    rows = np.full((3, 1), 10)
    good_on_test = trace(np.array([[0], [4], [9]]), rows)
    good_on_validation = trace(np.array([[0], [5], [2]]), rows)
    assert pick([good_on_test, good_on_validation])[0, 0] == 1
    assert combine([good_on_test, good_on_validation]).tables[0, TEST, 0, 0, 0, 0] == 2


def test_ties_go_to_the_smallest_q_however_the_list_is_written():
    (variant,) = variants(parse("multi-q(q=[5, 0, 1])"))
    assert [member.rule.q for member in variant.members] == [0, 1, 5]
    rows = np.full((3, 2), 4)
    assert (pick([trace(np.full((3, 2), 2), rows, q) for q in (0, 1, 5)]) == 0).all()


def test_all_models_are_sent():
    rows = np.full((3, 1), 4)
    combined = combine([trace(np.full((3, 1), 2), rows, q) for q in QS])
    assert combined.upload == 3 * 8
    assert combined.download == 3 * 4
    assert combined.model == QS
    np.testing.assert_array_equal(combined.excluded, [3])


def test_by_default_it_trains_the_papers_eight_models():
    (variant,) = variants(parse("multi-q"))
    assert (
        [member.rule.q for member in variant.members] == GRID == [0, 0.001, 0.01, 0.1, 1, 2, 5, 10]
    )


def test_mean_validation_accuracy_is_at_least_that_of_any_single_q(simulated: Simulated):
    members = simulated.all("multi-q(q=[0, 1, 5])", rounds=12, evaluate_every=4)
    combined = METHODS["multi-q"].combine(members)
    mean = np.nanmean(accuracy(combined.tables[:, VALID]), axis=1)
    singles = np.stack(
        [np.nanmean(accuracy(member.tables[:, VALID]), axis=1) for member in members]
    )
    assert (mean >= singles.max(0) - 1e-12).all()
    np.testing.assert_array_equal(
        combined.tables.sum((-3, -2, -1)), members[0].tables.sum((-3, -2, -1))
    )


def test_a_client_without_validation_rows_takes_the_first_model(simulated: Simulated):
    members = simulated.all("multi-q(q=[0, 1, 5])", rounds=12, evaluate_every=4)
    empty = np.flatnonzero(simulated.federation.valid.counts == 0)
    assert len(empty) == 1
    assert (pick(members)[:, empty] == 0).all()


def test_members_are_the_q_fedavg_runs(simulated: Simulated):
    together = simulated.all("q-fedavg(q=[0, 1, 5])", rounds=12, evaluate_every=4)
    for member, own in zip(
        simulated.all("multi-q(q=[0, 1, 5])", rounds=12, evaluate_every=4), together, strict=True
    ):
        same_bits(member, own)


def test_a_negative_q_among_them_is_refused():
    with pytest.raises(ValueError, match=r"^multi-q: q must be at least 0, got -1\."):
        variants(parse("multi-q(q=[0, -1])"))
