"""Models with a state beside their parameters, and training that takes random numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly import trees
from evenly.data.federation import Federation, Shard
from evenly.models import Augmented
from evenly.randomness import key_data, next_key, visit_key
from evenly.simulate import simulate
from evenly.simulate.schedule import Planner
from evenly.types import Seeds
from tests.models.stateful import Normalised
from tests.simulations import algorithms, same_bits

ROUNDS = 4
METHODS = ["q-fedavg(q=1)", "ditto", "ifca(groups=2)"]
# every other kind of local training, and servers that move or serve several models
LESS_OFTEN = [
    "fedavg", "fedavg+server-adam", "fedsgd", "fedprox", "local", "afl", "fedmgda", "fairfed+full",
]  # fmt: skip


@pytest.fixture
def fitting(tiny: Federation) -> Normalised:
    return Normalised(features=tiny.x.shape[1], classes=len(tiny.labels), dropout=0.3)


def noisy(task: Any) -> Augmented:
    return Augmented(task=task, augment=lambda key, x: x + jax.random.normal(key, x.shape))


def leaves(model: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])


@pytest.mark.parametrize(
    "text", [*METHODS, *(pytest.param(text, marks=pytest.mark.further) for text in LESS_OFTEN)]
)
def test_lanes_and_streaming_lead_to_the_same_model(
    fitting: Normalised, tiny: Federation, text: str
):
    (one,) = simulate(fitting, tiny, algorithms(text), ROUNDS)
    assert np.isfinite(leaves(one.model)).all()
    assert not one.excluded.any()
    layouts: list[dict[str, Any]] = [{"lanes": 2}, {"lanes": 8}]
    layouts += [] if "groups" in text else [{"stream": True}]
    for layout in layouts:
        (other,) = simulate(fitting, tiny, algorithms(text), ROUNDS, **layout)
        np.testing.assert_allclose(leaves(other.model), leaves(one.model), atol=2e-6)


@pytest.mark.further
def test_augmented_features_are_the_same_with_lanes_and_streaming(
    fitting: Normalised, tiny: Federation
):
    one, *others = (
        simulate(noisy(fitting), tiny, algorithms("fedavg"), ROUNDS, **layout)[0]
        for layout in ({}, {"lanes": 2}, {"stream": True})
    )
    for other in others:
        np.testing.assert_allclose(leaves(other.model), leaves(one.model), atol=2e-6)


def test_runs_share_the_random_numbers_of_their_clients(fitting: Normalised, tiny: Federation):
    together = simulate(fitting, tiny, algorithms("q-fedavg(q=[0, 1])"), ROUNDS)
    for trace, text in zip(together, ("q-fedavg(q=0)", "q-fedavg(q=1)"), strict=True):
        (alone,) = simulate(fitting, tiny, algorithms(text), ROUNDS)
        np.testing.assert_allclose(leaves(trace.model), leaves(alone.model), atol=2e-6)


def test_rounds_are_what_a_loop_over_clients_computes(fitting: Normalised, tiny: Federation):
    """Plain gradient steps with the keys of each visit; parameters and state are averaged by
    size.
    """
    (method,) = algorithms("fedavg(weights=size, learning_rate=0.2)+full")
    (trace,) = simulate(fitting, tiny, [method], 2)
    expected = fitting.init(jax.random.key(0))
    planner = Planner(tiny, method.work, [method.select], seeds=Seeds(), dropout=0.0)
    for t in range(2):
        block = planner.block(
            t, t + 1, rounds=1, steps=planner.most_steps_per_round,
            stops=np.array([1]), evaluate=np.array([False]),
        )  # fmt: skip
        models = []
        for k, client in enumerate(block.cohort[0]):
            model, key = expected, visit_key(key_data(0), t, int(client))
            for s in range(block.first_step[k], block.first_step[k + 1]):
                key, now = next_key(key)
                model = _plain_step(fitting, model, _batch(tiny, block.rows[s]), now)
            models.append(model)
        shares = tiny.train.counts[block.cohort[0]] / tiny.train.counts.sum()
        expected = jax.tree.map(
            lambda *own, shares=shares: sum(a * w for a, w in zip(shares, own, strict=True)),
            *models,
        )
    np.testing.assert_allclose(leaves(trace.model), leaves(expected), atol=2e-6)


def _batch(federation: Federation, rows: np.ndarray) -> Shard:
    there = rows < len(federation.y)
    at = np.where(there, rows, 0)
    x = np.where(there[:, None], federation.x[at], 0)
    mask = there.astype(np.float32)
    return Shard(x, federation.y[at], federation.group[at], np.ones_like(mask), mask)


def _plain_step(task: Normalised, model: Any, batch: Shard, key: Any) -> trees.Stateful:
    def loss(params: Any) -> tuple[jax.Array, Any]:
        losses, state = task.train_losses(trees.Stateful(params, model.state), batch, key)
        return (losses * batch.mask).sum() / batch.mask.sum(), state

    gradient, state = jax.grad(loss, has_aux=True)(model.params)
    return trees.Stateful(jax.tree.map(lambda w, g: w - 0.2 * g, model.params, gradient), state)


def test_the_state_is_averaged_and_neither_damped_nor_moved_by_an_optimiser(
    fitting: Normalised, tiny: Federation
):
    damped, plain, optimised = (
        simulate(fitting, tiny, algorithms(text), 1)[0].model
        for text in (
            "q-fedavg(q=0, lipschitz=10)+uniform(clients=3)",
            "fedavg(weights=equal)+uniform(clients=3)",
            "fedavg(weights=equal)+uniform(clients=3)+server-adam(learning_rate=0.5)",
        )
    )
    for name in plain.state:
        np.testing.assert_allclose(damped.state[name], plain.state[name], atol=1e-6)
        np.testing.assert_array_equal(optimised.state[name], plain.state[name])
    assert np.abs(optimised.params["w"] - plain.params["w"]).max() > 0.1
    (strong,) = simulate(
        fitting, tiny, algorithms("q-fedavg(q=1, lipschitz=1000)+uniform(clients=3)"), 1
    )
    first = fitting.init(jax.random.key(0))
    moved = np.abs(strong.model.params["w"] - first.params["w"]).max()
    assert moved < np.abs(plain.params["w"] - first.params["w"]).max() / 3, "the step is damped"
    assert np.abs(strong.model.state["mean"]).max() > np.abs(plain.state["mean"]).max() / 3


def test_a_state_that_is_not_finite_excludes_its_client(fitting: Normalised, tiny: Federation):
    x = tiny.x.copy()
    x[tiny.train.of(2)] = 1e30  # the square of this overflows, in the batch statistics alone
    broken = Federation(**{f: getattr(tiny, f) for f in tiny.__dataclass_fields__} | {"x": x})
    (trace,) = simulate(fitting, broken, algorithms("fedavg+full"), 2)
    assert trace.excluded.tolist() == [0, 0, 2, 0, 0, 0]
    assert np.isfinite(leaves(trace.model)).all()


@pytest.mark.parametrize(
    "task_of",
    [lambda task: task, pytest.param(noisy, marks=pytest.mark.further)],
    ids=["plain", "augmented"],
)
def test_an_interrupted_run_resumes_with_the_same_random_numbers(
    fitting: Normalised, tiny: Federation, tmp_path: Any, monkeypatch: pytest.MonkeyPatch,
    task_of: Any,
):  # fmt: skip
    fitting = task_of(fitting)
    monkeypatch.setattr("evenly.simulate.checkpoints.CHECKPOINT_SECONDS", 0.0)
    method = algorithms("ditto")
    (whole,) = simulate(fitting, tiny, method, 6, evaluate_every=2)

    class StopError(Exception):
        pass

    def stop(done: int, _: int) -> None:
        if done >= 2:
            raise StopError

    path = tmp_path / "run.npz"
    with pytest.raises(StopError):
        simulate(fitting, tiny, method, 6, evaluate_every=2, checkpoint=path, progress=stop)
    assert path.exists()
    (resumed,) = simulate(fitting, tiny, method, 6, evaluate_every=2, checkpoint=path)
    same_bits(whole, resumed)


def test_other_seeds_of_batches_drop_other_features(fitting: Normalised, tiny: Federation):
    one, same, other = (
        simulate(fitting, tiny, algorithms("fedsgd+full"), 1, seeds=Seeds(batches=seed))[0].model
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.params["w"], same.params["w"])
    assert (one.params["w"] != other.params["w"]).any()


def test_keys_of_visits_are_those_of_jax_and_differ_by_round_client_and_step():
    seed = 7
    np.testing.assert_array_equal(key_data(seed), jax.random.key_data(jax.random.key(seed)))
    keys = {
        tuple(np.asarray(visit_key(key_data(seed), number, client)).tolist())
        for number in range(3)
        for client in range(3)
    }
    assert len(keys) == 9
    key = visit_key(key_data(seed), 0, 0)
    later, now = next_key(key)
    assert not jnp.array_equal(jax.random.key_data(now), later)
