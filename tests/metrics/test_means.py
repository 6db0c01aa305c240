import doctest
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenly.metrics import dual_weights, generalised_mean, statistics
from tests.aggregation import LOSSES
from tests.oracles import fair

losses = arrays(np.float64, st.integers(1, 6), elements=st.floats(0.01, 4))
KINDS = {
    "fedavg": st.just(0.0),
    "q-ffl": st.floats(0, 20),
    "afl": st.just(0.0),
    "term": st.floats(0, 20),
    "propfair": st.floats(4.1, 50),
}
kinds = st.sampled_from(list(KINDS)).flatmap(lambda kind: st.tuples(st.just(kind), KINDS[kind]))


@pytest.mark.parametrize(
    "kind, parameter, expected",
    [
        ("fedavg", 0, 1.1666666667),
        ("q-ffl", 0, 1.1666666667),
        ("q-ffl", 1, 1.3228756555),
        ("q-ffl", 5, 1.6697421659),
        ("q-ffl", 100, 1.9783631901),
        ("term", 0, 1.1666666667),
        ("term", 0.1, 1.1862557621),
        ("term", 1, 1.3657564954),
        ("term", 100, 1.9890138771),
        ("propfair", 2.5, 1.3552857574),
        ("propfair", 5, 1.2202368503),
        ("propfair", 10, 1.1891318851),
        ("afl", 0, 2.0),
    ],
)
def test_worked_examples(kind: str, parameter: float, expected: float):
    assert generalised_mean(LOSSES, kind, parameter) == pytest.approx(expected, abs=1e-9)


def test_worked_dual_weights():
    dual = dual_weights(LOSSES, "propfair", 5.0)
    np.testing.assert_allclose(dual, [0.2799824555, 0.4199736833, 0.3149802625], atol=1e-9)
    np.testing.assert_allclose(
        dual / dual.sum(), [0.2758620690, 0.4137931034, 0.3103448276], atol=1e-9
    )
    np.testing.assert_allclose(dual_weights(LOSSES, "q-ffl", 1.0), LOSSES / 3.5)
    np.testing.assert_allclose(dual_weights(LOSSES, "fedavg"), 1 / 3)
    np.testing.assert_array_equal(dual_weights(LOSSES, "afl"), [0, 1, 0])


@given(losses, kinds)
def test_it_is_the_papers_mean(f: np.ndarray, kind: tuple[str, float]):
    name, parameter = kind
    expected = (
        f.max()
        if name == "afl"
        else (
            None
            if parameter < 1e-3 and name == "term"
            else fair.generalised_mean(f, name, parameter)
        )
    )
    if expected is not None:
        assert generalised_mean(f, name, parameter) == pytest.approx(expected, rel=1e-8)


@given(losses, kinds)
def test_it_lies_between_the_mean_and_the_worst(f: np.ndarray, kind: tuple[str, float]):
    assert f.mean() - 1e-9 <= generalised_mean(f, *kind) <= f.max() + 1e-9


@given(st.floats(0, 4), st.integers(1, 6), kinds)
def test_equal_losses_are_their_own_mean(c: float, count: int, kind: tuple[str, float]):
    f = np.full(count, c)
    assert generalised_mean(f, *kind) == pytest.approx(c, abs=1e-9)
    np.testing.assert_allclose(dual_weights(f, *kind), 1 / count, rtol=1e-9)


@given(losses)
def test_the_limits_are_the_mean_and_the_worst(f: np.ndarray):
    for kind, parameter in (
        ("q-ffl", 0.0),
        ("q-ffl", 1e-10),
        ("term", 0.0),
        ("term", 1e-10),
        ("propfair", 1e10),
    ):
        assert generalised_mean(f, kind, parameter) == pytest.approx(f.mean(), abs=1e-7), kind
        np.testing.assert_allclose(dual_weights(f, kind, parameter), 1 / len(f), rtol=1e-8)
    for kind in ("q-ffl", "term"):
        assert generalised_mean(f, kind, 1e5) == pytest.approx(f.max(), rel=1e-3), kind


@given(losses, st.floats(4.1, 50), st.floats(0.1, 5))
def test_dual_weights_are_the_slope_of_the_mean(f: np.ndarray, M: float, alpha: float):
    # dA/df_i = s'(f_i) / (n s'(A)); q-FFL's slopes are normalised to sum to 1.
    dual = dual_weights(f, "propfair", M)
    np.testing.assert_allclose(dual, fair.slope_of_mean(f, "propfair", M), rtol=1e-8)
    assert np.prod(len(f) * dual) == pytest.approx(1)
    assert dual.sum() >= 1 - 1e-12
    np.testing.assert_allclose(
        dual_weights(f, "term", alpha), fair.slope_of_mean(f, "term", alpha), rtol=1e-8
    )
    slope = fair.slope_of_mean(f, "q-ffl", alpha)
    np.testing.assert_allclose(dual_weights(f, "q-ffl", alpha), slope / slope.sum(), rtol=1e-8)


@given(losses, kinds)
def test_dual_weights_sum_to_one_but_for_propfair(f: np.ndarray, kind: tuple[str, float]):
    weights = dual_weights(f, *kind)
    assert (weights >= 0).all()
    assert kind[0] == "propfair" or weights.sum() == pytest.approx(1)


