"""What `+dp(...)` refuses before anything is trained."""

from pathlib import Path

import pytest

import evenly
from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.flower import strategy
from evenly.models import Softmax
from evenly.privacy import Privacy
from evenly.privacy.claims import refuse

BOTH = ["fedavg+full+dp(epsilon=1, noise_multiplier=0.1, forced=true)",
        "fedavg+full+dp(unit=row, epsilon=1, noise_multiplier=0.1)"]  # fmt: skip


@pytest.mark.parametrize("method", BOTH)
def test_a_method_names_epsilon_or_noise(method: str, tiny: Federation, tmp_path: Path):
    """The label would state an epsilon that the noise does not keep."""
    words = "give epsilon or noise_multiplier, and not both"
    with pytest.raises(ValueError, match=words):
        evenly.compare("synthetic(clients=4)", method, rounds=1, seeds=1, progress=False)
    with pytest.raises(ValueError, match=words):
        evenly.train(Softmax(features=5, classes=3), tiny, method, 1)
    if method == BOTH[0]:
        with pytest.raises(ValueError, match=words):
            strategy(method, folder=tmp_path / "run")


def test_deployed_clients_are_told_their_noise_and_their_budget():
    """Their ledgers hold the server to it."""
    assert strategy(BOTH[1]).algorithm.privacy.epsilon == 1


@pytest.mark.parametrize(
    "part, words",
    [
        ("rate=0.1", "rate is a setting of unit=row, and this is unit=client"),
        ("signal_noise=3", "signal_noise is a setting of unit=row"),
        ("unit=row, histogram=5", "histogram is a setting of unit=client, and this is unit=row"),
        ("unit=row, publish=true", "publish is a setting of unit=client"),
        ("delta=0.5", "delta must be at most 0.01, got 0.5.* far below 1/n"),
        ("unit=row, delta=0.02", "delta must be at most 0.01, got 0.02"),
        ("delta=0", "delta must be above 0"),
    ],
)
def test_settings_of_the_other_unit_and_a_large_delta_are_refused(part: str, words: str):
    with pytest.raises(ValueError, match=words):
        algorithm(f"fedavg+dp({part}, epsilon=8)")


def test_a_delta_that_would_cover_a_client_is_refused():
    made = algorithm("fedavg+full+dp(epsilon=8, delta=0.005)")
    refuse(made, 199)
    with pytest.raises(ValueError, match=r"everything about one in 200 clients, and there are 200"):
        refuse(made, 200)


def test_what_a_unit_has_may_be_set():
    assert Privacy(unit="row", epsilon=8, rate=0.1, signal_noise=5, loss_bound=2).rate == 0.1
    assert Privacy(epsilon=8, weight=2, forced=True, histogram=5, publish=True).weight == 2
