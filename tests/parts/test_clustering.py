"""Groups found by the server, given by the data, or drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.metrics.runs import group_accuracy
from evenly.parts.client_groups import drawn_groups, membership, rank_clustering
from evenly.randomness import Draws
from tests.oracles import ranking as oracle


def noisy(
    sizes: list[int], edges: int, noise: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rankings of clients around one random ranking for each group, and the groups."""
    draw = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    centre = [draw.permutation(edges) for _ in sizes]
    return (
        np.stack([oracle.argsort(centre[g] + noise * draw.normal(size=edges)) for g in group]),
        group,
    )


def as_places(rankings: np.ndarray) -> jax.Array:
    return jnp.asarray(np.argsort(rankings, axis=1), jnp.float32)


def test_groups_that_differ_are_found():
    rankings, group = noisy([4, 9, 6], edges=60, noise=8.0)
    found = rank_clustering({"a": as_places(rankings)}, 3, seed=0)
    assert group_accuracy(found.choice, group) == 100
    for q in range(3):
        members = rankings[found.choice == q]
        np.testing.assert_array_equal(
            jnp.argsort(found.centres["a"][q]), oracle.vote(list(members))
        )
    assert 1 <= found.iterations < 20  # until nobody moves


@pytest.mark.parametrize("seed", range(4))
def test_one_start_is_the_oracles(seed: int):
    # Much noise, so that clients move between clusters.
    rankings, _ = noisy([5, 6, 7], edges=25, noise=30.0, seed=seed)
    found = rank_clustering(as_places(rankings), 3, seed=seed, restarts=1, iterations=2)
    first = Draws(seed, "rank clustering").at(0).choice(18, 3, replace=False)
    choice, distance = oracle.cluster(list(rankings), first, 2)
    np.testing.assert_array_equal(found.choice, choice)
    assert found.distance == distance


@pytest.mark.parametrize("most", [1, 2])
def test_clients_move_no_more_often_than_allowed(most: int):
    rankings, _ = noisy([5, 6, 7], edges=6, noise=30.0)  # settles after three moves
    found = rank_clustering(as_places(rankings), 3, seed=0, restarts=1, iterations=most)
    assert found.iterations == most


def test_more_restarts_are_never_worse():
    rankings, _ = noisy([5, 6, 7], edges=25, noise=30.0)
    distances = [
        rank_clustering(as_places(rankings), 3, seed=5, restarts=r).distance for r in (1, 4)
    ]
    assert distances[1] <= distances[0]


def test_layers_count_together():
    rankings, group = noisy([5, 5], edges=40, noise=5.0)
    blank = jnp.tile(jnp.arange(6.0), (10, 1))
    found = rank_clustering({"told": as_places(rankings), "blank": blank}, 2, seed=0)
    assert group_accuracy(found.choice, group) == 100
    assert found.distance == rank_clustering(as_places(rankings), 2, seed=0).distance


def test_equal_clients_stay_together_and_empty_clusters_keep_their_centres():
    same = jnp.tile(jnp.arange(5.0), (4, 1))
    found = rank_clustering(same, 3, seed=0)
    assert found.choice.tolist() == [0, 0, 0, 0]
    assert found.distance == 0
    np.testing.assert_array_equal(found.centres, same[:3])


def test_one_group_holds_everyone_and_as_many_groups_as_clients_one_each():
    rankings, _ = noisy([2, 2], edges=12, noise=30.0)
    everyone = rank_clustering(as_places(rankings), 1, seed=0)
    assert everyone.choice.tolist() == [0, 0, 0, 0]
    alone = rank_clustering(as_places(rankings), 4, seed=0)
    assert sorted(alone.choice.tolist()) == [0, 1, 2, 3]
    assert alone.distance == 0


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"groups": 5}, r"4 clients cannot be divided into 5 groups"),
        ({"groups": 0}, r"There must be at least one group, got 0\."),
        ({"groups": 2, "iterations": 0}, r"iterations must be at least 1, got 0\."),
        ({"groups": 2, "restarts": 0}, r"restarts must be at least 1, got 0\."),
    ],
)
def test_impossible_clusterings_are_refused(settings: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        rank_clustering(jnp.zeros((4, 3)), **settings, seed=0)


def test_who_belongs_where():
    assert membership([0, 0], 1).tolist() == [[True, True]]
    np.testing.assert_array_equal(
        membership([0, 2, 0], 3), [[True, False, True], [False] * 3, [False, True, False]]
    )
    with pytest.raises(
        ValueError,
        match=r"numbered from 0 to 2, but client 1 is in group 3\. Correct it, or use more groups",
    ):
        membership([0, 3], 3)
    with pytest.raises(ValueError, match=r"numbered from 0 to 2, but client 0 is in group -1"):
        membership([-1, 3], 3)
    with pytest.raises(ValueError, match=r"one whole number per client, got float64\[2\]"):
        membership([0.0, 1.0], 2)


def test_first_groups_are_drawn_by_client():
    many, few = drawn_groups(300, 4, seed=1), drawn_groups(10, 4, seed=1)
    np.testing.assert_array_equal(many[:10], few)
    assert (np.bincount(many, minlength=4) > 40).all()
    assert (many != drawn_groups(300, 4, seed=2)).any()