def test_extremes_are_finite():
    huge = np.array([1e3, 3e5])
    assert generalised_mean(huge, "term", 50.0) == pytest.approx(3e5)
    assert generalised_mean(huge, "q-ffl", 500.0) == pytest.approx(3e5, rel=1e-2)
    zero = np.zeros(3)
    for kind, parameter in (("q-ffl", 2.0), ("term", 2.0), ("afl", 0.0), ("propfair", 1.0)):
        assert generalised_mean(zero, kind, parameter) == 0
        np.testing.assert_allclose(dual_weights(zero, kind, parameter), 1 / 3)


@pytest.mark.parametrize(
    "f, kind, parameter, sentence",
    [
        (
            [1.0, 5.0],
            "propfair",
            5.0,
            r"propfair: M must exceed every loss, got M = 5\.0 and a loss of 5\.0\.",
        ),
        (
            [1.0],
            "mean",
            0.0,
            r"kind must be one of fedavg, q-ffl, afl, term, propfair, got 'mean'\.",
        ),
        ([-1.0], "term", 1.0, r"Losses must be finite, at least 0 and at least one, got .*\."),
        ([], "afl", 0.0, r"Losses must be finite, at least 0 and at least one, got .*\."),
        ([np.nan], "fedavg", 0.0, r"Losses must be finite, at least 0 and at least one, got .*\."),
        ([1.0], "q-ffl", -0.5, r"q-ffl: the parameter must be at least 0, got -0\.5\."),
    ],
)
def test_mistakes_are_refused(f: list, kind: str, parameter: float, sentence: str):
    for function in (generalised_mean, dual_weights):
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            function(np.array(f), kind, parameter)


def test_the_examples_in_the_documentation_hold():
    assert doctest.testmod(statistics).failed == 0


def test_the_page_on_q_ffl_has_these_means_and_weights():
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "q-ffl.md").read_text()
    settings = {
        "FedAvg": ("fedavg", 0.0),
        "q-FFL, q = 1": ("q-ffl", 1.0),
        "TERM, α = 1": ("term", 1.0),
        "PropFair, M = 2.5": ("propfair", 2.5),
    }
    for title, (kind, parameter) in settings.items():
        dual = dual_weights(np.array([0.5, 2.0, 1.0]), kind, parameter)
        shown = ", ".join(f"{weight:.3f}" for weight in dual / dual.sum())
        row = next(line for line in page.splitlines() if line.startswith(f"| {title} |"))
        assert row.endswith(
            f"| {generalised_mean(np.array([0.5, 2.0, 1.0]), kind, parameter):.3f} | {shown} |"
        )


@pytest.mark.parametrize("function", [generalised_mean, dual_weights])
def test_parameters_and_losses_are_accepted_up_to_their_bounds(function):
    some = np.array([0.0, 1.0])
    for kind, good, bad in (
        ("q-ffl", (0, 1e-9, 3), (-1e-9, -1)),
        ("term", (0, 1e-9, 3), (-1e-9, -1)),
        ("propfair", (1.001, 2), (1, 0.5, 0, -1)),
    ):
        for parameter in good:
            assert np.isfinite(function(some, kind, parameter)).all()
        for parameter in bad:
            with pytest.raises(ValueError, match=f"^{kind}: "):
                function(some, kind, parameter)
    for kind in ("fedavg", "afl"):
        assert np.isfinite(function(some, kind, -1.0)).all(), "it has no parameter"
    for wrong in ([0.5, -1e-9], [np.inf], [0.5, np.nan]):
        with pytest.raises(ValueError, match="Losses must be finite, at least 0 and at least one"):
            function(np.array(wrong), "fedavg")


def test_without_a_parameter_every_mean_is_the_plain_one():
    f = np.array([0.25, 4.0, 1.75])
    for kind in ("fedavg", "q-ffl", "term"):
        assert generalised_mean(f, kind) == pytest.approx(2)
        np.testing.assert_allclose(dual_weights(f, kind), 1 / 3)


def test_losses_of_0_among_others():
    f = np.array([0.0, 2.0, 2.0])
    assert generalised_mean(f, "q-ffl", 1.0) == pytest.approx(np.sqrt(8 / 3))
    np.testing.assert_allclose(dual_weights(f, "q-ffl", 1.0), [0, 0.5, 0.5])
    np.testing.assert_allclose(dual_weights(f, "afl"), [0, 0.5, 0.5])  # whoever is worst shares
    np.testing.assert_allclose(dual_weights(f, "term", np.log(2)), np.array([1, 4, 4]) / 9)
    # the mean of 1, 4 and 4 is 3
    assert generalised_mean(f, "term", np.log(2)) == pytest.approx(np.log(3) / np.log(2))
    assert generalised_mean(f, "propfair", 3.0) == pytest.approx(3 - 3 ** (1 / 3))
    np.testing.assert_allclose(
        dual_weights(f, "propfair", 3.0), 3 ** (1 / 3) / np.array([3, 1, 1]) / 3
    )
