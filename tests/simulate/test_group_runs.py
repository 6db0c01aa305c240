"""Group-fair methods in the compiled simulator: against whole runs in NumPy float64, in their
limits, and after a stop.
"""

from pathlib import Path

import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.models import Softmax
from evenly.records import replace
from evenly.simulate import checkpoints, schedule, simulate
from evenly.types import Trace
from tests.oracles import group_run as oracle
from tests.oracles.group_run import Settings
from tests.simulations import Simulated, algorithms, flat, same_bits

ROUNDS = 12
CASES = {
    "fairfed(beta=0.3)+full": Settings("fairfed", beta=0.3),
    "fairfed(metric=spd)": Settings("fairfed", metric="spd", by_size=False),
    "fairfed(metric=accuracy)+uniform(clients=3)": Settings("fairfed", metric="accuracy"),
    "fairfed(measured_on=valid)+full": Settings("fairfed", held_out=True),
    "fairfed(measured_on=valid, metric=spd)": Settings(
        "fairfed", metric="spd", by_size=False, held_out=True
    ),
    "fedcvg(alpha=0.1)+full": Settings("fedcvg", alpha=0.1),
    "fedcvg-ratio(memory=0.7)+uniform(clients=3)": Settings("fedcvg-ratio", alpha=0.5, memory=0.7),
    "fedcvg-ratio(renormalise=false)+uniform(clients=3)": Settings(
        "fedcvg-ratio", alpha=0.5, literal=True
    ),
    "fedfb(alpha=0.1)+full": Settings("fedfb", alpha=0.1),
    "fedfb(alpha=0.3)": Settings("fedfb", alpha=0.3, by_size=False),
    "fedavg+reweigh+full": Settings("fedavg", reweigh=True),
    "fedavg+parity(p=0.5, share=0.5)": Settings("fedavg"),
    "fairfed+reweigh+parity(p=0.7, share=0.5)": Settings("fairfed", reweigh=True),
    "fedfb+reweigh+full": Settings("fedfb", alpha=0.3, reweigh=True),
}


def compare(simulated: Simulated, text: str, dropout: float = 0.0) -> oracle.Run:
    (algorithm,) = algorithms(text)
    trace = simulated(text, ROUNDS, dropout=dropout)
    expected = oracle.run(simulated.federation, algorithm, CASES[text], ROUNDS, dropout=dropout)
    assert np.linalg.norm(expected.model) > 0.1, "a run that goes nowhere proves nothing"
    np.testing.assert_allclose(trace.weights, expected.weights, atol=1e-5)
    np.testing.assert_allclose(flat(trace.model), expected.model, atol=1e-5)
    return expected


@pytest.mark.parametrize("text", CASES)
def test_the_simulator_does_what_the_papers_say(simulated: Simulated, text: str):
    compare(simulated, text)


@pytest.mark.parametrize(
    "text",
    [
        "fairfed(metric=spd)",
        "fairfed(measured_on=valid, metric=spd)",
        "fedcvg-ratio(memory=0.7)+uniform(clients=3)",
        "fedfb(alpha=0.3)",
    ],
)
def test_clients_that_drop_out_are_absent(simulated: Simulated, text: str):
    expected = compare(simulated, text, dropout=0.4)
    assert (expected.weights == 0).any(1).sum() > 3, "several rounds lose somebody"


@pytest.mark.parametrize(
    "text, limit",
    [
        ("fairfed(beta=0)+full", "fedavg+full"),
        ("fairfed(beta=0)", "fedavg"),
        ("fairfed(beta=0, measured_on=valid)", "fedavg"),
        ("fedcvg(alpha=0)+full", "fedavg+full"),
        ("fedcvg-ratio(alpha=0, memory=0)+full", "fedavg+full"),
        ("fedfb(alpha=0)+full", "fedavg+full"),
        ("fedavg+parity(p=0, share=0.5)", "fedavg+fraction(share=0.5)"),
        # everyone's weights are above one half here
        ("fedavg+reweigh(cap=0.5)+full", "fedavg(learning_rate=0.05)+full"),
    ],
)
def test_limits_are_fedavg_over_a_run(simulated: Simulated, text: str, limit: str):
    found, plain = simulated(text, 3), simulated(limit, 3)
    np.testing.assert_allclose(flat(found.model), flat(plain.model), atol=1e-6)
    np.testing.assert_allclose(found.weights, plain.weights, atol=1e-6)


def test_reweighing_works_with_one_full_gradient_step_and_changes_no_coefficients(
    simulated: Simulated,
):
    # One step over all rows is the same whether it is called FedSGD or FedAvg with one batch.
    one, other = simulated("fedsgd+reweigh", 3), simulated("fedavg(batch_size=64)+reweigh", 3)
    np.testing.assert_allclose(flat(one.model), flat(other.model), atol=1e-6)
    plain = simulated("fedsgd", 3)
    assert np.abs(flat(one.model) - flat(plain.model)).max() > 1e-3
    np.testing.assert_array_equal(one.weights, plain.weights)
    np.testing.assert_array_equal(one.losses[0], plain.losses[0])


class StoppedError(Exception):
    """Raised where a user would press Ctrl-C."""


