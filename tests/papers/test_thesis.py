"""The thesis' names and figures, and findings that say no more than the seeds do."""

import csv
from importlib import resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evenly.experiment.config import read_packaged
from evenly.experiment.study import method_rows
from evenly.metrics.runs import effective_clients
from evenly.papers.influence import unprivileged_share
from evenly.papers.study_findings import findings
from evenly.papers.thesis import (
    Place,
    Tally,
    figures,
    mean_change,
    opening_words,
    place,
    rank_correlation,
    ranks,
    study_rows,
    study_views,
    tally,
    thesis_method,
    tidy_study,
)
from tests.studies import METHODS, federation, people, study, trace

REFERENCE = resources.files("evenly") / "papers" / "reference" / "thesis_results.csv"


def reference() -> list[dict[str, str]]:
    with REFERENCE.open() as file:
        return list(csv.DictReader(file))


def test_our_48_methods_are_the_thesis_48():
    plan = read_packaged("thesis/adult-dirichlet").study_plan("thesis/adult-dirichlet")
    ours = [str(thesis_method(label)) for label in method_rows(plan)]
    for table in ("A.1", "A.5"):
        assert sorted(ours) == sorted(row["method"] for row in reference() if row["table"] == table)


def test_every_partition_of_adult_by_dirichlet_has_the_papers_figures_and_no_other_has():
    for experiment, tables in (
        ("adult-dirichlet", ["A.1", "A.2", "A.3", "A.4", "A.5"]),
        ("compas-dirichlet", ["B.1", "B.2", "B.3", "B.4", "B.5"]),
    ):
        plan = read_packaged(f"thesis/{experiment}").study_plan("x")
        places = [place(own, cell) for cell, own in plan.cells.items()]
        assert [where.table for where in places] == tables
        assert [len(figures(where)) for where in places] == [
            48 if experiment.startswith("adult") else 0
        ] * 5
    coverage = read_packaged("thesis/compas-coverage").study_plan("x")
    cell, own = next(iter(coverage.cells.items()))
    assert place(own, cell) == Place("", "compas", "cov_diff_size", "474")
    assert figures(place(own, cell)) == {}


def test_figures_come_in_our_units():
    found = figures(Place("A.1", "adult", "dirichlet", "0.1"))[thesis_method("fedavg+reweigh+full")]
    assert found["accuracy"] == pytest.approx(84.6)
    assert found["eod_abs"] == 0.065
    assert found["fas_thesis"] == pytest.approx(0.846 * (1 - (0.065 + 0.142 + 0.044 + 0.115) / 4))


def test_the_table_has_the_columns_of_the_reference_and_then_ours():
    rows, columns = list(study_rows(study())), list(reference()[0])
    assert list(rows[0])[: len(columns)] == columns
    assert {"protocol", "learning_rate", "eod_deviation", "fas_thesis", "fas_abs"} <= set(rows[0])
    assert len(rows) == 2 * 2 * len(METHODS)
    one = next(
        r
        for r in rows
        if r["method"] == "FEDAVG+LD" and r["protocol"] == "honest" and r["table"] == "A.5"
    )
    outcome = study().one("honest", "5000", "fedavg+reweigh+full")
    assert one["accuracy"] == pytest.approx(outcome.mean("accuracy") / 100)
    assert one["eod"] == pytest.approx(outcome.mean("eod_abs"))
    assert one["eod_deviation"] == pytest.approx(outcome.values["eod_abs"].std(ddof=1))


def test_a_single_seed_has_empty_deviations():
    assert all(row["eod_deviation"] is None for row in study_rows(study(seeds=(1,))))


def test_tidy_rows_have_every_partition_protocol_method_seed_and_metric_once():
    rows = list(tidy_study(study()))
    keys = {(r["cell"], r["protocol"], r["label"], r["seed"], r["metric"]) for r in rows}
    assert len(keys) == len(rows) == 2 * 2 * len(METHODS) * 3 * 11
    assert {
        "schema",
        "experiment",
        "run",
        "params",
        "data",
        "partition",
        "round",
        "split",
        "level",
        "value",
    } <= set(rows[0])


@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4]), min_size=3, max_size=20), st.randoms())
def test_ranks_and_their_correlation_are_scipys(values, random):
    other = random.sample(values, len(values))
    np.testing.assert_allclose(ranks(values), stats.rankdata(values))
    if len(set(values)) > 1:
        assert rank_correlation(values, other) == pytest.approx(stats.spearmanr(values, other)[0])


