"""What every method promises, driven by the registry: a new method is tested here without a new
line.
"""

import ast
import dataclasses
import functools
import inspect
import re
import statistics
import textwrap
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
from evenly.types import Algorithm, Own, Rule, Seeds, Select, Signals, Work
from tests.aggregation import Played, play, start
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
    "fedcvg-ratio(start=size, renormalise=false)", "fairfed(clamp=false)",
    "fairfed(form=exponential, measured_on=valid)", "p-fedavg(bins=8)",
    "p-fedavg(bins=8, family=harmonic)", "afl(bins=8, form=local)",
    "p-fedavg(bins=8, sort_key=n)",
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
MAY_BE_NEGATIVE = {"fairfed(clamp=false)"}  # and its docstring says so
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
SAMPLED = {"by size": COHORT, "full": Full()}
EVERY_FORM_SAMPLED = pytest.mark.parametrize(
    "name, select",
    [
        pytest.param(
            name,
            select,
            id=f"{sampling}-{name}",
            marks=[pytest.mark.further] * (sampling == "full" and name in FORMS),
        )
        for sampling, select in SAMPLED.items()
        for name in [*METHODS, *FORMS]
    ],
)

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
    square_norm=jax.vmap(trees.square_norm)(VECTORS),
    chance=jnp.array([0.4, 0.7]),
)
# what the server knows without being told, and what the client keeps for itself
ALWAYS = {"client", "returned", "memory"}


NOTHING_SHARED = {"local"}  # nobody counts for anybody else, and nothing is sent


def variant(text: str, select: Select = COHORT) -> Variant:
    return variants(parse(WRITTEN.get(text, text)), COMMON, select)[0]


def picked(signals: Signals, index: Any) -> Signals:
    """The signals of some slots: inner products have two axes of clients, the round's
    chance none.
    """
    few = jax.tree.map(lambda leaf: leaf[index], signals._replace(gram=None, chance=None))
    return few._replace(gram=signals.gram[np.ix_(index, index)], chance=signals.chance)


def applied(rule: Rule, signals: Signals = SIGNALS, vectors: Any = VECTORS) -> Played:
    """The first round."""
    return first_round(rule, signals, vectors)


@jax.jit
def first_round(rule: Rule, signals: Signals, vectors: Any) -> Played:
    return play(rule, start(rule, CENSUS), signals, vectors)


def coefficients(played: Played) -> np.ndarray:
    """[K], with several models [K, models]."""
    return np.asarray(played.summed.coefficients)


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


@EVERY_FORM_SAMPLED
def test_a_needed_signal_cannot_be_left_out(name: str, select: Select):
    for member in variant(name, select).members:
        for signal in member.rule.needs:
            assert signal in Signals._fields
            # Refused in one way or another: what matters is that no weights come out.
            with pytest.raises((TypeError, ValueError, AttributeError)):
                applied(member.rule, SIGNALS._replace(**{signal: None}))


@EVERY_FORM_SAMPLED
def test_a_signal_that_is_not_needed_changes_nothing(name: str, select: Select):
    for member in variant(name, select).members:
        unneeded = set(Signals._fields) - member.rule.needs - ALWAYS
        expected = applied(member.rule)
        found = applied(member.rule, SIGNALS._replace(**dict.fromkeys(unneeded)))
        np.testing.assert_array_equal(coefficients(found), coefficients(expected))
        assert_close((found.change, found.state), (expected.change, expected.state), 0)


@EVERY_FORM_SAMPLED
def test_permuting_clients_permutes_weights(name: str, select: Select):
    order = np.array([2, 0, 3, 1])
    shuffled = picked(SIGNALS, order)
    for member in variant(name, select).members:
        found, expected = (
            applied(member.rule, shuffled, trees.take(VECTORS, order)),
            applied(member.rule),
        )
        np.testing.assert_allclose(
            coefficients(found), coefficients(expected)[order], rtol=1e-5, atol=1e-7
        )
        assert_close((found.change, found.state), (expected.change, expected.state), 1e-5)


