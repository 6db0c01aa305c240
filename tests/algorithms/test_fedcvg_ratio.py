import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, algorithm
from evenly.algorithms.fedcvg_ratio import FedCvgRatio
from evenly.parts.optimisers import BlendingServer
from tests.aggregation import Outcome, Round, aggregate, grouped_rounds
from tests.oracles import groups

# Clients A, B, C of Table 3.2 of the thesis.
N, U = np.array([1000, 1000, 1000]), np.array([200, 500, 330])
Z = [0.2637540453, 0.4093851133, 0.3268608414]
shares = st.floats(0, 1)
slopes = st.floats(0, 3)


def example(rule: FedCvgRatio, u: np.ndarray = U, **options: object) -> Outcome:
    return aggregate(rule, np.zeros(2), np.ones((3, 2)), sizes=N, unprivileged=u, **options)


def test_the_table_of_the_thesis():
    np.testing.assert_allclose(
        groups.ratio_scores(N, U, 0.5), [0.7912621359, 1.2281553398, 0.9805825243], atol=1e-9
    )
    # The thesis tabulates about 0.80, 1.25, 1.00, from a rate rounded to 0.33.
    rounded = 1 + 0.5 * (U / N - 0.33) / 0.33
    np.testing.assert_allclose(rounded, [0.8030303030, 1.2575757576, 1], atol=1e-9)
    found = example(FedCvgRatio())
    np.testing.assert_allclose(found.weights, Z, atol=1e-8)


def test_where_unprivileged_rows_are_the_majority_the_others_are_favoured():
    u = np.array([900, 600, 810])
    np.testing.assert_allclose(
        groups.ratio_scores(N, u, 0.5), [0.7173913043, 1.3695652174, 0.9130434783], atol=1e-9
    )
    np.testing.assert_allclose(
        example(FedCvgRatio(), u).weights, [0.2391304348, 0.4565217391, 0.3043478261], atol=1e-8
    )


@pytest.mark.parametrize(
    "memory, weights",
    [
        (0.5, [0.2985436893, 0.3713592233, 0.3300970874]),
        (0.9, [0.3263754045, 0.3409385113, 0.3326860841]),
    ],
)
def test_started_at_sizes_the_first_round_already_remembers(memory: float, weights: list):
    np.testing.assert_allclose(
        example(FedCvgRatio(memory=memory, start="size")).weights, weights, atol=1e-8
    )


def test_a_round_of_two_of_three_clients():
    options = {"sizes": N[:2], "unprivileged": U[:2], "everyone": N}
    literal = aggregate(
        FedCvgRatio(start="size", renormalise=False), np.zeros(2), np.ones((2, 2)), **options
    )
    np.testing.assert_allclose(literal.weights, [0.3630952381, 0.4702380952], atol=1e-8)
    assert literal.weights.sum() == pytest.approx(0.8333333333)
    ours = aggregate(FedCvgRatio(start="size"), np.zeros(2), np.ones((2, 2)), **options)
    np.testing.assert_allclose(ours.weights, [0.4357142857, 0.5642857143], atol=1e-8)
    np.testing.assert_allclose(ours.memory.weight, [*literal.weights, 1 / 3], atol=1e-8)


def test_without_renormalising_the_model_is_the_sum_that_the_thesis_prints():
    """Line 42 multiplies models; the server moved by the sum of weighted changes and kept all of
    the model it had.
    """
    received, trained = np.array([1.0, 2.0]), np.array([[0.8, 2.0], [1.0, 1.5]])
    rule, options = (
        FedCvgRatio(start="size", renormalise=False),
        {"sizes": N[:2], "unprivileged": U[:2], "everyone": N},
    )
    found = aggregate(rule, received, trained, **options)
    np.testing.assert_allclose(
        groups.line_42([0.3630952381, 0.4702380952], trained),
        [0.7607142857, 1.4315476190],
        atol=1e-9,
    )
    np.testing.assert_allclose(found.model, [0.7607142857, 1.4315476190], atol=1e-9)
    # Clients that do not move still leave less of the model, 5/6 of it: that is what the printed
    # line does.
    still = aggregate(rule, received, np.array([received, received]), **options)
    np.testing.assert_allclose(still.model, received * 0.8333333333, atol=1e-9)


