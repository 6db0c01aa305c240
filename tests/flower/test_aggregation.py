"""The server's half of a round against plain double-precision sums: nothing is stacked, nobody is
lost.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.data.federation import Census
from evenly.flower import aggregation
from evenly.flower.aggregation import RoundResult, ServerState, round_from_replies
from evenly.flower.caps import Caps
from evenly.parts.ranking import elect, tally
from evenly.round import Memory
from evenly.types import Signals

K, SHAPES = 5, ((7, 9), (9,), (300, 400))  # the last spans several chunks
DRAW = np.random.default_rng(3)
MODEL = [DRAW.normal(size=shape).astype(np.float32) for shape in SHAPES]
TRAINED = [
    [leaf + 0.1 * DRAW.normal(size=leaf.shape).astype(np.float32) for leaf in MODEL]
    for _ in range(K)
]
CENSUS = Census(np.array([10, 20, 30, 40, 50, 60]), np.ones((6, 1, 2), np.int64))
SIGNALS = Signals(
    client=np.array([4, 0, 3, 5, 1], np.int32),
    returned=np.ones(K, bool),
    examples=np.array([50, 10, 40, 60, 20], np.float32),
    loss=np.array([0.5, 2.0, 1.0, 0.1, 0.7], np.float32),
)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "CHUNK", 2**13)


def begun(text: str, model: list[np.ndarray] = MODEL) -> tuple:
    made = algorithm(text)
    return made, aggregation.first_state(made, [leaf.copy() for leaf in model], CENSUS)


def mean(weights: np.ndarray) -> list[np.ndarray]:
    """sum of weight times trained, in double precision."""
    return [
        np.tensordot(weights, np.stack([own[i].astype(np.float64) for own in TRAINED]), 1)
        for i in range(len(MODEL))
    ]


def test_the_sum_is_that_of_double_precision():
    made, state = begun("fedavg+full")
    done = round_from_replies(made, state, SIGNALS, TRAINED)
    sizes = SIGNALS.examples / SIGNALS.examples.sum()
    np.testing.assert_allclose(done.coefficients, sizes, rtol=1e-6)
    for found, expected in zip(done.state.model, mean(sizes), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_sum_of_models_whose_weights_do_not_sum_to_1():
    """FedCvg-Ratio as printed: in a round of five of six clients, w+ = sum v_k w_k with sum v below
    1.
    """
    made = algorithm("fedcvg-ratio(start=size, renormalise=false)+full")
    census = Census(CENSUS.examples, np.tile(CENSUS.examples[:, None, None] / 4, (1, 2, 2)))
    state = aggregation.first_state(made, [leaf.copy() for leaf in MODEL], census)
    done = round_from_replies(
        made, state, SIGNALS._replace(unprivileged=SIGNALS.examples * 0.3), TRAINED
    )
    now, before = (
        SIGNALS.examples / SIGNALS.examples.sum(),
        SIGNALS.examples / census.examples.sum(),
    )
    np.testing.assert_allclose(done.coefficients, (now + before) / 2, rtol=1e-5)
    for found, expected in zip(done.state.model, mean((now + before) / 2), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_model_in_double_precision_keeps_it():
    double = [leaf.astype(np.float64) for leaf in MODEL]
    made, state = begun("fedavg+full", double)
    trained = [[leaf.astype(np.float64) + 1e-12 * k for leaf in double] for k in range(K)]
    done = round_from_replies(made, state, SIGNALS, trained)
    sizes = SIGNALS.examples.astype(np.float64) / SIGNALS.examples.sum()
    expected = 1e-12 * (sizes * np.arange(K)).sum()
    # float32 would have lost it
    np.testing.assert_allclose(done.state.model[0] - double[0], expected, rtol=1e-3)


def test_who_did_not_return_is_not_read_and_the_others_count_as_if_alone():
    made, state = begun("q-fedavg(q=1)+full")
    here = np.array([True, False, True, True, False])
    some = round_from_replies(
        made,
        state,
        SIGNALS._replace(returned=here),
        [own if came else None for own, came in zip(TRAINED, here, strict=True)],
    )
    few = jax.tree.map(lambda leaf: leaf[here], SIGNALS)
    alone = round_from_replies(
        made, state, few, [own for own, came in zip(TRAINED, here, strict=True) if came]
    )
    np.testing.assert_allclose(some.coefficients[here], alone.coefficients, rtol=1e-6)
    assert not some.coefficients[~here].any()
    for a, b in zip(some.state.model, alone.state.model, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_vector_that_turns_out_not_finite_is_left_out_and_the_others_speak_for_it():
    made, state = begun("q-fedavg(q=0)+full")
    huge = [
        [np.full_like(leaf, 1e30) for leaf in MODEL] if k == 2 else own
        for k, own in enumerate(TRAINED)
    ]
    done = round_from_replies(made, state, SIGNALS, huge)
    assert done.counted.tolist() == [True, True, False, True, True]
    np.testing.assert_allclose(done.coefficients, [0.25, 0.25, 0, 0.25, 0.25], rtol=1e-6)
    for found, expected in zip(
        done.state.model, mean(np.array([0.25, 0.25, 0, 0.25, 0.25])), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_round_in_which_nobody_counts_changes_nothing():
    made, state = begun("fedavg+full+server-momentum(learning_rate=1)")
    done = round_from_replies(made, state, SIGNALS._replace(returned=np.zeros(K, bool)), [None] * K)
    assert done.state.model is state.model
    assert done.state.server is state.server


def test_inner_products_are_those_of_the_whole_vectors():
    flat = np.stack(
        [
            np.concatenate([(a - b).ravel() for a, b in zip(own, MODEL, strict=True)]).astype(
                np.float64
            )
            for own in TRAINED
        ]
    )
    found = aggregation.inner_products(ServerState(MODEL, (), ()), [*TRAINED[:3], None, TRAINED[4]])
    expected = flat @ flat.T
    expected[3], expected[:, 3] = 0, 0
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_votes_are_counted_exactly():
    shapes = ((40, 50), (50, 3000))
    votes = [
        [DRAW.permutation(int(np.prod(s))).reshape(s).astype(np.int32) for s in shapes]
        for _ in range(K)
    ]
    made = algorithm("frl+full")
    state = aggregation.first_state(made, [v.astype(np.float32) for v in votes[0]], CENSUS)
    done = round_from_replies(made, state, SIGNALS, votes)
    stacked = [
        jnp.stack([jnp.asarray(v[i], jnp.float32) for v in votes]) for i in range(len(shapes))
    ]
    for found, expected in zip(done.state.model, elect(tally(stacked)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_votes_that_were_added_elsewhere_decide_the_same():
    """A layer so large that sums of places need both digits, and low ones alone would decide
    otherwise.
    """
    votes = [DRAW.permutation(6000).reshape(60, 100) for _ in range(K)]
    total = aggregation.total_of(
        algorithm("frl"), [np.asarray(np.sum(votes, axis=0, dtype=np.float64))]
    )
    (expected,) = elect(tally([jnp.stack([jnp.asarray(v, jnp.float32) for v in votes])]))
    (found,) = elect(total)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        np.argsort(np.sum(votes, axis=0).ravel(), kind="stable")[:50],
        np.argsort(np.asarray(found).ravel())[:50],
    )
    (wrong,) = elect(total._replace(high=total.low, low=total.high))
    assert (np.asarray(wrong) != expected).any()


def test_what_is_a_usual_length_is_of_all_who_returned():
    """Most count nothing here: if their updates had no length, every other one would be
    too long.
    """
    made, state = begun("afl(form=local, rate_lambda=10)+full")
    plain, capped = (
        round_from_replies(made, state, SIGNALS, TRAINED, caps) for caps in (None, Caps(norm="10x"))
    )
    assert (plain.coefficients > 0).sum() < K / 2
    assert capped.flags == []
    for a, b in zip(plain.state.model, capped.state.model, strict=True):
        np.testing.assert_array_equal(a, b)


def test_caps_cut_signals_coefficients_and_vectors():
    made, state = begun("q-fedavg(q=5)+full")
    liar = SIGNALS._replace(loss=np.array([0.5, 2e5, 1.0, 0.1, 0.7], np.float32))
    free = round_from_replies(made, state, liar, TRAINED)
    assert free.coefficients[1] > 0.999
    held = round_from_replies(
        made, state, liar, TRAINED, Caps(loss="2x", coefficient=0.4, norm="1x")
    )
    assert held.coefficients.max() <= 0.4 + 1e-6
    assert {flag.what for flag in held.flags} >= {"loss", "coefficient", "norm"}


def test_weights_that_are_not_finite_stop_the_round_with_a_reason():
    made, state = begun("fedsgd(q=1)+full")
    with pytest.raises(
        ValueError, match=r"coefficients of this round are not finite.*check the clients' loss"
    ):
        round_from_replies(
            made,
            state,
            SIGNALS._replace(loss=np.array([0.5, -2.0, 1.0, 0.1, 0.7], np.float32)),
            TRAINED,
        )


def test_an_update_that_a_cap_shortens_counts_as_the_shorter_update():
    """q-FedAvg divides by lengths, so those must be the shortened ones."""
    made, state = begun("q-fedavg(q=1)+full")
    longest = 0.05 * np.sqrt(sum(leaf.size for leaf in MODEL))
    capped = round_from_replies(made, state, SIGNALS, TRAINED, Caps(norm=float(longest)))
    lengths = [
        np.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in zip(own, MODEL, strict=True)))
        for own in TRAINED
    ]
    factors = [min(longest / length, 1.0) for length in lengths]
    assert max(factors) < 1
    shortened = [
        [m + np.float32(f) * (a - m) for a, m in zip(own, MODEL, strict=True)]
        for f, own in zip(factors, TRAINED, strict=True)
    ]
    expected = round_from_replies(made, state, SIGNALS, shortened)
    for a, b, old in zip(capped.state.model, expected.state.model, MODEL, strict=True):
        np.testing.assert_allclose(a - old, b - old, rtol=1e-3, atol=1e-6)


def test_a_broken_update_has_no_inner_products():
    made, state = begun("fedmgda+full")
    huge = [
        [np.full_like(leaf, 1e30) for leaf in MODEL] if k == 2 else own
        for k, own in enumerate(TRAINED)
    ]
    here = np.arange(K) != 2
    done = round_from_replies(made, state, SIGNALS, huge)
    alone = round_from_replies(
        made,
        state,
        jax.tree.map(lambda leaf: leaf[here], SIGNALS),
        [own for k, own in enumerate(TRAINED) if k != 2],
    )
    assert done.counted.tolist() == here.tolist()
    np.testing.assert_allclose(done.coefficients[here], alone.coefficients, rtol=1e-4, atol=1e-5)


def test_a_change_is_added_in_its_own_memory_where_that_may_be_written():
    model, change = np.ones(3, np.float32), np.arange(3, dtype=np.float32)
    locked = change.copy()
    locked.flags.writeable = False
    assert aggregation._add_change(model, change.copy()).tolist() == [1, 2, 3]
    assert aggregation._add_change(model, change) is change
    assert aggregation._add_change(model, locked).tolist() == [1, 2, 3]
    assert locked.tolist() == [0, 1, 2]
    wide = aggregation._add_change(model.astype(np.float64), np.full(3, 1e-9, np.float32))
    assert wide.dtype == np.float64
    assert (wide > 1).all()
    assert model.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "text, same",
    [
        ("fedavg+full", True),
        ("fedavg+full+server-momentum(learning_rate=1)", True),
        ("afl+full", False),
    ],
)
def test_clients_use_what_they_train_unless_the_server_averages_models(text: str, same: bool):
    made, state = begun(text)
    state = round_from_replies(made, state, SIGNALS, TRAINED).state
    assert aggregation.serves_its_model(made, state) is same


def broken(k: int) -> list:
    """What clients trained, where the vector of one of them has no finite length."""
    return [
        [np.full_like(leaf, 1e30) for leaf in MODEL] if j == k else own
        for j, own in enumerate(TRAINED)
    ]


def moved(done: RoundResult) -> list[np.ndarray]:
    return [after - before for after, before in zip(done.state.model, MODEL, strict=True)]


def vectors(weights: np.ndarray) -> list[np.ndarray]:
    """sum of weight times vector, in double precision."""
    return [total - weights.sum() * leaf for total, leaf in zip(mean(weights), MODEL, strict=True)]


@pytest.mark.parametrize("text", ["fedsgd(q=1)+full", "fedsgd(q=1, weights=equal)+full"])
def test_a_sum_that_is_not_divided_by_the_weights_is_divided_by_those_who_returned(text: str):
    """FedSGD divides by sizes. Those who are left have the coefficients of a round without the
    other: no weight is moved to them.
    """
    made, state = begun(text)
    caps = Caps(norm=1e9)  # lengths are looked at
    done = round_from_replies(made, state, SIGNALS, broken(2), caps)
    here = np.arange(K) != 2
    sizes = SIGNALS.examples if made.rule.counts_sizes else np.ones(K)
    expected = np.where(here, sizes * SIGNALS.loss / sizes[here].sum(), 0.0)
    assert abs(expected.sum() - 1) > 0.1
    np.testing.assert_allclose(done.coefficients, expected, rtol=1e-5)
    for found, change in zip(moved(done), vectors(expected), strict=True):
        np.testing.assert_allclose(found, change, rtol=1e-3, atol=1e-4)


def test_a_sum_of_models_is_not_scaled_up_for_who_is_missing():
    """FedCvg-Ratio as printed: w+ = sum v_k w_k over those who returned."""
    made = algorithm("fedcvg-ratio(memory=1, start=size, renormalise=false)+full")
    census = Census(CENSUS.examples, np.tile(CENSUS.examples[:, None, None] / 4, (1, 2, 2)))
    state = aggregation.first_state(made, [leaf.copy() for leaf in MODEL], census)
    told = SIGNALS._replace(unprivileged=SIGNALS.examples * 0.3)
    done = round_from_replies(made, state, told, broken(2), Caps(norm=1e9))
    expected = np.where(np.arange(K) == 2, 0.0, SIGNALS.examples / CENSUS.examples.sum())
    np.testing.assert_allclose(done.coefficients, expected, rtol=1e-5)
    for found, model in zip(done.state.model, mean(expected), strict=True):
        np.testing.assert_allclose(found, model, rtol=1e-3, atol=1e-4)


def test_each_of_several_models_is_divided_by_its_own_clients():
    """IFCA: client 2 is alone in the third model, which stays as it is when the client breaks."""
    made = algorithm("ifca(groups=3)+full")
    three = [np.stack([leaf, leaf + 1, leaf + 2]) for leaf in MODEL]
    state = aggregation.first_state(made, three, CENSUS, choice=np.zeros(6, np.int32), begun=True)
    choice = np.array([0, 1, 2, 1, 0], np.int32)
    trained = [
        [leaf + choice[k] for leaf in own] if k != 2 else own for k, own in enumerate(broken(2))
    ]
    done = round_from_replies(made, state, SIGNALS._replace(choice=choice), trained, Caps(norm=1e9))
    assert done.counted.tolist() == [True, True, False, True, True]
    sizes = SIGNALS.examples
    expected = [50 / 70, 10 / 70, 0, 60 / 70, 20 / 70]
    np.testing.assert_allclose(done.coefficients, expected, rtol=1e-6)
    for found, leaf, i in zip(done.state.model, MODEL, range(len(MODEL)), strict=True):
        np.testing.assert_array_equal(found[2], leaf + 2)
        for q, who in ((0, [0, 4]), (1, [1, 3])):
            share = sizes[who] / sizes[who].sum()
            change = sum(w * (TRAINED[k][i] - leaf) for w, k in zip(share, who, strict=True))
            np.testing.assert_allclose(found[q], leaf + q + change, rtol=1e-4, atol=1e-5)
    assert done.state.choice is not None
    assert done.state.choice.tolist() == [1, 0, 0, 2, 0, 1]  # clients 4, 0, 3, 5 and 1


# What clients keep.


def lambdas(state: ServerState) -> np.ndarray:
    return state.memory.value


def test_the_memory_of_each_client_lies_at_its_number():
    made, state = begun("afl(form=local, rate_lambda=0.01)+full")
    assert lambdas(state).shape == (6,)
    assert not state.memory.seen.any()
    done = round_from_replies(made, state, SIGNALS, TRAINED)
    assert done.state.memory.seen.tolist() == [True, True, False, True, True, True]
    # in this form lambda is updated first, and then is the coefficient
    kept = lambdas(done.state)[SIGNALS.client]
    np.testing.assert_allclose(done.coefficients, kept / kept.sum(), rtol=1e-5)
    assert lambdas(done.state)[2] == 0  # has not taken part
    assert not lambdas(state).any()  # the state of before is untouched
    again = round_from_replies(made, done.state, SIGNALS, TRAINED)
    assert (lambdas(again.state)[0] > lambdas(done.state)[0]).all()  # with the largest loss


def test_who_did_not_return_or_broke_keeps_what_it_had():
    made, state = begun("afl(form=local, rate_lambda=0.01)+full")
    before = round_from_replies(made, state, SIGNALS, TRAINED).state
    away = np.array([True, True, True, True, False])
    done = round_from_replies(
        made, before, SIGNALS._replace(returned=away), [*broken(2)[:4], None], Caps(norm=1e9)
    )
    kept, now = lambdas(before), lambdas(done.state)
    assert now[1] == kept[1]  # away, in the last slot
    assert now[3] == kept[3]  # broken, in the third
    assert (now[[4, 0, 5]] != kept[[4, 0, 5]]).all()


def test_nobody_remembers_a_round_in_which_nobody_counts():
    made, state = begun("afl(form=local, rate_lambda=0.01)+full")
    before = round_from_replies(made, state, SIGNALS, TRAINED).state
    zero = before._replace(memory=before.memory._replace(value=np.zeros(6, np.float32)))
    done = round_from_replies(made, zero, SIGNALS, TRAINED)
    assert not done.coefficients.any()
    assert done.state.memory is zero.memory
    assert done.state.public is zero.public


def test_clients_that_join_have_not_taken_part_yet():
    made = algorithm("fedcvg-ratio+full")
    census = Census(CENSUS.examples, np.tile(CENSUS.examples[:, None, None] / 4, (1, 2, 2)))
    state = aggregation.first_state(made, MODEL, census)
    memory = aggregation.with_clients(state.memory, 8)
    assert memory.seen.tolist() == [False] * 8
    assert [leaf.shape for leaf in memory.value] == [(8,), (8,)]
    assert [leaf.dtype for leaf in memory.value] == [np.float32, bool]
    some = Memory(np.ones(2, bool), {"a": np.arange(4.0).reshape(2, 2)})
    more = aggregation.with_clients(some, 3)
    assert more.seen.tolist() == [True, True, False]
    assert more.value["a"].tolist() == [[0, 1], [2, 3], [0, 0]]