@EVERY_FORM_SAMPLED
def test_a_dropped_client_equals_absence(name: str, select: Select):
    gone = jnp.array([True, False, True, True])
    stayed = np.flatnonzero(gone)
    for member in variant(name, select).members:
        masked = applied(member.rule, SIGNALS._replace(returned=gone))
        assert not coefficients(masked)[1].any()
        absent = applied(member.rule, picked(SIGNALS, stayed), trees.take(VECTORS, stayed))
        np.testing.assert_allclose(
            coefficients(masked)[stayed], coefficients(absent), rtol=1e-5, atol=1e-7
        )
        assert_close((masked.change, masked.state), (absent.change, absent.state))


@EVERY_FORM_SAMPLED
def test_weights_are_finite_not_negative_and_zero_when_nobody_returned(name: str, select: Select):
    for member in variant(name, select).members:
        found = applied(member.rule)
        weights = coefficients(found)
        assert (weights >= 0).all() or name in MAY_BE_NEGATIVE
        assert np.isfinite(weights).all()
        assert weights.any() == (name not in NOTHING_SHARED)
        assert name in ANOTHER_SUM | NOTHING_SHARED or abs(weights.sum() - 1) < 1e-6
        assert bool(trees.all_finite(found.change))
        assert bool(trees.all_finite(found.state))
        nobody = applied(member.rule, SIGNALS._replace(returned=jnp.zeros(K, bool)))
        assert not coefficients(nobody).any()
        assert all(not leaf.any() for leaf in jax.tree.leaves(nobody.change))


@EVERY_FORM_SAMPLED
def test_what_a_client_keeps_has_the_form_of_what_it_starts_with(name: str, select: Select):
    """Otherwise memories could not be stored by client."""
    for member in variant(name, select).members:
        rule = member.rule
        first = jax.eval_shape(functools.partial(start, rule, CENSUS)).memory.value
        kept = applied(rule).summed.memory
        assert jax.tree.structure(kept) == jax.tree.structure(first)
        for one, other in zip(jax.tree.leaves(kept), jax.tree.leaves(first), strict=True):
            assert (one.shape[1:], one.dtype) == (other.shape[1:], other.dtype)


@EVERY_FORM
def test_only_few_rules_see_a_whole_cohort_and_they_say_why(name: str):
    rule = variant(name).members[0].rule
    whole = (
        name.startswith("fedmgda")
        or (name.startswith("p-fedavg") and "bins" not in name)
        or name in {"afl(form=stochastic)", "term(form=authors)"}
    )
    assert bool(rule.whole_cohort) == whole
    if whole:
        assert rule.stages == 0
        assert re.fullmatch(r"[a-z].{30,}[a-z]", rule.whole_cohort), "a clause, without a full stop"
        assert type(rule).weigh_cohort is not Rule.weigh_cohort
    else:
        assert {"gram", "chance"}.isdisjoint(rule.needs), "what no client knows about itself"
        assert rule.needs <= set(Own._fields)


def lines_of(function: Any) -> int:
    """Lines of the statements of a function, without its docstring, comments and blank lines."""
    source = textwrap.dedent(inspect.getsource(function))
    (parsed,) = ast.parse(source).body
    assert isinstance(parsed, ast.FunctionDef)
    body = parsed.body[1:] if ast.get_docstring(parsed) is not None else parsed.body
    code = [line.partition("#")[0].strip() for line in source.splitlines()]
    return sum(
        bool(code[at])
        for statement in body
        for at in range(statement.lineno - 1, statement.end_lineno or 0)
    )


def test_a_rule_is_short():
    """A method's own part of a round fits on few lines: half of the rules need at most ten."""
    lengths = {
        rule.__name__: sum(
            lines_of(vars(rule)[part])
            for part in ("weigh", "weigh_cohort", "step")
            if part in vars(rule)
        )
        for rule in {method.rule for method in METHODS.values()}
    }
    assert len(lengths) == 15
    assert statistics.median(lengths.values()) <= 10, lengths
    assert all(lengths.values())


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
        played = applied(rule)
        # a number may act on the next round
        after = played.summed.coefficients, played.change, played.state
        return after, work.finish(task, received, local)

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
            assert one.upload >= one.download or member.rule.groups is not None


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
