import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, algorithm
from evenly.algorithms.p_fedavg import FAMILIES, PFedAvg
from tests.aggregation import LOSSES, SIZES, TRAINED, Round, W, aggregate, rounds
from tests.oracles import fair
from tests.simulations import Simulated, flat

EVERY = pytest.mark.parametrize("family", FAMILIES)
ratios = st.floats(0.05, 1)


def distinct(case: Round) -> bool:
    ordered = np.sort(case.losses)
    return bool((np.diff(ordered) > 1e-4 * ordered[1:]).all())


@pytest.mark.parametrize(
    "settings, weights, model",
    [
        ({}, [1 / 9, 5 / 9, 3 / 9], [0.9444444444, 1.7888888889]),
        # first 1, difference 2: Gini
        ({"family": "arithmetic"}, [1 / 9, 5 / 9, 3 / 9], [0.9444444444, 1.7888888889]),
        (
            {"family": "harmonic"},
            [0.2307692308, 0.4230769231, 0.3461538462],
            [0.9192307692, 1.8576923077],
        ),
        (
            {"family": "geometric"},
            [0.1428571429, 0.5714285714, 0.2857142857],
            [0.9428571429, 1.7714285714],
        ),
        (
            {"family": "geometric", "ratio": 0.85},
            [0.2808551992, 0.3887269193, 0.3304178814],
            [0.9107871720, 1.8717201166],
        ),
        ({"sort_key": "n"}, [1 / 9, 3 / 9, 5 / 9], [0.9222222222, 1.9444444444]),
    ],
)
def test_worked_examples(settings: dict, weights: list, model: list):
    found = aggregate(PFedAvg(**settings), W, TRAINED, losses=LOSSES, sizes=SIZES)
    np.testing.assert_allclose(found.weights, weights, atol=1e-8)
    np.testing.assert_allclose(found.model, model, atol=1e-8)
    key = SIZES if settings.get("sort_key") == "n" else LOSSES
    oracle = fair.p_fedavg(
        TRAINED, key, settings.get("family", "gini"), z=settings.get("ratio", 0.5)
    )
    np.testing.assert_allclose(oracle.lambdas, weights, atol=1e-8)


@pytest.mark.parametrize(
    "family, weights",
    [
        ("gini", [0.0625, 0.1875, 0.3125, 0.4375]),
        ("harmonic", [0.1558441558, 0.2337662338, 0.2857142857, 0.3246753247]),
        ("geometric", [0.0666666667, 0.1333333333, 0.2666666667, 0.5333333333]),
    ],
)
def test_worked_weights_of_four(family: str, weights: list):
    found = aggregate(PFedAvg(family=family), np.zeros(2), np.ones((4, 2)), losses=[1, 2, 3, 4])
    np.testing.assert_allclose(found.weights, weights, atol=1e-8)


@EVERY
@given(case=rounds(), ratio=ratios, first=st.floats(0.1, 5), difference=st.floats(0, 5))
def test_weights_are_the_papers(
    case: Round, ratio: float, first: float, difference: float, family: str
):
    assume(distinct(case))
    found = case.apply(PFedAvg(family=family, ratio=ratio, first=first, difference=difference))
    expected = fair.p_fedavg(
        case.trained, case.losses, family, z=ratio, first=first, difference=difference
    )
    np.testing.assert_allclose(found.weights, expected.lambdas, atol=1e-8)
    np.testing.assert_allclose(found.model, expected.model, atol=1e-8)


@EVERY
@given(
    case=rounds((4,)),
    levels=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=4, max_size=4),
    returned=st.integers(1, 15),
)
def test_equal_losses_share_their_weights(case: Round, levels: list, returned: int, family: str):
    present = np.array([bool(returned >> k & 1) for k in range(4)])
    tied = case._replace(losses=np.array(levels))
    found = tied.apply(PFedAvg(family=family), returned=present)
    expected = fair.p_fedavg(case.trained[present], tied.losses[present], family)
    np.testing.assert_allclose(found.weights[present], expected.lambdas, atol=1e-12)
    for level in set(tied.losses[present]):
        assert np.ptp(found.weights[present & (tied.losses == level)]) < 1e-15


def test_losses_that_differ_by_rounding_are_ties():
    losses = np.log(3) * (1 + np.array([0, 1, -1, 2]) * 2**-23)  # neighbours in single precision
    np.testing.assert_allclose(
        aggregate(PFedAvg(), np.zeros(2), np.ones((4, 2)), losses=losses).weights, 0.25
    )


ROUNDING = st.lists(st.integers(-8, 8), min_size=4, max_size=4).map(
    lambda steps: 1 + np.array(steps) * 2.0**-23
)


