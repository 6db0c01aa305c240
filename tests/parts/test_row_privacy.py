"""DP-SGD at a client: an oracle in NumPy, what one row can move, the noise, and what is refused."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenly import randomness, trees
from evenly.algorithms import algorithm
from evenly.data.federation import Shard
from evenly.models import MLP, Logistic, Softmax
from evenly.parts import row_privacy
from evenly.parts.row_privacy import (
    NoisedReweigh,
    PrivateTraining,
    SignalNoise,
    add_noise,
    clipped_sum,
    signal_key,
    with_private_rows,
)
from evenly.parts.work import LocalTraining, Reweigh

SIGNALS = SignalNoise(noise=0.0, loss_bound=4.0, every=10)
FEATURES = 3


def private(notation: str, **changes: Any) -> Any:
    settings = {"clip": 1.0, "noise_multiplier": 0.0, "rate": 0.5, "signals": SIGNALS}
    return with_private_rows(algorithm(notation), **settings | changes)


def batch(x: Any, y: Any, *, weight: Any = None, mask: Any = None, expected: float = 4.0) -> Shard:
    ones = np.ones(len(y))
    return Shard(
        jnp.asarray(x),
        jnp.asarray(y, jnp.int32),
        jnp.zeros(len(y), jnp.int32),
        jnp.asarray(ones if weight is None else weight, float),
        jnp.asarray(ones if mask is None else mask, float),
        expected,
    )


def oracle_steps(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, mask: np.ndarray, *, clip: float,
    expected: float, rate: float, mu: float, steps: int,
) -> tuple[np.ndarray, float]:  # fmt: skip
    """DP-SGD of a logistic regression without noise, row by row, in float64."""
    w, b = np.full(x.shape[1], 0.3), -0.2
    received = w.copy(), b
    for _ in range(steps):
        total_w, total_b = np.zeros_like(w), 0.0
        for row, label, own, there in zip(x, y, weight, mask, strict=True):
            if not there:
                continue
            slope = own * (1 / (1 + np.exp(-(row @ w + b))) - label)
            g_w, g_b = slope * row, slope
            length = np.sqrt(g_w @ g_w + g_b**2)
            factor = min(1.0, clip / length) if length else 1.0
            total_w, total_b = total_w + factor * g_w, total_b + factor * g_b
        step_w = total_w / expected + mu * (w - received[0])
        step_b = total_b / expected + mu * (b - received[1])
        w, b = w - rate * step_w, b - rate * step_b
    return w - received[0], b - received[1]


@functools.partial(jax.jit, static_argnames=("task", "steps"))
def trained(work: Any, task: Any, received: Any, own: Shard, steps: int = 1) -> Any:
    """The vector after some steps, each on all of these rows."""
    local = work.start(task, received, None)
    for i in range(steps):
        local = work.step(task, received, local, own, jax.random.key(i))
    return work.finish(task, received, local)[0]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    clip=st.floats(0.01, 3),
    mu=st.sampled_from([0.0, 0.5]),
    rows=st.integers(1, 9),
)
def test_without_noise_a_step_is_that_of_the_oracle(
    seed: int, clip: float, mu: float, rows: int
) -> None:
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(9, FEATURES)) * 2, draw.integers(0, 2, 9)
    weight, mask = draw.uniform(0.2, 3, 9), (np.arange(9) < rows).astype(float)
    with jax.enable_x64(True):
        work = PrivateTraining(
            training=LocalTraining(learning_rate=0.3, mu=mu or None), clip=clip, noise_multiplier=0
        )
        received = {"w": jnp.full(FEATURES, 0.3, jnp.float64), "b": jnp.asarray(-0.2, jnp.float64)}
        own = batch(x, y, weight=weight, mask=mask, expected=5.5)
        vector = trained(work, TASKS["logistic"], received, own, steps=3)
    w, b = oracle_steps(
        x, y, weight, mask, clip=clip, expected=5.5, rate=0.3, mu=mu, steps=3
    )  # fmt: skip
    np.testing.assert_allclose(np.asarray(vector["w"]), w, atol=1e-8, rtol=1e-8)
    np.testing.assert_allclose(np.asarray(vector["b"]), b, atol=1e-8, rtol=1e-8)


# Sums of jax_privacy 2.0.0 in float64, for the rows and the model of the test below:
# clipping.clipped_grad(loss, l2_clip_norm=clip, batch_argnums=(1, 2)), with rows 8 to 10 as padding
BY_JAX_PRIVACY = {
    0.7: {"w": [-0.128315502, 0.288191071, -0.159875569, -0.414663855, 0.470366949, -0.055703094,
               -0.319772173, 0.220089623, 0.099682549],
         "b": [-0.233528011, -0.215367696, 0.448895707]},
    1.5: {"w": [-0.270394686, 0.622118646, -0.351723959, -0.873314446, 1.023177621, -0.149863176,
               -0.673312931, 0.48353181, 0.189781121],
         "b": [-0.508348828, -0.469432559, 0.977781387]},
}  # fmt: skip


@pytest.mark.parametrize("clip", BY_JAX_PRIVACY)
def test_the_sum_is_that_of_jax_privacy(clip: float) -> None:
    x, y = 2 * np.sin(1 + np.arange(33)).reshape(11, FEATURES), np.arange(11) % 3
    with jax.enable_x64(True):
        numbers = jnp.cos(jnp.arange(12.0))
        model = {"w": numbers[:9].reshape(FEATURES, 3), "b": numbers[9:]}
        own = batch(x, y, mask=np.arange(11) < 8)
        found = clipped_sum(TASKS["softmax"], model, own, clip, jax.random.key(0))
    for name, expected in BY_JAX_PRIVACY[clip].items():
        np.testing.assert_allclose(np.asarray(found[name]).ravel(), expected, atol=1e-8)


TASKS = {
    "softmax": Softmax(features=FEATURES, classes=3),
    "logistic": Logistic(features=FEATURES),
    "network": MLP(features=FEATURES, classes=2, hidden=(4,)),
}
EXTREMES = st.sampled_from([0.0, 1.0, -1.0, 1e4, 1e9, -1e9, np.nan, np.inf])


@functools.partial(jax.jit, static_argnames="name")
def with_and_without(name: str, x: Any, y: Any, weight: Any, clip: Any) -> Any:
    """The sum of all rows, and those without the first, the second, ..., in one program."""
    model, count = TASKS[name].init(jax.random.key(1)), len(y)

    def summed(mask: Any) -> Any:
        own = batch(x, y, weight=weight, mask=mask)
        return clipped_sum(TASKS[name], model, own, clip, jax.random.key(0))

    return jax.vmap(summed)(np.concatenate([np.ones((1, count)), 1 - np.eye(count)]))


@pytest.mark.parametrize("name", TASKS)
@settings(max_examples=30, deadline=None)
@given(data=st.data(), clip=st.floats(0.05, 2))
def test_one_row_moves_a_sum_by_at_most_the_clip(name: str, data: Any, clip: float) -> None:
    rows = 5
    numbers = st.one_of(st.floats(-3, 3, width=32), EXTREMES)
    x = np.array(
        data.draw(st.lists(numbers, min_size=rows * FEATURES, max_size=rows * FEATURES))
    ).reshape(rows, FEATURES)
    y = np.array(data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)))
    weight = np.array(data.draw(st.lists(st.floats(0, 1e6), min_size=rows, max_size=rows)))
    sums = jax.tree.map(np.asarray, with_and_without(name, x, y, weight, clip))
    for i in range(1, rows + 1):
        assert distance(trees.take(sums, 0), trees.take(sums, i)) <= clip * (1 + 1e-5)


@pytest.mark.parametrize("name", TASKS)
def test_the_bound_is_reached(name: str) -> None:
    """Else the noise would be larger than the promise needs, or the property above empty."""
    x, y = np.full((5, FEATURES), 50.0), np.ones(5, int)
    sums = with_and_without(name, x, y, np.ones(5), 0.7)
    assert distance(trees.take(sums, 0), trees.take(sums, 1)) >= 0.99 * 0.7


def distance(a: Any, b: Any) -> float:
    squares = [np.sum((np.asarray(x, float) - np.asarray(y, float)) ** 2)
               for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]  # fmt: skip
    return float(np.sqrt(sum(squares)))


@pytest.mark.parametrize("filled", [7, 8])
def test_a_few_rows_at_a_time_give_the_same_sum(
    filled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(11, FEATURES)), draw.integers(0, 3, 11)
    task, model = TASKS["softmax"], {"w": jnp.ones((FEATURES, 3)), "b": jnp.zeros(3)}
    own = batch(x, y, mask=np.arange(11) < filled)
    at_once = clipped_sum(task, model, own, 0.5, jax.random.key(0))
    monkeypatch.setattr(row_privacy, "MOST_NUMBERS", 3 * 12)
    assert distance(clipped_sum(task, model, own, 0.5, jax.random.key(0)), at_once) < 1e-5


def test_a_full_batch_without_bounds_is_the_gradient_of_fedsgd() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(7, FEATURES)), draw.integers(0, 3, 7)
    task = TASKS["softmax"]
    received = task.init(jax.random.key(0))
    own = batch(x, y, expected=7.0)
    plain, clipped = (
        trained(made.work, task, received, own)
        for made in (algorithm("fedsgd"), private("fedsgd", clip=1e6))
    )
    assert distance(plain, clipped) < 1e-6


def test_noise_has_the_deviation_that_it_says() -> None:
    zeros = {"w": jnp.zeros((40, 50)), "b": jnp.zeros(50)}
    draws = jax.vmap(lambda key: add_noise(zeros, 2.5, key))(
        jax.random.split(jax.random.key(3), 100)
    )
    flat = np.concatenate([np.asarray(leaf).reshape(100, -1) for leaf in draws.values()], axis=1)
    assert abs(flat.std() / 2.5 - 1) < 0.01
    assert abs(flat.mean()) < 0.03
    correlation = np.corrcoef(flat[:2])  # of two steps
    assert abs(correlation[0, 1]) < 0.1


def test_a_step_adds_noise_of_clip_times_multiplier_over_the_expected_rows() -> None:
    work = PrivateTraining(
        training=LocalTraining(learning_rate=1.0, mu=None), clip=0.5, noise_multiplier=3.0
    )
    task = Softmax(features=100, classes=50)
    received = task.init(jax.random.key(0))
    empty = batch(np.zeros((4, 100)), np.zeros(4), mask=np.zeros(4), expected=6.0)
    vector = trained(work, task, received, empty)
    assert np.std(np.asarray(vector["w"])) == pytest.approx(3.0 * 0.5 / 6.0, rel=0.03)


REFUSED = {
    "propfair": "the loss of a batch is transformed as a whole.* Use q-fedavg or term",
    "frl": "rankings of edges",
    "ifca(groups=2)": "several models",
    "ditto": "personal models: they are trained without noise.* Use a method with one shared model",
    "local": "clients send nothing. Leave it out",
    "fedavg(weights=equal)+parity": "parity sampling, which reads exact counts",
}


@pytest.mark.parametrize("notation", REFUSED)
def test_what_cannot_be_private_is_refused_with_a_reason(notation: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[notation]):
        private(notation)


@pytest.mark.parametrize(
    "notation",
    ["fedavg", "fedprox", "fedsgd", "q-fedavg", "q-fedsgd", "afl", "term", "p-fedavg", "fairfed",
     "fedcvg", "fedcvg-ratio", "fedfb", "fedmgda", "fairfed+reweigh",
     "fedavg+local-adam(learning_rate=0.1)"],
)  # fmt: skip
def test_every_other_method_is_allowed(notation: str) -> None:
    built = private(notation)
    assert isinstance(built.work, PrivateTraining)
    assert built.rule is not None


def test_signals_that_are_released_together_share_the_noise() -> None:
    noise = SignalNoise(noise=3.0, loss_bound=4.0, every=1)
    deviations = [noise.deviation(name, 2) for name in ("table", "cell_loss")]
    bounds = 1.0, 4.0
    joint = sum((b / d) ** 2 for b, d in zip(bounds, deviations, strict=True)) ** -0.5
    assert joint == pytest.approx(3.0)


def test_reweighing_from_exact_counts_is_reweighing() -> None:
    draw = np.random.default_rng(0)
    y, group = draw.integers(0, 2, 200), draw.integers(0, 3, 200)
    for reweigh in (Reweigh(), Reweigh(rescale=True), Reweigh(cap=1.1)):
        noised = NoisedReweigh(reweigh=reweigh, noise=0.0)
        table = noised.from_counts(noised.counts(y, group, (3, 2)))
        np.testing.assert_allclose(table[group, y], reweigh.weights(y, group), rtol=1e-12)


def test_counts_are_noised_and_never_below_one_row() -> None:
    noised = NoisedReweigh(reweigh=Reweigh(), noise=5.0)
    y = group = np.zeros(1000, int)
    drawn = np.array(
        [noised.counts(y, group, (2, 2), np.random.default_rng(i)) for i in range(2000)]
    )
    assert drawn.min() >= 1
    assert drawn[:, 0, 0].std() == pytest.approx(5.0, rel=0.05)
    assert drawn[:, 0, 0].mean() == pytest.approx(1000, abs=0.5)


def test_signals_have_other_random_numbers_than_steps() -> None:
    """`fold_in` and `split` give the same keys for small numbers."""
    seed, steps = randomness.key_data(5), []
    key = randomness.visit_key(seed, 3, 7)
    for _ in range(50):
        key, step = randomness.next_key(key)
        steps += [key.tolist(), jax.random.key_data(step).tolist()]
    signals = [jax.random.key_data(signal_key(seed, 3, 7, place)).tolist() for place in range(8)]
    assert len(np.unique([*steps, *signals], axis=0)) == 108
