import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.algorithms import FedAvg, algorithm
from evenly.algorithms.term import Term
from evenly.data.federation import Federation, Shard
from evenly.data.splits import SPLITS
from evenly.models import Softmax
from evenly.parts.sampling import Full
from evenly.parts.work import Both, LocalTraining, PersonalTraining
from evenly.simulate import simulate
from evenly.types import Algorithm, Trace
from tests import federations
from tests.algorithms.test_fedprox import Slope, one_step
from tests.oracles import client, fair
from tests.oracles import run as oracle
from tests.oracles.run import Settings
from tests.parts.test_local_training import START, batches, padded
from tests.simulate.test_evaluation import table
from tests.simulations import Simulated, algorithms, flat

ROUNDS = 6


def personal_step(v: float, w: float, rate: float, pull: float) -> float:
    with jax.enable_x64(True):
        batch = Shard(
            jnp.zeros((3, 1)), jnp.zeros(3, int), jnp.zeros(3, int), jnp.ones(3), jnp.ones(3)
        )
        work = PersonalTraining(learning_rate=rate, pull=pull)
        local = work.step(
            Slope(), jnp.asarray(w), work.start(Slope(), jnp.asarray(w), jnp.asarray(v)), batch
        )
        return float(work.finish(Slope(), jnp.asarray(w), local)[1])


def test_worked_example():
    # 0.7 - 0.1 (2 + 1 (0.7 - 1)) = 0.53; FedProx with mu = 0.1 from the same place: 0.503.
    assert personal_step(0.7, 1.0, 0.1, 1.0) == pytest.approx(0.53, abs=1e-12)
    assert one_step(0.7, 1.0, 0.1, 0.1) == pytest.approx(0.503, abs=1e-12)


def trained_both(
    work: PersonalTraining, task: Softmax, own: dict, pieces: list
) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        received, own = (
            jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), model)
            for model in (START, own)
        )
        local: Both = work.start(task, received, own)
        for x, y in pieces:
            local = work.step(task, received, local, padded(x, y, 8))
        vector, memory = work.finish(task, received, local)
        return flat(vector), flat(memory)


@pytest.mark.parametrize("pull", [0.0, 0.5, 3.0])
def test_both_models_train_as_the_paper_says(tiny: Federation, task: Softmax, pull: float):
    pieces, own = batches(tiny, 8), jax.tree.map(lambda leaf: -0.5 * leaf, START)
    vector, memory = trained_both(PersonalTraining(learning_rate=0.3, pull=pull), task, own, pieces)
    np.testing.assert_allclose(
        flat(START) + vector, client.local_sgd(flat(START), pieces, 0.3), atol=1e-10
    )
    np.testing.assert_allclose(
        memory, fair.ditto_sgd(flat(own), flat(START), pieces, 0.3, pull), atol=1e-10
    )


def test_a_stronger_pull_ties_the_personal_model_to_the_shared_one(tiny: Federation, task: Softmax):
    pieces, own = batches(tiny, 8), jax.tree.map(lambda leaf: leaf + 1.0, START)
    distances = []
    # at rate * pull = 1 every step starts from the shared model
    for pull in (0.0, 1.0, 10.0, 100.0, 1000.0):
        _, memory = trained_both(PersonalTraining(learning_rate=1e-3, pull=pull), task, own, pieces)
        distances.append(np.linalg.norm(memory - flat(START)))
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 4
    assert distances[-1] < 0.01


def losses_by_hand(federation: Federation, models: list) -> np.ndarray:
    result = np.full((len(SPLITS), federation.clients), np.nan)
    for i, split in enumerate(SPLITS):
        for k in range(federation.clients):
            if len(rows := federation.split(split).of(k)):
                result[i, k] = client.loss(
                    models[k], federation.x[rows].astype(np.float64), federation.y[rows]
                )
    return result


def run_and_oracle(simulated: Simulated, text: str, pull: float) -> tuple[Trace, oracle.Run]:
    (built,) = algorithms(text)
    return simulated(text, ROUNDS), oracle.run(
        simulated.federation, built, Settings("ditto", pull=pull), ROUNDS
    )


