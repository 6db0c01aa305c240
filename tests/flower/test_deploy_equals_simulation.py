"""A deployment on the loopback, with TLS and keys, gives the model of a simulation: two rounds, the
same seeds and data.

Nodes without a registered key, and nodes that trust another authority, are refused.
"""

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from evenly.algorithms import METHODS
from evenly.flower import wire
from evenly.flower.deploy.loopback import Loopback, wait_until
from evenly.flower.deploy.security import make_certificates, make_key
from evenly.simulate import simulate
from evenly.types import Trace
from tests.flower.loopback import APP, deployed, finished
from tests.flower.small import SEEDS, algorithm_of, small, task_of

pytestmark = pytest.mark.slow

CLIENTS, ROUNDS = 3, 2  # the second round depends on the state after the first
REFUSING = 40.0  # seconds until a node that is refused must have ended
# Two of three clients in each round: cohorts are drawn as in a simulation, too. One that sends
# tables and prepares its rows, one with several models; every method is deployed in the slow set.
DEFAULT = [
    f"{method}+uniform(clients=2)" for method in ("fairfed(metric=eod)+reweigh", "e2fl(groups=2)")
]
EVERY = [METHODS[name].example or name for name in METHODS]


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with deployed(tmp_path_factory.mktemp("flower"), CLIENTS) as made:
        yield made


def simulated(method: str) -> Trace:
    (trace,) = simulate(
        task_of(method), small(CLIENTS), [algorithm_of(method)], ROUNDS, seeds=SEEDS
    )
    return trace


def compare(method: str, saved: Path) -> None:
    """The model in a file is the simulator's."""
    trace = simulated(method)
    several = algorithm_of(method).rule.groups is not None
    with np.load(saved) as found:
        models = jax.tree.leaves(trace.model)[0].shape[0] if several else 1
        for q in range(models):
            expected = (
                jax.tree.map(lambda leaf, q=q: leaf[q], trace.model) if several else trace.model
            )
            names = [
                (wire.prefix_of(q) if several else "") + name for name in wire.names_of(expected)
            ]
            for name, leaf in zip(names, jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(
                    found[name], leaf, rtol=1e-5, atol=1e-5, err_msg=f"{method} {name}"
                )


def deploy(
    loopback: Loopback, methods: list[str], folder: Path, *, two_phase: bool = False
) -> None:
    """All at once: the runs share the SuperNodes, and one waits while another trains."""
    saved = {method: folder / f"{k}.npz" for k, method in enumerate(methods)}
    told = {"rounds": ROUNDS, "clients": CLIENTS, "two-phase": two_phase}
    runs = [
        loopback.run(APP, {**told, "method": method, "save": str(path)}, name=f"run-{path.stem}")
        for method, path in saved.items()
    ]
    for run, (status, details) in zip(runs, finished(loopback, *runs), strict=True):
        assert status == "finished:completed", f"{details}\n{run.text()}"
    for method, path in saved.items():
        compare(method, path)


def test_a_deployment_is_the_simulation(loopback: Loopback, tmp_path: Path):
    deploy(loopback, DEFAULT, tmp_path)


def test_a_stranger_and_a_node_that_trusts_another_authority_are_refused(
    loopback: Loopback, tmp_path: Path
):
    stranger = loopback.start_node("stranger", make_key(tmp_path / "stranger"), {})
    other = loopback.start_node(
        "deceived", loopback.register("deceived"), {}, ca=make_certificates(tmp_path / "other").ca
    )
    for node, said in (
        (stranger, "Failed to activate SuperNode"),
        (other, "CERTIFICATE_VERIFY_FAILED"),
    ):
        wait_until(lambda node=node: not node.running, node, REFUSING, "its end")
        assert node.popen.returncode != 0
        assert said in node.text()
        assert "SuperNode ID" not in node.text()
        with pytest.raises(
            ValueError, match=f"ended .* before connecting to the SuperLink. Read .*{node.name}.log"
        ):
            loopback.wait_connected(node.name)


def test_rounds_of_two_phases_deployed_are_the_simulation(loopback: Loopback, tmp_path: Path):
    deploy(loopback, DEFAULT, tmp_path, two_phase=True)


@pytest.mark.parametrize("first", range(0, len(EVERY), 4))
def test_every_method_deployed_is_its_simulation(loopback: Loopback, tmp_path: Path, first: int):
    deploy(loopback, EVERY[first : first + 4], tmp_path)
