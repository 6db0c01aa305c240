import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, algorithm
from evenly.algorithms.fedfb import FedFB
from evenly.data.federation import Census
from evenly.types import RowRule
from tests.aggregation import Outcome, Round, aggregate, grouped_rounds, remembering
from tests.oracles import groups

rates = st.one_of(st.just(0.3), st.floats(0, 1))


def both_sides(case: Round) -> bool:
    return bool((case.tables.sum((0, 2, 3)) > 0).all())


def row_weights(rule: FedFB, outcome: Outcome) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(rule.row_weights(outcome.public))


def test_it_tells_clients_how_much_rows_count_and_at_first_all_count_the_same():
    rule = FedFB()
    assert isinstance(rule, RowRule)
    assert not isinstance(FedAvg(), RowRule)
    np.testing.assert_array_equal(
        rule.row_weights(rule.begin(Census(np.ones(3), np.ones((3, 2, 2), int)))), np.ones((2, 2))
    )


@given(grouped_rounds(), rates)
def test_rows_and_clients_are_weighed_as_the_paper_says_in_three_rounds(case: Round, alpha: float):
    assume(both_sides(case))
    rule, state = FedFB(alpha=alpha), None
    m = case.tables.sum((0, 3)).T.astype(np.float64)  # [label, group], as the authors write it
    mass, n = m.sum(0), m.sum()
    lambdas = np.tile(mass / n, (2, 1))
    for t in (1, 2, 3):
        # times n: the mean of a batch, not the sum, at the learning rate of FedAvg
        told = lambdas / mass * n
        counted = np.array([(table.sum(2).T * told).sum() for table in case.tables])
        found = aggregate(
            rule,
            case.received,
            case.trained,
            tables=case.tables,
            cell_losses=case.cell_losses / t,
            sizes=case.sizes,
            state=state,
        )
        if counted.sum() > 1e-9:
            np.testing.assert_allclose(found.weights, counted / counted.sum(), atol=1e-8)
        lambdas = groups.fedfb_lambdas(lambdas, m, case.cell_losses.sum(0).T / t, alpha, t)
        state = found.state
        np.testing.assert_allclose(row_weights(rule, found), (lambdas / mass * n).T, atol=1e-8)


@given(grouped_rounds((4,)), st.floats(0, 5), st.integers(1, 3))
def test_on_each_side_the_weights_of_both_labels_sum_to_two(case: Round, alpha: float, rounds: int):
    rule, state = FedFB(alpha=alpha), None
    for _ in range(rounds):
        found = (
            case.apply(rule) if state is None else aggregate(rule, **case._asdict(), state=state)
        )
        state = found.state
    weights = row_weights(rule, found)  # pyright: ignore[reportPossiblyUnboundVariable]
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(1), 2)


@pytest.mark.parametrize("weights", ["size", "equal"])
@given(case=grouped_rounds())
def test_alpha_zero_is_fedavg(case: Round, weights: str):
    rule = FedFB(alpha=0.0, weights=weights)
    found = case.apply(rule)
    np.testing.assert_allclose(found.model, case.apply(FedAvg(weights=weights)).model, atol=1e-12)
    np.testing.assert_array_equal(row_weights(rule, found), np.ones((2, 2)))


@given(grouped_rounds(), rates)
def test_naming_the_sides_the_other_way_round_swaps_their_weights(case: Round, alpha: float):
    rule, swapped = (
        FedFB(alpha=alpha),
        case._replace(tables=case.tables[:, ::-1], cell_losses=case.cell_losses[:, ::-1]),
    )
    np.testing.assert_allclose(
        row_weights(rule, swapped.apply(rule)), row_weights(rule, case.apply(rule))[::-1], atol=1e-9
    )


def test_a_side_that_is_given_the_favourable_label_less_often_has_those_rows_count_more():
    # Everyone has the same labels, but the model does badly on favourable rows of the unprivileged:
    # f is positive.
    tables = np.full((1, 2, 2, 2), 10)
    losses = np.array([[[2.0, 30.0], [8.0, 8.0]]])  # [client, group, label]
    rule = FedFB(alpha=0.3)
    weights = row_weights(
        rule,
        aggregate(
            rule, np.zeros(1), np.ones((1, 1)), tables=tables, cell_losses=losses, sizes=[80]
        ),
    )
    f = (30 - 2 + 20) / 40 - (8 - 8 + 20) / 40
    np.testing.assert_allclose(
        weights, [[1 - 0.3 * f * 2, 1 + 0.3 * f * 2], [1 + 0.3 * f * 2, 1 - 0.3 * f * 2]]
    )


