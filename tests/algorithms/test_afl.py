import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenly.algorithms import algorithm
from evenly.algorithms.afl import AFL, _edges
from evenly.algorithms.weights import project
from evenly.data.federation import Census
from evenly.metrics import idle_rounds
from evenly.parts.optimisers import AveragingServer
from evenly.parts.work import FullGradient
from evenly.round import weigh
from evenly.types import Signals, Totals
from tests.aggregation import (
    GRADIENTS,
    LOSSES,
    RATE,
    TRAINED,
    Outcome,
    Round,
    W,
    aggregate,
    rates,
    remembering,
    rounds,
)
from tests.oracles import fair
from tests.simulations import Simulated, flat

FORMS = pytest.mark.parametrize("form", ["full", "local", "stochastic", "per-domain"])
chances = st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2)
points = arrays(np.float64, 4, elements=st.floats(-3, 3))


def nearest(y: np.ndarray, mask: list[bool] | None = None, mass: float = 1.0) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(
            project(jnp.asarray(y), jnp.asarray([True] * len(y) if mask is None else mask), mass)
        )


def test_worked_example_full():
    # w: (1, 2) - 0.1 (1, 1).  lambda: 1/3 + 0.1 F = (0.3833, 0.5333, 0.4333), sum 1.35, each less
    # 0.35 / 3.
    found = aggregate(AFL(rate_lambda=0.1), W, TRAINED, losses=LOSSES)
    np.testing.assert_allclose(found.model, [0.9, 1.9], atol=1e-8)
    np.testing.assert_allclose(found.weights, 1 / 3)
    np.testing.assert_allclose(found.memory, [0.2666666667, 0.4166666667, 0.3166666667], atol=1e-8)
    oracle = fair.afl_full(W, GRADIENTS, LOSSES, np.ones(3) / 3, RATE, 0.1)
    np.testing.assert_allclose(oracle.model, [0.9, 1.9], atol=1e-8)
    np.testing.assert_allclose(
        oracle.lambdas, [0.2666666667, 0.4166666667, 0.3166666667], atol=1e-8
    )


def test_worked_example_local():
    # equal sizes: an equal start
    found = aggregate(AFL(form="local", rate_lambda=0.1), W, TRAINED, losses=LOSSES)
    np.testing.assert_allclose(found.model, [0.915, 1.855], atol=1e-8)
    np.testing.assert_allclose(
        fair.afl_local(TRAINED, LOSSES, np.ones(3) / 3, 0.1).model, [0.915, 1.855], atol=1e-8
    )


def test_worked_projection_and_the_faulty_rule_is_not_reproduced():
    y = np.array([0.9, 0.55, 0.2])
    np.testing.assert_allclose(nearest(y), [0.675, 0.325, 0], atol=1e-12)
    np.testing.assert_allclose(fair.project(y), [0.675, 0.325, 0], atol=1e-12)  # pyright: ignore[reportArgumentType, reportCallIssue]
    faulty = fair.faulty_project(y)
    np.testing.assert_allclose(faulty, [0.6833333333, 0.3333333333, 0], atol=1e-8)
    assert faulty.sum() == pytest.approx(1.0166666667, abs=1e-9)


@given(points, st.lists(st.booleans(), min_size=4, max_size=4), st.floats(0.01, 2))
def test_projection_is_the_nearest_point_of_the_simplex(
    y: np.ndarray, mask: list[bool], mass: float
):
    found = nearest(y, mask, mass)
    assert (found >= 0).all()
    assert not found[~np.array(mask)].any()
    if any(mask):
        np.testing.assert_allclose(found[mask], fair.project(y[mask], mass), atol=1e-9)  # pyright: ignore[reportArgumentType, reportCallIssue]
        np.testing.assert_allclose(nearest(found, mask, mass), found, atol=1e-9)  # idempotent
    else:
        assert not found.any()


