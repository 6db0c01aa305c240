"""What a client does in a round, against the hand-written gradient, without compiling a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.data.federation import Federation, Shard
from evenly.models import LinearSVM, Softmax
from evenly.parts.optimisers import Optimiser
from evenly.parts.work import FullGradient, LocalTraining, batch_loss
from evenly.types import Work
from tests.oracles import client
from tests.simulations import flat

DRAW = np.random.default_rng(5)
START = {"w": DRAW.normal(size=(5, 3)), "b": DRAW.normal(size=3)}


def batches(federation: Federation, size: int, who: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rows = federation.train.of(who)
    pieces = [rows[i : i + size] for i in range(0, len(rows), size)]
    assert len(pieces[-1]) < size, "the last batch must be partial, or padding is not tested"
    return [(federation.x[p].astype(np.float64), federation.y[p]) for p in pieces]


def padded(x: np.ndarray, y: np.ndarray, size: int, junk: float = 0.0) -> Shard:
    short = size - len(y)
    mask = jnp.asarray([1.0] * len(y) + [0.0] * short)
    x = jnp.concatenate([jnp.asarray(x), jnp.full((short, x.shape[1]), junk)])  # pyright: ignore[reportAssignmentType]
    return Shard(
        x,
        jnp.asarray(np.append(y, np.zeros(short, int))),
        jnp.zeros(size, int),
        jnp.ones(size),
        mask,
    )


def trained(work: Work, task: Softmax, pieces: list, size: int, junk: float = 0.0) -> np.ndarray:
    """The vector a client sends, in float64."""
    with jax.enable_x64(True):
        received = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), START)
        local = work.start(task, received, work.remember(received))
        for x, y in pieces:
            local = work.step(task, received, local, padded(x, y, size, junk))
        vector, memory = work.finish(task, received, local)
        assert memory is None
        return flat(vector)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_training_is_mini_batch_sgd(tiny: Federation, task: Softmax, mu: float):
    pieces = batches(tiny, 8)
    vector = trained(LocalTraining(learning_rate=0.3, mu=mu), task, pieces, 8)
    np.testing.assert_allclose(
        flat(START) + vector, client.local_sgd(flat(START), pieces, 0.3, mu), atol=1e-10
    )


def test_momentum_is_heavy_ball(tiny: Federation, task: Softmax):
    pieces = batches(tiny, 8)
    vector = trained(LocalTraining(learning_rate=0.3, optimiser="momentum"), task, pieces, 8)
    np.testing.assert_allclose(
        flat(START) + vector, client.momentum_sgd(flat(START), pieces, 0.3), atol=1e-10
    )
    slower = trained(
        LocalTraining(learning_rate=0.3, optimiser="momentum", options={"momentum": 0.5}),
        task,
        pieces,
        8,
    )
    np.testing.assert_allclose(
        flat(START) + slower, client.momentum_sgd(flat(START), pieces, 0.3, 0.5), atol=1e-10
    )


def test_adam_is_adam(tiny: Federation, task: Softmax):
    pieces = batches(tiny, 8)
    vector = trained(LocalTraining(learning_rate=0.01, optimiser="adam"), task, pieces, 8)
    np.testing.assert_allclose(
        flat(START) + vector, client.adam(flat(START), pieces, 0.01), atol=1e-9
    )


@pytest.mark.parametrize("work", [LocalTraining(), FullGradient()], ids=["training", "gradient"])
def test_what_stands_in_padding_does_not_matter(tiny: Federation, task: Softmax, work: Work):
    pieces = batches(tiny, 8)
    np.testing.assert_array_equal(
        trained(work, task, pieces, 8), trained(work, task, pieces, 8, junk=1e6)
    )


@pytest.mark.parametrize("size", [3, 8, 64])
def test_the_full_gradient_does_not_depend_on_the_batches_it_is_read_in(
    tiny: Federation, task: Softmax, size: int
):
    rows = tiny.train.of(3)
    x, y = tiny.x[rows].astype(np.float64), tiny.y[rows]
    vector = trained(FullGradient(learning_rate=0.3), task, batches(tiny, size), size)
    np.testing.assert_allclose(vector, -0.3 * client.gradient(flat(START), x, y), atol=1e-12)


def test_one_full_batch_step_of_training_is_the_full_gradient(tiny: Federation, task: Softmax):
    pieces = batches(tiny, 64)
    np.testing.assert_allclose(
        trained(LocalTraining(), task, pieces, 64),
        trained(FullGradient(), task, pieces, 64),
        atol=1e-12,
    )


def test_the_hand_written_gradient_is_a_gradient(tiny: Federation):
    # The oracle itself: central differences of its own loss.
    rows = tiny.train.of(3)
    x, y, model, h = tiny.x[rows].astype(np.float64), tiny.y[rows], flat(START), 1e-6
    numeric = [
        (client.loss(model + h * e, x, y) - client.loss(model - h * e, x, y)) / (2 * h)
        for e in np.eye(len(model))
    ]
    np.testing.assert_allclose(client.gradient(model, x, y), numeric, atol=1e-8)


@pytest.mark.parametrize("reduction, share", [("mean", 1 / 3), ("sum", 1.0)])
def test_a_batch_is_reduced_over_its_real_rows(reduction: str, share: float):
    # Three real rows with margins 0, so hinge losses 1, 1, 1, and a penalty of 0.5 * (9 + 16).
    svm = LinearSVM(features=2, reduction=reduction)
    shard = padded(np.zeros((3, 2)), np.array([0, 1, 1]), 5)
    params = {"w": jnp.array([3.0, 4.0]), "b": jnp.zeros(())}
    assert float(batch_loss(svm, params, shard)) == pytest.approx(3 * share + 12.5)


@pytest.mark.parametrize("reduction, share", [("mean", 1 / 3), ("sum", 1.0)])
def test_the_full_gradient_follows_losses_and_penalty_downhill(reduction: str, share: float):
    """Three real rows at margin 0 have hinge gradients -y x; the penalty's gradient at w = (3, 4)
    is w times its strength.
    """
    svm = LinearSVM(features=2, reduction=reduction, regularisation=0.7)
    x, y = np.array([[4.0, -3.0], [8.0, -6.0], [-4.0, 3.0]]), np.array([0, 1, 1])
    received = {"w": jnp.array([3.0, 4.0]), "b": jnp.zeros(())}
    work = FullGradient(learning_rate=0.5)
    local = work.start(svm, received, None)
    for piece in (slice(0, 2), slice(2, 3)):
        local = work.step(svm, received, local, padded(x[piece], y[piece], 2))
    vector, _ = work.finish(svm, received, local)
    signs = 2 * y - 1
    np.testing.assert_allclose(
        vector["w"], -0.5 * (share * -(signs @ x) + 0.7 * np.array([3, 4])), atol=1e-6
    )
    np.testing.assert_allclose(vector["b"], -0.5 * share * -signs.sum(), atol=1e-6)


def test_reweighed_rows_count_by_their_weight():
    # Losses log 2 at the zero model; weights 2, 0, 1 over three rows: the mean is (2 + 0 + 1) / 3
    # log 2.
    task = Softmax(features=2, classes=2)
    shard = padded(np.zeros((3, 2)), np.array([0, 1, 1]), 4)._replace(
        weight=jnp.array([2.0, 0.0, 1.0, 9.0])
    )
    assert float(batch_loss(task, task.init(jax.random.key(0)), shard)) == pytest.approx(
        np.log(2), rel=1e-6
    )


def test_an_optax_factory_can_be_given():
    import optax

    work = LocalTraining(learning_rate=0.5, optimiser=lambda rate: optax.sgd(2 * rate))
    moved, _ = work._optimiser().update(
        {"a": jnp.ones(2)}, work._optimiser().init({"a": jnp.zeros(2)}), {"a": jnp.zeros(2)}
    )
    np.testing.assert_allclose(moved["a"], -1.0)


@pytest.mark.parametrize(
    "settings, sentence",
    [
        (
            {"kind": "sdg"},
            (
                r"The optimiser must be one of sgd, momentum, adam, yogi, adagrad, fedadam,"
                r" fedyogi, fedadagrad, got 'sdg'\."
            ),
        ),
        (
            {"kind": "momentum", "options": {"b1": 0.1}},
            r"momentum has no setting 'b1'; it has learning_rate, momentum, weight_decay\.",
        ),
        ({"learning_rate": 0.0}, r"learning_rate must be above 0, got 0\.0\."),
    ],
)
def test_bad_optimisers_are_refused(settings: dict, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}( Meaning: .*)?$"):
        Optimiser(**settings)


def test_a_full_gradient_needs_a_positive_rate():
    with pytest.raises(
        ValueError, match=r"^learning_rate must be above 0, got -1\.0\. Meaning: learning rate\.$"
    ):
        FullGradient(learning_rate=-1.0)
