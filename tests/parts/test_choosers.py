"""A client infers its group from masks: against NumPy, the example, and what must not matter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.data.federation import Shard
from evenly.models import Custom
from evenly.parts.client_groups import (
    CHOOSERS,
    binary,
    chooser,
    entropy_gradient,
    lowest_loss,
    mixture_entropy,
    one_shot,
)
from evenly.parts.ranking import Supernetwork, supernetwork
from tests.oracles import ranking as oracle

LINEAR = Custom(initialise=lambda key: jnp.zeros((6, 3)), apply=lambda w, x: x @ w)
NETWORK = supernetwork(LINEAR, seed=1, weights="normal")
EVERY = pytest.mark.parametrize("name", CHOOSERS)


def rows(seed: int = 0, n: int = 12, padding: int = 0) -> Shard:
    draw = np.random.default_rng(seed)
    x = np.concatenate([2 * draw.normal(size=(n, 6)), np.full((padding, 6), 50.0)]).astype(
        np.float32
    )
    mask = jnp.array([1.0] * n + [0.0] * padding)
    return Shard(
        jnp.asarray(x),
        jnp.asarray(draw.integers(0, 3, n + padding)),
        jnp.zeros(n + padding, int),
        jnp.ones(n + padding),
        mask,
    )


def some_masks(groups: int, seed: int = 0) -> jax.Array:
    return jnp.stack(
        [NETWORK.masks(NETWORK.init(k)) for k in jax.random.split(jax.random.key(seed), groups)]
    )


def test_the_example_of_the_specification():
    # theta = [[2, -1], [-1, 2]], masks the diagonal and the other diagonal, x = (1, 0).
    task = Supernetwork(
        inner=Custom(initialise=lambda key: jnp.zeros((2, 2)), apply=lambda w, x: x @ w),
        weights=jnp.array([[2.0, -1], [-1, 2]]),
    )
    masks = jnp.array([[[1.0, 0], [0, 1]], [[0, 1], [1, 0]]])
    shard = Shard(
        jnp.array([[1.0, 0.0]]), jnp.array([0]), jnp.zeros(1, int), jnp.ones(1), jnp.ones(1)
    )
    shares = jnp.array([0.5, 0.5])
    assert float(mixture_entropy(task, masks, shares, shard)) == pytest.approx(
        0.4750515637, abs=1e-6
    )
    np.testing.assert_allclose(
        entropy_gradient(task, masks, shares, shard), [-0.4474393563, -0.2237196781], atol=1e-6
    )
    alone = [float(mixture_entropy(task, masks, jnp.eye(2)[q], shard)) for q in range(2)]
    np.testing.assert_allclose(alone, [0.3653338551, 0.5822031089], atol=1e-6)
    assert [int(choose(task, masks, shard)) for choose in CHOOSERS.values()] == [0, 0, 0]


@pytest.mark.parametrize(
    "groups", [2, 5, *(pytest.param(n, marks=pytest.mark.further) for n in (3, 8))]
)
def test_choices_are_the_oracles(groups: int):
    theta = np.asarray(NETWORK.weights, np.float64)
    one, half, loss = (jax.jit(choose) for choose in (one_shot, binary, lowest_loss))
    for seed in range(6):
        masks, shard = some_masks(groups, seed), rows(seed)
        x, plain = np.asarray(shard.x, np.float64), np.asarray(masks, np.float64)
        gradient = oracle.entropy_gradient(theta, plain, np.full(groups, 1 / groups), x)
        np.testing.assert_allclose(
            entropy_gradient(NETWORK, masks, jnp.full(groups, 1 / groups), shard),
            gradient,
            atol=1e-4,
        )
        assert int(one(NETWORK, masks, shard)) == gradient.argmin()
        assert int(half(NETWORK, masks, shard)) == oracle.binary(theta, plain, x)
        losses = [
            -np.log(oracle.softmax(x @ (theta * m))[np.arange(12), np.asarray(shard.y)]).mean()
            for m in plain
        ]
        assert int(loss(NETWORK, masks, shard)) == np.argmin(losses)


@EVERY
def test_one_group_is_the_only_choice(name: str):
    assert int(CHOOSERS[name](NETWORK, some_masks(1), rows())) == 0


@EVERY
def test_permuting_masks_permutes_the_answer(name: str):
    masks, order = some_masks(5, seed=4), np.array([3, 0, 4, 1, 2])
    choice = int(CHOOSERS[name](NETWORK, masks, rows(2)))
    assert order[int(CHOOSERS[name](NETWORK, masks[order], rows(2)))] == choice


@EVERY
def test_equal_masks_give_the_first(name: str):
    assert int(CHOOSERS[name](NETWORK, jnp.stack([some_masks(1)[0]] * 5), rows())) == 0


@EVERY
def test_padding_does_not_matter(name: str):
    whole, short = rows(3), rows(3, padding=4)
    short = short._replace(x=short.x.at[:12].set(whole.x), y=short.y.at[:12].set(whole.y))
    masks = some_masks(5, seed=8)
    assert int(CHOOSERS[name](NETWORK, masks, whole)) == int(CHOOSERS[name](NETWORK, masks, short))


@EVERY
def test_clients_choose_side_by_side(name: str):
    masks, clients = some_masks(4, seed=1), [rows(seed) for seed in range(5)]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *clients)
    together = jax.vmap(CHOOSERS[name], (None, None, 0))(NETWORK, masks, stacked)
    assert together.tolist() == [int(CHOOSERS[name](NETWORK, masks, c)) for c in clients]


def test_halving_two_groups_is_one_shot():
    for seed in range(8):
        masks, shard = some_masks(2, seed), rows(seed)
        assert int(binary(NETWORK, masks, shard)) == int(one_shot(NETWORK, masks, shard))


def test_a_group_whose_model_broke_is_not_chosen():
    masks = some_masks(3, seed=1)
    assert int(lowest_loss(NETWORK, masks.at[0].set(jnp.nan), rows())) != 0


def test_unknown_names_are_refused():
    assert chooser("binary") is binary
    with pytest.raises(
        ValueError,
        match=(
            r"There is no group inference 'lowest_loss'\. Did you mean 'lowest-loss'\? Known:"
            r" binary, lowest-loss, one-shot\."
        ),
    ):
        chooser("lowest_loss")
