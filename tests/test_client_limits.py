"""Public bounds of the rules, under differential privacy for clients."""

import jax.numpy as jnp
import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.types import Limits, Own

# A client of average size holds rows / weight rows. All others hold at most `rows`.
LIMITS = Limits(weight=3.0, clip=0.5, rows=300.0, loss=6.9, clients=50.0, cohort=10.0, guess=1.7)
AVERAGE = Own(examples=100.0, loss=1.7, unprivileged=50.0, square_norm=0.0)


@pytest.mark.parametrize("weights", ["size", "equal"])
@pytest.mark.parametrize(
    "name",
    [
        "fedavg(weights={})",
        "term(alpha=0.7, weights={})",
        "fedcvg(alpha=0.01, weights={})",
        "fedsgd(weights={})",
        "fedsgd(q=2, weights={})",
        "q-fedavg(q=2)",
    ],
)
def test_the_typical_weight_is_that_of_an_average_client(name: str, weights: str):
    rule = algorithm(f"{name.format(weights)}+full").rule
    weighed = rule.weigh((), AVERAGE, ())
    exponent = 0.0 if weighed.exponent is None else weighed.exponent
    np.testing.assert_allclose(
        rule.bounds((), LIMITS).typical, weighed.weight * jnp.exp(exponent), rtol=1e-4
    )


@pytest.mark.parametrize("form", ["additive", "exponential"])
def test_a_client_of_fairfed_counts_as_one_fallback_at_most(form: str):
    assert algorithm(f"fairfed(form={form})+full").rule.bounds((), LIMITS).extras == 1


def test_a_client_of_afl_says_its_presence_its_place_and_its_weight():
    """Before training one presence and one place of at most 1, then a weight of at most three
    shares of 50 clients.
    """
    bounds = algorithm("afl(bins=8, form=local)+full").rule.bounds((), LIMITS)
    assert bounds.typical == pytest.approx(1 / 50)
    assert bounds.contributions == (pytest.approx((1.0, 1.0, 3 / 50)),)
