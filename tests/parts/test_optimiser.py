"""What optimisers are refused, and what they are without settings."""

from typing import Any

import jax.numpy as jnp
import pytest

from evenly.parts.optimisers import Optimiser, optimiser_parts

ONE = jnp.ones(1)


@pytest.mark.parametrize(
    "kind, settings",
    [
        ("momentum", {"momentum": 0.9, "weight_decay": 0.0}),
        ("adam", {"b1": 0.9, "b2": 0.99, "eps": 1e-3}),
        ("fedadam", {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3}),
        ("fedadagrad", {"beta1": 0.0, "tau": 1e-3}),
    ],
)
def test_an_optimiser_without_settings_has_the_documented_ones(
    kind: str, settings: dict[str, float]
):
    bare, named = Optimiser(kind=kind), Optimiser(kind=kind, options=settings)
    (one, _), (other, _) = (
        own.update({"a": 2.0 * ONE}, own.init({"a": ONE}), {"a": ONE}) for own in (bare, named)
    )
    assert float(one["a"][0]) == float(other["a"][0]) < 1


def test_weight_decay_is_added_to_the_gradient_before_the_momentum():
    own = Optimiser(learning_rate=0.5, kind="momentum", options={"weight_decay": 0.1})
    model, velocity = 2.0, 0.0
    params, state = jnp.asarray([model]), own.init(jnp.asarray([model]))
    for gradient in (1.0, -3.0, 0.5):
        velocity = 0.9 * velocity + gradient + 0.1 * model
        model -= 0.5 * velocity
        params, state = own.update(jnp.asarray([gradient]), state, params)
        assert float(params[0]) == pytest.approx(model, rel=1e-6)


def test_optimisers_of_reddi_et_al_are_for_servers_only():
    parts = optimiser_parts()
    assert {
        "server-fedadam",
        "server-fedyogi",
        "server-fedadagrad",
        "server-sgd",
        "local-sgd",
        "local-adam",
    } <= set(parts)
    assert not {"local-fedadam", "local-fedyogi", "local-fedadagrad"} & set(parts)


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate": True},
        {"learning_rate": "fast"},
        {"kind": "rocket"},
        {"options": {"momentum": 1}},
    ],
)
def test_an_optimiser_is_refused_what_it_does_not_have(settings: dict[str, Any]):
    with pytest.raises(ValueError, match=r"must be|has no setting"):
        Optimiser(**settings)
