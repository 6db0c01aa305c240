"""Runs that keep several models: who is counted in which model, and what a round without anybody
leaves.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.parts.client_groups import drawn_groups
from evenly.simulate import several, simulate
from evenly.simulate.layout import RuleGroup, RunParts
from evenly.simulate.training import move_model
from evenly.types import Seeds
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


class Passing:
    """A rule whose change is the sum of what clients sent."""

    def step(self, state: Any, signals: Any, effort: Any, total: Any) -> tuple[Any, Any]:
        return total, state * 3


@pytest.mark.parametrize("server, model, after", [(None, 7.0, 10), (Halving(), 6.0, 11)])
def test_the_server_moves_the_model_along_the_change_or_adds_it(
    server: Any, model: float, after: int
):
    signals: Any = None
    found = move_model(
        RuleGroup(Passing(), server),
        (2, 10),
        (jnp.float32(5.0), jnp.float32(2.0)),
        signals,
        signals,
    )  # pyright: ignore[reportArgumentType]
    assert found == (model, 6, after)


def test_only_a_rule_that_keeps_several_models_has_a_program_of_its_own(tiny: Federation):
    (one,) = algorithms("ifca(groups=2)")
    group = RuleGroup(one.rule, None)
    assert several._only(RunParts(one.work, (group,), None, None)) == (group, one.rule)
    with pytest.raises(ValueError, match="too many values"):
        several._only(RunParts(one.work, (group, group), None, None))