def test_a_change_counts_only_if_its_interval_leaves_out_0():
    clear, noisy = np.array([-0.2, -0.21, -0.19]), np.array([-0.2, 0.2, -0.1])
    assert tally([clear, -clear, noisy, np.array([0.5]), np.zeros(3)]) == Tally(1, 3, 1)
    assert mean_change([clear, np.array([np.nan, -0.01, -0.01])]).mean == pytest.approx(
        (-0.2 - 0.11 - 0.10) / 3
    )


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((9, 0, 0), "Yes"),
        ((4, 5, 0), "Mostly undecided"),
        ((6, 3, 0), "Where the seeds decide it, yes"),
        ((0, 3, 6), "No"),
        ((6, 1, 2), "Mostly, but not always"),
        ((2, 1, 6), "Mostly not"),
    ],
)
def test_the_first_words_are_no_stronger_than_the_counts(counts, words):
    assert opening_words(Tally(*counts)) == words


def test_weights_are_read_off_the_trace():
    one = trace(people(0.8, 0.1), people(0.8, 0.1), (0.5, 0.5))
    assert effective_clients(one) == pytest.approx(2)
    assert effective_clients(
        one._replace(weights=np.tile(np.array([1, 0], np.float32), (3, 1)))
    ) == pytest.approx(1)
    assert effective_clients(
        one._replace(weights=np.tile(np.array([0.25, 0.75], np.float32), (3, 1)))
    ) == pytest.approx(1.6)
    assert unprivileged_share(one, federation()) == pytest.approx((20 / 100 + 60 / 200) / 2)


def answers(**options) -> dict:
    return {found.key: found for found in findings([study(**options)])}


def test_findings_of_a_study_whose_truth_is_known():
    found = answers()
    assert set(found) == {
        "debias",
        "lowest",
        "near-iid",
        "parity",
        "memory",
        "clients",
        "accuracy",
        "favoured",
        "order",
        "choice",
    }
    assert found["debias"].answer.startswith("Yes: |EOD| is clearly lower in 6 of 6 pairs")
    assert found["memory"].answer.startswith("Yes: in 24 of 24 pairs of runs")
    assert (
        "fewer than 1.5 clients on average in 2 of 2 partitions; the least is 1.00"
        in found["clients"].answer
    )
    assert "towards the side with fewer rows and 0 towards the other" in found["favoured"].answer
    for one in found.values():
        assert all(len(row) == len(one.columns) for row in one.rows), one.key
        assert one.answer.endswith(".")
        assert "nan" not in one.answer


def test_one_seed_decides_nothing():
    found = answers(seeds=(1,))
    assert found["debias"].answer.startswith(
        "Mostly undecided: |EOD| is clearly lower in 0 of 6 pairs"
    )
    assert "±" not in found["debias"].answer


def test_what_a_study_cannot_answer_is_left_out():
    found = answers(data="compas", alphas=(0.1,), methods=("fedavg+full", "fedavg+reweigh+full"))
    assert set(found) == {"debias", "accuracy", "choice"}


def test_memories_that_differ_are_not_called_equal():
    made = study()
    cell = made.cells["0.1"]
    spoilt = [
        (
            run._replace(trace=run.trace._replace(model=(run.trace.model[0] + 1e-6,)))
            if "0.9" in run.label
            else run
        )
        for run in cell.runs
    ]
    changed = made._replace(cells={**made.cells, "0.1": cell._replace(runs=spoilt)})
    answer = next(found.answer for found in findings([changed]) if found.key == "memory")
    assert answer.startswith("Not to the bit")


def test_memories_are_compared_by_counts_where_models_were_not_kept():
    made = study()
    bare = {
        name: cell._replace(
            runs=[
                run._replace(trace=run.trace._replace(model=(np.zeros(0, np.float32),)))
                for run in cell.runs
            ]
        )
        for name, cell in made.cells.items()
    }
    (found,) = (one for one in findings([made._replace(cells=bare)]) if one.key == "memory")
    assert (
        found.answer
        == "Yes: in 24 of 24 pairs of runs every prediction count is the same, and the models were"
        " not kept."
    )
    assert {row[-1] for row in found.rows} == {"not kept"}


def test_studies_are_read_together():
    both = [study(), study(data="compas", name="thesis/compas-dirichlet")]
    assert len(study_views(both)) == 4
    found = {one.key: one for one in findings(both)}
    assert "in 12 of 12 pairs" in found["debias"].answer
    # two tables of Adult under two protocols; COMPAS has no figures
    assert len(found["order"].rows) == 4