@FORMS
@given(
    case=rounds((4,)),
    rate=rates,
    chance=chances,
    returned=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_lambda_stays_on_the_simplex_and_those_not_seen_keep_theirs(
    case: Round, rate: float, chance: tuple, returned: list, form: str
):
    rule, state, lambdas = AFL(form=form, rate_lambda=rate), None, np.zeros(4)
    before = lambdas
    for seen in ([True] * 4, returned):
        before = lambdas
        given = {
            "losses": case.losses,
            "sizes": case.sizes,
            "returned": seen,
            "chance": chance,
            "state": state,
        }
        found = aggregate(rule, case.received, case.trained, **given)
        state, lambdas = found.state, found.memory
        assert (lambdas >= 0).all()
        assert lambdas.sum() == pytest.approx(1, abs=1e-9)
    unseen = ~np.array(returned)
    np.testing.assert_array_equal(lambdas[unseen], before[unseen])
    assert lambdas[~unseen].sum() == pytest.approx(before[~unseen].sum(), abs=1e-9)


@given(rounds((4,)), rates, st.sampled_from(["full", "local"]))
def test_two_rounds_are_the_papers(case: Round, rate: float, form: str):
    rule = AFL(form=form, rate_lambda=rate)
    lambdas = case.sizes / case.sizes.sum() if form == "local" else np.ones(4) / 4
    state = None
    for _ in range(2):
        found = aggregate(
            rule, case.received, case.trained, losses=case.losses, sizes=case.sizes, state=state
        )
        state = found.state
        if form == "full":
            expected = fair.afl_full(
                case.received, case.received - case.trained, case.losses, lambdas, 1.0, rate
            )
        else:
            expected = fair.afl_local(case.trained, case.losses, lambdas, rate)
        lambdas = expected.lambdas
        np.testing.assert_allclose(found.model, expected.model, atol=1e-8)
        np.testing.assert_allclose(found.memory, expected.lambdas, atol=1e-8)


@given(rounds((4,)), rates, chances)
def test_stochastic_draws_one_client_for_the_model_and_one_for_lambda(
    case: Round, rate: float, chance: tuple
):
    found = aggregate(
        AFL(form="stochastic", rate_lambda=rate),
        case.received,
        case.trained,
        losses=case.losses,
        chance=chance,
    )
    k, j = (int(c * 4) for c in chance)  # lambda starts equal
    expected = fair.afl_stochastic(case.trained, case.losses, np.ones(4) / 4, rate, k, j)
    np.testing.assert_allclose(found.model, expected.model, atol=1e-8)
    np.testing.assert_allclose(found.memory, expected.lambdas, atol=1e-8)


def test_stochastic_draws_in_proportion_to_lambda_and_never_who_has_none():
    draw, rule = np.random.default_rng(0), AFL(form="stochastic")
    state, drawn = remembering(rule, np.array([0.0, 0.7, 0.3, 0.0])), np.zeros(4)
    # single precision may round a chance up to 1
    for chance in [(0.0, 0.0), (1.0, 1.0), *draw.random((300, 2))]:
        drawn += aggregate(rule, np.zeros(2), np.ones((4, 2)), chance=chance, state=state).weights
    assert drawn[0] == drawn[3] == 0
    assert drawn[1] / drawn.sum() == pytest.approx(0.7, abs=0.08)  # three standard deviations


@FORMS
def test_a_cohort_whose_lambdas_are_all_0_counts_nobody_and_changes_nothing(form: str):
    """The stochastic form let client 0 count here, whenever it was in the cohort, although its λ
    was 0.
    """
    rule, lambdas = AFL(form=form), np.array([0.0, 0.0, 0.3, 0.7])
    for chance in [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)]:
        cohort = {"losses": [1.0, 2.0], "clients": [0, 1], "everyone": np.ones(4), "chance": chance}
        found = aggregate(rule, W, TRAINED[:2], state=remembering(rule, lambdas), **cohort)
        np.testing.assert_array_equal(found.weights, 0)
        np.testing.assert_array_equal(found.model, W)
        np.testing.assert_array_equal(found.memory, lambdas)


def test_rounds_whose_clients_all_have_lambda_0_are_counted(simulated: Simulated):
    """A large step of λ leaves it with few clients, so that later cohorts of two hold
    none of it.
    """
    trace = simulated("afl(form=local, rate_lambda=100)+uniform(clients=2)", 40)
    empty = [t for t in range(40) if not trace.weights[t].any()]
    assert empty
    assert idle_rounds(trace) == len(empty)
    assert idle_rounds(simulated("afl(form=local, rate_lambda=0)+uniform(clients=2)", 40)) == 0


def test_stochastic_counts_only_those_who_returned():
    # Clients 0 and 2 of four returned, with mass 1/2; the second chance picks client 2: its lambda
    # climbs by 0.01 * 2 * F_2.
    returned, losses = [True, False, True, False], [1.0, 9.0, 3.0, 9.0]
    found = aggregate(
        AFL(form="stochastic", rate_lambda=0.01),
        W,
        np.ones((4, 2)),
        losses=losses,
        returned=returned,
        chance=(0.1, 0.9),
    )
    np.testing.assert_allclose(found.weights, [1, 0, 0, 0])
    np.testing.assert_allclose(found.memory, [0.25 - 0.03, 0.25, 0.25 + 0.03, 0.25])


