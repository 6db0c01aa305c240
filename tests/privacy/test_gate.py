"""The gate: what one client can move, the noise, and equality where nothing bites."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from evenly import round as evenly_round
from evenly import trees
from evenly.algorithms import METHODS, algorithm
from evenly.data.federation import Census
from evenly.privacy import gate
from evenly.privacy.accounting import Releases, epsilon_of
from evenly.privacy.claims import _why_not, has_equal_weights
from evenly.privacy.gate import ClientGate, GateState, Guard
from evenly.records import replace
from evenly.types import Signals

CLIENTS, DELTA = 6, 1e-5
CELLS = np.arange(1, CLIENTS * 4 + 1).reshape(CLIENTS, 2, 2)
CENSUS = Census(CELLS.sum((1, 2)), CELLS)
EXAMPLES = {"p-fedavg": "p-fedavg(bins=8)", "afl": "afl(bins=8)", "ifca": "ifca(groups=2)"}
REFUSED = {"fedmgda", "local", "frl", "e2fl"}
PRIVATE = sorted(set(METHODS) - REFUSED - {"multi-q"})  # multi-q trains q-fedavg several times


def rule_of(name: str):
    return algorithm(f"{EXAMPLES.get(name, name)}+full").rule


def guard_of(rule, public, noise=1.0, adapts=True, **changes) -> Guard:
    equal = has_equal_weights(rule)
    made = {"weight": 1.0 if equal else 3.0, "clip": 0.5, "rows": 30.0, "loss": 0.7, **changes}
    own = ClientGate(noise=noise, cohort=6.0, clients=6.0, adapts=adapts, equal=equal, **made)
    return Guard(own, gate.begin(own, rule, public), jax.random.key(7))


def signals_of(numbers: np.ndarray, returned: np.ndarray) -> Signals:
    """Signals of a cohort from eight numbers for each client, whatever they are."""
    k, numbers = len(numbers), numbers.astype(np.float32)
    table = numbers.reshape(k, 2, 2, 2)
    return Signals(
        client=np.arange(k),
        returned=returned,
        examples=numbers[:, 0],
        loss=numbers[:, 4],
        table=table,
        cell_loss=numbers[:, 4:8].reshape(k, 2, 2),
        valid_table=table,
        unprivileged=numbers[:, 1],
        choice=(np.nan_to_num(numbers[:, 5]) > 0.5).astype(np.int32),
    )


def first_memory(rule, public, signals):
    """What clients remember that take part for the first time."""
    if type(rule).remember is evenly_round.Rule.remember:
        return signals.memory
    return evenly_round._each(lambda own: rule.remember(public, own), signals)


class Recorder:
    """Stands in for the noise: stores every sum and its deviation. Rounds that are traced together
    are all told the releases of the first, so that only what their clients add differs.
    """

    def __init__(self) -> None:
        self.sums, self.deviations = [], []

    def __call__(self, guard, bounds, block, sums, of):
        leaves = jax.tree.leaves(sums)
        limits = [of] * len(leaves) if block == gate.VECTOR else jax.tree.leaves(of)
        self.sums += leaves
        self.deviations += [gate.deviation(guard, bounds, block) * one for one in limits]
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, "rounds")[0], sums)


class NoisedRecorder(Recorder):
    """Adds the noise and stores what is released."""

    add_noise = staticmethod(gate.add_noise)

    def __call__(self, guard, bounds, block, sums, of):
        noised = self.add_noise(guard, bounds, block, sums, of)
        self.sums += jax.tree.leaves(noised)
        return noised


def one_round(rule, public, guard, signals, vectors, recorder: Recorder | None = None):
    """The sums of a round before their noise, its deviations, and the clients' coefficients.
    Without a memory they take part for the first time.
    """
    if not jax.tree.leaves(signals.memory):
        signals = signals._replace(memory=first_memory(rule, public, signals))
    recorder = recorder or Recorder()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(gate, "add_noise", recorder)
        weighing = evenly_round.weigh(rule, public, signals, guard)
        # a vector whose length is not finite in single precision does not count, as in the
        # simulator
        norms = (vectors**2).sum(1)
        finite = jnp.isfinite(norms)
        norms = jnp.where(finite, norms, 0)
        signals = signals._replace(returned=signals.returned & finite, square_norm=norms)
        summed = evenly_round.sum_up(rule, public, weighing, signals, guard)
        shrink = jnp.minimum(1, guard.state.clip / jnp.maximum(jnp.sqrt(norms), 1e-30))
        weight = evenly_round._masked(weighing.weight, signals.returned)
        clean = jnp.where(finite[:, None], vectors, 0) * shrink[:, None]
        total = jnp.tensordot(weight, clean, (0, 0), precision="highest")
        evenly_round.noised(rule, public, total, guard)
    return recorder.sums, recorder.deviations, summed.coefficients


@jax.jit
def two_rounds(rule, public, guard, signals, vectors):
    """Two rounds, whose signals [2, K, ...] differ, in one program for each rule."""
    each = jax.vmap(lambda told: one_round(rule, public, guard, told, vectors), axis_name="rounds")
    return each(signals)


@functools.cache
def begun(name: str, **changes):
    rule = rule_of(name)
    public = rule.begin(CENSUS)
    return rule, public, guard_of(rule, public, **changes)


def shift(name: str, numbers: np.ndarray, vectors: np.ndarray, **changes) -> float:
    """How far the last client moves all releases, in standard deviations of their noise."""
    everyone = np.ones(len(numbers), bool)
    told = [signals_of(numbers, here) for here in (everyone, np.arange(len(numbers)) < 5)]
    return shifted(*begun(name, **changes), told, vectors.astype(np.float32))


def shifted(rule, public, guard, told, vectors) -> float:
    """The distance of the releases of two cohorts, in standard deviations of their noise."""
    sums, deviations, _ = two_rounds(rule, public, guard, trees.stack(told), vectors)
    return float(
        np.sqrt(
            sum(
                ((np.subtract(*np.asarray(both, float)) / size[0]) ** 2).sum()
                for both, size in zip(sums, deviations, strict=True)
            )
        )
    )


WILD = st.one_of(
    st.floats(0, 50, width=32),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e9, -1e9, 1e30, 0.0, -3.0]),
)


@pytest.mark.parametrize("name", PRIVATE)
@settings(max_examples=25, deadline=None)
@given(
    numbers=st.lists(WILD, min_size=48, max_size=48),
    vectors=st.lists(WILD, min_size=18, max_size=18),
)
def test_no_client_moves_the_releases_by_more_than_the_noise_allows(name, numbers, vectors):
    moved = shift(
        name, np.array(numbers, float).reshape(6, 8), np.array(vectors, float).reshape(6, 3)
    )
    assert moved <= 1 + 1e-4


@jax.jit
def played(rule, public, guard, signals, vectors):
    """The public numbers and the gate after a round with noise, and what clients remember."""
    begun = jax.tree.leaves(signals.memory)
    memory = signals.memory if begun else first_memory(rule, public, signals)
    weighing = evenly_round.weigh(rule, public, signals._replace(memory=memory), guard)
    norms = (vectors**2).sum(1)
    told = signals._replace(memory=memory, square_norm=norms)
    summed = evenly_round.sum_up(rule, public, weighing, told, guard)
    short = jax.vmap(lambda own: gate.shorten(own, guard.state.clip))(vectors)
    total = jnp.tensordot(weighing.weight, short, (0, 0), precision="highest")
    total = evenly_round.noised(rule, public, total, guard)
    _, after = evenly_round.step(rule, public, summed, total)
    return after, guard._replace(state=summed.gate), summed.memory


@pytest.mark.further
@pytest.mark.parametrize("name", PRIVATE)
def test_no_client_moves_them_by_more_whatever_was_released_before(name):
    """Later rounds: other public numbers and clips, and any memory of clients."""
    draw = np.random.default_rng(8)

    def any_other(leaf):
        return draw.permuted(np.asarray(leaf) * 10.0 ** draw.integers(5)).astype(leaf.dtype)

    wild = [np.nan, np.inf, -np.inf, 1e9, -1e9, 1e30, -3.0]
    for _ in range(3):
        rule, public, guard = begun(name)
        memory = ()
        for _ in range(3):
            told = signals_of(draw.uniform(0, 50, (6, 8)), np.ones(6, bool))
            guard = guard._replace(key=jax.random.key(draw.integers(2**31)))
            vectors = draw.normal(size=(6, 3)).astype(np.float32)
            public, guard, memory = played(
                rule, public, guard, told._replace(memory=memory), vectors
            )
        for _ in range(5):
            numbers = draw.uniform(0, 50, (6, 8))
            numbers[draw.random((6, 8)) < 0.2] = draw.choice(wild)
            memory = jax.tree.map(any_other, memory)
            told = [signals_of(numbers, here)._replace(memory=memory)
                    for here in (np.ones(6, bool), np.arange(6) < 5)]  # fmt: skip
            vectors = draw.normal(size=(6, 3)).astype(np.float32) * 10.0 ** draw.integers(-3, 4)
            assert 0 < shifted(rule, public, guard, told, vectors) <= 1 + 1e-4


# numbers of a client that reaches all bounds at once, where large numbers alone do not, and of
# the others, where they matter
REACHING = {
    "fairfed": (0, 0, 0, 1e6, 0, 0, 0, 0),  # all rows in one cell, all right
    "fedfb": (1, 1, 1e6, 0.5, 1e6, 1e6, 0.01, 30),
}
OTHERS = {"fairfed": (0, 0, 1, 0, 0, 0, 1, 0)}
# a low cap for rules that favour nobody by much, so that their weights reach it, too
EVEN = ("afl", "p-fedavg", "q-fedavg", "q-fedsgd")


@pytest.mark.parametrize("name", PRIVATE)
def test_the_bound_is_reached(name):
    numbers = np.ones((6, 8)) * OTHERS.get(name, 1)
    numbers[5] = REACHING.get(name, 1e6)
    vectors = np.full((6, 3), 0.1)
    vectors[5] = 1e3
    changes = {"weight": 0.5} if name in EVEN else {}
    assert 0.99 <= shift(name, numbers, vectors, **changes) <= 1 + 1e-4


def test_every_method_is_either_private_or_refused_with_a_reason():
    for name in METHODS:
        text = METHODS[name].example or name
        for variant in [algorithm(text)] if name != "multi-q" else []:
            assert bool(_why_not(variant)) == (name in REFUSED | {"p-fedavg", "afl"}), name


@pytest.mark.parametrize("name", PRIVATE)
def test_a_weight_depends_on_nobody_else_given_the_releases(name):
    numbers = np.random.default_rng(3).uniform(0.1, 9, (6, 8))
    other = numbers.copy()
    other[1:] *= 3.7
    told = [signals_of(each, np.ones(6, bool)) for each in (numbers, other)]
    _, _, found = two_rounds(*begun(name), trees.stack(told), np.zeros((6, 3), np.float32))
    np.testing.assert_array_equal(found[0, 0], found[1, 0])


@jax.jit
def plain_and_guarded(rule, public, guard, signals, vectors):
    """The change and the next public numbers of a round without a gate, and of one with it."""
    if type(rule).remember is not evenly_round.Rule.remember:
        first = evenly_round._each(lambda own: rule.remember(public, own), signals)
        signals = signals._replace(memory=first)
        scale = jnp.log(jnp.mean(jax.tree.leaves(first)[0]))
        guard = guard._replace(state=guard.state._replace(log_scale=scale))
    changes = []
    for own in (None, guard):
        weighing = evenly_round.weigh(rule, public, signals, own)
        summed = evenly_round.sum_up(rule, public, weighing, signals, own)
        total = jnp.tensordot(weighing.weight, vectors, (0, 0), precision="highest")
        if own is not None:
            total = evenly_round.noised(rule, public, total, own)
        changes.append(evenly_round.step(rule, public, summed, total))
    return changes


@pytest.mark.parametrize("name", PRIVATE)
def test_without_noise_and_bounds_a_round_is_the_plain_round(name):
    rule = rule_of(name)
    public = rule.begin(CENSUS)
    guard = guard_of(rule, public, noise=0.0, clip=1e4, rows=5.0, loss=0.7,
                     **({} if has_equal_weights(rule) else {"weight": 1e3}))  # fmt: skip
    guard = guard._replace(state=guard.state._replace(log_scale=jnp.zeros(())))
    numbers = np.random.default_rng(5).integers(1, 9, (6, 8)).astype(float)
    numbers[:, 4:] /= 10
    vectors = np.random.default_rng(6).normal(size=(6, 3)) * 0.1
    signals = signals_of(numbers, np.ones(6, bool))._replace(square_norm=(vectors**2).sum(1))
    changes = plain_and_guarded(rule, public, guard, signals, vectors)
    for plain, private in zip(*map(jax.tree.leaves, changes), strict=True):
        np.testing.assert_allclose(plain, private, atol=1e-6)


def test_worked_numbers_of_the_specification():
    """Fixture T of q-FedAvg with bounds (PRIVACY.md 2.2): C = 0.3, W = 1.5, H = 0.09."""
    losses, v = np.array([0.5, 2.0, 1.0]), np.array([[-0.2, 0.0], [0.0, -0.5], [-0.1, 0.2]])
    rule = algorithm("q-fedavg(q=1, lipschitz=10)").rule
    # guess = W C^2 / H = 1.5; the scale of weights is 1
    own = ClientGate(noise=0.0, weight=1.5, clip=0.3, loss=1.5, rows=1.0, cohort=3.0, clients=3.0)
    guard = Guard(own, GateState(jnp.asarray(0.3), jnp.zeros(())), jax.random.key(0))
    signals = Signals(np.arange(3), np.ones(3, bool), np.ones(3), loss=losses,
                      square_norm=(v**2).sum(1))  # fmt: skip
    weighing = evenly_round.weigh(rule, (), signals, guard)
    np.testing.assert_allclose(weighing.weight, [0.5, 1.5, 1.0], rtol=1e-6)
    summed = evenly_round.sum_up(rule, (), weighing, signals, guard)
    assert summed.totals.weight == pytest.approx(3.0)
    short = v * np.minimum(1, 0.3 / np.linalg.norm(v, axis=1))[:, None]
    total = evenly_round.noised(rule, (), jnp.asarray(weighing.weight @ short), guard)
    np.testing.assert_allclose(total, [-0.2, -0.25], atol=1e-6)
    change, _ = evenly_round.step(rule, (), summed, total)
    # The specification cuts a client's weight but not its part of the damping, whose sum is 0.18.
    # Here both are cut: the client with weight 1.5 instead of 2 adds 1.5 * 0.3**2 / 2.
    damping = 0.04 + 1.5 * 0.09 / 2 + 0.05
    np.testing.assert_allclose(change, total / (3 + 10 * damping), rtol=1e-6)
    specified = total / (3 + 10 * 0.18)
    np.testing.assert_allclose(
        np.array([1, 2]) + specified, [0.9583333333, 1.9479166667], rtol=1e-6
    )


def test_noise_has_the_stated_deviation_and_differs_between_rounds_runs_and_blocks():
    rule = algorithm("fairfed").rule  # three sums before training, and one beside the update
    public = rule.begin(CENSUS)
    own = ClientGate(noise=0.8, weight=3.0, clip=0.5, cohort=100.0, clients=100.0, adapts=True)
    state, seed = GateState(jnp.asarray(0.5), jnp.zeros(())), np.array([0, 9], np.uint32)
    bounds = Guard(own, state, None).bounds(rule, public)
    others = len(jax.tree.leaves((bounds.contributions, bounds.extras))) + 2
    blocks = [*range(rule.stages), gate.VECTOR, gate.WEIGHT, gate.EXTRAS, gate.UNCLIPPED]

    @jax.vmap
    def released(number):
        guard = Guard(own, state, gate.round_key(seed, number, own.tag))
        two = (jnp.zeros(()), jnp.ones(()))  # two sums of a block, one of which is not 0
        noised = [gate.add_noise(guard, bounds, one, two, (1.5, 1.5)) for one in blocks[:-4]]
        noised += [gate.add_noise(guard, bounds, gate.VECTOR, two, 1.5)]
        noised += [gate.add_noise(guard, bounds, one, two, (1.5, 1.5)) for one in blocks[-3:]]
        return jnp.stack(jax.tree.leaves(noised)) - jnp.tile(jnp.arange(2.0), len(blocks))

    draws = np.asarray(released(jnp.arange(10_000)), float)
    shares = np.repeat([0.9 if one == gate.VECTOR else 0.1 / others for one in blocks], 2)
    np.testing.assert_allclose(draws.std(0), 0.8 * 1.5 / np.sqrt(shares), rtol=0.03)
    assert (np.abs(draws.mean(0)) < 4 * draws.std(0) / 100).all()
    # between blocks, between the sums of a block, and between a round and the next
    lagged = np.concatenate([draws[:-1], draws[1:]], axis=1)
    assert np.abs(np.corrcoef(lagged.T) - np.eye(lagged.shape[1])).max() < 0.05
    keys = {
        tuple(np.asarray(jax.random.key_data(gate.round_key(seed, t, tag))).tolist())
        for t in range(50)
        for tag in range(20)
    }
    assert len(keys) == 1000


def lower_bound(inside: np.ndarray, outside: np.ndarray) -> float:
    """Epsilon that scores with and without a client prove with 95 % confidence (Clopper-Pearson) at
    the threshold that half of the trials like best.
    """
    half, best, at = len(inside) // 2, -1.0, 0.0
    for quantile in (0.5, 0.8, 0.9, 0.97, 0.99, 0.997, 0.999, 0.9997):
        threshold = np.quantile(outside[:half], quantile)
        hit = (inside[:half] > threshold).mean()
        alarm = max((outside[:half] > threshold).mean(), 3 / half)
        if hit > 0 and np.log(hit / alarm) > best:
            best, at = np.log(hit / alarm), threshold
    hits, alarms, n = (inside[half:] > at).sum(), (outside[half:] > at).sum(), half
    low = beta.ppf(0.025, hits, n - hits + 1)
    return float(np.log(max(low - DELTA, 1e-300) / beta.ppf(0.975, alarms + 1, n - alarms)))


def released(shift: jax.Array, noise: float, seed: int, bound: float = 1.0) -> np.ndarray:
    """Releases [trials, rounds] of a sum that a client moves by `shift` [trials, rounds], with the
    gate's noise for a bound.
    """
    own = ClientGate(noise=noise, weight=1.0, clip=bound, cohort=20.0, clients=20.0, equal=True)
    keys = jax.random.split(jax.random.key(seed), shift.shape)
    return np.asarray(sums_with_noise(own, jnp.asarray(bound), keys, shift))


@jax.jit
def sums_with_noise(own, bound, keys, shift):
    rule, state = algorithm("fedavg(weights=equal)").rule, GateState(bound, jnp.zeros(()))

    def one(key, moved):
        return evenly_round.noised(rule, (), moved, Guard(own, state, key))

    return jax.vmap(jax.vmap(one))(keys, shift)


def attack(moved: float, noise: float, bound: float = 1.0) -> float:
    """The epsilon that an attacker proves who knows everything but whether a client was there that
    moves the sum by `moved`.
    """
    shift = jnp.full((200_000, 1), moved)
    inside, outside = released(shift, noise, 1, bound), released(0 * shift, noise, 2, bound)
    return lower_bound(inside[:, 0], outside[:, 0])


def moved_under_a_cap(cap: float) -> float:
    """How far one client moves the plain mean by losses if each coefficient is at most `cap`: the
    others' coefficients change, too.
    """

    def mean(losses: np.ndarray, vectors: np.ndarray) -> float:
        share = losses / losses.sum()
        over = share > cap
        rest = share / share[~over].sum() * (1 - cap * over.sum())
        return float(np.where(over, cap, rest) @ vectors)

    few = np.full(4, 0.05)
    return abs(mean(np.append(few, 1e3), np.array([1.0] * 4 + [-1.0])) - mean(few, np.ones(4)))


def test_an_attack_stays_below_the_claim_and_broken_mechanisms_are_caught():
    claimed = epsilon_of(1.0, Releases(1), DELTA)
    assert claimed == pytest.approx(4.377178, abs=1e-5)
    assert 2.49 <= attack(1.0, noise=1.0) < claimed
    assert attack(1.0, noise=0.5) > claimed  # half of the noise
    moved = moved_under_a_cap(0.5)
    assert moved == pytest.approx(1.0, abs=1e-3)
    assert attack(moved, noise=1.0, bound=0.5) > claimed  # a cap taken for a bound


@jax.jit
def whole_releases(rule, public, guard, signals, vectors, keys):
    """All that a round releases, once for each key. [trials, numbers]"""

    def one(key):
        own = guard._replace(key=key)
        sums, _, _ = one_round(rule, public, own, signals, vectors, NoisedRecorder())
        return jnp.concatenate([jnp.ravel(leaf) for leaf in sums])

    return jax.vmap(one)(keys)


def attack_on_a_round(name: str, told: float, noise: float = 1.0) -> float:
    """The epsilon that an attacker proves who sees everything that a round releases, about a client
    that says `told` of itself and reaches all bounds. The gate adds `noise`, and the attacker knows
    all other clients.
    """
    numbers, vectors = np.ones((6, 8)), np.full((6, 3), 0.1, np.float32)
    numbers[5], vectors[5] = told, 1e3
    rule, public, guard = begun(name, weight=0.5)
    cohorts = [signals_of(numbers, here) for here in (np.ones(6, bool), np.arange(6) < 5)]
    sums, deviations, _ = two_rounds(rule, public, guard, trees.stack(cohorts), vectors)
    # the likelihood ratio of two Gaussian releases grows along this direction
    along = np.concatenate([
        np.ravel(np.subtract(*np.asarray(both, float)) / np.asarray(size[0], float) ** 2)
        for both, size in zip(sums, deviations, strict=True)
    ])  # fmt: skip
    guard = guard._replace(gate=replace(guard.gate, noise=noise))
    keys = [jax.random.split(jax.random.key(i), 200_000) for i in (6, 7)]
    scores = [
        np.asarray(whole_releases(rule, public, guard, cohort, vectors, own), float) @ along
        for cohort, own in zip(cohorts, keys, strict=True)
    ]
    return lower_bound(*scores)


@pytest.mark.parametrize("name", ["q-fedavg", pytest.param("p-fedavg", marks=pytest.mark.further)])
def test_an_attack_on_all_that_a_round_releases_stays_below_the_claim(name):
    """Sums before training, vectors, weights, numbers beside the update and the clipped share."""
    claimed = epsilon_of(1.0, Releases(1), DELTA)
    assert 2.49 <= attack_on_a_round(name, 1e6) < claimed
    assert attack_on_a_round(name, 1e6, noise=0.5) > claimed


def test_an_attack_on_twenty_sampled_rounds_stays_below_the_claim():
    rate, noise, shape = 0.2, 0.8, (200_000, 20)
    claimed = epsilon_of(noise, Releases(shape[1], rate=rate), DELTA)
    assert claimed == pytest.approx(9.898, abs=1e-3)
    there = jax.random.bernoulli(jax.random.key(3), rate, shape).astype(float)

    def score(values: np.ndarray) -> np.ndarray:  # logarithm of the likelihood ratio
        return np.log1p(rate * np.expm1((values.astype(float) - 0.5) / noise**2)).sum(1)

    inside, outside = score(released(there, noise, 4)), score(released(0 * there, noise, 5))
    assert 4.27 <= lower_bound(inside, outside) < claimed
    half = score(released(there, noise / 2, 4)), score(released(0 * there, noise / 2, 5))
    assert lower_bound(*half) > lower_bound(inside, outside)


def test_an_adaptive_clip_finds_the_quantile_that_it_is_asked_for():
    rule = algorithm("fedavg(weights=equal)").rule
    lengths = np.random.default_rng(0).uniform(0.5, 1.5, (400, 500))
    for wanted, expected in ((0.5, 1.0), (0.8, 1.3)):
        for start in (0.1, 5.0):
            own = ClientGate(noise=0.0, weight=1.0, clip=start, unclipped=wanted, cohort=500.0,
                       clients=500.0, adapts=True, equal=True)  # fmt: skip
            state = gate.begin(own, rule, ())
            for one in lengths:
                short = (one <= float(state.clip)).sum() - 250.0
                state = gate.advance(
                    Guard(own, state, None), jnp.asarray(500.0), jnp.asarray(short)
                )
            assert float(state.clip) == pytest.approx(expected, rel=0.02)
