"""Translated modules in the simulator: whole runs against a loop in PyTorch, lanes, streaming,
seeds, folders of results, and saved models.
"""

import copy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

import evenly
from evenly.models import Augmented, crop_and_flip
from evenly.simulate import simulate
from tests.from_torch.modules import CASES
from tests.from_torch.whole_run import METHOD, Normed, rounds_in_torch, small_federation
from tests.simulations import same_bits


@pytest.fixture(scope="module")
def federation() -> evenly.Federation:
    return small_federation()


@pytest.fixture(scope="module")
def plain() -> Any:
    """A task without dropout, and the module that it was made of."""
    torch.manual_seed(3)
    module = Normed()
    return evenly.from_torch(module, torch.zeros(2, 1, 6, 6)), module


@pytest.fixture(scope="module")
def dropping() -> Any:
    """A task with dropout whose initial weights depend on the seed."""
    return evenly.from_torch(lambda: Normed(0.3), torch.zeros(2, 1, 6, 6))


def test_three_rounds_of_fedavg_equal_a_loop_in_pytorch(federation: evenly.Federation, plain: Any):
    task, module = plain
    (trace,) = evenly.train(task, federation, METHOD, rounds=3)
    found = task.to_torch(trace.model)
    for key, value in rounds_in_torch(module, federation, 3).items():
        if key != "norm.num_batches_tracked":  # a mean of counts is no count
            np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)
    module = copy.deepcopy(module)
    module.load_state_dict(found)
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(federation.x)).argmax(1).numpy()
    assert (task.predict(trace.model, federation.x) == expected).all()


@pytest.mark.further
def test_lanes_and_streaming_change_nothing(federation: evenly.Federation, dropping: Any):
    algorithms = [evenly.algorithm(f"q-fedavg(q={q}, batch_size=8)+full") for q in (0, 1)]
    runs = [
        simulate(dropping, federation, algorithms, rounds=2, **settings)
        for settings in ({}, {"lanes": 4}, {"stream": True})
    ]
    for other in runs[1:]:
        for one, two in zip(runs[0], other, strict=True):
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
                one.model,
                two.model,
            )


def test_a_function_builds_other_weights_for_each_seed(dropping: Any):
    torch.manual_seed(5)
    expected = Normed(0.3).state_dict()
    before = torch.get_rng_state()
    found = dropping.to_torch(dropping.init(jax.random.key(5)))
    assert torch.equal(torch.get_rng_state(), before)
    for key, value in expected.items():
        assert torch.equal(found[key], value), key
    traced = jax.jit(dropping.init)(jax.random.key(5))
    jax.tree.map(np.testing.assert_array_equal, traced, dropping.init(jax.random.key(5)))
    other = dropping.to_torch(dropping.init(jax.random.key(6)))
    assert not torch.equal(other["fc.weight"], found["fc.weight"])


def test_statistics_never_count_in_norms(federation: evenly.Federation, plain: Any):
    task, _ = plain
    (trace,) = evenly.train(task, federation, METHOD, rounds=1)
    assert set(trace.model.state) == {
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"
    }  # fmt: skip
    assert set(trace.model.params).isdisjoint(trace.model.state)


def test_a_comparison_resumes_and_gives_the_weights_back(
    federation: evenly.Federation, dropping: Any, tmp_path: Path
):
    settings: dict[str, Any] = {
        "model": dropping, "rounds": 2, "seeds": 2, "out": tmp_path / "out", "progress": False,
        "sampling": "full",
    }  # fmt: skip
    results = evenly.compare(federation, "fedavg", **settings)
    again = evenly.compare(federation, "fedavg", **settings)
    assert again.table().equals(results.table())
    model = results.model("fedavg", task=dropping)
    module = Normed()
    module.load_state_dict(model.to_torch())
    with torch.no_grad():
        scores = module.eval()(torch.from_numpy(federation.x))
    expected = model.classes[scores.argmax(1).numpy()]
    assert (model.predict(federation.x) == expected).all()
    evenly.save(model, tmp_path / "model.npz")
    loaded = evenly.load(tmp_path / "model.npz", task=dropping)
    assert (loaded.predict(federation.x) == expected).all()


@pytest.mark.further
def test_a_search_trains_a_translated_module(federation: evenly.Federation, dropping: Any):
    found = evenly.tune(
        federation, "q-fedavg(q=[0.5, 1])", model=dropping, rounds=2, seeds=1, progress=False,
        sampling="full",
    )  # fmt: skip
    assert len(found.table()) == 3  # with the baseline