@FORMS
@given(rate=rates)
def test_equal_losses_leave_lambda_where_it_is(rate: float, form: str):
    sizes = np.array([1, 5, 3, 7])
    start = aggregate(
        AFL(form=form, rate_lambda=0.0), np.zeros(2), np.ones((4, 2)), sizes=sizes
    ).memory
    if form != "stochastic":  # which sees one loss at a time
        after = aggregate(
            AFL(form=form, rate_lambda=rate),
            np.zeros(2),
            np.ones((4, 2)),
            sizes=sizes,
            losses=np.full(4, 1.7),
        ).memory
        np.testing.assert_allclose(after, start, atol=1e-12)
    expected = sizes / sizes.sum() if form == "local" else np.full(4, 0.25)
    np.testing.assert_allclose(start, expected, atol=1e-12)


@FORMS
def test_a_single_client_is_plain_descent(form: str):
    found = aggregate(AFL(form=form), W, TRAINED[:1], losses=[3.0])
    np.testing.assert_allclose(found.model, TRAINED[0])
    np.testing.assert_allclose(found.memory, [1.0])


def repeated(rule: AFL, count: int) -> Outcome:
    """Rounds at the same model, so that the losses never change."""
    found, draw = aggregate(rule, W, TRAINED, losses=LOSSES), np.random.default_rng(1)
    for _ in range(count):
        found = aggregate(rule, W, TRAINED, losses=LOSSES, state=found.state, chance=draw.random(2))
    return found


@pytest.mark.parametrize("form", ["full", "local"])
def test_at_a_frozen_model_lambda_ends_at_the_worst_client(form: str):
    found = repeated(AFL(form=form, rate_lambda=0.1), 40)
    np.testing.assert_allclose(found.memory, [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(found.model, TRAINED[1], atol=1e-12)


def test_a_client_in_two_slots_counts_twice_and_keeps_the_mass_of_the_slots():
    """The slots are projected to what they hold together, 3/4. A rule for one client cannot tell
    that two of them are the same client, so that lambda may sum to less than 1 afterwards; only its
    shares count.
    """
    found = aggregate(
        AFL(form="local"),
        W,
        TRAINED[[0, 1, 1]],
        losses=LOSSES[[0, 1, 1]],
        clients=[0, 1, 1],
        everyone=np.ones(4),
    )
    np.testing.assert_allclose(found.memory, [0.15, 0.3, 0.25, 0.25])
    np.testing.assert_allclose(found.weights, [0.2, 0.4, 0.4])


def test_the_stochastic_form_draws_and_moves_a_client_in_two_slots_once():
    found = aggregate(
        AFL(form="stochastic", rate_lambda=0.01),
        W,
        TRAINED[[0, 1, 1]],
        losses=LOSSES[[0, 1, 1]],
        clients=[0, 1, 1],
        everyone=np.ones(4),
        chance=(0.9, 0.9),
    )
    assert found.memory.sum() == pytest.approx(1)
    # of the two clients that are there, client 1 climbs by 0.01 * 2 * F_1
    np.testing.assert_allclose(found.memory, [0.25 - 0.02, 0.25 + 0.02, 0.25, 0.25])
    np.testing.assert_allclose(found.weights, [0, 0.5, 0.5])


def test_a_fixed_lambda_is_fedsgd(simulated: Simulated):
    fixed, plain = (
        simulated("afl(rate_lambda=0, served=last)+full", 6),
        simulated("fedsgd(weights=equal)+full", 6),
    )
    np.testing.assert_allclose(flat(fixed.model), flat(plain.model), atol=1e-6)
    np.testing.assert_allclose(fixed.weights, 1 / 6, atol=1e-7)


def test_per_domain_with_whole_batches_is_the_full_form(simulated: Simulated):
    every, full = simulated("afl(form=per-domain, batch_size=64)+full", 6), simulated("afl+full", 6)
    np.testing.assert_allclose(flat(every.model), flat(full.model), atol=1e-6)
    np.testing.assert_allclose(every.weights, full.weights, atol=1e-6)


def test_forms_choose_work_and_what_is_served():
    full, local, stochastic, every = (
        algorithm(f"afl(form={form})") for form in ("full", "local", "stochastic", "per-domain")
    )
    assert isinstance(full.work, FullGradient)
    assert (
        local.work.epochs,
        local.work.max_steps,
        stochastic.work.max_steps,
        every.work.max_steps,
    ) == (1, 0, 1, 1)
    assert isinstance(every.server, AveragingServer)
    assert isinstance(full.server, AveragingServer)
    assert isinstance(stochastic.server, AveragingServer)
    assert local.server is algorithm("afl(served=last)").server is None
    assert isinstance(algorithm("afl(form=local, served=mean)").server, AveragingServer)
    assert algorithm("afl(form=stochastic, max_steps=3)").work.max_steps == 3
    inner = algorithm("afl+server-adam").server
    assert inner.inner.optimiser.kind == "adam"  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]


def test_what_clients_reveal_follows_the_form():
    assert algorithm("afl").rule.needs == {"loss"}
    assert algorithm("afl(form=per-domain)").rule.needs == {"loss"}
    # lambda starts at n_k / n
    assert algorithm("afl(form=local)").rule.needs == {"loss", "examples"}
    assert algorithm("afl(form=stochastic)").rule.needs == {"loss", "chance"}


def test_a_local_optimiser_goes_with_local_epochs_only():
    assert algorithm("afl(form=local)+local-momentum").work.optimiser == "momentum"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(
        ValueError,
        match=(
            r"^afl: clients take one full-gradient step and have no local optimiser, got"
            r" 'local-momentum'\.$"
        ),
    ):
        algorithm("afl+local-momentum")


@pytest.mark.parametrize(
    "text, sentence",
    [
        (
            "afl(form=fast)",
            r"form must be one of full, local, stochastic, per-domain, got 'fast'\.",
        ),
        ("afl(rate_lambda=-1)", r"rate_lambda must be at least 0, got -1\. Meaning: .*"),
        ("afl(served=best)", r"served must be 'mean' or 'last', got 'best'\."),
        ("afl(epochs=3)", r"epochs has no effect with these settings; leave it out\."),
    ],
)
def test_mistakes_are_refused(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^afl: {sentence}( Meaning: .*)?$"):
        algorithm(text)
    assert isinstance(algorithm("afl", epochs=3).work, FullGradient), (
        "a common setting applies where it has a use"
    )


# With a histogram in place of twelve sums.


@pytest.mark.parametrize("form", ["full", "local"])
def test_a_histogram_is_exact_where_nobody_ends_at_0(form: str):
    exact, binned = (
        aggregate(AFL(form=form, bins=bins), W, TRAINED, losses=LOSSES) for bins in (0, 8)
    )
    np.testing.assert_allclose(binned.model, exact.model, atol=1e-6)
    np.testing.assert_allclose(binned.memory, exact.memory, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(4, 2), (40, 16)]), st.floats(0.1, 10))
