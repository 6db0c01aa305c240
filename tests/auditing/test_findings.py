"""The sentences of an audit on audits that are put together by hand: each on both sides of what
decides it.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from evenly.auditing.estimates import NOTHING, Estimate
from evenly.auditing.findings import (
    _sentence,
    cautions,
    findings,
    interval_words,
    percent,
    points,
    protection_words,
    whom_of,
)
from evenly.auditing.significance import RATE_OF, GroupGap
from evenly.auditing.views import ClientGaps, GroupView
from evenly.report.opening import NOTABLE_NOISE
from evenly.report.worst_served import CHANCE, LARGE, SHOWN, Trivial
from tests.auditing.made import audit, client_view, group_view, rate

LOW = Estimate(-0.2, -0.3, -0.1, 100)
AUC = rate(0.7, half=0.1)
INTERVAL = "(95 % interval −30.0 to −10.0)"


def said(sentences: list[str], *words: str) -> bool:
    return any(all(word in sentence for word in words) for sentence in sentences)


def test_numbers_are_written_with_their_intervals_where_there_are_any():
    assert percent(Estimate(50.04, 40.0, 60.0, 9)) == "50.0 % (95 % interval 40.0 to 60.0)"
    assert percent(Estimate(50.0), " of all") == "50.0 % of all"
    assert points(Estimate(-0.1, -0.2, 0.0004)) == "95 % interval −20.0 to 0.0"
    assert points(Estimate(0.1, -0.0004, 0.25)) == "95 % interval 0.0 to +25.0"
    assert points(Estimate(0.1)) == "no interval"


@pytest.mark.parametrize("min_cell", [0, 1])
def test_nothing_is_protected_where_one_person_is_enough(min_cell: int):
    assert protection_words(min_cell) == "Nothing is hidden: a figure may rest on one person."


def test_what_is_protected_is_below_the_least():
    assert protection_words(2).startswith("Numbers of people from 1 to 1 are protected: ")


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        (None, "by resampling people, because there are no clients to resample"),
        (9, "by resampling people, because fewer than 10 clients are too few"),
        (10, "by resampling clients"),
    ],
)
def test_it_is_said_what_was_resampled(clients: int | None, words: str):
    view = None if clients is None else client_view([rate(80.0)] * clients)
    assert words in interval_words(audit(group_view(), clients=view))


# Whom the model serves worst


def test_the_worst_served_client_opens_the_page_with_its_rates():
    view = client_view([rate(80.0), rate(60.0, 40)], worst_rates={"tpr": 70.0, "fpr": 20.0})
    found = whom_of(
        audit(
            clients=view, whole={"accuracy": rate(75.0, 1000), "tpr": rate(65.0), "fpr": rate(25.0)}
        )
    )
    assert found.client is not None
    assert found.client[:3] == ("site “b”", 40, 60.0)
    assert (found.client.low, found.client.high, found.client.tpr, found.client.fpr) == (
        55,
        65,
        70,
        20,
    )
    assert (found.client.average, found.client.among) == (75, "")
    assert (found.whole.accuracy, found.whole.tpr, found.whole.fpr) == (75, 65, 25)
    assert (found.favourable, found.unit, found.measured) == (
        "1",
        "people",
        "All 1,000 rows of people.csv.",
    )


def test_rates_that_are_not_told_are_not_known():
    found = whom_of(audit(clients=client_view([rate(80.0), rate(60.0)]), favourable=None))
    assert found.client is not None
    assert np.isnan([found.client.tpr, found.client.fpr, found.whole.tpr, found.whole.fpr]).all()
    assert found.favourable == ""


def test_a_worst_group_that_passes_over_a_small_one_is_said_to_be_of_the_large_ones():
    view = group_view(("a", "b", "c"), accuracy=(rate(60.0, 29), rate(80.0, 30), rate(85.0, 40)))
    found = whom_of(audit(view)).group
    assert found is not None
    assert (found.name, found.among) == ("sex “b”", LARGE)


def test_one_client_that_is_shown_is_not_the_worst_of_any():
    assert whom_of(audit(clients=client_view([rate(80.0), rate(60.0)], gone=[1]))).client is None
    three = whom_of(
        audit(clients=client_view([rate(80.0), rate(60.0), rate(70.0)], gone=[1]))
    ).client
    assert three is not None
    assert (three.name, three.among) == ("site “c”", SHOWN)


@pytest.mark.parametrize(("clients", "named"), [(10_000, True), (10_001, False)])
def test_a_client_is_named_only_where_clients_are_listed(clients: int, named: bool):
    view = client_view([rate(80.0)] * clients)
    assert (whom_of(audit(clients=view)).client is not None) == named
    assert (
        said(cautions(audit(clients=view)), "There are 10,001 clients, more than 10,000") != named
    )


@pytest.mark.parametrize(("people", "worst"), [(29, "m"), (30, "f")])
def test_groups_of_few_people_are_named_last(people: int, worst: str):
    found = whom_of(audit(group_view(accuracy=(rate(40.0, people), rate(70.0))))).group
    assert found is not None
    assert found.name == f"sex “{worst}”"


def test_the_worst_group_is_of_those_with_a_value_and_a_figure():
    view = group_view(
        ("f", "m", "x", "(missing)"), accuracy=(rate(81.0), rate(80.0), NOTHING, rate(20.0))
    )
    rates = dict(
        view.rates,
        tpr=(rate(11.0), rate(12.0), NOTHING, NOTHING),
        fpr=(rate(21.0), rate(22.0), NOTHING, NOTHING),
    )
    found = whom_of(audit(view._replace(rates=rates))).group
    assert found is not None
    assert (found.name, found.tpr, found.fpr, found.among, found.average) == (
        "sex “m”",
        12,
        22,
        "",
        80,
    )
    assert (
        whom_of(
            audit(group_view(("f", "m", "(missing)"), accuracy=(rate(81.0), NOTHING, rate(20.0))))
        ).group
        is None
    )


def test_the_worst_of_several_columns_is_said_to_be_of_what_is_shown_if_a_group_is_hidden():
    race = group_view(
        ("A", "B", "C"), title="race", gone=[2], accuracy=(rate(79.0), rate(90.0), NOTHING)
    )
    crossed = group_view(
        ("sex=f, race=A", "sex=m, race=A"), accuracy=(rate(75.0), rate(85.0)), unprivileged=None
    )
    found = whom_of(audit(group_view(), race, intersections=crossed))
    assert found.group is not None
    assert found.intersection is not None
    assert (found.group.name, found.group.among) == ("race “A”", SHOWN)
    assert (found.intersection.name, found.intersection.among) == ("“sex=f, race=A”", "")


def test_an_accuracy_that_is_hidden_for_its_labels_is_not_forgotten():
    crossed = group_view(
        ("sex=f, race=A", "sex=m, race=A", "sex=m, race=B"),
        accuracy=(rate(75.0), rate(85.0), NOTHING),
        partly=[2],
        unprivileged=None,
    )
    found = whom_of(audit(group_view(), intersections=crossed)).intersection
    assert found is not None
    assert found.among == SHOWN


# What is found


@pytest.mark.parametrize(("clients", "told"), [(19, False), (20, True)])
def test_a_tenth_of_clients_is_told_where_it_is_more_than_one(clients: int, told: bool):
    ends = {"worst10": rate(60.0), "best10": rate(95.0)}
    sentence = (
        "For the tenth of clients that it serves worst (2 of 20, column site) it is right for 60.0"
        " % (95 % interval 55.0 to 65.0) on average; for the tenth that it serves best, for 95.0 %."
    )
    assert (
        sentence in findings(audit(clients=client_view([rate(80.0)] * clients, summary=ends)))
    ) == told


@pytest.mark.parametrize("missing", ["worst10", "best10"])
def test_a_tenth_that_is_hidden_is_not_compared(missing: str):
    ends = {name: rate(60.0) for name in ("worst10", "best10") if name != missing}
    assert not said(
        findings(audit(clients=client_view([rate(80.0)] * 20, summary=ends))), "For the tenth"
    )


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (Estimate(0.794), "; that is 0.79 of their rate, below four fifths"),
        (Estimate(0.8), ""),
        (Estimate(0.9), ""),
        (NOTHING, ""),
    ],
)
def test_a_ratio_below_four_fifths_is_told(ratio: Estimate, told: str):
    view = group_view(gaps={"spd": LOW, "eod": Estimate(0.1, 0.05, 0.15), "impact_ratio": ratio})
    assert findings(audit(view))[-2:] == [
        (
            "People with sex “f” are predicted “1” 20.0 points less often than all others"
            f" {INTERVAL}{told}."
        ),
        (
            "Of those labelled “1”, people with sex “f” are predicted so 10.0 points more often"
            " than all others (95 % interval +5.0 to +15.0)."
        ),
    ]


def test_a_gap_that_is_not_known_is_not_told():
    assert not said(findings(audit(group_view(gaps={"spd": LOW}))), "Of those labelled")
    silent = "No comparison by sex is possible, because one side has too few people."
    assert findings(audit(group_view(gaps={"eod": LOW})))[-1] == silent
    assert findings(audit(group_view(has_favourable=False), favourable=None))[-1] == silent
    found = findings(
        audit(group_view(has_favourable=False, gaps={"acc_diff": LOW}), favourable=None)
    )
    assert (
        found[-1]
        == "The model is right for people with sex “f” 20.0 points less often than all others"
        f" {INTERVAL}."
    )


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (Estimate(0.0004, -0.1, 0.1), "as often as all others (95 % interval −10.0 to +10.0)."),
        (Estimate(-0.0004), "as often as all others (no interval)."),
        (Estimate(5e-4), "0.1 points more often than all others (no interval)."),
        (
            Estimate(0.1, 0.0, 0.2),
            f"10.0 points more often than all others (95 % interval 0.0 to +20.0){CHANCE}.",
        ),
        (
            Estimate(-0.1, -0.2, 0.0),
            f"10.0 points less often than all others (95 % interval −20.0 to 0.0){CHANCE}.",
        ),
        (
            Estimate(0.1, 0.01, 0.2),
            "10.0 points more often than all others (95 % interval +1.0 to +20.0).",
        ),
        (
            Estimate(-0.1, -0.2, -0.01),
            "10.0 points less often than all others (95 % interval −20.0 to −1.0).",
        ),
    ],
)
def test_words_on_a_gap_go_no_further_than_its_interval(gap: Estimate, words: str):
    assert (
        findings(audit(group_view(gaps={"spd": gap})))[-1]
        == f"People with sex “f” are predicted “1” {words}"
    )


# The largest difference where the user named no value


def every_value(**gaps: Sequence[Estimate]) -> GroupView:
    """A column with the values A, B and C, of which A has the lowest selection rate."""
    view = group_view(("A", "B", "C"), title="race", by_default=True)
    return view._replace(
        against=view.against | {metric: tuple(values) for metric, values in gaps.items()}
    )


SURE, UNSURE = Estimate(-0.27, -0.36, -0.18, 90), Estimate(-0.05, -0.12, 0.03, 90)


def test_the_largest_significant_difference_is_named_whichever_value_and_rate_it_is_of():
    view = every_value(
        spd=(UNSURE, Estimate(-0.04, -0.09, 0.01), Estimate(0.1, 0.06, 0.14)),
        eod=(NOTHING, SURE, Estimate(0.18, 0.1, 0.27)),
        fpr_diff=(NOTHING, Estimate(0.3, -0.1, 0.7), Estimate(0.02, -0.05, 0.09)),
    )
    assert findings(audit(view))[-2:] == [
        (
            "Of those labelled “1”, people with race “B” are predicted so 27.0 points less often"
            " than all others (95 % interval −36.0 to −18.0). This is the largest difference by"
            " race that is statistically significant after Holm's correction for 7 comparisons."
        ),
        (
            "People with race “C” are predicted “1” 10.0 points more often than all others (95 %"
            " interval +6.0 to +14.0). This is also statistically significant."
        ),
    ]


def test_false_positive_rates_are_compared_as_well():
    view = every_value(spd=(UNSURE,) * 3, fpr_diff=(UNSURE, Estimate(0.2, 0.1, 0.3), UNSURE))
    assert said(
        findings(audit(view)),
        "Of those labelled otherwise, people with race “B” are predicted “1” 20.0 points more",
    )


def test_the_correction_counts_every_comparison_of_the_audit():
    barely = Estimate(-0.1, -0.19, -0.01)  # p = 0.03
    alone = every_value(spd=(barely, NOTHING, NOTHING))
    assert said(findings(audit(alone)), "significant after Holm's correction for 1 comparison.")
    several = audit(every_value(spd=(barely, UNSURE, UNSURE)))
    assert findings(several)[-1] == (
        "No value of race differs significantly from all others in selection rate after Holm's"
        " correction for 3 comparisons. The largest difference: people with race “A” are predicted"
        " “1” 10.0 points less often than all others (95 % interval −19.0 to −1.0)."
    )
    sex = group_view(by_default=True, gaps={"spd": UNSURE})
    assert said(findings(audit(alone, sex)), "No value of race", "for 2 comparisons.")
    asked = sex._replace(by_default=False)
    assert said(findings(audit(alone, asked)), "by race that is statistically significant")


def test_two_values_are_the_two_sides_of_one_comparison():
    view = group_view(by_default=True)
    mirrored = SURE._replace(value=0.27, low=0.18, high=0.36)
    view = view._replace(against=view.against | {"spd": (mirrored, SURE)})
    assert said(findings(audit(view)), "People with sex “m” are", "less", "for 1 comparison.")
    missing = group_view(("f", "m", "(missing)"), by_default=True)
    missing = missing._replace(against=missing.against | {"spd": (mirrored, SURE, SURE)})
    assert said(findings(audit(missing)), "People with sex “m” are", "for 1 comparison.")


def test_without_a_favourable_label_accuracies_are_compared():
    view = group_view(("A", "B", "C"), title="race", by_default=True, has_favourable=False)
    view = view._replace(against={"acc_diff": (UNSURE, SURE, UNSURE)})
    assert said(
        findings(audit(view, favourable=None)),
        "The model is right for people with race “B” 27.0 points less often than all others",
        "for 3 comparisons.",
    )
    assert findings(audit(group_view(by_default=True)))[-1].startswith("No comparison by sex is")


def test_a_low_ratio_of_selection_rates_is_told_though_no_difference_is_significant():
    low = (Estimate(0.77, 0.5, 1.1), Estimate(0.9), Estimate(1.2))
    view = every_value(spd=(UNSURE,) * 3, impact_ratio=low)
    assert findings(audit(view))[-1] == (
        "The selection rate of people with race “A” is 0.77 of that of all others (95 % interval"
        " 0.50 to 1.10), below four fifths."
    )
    even = every_value(spd=(UNSURE,) * 3, impact_ratio=(Estimate(0.8),) * 3)
    assert not said(findings(audit(even)), "four fifths")
    told = every_value(spd=(SURE, UNSURE, UNSURE), impact_ratio=low)
    assert said(findings(audit(told)), "; that is 0.77 of their rate, below four fifths. This is")
    assert not said(findings(audit(told)), "The selection rate of")


def client_gaps(*spd: Estimate) -> ClientGaps:
    return ClientGaps(spd, spd, Estimate(-0.05, -0.08, -0.02, 90))


def test_the_gap_within_clients_is_told_of_two_or_more():
    below, touches, unsure, unknown = LOW, Estimate(-0.2, -0.3, 0.0), Estimate(-0.2), NOTHING
    start = (
        "Within the {} clients with enough people of both kinds, people with sex “f” are predicted"
        " “1” 5.0 points less often on average (95 % interval −8.0 to −2.0)"
    )
    for gaps, words in {
        (
            below,
            touches,
            unsure,
            unknown,
        ): f"{start.format(3)}; in 1 of them the whole interval lies below 0.",
        (touches, unsure): f"{start.format(2)}.",
    }.items():
        assert words in findings(
            audit(group_view(gaps={"spd": LOW}, client_gaps=client_gaps(*gaps)))
        )
    for gaps in ((below, unknown), ()):
        assert not said(
            findings(audit(group_view(gaps={"spd": LOW}, client_gaps=client_gaps(*gaps)))),
            "Within the",
        )


def test_intersections_have_extremes_where_there_are_two():
    names = ("sex=f, race=A", "sex=f, race=B", "sex=m, race=A")
    rates = {
        "selection_rate": (rate(60.0), rate(20.0), rate(40.0)),
        "accuracy": (rate(70.0), NOTHING, rate(90.0)),
    }
    crossed = group_view(names, rates=rates, unprivileged=None)
    assert (
        findings(audit(intersections=crossed))[-1]
        == "“1” is predicted for 20.0 % of “sex=f, race=B” and for 60.0 % of “sex=f, race=A”, the"
        " extremes of 3 intersections."
    )
    assert (
        findings(audit(intersections=crossed, favourable=None))[-1]
        == "The model is right for 70.0 % of “sex=f, race=A” and for 90.0 % of “sex=m, race=A”, the"
        " extremes of the 2 intersections that are shown."
    )
    one = crossed._replace(rates={**rates, "selection_rate": (rate(60.0), NOTHING, NOTHING)})
    assert not said(findings(audit(intersections=one)), "extremes")


# Scores


def summarise_scores(*bias: float, auc: Estimate = AUC) -> list[str]:
    """What is said of scores whose means are off by so much, group by group."""
    view = group_view(
        [f"g{i}" for i in range(len(bias))], scores={"bias": tuple(map(Estimate, bias))}
    )
    whole = {"accuracy": rate(80.0), "auc": auc, "ece": Estimate(0.05)}
    return [sentence for sentence in findings(audit(view, whole=whole)) if "score" in sentence]


def test_the_auc_is_told_where_it_is_known():
    assert summarise_scores(0.0) == [
        "The score's AUC is 0.700 (95 % interval 0.600 to 0.800), its calibration error 0.050."
    ]
    assert summarise_scores(0.0, auc=Estimate(0.7)) == [
        "The score's AUC is 0.700, its calibration error 0.050."
    ]
    assert summarise_scores(0.0, auc=NOTHING) == []
    assert not said(findings(audit(group_view())), "score")


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        (
            (0.01, 0.02, -0.0199),
            "For sex “g1” scores are 2.0 points too high on average (no interval).",
        ),
        (
            (0.03, -0.05, 0.04),
            "For sex “g1” scores are 5.0 points too low on average (no interval).",
        ),
        (
            (float("nan"), 0.03),
            "For sex “g1” scores are 3.0 points too high on average (no interval).",
        ),
        ((0.0199, -0.01), None),
        ((float("nan"), float("nan")), None),
    ],
)
def test_scores_that_are_clearly_off_are_told_of_the_group_where_they_are_so_most(
    bias: tuple[float, ...], words: str | None
):
    assert summarise_scores(*bias)[1:] == ([] if words is None else [words])


def test_scores_that_chance_could_explain_are_said_to_be_so():
    for half, chance in ((0.02, ""), (0.06, CHANCE)):
        bias = (Estimate(0.05, 0.05 - half, 0.05 + half), Estimate(0.0))
        view = group_view(("a", "b"), scores={"bias": bias})
        whole = {"accuracy": rate(80.0), "auc": AUC, "ece": Estimate(0.05)}
        told = [text for text in findings(audit(view, whole=whole)) if "too high" in text]
        assert [text.partition(")")[2] for text in told] == [f"{chance}."]


# What to bear in mind


@pytest.mark.parametrize(("clients", "told"), [(1, False), (2, True), (9, True), (10, False)])
def test_a_tenth_of_few_clients_is_one_client(clients: int, told: bool):
    words = f"With only {clients} clients, the worst and the best tenth are one client each."
    assert (words in cautions(audit(clients=client_view([rate(80.0)] * clients)))) == told


def test_a_tenth_of_few_clients_that_are_shown_is_one_of_these():
    shown = cautions(
        audit(clients=client_view([rate(80.0)] * 9, gone=[0, 1], clients_in_summary=7))
    )
    assert said(shown, "With only 7 clients that are shown, the worst and the best tenth are")


@pytest.mark.parametrize(
    ("few", "words"),
    [
        (0, None),
        (1, "1 of 10 clients has fewer than 30 rows, so its accuracy varies strongly"),
        (3, "3 of 10 clients have fewer than 30 rows, so their accuracies vary strongly"),
    ],
)
def test_clients_with_few_rows_are_counted(few: int, words: str | None):
    found = cautions(audit(clients=client_view([rate(80.0)] * 10, few=few)))
    assert said(found, words) if words else not said(found, "fewer than 30 rows")


@pytest.mark.parametrize(
    ("clients", "total", "noise", "part"),
    [
        (10, 8.0, 8.0 * NOTABLE_NOISE, f"about {100 * NOTABLE_NOISE:.0f} %"),
        (10, 8.0, 8.0 * NOTABLE_NOISE - 0.01, None),
        (2, 8.0, 8.0, "all"),
        (10, 8.0, 7.2, "about 90 %"),
        (10, 0.9, 0.9, "all"),
        (10, 0.0, 0.1, None),
        (1, 8.0, 8.0, None),
        (10, np.nan, 8.0, None),
        (10, 8.0, np.nan, None),
    ],
)
def test_a_variance_that_few_rows_explain_is_told(
    clients: int, total: float, noise: float, part: str | None
):
    figures = {"variance": Estimate(total), "variance_noise": Estimate(noise)}
    found = cautions(audit(clients=client_view([rate(80.0)] * clients, summary=figures)))
    chance = "would occur by chance with this number of rows even if all were served equally."
    words = f"Of the variance between clients, {total:.1f} %², {part} {chance}"
    assert (words in found) == (part is not None)
    assert said(found, "Of the variance") == (part is not None)


def test_rates_of_few_people_are_counted_over_all_views():
    few, enough, unknown = rate(80.0, 29), rate(80.0, 30), NOTHING
    one, none = (
        group_view(accuracy=(first, enough, unknown), names="abc", has_favourable=False)
        for first in (few, enough)
    )
    assert (
        "1 rate of a group rests on fewer than 30 people and can vary strongly by chance."
        in cautions(audit(one, none))
    )
    assert (
        "2 rates of groups rest on fewer than 30 people and can vary strongly by chance."
        in cautions(audit(one, intersections=one))
    )
    assert not said(cautions(audit(none, intersections=none)), "fewer than 30")


def test_the_number_of_comparisons_is_told_where_no_value_was_named():
    sex = group_view(by_default=True, gaps={"spd": LOW})
    race = group_view(("A", "B"), title="race", by_default=True, gaps={"spd": LOW, "eod": LOW})
    start = "No unprivileged value is named for"
    assert said(cautions(audit(sex)), f"{start} sex, so every rate", ": 1 comparison. A difference")
    assert said(cautions(audit(sex, race)), f"{start} sex and race, so", ": 3 comparisons.")
    asked = race._replace(by_default=False)
    assert said(cautions(audit(sex, asked)), f"{start} sex, so", ": 1 comparison.")
    assert not said(cautions(audit(asked)), start)
    assert not said(cautions(audit(group_view(by_default=True))), start)  # nothing is shown


def test_what_is_hidden_is_counted():
    sex = group_view(("f", "m", "x"), gone=[0, 1], partly=[2])
    crossed = group_view(("a", "b"), partly=[0, 1], unprivileged=None)
    merge = "To see more, merge small groups into larger ones."
    assert cautions(audit(group_view())) == []
    assert cautions(audit(sex)) == [
        "2 groups are not shown: 2 rest on fewer than 10 people. Of 1 more group, rates that rest"
        " on fewer than 10 people with one label are hidden, and so is accuracy, which could reveal"
        f" their number. {merge}"
    ]
    assert said(cautions(audit(sex, intersections=crossed)), "Of 3 more groups, rates that rest on")
    assert cautions(audit(group_view(gone=[0, 1]))) == [
        f"2 groups are not shown: 2 rest on fewer than 10 people. {merge}"
    ]
    clients = client_view([rate(80.0)] * 12, gone=[0])
    assert cautions(audit(clients=clients)) == [
        "1 client is not shown: 1 rests on fewer than 10 people."
    ]


def test_the_record_has_the_trivial_model_where_it_may_be_told():
    assert audit(group_view()).json()["trivial"] is None
    assert audit(group_view(), trivial=Trivial("1", False, 60.0)).json()["trivial"] == {
        "label": "1",
        "accuracy": 60.0,
    }


@pytest.mark.parametrize("metric", RATE_OF)
def test_every_rate_that_is_tested_has_a_sentence(metric: str):
    """A rate that is added to `significance` alone would end an audit with a KeyError."""
    gap = GroupGap("sex", 0, metric, LOW)
    assert "“" in _sentence(group_view(), gap, "hired")