@pytest.mark.further
def test_an_interrupted_run_draws_the_same_masks_again(
    federation: evenly.Federation, dropping: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evenly.simulate.checkpoints.CHECKPOINT_SECONDS", 0.0)
    path, method = tmp_path / "run.npz", [evenly.algorithm("ditto(batch_size=8)+full")]

    def stop(done: int, _: int) -> None:
        if done >= 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        simulate(dropping, federation, method, 4, evaluate_every=2, checkpoint=path, progress=stop)
    assert path.exists()
    resumed, whole = (
        simulate(dropping, federation, method, 4, evaluate_every=2, checkpoint=checkpoint)[0]
        for checkpoint in (path, None)
    )
    same_bits(whole, resumed)


def test_pictures_that_are_cropped_and_mirrored_train_weights_for_pytorch(
    federation: evenly.Federation, plain: Any
):
    task, module = plain
    changed = Augmented(task=task, augment=crop_and_flip(padding=1, channels_first=True))
    (trace,) = evenly.train(changed, federation, METHOD, rounds=1)
    model = evenly.from_trace(trace, changed, federation)
    module = copy.deepcopy(module)
    module.load_state_dict(model.to_torch())
    with torch.no_grad():
        scores = module.eval()(torch.from_numpy(federation.x)).softmax(1)
    np.testing.assert_allclose(model.probabilities(federation.x), scores, atol=1e-5)
    (other,) = evenly.train(task, federation, METHOD, rounds=1)
    assert (trace.model.params["fc.weight"] != other.model.params["fc.weight"]).any()


def focal(gamma: float) -> Any:
    def loss(scores: Any, y: Any) -> Any:
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, y)
        return (1 - jnp.exp(-losses)) ** gamma * losses

    return loss


@pytest.mark.further
def test_another_loss_or_weight_is_another_model():
    from evenly.experiment.python_objects import stored_model

    module, example = nn.Linear(3, 2), torch.zeros(2, 3)
    task, again = (evenly.from_torch(module, example) for _ in range(2))
    assert stored_model(again) == stored_model(task)
    other = evenly.from_torch(module, example, loss=nn.MultiMarginLoss())
    assert stored_model(other) != stored_model(task)
    once, again, other = (evenly.from_torch(module, example, loss=focal(g)) for g in (1, 1, 5))
    assert stored_model(once) == stored_model(again) != stored_model(other)
    assert repr(once) == repr(again) != repr(other)
    moved = copy.deepcopy(module)
    nn.init.ones_(moved.bias)
    assert stored_model(evenly.from_torch(moved, example)) != stored_model(task)


def test_only_translated_models_become_state_dicts(federation: evenly.Federation):
    task = evenly.models.MLP(features=36, classes=2)
    (trace,) = evenly.train(task, federation, "fedavg", rounds=1)
    model = evenly.from_trace(trace, task, federation)
    with pytest.raises(TypeError, match="MLP was not made of a PyTorch module"):
        model.to_torch()


class MeanOfSymbols(nn.Module):
    """The mean of the embeddings of a row, without symbol 0: not defined for a row of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8, padding_idx=0), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = (x != 0).unsqueeze(-1).float()
        return self.head((self.embed(x) * known).sum(1) / known.sum(1))


@pytest.mark.parametrize(
    "settings", [{}, {"lanes": 4}, pytest.param({"stream": True}, marks=pytest.mark.further)]
)
def test_padding_needs_no_model_that_is_defined_for_zeros(settings: dict[str, Any]):
    torch.manual_seed(0)
    x = torch.randint(1, 11, (39, 5))
    x[::2, 3:] = 0
    federation = evenly.Federation.from_arrays(x.numpy(), np.arange(39) % 3, np.arange(39) // 13)
    module = MeanOfSymbols()
    task: Any = evenly.from_torch(module, x[:2])
    method = evenly.algorithm("q-fedavg(q=1, batch_size=4)+full")
    (trace,) = simulate(task, federation, [method], rounds=2, **settings)
    assert not np.asarray(trace.excluded).any()
    assert np.isfinite(trace.losses).all()
    found = task.to_torch(trace.model)
    assert not torch.allclose(found["head.weight"], module.head.weight)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", "text-lstm", "tabular"])
def test_other_networks_learn(name: str):
    """Ten rounds on two hundred rows that a rule decides lower the loss."""
    case = CASES[name]
    x = case.rows(200, 3).numpy()
    score = x.reshape(200, -1)[:, -6:].sum(1)
    y = np.digitize(score, np.quantile(score, [1 / 3, 2 / 3]))
    federation = evenly.Federation.from_arrays(x, y, np.arange(200) % 4)
    task = evenly.from_torch(case.build, case.rows(2))
    (trace,) = evenly.train(task, federation, "fedavg(learning_rate=0.1)", rounds=10)
    assert trace.losses[-1, 0].mean() < trace.losses[0, 0].mean()
