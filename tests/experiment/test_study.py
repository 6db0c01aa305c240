"""Studies: both protocols choose as they say, the honest one never sees the test set, and nothing
is trained twice.
"""

import json

import numpy as np
import pytest

import evenly
from evenly.experiment import study as module
from evenly.experiment.comparison import Run
from evenly.experiment.config import Experiment, Quick, StudyTable
from evenly.experiment.execute import main as execute_main
from evenly.experiment.folder import Store
from evenly.experiment.study import (
    StudyPlan,
    add_sweep,
    choose,
    drop_settings,
    execute_study,
    method_rows,
)
from tests.studies import comparison, people, trace

RATES = (0.1, 0.01, 0.001)


def label(rate: float) -> str:
    return f"fedavg(learning_rate={rate:g})+full"


def chosen(central: dict[float, np.ndarray], valid: dict[float, np.ndarray]) -> dict[str, float]:
    """The rate that each protocol takes, for these tables of each rate."""
    runs = [Run(label(rate), "fedavg", {}, 0, trace(central[rate], valid[rate])) for rate in RATES]
    return {
        o.protocol: o.chosen["learning_rate"]
        for o in choose("cell", comparison(runs), ("learning_rate",))
    }


CENTRAL = dict(zip(RATES, (people(0.8, 0.1), people(0.8, 0.2), people(0.8, 0.05)), strict=True))


def test_the_study_takes_the_least_gap_on_the_test_set_whatever_its_accuracy():
    tables = CENTRAL | {0.001: people(0.6, 0.05)}
    assert chosen(tables, CENTRAL)["study"] == 0.001


def test_the_honest_protocol_takes_the_least_gap_among_the_accurate_on_validation_rows():
    # Its accuracy falls with the gap, too: 0.8 - eod / 4 over both sides and labels.
    valid = {0.1: people(0.80, 0.04), 0.01: people(0.80, 0.02), 0.001: people(0.70, 0.0)}
    assert chosen(CENTRAL, valid)["honest"] == 0.01
    within = {0.1: people(0.80, 0.04), 0.01: people(0.80, 0.02), 0.001: people(0.79, 0.0)}
    assert chosen(CENTRAL, within)["honest"] == 0.001


@pytest.mark.parametrize("seed", range(5))
def test_the_honest_protocol_never_looks_at_the_test_set(seed):
    valid = {0.1: people(0.80, 0.04), 0.01: people(0.80, 0.02), 0.001: people(0.70, 0.0)}
    draw = np.random.default_rng(seed)
    other = {rate: draw.integers(1, 500, (2, 2, 2)).astype(np.int32) for rate in RATES}
    assert chosen(other, valid)["honest"] == chosen(CENTRAL, valid)["honest"] == 0.01
    assert chosen(valid, other)["study"] == 0.001  # and the study's never at validation rows


def test_a_rate_whose_gap_is_never_defined_is_not_chosen():
    nobody = people(0.9, 0.0)
    nobody[0, 1] = 0  # no unprivileged person is labelled favourable
    assert chosen(CENTRAL | {0.001: nobody}, CENTRAL)["study"] == 0.1


def test_the_outcome_is_measured_on_the_test_set_for_both_protocols():
    runs = [
        Run(label(rate), "fedavg", {}, s, trace(CENTRAL[rate], CENTRAL[rate]))
        for rate in RATES
        for s in range(2)
    ]
    for outcome in choose("cell", comparison(runs), ("learning_rate",)):
        assert outcome.method == "fedavg+full"
        np.testing.assert_allclose(outcome.values["eod_abs"], [0.05, 0.05], atol=1e-9)


def test_rows_are_methods_without_what_is_chosen():
    texts = add_sweep(
        ("fedavg+full", "fedcvg(alpha=[0.1, 1])+full"), {"learning_rate": [0.1, 0.01]}
    )
    assert texts == (
        "fedavg(learning_rate=[0.1, 0.01])+full",
        "fedcvg(alpha=[0.1, 1], learning_rate=[0.1, 0.01])+full",
    )
    assert (
        drop_settings("fedcvg(alpha=1, learning_rate=0.1)+full", ["learning_rate"])
        == "fedcvg(alpha=1)+full"
    )


def tiny() -> Experiment:
    return Experiment(
        title="Two methods on a made-up census",
        methods=["fedavg+full", "fedcvg-ratio(memory=[0.5, 0.9])+full"],
        data={"name": "synthetic-census", "clients": 3, "rows": 300},
        rounds=2,
        seeds=[5, 6],
        model="logistic",
        sampling="full",
        evaluate_every=2,
        study=StudyTable(
            cells=[{"skew": 0.5}, {"skew": 0.9}], choose={"learning_rate": [0.1, 0.01]}
        ),
        quick=Quick(rounds=1, seeds=1, cells=[1]),
    )


def test_a_study_has_one_plan_for_each_partition_and_survives_being_written_down():
    plan = tiny().study_plan("test/tiny")
    assert list(plan.cells) == ["0.5", "0.9"]
    assert method_rows(plan) == [
        "fedavg+full",
        "fedcvg-ratio(memory=0.5)+full",
        "fedcvg-ratio(memory=0.9)+full",
    ]
    again = StudyPlan.from_json(plan.to_json())
    assert again == plan
    assert (
        again.fingerprint()
        == plan.fingerprint()
        != tiny().study_plan("test/tiny", rounds=3).fingerprint()
    )
    assert list(tiny().study_plan("test/tiny", quick=True).cells) == ["0.9"]