def test_a_histogram_is_off_by_at_most_the_width_of_a_bin(
    seed: int, shape: tuple[int, int], start: float
):
    """The sum of max(target - e, 0) is exact at every edge, so that the threshold lies between the
    right two.
    """
    draw, (clients, bins) = np.random.default_rng(seed), shape
    lambdas, losses = draw.dirichlet(np.ones(clients)), draw.gamma(2.0, 0.6, clients)
    rule = AFL(bins=bins, rate_lambda=0.1)
    public = rule.begin(Census(np.ones(clients), np.ones((clients, 2, 2))))
    public = public._replace(edges=_edges(start * jnp.linspace(0.01, 0.1, bins // 2), bins))
    signals = Signals(client=np.arange(clients), returned=np.ones(clients, bool), examples=None,
                      loss=losses, memory=jnp.asarray(lambdas))  # fmt: skip
    target = lambdas + 0.1 * losses
    exact = nearest(target)
    found = np.asarray(jax.jit(weigh)(rule, public, signals).memory)
    edges = np.asarray(public.edges)
    level = (target - exact)[exact > 0].mean()
    at = np.searchsorted(edges, level) - 1
    width = edges[at + 1] - edges[at] if level > 0 else 0.0
    assert np.abs(found - exact).max() <= width + 1e-5


def test_edges_follow_the_threshold_and_survive_a_round_without_clients():
    rule = AFL(bins=16, rate_lambda=0.1)
    public = rule.begin(Census(np.ones(3), np.ones((3, 2, 2))))
    one, none = np.eye(16)[6], np.zeros(16)
    sums = ((1000 * one, 500 * one, jnp.asarray(1.0)),)
    moved = rule.step(public, sums, Totals(W, 1.0, (), ()))[1].edges
    level = np.asarray(public.edges)[6:8]
    assert ((moved > level[0] / 2) & (moved < level[1] * 1.5)).sum() >= 8
    empty = rule.step(public, ((none, none, jnp.asarray(0.0)),), Totals(W, 0.0, (), ()))[1].edges
    assert np.isfinite(empty).all()


def test_bins_are_refused_where_they_make_no_sense():
    with pytest.raises(ValueError, match="at least 2"):
        AFL(bins=1)
    with pytest.raises(ValueError, match="stochastic"):
        AFL(form="stochastic", bins=8)
