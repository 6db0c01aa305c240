"""`Results`: tables, charts, files, models, and how they are shown."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import evenly
from evenly.algorithms import METHODS
from evenly.experiment.comparison import final_spreads
from evenly.records import record, replace
from tests.api.patients import COLUMNS, patients


def compared(**options: Any) -> evenly.Results:
    return evenly.compare(
        patients(), ["fedavg", "q-fedavg(q=[1, 5])"], **COLUMNS, rounds=6, seeds=3, progress=False,
        evaluate_every=2, name="patients", **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def results() -> evenly.Results:
    return compared()


def test_a_table_has_means_and_intervals(results: evenly.Results):
    table = results.table(["average", "worst10", "eod_abs"])
    assert table.index.tolist() == results.methods
    for method in results.methods:
        spreads = final_spreads(results.comparison, method, "test")
        for name in ("average", "worst10", "eod_abs"):
            own = spreads[name]
            expected = [own.mean, own.mean - own.half_width, own.mean + own.half_width]
            found = table.loc[method, [name, f"{name}_low", f"{name}_high"]]
            np.testing.assert_allclose(found.to_numpy(float), expected)
    assert list(results.table("average", intervals=False).columns) == ["average"]
    assert results.table().shape == (3, 12)
    assert not results.table("average", split="valid").equals(results.table("average"))


def test_a_table_has_the_settings_in_which_methods_differ(results: evenly.Results):
    table = results.table("average", intervals=False, settings=True)
    assert list(table.columns) == ["q", "average"]
    assert table["q"].isna().tolist() == [True, False, False]
    assert table["q"].tolist()[1:] == [1, 5]


def test_a_tidy_table_is_results_csv(results: evenly.Results):
    table = results.table(tidy=True)
    assert len(table) == len(results.rows)
    assert set(table["level"]) == {"model", "client", "group"}
    last = table[(table["round"] == 6) & (table["split"] == "test") & (table["level"] == "model")]
    one = last[(last["metric"] == "average") & (last["label"] == "fedavg")]["value"].mean()
    assert one == pytest.approx(results.table("average").loc["fedavg", "average"])


def test_clients_and_groups_have_a_row_each(results: evenly.Results):
    clients = results.clients()
    assert len(clients) == 3 * 4
    share = clients.groupby("method")["weight_share"].sum()
    np.testing.assert_allclose(share, 1)
    assert (clients["low"] <= clients["accuracy"]).all()
    groups = results.groups()
    assert set(groups["group"]) == {"female", "male"}
    assert groups.groupby("method")["unprivileged"].sum().tolist() == [1, 1, 1]
    assert groups["accuracy"].between(groups["accuracy_low"], groups["accuracy_high"]).all()


def test_history_has_a_row_for_each_evaluation(results: evenly.Results):
    history = results.history()
    assert len(history) == 3 * 3 * 4
    assert sorted(set(history["round"])) == [0, 2, 4, 6]
    last = history[history["round"] == 6].groupby("method")["average"].mean()
    expected = results.table("average")["average"]
    np.testing.assert_allclose(last[expected.index], expected)


def test_history_has_the_metrics_of_results_csv(results: evenly.Results):
    rows = results.table(tidy=True)
    rows = rows[(rows["level"] == "model") & (rows["split"] == "valid")]
    history = results.history("valid")
    assert set(rows["metric"]) <= set(history.columns)
    first = rows[(rows["label"] == "fedavg") & (rows["seed"] == 1) & (rows["round"] == 2)]
    own = history.set_index(["method", "seed", "round"]).loc[("fedavg", 1, 2)]
    expected = first.set_index("metric")["value"]
    np.testing.assert_allclose(own[expected.index], expected)


def test_the_best_is_chosen_on_validation_rows(results: evenly.Results):
    table = results.table("worst10", split="valid")["worst10"]
    assert table[results.best()] == table.max()
    least = results.table("eod_abs", split="valid")["eod_abs"]
    assert least[results.best("eod_abs")] == least.min()
    with pytest.raises(ValueError, match="no metric 'worst'"):
        results.best("worst")
    with pytest.raises(ValueError, match="Neither a higher nor a lower eod is better"):
        results.best("eod")


def test_results_are_a_collection_of_methods(results: evenly.Results):
    assert len(results) == 3
    assert list(results) == results.methods == ["fedavg", "q-fedavg(q=1)", "q-fedavg(q=5)"]
    assert "fedavg" in results
    assert results["fedavg"].methods == ["fedavg"]
    assert results[-1].methods == ["q-fedavg(q=5)"]
    assert results[["q-fedavg(q=5)", "fedavg"]].methods == ["q-fedavg(q=5)", "fedavg"]
    assert results["q-fedavg( q=5.0 )"].methods == ["q-fedavg(q=5)"]
    with pytest.raises(ValueError, match=r"no method 'fedagv' in these results"):
        results["fedagv"]
    with pytest.raises(ValueError, match=r"Did you mean 'q-fedavg\(q=1\)'\?"):
        results["q-fedavg"]


@pytest.mark.parametrize("kind", ["clients", "front", "history", "groups", "influence"])
def test_charts_stand_alone(results: evenly.Results, kind: str):
    chart = results.plot(kind)
    spec = chart.to_dict()
    assert spec["title"]
    assert isinstance(spec["width"], int)
    text = str(spec)
    assert all(method in text for method in results.methods)


def test_charts_of_other_metrics_and_unknown_ones(results: evenly.Results):
    for metric, title in (("worst10", "Worst 10 %"), ("gini", "Gini"), ("loss", "Loss")):
        assert results.plot("history", metric=metric).to_dict()["title"] == f"{title} by round"
    (rows,) = results["fedavg"].plot("history", metric="eod_abs").to_dict()["datasets"].values()
    history = results["fedavg"].history().groupby("round")["eod_abs"].mean()
    assert [row["mean"] for row in rows] == pytest.approx(history.tolist(), rel=1e-4)
    assert "selection" in str(results.plot("groups", metric="selection_rate").to_dict()).lower()
    for kind, metric in (("history", "nothing"), ("groups", "average"), ("front", "nothing")):
        with pytest.raises(ValueError, match=f"There is no .* '{metric}'"):
            results.plot(kind, metric=metric)
    with pytest.raises(ValueError, match="no chart 'bars'"):
        results.plot("bars")


def test_groups_of_several_columns_are_drawn_for_each_column_and_together():
    table = patients().assign(team=["day", "night"] * 200)
    results = evenly.compare(
        table, "fedavg", **COLUMNS | {"sensitive": ["sex", "team"]}, rounds=1, seeds=1,
        progress=False,
    )  # fmt: skip
    drawn = [
        row["group"]
        for rows in results.plot("groups").to_dict()["datasets"].values()
        for row in rows
        if "at" in row
    ]
    pairs = [f"sex={sex}, team={team}" for sex in ("female", "male") for team in ("day", "night")]
    assert drawn == ["sex=female", "sex=male", "team=day", "team=night", *pairs]
    accuracy = results.groups().set_index("group")["accuracy"]
    spec = str(results.plot("groups").to_dict())
    assert f"{accuracy['night']:.2f}"[:4] in spec


def test_results_whose_method_is_gone_say_how_to_bring_it_back(tmp_path: Path):
    fedavg = METHODS["fedavg"]
    evenly.register(dataclasses.replace(fedavg, name="mine"))
    try:
        evenly.compare(
            patients(), ["fedavg", "mine(epochs=2)"], **COLUMNS, rounds=1, seeds=1, out=tmp_path,
            progress=False,
        )  # fmt: skip
        assert len(evenly.load_results(tmp_path)) == 2  # pyright: ignore[reportArgumentType]
    finally:
        del METHODS["mine"]
    with pytest.raises(ValueError, match=r"method 'mine', whose code is not stored\. Register it"):
        evenly.load_results(tmp_path)


def test_data_of_a_folder_have_no_features(results: evenly.Results, tmp_path: Path):
    """A model would take zeros for what patients have."""
    again = evenly.load_results(results.save(tmp_path / "kept"))
    assert isinstance(again, evenly.Results)
    assert np.isnan(again.federation.x).all()
    assert "features are not stored" in repr(again.federation)
    assert "features are not stored" not in repr(results.federation)


@pytest.mark.parametrize(
    ("rows", "model"), [((28, 28, 1), "lenet"), ((12,), "char-lstm(hidden=4)"), ((5,), "softmax")]
)
def test_folders_of_data_from_python_know_the_form_of_rows(
    rows: tuple[int, ...], model: str, tmp_path: Path
):
    draws = np.random.default_rng(0)
    x, y = draws.integers(0, 3, (30, *rows)), draws.integers(0, 3, 30)
    data = evenly.Federation.from_arrays(x.astype(np.float32), y, np.repeat(range(3), 10))
    results = evenly.compare(
        data, "fedavg", model=model, rounds=1, seeds=1, out=tmp_path, progress=False
    )
    again = evenly.load_results(tmp_path)
    assert isinstance(again, evenly.Results)
    assert again.federation.x.shape == (30, *rows)
    pd.testing.assert_frame_equal(again.table(), results.table())


def test_files(results: evenly.Results, tmp_path: Path):
    text = results.latex(["average", "worst10"])
    assert text.count(r" \\") == 4
    assert "q-fedavg(q=1)" in text
    page = results.report(tmp_path / "report.html").read_text()
    assert "<title>" in page
    assert "North" in page


def test_saved_results_are_those_of_a_folder(results: evenly.Results, tmp_path: Path):
    folder = results.save(tmp_path / "kept")
    again = evenly.load_results(folder)
    assert isinstance(again, evenly.Results)
    pd.testing.assert_frame_equal(again.table(), results.table())
    rows = patients(seed=7)
    own, stored = (one.model("q-fedavg(q=5)", seed=2) for one in (results, again))
    np.testing.assert_array_equal(own.probabilities(rows), stored.probabilities(rows))
    written = {path: path.stat().st_mtime_ns for path in (folder / "traces").iterdir()}
    pd.testing.assert_frame_equal(compared(out=folder).table(), results.table())
    assert {path: path.stat().st_mtime_ns for path in (folder / "traces").iterdir()} == written
    with pytest.raises(ValueError, match="already in"):
        again.save(tmp_path / "again")
    with pytest.raises(ValueError, match="only some methods"):
        results["fedavg"].save(tmp_path / "again")
    with pytest.raises(ValueError, match=r"different settings: .*methods"):
        evenly.compare(patients(), "fedavg", **COLUMNS, out=folder)


def test_a_model_predicts_the_labels_of_new_rows(results: evenly.Results):
    rows = patients(seed=7).drop(columns="readmitted")
    for seed in results.seeds:
        predicted = results.model("fedavg", seed=seed).predict(rows)
        assert set(predicted) <= {"no", "yes"}
    with pytest.raises(ValueError, match="no run with seed 9"):
        results.model("fedavg", seed=9)
    with pytest.raises(ValueError, match="These results have 3 methods"):
        results.model()


def test_one_of_several_models(tmp_path: Path):
    options = {"rounds": 3, "seeds": 1, "progress": False, "model": "mlp(hidden=[4])"}
    for out in (None, tmp_path / "out"):
        results = evenly.compare("synthetic(clients=6)", "ifca(groups=2)", out=out, **options)
        with pytest.raises(ValueError, match="has 2 models"):
            results.model()
        rows = results.federation.x[:3]
        assert results.model(number=1).predict(rows).shape == (3,)
        with pytest.raises(ValueError, match="number must be from 0 to 1, got 2"):
            results.model(number=2)


def test_results_print_a_short_table(results: evenly.Results):
    text = repr(results)
    assert text.startswith("Results on patients (4 clients): 6 rounds, 3 seeds\n")
    assert len(text.splitlines()) == 6
    page = results._repr_html_()
    assert page.count("<tr>") == 4
    assert "font-weight:bold" in page
    assert "worst" in page


def test_traces_know_whose_they_are(results: evenly.Results):
    first, *_ = results.traces("q-fedavg(q=1)")
    assert repr(first) == (
        "Trace of q-fedavg(q=1): 6 rounds, 4 evaluations of 4 clients, 2 groups of people"
    )
    assert first.clients == results.federation.names
    assert first.groups == ("female", "male")
    assert first.returned is not None
    assert first.returned.all()


def test_traces_from_a_folder_know_whose_they_are(tmp_path: Path):
    options = {"rounds": 2, "seeds": 1, "progress": False, "out": tmp_path}
    (first,) = evenly.compare("synthetic(clients=4)", "fedavg", **options).traces()
    again = evenly.load_results(tmp_path)
    assert isinstance(again, evenly.Results)
    (read,) = again.traces()
    assert repr(read) == repr(first)
    assert (read.clients, read.groups) == (first.clients, first.groups)


def test_a_federation_prints_what_it_holds(results: evenly.Results):
    text = repr(results.federation)
    assert text.startswith("Federation 'patients': 4 clients; 400 rows (")
    assert text.endswith("labels 'no', 'yes'; groups 'female', 'male'")


def test_a_central_test_set_has_its_own_column():
    table = patients()
    table["part"] = np.where(np.arange(len(table)) % 4 == 0, "central", "train")
    results = evenly.compare(
        table, "fedavg", **COLUMNS, split="part", rounds=2, seeds=2, progress=False
    )
    assert "central" in results.table().columns
    assert isinstance(results.groups("central"), pd.DataFrame)
    with pytest.raises(ValueError, match="belongs to no client"):
        results.clients("central")


def test_differences_are_paired_by_seed_and_corrected(results: evenly.Results):
    from evenly.metrics import holm, paired

    found = results.differences(["average", "worst10"], "q-fedavg(q=1.0)")
    assert found.index.tolist() == ["fedavg", "q-fedavg(q=5)"] * 2
    history = results.history()
    last = history[history["round"] == 6]
    metrics, tests = ["average", "average", "worst10", "worst10"], []
    for (method, row), metric in zip(found.iterrows(), metrics, strict=True):
        by_seed = last.pivot(index="seed", columns="method", values=metric)
        test = paired((by_seed[method] - by_seed["q-fedavg(q=1)"]).to_numpy())
        tests.append(test)
        assert row["metric"] == metric
        assert row["difference"] == pytest.approx(test.difference)
        ends = [test.difference - test.half_width, test.difference + test.half_width]
        np.testing.assert_allclose([row["low"], row["high"]], ends)
        np.testing.assert_allclose([row["p"], row["effect"]], [test.p, test.effect])
        assert row["seeds"] == 3
    np.testing.assert_allclose(found["p_holm"], holm([test.p for test in tests]))


def test_differences_have_a_default_baseline_and_refuse_what_does_not_exist(
    results: evenly.Results,
):
    first, same = results.differences(), results.differences("worst10", "fedavg", split="test")
    pd.testing.assert_frame_equal(first, same)
    assert not results.differences("average", split="valid").equals(results.differences("average"))
    with pytest.raises(ValueError, match="no metric 'worst_10'"):
        results.differences("worst_10")
    with pytest.raises(ValueError, match="no method 'fedvag'"):
        results.differences("worst10", "fedvag")
    with pytest.raises(ValueError, match="At least one metric is needed"):
        results.differences([])
    assert results["fedavg"].differences().empty


def test_latex_renames_methods(results: evenly.Results):
    text = results.latex("worst10", names={"q-fedavg(q=1.0)": "Ours & more"})
    assert r"Ours \& more &" in text
    assert "fedavg &" in text
    assert "q-fedavg(q=1) &" not in text
    assert "$q$-FedAvg &" in results.latex("worst10", names={"q-fedavg(q=1)": "$q$-FedAvg"})
    with pytest.raises(ValueError, match="no method 'fedvag'"):
        results.latex(names={"fedvag": "x"})


def test_a_model_scores_like_scikit_learn(results: evenly.Results):
    rows, model = patients(), results.model("fedavg")
    share = (model.predict(rows) == rows["readmitted"].astype(str)).mean()
    assert model.score(rows, rows["readmitted"]) == pytest.approx(share)
    np.testing.assert_array_equal(model.predict_proba(rows), model.probabilities(rows))
    with pytest.raises(ValueError, match="one label for each"):
        model.score(rows, rows["readmitted"].head(2))
    with pytest.raises(ValueError, match=r"Labels must be among .*, got perhaps"):
        model.score(rows.head(1), ["perhaps"])
    with pytest.raises(ValueError, match="at least one row"):
        model.score(rows.head(0), [])
    numbered = replace(model, labels=("0", "1"))
    right = numbered.predict(rows)
    assert right.dtype == int
    for labels in (right, right.astype(float), pd.Series(right, dtype="Int64"), list(right)):
        assert numbered.score(rows, labels) == 1, "a column with gaps holds 1.0, which is 1"


def test_privacy_has_the_promise_of_each_private_method(tmp_path: Path):
    methods = ["fedavg", "fedavg+full+dp(epsilon=8, forced=true)", "fedavg+dp(unit=row, epsilon=4)"]
    results = evenly.compare("synthetic(clients=6)", methods, rounds=2, seeds=1, progress=False)
    found = results.privacy()
    assert found.index.tolist() == results.methods[1:]
    assert found["unit"].tolist() == ["client", "row"]
    assert (found["epsilon"] <= [8, 4]).all()
    assert found["epsilon"].tolist() == pytest.approx([8, 4], rel=2e-3)
    assert found["promise"].tolist() == [
        "epsilon 8 at delta 1e-05", "epsilon 4 at delta 1e-05",
    ]  # fmt: skip
    again = evenly.load_results(results.save(tmp_path / "saved"))
    assert isinstance(again, evenly.Results)
    pd.testing.assert_frame_equal(again.privacy(), found)
    assert results["fedavg"].privacy().empty


def test_loggers_are_checked_before_training():
    with pytest.raises(ValueError, match="Loggers write into a folder"):
        evenly.compare("synthetic(clients=4)", "fedavg", rounds=1, seeds=1, log="tensorboard")
    with pytest.raises(ValueError, match="tensorbord"):
        evenly.compare("synthetic(clients=4)", "fedavg", rounds=1, seeds=1, log=["tensorbord"])


def test_a_function_logs_every_evaluation_in_memory():
    seen = []
    results = evenly.compare(
        "synthetic(clients=4)", "fedavg", rounds=4, evaluate_every=2, seeds=2, progress=False,
        log=lambda point: seen.append((point.run.seed, point.round, point.values["test"])),
    )  # fmt: skip
    history = results.history("test")
    assert sorted(one[:2] for one in seen) == [(s, r) for s in (0, 1) for r in (0, 2, 4)]
    for seed, done, values in seen:
        row = history[(history["seed"] == seed) & (history["round"] == done)]
        assert values["worst10"] == row["worst10"].item()


@record
class OwnLogistic(evenly.models.Logistic):
    """A model that is not evenly's, so that no folder stores its code."""


def test_a_model_of_ones_own_is_passed_again_only_in_a_new_session(tmp_path: Path):
    task = OwnLogistic(features=4)
    first = evenly.compare(
        patients(), "fedavg", **COLUMNS, model=task, rounds=2, seeds=2, out=tmp_path, progress=False
    )
    rows = patients().head(20)
    expected = first.model("fedavg", seed=1, task=task).probabilities(rows)
    np.testing.assert_array_equal(first.model("fedavg", seed=1).probabilities(rows), expected)
    again = evenly.load_results(tmp_path)
    assert isinstance(again, evenly.Results)
    with pytest.raises(ValueError, match=r"with `task=\.\.\.`"):
        again.model("fedavg", seed=1)
    found = again.model("fedavg", seed=1, task=task).probabilities(rows)
    np.testing.assert_array_equal(found, expected)
