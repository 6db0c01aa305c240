"""The round that `evenly.round` derives from rules for one client, against the same rules written
for a whole cohort (`tests.oracles.cohort_rules`), in float64.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.algorithms import (
    afl,
    e2fl,
    fairfed,
    fedavg,
    fedcvg,
    fedcvg_ratio,
    fedfb,
    fedmgda,
    fedsgd,
    frl,
    ifca,
    local,
    p_fedavg,
    q_fedavg,
    term,
)
from evenly.data.federation import Census
from evenly.parts.optimisers import Blend
from evenly.parts.ranking_work import GroupVotes
from evenly.round import is_idle
from evenly.types import Rule, Signals
from tests.aggregation import Played, State, play, remembering, start
from tests.oracles import cohort_rules as before

RULES: dict[str, type[Rule]] = {
    kind.__name__: kind
    for kind in (
        afl.AFL, e2fl.E2FL, fairfed.FairFed, fedavg.FedAvg, fedcvg.FedCvg, fedcvg_ratio.FedCvgRatio,
        fedfb.FedFB, fedmgda.FedMGDA, fedsgd.FedSGD, frl.FRL, ifca.IFCA, local.LocalRule,
        p_fedavg.PFedAvg, q_fedavg.QFedAvg, term.Term,
    )
}  # fmt: skip
GROUPS = 3
# every rule in its settings: both forms are built from the same ones
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("FedAvg", {}),
    ("FedAvg", {"weights": "equal"}),
    ("FedSGD", {}),
    ("FedSGD", {"weights": "equal"}),
    ("FedSGD", {"q": 2.0}),
    ("FedSGD", {"weights": "equal", "q": 1.0}),
    *(("QFedAvg", {"q": q}) for q in (0.0, 0.1, 1.0, 5.0)),
    ("QFedAvg", {"q": 2.0, "lipschitz": 3.0}),
    ("QFedAvg", {"q": 1.0, "scale_update": False}),
    ("QFedAvg", {"q": 0.0, "scale_update": False}),
    ("Term", {"alpha": 1.0}),
    ("Term", {"weights": "equal"}),
    ("Term", {"alpha": 0.7, "weights": "equal", "form": "authors"}),
    ("FedCvg", {"alpha": 0.01}),
    ("FedCvg", {"alpha": 0.01, "weights": "equal"}),
    ("FedCvgRatio", {}),
    ("FedCvgRatio", {"start": "size"}),
    ("FedCvgRatio", {"memory": 0.9}),
    ("FedCvgRatio", {"memory": 0.0, "start": "size"}),
    ("FedCvgRatio", {"renormalise": False}),
    ("FedCvgRatio", {"renormalise": False, "start": "size", "weights": "equal"}),
    ("FedCvgRatio", {"weights": "equal"}),
    ("FedCvgRatio", {"alpha": 3.0}),
    ("FairFed", {}),
    ("FairFed", {"metric": "spd"}),
    ("FairFed", {"metric": "accuracy"}),
    ("FairFed", {"beta": 0.05, "clamp": False}),
    ("FairFed", {"beta": 3.0, "clamp": False}),
    ("FairFed", {"carry": "normalised"}),
    ("FairFed", {"carry": "normalised", "clamp": False, "beta": 0.2}),
    ("FairFed", {"form": "exponential"}),
    ("FairFed", {"form": "exponential", "weights": "equal", "beta": 4.0}),
    ("FairFed", {"weights": "equal"}),
    ("FairFed", {"measured_on": "valid"}),
    ("FairFed", {"measured_on": "valid", "form": "exponential"}),
    ("FairFed", {"measured_on": "valid", "carry": "normalised", "metric": "spd"}),
    ("FedFB", {}),
    ("FedFB", {"weights": "equal"}),
    ("FedFB", {"alpha": 0.01}),
    ("IFCA", {"groups": GROUPS}),
    ("IFCA", {"groups": GROUPS, "weights": "equal"}),
    ("E2FL", {"groups": GROUPS}),
    ("FRL", {}),
    ("LocalRule", {}),
    *(("AFL", {"form": form, "rate_lambda": 0.05}) for form in afl.FORMS),
    *(("AFL", {"form": form, "rate_lambda": 0.5}) for form in afl.FORMS),
    *(("PFedAvg", {"family": family}) for family in p_fedavg.FAMILIES),
    ("PFedAvg", {"family": "arithmetic", "first": 0.3, "difference": 0.7}),
    ("PFedAvg", {"ties": "order"}),
    ("PFedAvg", {"sort_key": "n"}),
    ("PFedAvg", {"sort_key": "n", "ties": "order", "family": "geometric", "ratio": 0.9}),
    ("PFedAvg", {"weights": "size"}),
    ("FedMGDA", {}),
    ("FedMGDA", {"epsilon": 1.0, "weights": "equal", "server_rate": 0.3}),
]  # fmt: skip
CLIENTS, K, ROUNDS = 9, 6, 6
TOLERANCE = {"FedMGDA": 1e-11}  # which iterates
EACH = pytest.mark.parametrize(
    "kind, settings", VARIANTS, ids=[f"{kind}-{list(s.values())}" for kind, s in VARIANTS]
)


def made(kind: str, settings: dict[str, Any]) -> Rule:
    return RULES[kind](**settings)


class Case(NamedTuple):
    """A federation and some rounds of it."""

    census: Census
    rounds: list[tuple[dict[str, np.ndarray], np.ndarray]]  # signals and vectors


def drawn_case(seed: int) -> Case:
    """Rounds in which some clients are absent; client 8 is never seen, and in every third case
    there are six clients, who all return in the first round.

    Some groups of people have no rows at some clients, some clients hold nothing out, some losses
    are equal, and in one round nobody returns.
    """
    draw = np.random.default_rng(seed)
    everyone = seed % 3 == 0
    clients = K if everyone else CLIENTS
    cells = draw.integers(0, 25, (clients, GROUPS, 3)) * (draw.random((clients, GROUPS, 3)) < 0.8)
    cells[:, 2, 1] += 1  # nobody is empty
    cells[0] += 1  # and both sides exist
    census = Census(cells.sum((1, 2)), cells, unprivileged=(0, 2), favourable=1)
    rounds = []
    for t in range(ROUNDS):
        who = draw.permutation(clients if everyone else CLIENTS - 1)[:K]
        returned = draw.random(K) < (0.4, 0.9)[t % 2]
        returned[draw.integers(K)] = True
        returned[:] = True if everyone and t == 0 else (False if t == 3 else returned)
        tables = draw.multinomial(cells[who], [0.5, 0.3, 0.2])
        held_out = draw.multinomial(cells[who] // 2, [0.2, 0.5, 0.3])
        held_out[draw.random(K) < 0.3] = 0
        losses = draw.gamma(2.0, 0.6, K) + 0.01
        signals = {
            "client": who,
            "returned": returned,
            "examples": census.examples[who].astype(float),
            "loss": np.ceil(losses * 3) / 3 if t % 2 else losses,
            "table": tables.astype(float),
            "valid_table": held_out.astype(float),
            "cell_loss": cells[who] * draw.gamma(2.0, 0.5, cells[who].shape),
            "unprivileged": census.unprivileged_rows[who].astype(float),
            "choice": draw.integers(0, GROUPS, K),
            "chance": draw.random(2),
        }
        rounds.append((signals, draw.normal(size=(K, 5))))
    return Case(census, rounds)


def begun(rule: Rule, census: Census) -> State:
    """Memories of nine clients in every case, so that all of them are one program."""
    most = Census(np.ones(CLIENTS), np.ones((CLIENTS, *census.cells.shape[1:]), int))
    return State(start(rule, census).public, start(rule, most).memory)


_played = jax.jit(play)


def played(rule: Rule, state: State, signals: Signals, vectors: Any, counted: Any = True) -> Played:
    """A round, in the same program whoever drops out after weighing."""
    return _played(rule, state, signals, vectors, np.full(len(vectors), True) & counted)


CASES = [drawn_case(seed) for seed in range(4)]


def test_the_cases_have_everybody_nobody_one_and_clients_that_come_late():
    counts = {int(s["returned"].sum()) for case in CASES for s, _ in case.rounds}
    assert {0, 1, K} <= counts
    everyone = CASES[0].rounds[0][0]
    assert len(CASES[0].census.examples) == everyone["returned"].sum() == K
    seen: set[int] = set()
    late = []
    for signals, _ in CASES[1].rounds:
        here = set(signals["client"][signals["returned"]].tolist())
        late.append(bool(here - seen))
        seen |= here
    assert late[1], "a client returns for the first time in a later round"
    assert 8 not in seen


class Differences(NamedTuple):
    """Largest differences from the old rule, each as a share of the largest number compared."""

    coefficients: float = 0.0
    change: float = 0.0
    kept: float = 0.0  # public numbers and memories


def far(found: Any, expected: Any) -> float:
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape
    apart = np.abs(found - expected).max(initial=0.0)
    return float(apart / max(np.abs(expected).max(initial=0.0), 1e-300))


def farthest(found: list[Any], expected: list[Any]) -> float:
    return max((far(*pair) for pair in zip(found, expected, strict=True)), default=0.0)


def parts(change: Any) -> list[Any]:
    """The arrays of a change of either form."""
    if isinstance(change, Blend | before.Blended | GroupVotes | before.Votes):
        return list(change)
    return [change]


def kept(rule: Any, state: Any, clients: np.ndarray) -> list[Any]:
    """What an old rule kept, as far as rounds depend on it."""
    match state:
        case before.FairFedState():
            return [state.raw[clients]] if rule.form == "additive" else []
        case before.Averages():
            return [state.weight[clients]]
        case before.Balance():
            return [state.unfavourable, state.rounds]
        case np.ndarray():
            return [state[clients]]
    return [state] if isinstance(rule, before.Term) and rule.form == "authors" else []


def kept_now(rule: Rule, state: State, clients: np.ndarray) -> list[Any]:
    memories = [leaf[clients] for leaf in jax.tree.leaves(state.memory.value)[:1]]
    if isinstance(rule, fedfb.FedFB):
        return [state.public.unfavourable, state.public.rounds]
    return [state.public] if isinstance(rule, term.Term) and rule.whole_cohort else memories


def compared(kind: str, settings: dict[str, Any], case: Case) -> Differences:
    """Play the rounds of a case by both forms of a rule."""
    rule, old = made(kind, settings), getattr(before, kind)(**settings)
    worst = Differences()
    with jax.enable_x64(True):
        state, old_state = begun(rule, case.census), old.init(case.census)
        for told, vectors in case.rounds:
            after = {"gram": vectors @ vectors.T, "square_norm": (vectors**2).sum(1)}
            found = played(rule, state, Signals(**told, **after), vectors)
            state = found.state
            signals = before.Signals(**told, gram=after["gram"])
            expected, old_state = old.weigh(old_state, signals)
            effort = before.Effort(after["square_norm"])
            change, old_state = old.step(old_state, signals, effort, expected @ vectors)
            seen = np.flatnonzero(state.memory.seen)
            differences = Differences(
                far(found.summed.coefficients.T, expected),
                farthest(parts(found.change), parts(change)),
                farthest(kept_now(rule, state, seen), kept(old, old_state, seen)),
            )
            worst = Differences(*map(max, worst, differences))
            if hasattr(rule, "report"):
                assert rule.report(state.public) == old.report(old_state)  # pyright: ignore[reportAttributeAccessIssue]
    return worst


@EACH
def test_the_derived_round_is_the_rule_for_a_whole_cohort(kind: str, settings: dict[str, Any]):
    for case in CASES:
        worst = compared(kind, settings, case)
        assert max(worst) <= TOLERANCE.get(kind, 1e-12), worst


def one_played(rule: Rule, state: State, **told: Any) -> Any:
    """A round of a few clients whose vectors are rows of the unit matrix, so that the change holds
    the factors of the vectors.
    """
    count = len(told["examples"])
    with jax.enable_x64(True):
        signals = Signals(**{"client": np.arange(count), "returned": np.ones(count, bool), **told})
        return jax.tree.map(np.asarray, played(rule, state, signals, np.eye(count)))


@pytest.mark.parametrize("settings", [{}, {"clamp": False}, {"carry": "normalised"}])
def test_a_fairfed_cohort_whose_weights_are_all_0_is_left_to_sizes_as_before(settings: dict):
    rule, old = fairfed.FairFed(**settings), before.FairFed(**settings)
    told = {"examples": np.array([6.0, 2.0]), "table": np.ones((2, 2, 2, 2))}
    found = one_played(rule, remembering(rule, np.zeros(2)), **told)
    census = Census(np.array([6, 2]), np.ones((2, 2, 2), int))
    weights, state = old.weigh(
        old.init(census)._replace(raw=np.zeros(2)),
        before.Signals(client=np.arange(2), returned=np.ones(2, bool), **told),
    )
    np.testing.assert_array_equal(found.summed.coefficients, [0.75, 0.25])
    np.testing.assert_array_equal(weights, [0.75, 0.25])
    np.testing.assert_array_equal(found.state.memory.value, state.raw)


# Where they are meant to differ: what cannot be told from sums over clients, or is simpler so.


@pytest.mark.parametrize("weights", ["size", "equal"])
def test_a_fedfb_cohort_none_of_whose_rows_count_changes_nothing_where_sizes_decided_before(
    weights: str,
):
    tables = np.zeros((2, 2, 2, 2))
    tables[:, :, 0] = [[[3, 0], [0, 1]], [[4, 0], [0, 4]]]  # no row has the favourable label
    told = {"examples": np.array([4.0, 8.0]), "table": tables, "cell_loss": np.ones((2, 2, 2))}
    rule, old = fedfb.FedFB(weights=weights), before.FedFB(weights=weights)
    state = remembering(rule, clients=2, unfavourable=np.zeros(2), rounds=np.array(1.0))
    found = one_played(rule, state, **told)
    assert not found.summed.coefficients.any()
    assert not found.change.any()
    assert found.state.public.rounds == 1
    census = Census(np.array([4, 8]), tables.sum(3).astype(int))
    expected, _ = old.weigh(
        old.init(census)._replace(unfavourable=np.zeros(2)),
        before.Signals(client=np.arange(2), returned=np.ones(2, bool), **told),
    )
    np.testing.assert_allclose(expected, [1 / 3, 2 / 3] if weights == "size" else 0.5)


def test_a_client_in_two_slots_counts_as_two_clients_for_afl_where_it_was_one_before():
    rule, old = afl.AFL(form="local"), before.AFL(form="local")
    told = {
        "client": np.array([0, 1, 1]), "examples": np.ones(3), "loss": np.array([0.5, 2.0, 2.0])
    }  # fmt: skip
    census = Census(np.ones(4), np.ones((4, 2, 2), int))
    with jax.enable_x64(True):
        found = one_played(rule, start(rule, census), **told)
    # lambda is 1/4: the slots together keep their mass of 3/4, 0.25 + 0.1 F - 0.15
    np.testing.assert_allclose(found.weighing.memory, [0.15, 0.3, 0.3], atol=1e-12)
    np.testing.assert_allclose(found.summed.coefficients, [0.2, 0.4, 0.4], atol=1e-12)
    np.testing.assert_allclose(found.state.memory.value[:2], [0.15, 0.3], atol=1e-12)
    weights, lambdas = old.weigh(
        old.init(census), before.Signals(returned=np.ones(3, bool), **told)
    )
    # before: two clients kept a mass of 1/2
    np.testing.assert_allclose(lambdas, [0.175, 0.325, 0.25, 0.25], atol=1e-12)
    np.testing.assert_allclose(weights, np.array([0.175, 0.325, 0.325]) / 0.825, atol=1e-12)


# Who drops out, and rounds without anybody.


def told_to(seed: int = 1, **changed: Any) -> tuple[Signals, np.ndarray, Census]:
    """A round of six clients that all returned."""
    case = drawn_case(seed)
    signals, vectors = case.rounds[0]
    signals = {**signals, "returned": np.ones(K, bool), **changed}
    after = {"gram": vectors @ vectors.T, "square_norm": (vectors**2).sum(1)}
    return Signals(**signals, **after), vectors, case.census


OWN_ONLY = [
    (kind, settings)
    for kind, settings in VARIANTS
    if not (made(kind, settings).stages or made(kind, settings).whole_cohort)
]
IN_STAGES = [(kind, settings) for kind, settings in VARIANTS if made(kind, settings).stages]
GONE = np.array([True, False, True, True, False, True])


@pytest.mark.parametrize("kind, settings", OWN_ONLY, ids=str)
def test_who_drops_out_after_weighing_leaves_the_round_of_the_others(kind: str, settings: dict):
    signals, vectors, census = told_to()
    rule = made(kind, settings)
    with jax.enable_x64(True):
        late = played(rule, begun(rule, census), signals, vectors, counted=GONE)
        absent = played(rule, begun(rule, census), signals._replace(returned=GONE), vectors)
    for found, expected in zip(
        jax.tree.leaves((late.change, late.summed.coefficients, late.state)),
        jax.tree.leaves((absent.change, absent.summed.coefficients, absent.state)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)
    assert not late.summed.coefficients[~GONE].any()


@pytest.mark.parametrize("kind, settings", IN_STAGES, ids=str)
def test_with_stages_sums_are_of_those_who_measured_and_the_division_of_those_who_returned(
    kind: str, settings: dict
):
    signals, vectors, census = told_to()
    rule = made(kind, settings)
    with jax.enable_x64(True):
        everyone = played(rule, begun(rule, census), signals, vectors)
        late = played(rule, begun(rule, census), signals, vectors, counted=GONE)
    for found, expected in zip(
        jax.tree.leaves(late.summed.sums), jax.tree.leaves(everyone.summed.sums), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    weight = np.where(GONE, everyone.weighing.weight, 0.0)
    divisor = 1.0 if settings.get("renormalise") is False else weight.sum()
    np.testing.assert_allclose(late.summed.coefficients, weight / divisor, rtol=1e-13)
    vector = late.change.total if isinstance(late.change, Blend) else late.change
    np.testing.assert_allclose(vector, weight @ vectors / divisor, rtol=1e-12, atol=1e-13)


@EACH
def test_a_round_in_which_nobody_returns_has_coefficients_of_0(kind: str, settings: dict):
    signals, vectors, census = told_to(returned=np.zeros(K, bool))
    rule = made(kind, settings)
    with jax.enable_x64(True):
        state = begun(rule, census)
        found = played(rule, state, signals, vectors)
        assert is_idle(found.summed)
    assert all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(found.change))
    for after, earlier in zip(jax.tree.leaves(found.state), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(after, earlier)


@EACH
def test_numbers_of_clients_that_did_not_return_are_not_read(kind: str, settings: dict):
    """A client that broke may report anything, such as NaN."""
    signals, vectors, census = told_to()
    vectors = np.where(GONE[:, None], vectors, 0)
    gram = vectors @ vectors.T
    broken = {
        name: np.where(GONE.reshape(K, *(1,) * (value.ndim - 1)), value, np.nan)
        for name, value in signals._asdict().items()
        if name in {"loss", "table", "valid_table", "cell_loss", "square_norm"}
    }
    rule = made(kind, settings)
    with jax.enable_x64(True):
        found, expected = (
            played(rule, begun(rule, census), told._replace(returned=GONE, gram=gram), vectors)
            for told in (signals._replace(**broken), signals)
        )
    for left, right in zip(
        jax.tree.leaves((found.change, found.summed.coefficients, found.state)),
        jax.tree.leaves((expected.change, expected.summed.coefficients, expected.state)),
        strict=True,
    ):
        np.testing.assert_array_equal(left, right)


# Single precision.

COUNTS = np.array([100_000.0, 99_700.0, 99_990.0, 80_000.0])
EXPONENTS = {
    "FedCvg with 100,000 rows": (fedcvg.FedCvg(alpha=0.01), {"unprivileged": COUNTS}),
    "FedCvg with one row that decides": (fedcvg.FedCvg(alpha=10.0), {"unprivileged": COUNTS}),
    "TERM": (term.Term(alpha=500.0), {"loss": np.array([8.0, 7.996, 2.0, 7.999])}),
    "TERM of its authors": (
        term.Term(alpha=500.0, weights="equal", form="authors"),
        {"loss": np.array([8.0, 7.996, 2.0, 7.999])},
    ),
    "TERM with losses of a model that diverges": (
        term.Term(alpha=50.0), {"loss": np.array([1e30, 3e4, 1.0, 2.0])}
    ),
    "q-FedAvg with small losses": (
        q_fedavg.QFedAvg(q=15.0), {"loss": np.array([1e-4, 1.1e-4, 0.8e-4, 1e-5])}
    ),
    "q-FedAvg with large losses": (
        q_fedavg.QFedAvg(q=15.0), {"loss": np.array([1e4, 1.1e4, 0.9e4, 20.0])}
    ),
    "q-FedAvg with both": (
        q_fedavg.QFedAvg(q=15.0), {"loss": np.array([1e4, 1e-4, 1.05e4, 1.0])}
    ),
    "FairFed exponential": (
        fairfed.FairFed(form="exponential", beta=3000.0),
        {"table": np.random.default_rng(0).integers(1, 9, (4, 2, 2, 2)).astype(float)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPONENTS)
def test_exponents_of_thousands_are_finite_in_single_precision(name: str):
    rule, told = EXPONENTS[name]
    vectors = np.array([[0.1, -0.2], [0.3, 0.1], [-0.1, 0.4], [0.2, 0.2]])
    found = {}
    for wide in (False, True):
        with jax.enable_x64(wide):
            kind = jnp.float64 if wide else jnp.float32
            numbers = {"examples": np.array([4.0, 3.0, 2.0, 1.0]), **told}
            signals = Signals(
                client=np.arange(4),
                returned=np.ones(4, bool),
                **{field: jnp.asarray(value, kind) for field, value in numbers.items()},
                square_norm=jnp.asarray((vectors**2).sum(1), kind),
            )
            census = Census(np.arange(1, 5), np.ones((4, 2, 2), int))
            one = _played(rule, start(rule, census), signals, jnp.asarray(vectors, kind))
            found[wide] = one.summed.coefficients, one.change
            assert one.change.dtype == kind
    for narrow, wide in zip(found[False], found[True], strict=True):
        assert np.isfinite(narrow).all()
        np.testing.assert_allclose(narrow, wide, rtol=0, atol=1e-5)
    assert found[True][0].any()