@EVERY
@given(
    levels=st.lists(st.sampled_from([0.5, np.log(10), 2.0**20]), min_size=4, max_size=4),
    noise=ROUNDING,
)
def test_ties_by_order_do_not_depend_on_rounding(levels: list, noise: np.ndarray, family: str):
    """Equal losses came out in the order of their last bits, which follow the order of rows and the
    device.
    """
    rule = PFedAvg(family=family, ties="order")
    exact, rounded = (
        aggregate(rule, np.zeros(2), np.ones((4, 2)), losses=losses).weights
        for losses in (levels, levels * noise)
    )
    np.testing.assert_array_equal(rounded, exact)
    # the rank of every slot: by loss, then by slot
    oracle = np.argsort(np.argsort(levels, kind="stable"))
    p = fair.p_weights(family, 4)
    np.testing.assert_allclose(exact, (p[::-1] if family == "geometric" else p)[oracle], atol=1e-12)


@given(noise=ROUNDING, returned=st.integers(1, 15))
def test_ties_by_order_pass_over_those_who_did_not_return(noise: np.ndarray, returned: int):
    present = np.array([bool(returned >> k & 1) for k in range(4)])
    found = aggregate(
        PFedAvg(ties="order"), np.zeros(2), np.ones((4, 2)), losses=noise, returned=present
    ).weights
    np.testing.assert_allclose(found[present], fair.p_weights("gini", present.sum()), atol=1e-12)
    assert not found[~present].any()


def test_ties_by_order_are_those_of_the_cohort_also_in_lanes(simulated: Simulated):
    """The first model is zero, so in the first round all losses are equal but for rounding; lanes
    visit clients in another order.
    """
    trace = simulated("p-fedavg(ties=order)+full", 1, lanes=3)
    np.testing.assert_allclose(trace.weights[0], np.arange(1, 12, 2) / 36, atol=1e-6)


def test_sizes_are_ties_only_if_they_are_equal():
    sizes = [1_000_001, 1_000_000, 1_000_001]
    found = aggregate(PFedAvg(sort_key="n"), np.zeros(2), np.ones((3, 2)), sizes=sizes).weights
    np.testing.assert_allclose(found, np.array([4, 1, 4]) / 9)
    by_order = aggregate(
        PFedAvg(sort_key="n", ties="order"), np.zeros(2), np.ones((3, 2)), sizes=sizes
    ).weights
    np.testing.assert_allclose(by_order, np.array([3, 1, 5]) / 9)


def test_ties_by_order_in_the_cohort_are_an_option():
    found = aggregate(PFedAvg(ties="order"), np.zeros(2), np.ones((4, 2)), losses=[1, 1, 2, 1])
    np.testing.assert_allclose(found.weights, np.array([1, 3, 7, 5]) / 16)
    shared = aggregate(PFedAvg(), np.zeros(2), np.ones((4, 2)), losses=[1, 1, 2, 1])
    np.testing.assert_allclose(shared.weights, np.array([3, 3, 7, 3]) / 16)


@EVERY
@given(case=rounds((4,)), power=st.floats(0.5, 3))
def test_only_the_order_matters(case: Round, power: float, family: str):
    assume(distinct(case))
    rule = PFedAvg(family=family)
    transformed = case._replace(losses=10 + case.losses**power)
    assume(distinct(transformed))
    np.testing.assert_array_equal(transformed.apply(rule).weights, case.apply(rule).weights)


@given(rounds())
def test_ratio_one_and_difference_zero_are_fedavg(case: Round):
    plain = case.apply(FedAvg(weights="equal"))
    for rule in (
        PFedAvg(family="geometric", ratio=1.0),
        PFedAvg(family="arithmetic", first=3.0, difference=0.0),
        PFedAvg(family="geometric", ratio=1.0, bins=5),
        PFedAvg(family="arithmetic", first=3.0, difference=0.0, bins=5),
    ):
        np.testing.assert_allclose(case.apply(rule).weights, plain.weights, atol=1e-15)
        np.testing.assert_allclose(case.apply(rule).model, plain.model, atol=1e-12)


@given(rounds((4,)), st.sampled_from([1e-12, 1e-40]))
def test_a_ratio_near_zero_leaves_only_the_worst_client(case: Round, ratio: float):
    assume(distinct(case))
    weights = case.apply(PFedAvg(family="geometric", ratio=ratio)).weights
    np.testing.assert_allclose(weights, np.arange(4) == case.losses.argmax(), atol=1e-10)


@EVERY
@given(case=rounds((1,)))
def test_a_single_client_counts_fully(case: Round, family: str):
    np.testing.assert_allclose(case.apply(PFedAvg(family=family)).weights, [1.0])


