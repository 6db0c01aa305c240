"""The tables a run leaves are the counts one gets by hand from the model it returns."""

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.records import replace
from evenly.simulate import simulate
from evenly.types import Trace
from tests.oracles import client
from tests.simulations import Simulated, algorithms, flat


def table(federation: Federation, rows: np.ndarray, model: np.ndarray) -> np.ndarray:
    """Counts by group, label and outcome."""
    counts = np.zeros((len(federation.groups), len(federation.labels), len(federation.labels)), int)
    outcome = (
        client.probabilities(model, federation.x[rows].astype(np.float64)).argmax(1)
        if len(rows)
        else []
    )
    for row, o in zip(rows, outcome, strict=True):
        counts[federation.group[row], federation.y[row], o] += 1
    return counts


def test_tables_are_counts_by_hand(tiny: Federation, some_trace: Trace):
    model = flat(some_trace.model)
    for i, split in enumerate(SPLITS):
        for k in range(tiny.clients):
            np.testing.assert_array_equal(
                some_trace.tables[-1, i, k],
                table(tiny, tiny.split(split).of(k), model),
                err_msg=f"{split} {k}",
            )
    np.testing.assert_array_equal(some_trace.central[-1], table(tiny, tiny.central, model))
    assert some_trace.central[-1].sum() == len(tiny.central) > 0


def test_losses_are_means_by_hand(tiny: Federation, some_trace: Trace):
    model = flat(some_trace.model)
    for i, split in enumerate(SPLITS):
        for k in range(tiny.clients):
            rows = tiny.split(split).of(k)
            expected = (
                client.loss(model, tiny.x[rows].astype(np.float64), tiny.y[rows])
                if len(rows)
                else np.nan
            )
            np.testing.assert_allclose(some_trace.losses[-1, i, k], expected, rtol=1e-5)
    assert np.isnan(some_trace.losses).any(), "one client has no validation rows"


def test_tables_sum_to_the_size_of_their_split(tiny: Federation, simulated: Simulated):
    trace = simulated("q-fedavg(q=1)", 11, evaluate_every=2)
    sizes = np.stack([tiny.split(s).counts for s in SPLITS])
    np.testing.assert_array_equal(trace.tables.sum((-3, -2, -1)), np.broadcast_to(sizes, (7, 3, 6)))


def test_the_first_evaluation_is_of_the_untrained_model(tiny: Federation, some_trace: Trace):
    # Softmax regression starts at zero: all classes have probability 1/3, and ties go to the first.
    known = np.isfinite(some_trace.losses[0])
    np.testing.assert_allclose(some_trace.losses[0][known], np.log(3), rtol=1e-6)
    assert some_trace.tables[0][..., 1:].sum() == 0
    assert some_trace.rounds[0] == 0


@pytest.mark.parametrize("method", ["local", "ditto"])
def test_padding_adds_nothing_to_the_losses_of_personal_models(method: str, simulated: Simulated):
    losses = simulated(method, 1).losses[0]  # before training, every loss is that of chance
    np.testing.assert_allclose(losses[np.isfinite(losses)], np.log(3), rtol=1e-6)


def test_evaluation_does_not_disturb_training(simulated: Simulated):
    often, seldom = simulated("q-fedavg(q=1)", 11, evaluate_every=2), simulated("q-fedavg(q=1)", 11)
    np.testing.assert_array_equal(flat(often.model), flat(seldom.model))


def test_several_runs_are_evaluated_each_for_itself(tiny: Federation, simulated: Simulated):
    traces = simulated.all("q-fedavg(q=[0, 1, 5])", 20)
    for trace in traces:
        for k in range(tiny.clients):
            np.testing.assert_array_equal(
                trace.tables[-1, 2, k], table(tiny, tiny.test.of(k), flat(trace.model))
            )


@pytest.mark.parametrize("value", [3.0, 0.0])
def test_example_weights_change_training_but_not_what_is_counted(
    simulated: Simulated, value: float
):
    tiny = simulated.federation
    weights = np.ones(len(tiny.y), np.float32)
    ones = simulate(simulated.task, replace(tiny, weight=weights), algorithms("q-fedavg(q=1)"), 3)[
        0
    ]
    np.testing.assert_allclose(
        flat(ones.model), flat(simulated("q-fedavg(q=1)", 3).model), atol=1e-6
    )
    weights[tiny.train.of(5)] = value
    (changed,) = simulate(
        simulated.task, replace(tiny, weight=weights), algorithms("q-fedavg(q=1)"), 3
    )
    assert np.abs(flat(changed.model) - flat(ones.model)).max() > 1e-3
    np.testing.assert_array_equal(changed.tables[0], ones.tables[0])
    np.testing.assert_array_equal(changed.losses[0], ones.losses[0])
    first = changed.cohort[0].tolist().index(5) if 5 in changed.cohort[0] else 0
    assert changed.weights[0, first] == ones.weights[0, first], (
        "F_k is the plain mean, never reweighed"
    )