def test_a_study_whose_private_figures_are_withheld_is_refused_before_it_trains(
    tmp_path, monkeypatch
):
    method = "fedavg+full+dp(noise_multiplier=5, forced=true)"
    plan = tiny().model_copy(update={"methods": [method]}).study_plan("test/tiny")
    with pytest.raises(ValueError, match=r"a study shows figures .* without noise"):
        execute_study(plan)
    (tmp_path / "plan.json").write_text(plan.to_json())
    monkeypatch.setattr(
        "sys.argv", ["execute", str(tmp_path / "plan.json"), str(tmp_path / "out"), "--no-models"]
    )
    with pytest.raises(ValueError, match=r"a study shows figures .* without noise"):
        execute_main()
    assert not (tmp_path / "out" / "cells").exists()


def test_a_study_states_what_its_private_methods_promise(tmp_path):
    plan = {
        "title": "Private rows", "methods": ["fedavg+full+dp(unit=row, epsilon=8, rate=0.1)"],
        "data": {"name": "synthetic-census", "clients": 3, "rows": 300}, "rounds": 1, "seeds": [5],
        "study": {"cells": [{"skew": 0.5}, {"skew": 0.9}], "choose": {"learning_rate": [0.1]}},
    }  # fmt: skip
    evenly.run(plan, out=tmp_path / "out", progress=False)
    fields = json.loads((tmp_path / "out" / "plan.json").read_text())
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    for place in ("0.5", "0.9"):
        (known,) = fields["cells"][place]["privacy"].values()
        assert 7.9 < known["epsilon"] <= 8
        assert [one["epsilon"] for one in record["privacy"][place].values()] == [known["epsilon"]]
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'id="promise"' in page
    assert "epsilon 8 at delta 1e-05" in page


def test_a_study_is_trained_once_and_read_afterwards(tmp_path, monkeypatch):
    plan, seen = tiny().study_plan("test/tiny"), []
    Store(tmp_path / "out", plan)
    first = execute_study(
        plan,
        tmp_path / "out",
        progress=lambda done, total: seen.append((done, total)),
        command="evenly reproduce x",
    )
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    assert len(first.outcomes) == 2 * 3 * 2  # partitions, methods, protocols
    kept = json.loads((tmp_path / "out" / "run.json").read_text())
    assert kept["seconds"] > 0
    assert kept["command"] == "evenly reproduce x"

    monkeypatch.setattr(
        "evenly.experiment.execute.simulate", lambda *_, **__: pytest.fail("trained again")
    )
    second = execute_study(plan, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "run.json").read_text()) == kept
    for a, b in zip(first.outcomes, second.outcomes, strict=True):
        assert a[:4] == b[:4]
        np.testing.assert_array_equal(a.values["eod_abs"], b.values["eod_abs"])
    for a, b in zip(first.of("study"), first.of("honest"), strict=True):
        # what choosing on the test set means
        assert np.nanmean(a.values["eod_abs"]) <= np.nanmean(b.values["eod_abs"])
    assert first.one("honest", "0.9", "fedavg+full").values["accuracy"].shape == (2,)
    assert module.PROTOCOLS == ("study", "honest")


@pytest.fixture
def small_gpu(monkeypatch):
    """As where one partition would leave most of a GPU idle."""
    for where in ("study", "execute"):
        monkeypatch.setattr(f"evenly.experiment.{where}.worth_batching", lambda *_: True)


def test_partitions_that_advance_side_by_side_end_where_each_would_alone(
    tmp_path, monkeypatch, request
):
    plan, met = tiny().study_plan("test/tiny"), []
    alone = execute_study(plan)
    request.getfixturevalue("small_gpu")
    monkeypatch.setattr("evenly.simulate.seed_batch.advance_batch", _counting(met))
    Store(tmp_path / "out", plan)
    together = execute_study(plan, tmp_path / "out")
    assert max(met) == 4  # both seeds of both partitions in one program
    for a, b in zip(alone.outcomes, together.outcomes, strict=True):
        assert a[:4] == b[:4]
        # a row on the border may change sides
        np.testing.assert_allclose(a.values["accuracy"], b.values["accuracy"], atol=0.5)
    # A second time half of it is there, and nobody waits for it.
    second = list((tmp_path / "out" / "cells").glob("0.9*/traces/*"))
    assert len(second) == 2
    for path in second:
        path.unlink()
    again = execute_study(plan, tmp_path / "out")
    for a, b in zip(together.outcomes, again.outcomes, strict=True):
        np.testing.assert_allclose(a.values["accuracy"], b.values["accuracy"], atol=0.5)


def _counting(met: list[int]):
    from evenly.simulate.seed_batch import advance_batch

    def counted(shape, asked):
        met.append(len(asked))
        return advance_batch(shape, asked)

    return counted


@pytest.mark.usefixtures("small_gpu")
def test_a_partition_that_fails_stops_the_others_and_says_why(monkeypatch):
    from evenly.experiment.execute import setting_of

    def broken(plan, seed):
        if plan.data["skew"] == 0.9 and seed == 6:
            raise ValueError("the second seed of the second partition cannot be loaded")
        return setting_of(plan, seed)

    monkeypatch.setattr("evenly.experiment.execute.setting_of", broken)
    with pytest.raises(ValueError, match="cannot be loaded"):
        execute_study(tiny().study_plan("test/tiny", rounds=400))
