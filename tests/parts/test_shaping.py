"""A batch's loss, at the border of what its logarithm is taken of."""

import jax.numpy as jnp
import pytest

from evenly.parts.work import NashBargaining

ONE = jnp.ones(1)


def test_a_batch_whose_utility_is_just_epsilon_still_counts_by_its_logarithm():
    shape = NashBargaining(M=5.0, epsilon=1.0)
    assert float(shape(4.0 * ONE)[0]) == pytest.approx(1.6094379)  # -log(1 - 4 / 5) = log 5
    assert float(shape(4.5 * ONE)[0]) == pytest.approx(0.9)
    assert float(NashBargaining(M=5.0, epsilon=0.5, huber=True)(4.8 * ONE)[0]) == pytest.approx(9.6)
    assert float(shape(0.0 * ONE)[0]) == 0
