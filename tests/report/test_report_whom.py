"""Every page opens with whom the model serves worst and with what a trivial model would score; what
is hidden is never named there.
"""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.report.invented import comparison, federation, unbroken, with_groups

import evenly
from evenly.cli.terminal_tables import opening_of
from evenly.experiment.comparison import Comparison, Incidents
from evenly.experiment.deployment import (
    UNKNOWN,
    Deployment,
    DeploymentFacts,
    Evaluation,
    Exclusion,
    Round,
)
from evenly.experiment.reopen import comparison_of
from evenly.records import replace
from evenly.report.charts.focus import choose_focus
from evenly.report.opening import opening
from evenly.report.trust_sections import absence, left_out_section
from evenly.report.values import client_rates, client_split, final_values
from evenly.report.worst_served import (
    LARGE,
    SHOWN,
    ServedPart,
    Trivial,
    Whom,
    sentences,
    whom_of,
    whom_table,
)

NAMES = ("North", "Old Town", "Lakeside")
# True label by prediction of each client, "no" and "yes": 90 + 60 + 50 people, of whom 138 are
# right and 132 labelled "no".
SERVED = np.array([[[60, 5], [5, 20]], [[20, 15], [20, 5]], [[30, 2], [15, 3]]])
TRAINED = np.array([[[70, 0], [30, 0]]] * 3)


def counted(
    tables: np.ndarray, *, trained: np.ndarray = TRAINED, labels: tuple[str, ...] = ("fedavg",)
) -> Comparison:
    """Methods of one seed that were tested with these tables [methods or one, clients, labels,
    predictions].
    """
    data = federation(3, rows=(50, 10, 25), names=NAMES)
    found = comparison(labels, data=data, seeds=1, evaluations=2)
    runs = []
    for run, own in zip(
        found.runs, np.broadcast_to(tables, (len(labels), *tables.shape[-3:])), strict=True
    ):
        filled = run.trace.tables.copy()
        filled[:, 0], filled[:, 1], filled[:, 2] = trained[:, None], 0, own[:, None]
        runs.append(run._replace(trace=run.trace._replace(tables=filled)))
    return found._replace(runs=runs)


def whom(found: Comparison, least: int = 0) -> Whom:
    values = final_values(found, client_split(found))
    made = whom_of(found, values, choose_focus(found, values, least))
    assert made is not None
    return made


def said(found: Comparison, least: int = 0) -> list[str]:
    return sentences(whom(found, least))


def test_the_opening_after_a_search_is_about_the_method_that_it_chose():
    tables = np.stack([SERVED, SERVED[:, :, ::-1]])
    found = counted(tables, labels=("q-fedavg(q=0)", "q-fedavg(q=5)"))
    assert said(found)[0].startswith("q-fedavg(q=0) is ")
    chosen = found._replace(chosen="q-fedavg(q=5)")
    first, client = said(chosen)
    assert first.startswith("q-fedavg(q=5) is no better than a trivial model")
    # the other way round: 138 of 200 are wrong, and the client that was served best is worst
    assert "it is right for 31.0 % of 200 rows" in first
    assert "serves “North” worst: right for 11.1 % of 90 rows" in client
    assert str(opening_of(chosen)[0]).startswith(first)
    # its gain is still told as a change from the baseline
    values = final_values(chosen, client_split(chosen))
    page = opening(chosen, values, choose_focus(chosen, values))
    assert "Compared with q-fedavg(q=0), q-fedavg(q=5) " in unbroken(page)


