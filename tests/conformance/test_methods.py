"""What every method promises, driven by the registry: a new method is tested here without a new
line.
"""

import dataclasses
import inspect
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly import trees
from evenly.algorithms import METHODS, Variant, variants
from evenly.data.federation import Census, Shard
from evenly.models import MLP, Softmax
from evenly.notation import Part, parse
from evenly.parts.sampling import Full
from evenly.records import replace
from evenly.simulate import simulate
from evenly.simulate.program import compiled
from evenly.simulate.training import inner_products
from evenly.types import Algorithm, Effort, Rule, Seeds, Select, Several, Signals, Work
from tests.simulations import COHORT, COMMON, Simulated, same_bits, task_for

EVERY = pytest.mark.parametrize("name", METHODS)
# Other forms of a method: their rules keep the same promises.
FORMS = [
    "fedsgd(q=1)", "q-fedavg(scale_update=false)", "afl(form=local)", "afl(form=stochastic)",
    "afl(form=per-domain)", "term(form=authors)", "term(weights=equal)",
    "p-fedavg(family=arithmetic)", "p-fedavg(family=harmonic)", "p-fedavg(family=geometric)",
    "p-fedavg(sort_key=n)", "p-fedavg(ties=order)", "fedmgda(weights=equal, epsilon=1)",
    "propfair(huber=true)", "fairfed(metric=spd)", "fairfed(metric=accuracy)",
    "fairfed(measured_on=valid)", "e2fl(groups=2, inference=one-shot)", "ifca(weights=equal)",
    "fairfed(form=exponential)", "fairfed(carry=normalised)", "fedcvg-ratio(start=size)",
    "fedcvg-ratio(start=size, renormalise=false)",
]  # fmt: skip
EVERY_FORM = pytest.mark.parametrize("name", [*METHODS, *FORMS])
# Rules are tried on cohorts of four clients in some of three groups; where there is no federation,
# the number of groups is not known.
WRITTEN = {"e2fl": "e2fl(groups=3)"}
# Their coefficients do not sum to 1, and their docstring says so.
ANOTHER_SUM = {
    "frl", "e2fl", "e2fl(groups=2, inference=one-shot)", "ifca", "ifca(weights=equal)",
    "fedsgd(q=1)", "term(form=authors)", "fedmgda", "fedmgda(weights=equal, epsilon=1)",
    "fedcvg-ratio(start=size, renormalise=false)",
}  # fmt: skip
# Where a number has an effect only in one form of the method.
IN_FORM = {
    ("p-fedavg", "ratio"): {"family": "geometric"},
    ("p-fedavg", "first"): {"family": "arithmetic"},
    ("p-fedavg", "difference"): {"family": "arithmetic"},
    ("afl", "rate_lambda"): {"form": "local"},
    ("afl", "mu"): {"form": "local"},
    ("propfair", "epsilon"): {"epsilon": 8},
    ("fedcvg-ratio", "memory"): {"start": "size"},
}
SAMPLED = pytest.mark.parametrize("select", [COHORT, Full()], ids=["by size", "full"])