@pytest.mark.parametrize("start", ["first-seen", "size"])
@given(
    case=grouped_rounds((4,)),
    alpha=slopes,
    memory=shares,
    masks=st.lists(st.integers(1, 15), min_size=3, max_size=3),
)
def test_without_renormalising_every_round_is_line_42(
    case: Round, alpha: float, memory: float, masks: list, start: str
):
    rule, state = FedCvgRatio(alpha=alpha, memory=memory, start=start, renormalise=False), None
    weight, seen = case.sizes / case.sizes.sum(), np.full(4, start == "size")
    for mask in masks:
        here = np.array([bool(mask >> k & 1) for k in range(4)])
        found = aggregate(
            rule,
            case.received,
            case.trained,
            sizes=case.sizes,
            unprivileged=case.unprivileged,
            returned=here,
            state=state,
        )
        now = groups.ratio_weights(case.sizes[here], case.unprivileged[here], alpha)
        weight[here] = groups.moving_average(weight[here], seen[here], now, memory)
        seen |= here
        state = found.state
        np.testing.assert_allclose(
            found.model, groups.line_42(weight[here], case.trained[here]), atol=1e-8
        )


@given(grouped_rounds(), slopes)
def test_weights_that_sum_to_1_need_no_renormalising(case: Round, alpha: float):
    literal, ours = (
        case.apply(FedCvgRatio(alpha=alpha, renormalise=flag)) for flag in (False, True)
    )
    np.testing.assert_allclose(literal.model, ours.model, atol=1e-9)


def test_the_printed_line_leaves_no_room_for_an_optimiser_at_the_server():
    assert isinstance(algorithm("fedcvg-ratio(renormalise=false)").server, BlendingServer)
    assert algorithm("fedcvg-ratio").server is None
    assert algorithm("fedcvg-ratio+server-momentum").server.optimiser.kind == "momentum"  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    with pytest.raises(
        ValueError,
        match=(
            r"^fedcvg-ratio: the method has a server step of its own; leave the server's optimiser"
            r" out\.$"
        ),
    ):
        algorithm("fedcvg-ratio(renormalise=false)+server-momentum")


@given(grouped_rounds(), slopes)
def test_the_rounds_own_weights_are_the_papers(case: Round, alpha: float):
    expected = groups.ratio_weights(case.sizes, case.unprivileged, alpha)
    np.testing.assert_allclose(case.apply(FedCvgRatio(alpha=alpha)).weights, expected, atol=1e-9)


@pytest.mark.parametrize("start", ["first-seen", "size"])
@given(
    case=grouped_rounds((4,)),
    alpha=slopes,
    memory=shares,
    masks=st.lists(st.integers(1, 15), min_size=3, max_size=3),
)
def test_weights_are_remembered_as_the_paper_says(
    case: Round, alpha: float, memory: float, masks: list, start: str
):
    rule, state = FedCvgRatio(alpha=alpha, memory=memory, start=start), None
    weight, seen = case.sizes / case.sizes.sum(), np.full(4, start == "size")
    for mask in masks:
        here = np.array([bool(mask >> k & 1) for k in range(4)])
        found = aggregate(
            rule,
            case.received,
            case.trained,
            sizes=case.sizes,
            unprivileged=case.unprivileged,
            returned=here,
            state=state,
        )
        now = groups.ratio_weights(case.sizes[here], case.unprivileged[here], alpha)
        weight[here] = groups.moving_average(weight[here], seen[here], now, memory)
        seen |= here
        state = found.state
        np.testing.assert_allclose(
            found.weights[here], weight[here] / weight[here].sum(), atol=1e-9
        )
        np.testing.assert_array_equal(found.memory.known, seen)
        np.testing.assert_allclose(found.memory.weight[seen], weight[seen], atol=1e-10)


