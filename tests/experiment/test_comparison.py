"""What a comparison says of clients and groups, in tidy rows and over seeds."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenly.cli import result_commands
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Comparison, Run, final_spreads
from evenly.experiment.folder import Store, write_result_rows
from evenly.experiment.plan import Plan
from evenly.experiment.result_rows import tidy_rows
from evenly.metrics import EQUITY_METRICS, GROUP_METRICS, METRICS, measure_groups, rates
from evenly.records import replace
from evenly.types import Trace
from evenly.writing import csv_cell

PLAN = Plan(name="test", data={}, methods=("fedavg",), rounds=1, seeds=(0,))
SCHEMA = (
    "schema experiment run label algorithm params data partition seed round split level name metric"
    " value"
)


def comparison(federation: Federation, trace: Trace) -> Comparison:
    """Two seeds; the second predicts the classes of the first in another order, so its figures
    differ.
    """
    other = trace._replace(tables=trace.tables[..., ::-1], central=trace.central[..., ::-1])
    runs = [
        Run("fedavg", "fedavg", {}, seed, t, frozenset()) for seed, t in enumerate((trace, other))
    ]
    return Comparison(
        "test", federation, "natural", "Softmax", runs, int(trace.rounds[-1]), "", 1.0, {}
    )


@pytest.fixture(scope="module")
def rows(tiny: Federation, some_trace: Trace) -> pd.DataFrame:
    return pd.DataFrame(tidy_rows(comparison(tiny, some_trace)))


def test_rows_keep_their_schema(rows: pd.DataFrame):
    assert " ".join(rows.columns) == SCHEMA
    assert set(rows.level) == {"model", "client", "group"}
    assert set(rows.split) == {*SPLITS, "central"}
    assert not rows.duplicated(["run", "round", "split", "level", "name", "metric"]).any()


def test_group_metrics_are_there_at_every_evaluation_on_every_split(
    rows: pd.DataFrame, some_trace: Trace, tiny: Federation
):
    for split in (*SPLITS, "central"):
        for done in some_trace.rounds:
            here = rows[
                (rows.seed == 0)
                & (rows.split == split)
                & (rows["round"] == done)
                & (rows.level == "model")
            ]
            assert set(here.metric) == set(GROUP_METRICS) | (
                set() if split == "central" else set(METRICS) | set(EQUITY_METRICS)
            )
    last = rows[
        (rows.seed == 0)
        & (rows.split == "valid")
        & (rows["round"] == some_trace.rounds[-1])
        & (rows.level == "model")
    ]
    found = measure_groups(
        some_trace.tables[-1, 1].sum(0), favourable=tiny.favourable, unprivileged=tiny.unprivileged
    )
    values = last.set_index("metric").value
    for name, value in found.items():
        np.testing.assert_array_equal(values[name], value)


def test_each_groups_rates_are_there_at_the_end(
    rows: pd.DataFrame, some_trace: Trace, tiny: Federation
):
    groups = rows.loc[(rows.level == "group") & (rows.seed == 0)]
    assert set(groups["round"]) == {some_trace.rounds[-1]}
    assert set(groups.split) == {*SPLITS, "central"}
    central = groups.loc[groups.split == "central"].set_index(["name", "metric"]).value
    found = rates(some_trace.central[-1], tiny.favourable)
    for g, name in enumerate(tiny.groups):
        assert central[name, "examples"] == found.examples[g]
        for metric in ("accuracy", "selection_rate", "tpr", "fpr"):
            np.testing.assert_allclose(central[name, metric], 100 * getattr(found, metric)[g])


def test_over_seeds_gives_group_metrics_on_clients_rows_and_on_the_central_set(
    tiny: Federation, some_trace: Trace
):
    found = comparison(tiny, some_trace)
    test, central = (
        final_spreads(found, "fedavg", "test"),
        final_spreads(found, "fedavg", "central"),
    )
    assert set(GROUP_METRICS) | set(METRICS) < set(test)
    assert set(central) == set(GROUP_METRICS)
    accuracies = [
        100 * np.trace(run.trace.central[-1].sum(0)) / run.trace.central[-1].sum()
        for run in found.runs
    ]
    assert central["accuracy"].mean == pytest.approx(np.mean(accuracies))
    assert central["accuracy"].seeds == 2


def test_without_groups_nothing_changes_but_the_accuracy_on_a_central_set(
    tiny: Federation, some_trace: Trace
):
    one = some_trace._replace(
        tables=some_trace.tables.sum(-3, keepdims=True),
        central=some_trace.central.sum(-3, keepdims=True),
    )
    alone = replace(tiny, groups=("all",), group=np.zeros_like(tiny.group))
    assert set(final_spreads(comparison(alone, one), "fedavg", "central")) == {"accuracy"}
    assert not set(GROUP_METRICS) & set(final_spreads(comparison(alone, one), "fedavg", "test"))
    assert "group" not in {row["level"] for row in tidy_rows(comparison(alone, one))}
    nowhere = comparison(replace(alone, central=np.zeros(0, np.int32)), one)
    assert final_spreads(nowhere, "fedavg", "central") == {}
    assert {row["split"] for row in tidy_rows(nowhere)} == set(SPLITS)


def test_of_very_many_clients_there_are_quantiles(
    tiny: Federation, some_trace: Trace, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evenly.experiment.result_rows.MOST_LISTED", tiny.clients - 1)
    few = pd.DataFrame(tidy_rows(comparison(tiny, some_trace)))
    assert set(few.level) == {"model", "clients", "group"}
    own, single = (
        frame.loc[(frame.split == "test") & (frame.seed == 0)]
        for frame in (few.loc[few.level == "clients"], rows.loc[rows.level == "client"])
    )
    for metric in ("accuracy", "loss", "examples"):
        values = single.loc[single.metric == metric].value.dropna()
        told = own.loc[own.metric == metric].set_index("name").value
        expected = [values.min(), values.median(), values.quantile(0.9), values.max()]
        np.testing.assert_allclose([told[f"quantile {q}"] for q in (0, 0.5, 0.9, 1)], expected)


def test_names_are_no_formulas_in_csv_files_and_stay_as_they_are_in_parquet(
    tiny: Federation, some_trace: Trace, tmp_path: Path
):
    """A client called =HYPERLINK(...) would be run by the spreadsheet of whoever opens
    results.csv.
    """
    names = ("=HYPERLINK(1)", "+1+1", "-2+3", "@sum", "-7", "St. Mary's")
    odd = tuple((*names, *tiny.names)[: tiny.clients])
    found = comparison(replace(tiny, names=odd), some_trace)
    write_result_rows(Store(tmp_path, PLAN), list(tidy_rows(found)))
    text = pd.read_csv(tmp_path / "results.csv", dtype={"name": str}, keep_default_na=False)
    raw = pd.read_parquet(tmp_path / "results.parquet")
    assert not text["name"].str.match(r"[=+@\t\r]|-(?!\d+$)").any()
    assert set(raw[raw.level == "client"]["name"]) == set(odd)
    assert set(text[text.level == "client"]["name"]) == {csv_cell(name) for name in odd}
    assert "'=HYPERLINK(1)" in set(text["name"])
    # below 0, too: numbers stay numbers
    np.testing.assert_array_equal(text["value"].replace("", "nan").astype(float), raw["value"])
    assert np.nanmin(raw["value"]) < 0


def test_export_writes_the_same_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [{"name": "=1+1", "value": -1.5}, {"name": "-7", "value": 2.0}]
    monkeypatch.setattr(result_commands, "_tidy", lambda folder: rows)
    assert (
        result_commands._rows(tmp_path, result_commands.Format.csv).decode()
        == '"name","value"\n"\'=1+1",-1.5\n"-7",2\n'
    )
    assert (
        pd.read_parquet(
            io.BytesIO(result_commands._rows(tmp_path, result_commands.Format.parquet))
        ).to_dict("records")
        == rows
    )