K = 4
DRAW = np.random.default_rng(7)
# by group and label
CELLS = np.array(
    [DRAW.multinomial(n, np.full(6, 1 / 6)).reshape(2, 3) for n in (3, 9, 14, 20, 10, 32)]
)
CENSUS = Census(CELLS.sum((1, 2)), CELLS)
COHORT_CELLS = CELLS[[4, 0, 3, 5]]
SIGNALS = Signals(
    client=jnp.array([4, 0, 3, 5]),
    returned=jnp.ones(K, bool),
    examples=jnp.array([10.0, 3.0, 20.0, 32.0]),
    loss=jnp.array([0.4, 2.5, 1.1, 0.9]),
    table=jnp.asarray(DRAW.multinomial(COHORT_CELLS, [0.5, 0.3, 0.2])),
    valid_table=jnp.asarray(DRAW.multinomial(COHORT_CELLS // 2, [0.2, 0.3, 0.5])),
    cell_loss=jnp.asarray(COHORT_CELLS * DRAW.uniform(0.2, 3, COHORT_CELLS.shape), jnp.float32),
    unprivileged=jnp.asarray(COHORT_CELLS[:, 0].sum(1), jnp.float32),
    choice=jnp.array([0, 1, 1, 0]),
)
VECTORS = {
    "w": jnp.asarray(DRAW.normal(size=(K, 2, 3)), jnp.float32),
    "b": jnp.asarray(DRAW.normal(size=(K, 3)), jnp.float32),
}
SIGNALS = SIGNALS._replace(
    gram=inner_products(jax.tree.map(lambda leaf: leaf[..., None], VECTORS), -1)[..., 0],
    chance=jnp.array([0.4, 0.7]),
)
EFFORT = Effort(square_norm=jax.vmap(trees.square_norm)(VECTORS))
ALWAYS = {"client", "returned"}  # what the server knows without being told


NOTHING_SHARED = {"local"}  # nobody counts for anybody else, and nothing is sent


def variant(text: str, select: Select = COHORT) -> Variant:
    return variants(parse(WRITTEN.get(text, text)), COMMON, select)[0]


def picked(signals: Signals, index: Any) -> Signals:
    """The signals of some slots: inner products have two axes of clients, the round's
    chance none.
    """
    few = jax.tree.map(lambda leaf: leaf[index], signals._replace(gram=None, chance=None))
    return few._replace(gram=signals.gram[np.ix_(index, index)], chance=signals.chance)


def applied(
    rule: Rule, signals: Signals = SIGNALS, effort: Effort = EFFORT
) -> tuple[np.ndarray, Any]:
    """The weights and the change of one round."""
    weights, state = rule.weigh(rule.init(CENSUS), signals)
    total = jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), VECTORS)
    change, _ = rule.step(state, signals, effort, total)
    return np.asarray(weights), change