@pytest.mark.parametrize("weights", ["size", "equal"])
@given(case=grouped_rounds())
def test_alpha_and_memory_zero_are_fedavg(case: Round, weights: str):
    found = case.apply(FedCvgRatio(alpha=0.0, memory=0.0, weights=weights, start="size"))
    np.testing.assert_allclose(found.model, case.apply(FedAvg(weights=weights)).model, atol=1e-12)


@given(grouped_rounds((4,)), slopes, shares)
def test_if_everyone_always_takes_part_memory_has_no_effect(
    case: Round, alpha: float, memory: float
):
    rule, state = FedCvgRatio(alpha=alpha, memory=memory), None
    for _ in range(3):
        found = aggregate(
            rule,
            case.received,
            case.trained,
            sizes=case.sizes,
            unprivileged=case.unprivileged,
            state=state,
        )
        state = found.state
        np.testing.assert_allclose(
            found.weights, groups.ratio_weights(case.sizes, case.unprivileged, alpha), atol=1e-9
        )


def test_memory_one_freezes_a_client_at_its_first_weight():
    rule = FedCvgRatio(memory=1.0)
    first = example(rule)
    np.testing.assert_array_equal(
        example(rule, np.array([900, 10, 330]), state=first.state).memory.weight,
        first.memory.weight,
    )


@given(grouped_rounds((4,)), slopes)
def test_equal_shares_are_fedavg(case: Round, alpha: float):
    alike = case._replace(unprivileged=case.sizes * 0.3)
    found = alike.apply(FedCvgRatio(alpha=alpha))
    np.testing.assert_allclose(found.weights, case.sizes / case.sizes.sum(), atol=1e-9)


@given(grouped_rounds((4,)), slopes)
def test_swapping_the_sides_changes_nothing_but_at_one_half(case: Round, alpha: float):
    assume(2 * case.unprivileged.sum() != case.sizes.sum())
    swapped = case._replace(unprivileged=case.sizes - case.unprivileged)
    np.testing.assert_allclose(
        swapped.apply(FedCvgRatio(alpha=alpha)).weights,
        case.apply(FedCvgRatio(alpha=alpha)).weights,
        atol=1e-9,
    )


def test_at_one_half_the_privileged_are_favoured():
    found = example(FedCvgRatio(), np.array([200, 500, 800]))
    assert found.weights[0] > found.weights[1] > found.weights[2]


@pytest.mark.parametrize("u", [[0, 0, 0], [1000, 1000, 1000]])
def test_a_round_that_lacks_a_side_is_weighed_by_size(u: list):
    np.testing.assert_allclose(example(FedCvgRatio(alpha=3.0), np.array(u)).weights, 1 / 3)


def test_a_client_without_rows_does_not_count():
    found = aggregate(
        FedCvgRatio(weights="equal"),
        np.zeros(1),
        np.ones((3, 1)),
        sizes=[0, 10, 10],
        unprivileged=[0, 3, 4],
        everyone=N,
    )
    assert found.weights[0] == 0
    assert found.weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(found.memory.known, [False, True, True])


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("fedcvg-ratio(alpha=-1)", r"alpha must be at least 0, got -1\. Meaning: .*"),
        (
            "fedcvg-ratio(memory=1.5)",
            r"memory must be at least 0 and at most 1, got 1\.5\. Meaning: .*",
        ),
        ("fedcvg-ratio(start=now)", r"start must be 'first-seen' or 'size', got 'now'\."),
        ("fedcvg-ratio(renormalise=1)", r"renormalise must be true or false, got 1\."),
    ],
)
def test_mistakes_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^fedcvg-ratio: {sentence}$"):
        algorithm(text)


def test_what_clients_reveal():
    assert algorithm("fedcvg-ratio").rule.needs == {"unprivileged", "examples"}
    assert algorithm("fedcvg-ratio(start=first-seen)+weighted").rule.weights == "equal"  # pyright: ignore[reportAttributeAccessIssue]
