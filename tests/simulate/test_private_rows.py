"""Simulations with private rows: an oracle of whole rounds, batches, noised signals, and many runs
at once.
"""

import jax
import numpy as np
import pytest

from evenly import randomness
from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.randomness import Draws
from evenly.simulate import simulate
from evenly.types import Trace
from tests.federations import tiny as tiny_federation

NOISE = "noise_multiplier=1, signal_noise=2, measure_every=2, rate=0.25, clip=0.5"
EXACT = "noise_multiplier=0, signal_noise=0, rate=0.25"


def same(one: Trace, other: Trace, close: float = 1e-5) -> None:
    for a, b in zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=close, rtol=close)


def oracle(federation: Federation, rounds: int, *, rate: float, clip: float, step: float) -> dict:
    """FedAvg with full participation of softmax regression by clipped gradients without noise, row
    by row in float64.
    """
    classes = len(federation.labels)
    w, b = np.zeros((federation.x.shape[1], classes)), np.zeros(classes)
    sizes = federation.train.counts
    largest = randomness.poisson_room(int(sizes.max()), rate)
    for t in range(rounds):
        moved_w, moved_b = np.zeros_like(w), np.zeros_like(b)
        for k in range(federation.clients):
            rows = federation.train.of(k)
            batches = np.full((round(1 / rate), largest), -1, np.int32)
            randomness.fill_poisson(batches, rows, rate, Draws(0, "poisson").at(t, k))
            own_w, own_b = w.copy(), b.copy()
            for batch in batches:
                total_w, total_b = np.zeros_like(w), np.zeros_like(b)
                for row in batch[batch >= 0]:
                    x = np.asarray(federation.x[row], float)
                    z = x @ own_w + own_b
                    slope = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
                    slope[federation.y[row]] -= 1
                    g = np.outer(x, slope)
                    factor = min(1, clip / np.sqrt((g**2).sum() + (slope**2).sum()))
                    total_w, total_b = total_w + factor * g, total_b + factor * slope
                own_w -= step * total_w / (rate * sizes[k])
                own_b -= step * total_b / (rate * sizes[k])
            share = sizes[k] / sizes.sum()
            moved_w, moved_b = moved_w + share * (own_w - w), moved_b + share * (own_b - b)
        w, b = w + moved_w, b + moved_b
    return {"b": b, "w": w}


def test_whole_rounds_are_those_of_the_oracle(tiny: Federation, task: Softmax) -> None:
    notation = "fedavg(learning_rate=0.3, weights=size)+full"
    private = algorithm(f"{notation}+dp(unit=row, {EXACT}, clip=0.4)")
    (trace,) = simulate(task, tiny, [private], 3)
    expected = oracle(tiny, 3, rate=0.25, clip=0.4, step=0.3)
    for name in ("w", "b"):
        np.testing.assert_allclose(np.asarray(trace.model[name]), expected[name], atol=2e-6)


def test_rows_are_in_batches_independently() -> None:
    rows, rate = np.arange(200), 0.1
    room = randomness.poisson_room(200, rate)
    batches = np.full((20000, room), -1, np.int32)
    randomness.fill_poisson(batches, rows, rate, np.random.default_rng(0))
    counts = (batches >= 0).sum(1)
    assert counts.max() < room
    assert counts.mean() == pytest.approx(20, rel=0.01)
    assert counts.var() == pytest.approx(200 * rate * (1 - rate), rel=0.05)  # not a fixed number
    assert (np.sort(batches, 1)[:, 1:] == np.sort(batches, 1)[:, :-1])[
        :, -5:
    ].sum() == 0  # no row twice
    both = np.array([(batches == 3).any(1), (batches == 4).any(1)])
    assert both.mean(1) == pytest.approx(rate, rel=0.1)
    assert (both[0] & both[1]).mean() == pytest.approx(rate**2, rel=0.3)


def test_every_client_takes_the_same_number_of_steps() -> None:
    assert randomness.poisson_steps(0.02, 2) == 100
    assert randomness.poisson_steps(0.3, 1) == 3
    assert randomness.poisson_steps(1.0, 1) == 1
    assert randomness.poisson_steps(0.02, 2, most=7) == 7


METHODS = ["fairfed+reweigh"]
LESS_OFTEN = ["q-fedavg(q=1)", "fedcvg"]


@pytest.mark.parametrize(
    "method", [*METHODS, *(pytest.param(text, marks=pytest.mark.further) for text in LESS_OFTEN)]
)
def test_a_run_is_the_same_in_lanes_and_from_the_host(
    method: str, tiny: Federation, task: Softmax
) -> None:
    built = algorithm(f"{method}+full+dp(unit=row, {NOISE})")
    (one,) = simulate(task, tiny, [built], 3)
    for options in ({"lanes": 2}, {"stream": True}):
        same(simulate(task, tiny, [built], 3, **options)[0], one)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(one.model))


