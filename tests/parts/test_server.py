"""Servers: averages of iterates, and the adaptive ones against their papers in NumPy float64."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenly.algorithms import algorithm
from evenly.notation import parse
from evenly.parts.optimisers import OPTIMISERS, AveragingServer, OptimisedServer, Optimiser
from tests.oracles import server as oracle

REDDI, OPTAX = ("fedadam", "fedyogi", "fedadagrad"), ("adam", "yogi", "adagrad")
W = np.array([1.0, -2.0])
changes = arrays(np.float64, (4, 2), elements=st.floats(-3, 3, allow_subnormal=False))
betas, scales = st.floats(0, 0.999), st.floats(1e-4, 10)


@partial(jax.jit, static_argnums=0)
def _moved(kind: str, rate: Any, options: dict[str, Any], deltas: Any) -> Any:
    server = OptimisedServer(optimiser=Optimiser(learning_rate=rate, kind=kind, options=options))

    def one(carried: Any, delta: Any) -> Any:
        model, state = server.update(delta, carried[1], carried[0])
        return (model, state), model

    start = jnp.asarray(W)
    return jax.lax.scan(one, (start, server.init(start)), deltas)[1]


def moved(kind: str, deltas: Any, rate: float = 0.1, **options: float) -> np.ndarray:
    """The models after each round, in float64."""
    with jax.enable_x64(True):
        full = {**OPTIMISERS[kind].settings, **options}
        return np.asarray(_moved(kind, rate, full, jnp.asarray(deltas, jnp.float64)))


def test_the_mean_of_the_iterates_leaves_out_the_first_model():
    server, model = AveragingServer(), {"a": jnp.array([10.0])}
    state = server.init(model)
    assert server.serve(model, state)["a"] == 10, (
        "before the first round there is only the first model"
    )
    for change, last, mean in ((-4.0, 6.0, 6.0), (2.0, 8.0, 7.0), (-7.0, 1.0, 5.0)):
        model, state = server.update({"a": jnp.array([change])}, state, model)
        assert model["a"] == last, "training goes on from the last iterate"
        np.testing.assert_allclose(server.serve(model, state)["a"], mean, rtol=1e-6)


def test_an_inner_optimiser_moves_the_iterates():
    server, model = (
        AveragingServer(inner=OptimisedServer(optimiser=Optimiser(learning_rate=0.5))),
        {"a": jnp.zeros(1)},
    )
    state = server.init(model)
    for _ in range(2):
        model, state = server.update({"a": jnp.ones(1)}, state, model)
    np.testing.assert_allclose([model["a"][0], server.serve(model, state)["a"][0]], [1.0, 0.75])


@pytest.mark.parametrize(
    "kind, first, second",
    [
        ("fedadam", 0.0414821816, 0.0697657902),
        ("fedyogi", 0.0414213562, 0.0695448267),
        ("fedadagrad", 0.0904987562, 0.0658872344),
        ("adam", 0.0909090909, 0.0909090909),
        ("yogi", 0.0659814457, 0.0752794047),
        ("adagrad", 0.0031450273, 0.0031434731),
    ],
)
def test_worked_steps_of_both_families(kind: str, first: float, second: float):
    """Two changes of 0.01: the papers' servers were not there; those of these names were optax's,
    with other steps.
    """
    steps = np.diff(moved(kind, np.full((2, 2), 0.01)), axis=0, prepend=W[None])
    np.testing.assert_allclose(steps, [[first] * 2, [second] * 2], atol=1e-9)


@pytest.mark.parametrize("kind", REDDI)
@given(deltas=changes, rate=scales, beta1=betas, beta2=betas, tau=scales)
def test_the_servers_of_reddi_et_al_are_their_algorithm_2(
    kind: str, deltas: Any, rate: float, beta1: float, beta2: float, tau: float
):
    options = {"beta1": beta1, "tau": tau} | ({} if kind == "fedadagrad" else {"beta2": beta2})
    expected = oracle.reddi(kind, W, deltas, rate, beta1, beta2, tau)
    np.testing.assert_allclose(moved(kind, deltas, rate, **options), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", OPTAX)
@given(deltas=changes, rate=scales, b1=betas, b2=betas, eps=scales)
def test_the_other_servers_are_optaxs(
    kind: str, deltas: Any, rate: float, b1: float, b2: float, eps: float
):
    options = {"eps": eps} | ({} if kind == "adagrad" else {"b1": b1, "b2": b2})
    np.testing.assert_allclose(
        moved(kind, deltas, rate, **options),
        oracle.optaxs(kind, W, deltas, rate, b1, b2, eps),
        rtol=1e-8,
        atol=1e-8,
    )


@pytest.mark.parametrize("kind", REDDI)
@given(deltas=changes, beta1=betas)
def test_a_large_tau_is_averaging_with_momentum(kind: str, deltas: Any, beta1: float):
    """v stays at tau^2, so a rate of 2 tau is a step along m; without momentum that is plain
    FedAvg.
    """
    tau = 1e7
    options = {"beta1": beta1, "tau": tau} | ({} if kind == "fedadagrad" else {"beta2": 1 - 1e-9})
    m = np.zeros(2)
    expected = [m := beta1 * m + (1 - beta1) * delta for delta in deltas]
    np.testing.assert_allclose(
        moved(kind, deltas, 2 * tau, **options), W + np.cumsum(expected, axis=0), atol=1e-6
    )


@given(changes, scales)
def test_without_memory_fedadam_takes_a_step_of_the_sign(deltas: Any, rate: float):
    steps = np.diff(
        moved("fedadam", deltas, rate, beta1=0.0, beta2=0.0, tau=1e-9), axis=0, prepend=W[None]
    )
    large = np.abs(deltas) > 1e-3
    np.testing.assert_allclose(steps[large], (rate * np.sign(deltas))[large], rtol=1e-4)


@pytest.mark.parametrize("kind", REDDI)
def test_nothing_changes_where_nobody_moved(kind: str):
    np.testing.assert_array_equal(moved(kind, np.zeros((3, 2))), np.tile(W, (3, 1)))


def test_the_papers_servers_are_parts_for_the_server_only():
    made = algorithm("q-fedavg+server-fedyogi(learning_rate=0.01, tau=0.1)").server
    assert isinstance(made, OptimisedServer)
    assert (made.optimiser.kind, made.optimiser.learning_rate, made.optimiser.options) == (
        "fedyogi",
        0.01,
        {"tau": 0.1},
    )
    assert parse("fedavg+server-fedadam")[1].name == "server-fedadam"
    with pytest.raises(
        ValueError, match=r"^There is no part 'local-fedadam'\. Did you mean 'local-adam'\?"
    ):
        algorithm("fedavg+local-fedadam")


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("fedadam(beta1=1)", r"fedadam: beta1 must be at least 0 and below 1, got 1\."),
        ("fedyogi(beta2=-0.1)", r"fedyogi: beta2 must be at least 0 and below 1, got -0\.1\."),
        ("fedadagrad(tau=0)", r"fedadagrad: tau must be above 0, got 0\."),
        (
            "fedadagrad(beta2=0.9)",
            r"fedadagrad has no setting 'beta2'; it has learning_rate, beta1, tau\.",
        ),
        ("adam(b1=x)", r"adam: b1 must be a number, got 'x'\."),
        ("adam(learning_rate=x)", r"learning_rate must be a number, got 'x'\."),
    ],
)
def test_mistakes_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}( Meaning: .*)?$"):
        algorithm(f"fedavg+server-{text}")
