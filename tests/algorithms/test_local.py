"""Local training: every client alone, on the batches that a federated run would have given it."""

import jax
import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.data.splits import SPLITS
from evenly.parts.work import TrainingAlone
from evenly.types import Seeds
from tests.oracles import client
from tests.oracles.run import visits
from tests.simulations import Simulated, flat, same_bits

ROUNDS = 8
TEXT = "local+uniform(clients=3)"


def test_every_client_trains_its_own_model_whenever_it_is_chosen(simulated: Simulated):
    federation = simulated.federation
    own = [np.zeros(18)] * federation.clients
    for seats in visits(federation, algorithm(TEXT, batch_size=5), ROUNDS, Seeds(), 0.3):
        for v in seats:
            own[v.who] = client.local_sgd(own[v.who], v.batches, 0.1) if v.returned else own[v.who]
    trace = simulated(TEXT, ROUNDS, dropout=0.3)
    assert not flat(trace.model).any(), "there is no shared model but the first"
    assert not trace.weights.any()
    assert trace.upload == trace.download == 0
    for place, name in enumerate(SPLITS):
        for k in range(federation.clients):
            rows = federation.split(name).of(k)
            if len(rows):
                expected = client.loss(
                    own[k], federation.x[rows].astype(np.float64), federation.y[rows]
                )
                np.testing.assert_allclose(trace.losses[-1, place, k], expected, rtol=1e-5)
    assert sum(w.any() for w in own) > 3


def test_nothing_is_sent_and_the_own_model_is_used(simulated: Simulated):
    work = TrainingAlone(learning_rate=0.1)
    start = simulated.task.init(jax.random.key(0))
    local = work.start(simulated.task, start, work.remember(start))
    vector, memory = work.finish(simulated.task, start, local)
    assert not flat(vector).any()
    assert work.deploy("shared", memory) is memory


def test_lanes_change_nothing(simulated: Simulated):
    turn, lanes = simulated(TEXT, ROUNDS), simulated(TEXT, ROUNDS, lanes=3)
    # In turn, small steps are compiled as one function, which sums in another order.
    np.testing.assert_allclose(lanes.losses, turn.losses, rtol=1e-6)
    same_bits(turn, lanes._replace(losses=turn.losses))


def test_a_local_optimiser_and_mistakes():
    assert algorithm("local+local-momentum").work.optimiser == "momentum"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(
        ValueError,
        match=r"^local: epochs must be a whole number of at least 1, got 0\. Meaning: .*$",
    ):
        algorithm("local(epochs=0)")
    with pytest.raises(
        ValueError,
        match=(
            r"^local: the method has a server step of its own; leave the server's optimiser out\.$"
        ),
    ):
        algorithm("local+server-adam")
