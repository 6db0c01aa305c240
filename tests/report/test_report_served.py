"""Clients: who is served worst, who counted how much, and what they reveal."""

import numpy as np
import pytest
from tests.report.invented import comparison, federation

from evenly.algorithms import variants
from evenly.cli.terminal_tables import warnings_of
from evenly.notation import parse
from evenly.report.page import render
from evenly.report.trust_sections import WORDS, needs_of, sent_data
from evenly.report.values import (
    client_means,
    count_events,
    count_idle_rounds,
    idle_words,
    influence,
    mean_effective_clients,
    wilson,
    worst_clients,
)


def test_worst_clients_come_first_with_name_sizes_and_both_accuracies():
    found = comparison(seeds=2)
    rows = worst_clients(found, "fedavg", "q-fedavg(q=1)", limit=5)
    own, other = client_means(found, "fedavg"), client_means(found, "q-fedavg(q=1)")
    assert [row.accuracy for row in rows] == sorted(row.accuracy for row in rows)
    assert rows[0].accuracy == pytest.approx(np.nanmin(own.accuracy))
    k = found.federation.names.index(rows[0].name)
    assert rows[0].train == found.federation.train.counts[k]
    assert rows[0].other_accuracy == pytest.approx(other.accuracy[k])
    assert len(rows) == 5


def test_clients_without_rows_are_not_listed():
    assert worst_clients(comparison(data=federation(3, rows=(10, 5, 0))), "fedavg", "fedavg") == []


def test_wilson_holds_the_share_and_narrows_with_rows():
    low, high = wilson(np.array([0.5, 0.5, 0.0]), np.array([10, 1000, 10]))
    assert (low <= [0.5, 0.5, 0]).all()
    assert (high >= [0.5, 0.5, 0]).all()
    assert high[1] - low[1] < high[0] - low[0]
    assert np.isnan(wilson(np.array([np.nan]), np.array([0]))[0]).all()


def test_influence_is_each_clients_share_of_all_weight():
    found = comparison(("fedavg",), data=federation(4), seeds=1)
    run = found.runs[0]
    trace = run.trace._replace(
        cohort=np.array([[0, 1], [0, 2]]), weights=np.array([[0.75, 0.25], [0.5, 0.5]])
    )
    share = influence(found._replace(runs=[run._replace(trace=trace)]), "fedavg")
    # Client 0 has (0.75 + 0.5) / 2 of all weight, and client 3 was never chosen.
    np.testing.assert_allclose(share.weight, [0.625, 0.125, 0.25, 0.0])
    assert share.rows.sum() == pytest.approx(1)


def test_a_method_of_several_models_has_no_single_influence():
    assert np.isnan(influence(comparison(("multi-q",)), "multi-q").weight).all()


@pytest.mark.parametrize(
    ("label", "needs"),
    [
        ("q-fedavg(q=1)", ("loss", "square_norm")),
        ("fedmgda", ("examples", "gram")),
        ("fedavg", ()),
        ("no-such-method", None),
    ],
)
def test_what_a_method_reveals_is_what_its_run_recorded(label, needs):
    assert needs_of(comparison((label,)).runs[0]) == needs


def test_every_need_has_words():
    assert all(
        " " in words for words in sent_data(comparison(("q-fedavg(q=1)",)), "q-fedavg(q=1)").words
    )


@pytest.mark.parametrize(
    ("cohort", "weights", "number"),
    [
        ([[0, 1, 2, 3]] * 2, [[0.25] * 4] * 2, 4),
        # one client each time, whatever the sum
        ([[0, 1, 2, 3]] * 2, [[1, 0, 0, 0], [0, 0, 2, 0]], 1),
        ([[0, 1, 2, 3]] * 2, [[1, 1, 0, 0], [1, 1, 1, 1]], 3),  # two, then four
        # the first client has two slots
        ([[0, 0, 2, 3]], [[0.25] * 4], 1 / (0.5**2 + 2 * 0.25**2)),
        ([[0, 1], [2, 3]], [[0, 0], [1, 1]], 2),  # nobody returned in the first round
        ([[0, 1]], [[0, 0]], np.nan),
        (np.zeros((0, 2), int), np.zeros((0, 2)), np.nan),  # no weights are known
    ],
)
def test_the_effective_number_of_clients(cohort, weights, number):
    made = comparison(("fedavg",), seeds=1, data=federation(5))
    trace = made.runs[0].trace._replace(
        cohort=np.array(cohort), weights=np.array(weights, np.float32)
    )
    assert mean_effective_clients(
        made._replace(runs=[made.runs[0]._replace(trace=trace)]), "fedavg"
    ) == pytest.approx(number, nan_ok=True)


def test_the_page_tells_how_many_clients_counted_and_how_often_accuracy_stood_in():
    made = comparison(("fedavg", "fairfed"), seeds=2)
    runs = [
        run._replace(
            trace=run.trace._replace(reports={"fallbacks": 3.0} if run.label == "fairfed" else {})
        )
        for run in made.runs
    ]
    made = made._replace(runs=runs)
    # two seeds, thirty rounds, five clients
    assert count_events(made, "fairfed", "fallbacks") == (6, 300)
    text = render(made)
    assert (
        "Under fairfed, in 6 of 300 client-rounds a client lacked one of the groups; its accuracy"
        " gap was used instead." in text
    )
    assert "Under fedavg, in" not in text
    assert (
        f"fedavg: {mean_effective_clients(made, 'fedavg'):.3g}; fairfed:"
        f" {mean_effective_clients(made, 'fairfed'):.3g}." in text
    )


def test_the_page_counts_rounds_in_which_nobody_counted():
    """A round of AFL whose clients all have λ = 0 does nothing, and the page did not say so."""
    made = comparison(("fedavg", "afl"), seeds=2)
    assert count_idle_rounds(made, "afl") == (0, 60)
    assert "no update counted" not in render(made)
    weights = made.of("afl")[0].trace.weights.copy()
    weights[[3, 8, 9]] = 0
    runs = [
        run._replace(trace=run.trace._replace(weights=weights)) if run.label == "afl" else run
        for run in made.runs
    ]
    made = made._replace(runs=runs)
    assert count_idle_rounds(made, "afl") == (6, 60)  # two seeds, thirty rounds
    text = render(made)
    words = (
        "Under afl, in 6 of 60 rounds no update counted, because every client of the round had"
        " weight 0 or did not return"
    )
    assert words in text
    assert [words in str(said) for said in warnings_of(made)] == [True], "the terminal says so, too"
    assert "Under fedavg, in" not in text


def test_a_round_in_which_nobody_counted_moves_a_private_model_by_noise():
    made = comparison(("fedavg",), seeds=1)
    (run,) = made.runs
    weights = run.trace.weights.copy()
    weights[3] = 0
    made = made._replace(runs=[run._replace(trace=run.trace._replace(weights=weights))])
    for noise, words in ((0.7, "only noise moved the model."), (0.0, "did not change the model.")):
        known = {"unit": "client", "noise_multiplier": noise}
        (said,) = idle_words(made._replace(privacy={"fedavg": known}), ["fedavg"])
        assert said.endswith(words)


def test_what_a_sampling_must_know_is_revealed_too():
    (member,) = variants(parse("fedavg(weights=equal)+parity"))[0].members
    made = comparison(("fedavg",), seeds=1)
    made = made._replace(runs=[made.runs[0]._replace(needs=member.needs)])
    assert sent_data(made, "fedavg").words == [
        "how many training rows it has",
        WORDS["unprivileged"],
    ]
