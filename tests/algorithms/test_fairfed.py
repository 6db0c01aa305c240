import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, algorithm
from evenly.algorithms.fairfed import METRICS, FairFed
from evenly.data.federation import Census
from tests.aggregation import Outcome, Round, aggregate, grouped_rounds, remembering
from tests.oracles import groups

EVERY = pytest.mark.parametrize("metric", METRICS)
betas = st.one_of(st.sampled_from([0.1, 1.0, 5.0]), st.floats(0, 3))
LOW, GOOD = [0], 1

# The worked example: true positives and positives of both groups, sizes 100, 100, 200, accuracies
# 0.9, 0.8, 0.7.
SIZES = np.array([100, 100, 200])
TABLES = np.zeros((3, 2, 2, 2))  # group, label, outcome
TABLES[:, 0, 1] = [[2, 8], [2, 3], [0, 0]]
TABLES[:, 1, 1] = [[2, 18], [3, 12], [20, 20]]
TABLES[:, 1, 0] = [[64, 6], [65, 15], [120, 40]]
DELTA = [0.1666666667, 0.2666666667, 0.075]


def example(rule: FairFed, **options: object) -> Outcome:
    return aggregate(rule, np.zeros(2), np.ones((3, 2)), sizes=SIZES, tables=TABLES, **options)


def test_the_tables_are_those_of_the_worked_example():
    np.testing.assert_array_equal(TABLES.sum((1, 2, 3)), SIZES)
    np.testing.assert_allclose(np.trace(TABLES, axis1=2, axis2=3).sum(1) / SIZES, [0.9, 0.8, 0.7])
    phi = [groups.gap(t, "eod", LOW, GOOD) for t in TABLES]
    assert phi[:2] == pytest.approx([-0.1, -0.2])
    assert phi[2] is None
    assert groups.gap(TABLES.sum(0), "eod", LOW, GOOD) == pytest.approx(0.0666666667)
    np.testing.assert_allclose(groups.distances(TABLES, "eod", LOW, GOOD)[0], DELTA, atol=1e-9)


@pytest.mark.parametrize(
    "beta, raw, weights",
    [
        (0.0, [0.25, 0.25, 0.5], [0.25, 0.25, 0.5]),
        (
            1.0,
            [0.2527777778, 0.1527777778, 0.5944444444],
            [0.2527777778, 0.1527777778, 0.5944444444],
        ),
        (5.0, [0.2638888889, 0, 0.9722222222], [0.2134831461, 0, 0.7865168539]),
    ],
)
def test_worked_examples(beta: float, raw: list, weights: list):
    found = example(FairFed(beta=beta))
    np.testing.assert_allclose(found.weights, weights, atol=1e-8)
    np.testing.assert_allclose(found.memory, raw, atol=1e-8)
    assert found.public.fallbacks == 1
    np.testing.assert_allclose(
        groups.fairfed(SIZES / 400, DELTA, SIZES, beta)[0], weights, atol=1e-8
    )


def test_weights_move_on_from_where_they_were():
    rule = FairFed(beta=1.0)
    twice = example(rule, state=example(rule).state)
    np.testing.assert_allclose(twice.weights, [0.2555555556, 0.0555555556, 0.6888888889], atol=1e-8)
    assert twice.public.fallbacks == 2


@pytest.mark.parametrize("form", ["additive", "exponential"])
def test_gaps_can_be_measured_on_rows_that_are_held_out(form: str):
    trained, held_out = FairFed(form=form), FairFed(form=form, measured_on="valid")
    assert held_out.needs == {"valid_table", "examples"}
    found = aggregate(held_out, np.zeros(2), np.ones((3, 2)), sizes=SIZES, valid_tables=TABLES)
    np.testing.assert_array_equal(found.weights, example(trained).weights)
    assert found.public.fallbacks == 1


def test_counts_that_a_cap_has_cut_below_one_are_still_rates():
    small = aggregate(
        FairFed(measured_on="valid"),
        np.zeros(2),
        np.ones((3, 2)),
        sizes=SIZES,
        valid_tables=TABLES / 1000,
    )
    np.testing.assert_allclose(small.weights, example(FairFed()).weights, atol=1e-9)