def test_the_opening_names_the_worst_served_client_and_what_a_trivial_model_scores():
    assert said(counted(SERVED)) == [
        (
            "fedavg is not clearly better than a trivial model: it is right for 69.0 % of 200 rows,"
            " and always predicting “no”, the most frequent label in the training rows, for 66.0 %,"
            " a difference that chance alone could explain."
        ),
        (
            "Of the clients, it serves “Old Town” worst: right for 41.7 % of 60 rows, 27.3 points"
            " below the average."
        ),
    ]
    found = whom(counted(SERVED))
    assert found.client is not None
    # 5 of 25, 15 of 35
    assert (found.client.tpr, found.client.fpr) == (
        pytest.approx(20.0),
        pytest.approx(100 * 15 / 35),
    )
    assert (found.whole.tpr, found.whole.fpr) == (
        pytest.approx(100 * 28 / 68),
        pytest.approx(100 * 22 / 132),
    )


def test_a_model_no_better_than_the_trivial_one_is_said_to_be_so_in_the_first_sentence():
    worse = SERVED.copy()
    worse[0, 0] = 40, 25  # twenty fewer are right
    first = said(counted(worse))[0]
    assert first.startswith(
        "fedavg is no better than a trivial model: it is right for 59.0 % of 200 rows"
    )
    assert first.endswith("for 66.0 %.")
    other = said(counted(np.stack([SERVED * 8, worse * 8]), labels=("fedavg", "afl")))[0]
    assert other.startswith("fedavg is right for 69.0 % of 1,600 rows; always predicting")
    assert other.endswith("; afl is no better than that.")
    both = said(counted(np.stack([worse, worse]), labels=("fedavg", "afl")))[0]
    assert both.endswith("for 66.0 %, and no other method is better.")


def test_the_trivial_label_is_learnt_from_training_rows_and_scored_on_the_measured_ones():
    other = TRAINED[:, ::-1]  # in training rows "yes" is more frequent
    found = whom(counted(SERVED, trained=other)).trivial
    assert found is not None
    assert (found.label, found.learnt, found.positive) == ("yes", True, True)
    assert found.accuracy == pytest.approx(34.0)  # 68 of the 200 test rows


def test_the_worst_served_group_and_intersection_are_named_with_people():
    found = with_groups(comparison(seeds=2, data=federation(12, rows=(400, 50, 200))))
    made = whom(found)
    assert made.unit == "people"
    assert made.group is not None
    assert made.intersection is not None
    # [seeds, groups, labels, predictions]
    tables = np.stack([run.trace.tables[-1, 2].sum(0) for run in found.of("fedavg")])
    women = tables[:, :3].sum(1)
    share = np.trace(women, axis1=1, axis2=2) / women.sum((1, 2))
    assert made.group.name == "sex “Female”"
    assert made.group.accuracy == pytest.approx(100 * share.mean())
    assert made.group.rows == pytest.approx(women.sum((1, 2)).mean())
    assert re.search(
        r"Of the groups, it serves sex “Female” worst: right for \d+\.\d % of [\d,]+ people,"
        r" \d+\.\d points below",
        said(found)[2],
    )
    assert made.intersection.name.startswith("“sex=Female, race=")


@pytest.mark.parametrize(
    ("right", "group", "among"),
    [(5, "women", LARGE), (20, "women", ""), (5, "few", "")],
    ids=["a small group is less accurate", "it is more accurate", "all groups are small"],
)
def test_a_group_that_is_worst_only_of_the_large_ones_is_said_to_be_so(
    right: int, group: str, among: str
):
    """Groups with few rows come last, because chance makes them extreme."""
    found = with_groups(comparison(("fedavg",), seeds=1, data=federation(30)))
    tables = found.runs[0].trace.tables[:, 2]
    tables[:] = 0
    large = [[30, 10], [10, 30]] if group == "women" else [[6, 2], [2, 6]]
    tables[:, 0] = large
    tables[:, 0, 5] = [[right, 22 - right], [0, 4]]
    made = whom(found).intersection
    assert made is not None
    assert made.among == among
    assert (made.name == "“sex=Male, race=Other”") == (group == "few")
    # the small group alone is below the average
    named = (
        "Of the intersections of groups with at least 30 people, it serves none worse than the"
        " average; the lowest is “"
    )
    assert (named in " ".join(said(found))) == bool(among)
    titled = "Worst-served intersection of those with at least 30 people: “"
    assert (titled in opening_text(found, 0)) == bool(among)


