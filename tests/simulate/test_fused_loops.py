"""Steps that are compiled as one function train what single steps train; and up to some size runs
are trained one after another.
"""

import equinox as eqx
import jax
import numpy as np
import pytest

from evenly.models import MLP, Logistic, Softmax, from_equinox
from evenly.models.linear import MOST_TERMS, product, products_as_sums
from evenly.simulate import run, simulate
from evenly.simulate.program import fuses_loops
from evenly.types import Trace
from tests import federations
from tests.simulations import Simulated, algorithms, flat, same_bits

ROUNDS = 20
METHODS = (
    "q-fedavg(q=1)",
    "ditto(pull=0.5)",
    "term(alpha=1), fedavg",
    "fedfb",
    "ifca(groups=2)",
)
LESS_OFTEN = ("fedavg", "q-fedavg(q=[0, 1, 5])", "fedprox(mu=0.5)", "fairfed")


def in_steps(
    monkeypatch: pytest.MonkeyPatch, simulated: Simulated, text: str, **options: object
) -> list[Trace]:
    monkeypatch.setattr(run, "fuses_loops", lambda *_: False)
    return simulate(simulated.task, simulated.federation, algorithms(text), ROUNDS, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "text", [*METHODS, *(pytest.param(text, marks=pytest.mark.further) for text in LESS_OFTEN)]
)
def test_fused_loops_change_nothing(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, text: str
):
    assert fuses_loops(simulated.task, len(algorithms(text)), 5, 1), "else this proves nothing"
    ours = simulated.all(text, ROUNDS, dropout=0.2)
    for one, other in zip(ours, in_steps(monkeypatch, simulated, text, dropout=0.2), strict=True):
        for a, b in zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-6)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
        np.testing.assert_array_equal(one.cohort, other.cohort)


def test_a_logistic_model_changes_as_little(monkeypatch: pytest.MonkeyPatch):
    simulated = Simulated(Logistic(features=5), federations.tiny(classes=2))
    (ours,) = simulated.all("fedavg", ROUNDS)
    (other,) = in_steps(monkeypatch, simulated, "fedavg")
    np.testing.assert_allclose(flat(ours.model), flat(other.model), atol=1e-6)


@pytest.mark.parametrize(
    "text", ["fedavg(learning_rate=[0.1, 0.2, 0.3])", "ditto(pull=[0.1, 0.5])"]
)
def test_a_run_in_small_company_has_the_bits_of_the_run_alone(simulated: Simulated, text: str):
    for one, together in zip(algorithms(text), simulated.all(text, ROUNDS), strict=True):
        (alone,) = simulate(simulated.task, simulated.federation, [one], ROUNDS)
        # all runs' losses are one product
        same_bits(alone._replace(losses=together.losses), together)
        np.testing.assert_allclose(alone.losses, together.losses, rtol=1e-6)


def test_a_run_among_144_is_the_run_alone(simulated: Simulated):
    many = [
        one
        for rate in np.linspace(0.01, 0.3, 12)
        for q in range(12)
        for one in algorithms(f"q-fedavg(q={q / 4}, learning_rate={rate})")
    ]
    assert not fuses_loops(simulated.task, MOST_TERMS, 5, 1), "so many lie side by side"
    together = simulate(simulated.task, simulated.federation, many, ROUNDS)
    for i in (0, 77, 143):
        (alone,) = simulate(simulated.task, simulated.federation, [many[i]], ROUNDS)
        np.testing.assert_allclose(flat(alone.model), flat(together[i].model), atol=1e-6, rtol=1e-6)
        np.testing.assert_allclose(alone.weights, together[i].weights, atol=1e-6)


def test_loops_are_whole_while_all_runs_together_are_small():
    synthetic, adult = Softmax(features=60, classes=10), Logistic(features=104)
    assert [runs for runs in range(1, 20) if fuses_loops(synthetic, runs, 10, 1)] == [1, 2, 3, 4, 5]
    assert [runs for runs in range(1, 20) if fuses_loops(adult, runs, 32, 1)] == list(range(1, 10))
    assert not fuses_loops(Softmax(features=784, classes=10), 1, 10, 1)
    assert not fuses_loops(synthetic, 1, 10, 2), "not in lanes"
    assert not fuses_loops(MLP(features=5, classes=2, hidden=(3,)), 1, 10, 1), (
        "products inside a network are calls"
    )
    own = from_equinox(lambda key: eqx.nn.Linear(5, 2, key=key))
    assert not fuses_loops(own, 1, 10, 1), "and so are those of a model that we do not know"


@pytest.mark.parametrize(
    "rows, features, classes",
    [(1, 1, 2), (3, 7, 2), (10, 60, 10), (8, 8, 8), (17, 65, 3), (5, 600, 4), (4000, 5, 3)],
)
def test_a_product_as_sums_is_the_product(rows: int, features: int, classes: int):
    draw = np.random.default_rng(0)
    x, w, up = (
        draw.normal(size=(rows, features)),
        draw.normal(size=(features, classes)),
        draw.normal(size=(rows, classes)),
    )
    x, w, up = (a.astype(np.float32) for a in (x, w, up))

    def found(wanted: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        with products_as_sums(wanted):
            value, back = jax.vjp(product, x, w)
            return np.asarray(value), [np.asarray(a) for a in back(up)]

    (value, gradients), (expected, both) = found(True), found(False)
    np.testing.assert_allclose(value, expected, atol=1e-5 * np.sqrt(features))
    for a, b in zip(gradients, both, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * np.sqrt(rows * classes))