def test_who_holds_nothing_out_counts_as_an_average_client():
    sizes, tables = np.append(SIZES, 100), np.append(TABLES, np.zeros((1, 2, 2, 2)), axis=0)
    delta, fell = groups.held_out_distances(tables, "eod", LOW, GOOD)
    np.testing.assert_allclose(delta, [*DELTA, np.mean(DELTA)], atol=1e-9)  # pyright: ignore[reportArgumentType, reportCallIssue]
    found = aggregate(
        FairFed(measured_on="valid"), np.zeros(2), np.ones((4, 2)), sizes=sizes, valid_tables=tables
    )
    weights, raw = groups.fairfed(sizes / 500, delta, sizes, 1.0)
    np.testing.assert_allclose(found.weights, weights, atol=1e-9)
    assert found.memory[3] == pytest.approx(raw[3]) == 0.2  # where it was
    # accuracy stood in for the third, for the fourth nothing did
    assert found.public.fallbacks == fell == 1
    nobody = aggregate(
        FairFed(measured_on="valid"),
        np.zeros(2),
        np.ones((4, 2)),
        sizes=sizes,
        valid_tables=np.zeros((4, 2, 2, 2)),
    )
    np.testing.assert_allclose(nobody.weights, sizes / 500)


def test_the_exponential_form_of_the_worked_example():
    found = example(FairFed(form="exponential"))
    np.testing.assert_allclose(found.weights, [0.2440907894, 0.2208624796, 0.5350467310], atol=1e-8)
    assert found.memory == (), "it has no memory"
    assert found.public.fallbacks == 1


@EVERY
@given(case=grouped_rounds(), beta=betas, clamp=st.booleans())
def test_weights_are_the_papers_in_two_rounds(case: Round, beta: float, clamp: bool, metric: str):
    rule, state, raw, fallbacks = (
        FairFed(metric=metric, beta=beta, clamp=clamp),
        None,
        case.sizes / case.sizes.sum(),
        0,
    )
    # the second model errs where the first was right
    for tables in (case.tables, case.tables[..., ::-1]):
        found = aggregate(
            rule, case.received, case.trained, sizes=case.sizes, tables=tables, state=state
        )
        delta, fell = groups.distances(tables, metric, LOW, GOOD)
        expected, raw = groups.fairfed(raw, delta, case.sizes, beta, clamp)
        state, fallbacks = found.state, fallbacks + fell
        np.testing.assert_allclose(found.weights, expected, atol=1e-8)
        np.testing.assert_allclose(found.memory, raw, atol=1e-10)
        assert found.public.fallbacks == fallbacks


@EVERY
@given(case=grouped_rounds(), beta=betas)
def test_the_exponential_form_is_the_early_papers(case: Round, beta: float, metric: str):
    found = case.apply(FairFed(metric=metric, beta=beta, form="exponential"))
    expected = groups.fairfed_exponential(
        groups.distances(case.tables, metric, LOW, GOOD)[0], case.sizes, beta
    )
    np.testing.assert_allclose(found.weights, expected, atol=1e-8)


@pytest.mark.parametrize("form", ["additive", "exponential"])
@pytest.mark.parametrize("weights", ["size", "equal"])
@given(case=grouped_rounds())
def test_beta_zero_is_fedavg(case: Round, weights: str, form: str):
    found = case.apply(FairFed(beta=0.0, weights=weights, form=form))
    np.testing.assert_allclose(found.model, case.apply(FedAvg(weights=weights)).model, atol=1e-12)


@EVERY
@given(case=grouped_rounds((4,)), beta=betas)
def test_clients_that_are_alike_keep_their_weights(case: Round, beta: float, metric: str):
    alike = case._replace(tables=np.repeat(case.tables[:1], 4, axis=0))
    np.testing.assert_allclose(
        alike.apply(FairFed(metric=metric, beta=beta)).memory,
        case.sizes / case.sizes.sum(),
        atol=1e-12,
    )


@given(grouped_rounds((4,)), betas)
def test_the_sum_is_kept_without_the_clamp_and_never_falls_with_it(case: Round, beta: float):
    assert case.apply(FairFed(beta=beta, clamp=False)).memory.sum() == pytest.approx(1)
    assert case.apply(FairFed(beta=beta)).memory.sum() >= 1 - 1e-12


@EVERY
@given(case=grouped_rounds(), beta=betas)
def test_it_does_not_matter_which_group_is_called_unprivileged(
    case: Round, beta: float, metric: str
):
    rule = FairFed(metric=metric, beta=beta)
    swapped = case._replace(tables=case.tables[:, ::-1])
    np.testing.assert_allclose(swapped.apply(rule).weights, case.apply(rule).weights, atol=1e-12)


@given(grouped_rounds((1,)), betas)
def test_a_client_alone_keeps_its_weight(case: Round, beta: float):
    found = case._replace(everyone=np.array([case.sizes[0], 7])).apply(FairFed(beta=beta))
    np.testing.assert_allclose(found.weights, [1.0])
    np.testing.assert_allclose(found.memory, np.array([case.sizes[0], 7]) / (case.sizes[0] + 7))