def test_the_worst_client_of_each_seed_is_told_where_it_is_not_always_the_same():
    found = comparison(("fedavg",), data=federation(3, names=NAMES), seeds=2)
    for run, tables in zip(found.runs, (SERVED, SERVED[[1, 0, 2]]), strict=True):
        run.trace.tables[:, 2] = tables[:, None]
    worst = final_values(found, client_split(found))["fedavg"][0]["worst10"]
    assert worst == pytest.approx(100 * 25 / 60)
    sentence = (
        " Other seeds have another worst client; the worst client of each seed is right for 41.7 %"
        " on average (worst 10 %)."
    )
    assert said(found)[1].endswith(sentence)
    for run in found.runs:
        run.trace.tables[:, 2] = SERVED[:, None]
    assert sentence not in " ".join(said(found))


def test_a_hidden_client_is_never_named_and_its_labels_cannot_be_found_by_subtraction():
    small = SERVED.copy()
    small[1] = [[0, 3], [3, 0]]  # the worst served has six people
    page = lambda least: str(opening_text(counted(small), least))  # noqa: E731
    assert "Old Town" in page(0)
    assert "Old Town" not in page(10)
    # Everybody less North are the hidden clients, of whose people nine have the label "yes": so
    # North's rates are not shown either.
    few = SERVED.copy()
    few[1], few[2] = [[0, 3], [3, 0]], [[6, 1], [5, 1]]
    assert whom(counted(few), 10).client is None
    assert whom(counted(few), 10).trivial is not None
    assert np.isnan(client_rates(counted(few), "fedavg", "test", (1, 2), 10)).all()


def test_a_label_of_few_people_is_not_told_by_the_trivial_models_score():
    rare = SERVED.copy()
    rare[:, 1] = [[1, 2], [2, 1], [1, 1]]  # eight people have the label "yes"
    assert (whom(counted(rare), 10).trivial, whom(counted(rare), 10).favourable) == (None, "")
    assert whom(counted(rare), 8).trivial is not None


def opening_text(found: Comparison, least: int) -> str:
    values = final_values(found, client_split(found))
    return opening(found, values, choose_focus(found, values, least))


def test_rates_of_clients_that_would_tell_few_peoples_labels_are_hidden_together():
    few = SERVED.copy()
    few[0] = [[85, 0], [5, 0]]  # five of North's people have the label "yes"
    found = client_rates(counted(few), "fedavg", "test", least=10)
    assert np.isnan(found.tpr[0])
    assert np.isnan(found.fpr[0])  # its accuracy and this rate would tell the other
    assert np.isnan(found.tpr).sum() > 1  # everybody's less the others' would tell it, too


def test_a_hidden_group_is_never_named():
    found = with_groups(comparison(seeds=1, data=federation(6)))
    shown = str(opening_text(found, 40))
    rare = [
        name
        for name, n in zip(
            found.federation.groups, found.runs[0].trace.tables[-1, 2].sum((0, 2, 3)), strict=True
        )
        if n < 40
    ]
    assert rare
    assert not [name for name in rare if name in shown]


def test_the_worst_of_what_is_shown_is_called_so_where_others_are_hidden():
    """The accuracy of a large group is hidden, too, where few of its people have one label."""
    found = with_groups(comparison(("fedavg",), seeds=1, data=federation(30)))
    # true labels by prediction of each intersection, as women and men: the last race has six and
    # eight people with the label "yes"
    tables = found.runs[0].trace.tables[:, 2]
    tables[:] = 0
    tables[:, 0, :3] = [[[30, 10], [20, 20]], [[70, 20], [20, 40]], [[20, 10], [4, 2]]]
    tables[:, 0, 3:] = [[[30, 10], [10, 30]], [[80, 10], [20, 40]], [[25, 5], [3, 5]]]
    for least, group, intersection in ((0, "", ""), (10, "", SHOWN)):
        made = whom(found, least)
        assert made.group is not None
        assert made.intersection is not None
        assert (made.group.among, made.intersection.among) == (group, intersection)
    text = opening_text(found, 10)
    assert "Of the intersections of groups that are shown, it serves" in text
    assert "Worst-served intersection of those shown: “sex=" in text
    assert "Worst-served group: " in text