def test_noise_and_clip_are_an_axis_of_runs(tiny: Federation, task: Softmax) -> None:
    notation = "q-fedavg(q=1)+full+dp(unit=row, rate=0.25, signal_noise=2, measure_every=2, "
    swept = [f"{notation}noise_multiplier={z}, clip={c})" for z in (0, 1) for c in (0.3, 3)]
    built = [algorithm(text) for text in swept]
    built.append(algorithm(f"fedavg+full+dp(unit=row, {NOISE})"))  # another rule joins
    together = simulate(task, tiny, built, 3)
    for algorithm_, trace in zip(built, together, strict=True):
        same(simulate(task, tiny, [algorithm_], 3)[0], trace)
    assert not np.allclose(together[0].model["w"], together[2].model["w"])


@pytest.mark.parametrize(
    "method",
    [
        "q-fedavg(q=1)",
        "fairfed",
        pytest.param("fairfed+reweigh", marks=pytest.mark.further),
        pytest.param("fedfb", marks=pytest.mark.further),
    ],
)
def test_without_noise_signals_are_exact(method: str, task: Softmax) -> None:
    """One batch of all rows and no bound: the run is that of the method itself."""
    federation = tiny_federation()
    many = 10**6
    exact = f"unit=row, rate=1, measure_every=1, clip=1e6, loss_bound=1e6, {EXACT[:-11]}"
    (private,) = simulate(task, federation, [algorithm(f"{method}+full+dp({exact})")], 4)
    plain = algorithm(method.replace("+", f"(batch_size={many})+", 1) + "+full") \
        if "+" in method else algorithm(f"{method}+full", batch_size=many)  # fmt: skip
    (expected,) = simulate(task, federation, [plain], 4)
    close = 5e-2 if "reweigh" in method else 1e-5  # empty cells count as one row, see below
    same(private, expected, close)


def test_signals_are_kept_between_measurements(tiny: Federation, task: Softmax) -> None:
    """Coefficients follow from the gap alone, which is new in rounds 1 and 4 only."""
    text = "fairfed(form=exponential)+full+dp(unit=row, noise_multiplier=0, signal_noise=0,"
    weights = {}
    for every in (1, 3):
        built = algorithm(f"{text} rate=0.5, measure_every={every})")
        weights[every] = simulate(task, tiny, [built], 4)[0].weights
    np.testing.assert_array_equal(weights[3][:3], weights[3][[0, 0, 0]])
    np.testing.assert_array_equal(weights[1][0], weights[3][0])
    assert not np.allclose(weights[3][0], weights[3][3])
    assert not np.allclose(weights[1][0], weights[1][1])


def test_noise_in_counts_differs_between_clients_and_rounds(
    tiny: Federation, task: Softmax
) -> None:
    text = "fairfed+full+dp(unit=row, noise_multiplier=0, rate=0.5, measure_every=1, signal_noise="
    (quiet,) = simulate(task, tiny, [algorithm(f"{text}0)")], 2)
    (loud,) = simulate(task, tiny, [algorithm(f"{text}50)")], 2)
    assert len(np.unique(np.abs(loud.weights - quiet.weights)[0].round(7))) > 1


def test_noise_in_a_mean_loss_is_that_of_the_sum_by_the_number_of_rows(
    tiny: Federation, task: Softmax
) -> None:
    text = "term(alpha=1, weights=equal, learning_rate=1e-9)+full+dp(unit=row, noise_multiplier=0,"
    text += " rate=0.5, measure_every=1, loss_bound=4, signal_noise="
    (quiet,), (loud,) = (
        simulate(task, tiny, [algorithm(f"{text}{noise})")], 400) for noise in (0, 0.1)
    )
    change = np.log(loud.weights) - np.log(quiet.weights)  # noise in the losses, up to a shift
    found = (change[:, 1:] - change[:, :1]).std(0)
    sizes = tiny.train.counts
    np.testing.assert_allclose(
        found, 0.1 * 4 * np.sqrt(1 / sizes[1:] ** 2 + 1 / sizes[0] ** 2), rtol=0.15
    )


def test_a_model_with_running_statistics_is_refused() -> None:
    from evenly import trees
    from evenly.parts.row_privacy import PrivateTraining

    work = algorithm(f"fedavg+dp(unit=row, {NOISE})").work
    assert isinstance(work, PrivateTraining)
    model = trees.Stateful({"w": np.zeros(2)}, {"mean": np.zeros(2)})
    with pytest.raises(ValueError, match=r"batch norm.*group norm"):
        work.start(Softmax(features=1, classes=2), model, None)
