"""What is withheld where a method is private for clients, and the release that is offered."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import evenly
from evenly.algorithms import algorithm
from evenly.cli.result_commands import Format, _latex, _rows
from evenly.datasets import DATASETS
from evenly.experiment import tuning
from evenly.experiment.execute import execute, with_promises
from evenly.experiment.plan import Plan
from evenly.experiment.promises import (
    BINS,
    histogram_figures,
    histogram_of,
    privacy_record,
    shared_splits,
    withholds,
)
from evenly.privacy import accounting
from evenly.privacy.accounting import Releases, epsilon_of
from evenly.privacy.claims import facts

PLAIN = "fedavg+full"
PRIVATE = "fedavg(weights=equal)+full+dp(noise_multiplier=20, clip=0.1, forced=true"


def compared(out: Path, *methods: str) -> evenly.Results:
    data = DATASETS["synthetic-census"].load(rows=400, clients=6)
    return evenly.compare(data, list(methods), rounds=2, seeds=1, out=out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> tuple[Path, evenly.Results]:
    out = tmp_path_factory.mktemp("private") / "results"
    return out, compared(out, PLAIN, f"{PRIVATE}, histogram=3)")


def test_shared_files_hold_no_figure_without_noise(folder):
    out, _ = folder
    with open(out / "results.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["level"] for row in rows} == {"promise", "histogram"}
    live = [json.loads(line) for line in (out / "live.jsonl").read_text().splitlines()]
    assert all(not line["values"] for line in live if "values" in line)
    page = (out / "report.html").read_text()
    assert 'id="promise"' in page
    for section in ("results", "clients", "groups", "data", "rounds"):
        assert f'id="{section}"' not in page
    assert "withheld" in page
    assert "full, about 6 of 6 clients (rate 1)" in page
    assert "100 %" in page  # of the budget, because nothing else is released


def test_no_export_holds_a_figure_without_noise(folder):
    assert b"worst10" not in _rows(folder[0], Format.csv)
    with pytest.raises(ValueError, match=r"without noise are not exported\. --format csv"):
        _latex(folder[0], "worst10")


def test_exact_figures_stay_with_whoever_trained(folder):
    _, results = folder
    levels = {row["level"] for row in results.rows}
    assert {"model", "client", "group"} <= levels


def test_run_json_says_what_was_cut_by_round_and_by_clients(folder):
    out, _ = folder
    (known,) = json.loads((out / "run.json").read_text())["privacy"].values()
    assert known["cut"]["clip"] == pytest.approx([0.1, 0.1])
    assert 0 <= known["cut"]["worst_tenth"] <= 1
    assert 0 <= known["cut"]["others"] <= 1
    assert len(known["released_histogram"]) == BINS


def test_figures_are_shown_where_they_are_asked_for_and_nothing_is_claimed(tmp_path):
    compared(tmp_path / "all", PLAIN, f"{PRIVATE}, publish=true)")
    page = (tmp_path / "all" / "report.html").read_text()
    assert 'id="results"' in page
    assert "no claim: evaluations of clients are published" in page
    assert '"client"' in (tmp_path / "all" / "results.csv").read_text()


def test_one_private_method_withholds_the_figures_of_all():
    assert withholds({"a": {"published": True}, "b": {"published": False}})
    assert not withholds({"a": {"published": True}})


def test_a_private_method_withholds_figures_before_its_noise_is_known():
    private = algorithm("fedavg+poisson(rate=0.1)+dp(epsilon=8)")
    assert withholds({}, [algorithm("fedavg"), private])
    assert not withholds({}, [algorithm("fedavg+poisson(rate=0.1)+dp(epsilon=8, publish=true)")])
    assert not withholds({}, [algorithm("fedavg+dp(unit=row, epsilon=8)")])


def test_trials_of_a_private_search_show_no_figure_while_they_train(tmp_path, monkeypatch):
    live: list[str] = []
    monkeypatch.setattr(
        tuning.shutil, "rmtree",
        lambda path, **_: live.extend(f.read_text() for f in path.rglob("live.jsonl")),
    )  # fmt: skip
    data = DATASETS["synthetic-census"].load(rows=400, clients=6)
    method = (
        "fedavg(learning_rate=[0.1, 1], weights=equal)+full+dp(noise_multiplier=2, forced=true)"
    )
    evenly.tune(
        data, method, baseline=method.replace("[0.1, 1]", "0.5"), rounds=2, seeds=1, trials=2,
        out=tmp_path / "search",
    )  # fmt: skip
    values = [json.loads(line) for text in live for line in text.splitlines()]
    assert any("values" in line for line in values)
    assert not any(line.get("values") for line in values)


@pytest.mark.parametrize(
    ("method", "figures"),
    [(f"{PRIVATE})", False), ("fedavg+dp(unit=row, noise_multiplier=20)", True)],
)
def test_a_plan_that_was_written_by_hand_is_calibrated_before_it_trains(method, figures):
    """Figures are withheld, which follows from the promise."""
    plan = Plan(name="by hand", data={"name": "synthetic-census", "rows": 400, "clients": 6},
                methods=(method,), rounds=1, seeds=(0,))  # fmt: skip
    assert not plan.privacy
    promised = with_promises(plan).privacy
    (known,) = promised.values()
    assert known["noise_multiplier"] == 20
    assert withholds(promised) is not figures
    assert ("train" in shared_splits(promised)) is not figures
    plain = dataclasses.replace(plan, methods=(PLAIN,))
    assert with_promises(plain) is plain


def test_private_rows_are_promised_first_and_their_noise_is_in_the_plan(tmp_path):
    out, method = tmp_path / "rows", "fairfed+dp(unit=row, epsilon=8)"
    compared(out, PLAIN, method)
    (known,) = json.loads((out / "plan.json").read_text())["privacy"].values()
    assert known["unit"] == "row"
    assert known["epsilon"] <= 8
    page = (out / "report.html").read_text()
    promise = page.split('<section id="promise"')[1].split("</section>")[0]
    assert "epsilon 8 at delta 1e-05" in promise
    assert "protects nobody" in promise
    assert known["signal_share"] == 0.1
    assert all(figure in promise for figure in ("Batch rate", "0.02", "10 %"))
    assert 'id="results"' in page  # figures are of test rows, which the promise is not about
    assert 'id="weighing"' not in page  # which shows training losses
    with open(out / "results.csv") as file:
        assert {row["split"] for row in csv.DictReader(file)} == {"valid", "test", "central"}
    (stored,) = json.loads((out / "run.json").read_text())["privacy"].values()
    assert stored["noise_multiplier"] == known["noise_multiplier"]


def test_a_plan_with_private_rows_trains_without_the_accountant(tmp_path, monkeypatch):
    method = "fedavg+dp(unit=row, epsilon=8)"
    plan = Plan(name="rows", data={"name": "synthetic-census", "rows": 400, "clients": 6},
                methods=(method,), rounds=2, seeds=(0,))  # fmt: skip
    made, points = plan.calibrated(6), []
    expected = execute(plan, log=points.append).runs[0].trace
    assert {split for point in points for split in point.values} == {"valid", "central"}

    def missing():
        raise ModuleNotFoundError

    monkeypatch.setattr(accounting, "_dp_accounting", missing)
    found = execute(made).runs[0].trace
    assert found.tables.tolist() == expected.tables.tolist()


def test_a_plan_with_private_clients_trains_without_the_accountant(monkeypatch):
    method = "fedavg+poisson(rate=0.9)+dp(epsilon=8, forced=true)"
    plan = Plan(name="clients", data={"name": "synthetic-census", "rows": 400, "clients": 6},
                methods=(method,), rounds=2, seeds=(0,))  # fmt: skip
    made = Plan.from_json(plan.calibrated(6).to_json())
    expected = execute(made).runs[0].trace

    def missing():
        raise ModuleNotFoundError

    monkeypatch.setattr(accounting, "_dp_accounting", missing)
    for cached in (accounting.epsilon_of, accounting.noise_for):
        cached.cache_clear()
    with pytest.raises(ModuleNotFoundError):
        plan.calibrated(6)
    found = execute(made).runs[0].trace
    assert found.tables.tolist() == expected.tables.tolist()


def test_one_method_of_a_private_comparison_can_be_looked_at(folder):
    _, results = folder
    page = results[PLAIN].report(folder[0] / "one.html").read_text()
    assert "withheld" in page


def test_the_histogram_is_one_release_that_can_be_repeated(folder):
    comparison = folder[1]._comparison
    (label,) = comparison.privacy
    first = histogram_of(comparison, label)
    assert (
        first
        == histogram_of(comparison, label)
        == privacy_record(comparison)[label]["released_histogram"]
    )
    assert first is not None
    known = {**comparison.privacy[label], "histogram": 1e-9}
    exact = np.array(histogram_of(comparison._replace(privacy={label: known}), label))
    np.testing.assert_allclose(exact, exact.round(), atol=1e-6)
    assert exact.sum() == pytest.approx(6)
    assert np.abs(np.array(first) - exact).std() == pytest.approx(3 * 0.6, rel=0.5)


def test_the_histogram_is_part_of_the_account():
    text = "fedavg+full+dp(noise_multiplier=20, delta=1e-5, {})"
    with_it = facts([algorithm(text.format("histogram=4"))], 100, 50)["epsilon"]
    without = facts([algorithm(text.format("weight=3"))], 100, 50)["epsilon"]
    assert with_it == epsilon_of(20.0, Releases(50, more=(4.0,)), 1e-5) > without
    calibrated = facts([algorithm("fedavg+full+dp(epsilon=4, delta=1e-5, histogram=4)")], 100, 50)
    assert 3.99 < calibrated["epsilon"] <= 4
    # another client in the place of one changes two bins
    fixed = "fedavg+uniform(clients=60)+dp(noise_multiplier=5, delta=1e-5, histogram=4)"
    claim = facts([algorithm(fixed)], 100, 5)
    rounds = Releases(5, 0.6, "replace one", slots=60, registered=100, more=(4 / 2**0.5,))
    assert claim["epsilon"] == epsilon_of(5.0, rounds, 1e-5)


def test_figures_of_a_histogram_are_those_of_its_clients_to_a_bins_width():
    own = np.random.default_rng(1).uniform(0.2, 1.0, 5000)
    counts = np.bincount((own * BINS).astype(int), minlength=BINS).astype(float)
    mean, worst, variance = histogram_figures(counts.tolist())
    assert mean == pytest.approx(100 * own.mean(), abs=2.5)
    assert worst == pytest.approx(100 * np.sort(own)[:500].mean(), abs=2.5)
    assert variance == pytest.approx((100 * own).var(), abs=10)
    assert np.isnan(histogram_figures([-1.0] * BINS)).all()