@pytest.mark.parametrize(
    "text",
    [
        "fedavg+parity(p=0.9, share=0.5, accumulate=true)",
        "fairfed+parity(p=0.9, share=0.5)",
        "fedfb",
    ],
)
def test_a_stopped_run_resumes_to_the_same_bits(
    simulated: Simulated, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_ROWS", 170)  # two or three rounds
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)

    def go(path: Path | None, stop_after: int = ROUNDS + 1) -> Trace:
        def progress(done: int, rounds: int) -> None:
            if done >= stop_after:
                raise StoppedError

        members = algorithms(text)
        return simulate(
            simulated.task,
            simulated.federation,
            members,
            ROUNDS,
            progress=progress,
            checkpoint=path,
        )[0]

    path = tmp_path / "run.npz"
    with pytest.raises(StoppedError):
        go(path, stop_after=6)
    assert path.exists()
    undisturbed = go(None)
    same_bits(go(path), undisturbed)
    if "parity" in text:
        assert len({frozenset(cohort) for cohort in undisturbed.cohort[6:]}) > 1, (
            "the register mattered after the stop"
        )


def test_how_often_accuracy_stood_in_is_reported_for_each_run_of_a_program(
    tiny: Federation, task: Softmax
):
    group = tiny.group.copy()
    group[tiny.train.of(4)] = 0  # a client that knows one side only
    lacking = replace(tiny, group=group)
    alone = np.flatnonzero(lacking.census().cells.sum(2).min(1) == 0)
    assert {4} <= set(alone) < set(range(tiny.clients))
    plain, full, *_ = simulate(
        task,
        lacking,
        algorithms("fedavg(weights=size)+full, fairfed(metric=spd, beta=[1, 2])+full"),
        ROUNDS,
    )
    (some,) = simulate(task, lacking, algorithms("fairfed(metric=spd)+uniform(clients=3)"), ROUNDS)
    assert plain.reports == {}
    assert full.reports == {"fallbacks": len(alone) * ROUNDS}
    assert some.reports == {"fallbacks": np.isin(some.cohort, alone).sum()}


@pytest.mark.parametrize(
    "text, name",
    [
        ("fairfed", "FairFed"),
        ("fedcvg", "FedCvg"),
        ("fedcvg-ratio", "FedCvg-Ratio"),
        ("fedfb", "FedFB"),
        ("fedavg+parity", "Parity sampling"),
    ],
)
def test_a_federation_without_two_sides_is_refused(
    tiny: Federation, task: Softmax, text: str, name: str
):
    alone = replace(tiny, group=np.zeros_like(tiny.group), groups=("all",))
    with pytest.raises(
        ValueError,
        match=(
            f"^{name} compares groups of people, but this federation has only one group. Name a"
            " sensitive"
        ),
    ):
        simulate(task, alone, algorithms(text), 1)
    for empty, side in ((0, "unprivileged"), (1, "privileged")):
        sided = replace(tiny, group=np.full_like(tiny.group, 1 - empty))
        with pytest.raises(
            ValueError,
            match=(
                f"^{name} compares .* no training row belongs to a person who is {side}\\. 1 of 2"
                " groups are marked as unprivileged"
            ),
        ):
            simulate(task, sided, algorithms(text), 1)


def test_a_client_fair_method_combines_with_reweighing_and_parity_sampling(simulated: Simulated):
    """Without fairness between clients it is FedAvg with the two; each of the three parts changes
    what is learnt.
    """
    both = "+reweigh+parity(p=0.7, share=0.5)"
    plain, none, whole = (
        simulated(f"{method}{both}", ROUNDS)
        for method in ("fedavg(weights=equal)", "q-fedavg(q=0)", "q-fedavg(q=1)")
    )
    np.testing.assert_array_equal(plain.cohort, none.cohort)
    np.testing.assert_allclose(flat(plain.model), flat(none.model), atol=1e-5)
    for other in (
        none,
        simulated("q-fedavg(q=1)+parity(p=0.7, share=0.5)", ROUNDS),
        simulated("q-fedavg(q=1)+reweigh", ROUNDS),
    ):
        assert np.abs(flat(whole.model) - flat(other.model)).max() > 1e-3


def test_who_measures_on_training_rows_and_who_on_validation_rows_can_share_a_program(
    simulated: Simulated,
):
    texts = ["fairfed+full", "fairfed(measured_on=valid)+full", "fedavg(weights=size)+full"]
    together = simulate(
        simulated.task,
        simulated.federation,
        [a for text in texts for a in algorithms(text)],
        ROUNDS,
    )
    for text, trace in zip(texts, together, strict=True):
        np.testing.assert_allclose(trace.weights, simulated(text, ROUNDS).weights, atol=1e-6)
    assert np.abs(together[0].weights - together[1].weights).max() > 0.01, "other rows, other gaps"


def test_validation_rows_must_be_there_to_measure_on_them(tiny: Federation, task: Softmax):
    without = replace(tiny, valid=Ragged.from_lists([np.zeros(0, np.int32)] * tiny.clients))
    with pytest.raises(
        ValueError,
        match=(
            r"fairfed.*: clients measure on validation rows, but .* hold none out\. Hold some out,"
            r" or leave"
        ),
    ):
        simulate(task, without, algorithms("fairfed(measured_on=valid)"), 2)