def test_the_page_has_the_figures_in_a_table_and_then_what_the_methods_change():
    text = opening_text(counted(np.stack([SERVED, SERVED]), labels=("fedavg", "afl")), 0)
    assert (
        text.index("not clearly better")
        < text.index("Worst-served client: “Old Town”")
        < text.index("What the methods change")
    )
    assert text.index("What the methods change") < text.index("Compared with fedavg, afl")
    assert "True positive rate" in text
    assert "A trivial model: always “no”" in text


def test_with_more_than_two_labels_there_are_no_positive_rates():
    found = counted(SERVED)
    three = [
        run._replace(
            trace=run.trace._replace(tables=np.pad(run.trace.tables, [(0, 0)] * 4 + [(0, 1)] * 2))
        )
        for run in found.runs
    ]
    found = found._replace(
        runs=three, federation=replace(found.federation, labels=("no", "yes", "maybe"))
    )
    assert whom(found).favourable == ""
    assert "True positive rate" not in opening_text(found, 0)


def test_the_terminal_opens_with_the_same_sentences():
    assert str(opening_of(counted(SERVED))[0]) == " ".join(said(counted(SERVED)))


def deployed(*, tables: bool) -> Comparison:
    """A deployment after its first round; clients tell tables of their test rows, or only how many
    are right.
    """
    clients = len(SERVED)
    rows, correct = np.zeros((clients, 3), np.int64), np.full((clients, 3), UNKNOWN, np.int64)
    sent = np.zeros((clients, 3, 1, 2, 2) if tables else (clients, 3, 0, 0, 0), np.int32)
    rows[:, 2] = SERVED.sum((1, 2))
    if tables:
        sent[:, 2, 0] = SERVED
    else:
        correct[:, 2] = np.trace(SERVED, axis1=1, axis2=2)
    losses, choice = np.full((clients, 3), np.nan, np.float32), np.full(clients, UNKNOWN, np.int32)
    seen = Evaluation(np.arange(clients), rows, correct, losses, sent, choice)
    done = Round(
        1,
        np.arange(clients),
        np.full(clients, 1 / 3, np.float32),
        np.full(clients, 100),
        evaluation=seen,
    )
    plan = Deployment(
        name="hospitals",
        method="fedavg",
        algorithm="fedavg",
        settings={},
        seeds={"cohort": 0},
        arrays=[],
    )
    return comparison_of(
        plan, DeploymentFacts(NAMES, labels=("no", "yes") if tables else ()), [done], Incidents()
    )


def test_a_deployments_report_opens_the_same_way():
    first, second = said(deployed(tables=True))
    # nobody told labels of training rows
    assert "always predicting “no”, the most frequent label, for 66.0 %" in first
    assert second.startswith(
        "Of the clients, it serves “Old Town” worst: right for 41.7 % of 60 rows"
    )


def test_of_clients_that_tell_only_an_accuracy_no_labels_are_made_up():
    made = whom(deployed(tables=False))
    assert (made.trivial, made.favourable) == (None, "")
    assert said(deployed(tables=False))[0] == "fedavg is right for 69.0 % of 200 rows."


def audited(**options: Any) -> "evenly.Audit":
    rows = [
        (name, t, p)
        for name, own in zip(NAMES, SERVED, strict=True)
        for t in (0, 1)
        for p in (0, 1)
        for _ in range(own[t, p])
    ]
    frame = pd.DataFrame(rows, columns=["hospital", "y", "p"]).replace(
        {"y": {0: "no", 1: "yes"}, "p": {0: "no", 1: "yes"}}
    )
    return evenly.audit(
        frame, label="y", prediction="p", client="hospital", favourable="yes", **options
    )


