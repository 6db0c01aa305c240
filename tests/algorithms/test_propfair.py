import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.algorithms import FedAvg, algorithm
from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.parts.work import LocalTraining, NashBargaining
from tests.oracles import fair
from tests.parts.test_local_training import START, batches, trained
from tests.simulations import Simulated, flat


def valued(loss: float, **settings: float | bool) -> tuple[float, float]:
    """Value and slope, in float64."""
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(NashBargaining(**settings))(
            jnp.asarray(loss, jnp.float64)
        )  # pyright: ignore[reportArgumentType]
        return float(value), float(slope)


@pytest.mark.parametrize(
    "loss, value, slope",
    [
        (0.0, 0.0, 0.5),
        (0.5, 0.2876820725, 0.6666666667),
        (1.0, 0.6931471806, 1.0),
        (1.5, 1.3862943611, 2.0),
        (1.75, 2.0794415417, 4.0),
        (1.9, 0.95, 0.5),  # M - l = 0.1 is under epsilon
    ],
)
def test_worked_table(loss: float, value: float, slope: float):
    np.testing.assert_allclose(valued(loss, M=2.0), (value, slope), atol=1e-8)
    np.testing.assert_allclose(fair.phi(loss, 2.0), (value, slope), atol=1e-8)


def test_huber_keeps_the_slope_at_the_threshold():
    np.testing.assert_allclose(valued(1.9, M=2.0, huber=True), (9.5, 5.0), atol=1e-8)
    for huber, after in ((False, 0.5), (True, 5.0)):
        assert valued(1.8 - 1e-9, M=2.0, huber=huber)[1] == pytest.approx(5, abs=1e-6)
        assert valued(1.8 + 1e-9, M=2.0, huber=huber)[1] == pytest.approx(after, abs=1e-6)


@given(st.floats(0, 100), st.floats(0.1, 20), st.booleans())
def test_value_and_slope_are_finite_and_the_papers_for_every_loss(
    loss: float, M: float, huber: bool
):
    found = valued(loss, M=M, huber=huber)
    assert np.isfinite(found).all()
    if abs(M - loss - 0.2) > 1e-9:
        np.testing.assert_allclose(found, fair.phi(loss, M, huber=huber), rtol=1e-8, atol=1e-12)


@given(st.floats(0, 4.7), st.floats(0, 4.7))
def test_a_larger_loss_pulls_harder(a: float, b: float):
    low, high = sorted((a, b))
    assert valued(low, M=5.0)[1] <= valued(high, M=5.0)[1]


def test_single_precision_is_finite_too():
    losses = jnp.linspace(0, 100, 2001)
    values, slopes = jax.vmap(jax.value_and_grad(NashBargaining(M=3.0)))(losses)
    assert bool(jnp.isfinite(values).all() & jnp.isfinite(slopes).all())


# START is far off: with 1.2 some batches fall back and some do not
@pytest.mark.parametrize("M", [1.2, 3.0])
@pytest.mark.parametrize("huber", [False, True])
def test_local_training_is_the_papers(tiny: Federation, task: Softmax, M: float, huber: bool):
    pieces = batches(tiny, 8)
    vector = trained(
        LocalTraining(learning_rate=0.3, shape=NashBargaining(M=M, huber=huber)), task, pieces, 8
    )
    np.testing.assert_allclose(
        flat(START) + vector,
        fair.propfair_sgd(flat(START), pieces, 0.3, M, huber=huber),
        atol=1e-10,
    )


def test_a_large_baseline_is_fedavg(simulated: Simulated):
    # The slope is 1 / (M - l): with rate M eta it is eta (1 + l / M).
    fair_run, plain = (
        simulated("propfair(M=1e6, learning_rate=1e5)", 3),
        simulated("fedavg(learning_rate=0.1)", 3),
    )
    np.testing.assert_allclose(flat(fair_run.model), flat(plain.model), atol=2e-5)


def test_always_in_the_fallback_it_is_fedavg_at_a_smaller_rate(simulated: Simulated):
    # epsilon above M: the loss is always divided by M = 2, a power of two, so that not a bit
    # differs.
    fallen, plain = (
        simulated("propfair(M=2, epsilon=3, learning_rate=0.2)", 3),
        simulated("fedavg(learning_rate=0.1)", 3),
    )
    np.testing.assert_array_equal(flat(fallen.model), flat(plain.model))


def test_the_server_is_fedavg():
    assert isinstance(algorithm("propfair").rule, FedAvg)
    assert algorithm("propfair").rule.weights == "size"  # pyright: ignore[reportAttributeAccessIssue]
    assert algorithm("propfair+weighted").rule.weights == "equal"  # pyright: ignore[reportAttributeAccessIssue]
    shape = algorithm("propfair(M=3, epsilon=0.1, huber=true)").work.shape  # pyright: ignore[reportAttributeAccessIssue]
    assert (shape.M, shape.epsilon, shape.huber) == (3, 0.1, True)
    assert algorithm("fedavg").work.shape is None  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("text", ["propfair(M=0)", "propfair(epsilon=-1)"])
def test_mistakes_are_refused(text: str):
    with pytest.raises(
        ValueError, match=r"^propfair: (M|epsilon) must be above 0, got .*\. Meaning: .*$"
    ):
        algorithm(text)