def assert_close(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def swept(name: str) -> list[str]:
    return [s.name for s in METHODS[name].settings.values() if s.swept]


@EVERY
def test_it_builds_with_its_defaults(name: str):
    for member in variants((Part(name, {}),))[0].members:
        assert isinstance(member, Algorithm)
        assert isinstance(member.work, Work)
        assert isinstance(member.rule, Rule)
        assert isinstance(member.select, Select)
        assert member.label


@EVERY_FORM
@SAMPLED
def test_a_needed_signal_cannot_be_left_out(name: str, select: Select):
    for member in variant(name, select).members:
        for signal in member.rule.needs:
            assert signal in Signals._fields + Effort._fields
            # Refused in one way or another: what matters is that no weights come out.
            if signal in Effort._fields:
                with pytest.raises((TypeError, ValueError, AttributeError)):
                    applied(member.rule, effort=EFFORT._replace(**{signal: None}))
            else:
                with pytest.raises((TypeError, ValueError, AttributeError)):
                    applied(member.rule, SIGNALS._replace(**{signal: None}))


@EVERY_FORM
@SAMPLED
def test_a_signal_that_is_not_needed_changes_nothing(name: str, select: Select):
    for member in variant(name, select).members:
        unneeded = set(Signals._fields + Effort._fields) - member.rule.needs - ALWAYS
        signals = SIGNALS._replace(**{s: None for s in unneeded if s in Signals._fields})
        effort = EFFORT._replace(**{s: None for s in unneeded if s in Effort._fields})
        weights, change = applied(member.rule)
        without, changed = applied(member.rule, signals, effort)
        np.testing.assert_array_equal(weights, without)
        assert_close(change, changed, 0)


@EVERY_FORM
@SAMPLED
def test_permuting_clients_permutes_weights(name: str, select: Select):
    order = np.array([2, 0, 3, 1])
    shuffled = picked(SIGNALS, order)
    for member in variant(name, select).members:
        weights, _ = member.rule.weigh(member.rule.init(CENSUS), SIGNALS)
        permuted, _ = member.rule.weigh(member.rule.init(CENSUS), shuffled)
        np.testing.assert_allclose(permuted, weights[..., order], rtol=1e-5, atol=1e-7)


@EVERY_FORM
@SAMPLED
def test_a_dropped_client_equals_absence(name: str, select: Select):
    gone = jnp.array([True, False, True, True])
    stayed = np.flatnonzero(gone)
    for member in variant(name, select).members:
        masked, change = applied(member.rule, SIGNALS._replace(returned=gone))
        assert not masked[..., 1].any()
        signals, effort = picked(SIGNALS, stayed), jax.tree.map(lambda leaf: leaf[stayed], EFFORT)
        weights, state = member.rule.weigh(member.rule.init(CENSUS), signals)
        np.testing.assert_allclose(masked[..., stayed], weights, rtol=1e-5, atol=1e-7)
        total = jax.tree.map(lambda leaf, w=weights: jnp.tensordot(w, leaf[stayed], 1), VECTORS)
        assert_close(change, member.rule.step(state, signals, effort, total)[0])


@EVERY_FORM
@SAMPLED
def test_weights_are_finite_not_negative_and_zero_when_nobody_returned(name: str, select: Select):
    for member in variant(name, select).members:
        weights, change = applied(member.rule)
        assert (weights >= 0).all()
        assert np.isfinite(weights).all()
        assert weights.any() == (name not in NOTHING_SHARED)
        assert name in ANOTHER_SUM | NOTHING_SHARED or abs(weights.sum() - 1) < 1e-6
        assert bool(trees.all_finite(change))
        nobody, nothing = applied(member.rule, SIGNALS._replace(returned=jnp.zeros(K, bool)))
        assert not nobody.any()
        assert all(not leaf.any() for leaf in jax.tree.leaves(nothing))


def with_leaf(algorithm: Algorithm, setting: str, factor: float) -> Algorithm:
    """The algorithm with one number changed; the rule keeps its other numbers."""
    rule, work = algorithm.rule, algorithm.work
    if hasattr(rule, setting):
        return replace(algorithm, rule=changed(rule, setting, factor))
    if hasattr(work, setting):
        return replace(algorithm, work=changed(work, setting, factor))
    return replace(algorithm, work=replace(work, shape=changed(work.shape, setting, factor)))  # pyright: ignore[reportAttributeAccessIssue]


def changed(part: Any, setting: str, factor: float) -> Any:
    value = getattr(part, setting)
    most = 0.9 if setting == "momentum" else np.inf
    return replace(part, **{setting: (0.5 if value is None else min(value + 0.25, most)) * factor})


def in_form(name: str, setting: str) -> Algorithm:
    """The method in a form in which the setting has an effect."""
    written = parse(WRITTEN.get(name, name))[0].settings
    return variants((Part(name, {**written, **IN_FORM.get((name, setting), {})}),), COMMON, COHORT)[
        0
    ].members[-1]


@EVERY
def test_leaves_can_be_stacked_and_vmapped(name: str):
    ranked = METHODS[name].network
    task = (
        ranked().of(MLP(features=2, classes=3, hidden=(16,), bias=False), 0)
        if ranked
        else Softmax(features=2, classes=3)
    )
    batch = Shard(
        jnp.asarray(DRAW.normal(size=(4, 2)), jnp.float32),
        jnp.array([0, 2, 1, 1]),
        jnp.zeros(4, int),
        jnp.ones(4),
        jnp.ones(4),
    )
    received = (
        task.init(jax.random.key(1)) if ranked else jax.tree.map(lambda leaf: leaf[0], VECTORS)
    )

    def one_round(algorithm: Algorithm) -> Any:
        rule, work = algorithm.rule, algorithm.work
        # A loop, as in the simulator: steps that melt into one another may round the score at the
        # border of what is kept twice.
        start = work.start(task, received, work.remember(received))
        local = jax.lax.fori_loop(
            0, 2, lambda _, local: work.step(task, received, local, batch), start
        )
        weights, state = rule.weigh(rule.init(CENSUS), SIGNALS)
        total = jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), VECTORS)
        # a number may act on the next round
        return weights, rule.step(state, SIGNALS, EFFORT, total), work.finish(task, received, local)

    by_itself, together = jax.jit(one_round), jax.jit(jax.vmap(one_round))
    for setting in swept(name):
        runs = [
            replace(with_leaf(in_form(name, setting), setting, factor), network=None)
            for factor in (1.0, 0.5, 0.25)
        ]
        found = together(trees.stack(runs))
        alone = [by_itself(run) for run in runs]
        for r, own in enumerate(alone):
            assert_close(trees.take(found, r), own, 1e-5)
        assert any(
            not np.allclose(a, b)
            for a, b in zip(jax.tree.leaves(alone[0]), jax.tree.leaves(alone[2]), strict=True)
        ), setting