def test_an_audit_opens_the_same_way(tmp_path):
    first, second, *_ = audited().sentences
    assert first.startswith(
        "The model is not clearly better than a trivial model: it is right for 69.0 % of 200 people"
    )
    assert (
        second
        == "Of the clients, it serves hospital “Old Town” worst: right for 41.7 % of 60 people,"
        " 27.3 points below the average."
    )
    page = audited().report(tmp_path / "page.html").read_text()
    assert "<h1>table: whom does the model serve worst?</h1>" in page
    assert re.search(r"Worst-served client: hospital “Old Town”.*?20\.0.*?42\.9", page, re.DOTALL)
    assert audited().json()["trivial"] == {"label": "no", "accuracy": 66.0}


def test_an_audit_shows_no_score_of_a_trivial_model_that_would_tell_of_few_people():
    rows = pd.DataFrame({"hospital": ["a", "b"] * 100, "y": ["no"] * 195 + ["yes"] * 5, "p": "no"})
    found = evenly.audit(rows, label="y", prediction="p", client="hospital", min_cell=10)
    assert found.trivial is None
    assert "always predicting" not in found.sentences[0]
    assert (
        evenly.audit(rows, label="y", prediction="p", client="hospital", min_cell=2).trivial
        is not None
    )


def test_people_are_counted_in_the_table_as_in_the_sentences():
    """Over seeds, a group had 142.3 people on average in the one, and 142 in the other."""
    part = ServedPart("b", 142 + 1 / 3, 60.0, average=70.0)
    made = Whom("m", ServedPart("", 406, 70.0), None, group=part, unit="people")
    assert "60.0 % of 142 people" in sentences(made)[1]
    assert ">142<" in whom_table(made)


def test_words_for_one_part_say_above_and_alike_too():
    trivial = Trivial("no", True, 60.0)
    made = Whom(
        "m",
        ServedPart("", 100, 70.0),
        trivial,
        client=ServedPart("a", 50, 70.0, average=70.0),
        group=ServedPart("b", 50, 75.0, 70.0, 80.0, average=70.0),
    )
    assert sentences(made)[1:] == [
        "Of the clients, it serves a worst: right for 70.0 % of 50 rows, as on average.",
        (
            "Of the groups, it serves none worse than the average; the lowest is b: right for"
            " 75.0 % of 50 rows, 5.0 points above it."
        ),
    ]


def test_a_deployment_says_at_the_top_who_is_missing_in_its_figures():
    found = counted(SERVED[None])
    last = int(found.runs[0].trace.rounds[-1])
    told = Incidents(
        (
            Exclusion(11, 1, last, "refused by its policy", phase="evaluate"),
            Exclusion(10, 0, last - 1, "did not answer in time", phase="evaluate"),
            Exclusion(77, UNKNOWN, 0, "refused by its policy", phase="census"),
        ),
        asked=4,
    )
    silent, stranger = absence(found._replace(incidents=told))
    assert silent == (
        "1 of 3 clients did not answer the last evaluation: 'Old Town'. The figures are without"
        " them, or hold an earlier answer."
    )
    assert stranger == (
        "1 node is not in this federation at all, because the census of the first round was refused"
        " or could not be used. “Who was left out” in the report says why."
    )
    shown = found._replace(incidents=told)
    focus = choose_focus(shown, final_values(shown, client_split(shown)))
    page = str(opening(shown, final_values(shown, client_split(shown)), focus))
    assert "did not answer the last evaluation" in page
    assert page.index("did not answer the last evaluation") < page.index("<table")
    assert absence(shown, hidden={1})[0].startswith(
        "1 of 3 clients did not answer the last evaluation."
    )
    assert absence(found) == [], "a simulation has nobody who is missing"
    section = str(left_out_section(shown, focus))
    assert "This affects 2 of 3 clients and 1 node that never became one." in section
