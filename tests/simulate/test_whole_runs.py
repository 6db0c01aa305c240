"""The compiled simulator against whole runs in NumPy float64, on the same cohorts and batches."""

from typing import Any

import numpy as np
import pytest

from evenly.types import Own, Seeds
from tests.oracles import run as oracle
from tests.oracles.run import Settings
from tests.simulations import Simulated, algorithms, flat

ROUNDS = 20
# it minimises a flat quadratic in single precision, and its steps have length 1
TOLERANCE = {"fedmgda": 1e-4}
CASES = {
    "fedavg": Settings("fedavg"),
    "fedavg(learning_rate=0.3)+uniform(clients=3)": Settings("fedavg", rate=0.3, by_size=True),
    "fedprox(mu=0.5)": Settings("fedprox", mu=0.5),
    "fedsgd(learning_rate=0.3)": Settings("fedsgd", rate=0.3),
    "fedsgd(q=1)": Settings("fedsgd", q=1.0),
    "q-fedavg(q=1)": Settings("q-fedavg", q=1.0),
    "q-fedavg(q=5, learning_rate=0.3)": Settings("q-fedavg", q=5.0, rate=0.3),
    "q-fedsgd(q=2)": Settings("q-fedsgd", q=2.0),
    "fedavg+full": Settings("fedavg", by_size=True),
    "q-fedavg(q=1, epochs=2)": Settings("q-fedavg", q=1.0),
    "afl(form=local)+full": Settings("afl", form="local"),
    "afl(form=local, rate_lambda=0.3)+uniform(clients=3)": Settings(
        "afl", form="local", rate_lambda=0.3
    ),
    "afl(served=last)": Settings("afl", form="full"),
    "afl(form=stochastic, served=last)+full": Settings("afl", form="stochastic"),
    "afl(form=per-domain, served=last)+full": Settings("afl", form="per-domain"),
    "term(alpha=1)+full": Settings("term", alpha=1.0, by_size=True),
    "term(alpha=1)": Settings("term", alpha=1.0),
    "term(alpha=1, form=authors)": Settings("term", alpha=1.0, form="authors"),
    "propfair(M=3)": Settings("propfair", M=3.0),
    "p-fedavg(family=geometric)": Settings("p-fedavg", family="geometric"),
    "p-fedavg": Settings("p-fedavg"),
    "ditto(pull=0.5)": Settings("ditto", pull=0.5),
    "fedmgda(epsilon=0.2)": Settings("fedmgda", epsilon=0.2),
}


def compare(simulated: Simulated, text: str, settings: Settings, **options: Any) -> oracle.Run:
    (algorithm,) = algorithms(text)
    trace = simulated(text, ROUNDS, **options)
    expected = oracle.run(simulated.federation, algorithm, settings, ROUNDS, **options)
    assert np.linalg.norm(expected.model) > 0.1, "a run that goes nowhere proves nothing"
    np.testing.assert_allclose(
        flat(trace.model), expected.model, atol=TOLERANCE.get(settings.method, 1e-5)
    )
    np.testing.assert_allclose(
        trace.weights, expected.weights, atol=TOLERANCE.get(settings.method, 1e-5)
    )
    return expected


@pytest.mark.parametrize("text", CASES)
def test_the_simulator_does_what_the_papers_say(simulated: Simulated, text: str):
    compare(simulated, text, CASES[text])