@given(grouped_rounds((4,)), st.integers(0, 15), betas)
def test_who_is_not_in_the_round_keeps_its_weight(case: Round, mask: int, beta: float):
    returned = np.array([bool(mask >> k & 1) for k in range(4)])
    found = case.apply(FairFed(beta=beta), returned=returned)
    np.testing.assert_allclose(
        found.memory[~returned], (case.sizes / case.sizes.sum())[~returned], rtol=1e-15
    )
    if returned.any():
        assert (
            found.public.fallbacks == groups.distances(case.tables[returned], "eod", LOW, GOOD)[1]
        )
    else:
        assert found.public.fallbacks == 0


def test_a_client_that_is_also_in_a_slot_that_does_not_count_is_written_once():
    # As where several samplings share a round: client 0 sits in two slots and returns from one of
    # them.
    rows = [0, 1, 2, 0]
    found = aggregate(
        FairFed(), np.zeros(2), np.ones((4, 2)), sizes=SIZES[rows], tables=TABLES[rows],
        clients=rows, everyone=SIZES, returned=[True, True, True, False],
    )  # fmt: skip
    np.testing.assert_allclose(found.memory, [0.2527777778, 0.1527777778, 0.5944444444], atol=1e-8)


def test_if_everyones_gap_is_undefined_accuracy_decides_for_all():
    tables = np.zeros((2, 2, 2, 2))
    tables[0, 0, 0], tables[1, 1, 0] = [8, 2], [6, 4]  # nobody has the favourable label
    found = aggregate(FairFed(), np.zeros(1), np.ones((2, 1)), sizes=[10, 10], tables=tables)
    assert found.public.fallbacks == 2
    np.testing.assert_allclose(found.weights, [0.5, 0.5], err_msg="both are 0.1 away from 0.7")


def test_if_all_weights_are_gone_sizes_decide_and_a_client_can_come_back():
    rule = FairFed(beta=1.0)
    state = remembering(rule, np.zeros(3))
    # Clients nearer than the mean gain; the one that is further away has nothing to lose.
    back = example(rule, state=state)
    assert back.memory[1] == 0
    assert back.memory[0] > 0
    nothing = example(FairFed(beta=0.0), state=state)
    np.testing.assert_allclose(nothing.weights, SIZES / 400)


def test_without_the_clamp_a_sum_that_is_not_positive_leaves_the_round_to_sizes():
    rule = FairFed(beta=0.0, clamp=False)
    found = example(rule, state=remembering(rule, np.array([-0.3, 0.1, 0.1])))
    np.testing.assert_allclose(found.weights, SIZES / 400)
    np.testing.assert_allclose(found.memory, [-0.3, 0.1, 0.1])


def test_normalised_weights_can_be_carried_instead():
    found = example(FairFed(beta=5.0, carry="normalised"))
    np.testing.assert_allclose(found.memory, [0.2134831461, 0, 0.7865168539], atol=1e-8)
    np.testing.assert_array_equal(found.memory, found.weights)


def test_several_groups_and_labels_are_two_sides_and_one_favourable_label():
    # Groups 1 and 3 of four are unprivileged, label 2 of three is the favourable one.
    draw = np.random.default_rng(2)
    tables = draw.integers(0, 9, (5, 4, 3, 3))
    sizes = tables.sum((1, 2, 3))
    census = Census(sizes, tables.sum(3), unprivileged=(1, 3), favourable=2)
    for metric in METRICS:
        found = aggregate(
            FairFed(metric=metric),
            np.zeros(1),
            np.ones((5, 1)),
            sizes=sizes,
            tables=tables,
            census=census,
        )
        delta, _ = groups.distances(tables, metric, [1, 3], 2)
        np.testing.assert_allclose(
            found.weights, groups.fairfed(sizes / sizes.sum(), delta, sizes, 1.0)[0], atol=1e-9
        )


def test_what_clients_reveal_follows_the_settings():
    assert algorithm("fairfed").rule.needs == {"table", "examples"}
    assert algorithm("fairfed+weighted").rule.needs == {"table"}
    assert algorithm("fairfed+weighted").rule.weights == "equal"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("fairfed(metric=dp)", r"metric must be one of eod, spd, accuracy, got 'dp'\."),
        ("fairfed(beta=-1)", r"beta must be at least 0, got -1\. Meaning: .*"),
        ("fairfed(form=exp)", r"form must be 'additive' or 'exponential', got 'exp'\."),
        ("fairfed(carry=none)", r"carry must be 'raw' or 'normalised', got 'none'\."),
        ("fairfed(clamp=2)", r"clamp must be true or false, got 2\."),
        ("fairfed(measured_on=test)", r"measured_on must be 'train' or 'valid', got 'test'\."),
        ("fairfed(weights=big)", r"weights must be 'size' or 'equal', got 'big'\."),
        (
            "fairfed(form=exponential, clamp=false)",
            r"form = exponential carries no weights; leave clamp and carry out\.",
        ),
    ],
)
def test_mistakes_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^fairfed: {sentence}( Meaning: .*)?$"):
        algorithm(text)
