"""Runs that keep several models: who is counted in which model, and what a round without anybody
leaves.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from evenly import round
from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.parts.client_groups import drawn_groups
from evenly.records import record
from evenly.simulate import companions, program, simulate
from evenly.simulate.layout import RuleGroup
from evenly.types import Own, Rule, Seeds, Signals, Totals, Weighed
from tests.simulations import algorithms, flat


def test_a_round_in_which_nobody_returns_changes_neither_models_nor_choices(
    tiny: Federation, task: Softmax
):
    """Linear models start equal: clients keep the model drawn for them until some model has been
    trained.
    """
    (trace,) = simulate(task, tiny, algorithms("ifca(groups=2)"), 1, dropout=0.99)
    assert not trace.weights.any(), "this seed loses everybody"
    drawn = drawn_groups(tiny.clients, 2, Seeds().cohort)
    assert set(drawn) == {0, 1}
    np.testing.assert_array_equal(trace.choice, [drawn, drawn])
    assert not flat(trace.model).any()
    np.testing.assert_array_equal(trace.excluded, np.bincount(trace.cohort[0], minlength=6) * 0)


class Halving:
    """A server that adds half of every change, and serves the model plus one."""

    def update(self, change: Any, state: Any, model: Any) -> tuple[Any, Any]:
        return model + change / 2, state + 1

    def serve(self, model: Any, state: Any) -> Any:
        return model + 1


@record
class Passing(Rule):
    """A rule whose change is the mean of what clients sent, and which counts its rounds by
    threes.
    """

    def weigh(self, public: Any, own: Own, sums: Any) -> Weighed:
        return Weighed(own.examples)

    def step(self, public: Any, sums: Any, totals: Totals) -> tuple[Any, Any]:
        return totals.mean, public * 3


@pytest.mark.parametrize("server, model, after", [(None, 7.0, 10), (Halving(), 6.0, 11)])
def test_the_server_moves_the_model_along_the_change_or_adds_it(
    server: Any, model: float, after: int
):
    rule = Passing()
    signals = Signals(
        client=jnp.arange(3),
        returned=jnp.array([True, False, True]),
        examples=jnp.array([1.0, 5.0, 3.0]),
    )
    weighing = round.weigh(rule, 2, signals)
    total = (weighing.weight * jnp.array([5.0, 99.0, 1.0])).sum()  # a mean of 2
    moved, public, state, coefficients, _, gate, idle = program._move_model(
        (RuleGroup(rule, server), None), (2, 10), (jnp.float32(5.0), total), weighing, signals
    )
    assert gate == ()
    assert not idle
    assert (float(moved), public, state) == (model, 6, after)
    assert coefficients.tolist() == [0.25, 0, 0.75]


def test_a_rule_that_keeps_several_models_has_a_program_of_its_own(tiny: Federation, task: Softmax):
    together = algorithms("ifca(groups=2), fedavg, ifca(groups=3)")
    assert companions(together, task) == [[0], [1], [2]]
