"""Whole simulations with differential privacy for clients."""

from pathlib import Path

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.simulate import simulate
from evenly.types import Seeds, Trace
from tests.simulations import algorithms, flat, same_bits

ROUNDS = 4
LOOSE = "dp(noise_multiplier=0, clip=1e4, weight=1e3, forced=true)"
TIGHT = "dp(noise_multiplier=0.5, clip=0.02, forced=true)"


def made(federation: Federation, text: str, rounds: int = ROUNDS, **options) -> list[Trace]:
    task = Softmax(features=federation.x.shape[1], classes=len(federation.labels))
    return simulate(
        task, federation, algorithms(text), rounds, **{"seeds": Seeds.all(3), **options}
    )


EXACT = ["fedavg(weights=equal)", "q-fedavg(q=1)", "ditto", "fedfb"]
EXACT_TOO = [
    "fedavg", "fedprox", "propfair", "fedsgd", "fedsgd(q=1)", "q-fedsgd(q=1)", "term(alpha=1)",
    "fedcvg", "fedcvg-ratio", "fairfed", "fairfed(form=exponential)", "ifca(groups=2)",
]  # fmt: skip


@pytest.mark.parametrize(
    "name", [*EXACT, *(pytest.param(name, marks=pytest.mark.further) for name in EXACT_TOO)]
)
def test_without_noise_and_bounds_a_run_is_the_plain_run(tiny: Federation, name: str):
    (plain,), (private,) = made(tiny, f"{name}+full"), made(tiny, f"{name}+full+{LOOSE}")
    difference = np.linalg.norm(flat(private.model) - flat(plain.model))
    assert difference <= 1e-6 * np.linalg.norm(flat(plain.model))
    assert private.cut is not None
    assert not private.cut.any()
    assert plain.cut is None
    assert plain.clip is None


def test_no_round_moves_the_model_by_more_than_the_clip(tiny: Federation):
    """Equal weights and no noise: the mean of updates, each of which is cut."""
    text = "fedavg(weights=equal)+full+dp(noise_multiplier=0, clip=0.02, forced=true)"
    models = [flat(made(tiny, text, rounds)[0].model) for rounds in (1, 2)]
    assert 0 < np.linalg.norm(models[1] - models[0]) <= 0.02 * (1 + 1e-5)
    (trace,) = made(tiny, text)
    assert (np.asarray(trace.cut) == 1).all()
    np.testing.assert_allclose(np.asarray(trace.clip), 0.02)


@pytest.mark.parametrize(
    "name", ["q-fedavg(q=1)", "ifca(groups=2)", pytest.param("fedavg", marks=pytest.mark.further)]
)
def test_clients_side_by_side_are_clipped_as_in_turn(tiny: Federation, name: str):
    (one,) = made(tiny, f"{name}+full+{TIGHT}", lanes=1)
    for lanes in (2, 6):
        (side,) = made(tiny, f"{name}+full+{TIGHT}", lanes=lanes)
        np.testing.assert_allclose(flat(side.model), flat(one.model), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(np.asarray(side.cut), np.asarray(one.cut))


def test_runs_of_a_sweep_have_their_own_clip_and_noise(tiny: Federation):
    together = made(
        tiny, "q-fedavg(q=1)+full+dp(noise_multiplier=[0.5, 1], clip=[0.02, 0.1], forced=true)"
    )
    assert len({flat(trace.model).tobytes() for trace in together}) == 4
    for trace in together:
        np.testing.assert_allclose(
            np.asarray(trace.clip), 0.02 if "clip=0.02" in trace.method else 0.1
        )


def test_a_plain_method_beside_a_private_one_is_as_alone(tiny: Federation):
    (alone,) = made(tiny, "fedavg+full")
    both = made(tiny, f"fedavg+full, fedavg+full+{TIGHT}")
    np.testing.assert_allclose(flat(both[0].model), flat(alone.model), rtol=1e-6, atol=1e-7)
    assert both[0].cut is None


def test_private_methods_side_by_side_are_as_alone(tiny: Federation):
    sweep = f"q-fedavg(q=[0, 1])+full+{LOOSE}"
    alone = [*made(tiny, f"fedavg+full+{LOOSE}"), *made(tiny, sweep)]
    for one, other in zip(made(tiny, f"fedavg+full+{LOOSE}, {sweep}"), alone, strict=True):
        np.testing.assert_allclose(flat(one.model), flat(other.model), rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(np.asarray(one.cut), np.asarray(other.cut))


def test_noise_is_released_where_nobody_came(tiny: Federation):
    """An empty round must not show: with everybody gone, the model still moves by noise."""
    text = f"fedavg(weights=equal)+full+{TIGHT}"
    (nobody,) = made(tiny, text, dropout=1 - 1e-12)
    (start,) = made(tiny, "fedavg(weights=equal)+full", dropout=1 - 1e-12)
    assert not np.asarray(nobody.returned).any()
    assert (flat(nobody.model) != flat(start.model)).any()


@pytest.mark.parametrize("clip", ["adaptive", pytest.param("0.02", marks=pytest.mark.further)])
def test_an_interrupted_run_resumes_with_the_same_bits(tiny: Federation, clip: str, tmp_path: Path):
    text = f"q-fedavg(q=1)+full+dp(noise_multiplier=0.5, clip={clip}, forced=true)"
    options = {"evaluate_every": 1, "checkpoint": tmp_path / "saved"}

    def stop(done: int, rounds: int) -> None:
        if done >= 2:
            raise KeyboardInterrupt

    (whole,) = made(tiny, text, evaluate_every=1)
    with pytest.raises(KeyboardInterrupt):
        made(tiny, text, progress=stop, **options)
    (resumed,) = made(tiny, text, **options)
    same_bits(whole, resumed)
