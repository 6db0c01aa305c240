"""What rounds sum: the numbers that clients contribute, and the factors of their vectors, against
numbers computed by hand or by scripts that share no code with the package.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenly import round as derived
from evenly.algorithms import FedAvg, FedSGD, QFedAvg
from evenly.algorithms.afl import AFL, FORMS, STAGES
from evenly.algorithms.fairfed import FairFed
from evenly.algorithms.fedcvg import FedCvg
from evenly.algorithms.fedcvg_ratio import Average, FedCvgRatio
from evenly.algorithms.fedfb import FedFB
from evenly.algorithms.ifca import IFCA
from evenly.algorithms.p_fedavg import FAMILIES, PFedAvg
from evenly.algorithms.term import Term
from evenly.algorithms.weights import project
from evenly.data.federation import Census
from evenly.types import Rule, Signals, Totals, Weighed
from tests.aggregation import (
    LOSSES,
    SIZES,
    TRAINED,
    Played,
    State,
    W,
    by_client,
    play,
    remembering,
    start,
)
from tests.oracles import fair
from tests.oracles.cohort_rules import PFedAvg as ExactRanks
from tests.oracles.cohort_rules import Signals as OldSignals

VECTORS = TRAINED - W
ONE_EACH = Census(np.ones(3), np.ones((3, 2, 2), int))
played, weigh, nearest = jax.jit(play), jax.jit(derived.weigh), jax.jit(project)


def signals_of(count: int, **told: Any) -> Signals:
    told = {name: np.asarray(value) for name, value in told.items()}
    return Signals(
        **{
            "client": np.arange(count),
            "returned": np.ones(count, bool),
            "examples": np.ones(count),
            **told,
        }
    )


def started(rule: Rule, census: Census) -> State:
    with jax.enable_x64(True):
        return start(rule, census)


def tried(rule: Rule, vectors: Any = VECTORS, state: State | None = None, **told: Any) -> Played:
    """One round of fixture T, or of other clients."""
    count = len(vectors)
    told = {"square_norm": (np.asarray(vectors) ** 2).sum(1), **told}
    if count == len(LOSSES):
        told = {"loss": LOSSES, "examples": np.asarray(SIZES, float), **told}
    with jax.enable_x64(True):
        state = start(rule, ONE_EACH) if state is None else state
        found = played(rule, state, signals_of(count, **told), np.asarray(vectors))
        return jax.tree.map(np.asarray, found)


def weighed(rule: Rule, public: Any = (), **told: Any) -> Weighed:
    """What each client of fixture T weighs by itself, for rules without stages."""
    told = {"loss": LOSSES, "examples": np.asarray(SIZES, float), **told}
    with jax.enable_x64(True):
        own = signals_of(3, **told).own
        found = by_client(lambda one: rule.weigh(public, one, ()), own)
        return jax.tree.map(np.asarray, found)


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-8)


# Rules that need no sum before training.


@pytest.mark.parametrize(
    "weights, factors, total, model",
    [
        ("size", [10, 30, 60], [-8, -3], [0.92, 1.97]),
        ("equal", [1, 1, 1], [-0.3, -0.3], [0.9, 1.9]),
    ],
)
def test_fedavg_sums_weights_and_weighted_vectors(
    weights: str, factors: list, total: list, model: list
):
    rule = FedAvg(weights=weights)
    own = weighed(rule)
    near(own.weight, factors)
    near(own.weight @ VECTORS, total)
    near(W + tried(rule).change, model)


def test_fedsgd_divides_by_the_number_of_clients_not_by_the_weights():
    rule = FedSGD(weights="equal", q=1.0)
    own, found = weighed(rule), tried(rule)
    near(own.weight @ VECTORS, [-0.2, -0.8])
    assert own.extras.sum() == found.summed.divisor == 3
    near(found.change, [-0.0666666667, -0.2666666667])


@pytest.mark.parametrize(
    "q, total, weight, damping, model",
    [
        (0.1, [-0.2866065983, -0.3358867313], 3.0048064541, 0.2586143221,
         [0.9121760208, 1.8970752611]),
        (1.0, [-0.2, -0.8], 3.5, 0.34, [0.9710144928, 1.8840579710]),
        (2.0, [-0.15, -1.8], 5.25, 0.57, [0.9909909910, 1.8918918919]),
    ],
)  # fmt: skip
def test_q_fedavg_sums_powers_of_losses_and_curvatures(
    q: float, total: list, weight: float, damping: float, model: list
):
    rule = QFedAvg(q=q, lipschitz=10.0)
    own = weighed(rule, square_norm=(VECTORS**2).sum(1))
    factors = own.weight * np.exp(own.exponent)
    near(factors @ VECTORS, total)
    near(factors.sum(), weight)
    near(factors @ own.averages, damping)
    found = tried(rule)
    near(W + found.change, model)
    near(found.summed.totals.averages, damping / weight)
    assert not tried(rule).weighing.averages.any(), "before training nobody knows its length"


def test_term_and_fedcvg_give_exponents_whose_shift_cancels():
    own = weighed(Term(alpha=1.0))
    factors = own.weight * np.exp(own.exponent - 2)
    near(factors, [2.2313016015, 30, 22.0727664703])
    near(factors @ VECTORS, [-2.6535369673, -10.5854467059])
    near(W + tried(Term(alpha=1.0)).change, [0.9511355767, 1.8050708339])

    counts = {"examples": np.full(3, 1000.0), "unprivileged": np.array([200.0, 500, 330])}
    own = weighed(FedCvg(alpha=0.001), **counts)
    factors = own.weight * np.exp(own.exponent - 0.5)
    near(factors, [740.8182206817, 1000, 843.6648165964])
    near(tried(FedCvg(alpha=0.001), **counts).change, [-0.08997162, -0.1281753573])


def test_ifca_sums_one_vector_for_each_model():
    rule, choice = IFCA(groups=2), np.array([0, 1, 1])
    own, found = weighed(rule, choice=choice), tried(rule, choice=choice)
    near(own.weight, [[10, 0], [0, 30], [0, 60]])
    near(own.weight.T @ VECTORS, [[-2, 0], [-6, -3]])
    near(own.weight.sum(0), [10, 90])
    near(found.change, [[-0.2, 0], [-0.0666666667, -0.0333333333]])


# FedFB

TABLES = np.array([[[[3, 1], [2, 4]], [[5, 0], [1, 4]]], [[[1, 1], [0, 2]], [[6, 2], [2, 6]]]])
CELL_LOSSES = np.array([[[1.0, 6], [4, 2]], [[2, 1], [3, 5]]])


def test_fedfb_sums_counts_and_losses_beside_the_vectors():
    rule = FedFB(alpha=0.3)
    found = tried(
        rule, VECTORS[:2], started(rule, Census(np.ones(2), np.ones((2, 2, 2), int))),
        table=TABLES.astype(float), cell_loss=CELL_LOSSES, examples=np.array([20.0, 20]),
    )  # fmt: skip
    rows, losses = found.summed.totals.extras
    near(rows.ravel(), [6, 8, 13, 13])
    near(losses.ravel(), [3, 7, 7, 7])
    near(found.summed.coefficients * 40, [20, 20])
    near(found.change, [-0.1, -0.25])
    near(found.state.public.unfavourable, [0.8163265306, 1.0989010989])


# FairFed: true positives and positives of both groups, accuracies 0.9, 0.8, 0.7

FAIR_TABLES = np.zeros((3, 2, 2, 2))  # group, label, outcome
FAIR_TABLES[:, 0, 1] = [[2, 8], [2, 3], [0, 0]]
FAIR_TABLES[:, 1, 1] = [[2, 18], [3, 12], [20, 20]]
FAIR_TABLES[:, 1, 0] = [[64, 6], [65, 15], [120, 40]]
FAIR_SIZES = np.array([100.0, 100, 200])


def fair_round(rule: FairFed) -> Played:
    census = Census(FAIR_SIZES.astype(int), FAIR_TABLES.sum(3).astype(int))
    return tried(rule, state=started(rule, census), examples=FAIR_SIZES, table=FAIR_TABLES)


def test_fairfed_sums_six_counts_then_gaps_then_weights():
    found = fair_round(FairFed())
    counts, gaps, weights = found.summed.sums
    near(counts.hits, [11, 50])
    near(counts.rows, [15, 75])
    near([counts.correct, counts.all], [310, 400])
    near(gaps, [0.5083333333, 3])
    near(weights, [1, 400])
    near(found.weighing.memory, [0.2527777778, 0.1527777778, 0.5944444444])
    near(found.summed.coefficients, [0.2527777778, 0.1527777778, 0.5944444444])
    assert found.summed.totals.extras == 1, "accuracy stood in for the third client"
    assert found.state.public.fallbacks == 1


def test_fairfed_without_memory_sums_counts_only():
    found = fair_round(FairFed(form="exponential"))
    (counts,) = found.summed.sums
    near(counts.hits, [11, 50])
    near(found.summed.coefficients, [0.2440907894, 0.2208624796, 0.5350467310])


def test_a_client_that_holds_nothing_out_says_nothing_about_gaps():
    tables = np.append(FAIR_TABLES, np.zeros((1, 2, 2, 2)), axis=0)
    rule, sizes = FairFed(measured_on="valid"), np.append(FAIR_SIZES, 100)
    state = started(rule, Census(sizes.astype(int), np.ones((4, 2, 2), int)))
    found = tried(rule, np.ones((4, 2)), state, examples=sizes, valid_table=tables)
    near(found.summed.sums[1], [0.5083333333, 3])
    near(found.weighing.memory[3], 0.2)  # where it was: its gap is the mean
    assert found.summed.totals.extras == 1


# FedCvg-Ratio


def test_fedcvg_ratio_sums_rows_then_scores():
    counts = {"examples": np.full(3, 1000.0), "unprivileged": np.array([200.0, 500, 330])}
    found = tried(FedCvgRatio(), **counts)
    near(found.summed.sums[0], [1030, 3000])
    near(found.summed.sums[1], 3000)
    near(found.weighing.memory.weight, [0.2637540453, 0.4093851133, 0.3268608414])
    near(found.summed.coefficients, [0.2637540453, 0.4093851133, 0.3268608414])
    near(found.change, [-0.0854368932, -0.1393203883])


@given(st.lists(st.integers(1, 400), min_size=4, max_size=4), st.floats(0, 0.5), st.integers(0))
def test_where_no_score_is_cut_scores_times_sizes_sum_to_the_sizes(
    sizes: list, alpha: float, seed: int
):
    u = np.random.default_rng(seed).binomial(sizes, 0.3).astype(float)
    rule = FedCvgRatio(alpha=alpha)
    with jax.enable_x64(True):
        signals = signals_of(4, examples=np.array(sizes, float), unprivileged=u)
        signals = signals._replace(memory=Average(jnp.ones(4), jnp.zeros(4, bool)))
        sums = derived.contributions(rule, jnp.ones(()), signals)
        (rows, everyone), scored = jax.tree.map(float, sums)
    r = rows / everyone
    share = u / sizes
    if 0 < r < 0.5 and (1 + alpha * (share - r) / r).max() <= 2:
        assert scored == pytest.approx(everyone, rel=1e-12)


# AFL: the projection onto a simplex by sums

GIVEN = [AFL(form=form, rate_lambda=0.1) for form in FORMS if form != "stochastic"]


def thresholds(found: Played, mass: float) -> list[float]:
    return [float((mass - targets) / max(count, 1)) for count, targets, _ in found.summed.sums]


def test_the_worked_projection_settles_after_two_sums():
    # losses 0, so that the targets are the memories; they sum to 1.65, but clients count as all
    rule = AFL(form="local", rate_lambda=1.0)
    memory = np.array([0.9, 0.1, 0.0])
    found = tried(rule, state=remembering(rule, memory), loss=np.array([0.0, 0.45, 0.2]))
    near(found.summed.sums[0], [3, 1.65, 1])
    near(thresholds(found, 1.0)[:3], [-0.2166666667, -0.225, -0.225])
    near(found.weighing.memory, [0.675, 0.325, 0])
    near(found.summed.coefficients, [0.675, 0.325, 0])


def test_lambda_of_fixture_t_moves_as_worked_out():
    full = tried(AFL(rate_lambda=0.1))
    # equal sizes: an equal start
    own = tried(AFL(form="local", rate_lambda=0.1), examples=np.ones(3))
    for found in (full, own):
        near(found.summed.sums[0], [3, 1.35, 1])
        near(thresholds(found, 1.0)[0], -0.1166666667)
        near(found.weighing.memory, [0.2666666667, 0.4166666667, 0.3166666667])
    near(W + full.change, [0.9, 1.9])
    near(W + own.change, [0.915, 1.855])


def by_sums(memory: np.ndarray, losses: np.ndarray, rate: float, clients: int) -> np.ndarray:
    """Lambda after one round of clients that remember these lambdas."""
    rule = AFL(form="local", rate_lambda=rate)
    count = len(memory)
    with jax.enable_x64(True):
        public = rule.begin(Census(np.ones(clients), np.ones((clients, 2, 2), int)))
        signals = signals_of(count, loss=losses, memory=memory)
        return np.asarray(weigh(rule, public, signals).memory)


def by_sorting(y: np.ndarray, mass: float) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(nearest(jnp.asarray(y), jnp.ones(len(y), bool), mass))


shares_of_lambda = arrays(
    np.float64, 5, elements=st.one_of(st.just(0.0), st.just(0.2), st.floats(1e-6, 1))
)
losses_of_clients = arrays(
    np.float64,
    5,
    elements=st.one_of(st.sampled_from([0.0, 0.5, 1.0, 1e4]), st.floats(0, 20)),
)


@given(shares_of_lambda, losses_of_clients, st.floats(0, 2), st.floats(0, 1), st.booleans())
def test_the_projection_by_sums_is_the_one_by_sorting(
    raw: np.ndarray, losses: np.ndarray, rate: float, part: float, everyone: bool
):
    mass = 1.0 if everyone else part
    memory = raw / raw.sum() * mass if raw.any() else raw
    found = by_sums(memory, losses, rate, clients=5 if everyone else 8)
    total = memory.sum()
    expected = by_sorting(memory + rate * losses, 1.0 if everyone and raw.any() else total)
    largest = max(1.0, (rate * losses).max())
    np.testing.assert_allclose(found, expected, atol=1e-12 * largest)
    assert found.sum() == pytest.approx(total, abs=1e-11 * largest)


@pytest.mark.parametrize("wide", [False, True], ids=["single", "double"])
@pytest.mark.parametrize("mass", [1e-6, 1e-8, 1e-9, 1e-12, 1e-20, 0.0])
def test_a_tiny_lambda_is_not_made_larger(mass: float, wide: bool):
    """Losses swallow such a lambda in rounding, so that no client seems to be inside any more; the
    sums then started again with all clients, and everybody got its target.
    """
    rule = AFL(form="local", rate_lambda=0.1)
    with jax.enable_x64(wide):
        public = rule.begin(Census(np.ones(3), np.ones((3, 2, 2), int)))
        signals = signals_of(2, loss=jnp.array([0.5, 2.0]), memory=jnp.array([mass, 0.0]))
        moved = np.asarray(weigh(rule, public, signals).memory)
    assert (moved >= 0).all()
    assert moved.sum() <= mass + 1e-7
    assert np.isfinite(moved).all()


@pytest.mark.parametrize("clients", [10, 100, 1000])
@pytest.mark.parametrize("kind", ["spread", "close", "ties", "normal", "heavy", "settled"])
def test_random_projections_settle_within_the_stages(clients: int, kind: str):
    draw, rule, needed = np.random.default_rng(clients), AFL(form="local", rate_lambda=1.0), []
    with jax.enable_x64(True):
        public = rule.begin(Census(np.ones(clients), np.ones((clients, 2, 2), int)))
        for _ in range(40):
            memory = draw.dirichlet(np.ones(clients) * draw.choice([0.1, 1.0, 10.0]))
            scale = draw.choice([1e-3, 0.1, 1.0, 10.0])
            losses = {
                "spread": scale * draw.gamma(1.0, 1.0, clients),
                "close": 1 + 1e-3 * draw.random(clients),
                "ties": draw.integers(0, 3, clients) * 0.1,
                "normal": scale * (2 + 0.1 * draw.normal(size=clients)),
                "heavy": scale * draw.lognormal(0, 2, clients),
                "settled": np.zeros(clients),
            }[kind]
            found = weigh(rule, public, signals_of(clients, loss=losses, memory=memory))
            expected = by_sorting(memory + losses, 1.0)
            np.testing.assert_allclose(found.memory, expected, atol=1e-12)
            inside = [int(count) for count, _, _ in found.sums]
            needed.append(inside.index(inside[-1]) + 1)
    # docs/algorithms/afl.md states the last of these
    assert max(needed) <= {10: 6, 100: 9, 1000: 11}[clients] < STAGES


def test_a_projection_that_has_not_settled_still_gives_weights_that_sum_to_1():
    """Each sum excludes one more client, where losses are spread over twenty decades."""
    targets = [0.0]
    for m in range(2, 20):
        targets.append((sum(targets) - 1) / (m - 1) - 1e-9 * 20.0**m)
    losses = np.array(targets) - min(targets)
    rule = AFL(form="local", rate_lambda=1.0)
    with jax.enable_x64(True):
        public = rule.begin(Census(np.ones(19), np.ones((19, 2, 2), int)))
        signals = signals_of(19, loss=losses, memory=np.full(19, 1 / 19))
        found = jax.tree.map(np.asarray, derived.weigh(rule, public, signals))
    inside = [int(count) for count, _, _ in found.sums]
    assert inside[-1] < inside[-2], "not settled"
    assert (found.weight >= 0).all()
    assert found.weight.sum() == pytest.approx(1)
    assert found.weight.argmax() == losses.argmax()


@pytest.mark.parametrize("rule", GIVEN, ids=lambda rule: rule.form)
def test_everybody_present_means_a_mass_of_exactly_1(rule: AFL):
    """Rounding of lambda does not pile up over rounds."""
    draw = np.random.default_rng(3)
    state = start(rule, Census(np.ones(7), np.ones((7, 2, 2), int)))  # single precision
    for _ in range(50):
        signals = signals_of(7, loss=draw.gamma(2.0, 0.5, 7).astype(np.float32))
        state = played(rule, state, signals, np.ones((7, 2), np.float32)).state
    assert np.asarray(state.memory.value).sum() == pytest.approx(1, abs=3e-7)


# p-FedAvg with a histogram


def ranked(rule: PFedAvg, edges: Any, losses: Any, **told: Any) -> np.ndarray:
    """Coefficients, where the inner edges of the bins are given."""
    with jax.enable_x64(True):
        public = jnp.log(jnp.asarray(edges, float))
        signals = signals_of(len(losses), loss=np.asarray(losses, float), **told)
        return np.asarray(weigh(rule, public, signals).weight)


def test_a_histogram_of_fixture_t_with_one_client_in_each_bin_is_exact():
    near(ranked(PFedAvg(bins=3), [1, 2], LOSSES) * 9, [1, 5, 3])
    near(ranked(PFedAvg(bins=3, family="geometric"), [1, 2], LOSSES) * 1.75, [0.25, 1, 0.5])


def test_a_histogram_of_fixture_t_with_two_clients_in_a_bin_reaches_the_bound():
    rule = PFedAvg(bins=2)
    with jax.enable_x64(True):
        told = signals_of(3, loss=LOSSES)
        (histogram,) = derived.contributions(rule, jnp.log(jnp.array([1.5])), told)
    near(histogram, [2, 1])
    found = ranked(rule, [1.5], LOSSES)
    near(found * 9, [2, 5, 2])
    assert np.abs(found - np.array([1, 5, 3]) / 9).sum() == pytest.approx(2 / 9)


EDGES = np.array([0.3, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5])
settings_of_bins = st.fixed_dictionaries(
    {"family": st.sampled_from(FAMILIES), "weights": st.sampled_from(["equal", "size"])},
    optional={
        "ratio": st.floats(0.05, 1),
        "first": st.floats(0.1, 3),
        "difference": st.floats(0, 4),
    },
)


@given(
    settings_of_bins,
    arrays(np.float64, 9, elements=st.floats(1e-3, 8)),
    arrays(np.int64, 9, elements=st.integers(1, 99)),
)
def test_with_bins_it_is_the_exact_rule_for_losses_rounded_to_bins(
    settings: dict, losses: np.ndarray, sizes: np.ndarray
):
    rule = PFedAvg(bins=8, **settings)
    found = ranked(rule, EDGES, losses, examples=sizes.astype(float))
    rounded = np.searchsorted(np.log(EDGES), np.log(losses), side="right") + 1.0
    signals = OldSignals(np.arange(9), np.ones(9, bool), sizes.astype(float), loss=rounded)
    expected, _ = ExactRanks(**settings).weigh((), signals)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(arrays(np.int64, 9, elements=st.integers(1, 60)), st.sampled_from(FAMILIES))
def test_sizes_can_be_ranked_by_a_histogram_too(sizes: np.ndarray, family: str):
    edges = np.array([2, 4, 8, 15, 16, 32, 50]) - 0.5
    rule = PFedAvg(bins=8, sort_key="n", family=family)
    found = ranked(rule, edges, np.ones(9), examples=sizes.astype(float))
    rounded = np.searchsorted(edges, sizes, side="right") + 1.0
    signals = OldSignals(np.arange(9), np.ones(9, bool), rounded)
    expected, _ = ExactRanks(sort_key="n", family=family).weigh((), signals)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(
    arrays(np.float64, 12, elements=st.floats(1e-3, 8), unique=True),
    st.sets(st.sampled_from([0.1, 0.5, 1.0, 1.7, 2.5, 4.0, 6.0]), min_size=1),
)
def test_ginis_error_is_bounded_by_the_clients_in_each_bin(losses: np.ndarray, inner: set):
    edges = np.sort(list(inner))
    found = ranked(PFedAvg(bins=len(edges) + 1), edges, losses)
    exact = fair.p_weights("gini", 12)[np.argsort(np.argsort(losses))]
    counts = np.bincount(np.searchsorted(edges, losses, side="right"))
    assert np.abs(found - exact).sum() <= (counts**2 // 2).sum() / 12**2 + 1e-12


def test_many_bins_are_the_exact_rule():
    losses = np.random.default_rng(5).gamma(2.0, 0.6, 8) + 0.01
    edges = np.linspace(0.001, 12, 2**14 - 1)
    for family in FAMILIES:
        signals = OldSignals(np.arange(8), np.ones(8, bool), np.ones(8), loss=losses)
        expected, _ = ExactRanks(family=family).weigh((), signals)
        found = ranked(PFedAvg(bins=2**14, family=family), edges, losses)
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("bins", [32, 256, 4096])
def test_edges_follow_the_losses(family: str, bins: int):
    """Whatever the losses are like, ranks become nearly exact within a few rounds."""
    draw, rule = np.random.default_rng(1), PFedAvg(bins=bins, family=family)
    errors = []
    with jax.enable_x64(True):
        state = start(rule, Census(np.ones(100), np.ones((100, 2, 2), int)))
        for t in range(12):
            losses = 20 * 0.9**t * draw.gamma(4.0, 0.25, 100) + 1e-4
            signals = signals_of(100, loss=losses)
            found = played(rule, state, signals, np.ones((100, 1)))
            expected = fair.p_fedavg(np.ones((100, 1)), losses, family).lambdas
            errors.append(np.abs(found.summed.coefficients - expected).sum())
            state = found.state
            edges = np.asarray(state.public)
            assert edges.shape == (bins - 1,)
            assert (np.diff(edges) >= 0).all()
            assert np.isfinite(edges).all()
    # mean error; equal weights are off by 0.5 for Gini and by 1.85 for geometric weights, which
    # sit in the few largest losses
    most = {"gini": (0.06, 0.015, 0.005), "geometric": (0.8, 0.25, 0.05)}
    bound = most.get(family, most["gini"])[[32, 256, 4096].index(bins)]
    assert np.mean(errors[2:]) < bound


def test_a_round_without_losses_in_the_bins_still_has_edges():
    """All losses below the lowest edge, all above the highest, or nobody there."""
    rule = PFedAvg(bins=9)
    for histogram in ([5, *[0] * 8], [*[0] * 8, 5], [0] * 9):
        with jax.enable_x64(True):
            edges = rule.begin(ONE_EACH)
            sums = (jnp.array(histogram, float),)
            _, after = rule.step(edges, sums, Totals(jnp.ones(2), jnp.ones(())))
        assert np.isfinite(after).all()
        assert (np.diff(after) >= 0).all()
        assert after.shape == (8,)
