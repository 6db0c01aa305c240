"""What `evenly.round` makes of rules that somebody writes: defaults, sums, memory and mistakes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evenly
from evenly import round as derived
from evenly.algorithms import METHODS, FedAvg, Method, algorithm
from evenly.data.federation import Census
from evenly.privacy import gate
from evenly.privacy.claims import gate_of
from evenly.records import record
from evenly.types import Own, Rule, Signals, Totals, Weighed
from tests.aggregation import LOSSES, SIZES, TRAINED, W, play, start

CENSUS = Census(SIZES, np.ones((3, 2, 2), int))
VECTORS = jnp.asarray(TRAINED - W, jnp.float32)
SIGNALS = Signals(
    client=jnp.arange(3),
    returned=jnp.ones(3, bool),
    examples=jnp.asarray(SIZES, jnp.float32),
    loss=jnp.asarray(LOSSES, jnp.float32),
    square_norm=(VECTORS**2).sum(1),
)
LAST_GONE = jnp.array([True, True, False])


@record
class ByLoss(Rule):
    """Only `weigh`: everything else has a default."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss"})

    def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
        return Weighed(own.loss)


@record
class Centred(Rule):
    """Two stages, sums beside the vectors, and a memory."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"loss", "examples", "square_norm"})

    @property
    def stages(self) -> int:
        return 2

    def begin(self, census: Census) -> Any:
        return {"rows": jnp.asarray(census.examples.sum(), float), "rounds": jnp.zeros(())}

    def remember(self, public: Any, own: Own) -> Any:
        return own.examples / public["rows"]

    def contribute(self, public: Any, own: Own, sums: tuple) -> Any:
        if not sums:
            return {"loss": own.loss, "one": 1.0}
        mean = sums[0]["loss"] / sums[0]["one"]
        return (own.loss - mean) ** 2

    def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
        return Weighed(
            own.memory,
            averages={"length": own.square_norm, "pair": jnp.stack([own.loss, 1.0])},
            extras=(own.loss, own.square_norm),
            memory=own.memory / 2 + sums[1],
        )

    def step(self, public: Any, sums: tuple, totals: Totals) -> tuple[Any, Any]:
        return totals.mean * totals.averages["length"], {**public, "rounds": public["rounds"] + 1}


@record
class Alone(Rule):
    """Whatever the tests put in."""

    def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
        return Weighed(1.0)


def test_a_rule_of_one_function_is_a_weighted_mean():
    found = play(ByLoss(), start(ByLoss(), CENSUS), SIGNALS, VECTORS)
    np.testing.assert_allclose(found.summed.coefficients, LOSSES / 3.5, rtol=1e-6)
    np.testing.assert_allclose(found.change, LOSSES @ VECTORS / 3.5, rtol=1e-6)
    assert found.summed.sums == ()
    assert found.state.public == ()
    assert derived.divides_by_weights(ByLoss())


def test_stages_see_the_sums_before_them_and_totals_are_those_of_who_returned():
    rule = Centred()
    state = start(rule, CENSUS)
    found = play(rule, state, SIGNALS, VECTORS)
    first, second = found.summed.sums
    assert first["loss"] == pytest.approx(3.5)
    assert first["one"] == 3
    assert second == pytest.approx(((LOSSES - 3.5 / 3) ** 2).sum())
    lengths = np.asarray((VECTORS**2).sum(1))
    totals = found.summed.totals
    np.testing.assert_allclose(totals.averages["length"], SIZES @ lengths / 100, rtol=1e-6)
    np.testing.assert_allclose(totals.averages["pair"], [SIZES @ LOSSES / 100, 1], rtol=1e-6)
    np.testing.assert_allclose(totals.extras, [3.5, lengths.sum()], rtol=1e-6)
    np.testing.assert_allclose(
        found.change, (SIZES @ VECTORS / 100) * (SIZES @ lengths / 100), rtol=1e-5
    )
    assert found.state.public["rounds"] == 1
    np.testing.assert_allclose(found.state.memory.value, SIZES / 200 + second, rtol=1e-6)

    gone = play(rule, state, SIGNALS, VECTORS, counted=LAST_GONE)
    np.testing.assert_allclose(gone.summed.totals.extras, [2.5, lengths[:2].sum()], rtol=1e-6)
    np.testing.assert_allclose(
        gone.summed.totals.averages["length"], SIZES[:2] @ lengths[:2] / 40, rtol=1e-6
    )
    assert gone.state.memory.seen.tolist() == [True, True, False]
    assert gone.state.memory.value[2] == 0


@record
class Forgetful(Rule):
    """Its needs do not name the loss."""

    def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
        return Weighed(own.loss)


@record
class WithNumPy(ByLoss):
    def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
        return Weighed(np.sqrt(own.loss))


@record
class Bare(ByLoss):
    def weigh(self, public: Any, own: Own, sums: tuple) -> Any:
        return own.loss


@pytest.mark.parametrize(
    "rule, message, told",
    [
        (Forgetful(), r"Forgetful\.weigh returns Weighed\(None\)\. Does `needs`", "nothing"),
        (WithNumPy(), "numpy.ndarray conversion", "loss"),
        (Bare(), r"Bare\.weigh must return Weighed\(weight\)", "loss"),
    ],
)
def test_a_mistake_in_a_rule_is_explained(rule: Rule, message: str, told: str):
    given = SIGNALS if rule.needs else SIGNALS._replace(loss=None)
    with pytest.raises(TypeError, match=message) as caught:
        derived.weigh(rule, (), given)
    notes = " ".join(caught.value.__notes__)
    assert f"{type(rule).__name__} is compiled before there are numbers" in notes
    assert f"what its `needs` names: {told}." in notes


def test_a_rule_that_reads_a_sum_without_a_stage_is_told_of_stages():
    @record
    class Unstaged(ByLoss):
        def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
            return Weighed(own.loss / sums[0])

    with pytest.raises(IndexError) as caught:
        derived.weigh(Unstaged(), (), SIGNALS)
    assert "as many entries as its `stages` says: 0." in " ".join(caught.value.__notes__)


def test_a_method_explains_what_its_rule_lacks():
    def method(rule: type) -> Method:
        return Method(name="own", title="Own", reference="", formula="", rule=rule)

    class Plain(Rule):
        pass

    @record
    class Fields(ByLoss):
        power: float = 1.0

    @record
    class Curious(Alone):
        needs = frozenset({"accuracy"})

    @record
    class Single(Alone):
        needs = "loss"

    with pytest.raises(TypeError, match=r"decorated with evenly\.types\.record, got Plain"):
        method(Plain)
    with pytest.raises(ValueError, match="power is a field of Fields but not a setting"):
        method(Fields).build({"power": 2.0})
    with pytest.raises(ValueError, match=r"needs may name examples, loss, .*; got accuracy"):
        evenly.register(method(Curious))
    with pytest.raises(TypeError, match=r"needs must be a set of names, .* got 'loss'"):
        evenly.register(method(Single))
    assert "own" not in METHODS


def test_lengths_are_0_before_training_and_counted_after_it():
    weighing = derived.weigh(
        Centred(), Centred().begin(CENSUS), SIGNALS._replace(memory=jnp.ones(3))
    )
    assert not weighing.averages["length"].any()
    assert not weighing.extras[1].any()


def test_a_client_that_was_seen_recalls_and_another_starts_from_public_numbers():
    rule = Centred()
    public = rule.begin(CENSUS)
    memory = derived.Memory(jnp.array([True, False, False]), jnp.array([7.0, 8.0, 0.0]))
    recalled = derived.recall(rule, public, SIGNALS, memory).memory
    np.testing.assert_allclose(recalled, [7, 0.3, 0.6], rtol=1e-6)


def test_what_broken_clients_say_is_not_summed():
    rule = Centred()
    broken = SIGNALS._replace(
        returned=LAST_GONE,
        loss=SIGNALS.loss.at[2].set(jnp.nan),
        square_norm=SIGNALS.square_norm.at[2].set(jnp.inf),
    )
    found = play(rule, start(rule, CENSUS), broken, VECTORS)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((found.change, found.state)))


def test_a_division_by_0_is_none():
    class Nothing(Alone):
        def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
            return Weighed(0.0, averages=own.loss)

    found = play(record(Nothing)(), start(Alone(), CENSUS), SIGNALS, VECTORS)
    assert not found.summed.coefficients.any()
    assert not found.change.any()
    assert found.summed.totals.averages == 0


def test_each_model_is_divided_by_its_own_norm_and_0_divides_by_1():
    totals = {"w": jnp.ones((2, 3)), "b": jnp.full(2, 4.0)}
    found = derived.divide(totals, jnp.array([2.0, 0.0]))
    np.testing.assert_array_equal(found["w"], [[0.5] * 3, [1] * 3])
    np.testing.assert_array_equal(found["b"], [2, 4])


def test_several_models_have_their_own_weights_averages_and_division():
    class Two(Alone):
        def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
            share = jnp.stack([own.loss, 1.0])
            return Weighed(share, exponent=jnp.zeros(()), averages=own.examples)

    rule: Rule = record(Two)()
    found = play(rule, start(rule, CENSUS), SIGNALS, VECTORS)
    np.testing.assert_allclose(
        found.summed.coefficients, np.stack([LOSSES / 3.5, np.full(3, 1 / 3)], 1), rtol=1e-6
    )
    np.testing.assert_allclose(
        found.change, [LOSSES @ VECTORS / 3.5, np.asarray(VECTORS).mean(0)], rtol=1e-6
    )
    np.testing.assert_allclose(
        found.summed.totals.averages, [LOSSES @ SIZES / 3.5, SIZES.mean()], rtol=1e-6
    )


def test_weights_that_the_norm_divides_are_not_scaled_before():
    class Sum(Alone):
        def weigh(self, public: Any, own: Own, sums: tuple) -> Weighed:
            return Weighed(own.examples)

        def norm(self, public: Any, totals: Totals) -> Any:
            return jnp.asarray(10.0)

    rule: Rule = record(Sum)()
    assert not derived.divides_by_weights(rule)
    weighing = derived.weigh(rule, (), SIGNALS)
    np.testing.assert_array_equal(weighing.weight, SIZES)
    found = play(rule, start(rule, CENSUS), SIGNALS, VECTORS)
    np.testing.assert_allclose(found.change, SIZES @ VECTORS / 10, rtol=1e-6)
    scaled = derived.weigh(FedAvg(), (), SIGNALS)
    assert scaled.weight.sum() == pytest.approx(1)


def test_a_rule_that_needs_nothing_is_told_nothing():
    """Fields that a rule does not need are None, and then no array says how many clients there
    are.
    """
    signals = Signals(client=jnp.arange(3), returned=LAST_GONE, examples=None)
    found = derived.weigh(Alone(), (), signals)
    np.testing.assert_allclose(found.weight, [0.5, 0.5, 0])


def test_a_rule_with_stages_must_contribute():
    class Silent(Alone):
        @property
        def stages(self) -> int:
            return 1

    with pytest.raises(TypeError, match=r"^Silent has stages, but does not implement contribute"):
        derived.weigh(record(Silent)(), (), SIGNALS)


def test_a_private_rule_with_stages_must_bound_what_clients_contribute():
    rule = Centred()
    made = algorithm("fedavg+poisson(rate=0.5)+dp(noise_multiplier=1.0, forced=true)")
    own = gate_of(made, CENSUS, 1)
    assert own is not None
    public = rule.begin(CENSUS)
    guard = gate.Guard(own, gate.begin(own, rule, public), jax.random.key(0))
    with pytest.raises(
        ValueError,
        match=r"^Centred asks for 2 sums before training, but its `bounds` limit 0\. Define",
    ):
        derived.weigh(rule, public, SIGNALS._replace(memory=jnp.ones(3)), guard)


def test_a_rule_must_weigh():
    class Empty(Rule):
        pass

    with pytest.raises(TypeError, match=r"^Empty does not implement weigh\."):
        derived.weigh(record(Empty)(), (), SIGNALS)


def test_a_rule_that_sees_a_whole_cohort_must_weigh_it():
    class Whole(Alone):
        @property
        def whole_cohort(self) -> str:
            return "it wants to"

    with pytest.raises(TypeError, match=r"^Whole weighs clients one by one"):
        derived.weigh(record(Whole)(), (), SIGNALS)


def test_a_memory_must_keep_its_form():
    class Forgetful(Alone):
        def remember(self, public: Any, own: Own) -> Any:
            return own.examples

    rule: Rule = record(Forgetful)()
    with pytest.raises(
        TypeError,
        match=r"^Forgetful: the memory that a rule returns with a weight must have the form that"
        r" `remember` gives it at first\.$",
    ):
        play(rule, start(rule, CENSUS), SIGNALS, VECTORS)