@pytest.mark.parametrize("pull", [0.0, 0.5])
def test_every_client_is_evaluated_with_its_own_model_and_the_central_set_with_the_shared_one(
    simulated: Simulated, pull: float
):
    trace, run = run_and_oracle(simulated, f"ditto(pull={pull})", pull)
    tiny = simulated.federation
    np.testing.assert_allclose(trace.losses[-1], losses_by_hand(tiny, run.own), atol=1e-5)
    for k in range(tiny.clients):
        np.testing.assert_array_equal(
            trace.tables[-1, 2, k], table(tiny, tiny.test.of(k), run.own[k])
        )
    np.testing.assert_allclose(flat(trace.model), run.model, atol=1e-5)
    np.testing.assert_array_equal(trace.central[-1], table(tiny, tiny.central, run.model))
    shared = losses_by_hand(tiny, [run.model] * tiny.clients)
    assert np.nanmax(np.abs(trace.losses[-1] - shared)) > 0.1, "the two are told apart"


def test_without_pull_personal_models_are_trained_alone(simulated: Simulated):
    (built,) = algorithms("ditto(pull=0)")
    own = [np.zeros(18)] * 6
    for seats in oracle.visits(
        simulated.federation, built, ROUNDS, seeds=oracle.Seeds(), dropout=0.0
    ):
        for seat in seats:
            own[seat.who] = client.local_sgd(own[seat.who], seat.batches, 0.1)
    np.testing.assert_allclose(
        simulated("ditto(pull=0)", ROUNDS).losses[-1],
        losses_by_hand(simulated.federation, own),
        atol=1e-5,
    )


def test_the_shared_model_is_fedavgs_whatever_the_pull(simulated: Simulated):
    average = simulated("fedavg", ROUNDS)
    for pull in (0, 0.5):
        np.testing.assert_array_equal(
            flat(simulated(f"ditto(pull={pull})", ROUNDS).model), flat(average.model)
        )


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_only_clients_that_take_part_move_their_model(simulated: Simulated, dropout: float):
    trace = simulated("ditto", 1, dropout=dropout)
    took_part = np.isin(np.arange(6), trace.cohort[0][trace.weights[0] > 0])
    assert 0 < took_part.sum() < 6
    moved = np.nan_to_num(trace.losses[1] - trace.losses[0]) != 0
    np.testing.assert_array_equal(moved.any(0), took_part)


def test_a_client_whose_training_breaks_keeps_the_model_it_had(task: Softmax):
    # only its training rows are broken
    federation = federations.with_broken_clients(federations.tiny(), (5,))
    (trace,) = simulate(task, federation, algorithms("ditto"), 8)
    assert trace.excluded[5] > 1
    np.testing.assert_allclose(trace.losses[-1, SPLITS.index("test"), 5], np.log(3), rtol=1e-6)
    others = trace.losses[-1, SPLITS.index("test"), :5]
    assert (np.isfinite(others) | (federation.test.counts[:5] == 0)).all()


def test_a_client_that_counts_for_nothing_still_trains_its_own_model(simulated: Simulated):
    # TERM at a huge tilt gives all but one client coefficient 0; without pull personal models do
    # not see the shared one.
    work = PersonalTraining(pull=0.0, batch_size=5)
    by_hand = Algorithm(work=work, rule=Term(alpha=1e6, weights="equal"), select=Full())
    (trace,) = simulate(simulated.task, simulated.federation, [by_hand], 3)
    assert (trace.weights[1:] == 0).sum() >= 8
    np.testing.assert_allclose(
        trace.losses[-1], simulated("ditto(pull=0)+full", 3).losses[-1], atol=1e-6
    )


def test_a_local_optimiser_moves_both_models(tiny: Federation, task: Softmax):
    work = algorithm("ditto(pull=0, learning_rate=0.3)+local-momentum").work
    pieces = batches(tiny, 8)
    vector, memory = trained_both(work, task, START, pieces)  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(
        flat(START) + vector, client.momentum_sgd(flat(START), pieces, 0.3), atol=1e-10
    )
    np.testing.assert_allclose(memory, flat(START) + vector, atol=1e-12)


def test_other_work_serves_the_shared_model():
    assert LocalTraining().deploy("shared", None) == "shared"
    assert PersonalTraining().deploy("shared", "own") == "own"


def test_settings_and_mistakes():
    assert isinstance(algorithm("ditto").rule, FedAvg)
    assert (algorithm("ditto").rule.weights, algorithm("ditto+uniform").rule.weights) == (
        "equal",
        "size",
    )  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match=r"^ditto: pull must be at least 0, got -1\. Meaning: .*$"):
        algorithm("ditto(pull=-1)")
    with pytest.raises(
        ValueError,
        match=r"^ditto: epochs must be a whole number of at least 1, got 0\. Meaning: .*$",
    ):
        algorithm("ditto(epochs=0)")
