"""The task of ranking another task's weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.data.federation import Shard
from evenly.models import MLP, Custom, LeNet, LinearSVM, ResNet, Softmax, check_task
from evenly.parts.ranking import SCORES, Supernetwork, dropped, fan_in, places, supernetwork
from tests import federations

MODEL = MLP(features=5, classes=3, hidden=(8,), bias=False)
KINDS = pytest.mark.parametrize("scores, positive", [(s, p) for s in SCORES for p in (False, True)])


def some_shard() -> Shard:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(6, 5)).astype(np.float32), draw.integers(0, 3, 6)
    return Shard(jnp.asarray(x), jnp.asarray(y), jnp.zeros(6, int), jnp.ones(6), jnp.ones(6))


def test_the_nets_of_the_paper_have_its_edges():
    def sizes(task):
        return [
            int(np.prod(leaf.shape))
            for leaf in jax.tree.leaves(jax.eval_shape(task.init, jax.random.key(0)))
        ]

    assert sizes(LeNet(bias=False)) == [288, 18432, 1605632, 1280]
    assert sizes(LeNet(bias=False, classes=62)) == [288, 18432, 1605632, 7936]
    assert sizes(MLP(features=101, classes=2, hidden=(1024, 1024), bias=False)) == [
        103424,
        1048576,
        2048,
    ]


def test_a_perceptron_without_biases_is_one_whose_biases_are_zero():
    plain, with_bias = (
        MODEL.init(jax.random.key(2)),
        MLP(features=5, classes=3, hidden=(8,)).init(jax.random.key(2)),
    )
    np.testing.assert_array_equal(
        MODEL.losses(plain, some_shard()),
        MLP(features=5, classes=3, hidden=(8,)).losses(with_bias, some_shard()),
    )


def test_weights_are_a_signed_constant_of_the_seed():
    one, same, other = (supernetwork(MODEL, seed=s) for s in (3, 3, 4))
    for a, b, c in zip(*(jax.tree.leaves(n.weights) for n in (one, same, other)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert (np.asarray(a) != np.asarray(c)).any()
        np.testing.assert_allclose(np.abs(a), np.sqrt(2 / fan_in(a.shape)), rtol=1e-6)
        assert 0 < (np.asarray(a) > 0).mean() < 1


def test_normal_weights_have_that_deviation():
    wide = supernetwork(
        MLP(features=400, classes=200, hidden=(50,), bias=False), weights="normal"
    ).weights[0]["w"]
    assert float(wide.std()) == pytest.approx(np.sqrt(2 / 400), rel=0.02)
    assert fan_in((3, 3, 32, 64)) == 288


def test_the_first_places_are_a_permutation_of_each_layer():
    network = supernetwork(MODEL)
    first, other = network.init(jax.random.key(0)), network.init(jax.random.key(1))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_array_equal(np.sort(np.asarray(a).ravel()), np.arange(a.size))
        assert (np.asarray(a) != np.asarray(b)).any()


@KINDS
def test_scores_are_evenly_spaced_and_lead_back_to_the_places(scores: str, positive: bool):
    network = supernetwork(MODEL, scores=scores, positive=positive)
    start = network.init(jax.random.key(0))
    for place, score in zip(
        jax.tree.leaves(start), jax.tree.leaves(network.scores_at(start)), strict=True
    ):
        bound, values = fan_in(place.shape) ** -0.5, np.sort(np.asarray(score).ravel())
        np.testing.assert_array_equal(places(score), place)
        low = 0.0 if positive or scores == "abs" else -bound
        np.testing.assert_allclose(np.diff(values), (bound - low) / place.size, rtol=1e-5)
        assert low < values[0] < values[-1] < bound


@pytest.mark.parametrize("scores", SCORES)
def test_the_scores_of_the_largest_layer_are_distinct(scores: str):
    network = Supernetwork(inner=MODEL, weights=None, scores=scores)
    place = jnp.arange(2.0**22).reshape(2**11, 2**11)
    assert (np.diff(np.asarray(network.scores_at(place)).ravel()) > 0).all()
    assert len(np.unique(np.abs(network.scores_at(place)))) == 2**22


@KINDS
@pytest.mark.parametrize("k", [0.5, 0.3])
def test_masks_keep_the_share_of_the_highest(scores: str, positive: bool, k: float):
    network = supernetwork(MODEL, scores=scores, positive=positive, k=k)
    start = network.init(jax.random.key(0))
    for mask, score in zip(
        jax.tree.leaves(network.masks(start)),
        jax.tree.leaves(network.scores_at(start)),
        strict=True,
    ):
        ranked = np.abs(score).ravel() if scores != "raw" else np.asarray(score).ravel()
        expected = np.zeros(mask.size)
        expected[np.argsort(ranked)[dropped(mask.size, k) :]] = 1
        np.testing.assert_array_equal(np.asarray(mask).ravel(), expected)


def test_frl_compat_keeps_both_ends():
    # Section 2.19 of the specification: (-0.9, -0.5, -0.2, 0.1, 0.4, 0.8) has raw top half {3, 4,
    # 5}, by magnitude {0, 1, 5}.
    from evenly.parts.ranking_work import score_mask

    scores = jnp.array([-0.9, -0.5, -0.2, 0.1, 0.4, 0.8])
    assert score_mask(scores, k=0.5).tolist() == [0, 0, 0, 1, 1, 1]
    assert score_mask(scores, k=0.5, by_magnitude=True).tolist() == [1, 1, 0, 0, 0, 1]


def test_masks_of_the_example():
    # Rankings of groups A and B and of all, masks with k = 0.5.
    network = Supernetwork(inner=MODEL, weights=None)
    for ranking, mask in (
        ([0, 2, 4, 5, 3, 1], [0, 1, 0, 1, 0, 1]),
        ([0, 2, 3, 1, 4, 5], [0, 1, 0, 0, 1, 1]),
        ([0, 2, 3, 5, 1, 4], [0, 1, 0, 0, 1, 1]),
    ):
        assert network.masks(jnp.argsort(jnp.array(ranking)).astype(jnp.float32)).tolist() == mask


def test_it_is_the_subnetwork_that_loses_and_predicts():
    network, shard = supernetwork(MODEL, seed=1), some_shard()
    start = network.init(jax.random.key(0))
    sub = network.subnetwork(network.masks(start))
    assert all((np.asarray(leaf) == 0).mean() == 0.5 for leaf in jax.tree.leaves(sub))
    np.testing.assert_array_equal(network.losses(start, shard), MODEL.losses(sub, shard))
    np.testing.assert_array_equal(network.predict(start, shard.x), MODEL.predict(sub, shard.x))
    np.testing.assert_array_equal(
        network.probabilities(start, shard.x), MODEL.probabilities(sub, shard.x)
    )
    assert network.penalty(start) == 0
    assert network.reduction == "mean"


def test_it_is_a_task_that_the_simulator_accepts():
    check_task(supernetwork(MODEL), federations.tiny())


def test_the_largest_layer_has_as_many_edges_as_can_be_ranked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evenly.parts.ranking.MOST_EDGES", 40)
    assert supernetwork(MODEL).k == 0.5
    monkeypatch.setattr("evenly.parts.ranking.MOST_EDGES", 39)
    with pytest.raises(ValueError, match="40 edges; at most 39 can be ranked exactly"):
        supernetwork(MODEL)


@pytest.mark.parametrize(
    "task, settings, sentence",
    [
        (MODEL, {"k": 0.0}, r"k must be a share of the edges between 0 and 1, got 0\.0"),
        (MODEL, {"k": 1.0}, r"k must be a share of the edges between 0 and 1, got 1\.0"),
        (MODEL, {"k": float("nan")}, r"k must be a share of the edges between 0 and 1, got nan"),
        (
            MODEL,
            {"k": 0.999},
            r"MLP: parameter \[0\]\['w'\] has shape \[5, 8\]: k = 0\.999 keeps 40 of 40 edges",
        ),
        (MODEL, {"k": 1e-9}, r"keeps 0 of 40 edges, but it must keep some and drop some"),
        (MODEL, {"scores": "rank"}, r"scores must be one of raw, abs, frl-compat, got 'rank'"),
        (MODEL, {"weights": "zero"}, r"weights must be one of signed-constant, normal, got 'zero'"),
        (
            Softmax(features=5, classes=3),
            {},
            r"Softmax: parameter \['b'\] has shape \[3\], but only weights .* biases",
        ),
        (LeNet(), {}, r"LeNet: parameter \['conv1'\]\['b'\] has shape \[32\].*LeNet\(bias=False\)"),
        (ResNet(width=2, blocks=(1,)), {}, r"ResNet: parameter .* scales of normalisation cannot"),
        (LinearSVM(features=5), {}, r"LinearSVM has no probabilities"),
    ],
    ids=[
        "k 0",
        "k 1",
        "k nan",
        "k keeps all",
        "k keeps none",
        "scores",
        "weights",
        "bias",
        "lenet",
        "normalisation",
        "svm",
    ],
)
def test_what_cannot_be_ranked_is_refused(task, settings: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        supernetwork(task, **settings)


def test_layers_beyond_exact_places_are_refused():
    huge = Custom(initialise=lambda key: jnp.zeros((2**12, 2**11)), apply=lambda w, x: x @ w)
    with pytest.raises(
        ValueError,
        match=r"has shape \[4096, 2048\], 8388608 edges; at most 4194304 can be ranked exactly",
    ):
        supernetwork(huge)
