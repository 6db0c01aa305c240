"""What goes wrong in a real federation, done for real on the loopback: replies that are wrong in
every way, a client that is killed, one that hangs, and a server that is killed. Every wait has a
bound.
"""

import html
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from evenly.experiment.deployment import Round, read_facts, read_rounds
from evenly.flower import server_state, wire
from evenly.flower.deploy.loopback import Loopback, Process, kill, wait_until
from evenly.simulate import simulate
from tests.flower.loopback import APP, deployed, finished
from tests.flower.small import SEEDS, algorithm_of, small, task_of

pytestmark = pytest.mark.slow

CLIENTS = 4  # of which the first is honest
METHOD = "q-fedavg(q=1)"
WAITING = Path(__file__).parent / "apps" / "chaos"  # its server waits where it is told to
# What clients 1, 2 and 3 do in each round, and what must be said of them.
FAULTS = [
    [
        ("nan", "sent NaN or infinity in array"),
        ("shape", "with shape .*where the model has"),
        ("missing array", "array"),
    ],
    [
        ("extra array", "array"),
        ("negative size", "sent -5 as 'num-examples'"),
        ("absurd size", "which no client can have"),
    ],
    [
        ("no loss", "sent no 'loss'"),
        ("absurd loss", "far above what a mean loss can be"),
        ("nan loss", "must be a finite number"),
    ],
    [
        ("raises", "the disk of this hospital is full"),
        ("killed", "did not answer in time|crashed"),
        ("hangs", "did not answer in time"),
    ],
]


class Deployed:
    """A SuperLink with four clients, and how long their start took: a measure of how loaded the
    machine is.
    """

    def __init__(self, loopback: Loopback, seconds: float) -> None:
        self.loopback, self.seconds = loopback, seconds

    @property
    def timeout(self) -> float:
        """Longer than any round of honest clients, and no longer than it must be."""
        return min(max(20.0, 2.5 * self.seconds), 120.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    told = {k + 1: {f"round-{t + 1}": row[k][0] for t, row in enumerate(FAULTS)} for k in range(3)}
    began = time.monotonic()
    with deployed(tmp_path_factory.mktemp("flower"), CLIENTS, told) as loopback:
        yield Deployed(loopback, time.monotonic() - began)


def test_a_server_that_is_killed_goes_on_where_it_was(made: Deployed, tmp_path: Path):
    """The process of the strategy is killed in the middle of the second round; another one ends
    with the model of a whole run.
    """
    loopback, method, folder = made.loopback, f"{METHOD}+uniform(clients=2)", tmp_path / "results"
    config = {
        "method": method,
        "rounds": 3,
        "clients": CLIENTS,
        "folder": str(folder),
        "save": str(tmp_path / "model.npz"),
    }
    first = loopback.run(APP, config, name="run-first")
    wait_until(
        lambda: (folder / server_state.NAME).exists() and server_state.rounds_done(folder) >= 1,
        first,
        240,
        "keeping the first round",
    )
    kill(loopback.server)
    assert server_state.rounds_done(folder) < 3
    loopback.start_server()
    second = loopback.run(APP, config, name="run-second")
    ((status, details),) = finished(loopback, second)
    assert status == "finished:completed", f"{details}\n{second.text()}"
    (trace,) = simulate(task_of(method), small(CLIENTS), [algorithm_of(method)], 3, seeds=SEEDS)
    with np.load(tmp_path / "model.npz") as found:
        for name, leaf in zip(
            wire.names_of(trace.model), jax.tree.leaves(trace.model), strict=True
        ):
            np.testing.assert_allclose(found[name], leaf, rtol=1e-5, atol=1e-5)


def ended(made: Deployed, run: Process) -> tuple[str, str]:
    ((status, details),) = finished(made.loopback, run, seconds=240 + made.timeout)
    return status, f"{details}\n{run.text()}"


def test_a_run_with_too_few_usable_replies_fails_and_says_so(made: Deployed):
    config = {
        "method": METHOD,
        "clients": CLIENTS,
        "faults": True,
        "timeout": made.timeout,
        "rounds": 1,
        "least": 3,
        "introduce": False,
    }
    status, said = ended(made, made.loopback.run(APP, config, name="run-few"))
    assert status == "finished:failed", said
    assert (
        "at least 3 of the 4 chosen clients must send a usable reply (min_train_nodes), and 1 did"
        in said
    )


def test_rounds_go_on_without_those_who_do_wrong(made: Deployed, tmp_path: Path):
    """Nine wrong replies in three rounds; in the fourth a client is killed, one hangs and one
    raises. The honest one goes on.
    """
    folder = tmp_path / "results"
    # One client evaluates each round; after the last one, by the draw of these seeds, client 1, who
    # can.
    config = {
        "method": METHOD,
        "clients": CLIENTS,
        "faults": True,
        "timeout": made.timeout,
        "rounds": len(FAULTS),
    }
    config |= {"folder": str(folder), "evaluate": 1 / CLIENTS}
    run = made.loopback.run(APP, config, name="run-faults")
    status, said = ended(made, run)
    assert status == "finished:completed", said
    left_out = json.loads((folder / "left_out.json").read_text())["left_out"]
    told = {(one["round"], one["client"]): one["reason"] for one in left_out}
    assert set(told) == {(t + 1, k + 1) for t in range(len(FAULTS)) for k in range(3)}
    for t, row in enumerate(FAULTS):
        for k, (fault, words) in enumerate(row):
            reason = told[t + 1, k + 1]
            assert re.search(words, reason), f"{fault}: {reason}"
    # The report counts them all, and says for each client the last reason of each kind, as far as
    # there is room.
    page = html.unescape((folder / "report.html").read_text()).replace("\u00a0", " ")
    assert (
        "12 of 16 requested updates did not arrive or did not count. This affects 3 of 4 clients."
        in page
    )
    for client in (1, 2, 3):
        assert any(reason in page for (_, whose), reason in told.items() if whose == client)


def test_a_supernode_that_connects_late_is_served_and_weighed(tmp_path: Path):
    """A fifth SuperNode is started while the server waits between the phases of the second round.
    It takes part in all rounds after that, and in none before. In a federation of its own, because
    the node stays.
    """
    config = {
        "method": METHOD,
        "clients": CLIENTS,
        "least": 1,
        "timeout": 60.0,
        "rounds": 4,
        "marks": str(tmp_path),
        "stage": "between the phases",
        "round": 2,
    }
    began = time.monotonic()
    with deployed(tmp_path / "flower", CLIENTS) as loopback:
        made = Deployed(loopback, time.monotonic() - began)
        run = loopback.run(WAITING, config, name="run-late")
        wait_until((tmp_path / "reached").exists, run, 240, "the second round")
        late = loopback.connect({"late": {"partition-id": CLIENTS, "num-partitions": CLIENTS + 1}})
        (tmp_path / "go").touch()
        status, said = ended(made, run)
    assert status == "finished:completed", said
    folder = tmp_path / "results"
    assert read_facts(folder).nodes[CLIENTS] == late["late"]
    counted = [one.number for one in read_rounds(folder) if _weight(one, CLIENTS) > 0]
    assert counted == [3, 4]


def _weight(one: Round, client: int) -> float:
    """The coefficient of a client in a round; 0 if it was not in the cohort."""
    return float(one.weights[one.cohort == client].sum())