@EVERY
@given(case=rounds((4,)), ratio=ratios)
def test_the_weighted_loss_is_at_least_the_mean(case: Round, ratio: float, family: str):
    # Generalised Gini: larger weights on larger losses.
    weights = case.apply(PFedAvg(family=family, ratio=ratio)).weights
    # ties within 1e-5 may be out of order
    assert weights @ case.losses >= case.losses.mean() - 1e-4 * case.losses.max()
    worst = case.losses.argmax()
    assert weights[worst] == pytest.approx(weights.max())


@given(rounds((4,)))
def test_by_size_multiplies_and_renormalises(case: Round):
    plain, sized = case.apply(PFedAvg()), case.apply(PFedAvg(weights="size"))
    raw = plain.weights * case.sizes
    np.testing.assert_allclose(sized.weights, raw / raw.sum(), atol=1e-12)


def test_ratio_one_is_fedavg_over_a_run(simulated: Simulated):
    one, plain = simulated("p-fedavg(family=geometric, ratio=1)", 3), simulated("fedavg", 3)
    np.testing.assert_allclose(flat(one.model), flat(plain.model), atol=1e-6)


def test_exact_ranks_are_for_servers_that_see_every_loss_and_bins_for_sums():
    assert algorithm("p-fedavg").rule.whole_cohort
    assert algorithm("p-fedavg").rule.stages == 0
    summed = algorithm("p-fedavg(bins=64)").rule
    assert (summed.whole_cohort, summed.stages) == ("", 1)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=[pytest.mark.further] * (family in ("arithmetic", "harmonic")))
        for family in FAMILIES
    ],
)
def test_bins_are_exact_over_a_run_of_clients_that_differ(simulated: Simulated, family: str):
    exact = simulated(f"p-fedavg(family={family})", 3)
    summed = simulated(f"p-fedavg(family={family}, bins=4096)", 3)
    np.testing.assert_allclose(summed.weights, exact.weights, atol=1e-6)
    np.testing.assert_allclose(flat(summed.model), flat(exact.model), atol=1e-5)


@EVERY
def test_bins_do_not_lose_clients_whose_losses_were_all_equal(family: str):
    """At a model that starts at zero all losses are equal. Edges at quantiles alone then left all
    clients of the next round in one bin.
    """
    rule, state, draw = PFedAvg(family=family, bins=4096), None, np.random.default_rng(0)
    trained = np.ones((20, 2))
    for t in range(4):
        losses = np.full(20, 2.3) if t == 0 else 2.3 * 0.9**t * np.exp(0.2 * draw.normal(size=20))
        found = aggregate(rule, np.zeros(2), trained, losses=losses, state=state)
        state = found.state
        expected = fair.p_fedavg(trained, losses, family).lambdas
        assert np.abs(found.weights - expected).sum() < 0.02


def test_what_clients_reveal_follows_the_settings():
    assert algorithm("p-fedavg(bins=9)").rule.needs == {"loss"}
    assert algorithm("p-fedavg(bins=9, sort_key=n)").rule.needs == {"examples"}
    assert algorithm("p-fedavg").rule.needs == {"loss"}
    assert algorithm("p-fedavg(sort_key=n)").rule.needs == {"examples"}
    assert algorithm("p-fedavg(weights=size)+uniform").rule.needs == {"examples", "loss"}


@pytest.mark.parametrize(
    "text, sentence",
    [
        (
            "p-fedavg(family=flat)",
            r"family must be one of gini, arithmetic, harmonic, geometric, got 'flat'\.",
        ),
        ("p-fedavg(ratio=0)", r"ratio must be above 0 and at most 1, got 0\. Meaning: .*"),
        ("p-fedavg(ratio=1.5)", r"ratio must be above 0 and at most 1, got 1\.5\. Meaning: .*"),
        ("p-fedavg(first=0)", r"first must be above 0, got 0\. Meaning: .*"),
        ("p-fedavg(sort_key=size)", r"sort_key must be 'loss' or 'n', got 'size'\."),
        ("p-fedavg(bins=1)", r"bins must be 0 or at least 2, got 1\."),
        ("p-fedavg(bins=-4)", r"bins must be a whole number of at least 0, got -4\. Meaning: .*"),
        (
            "p-fedavg(bins=9, ties=order)",
            r"clients in a bin share the mean of their weights; with bins, leave ties out\.",
        ),
        ("p-fedavg(ties=first)", r"ties must be 'share' or 'order', got 'first'\."),
        ("p-fedavg(weights=big)", r"weights must be 'size' or 'equal', got 'big'\."),
    ],
)
def test_mistakes_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^p-fedavg: {sentence}$"):
        algorithm(text)