@EVERY
def test_three_rounds_are_finite_and_the_same_bits_twice(name: str, simulated: Simulated):
    members = variant(name).members
    task = members[0].task(task_for(name, simulated.task, simulated.federation), Seeds())
    first, second = (simulate(task, simulated.federation, members, 3) for _ in range(2))
    start = task.init(jax.random.key(0))
    for one, other, member in zip(first, second, members, strict=True):
        same_bits(one, other)
        assert bool(trees.all_finite(one.model))
        moved = any(
            (a != b).any()
            for a, b in zip(jax.tree.leaves(one.model), jax.tree.leaves(start), strict=True)
        )
        assert moved == (name not in NOTHING_SHARED)
        assert (one.losses[-1, 0] != one.losses[0, 0]).any(), (
            "clients are served another model than the first"
        )
        assert one.weights.shape == (3, member.select.slots(simulated.federation.census()))
        assert np.isfinite(one.weights).all()
        assert not one.excluded.any()
        if name in NOTHING_SHARED:
            assert one.upload == one.download == 0
        else:
            assert one.upload > 0
            assert one.download > 0
            assert one.upload >= one.download or isinstance(member.rule, Several)


@EVERY
def test_changing_a_number_does_not_compile_again(name: str, simulated: Simulated):
    for setting in swept(name):
        member = in_form(name, setting)
        task = task_for(name, simulated.task, simulated.federation)
        simulate(task, simulated.federation, [with_leaf(member, setting, 1.0)], 3)
        before = programs()
        simulate(task, simulated.federation, [with_leaf(member, setting, 0.5)], 3)
        assert programs() == before, setting


def programs() -> int:
    """How many blocks' programs have been compiled, with loops compiled whole and without."""
    return sum(compiled(whole)._cache_size() for whole in (True, False))


@EVERY
def test_it_has_a_story(name: str):
    method = METHODS[name]
    assert re.fullmatch(r"[a-z][a-z0-9-]*", name)
    assert method.name == name
    assert method.title
    assert re.search(r"\b(19|20)\d\d\b|\bundated\b", method.reference), (
        "the reference names a year, or says that it has none"
    )
    assert "=" in method.formula or ";" in method.formula
    assert inspect.getdoc(method.rule)


@EVERY
def test_every_setting_is_documented(name: str):
    method = METHODS[name]
    works = method.work if isinstance(method.work, tuple) else (method.work,)
    parts_of_their_own = {"options", "shape"}  # set by `+local-...` and by the method
    for part in (method.rule, *works, *([method.shape] if method.shape else [])):
        for field in dataclasses.fields(part):  # pyright: ignore[reportArgumentType]
            if not field.metadata.get("static"):
                assert field.metadata.get("doc") or field.name in parts_of_their_own, (
                    f"{part.__name__}.{field.name}"
                )
    for setting in method.settings.values():
        assert not setting.doc.endswith("."), "a phrase, as it stands in a table"
        assert (
            setting.doc[0] != setting.doc[0].upper()
            or not setting.doc[0].isalpha()
            or setting.doc.startswith("L,")
        ), setting.doc