def test_steps_shorten_with_the_root_of_the_round():
    tables, losses = np.full((1, 2, 2, 2), 10), np.array([[[2.0, 3.0], [2.0, 2.0]]])
    rule, state, moves, before = FedFB(alpha=0.1), None, [], 1.0
    for _ in range(4):
        found = aggregate(
            rule,
            np.zeros(1),
            np.ones((1, 1)),
            tables=tables,
            cell_losses=losses,
            sizes=[80],
            state=state,
        )
        state = found.state
        moves.append(before - found.public.unfavourable[0])
        before = found.public.unfavourable[0]
    np.testing.assert_allclose(moves, moves[0] / np.sqrt([1, 2, 3, 4]), rtol=1e-9)


def test_a_round_that_lacks_a_side_moves_no_row_weights():
    tables = np.full((2, 2, 2, 2), 5)
    tables[:, 0] = 0
    found = aggregate(
        FedFB(),
        np.zeros(1),
        np.ones((2, 1)),
        tables=tables,
        cell_losses=np.ones((2, 2, 2)),
        sizes=[20, 20],
    )
    np.testing.assert_array_equal(found.public.unfavourable, [1, 1])
    assert found.public.rounds == 1


def test_if_no_row_counts_the_round_changes_nothing():
    """Sizes decided here before rules were written for one client: a client cannot tell by itself
    that no row of the others counts.
    """
    tables = np.zeros((2, 2, 2, 2))
    tables[:, 0, 0, 0], tables[:, 1, 1, 1] = [3, 6], [1, 2]
    state = remembering(FedFB(), clients=2, unfavourable=np.array([0.0, 2.0]))
    found = aggregate(
        FedFB(), np.zeros(1), np.ones((2, 1)), tables=tables, sizes=[4, 8], state=state
    )
    np.testing.assert_array_equal(found.weights, [0, 0])
    np.testing.assert_array_equal(found.model, [0])
    np.testing.assert_array_equal(found.public.unfavourable, [0, 2])
    assert found.public.rounds == 0


@given(grouped_rounds((4,)), st.integers(0, 15))
def test_who_is_absent_moves_no_row_weights(case: Round, mask: int):
    here = np.array([bool(mask >> k & 1) for k in range(4)])
    masked = case.apply(FedFB(), returned=here).public
    if not here.any():
        np.testing.assert_array_equal(masked.unfavourable, [1, 1])
        assert masked.rounds == 0
        return
    without = case.only(np.flatnonzero(here)).apply(FedFB()).public
    np.testing.assert_allclose(masked.unfavourable, without.unfavourable, atol=1e-12)


def test_several_groups_and_labels_are_two_sides_and_one_favourable_label():
    draw = np.random.default_rng(3)
    tables, rule = draw.integers(1, 9, (5, 3, 3, 3)), FedFB(alpha=0.2)
    losses = draw.uniform(1, 9, (5, 3, 3))
    census = Census(tables.sum((1, 2, 3)), tables.sum(3), unprivileged=(0, 2), favourable=2)
    found = aggregate(
        rule, np.zeros(1), np.ones((5, 1)), tables=tables, cell_losses=losses, census=census
    )

    def pooled(cells: np.ndarray) -> np.ndarray:  # [groups, labels] -> [label, side]
        by_label = np.stack([cells[:, [0, 1]].sum(1), cells[:, 2]])
        return np.stack([by_label[:, [0, 2]].sum(1), by_label[:, 1]], axis=1)

    m = pooled(tables.sum((0, 3)).astype(np.float64))
    lambdas = groups.fedfb_lambdas(
        np.tile(m.sum(0) / m.sum(), (2, 1)), m, pooled(losses.sum(0)), 0.2, 1
    )
    told = lambdas / m.sum(0) * m.sum()
    expected = np.array(
        [[told[int(label == 2), 0 if g in (0, 2) else 1] for label in range(3)] for g in range(3)]
    )
    np.testing.assert_allclose(row_weights(rule, found), expected, atol=1e-9)


def test_what_clients_reveal_and_mistakes():
    assert algorithm("fedfb").rule.needs == {"table", "cell_loss"}
    assert algorithm("fedfb+weighted").rule.weights == "equal"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(
        ValueError, match=r"^fedfb: alpha must be at least 0, got -1\. Meaning: .*$"
    ):
        algorithm("fedfb(alpha=-1)")
