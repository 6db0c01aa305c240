"""Edge-popup against NumPy, the example of the specification, and whole rounds of FRL
side by side.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly import trees
from evenly.data.federation import Shard
from evenly.models import MLP, Custom
from evenly.parts.ranking import (
    DIGIT,
    SCORES,
    Ballot,
    Supernetwork,
    ballot,
    inverse,
    places,
    supernetwork,
)
from evenly.parts.ranking_work import EdgePopup, RankServer, Searching, score_gradient, score_mask
from evenly.records import record, static
from evenly.types import Server, Work
from tests.oracles import ranking as oracle

DRAW = np.random.default_rng(7)
X, Y = DRAW.normal(size=(20, 6)), DRAW.integers(0, 3, 20)
LINEAR = Custom(initialise=lambda key: jnp.zeros((6, 3)), apply=lambda w, x: x @ w)


def padded(x: np.ndarray, y: np.ndarray, size: int) -> Shard:
    short = size - len(y)
    x = np.concatenate([x, np.full((short, x.shape[1]), 1e3)]).astype(np.float32)
    mask = jnp.array([1.0] * len(y) + [0.0] * short)
    return Shard(
        jnp.asarray(x),
        jnp.asarray(np.append(y, np.zeros(short, int))),
        jnp.zeros(size, int),
        jnp.ones(size),
        mask,
    )


def joined(vector: Ballot) -> np.ndarray:
    return np.asarray(DIGIT * vector.high + vector.low)


@record
class Squares:
    """Half the squared error of one linear output against 1: the example of the specification."""

    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def init(self, key):
        return jnp.zeros((4, 1))

    def losses(self, params, shard):
        return 0.5 * ((shard.x @ params)[:, 0] - 1) ** 2

    def penalty(self, params):
        return 0.0

    def predict(self, params, x):
        return jnp.zeros(len(x), int)

    def probabilities(self, params, x):
        return jnp.ones((len(x), 2)) / 2


def test_the_example_of_one_step():
    task = Supernetwork(inner=Squares(), weights=jnp.array([[0.5], [-1.0], [2.0], [-0.5]]))
    scores = jnp.array([[0.1], [0.4], [0.3], [0.2]])
    batch = padded(np.array([[1.0, 2.0, -1.0, 3.0]]), np.array([0]), 1)
    assert score_mask(scores, k=0.5)[:, 0].tolist() == [0, 1, 1, 0]
    assert float(task.inner.losses(task.subnetwork(score_mask(scores, k=0.5)), batch)[0]) == 12.5
    work = EdgePopup(learning_rate=0.01, momentum=0.9, weight_decay=0.0)
    local = work.step(task, None, Searching(scores, jnp.zeros((4, 1))), batch)
    np.testing.assert_allclose(local.velocity[:, 0], [-2.5, 10, 10, 7.5])
    np.testing.assert_allclose(local.scores[:, 0], [0.125, 0.3, 0.2, 0.125], rtol=1e-6)
    # Two of these tie in exact arithmetic; in float32 rounding would decide.
    vector, memory = work.finish(
        task, None, local._replace(scores=jnp.array([[0.125], [0.3], [0.2], [0.125]]))
    )
    assert memory is None
    assert inverse(joined(vector)).tolist() == [0, 3, 2, 1]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("momentum, decay", [(0.0, 0.0), (0.9, 0.01)])
def test_a_round_of_steps_is_the_oracles(scores: str, momentum: float, decay: float):
    task = supernetwork(LINEAR, seed=3, scores=scores, k=0.4)
    work = EdgePopup(learning_rate=0.3, momentum=momentum, weight_decay=decay)
    received = task.init(jax.random.key(1))
    local, pieces = (
        work.start(task, received, None),
        [(X[i : i + 8], Y[i : i + 8]) for i in (0, 8, 16)],
    )
    first = np.asarray(local.scores, np.float64)
    for x, y in pieces:
        local = work.step(task, received, local, padded(x, y, 8))
    expected = oracle.edge_popup(
        np.asarray(task.weights, np.float64),
        first,
        pieces,
        rate=0.3,
        momentum=momentum,
        decay=decay,
        k=0.4,
        kind=scores,
    )
    np.testing.assert_allclose(local.scores, expected, rtol=2e-4, atol=2e-6)
    assert np.abs(expected - first).max() > 0.01, "the steps moved something"
    ranked = np.abs(expected) if scores == "abs" else expected
    np.testing.assert_array_equal(
        joined(work.finish(task, received, local)[0]).ravel(),
        oracle.argsort(oracle.argsort(ranked.ravel())),
    )


def test_a_score_of_zero_has_no_side_and_stays_while_its_magnitude_counts():
    task = Supernetwork(
        inner=Squares(), weights=jnp.array([[0.5], [-1.0], [2.0], [-0.5]]), scores="abs"
    )
    batch = padded(np.array([[1.0, 2.0, -1.0, 3.0]]), np.array([0]), 1)
    gradient = score_gradient(task, jnp.array([[0.0], [-0.4], [0.3], [0.2]]), batch)
    # the example above, turned where the score is negative
    np.testing.assert_allclose(gradient[:, 0], [0, -10, 10, 7.5])


@pytest.mark.parametrize("scores", SCORES)
def test_without_steps_a_client_votes_for_what_it_received(scores: str):
    task, work = supernetwork(LINEAR, scores=scores), EdgePopup()
    received = task.init(jax.random.key(5))
    local = work.start(task, received, None)
    np.testing.assert_array_equal(joined(work.finish(task, received, local)[0]), received)
    by_magnitude = scores != "raw"
    np.testing.assert_array_equal(
        score_mask(local.scores, k=0.5, by_magnitude=by_magnitude), task.masks(received)
    )


def test_a_client_whose_training_broke_sends_nothing_finite():
    task, work = supernetwork(LINEAR), EdgePopup()
    received = task.init(jax.random.key(5))
    local = work.start(task, received, None)
    broken = local._replace(scores=local.scores.at[2, 1].set(jnp.nan))
    assert not bool(trees.all_finite(work.finish(task, received, broken)[0]))


def test_the_parts_fit_their_places():
    assert isinstance(EdgePopup(), Work)
    assert isinstance(RankServer(), Server)


def test_the_server_elects_whatever_came_before():
    server, ballots = (
        RankServer(),
        [jnp.array([0.0, 1.0, 2.0]), jnp.array([2.0, 1.0, 0.0]), jnp.array([0.0, 2.0, 1.0])],
    )
    total = jax.tree.map(lambda *parts: sum(parts), *(ballot({"a": b}) for b in ballots))
    model, state = server.update(total, server.init({"a": ballots[0]}), {"a": ballots[0]})
    assert model["a"].tolist() == [0, 2, 1]  # sums 2, 4, 3
    assert server.serve(model, state) is model


def test_rounds_of_frl_learn_with_clients_side_by_side():
    # Three clients, one model: from chance to most rows right, without a weight ever changing.
    draw = np.random.default_rng(1)
    centres = 2 * draw.normal(size=(3, 6))
    y = draw.integers(0, 3, (3, 24))
    x = (centres[y] + 0.3 * draw.normal(size=(3, 24, 6))).astype(np.float32)
    task = supernetwork(MLP(features=6, classes=3, hidden=(64,), bias=False), seed=2)
    work, server = EdgePopup(learning_rate=0.1), RankServer()

    @jax.jit
    def one_round(model):
        def client(x, y):
            batch = Shard(x, y, jnp.zeros(24, int), jnp.ones(24), jnp.ones(24))
            local = work.start(task, model, None)
            for _ in range(3):
                local = work.step(task, model, local, batch)
            return work.finish(task, model, local)[0]

        total = jax.tree.map(lambda part: part.sum(0), jax.vmap(client)(x, y))
        return server.update(total, (), model)[0]

    model = task.init(jax.random.key(0))
    right = lambda m: float((task.predict(m, x.reshape(-1, 6)) == y.reshape(-1)).mean())  # noqa: E731  # pyright: ignore[reportArgumentType]
    before = right(model)
    for _ in range(6):
        model = one_round(model)
    for leaf in jax.tree.leaves(model):
        np.testing.assert_array_equal(
            places(leaf), leaf, err_msg="a model is always a permutation of places"
        )
    assert before < 0.7
    assert right(model) > 0.95


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"learning_rate": 0.0}, r"learning_rate must be above 0, got 0\.0\."),
        ({"momentum": 1.0}, r"momentum must be at least 0 and below 1, got 1\.0\."),
        ({"weight_decay": -0.1}, r"weight_decay must be at least 0, got -0\.1\."),
        ({"epochs": 0}, r"epochs must be a whole number of at least 1, got 0\."),
    ],
)
def test_bad_settings_are_refused(settings: dict, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}( Meaning: .*)?$"):
        EdgePopup(**settings)


def test_a_task_whose_weights_are_not_frozen_is_refused():
    with pytest.raises(
        TypeError,
        match=(
            r"frozen weights, but the task is MLP\. Wrap it: evenly\.parts\.ranking\.supernetwork"
        ),
    ):
        EdgePopup().start(MLP(features=2, classes=2), None, None)
