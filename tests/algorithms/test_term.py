import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, algorithm
from evenly.algorithms.term import Term
from tests.aggregation import LOSSES, SIZES, TRAINED, Round, W, aggregate, rounds
from tests.oracles import fair
from tests.simulations import Simulated, flat

tilts = st.one_of(st.sampled_from([0.01, 0.1, 0.5, 1.0, 50.0]), st.floats(0, 10))


@pytest.mark.parametrize(
    "alpha, weights, model",
    [
        (0.1, [0.0926515352, 0.3229371788, 0.5844112860], [0.9230285644, 1.9554136678]),
        (1.0, [0.0410890322, 0.5524447995, 0.4064661683], [0.9511355767, 1.8050708339]),
        (50.0, [0, 1, 0], [1, 1.5]),
    ],
)
def test_worked_examples(alpha: float, weights: list, model: list):
    found = aggregate(Term(alpha=alpha), W, TRAINED, losses=LOSSES, sizes=SIZES)
    np.testing.assert_allclose(found.weights, weights, atol=1e-8)
    np.testing.assert_allclose(found.model, model, atol=1e-8)
    np.testing.assert_allclose(fair.term(TRAINED, LOSSES, SIZES, alpha).model, model, atol=1e-8)


@given(rounds(), tilts)
def test_weights_are_the_papers(case: Round, alpha: float):
    for weights, n in (("size", case.sizes), ("equal", np.ones(len(case.sizes)))):
        found, expected = (
            case.apply(Term(alpha=alpha, weights=weights)),
            fair.term(case.trained, case.losses, n, alpha),
        )
        np.testing.assert_allclose(found.weights, expected.lambdas, atol=1e-8)
        np.testing.assert_allclose(found.model, expected.model, atol=1e-8)


@pytest.mark.parametrize("weights", ["size", "equal"])
@given(case=rounds())
def test_without_tilt_it_is_fedavg(case: Round, weights: str):
    average = case.apply(FedAvg(weights=weights)).model
    np.testing.assert_allclose(
        case.apply(Term(alpha=0.0, weights=weights)).model, average, atol=1e-12
    )
    np.testing.assert_allclose(
        case.apply(Term(alpha=1e-9, weights=weights)).model, average, atol=1e-5
    )


@given(rounds((4,)), st.floats(0.5, 1e3))
def test_a_strong_tilt_leaves_only_the_worst_client(case: Round, gap: float):
    worst = case._replace(losses=case.losses[0] + gap * np.array([0, 1, 2, 3]))
    np.testing.assert_allclose(worst.apply(Term(alpha=200.0)).weights, [0, 0, 0, 1], atol=1e-12)


@pytest.mark.parametrize("form", ["normalised", "authors"])
@given(case=rounds(), alpha=st.floats(0, 2), constant=st.floats(0, 50))
def test_only_differences_of_losses_matter(case: Round, alpha: float, constant: float, form: str):
    rule = Term(alpha=alpha, form=form)
    shifted = case._replace(losses=case.losses + constant)
    np.testing.assert_allclose(shifted.apply(rule).weights, case.apply(rule).weights, atol=1e-9)


def test_losses_of_any_size_are_finite():
    for form in ("normalised", "authors"):
        weights = aggregate(
            Term(alpha=50.0, form=form), W, TRAINED, losses=[1e4, 3e4, 1e30]
        ).weights
        assert np.isfinite(weights).all()
        assert weights.argmax() == 2


@given(rounds(), st.floats(0, 5))
def test_the_authors_form_takes_their_steps_in_rounds_one_and_two(case: Round, alpha: float):
    rule, state, estimate = Term(alpha=alpha, form="authors"), None, 0.0
    for losses in (case.losses, case.losses[::-1] / 2):
        found = aggregate(rule, case.received, case.trained, losses=losses, state=state)
        model, weights, estimate = fair.term_authors(
            case.received, case.trained, losses, alpha, estimate
        )
        state = found.state
        np.testing.assert_allclose(found.model, model, atol=1e-8)
        np.testing.assert_allclose(found.weights, weights, atol=1e-8)
        np.testing.assert_allclose(found.public, estimate, rtol=1e-10)


def test_the_authors_first_step_is_twice_as_long_and_all_are_k_times_shorter():
    # Equal losses: e = 1 for all; the estimate is 1/2, then 3/4, 7/8, ...; coefficients sum to 1 /
    # (K estimate).
    rule, state, sums = Term(alpha=1.0, form="authors"), None, []
    for _ in range(20):
        found = aggregate(rule, W, TRAINED, losses=np.ones(3), state=state)
        state = found.state
        sums.append(found.weights.sum())
    np.testing.assert_allclose(sums[:3], [2 / 3, 4 / 9, 8 / 21])
    assert sums[-1] == pytest.approx(1 / 3, abs=1e-5)


def test_an_empty_round_leaves_the_authors_estimate_alone():
    rule = Term(form="authors")
    found = aggregate(rule, W, TRAINED, losses=LOSSES)
    nobody = aggregate(
        rule, W, TRAINED, losses=LOSSES, returned=np.zeros(3, bool), state=found.state
    )
    assert nobody.public == found.public > 0


def test_alpha_zero_is_fedavg_over_a_run(simulated: Simulated):
    np.testing.assert_allclose(
        flat(simulated("term(alpha=0)", 3).model), flat(simulated("fedavg", 3).model), atol=1e-6
    )


def test_sizes_follow_the_sampling_and_the_form():
    assert algorithm("term").rule.weights == "size"  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("term+weighted").rule.weights == "equal"  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("term(form=authors)").rule.needs == {"loss"}
    with pytest.raises(
        ValueError, match=r"^term: With form=authors, sizes do not count. Remove weights=size\.$"
    ):
        algorithm("term(form=authors, weights=size)")
    with pytest.raises(ValueError, match=r"^term: alpha must be at least 0, got -1\. Meaning: .*$"):
        algorithm("term(alpha=-1)")
    with pytest.raises(
        ValueError, match=r"^term: form must be 'normalised' or 'authors', got 'paper'\.$"
    ):
        algorithm("term(form=paper)")
    with pytest.raises(ValueError, match=r"^term.*: client sizes would count twice"):
        algorithm("term(weights=size)+weighted")