def test_afl_serves_the_mean_of_the_iterates_without_the_first_model(simulated: Simulated):
    (algorithm,) = algorithms("afl+full")
    run = oracle.run(simulated.federation, algorithm, Settings("afl", form="full"), ROUNDS)
    trace = simulated("afl+full", ROUNDS)
    np.testing.assert_allclose(flat(trace.model), np.mean(run.models, axis=0), atol=1e-5)
    np.testing.assert_allclose(trace.weights, run.weights, atol=1e-5)
    assert np.abs(flat(trace.model) - run.model).max() > 1e-2, "the last iterate is another model"
    assert np.abs(flat(trace.model) - np.mean([run.model * 0, *run.models], axis=0)).max() > 1e-3, (
        "and so is a mean with w_0"
    )
    # Everyone takes part, so the weights are lambda itself.
    assert (trace.weights >= 0).all()
    np.testing.assert_allclose(trace.weights.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize(
    "text", ["afl(form=local, rate_lambda=0.3)+uniform(clients=3)", "afl(served=last)"]
)
def test_lambda_stays_on_the_simplex_when_only_some_take_part(simulated: Simulated, text: str):
    (algorithm,) = algorithms(text)
    run = compare(simulated, text, CASES[text])
    before = np.asarray(run.lambdas[0])
    for seats, after in zip(simulated(text, ROUNDS).cohort[1:], run.lambdas[1:], strict=True):
        unseen = np.setdiff1d(np.arange(6), seats)
        np.testing.assert_array_equal(after[unseen], before[unseen])
        np.testing.assert_allclose([after.sum(), after.min() >= 0], 1)
        before = after
    census = simulated.federation.census()
    public = algorithm.rule.begin(census)
    first = [algorithm.rule.remember(public, Own(examples=n)) for n in census.examples]
    assert sum(map(float, first)) == pytest.approx(1)


@pytest.mark.parametrize(
    "text",
    ["fedavg", "q-fedavg(q=1)", "fedsgd(q=1)", "term(alpha=1)", "p-fedavg", "fedmgda(epsilon=0.2)"],
)
def test_clients_that_drop_out_are_absent(simulated: Simulated, text: str):
    run = compare(simulated, text, CASES[text], dropout=0.5)
    shares = run.weights.sum(1)
    assert (run.weights == 0).any(1).sum() > ROUNDS / 2, "most rounds lose somebody"
    assert (shares == 0).any(), "at least one round loses everybody"
    trace = simulated(text, ROUNDS, dropout=0.5)
    np.testing.assert_array_equal(trace.weights == 0, run.weights == 0)
    assert not trace.excluded.any(), "dropping out is not being excluded"


def test_a_round_in_which_nobody_returns_does_not_advance_the_servers_momentum(
    simulated: Simulated,
):
    run = compare(
        simulated,
        "fedavg+server-momentum(learning_rate=1)",
        Settings("fedavg", server_momentum=0.9),
        dropout=0.5,
    )
    empty = np.flatnonzero(run.weights.sum(1) == 0)
    assert len(empty)
    assert empty[0] > 0, "there is momentum by then"
    np.testing.assert_array_equal(run.models[empty[0]], run.models[empty[0] - 1])


def test_another_seed_is_another_run_that_agrees_as_well(simulated: Simulated):
    expected = compare(simulated, "q-fedavg(q=1)", CASES["q-fedavg(q=1)"], seeds=Seeds.all(3))
    assert np.abs(expected.model - flat(simulated("q-fedavg(q=1)", ROUNDS).model)).max() > 1e-3


def test_q_zero_is_fedavg(simulated: Simulated):
    fair, plain = simulated("q-fedavg(q=0)", ROUNDS), simulated("fedavg", ROUNDS)
    np.testing.assert_allclose(flat(fair.model), flat(plain.model), atol=1e-6)
    np.testing.assert_allclose(fair.weights, plain.weights, atol=1e-7)


def test_q_fedsgd_is_q_fedavg_with_one_full_batch_step(simulated: Simulated):
    one, other = (
        simulated("q-fedsgd(q=2)", ROUNDS),
        simulated("q-fedavg(q=2, batch_size=64)", ROUNDS),
    )
    np.testing.assert_allclose(flat(one.model), flat(other.model), atol=1e-6)


def test_upload_counts_the_model_and_the_scalars(simulated: Simulated):
    # Softmax regression with 5 features and 3 classes has 18 parameters of 4 bytes; q-FedAvg sends
    # its loss besides.
    assert simulated("fedavg", ROUNDS).download == simulated("fedavg", ROUNDS).upload == 72
    assert simulated("q-fedavg(q=1)", ROUNDS).upload == 76


def test_upload_counts_every_number_of_a_table(simulated: Simulated):
    # Two groups, three labels and three outcomes: FairFed sends 18 counts, FedFB these and 6 summed
    # losses.
    assert simulated("fairfed(weights=equal)", 1).upload == 72 + 4 * 18
    assert simulated("fedfb(weights=equal)", 1).upload == 72 + 4 * (18 + 6)


def test_download_counts_the_weights_of_rows(simulated: Simulated):
    # FedFB tells clients what a row of each of two groups and three labels counts; FairFed sends
    # the model alone.
    assert simulated("fedfb(weights=equal)", 1).download == 72 + 4 * 6
    assert simulated("fairfed(weights=equal)", 1).download == 72
