"""What the page of an audit shows of audits that are put together by hand: which rows, marks and
words, and where they end.
"""

import html
import re

import numpy as np
import pytest

from evenly.auditing.estimates import BINS, NOTHING, THRESHOLDS, Curves, Estimate
from evenly.auditing.page import render
from evenly.auditing.page_sections import (
    PagePart,
    client_section,
    fraction_entry,
    group_section,
    rate_entry,
)
from evenly.auditing.result import Audit
from evenly.auditing.score_section import score_section
from evenly.auditing.views import ClientGaps
from evenly.report.method_table import HIDDEN
from evenly.report.worst_served import Trivial
from tests.auditing import made
from tests.auditing.made import audit, client_view, group_view

GAP, OTHER = Estimate(-0.25, -0.35, -0.15, 90), Estimate(0.125, 0.1, 0.15, 90)


def text(markup: str) -> str:
    """What can be read of it, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def lines(markup: str, caption: str) -> list[list[str]]:
    """The cells of the table whose caption begins so, line by line, without its head."""
    table = next(
        table
        for table in re.findall(r"<table.*?</table>", markup, re.S)
        if text(table).startswith(caption)
    )
    return [
        [text(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.S)]
        for row in re.findall(r"<tr.*?</tr>", table, re.S)
    ][1:]


def head(markup: str, caption: str) -> list[str]:
    table = next(
        table
        for table in re.findall(r"<table.*?</table>", markup, re.S)
        if text(table).startswith(caption)
    )
    return [
        text(cell) for cell in re.findall(r"<th .*?</th>", table.partition("</thead>")[0], re.S)
    ]


def head_caption(markup: str, beginning: str) -> str:
    """The whole caption that begins so."""
    captions = map(text, re.findall(r"<caption>.*?</caption>", markup, re.S))
    return next(caption for caption in captions if caption.startswith(beginning))


def rows_of(part: PagePart, identifier: str) -> list[dict]:
    """The data of a chart's points."""
    spec = part.specs[identifier]
    return spec["datasets"][spec["layer"][1]["data"]["name"]]


def pair(view, value: Estimate, other: Estimate, name: str = "spd"):
    """The view with the gaps of its two groups."""
    return view._replace(against={**view.against, name: (value, other)})


# Single figures


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (rate_entry(Estimate(80.0, 75.0, 85.0, 30)), "80.0 75.0 to 85.0"),
        (rate_entry(Estimate(80.0, 75.0, 85.0, 29)), "80.0 * 75.0 to 85.0"),
        (rate_entry(Estimate(80.0, rows=30)), "80.0"),
        (rate_entry(NOTHING), "– undefined: there is nothing to divide by"),
        (rate_entry(NOTHING, hidden=True), f"– {HIDDEN}"),
        (fraction_entry(Estimate(-0.25, -0.5, -0.0001)), "−0.250 −0.500 to 0.000"),
        (fraction_entry(Estimate(0.75), digits=2), "0.75"),
        (fraction_entry(NOTHING), "– undefined: there is nothing to divide by"),
        (fraction_entry(NOTHING, hidden=True), f"– {HIDDEN}"),
    ],
)
def test_a_figure_is_shown_with_its_interval_or_a_reason(entry, shown: str):
    assert text(entry.content) == shown


# The whole page


def page(found: Audit) -> str:
    return text(render(found).partition("<main>")[2])


def test_tiles_show_the_gap_of_the_unprivileged_group_whichever_it_is():
    sex, race = (
        pair(group_view(unprivileged=1), OTHER, GAP),
        pair(group_view(("A", "B"), title="race"), OTHER, GAP),
    )
    clients = client_view(
        [made.rate(80.0)] * 3, summary={"worst10": made.rate(61.0)}, clients_in_summary=2
    )
    found = page(audit(sex, race, clients=clients))
    first, second, third = (
        "Worst-served tenth of clients 61.0 % 1 of 2 clients, column site",
        "Predicted “1” −25.0 points sex “m” minus all others",
        "Predicted “1” +12.5 points race “A” minus all others",
    )
    assert f"{first} {second} {third}" in found


def test_without_a_favourable_label_tiles_are_of_accuracy():
    view = pair(group_view(has_favourable=False, unprivileged=1), OTHER, GAP, "acc_diff")
    assert "Accuracy −25.0 points sex “m” minus all others" in page(audit(view, favourable=None))


def test_what_is_not_known_has_no_tile_and_without_any_there_are_none():
    clients = client_view([made.rate(80.0)] * 3)
    assert 'class="tiles"' not in render(audit(group_view(), clients=clients))
    assert 'class="tiles"' in render(audit(pair(group_view(), GAP, OTHER)))


def test_the_page_has_the_parts_that_there_is_something_to_say_of():
    nothing = render(audit(clients=client_view([made.rate(80.0)])))
    assert re.findall(r'<section id="(\w+)"', nothing) == ["clients", "about"]
    assert "<aside>" not in nothing
    assert '<ul class="words">' not in nothing
    nowhere, never = np.full((2, BINS), np.nan), np.full((2, THRESHOLDS), np.nan)
    curves = Curves(nowhere, nowhere, np.zeros((2, BINS), int), never, never)
    scores = dict.fromkeys(("auc", "ece", "bias"), (NOTHING, NOTHING))
    view = group_view(by_default=True, scores=scores, curves=curves)
    rates = dict.fromkeys(view.rates, made.rate(80.0))
    full = render(audit(view, whole=rates | dict.fromkeys(scores, NOTHING), notes=("A note.",)))
    assert re.findall(r'<section id="(\w+)"', full) == ["groups", "scores", "about"]
    assert text(full).count("A note.") == 1
    assert '<ul class="words">' in full
    assert '"chart-groups-0-accuracy"' in full  # the charts of every part are there


def test_the_opening_says_no_sentence_twice():
    found = audit(pair(group_view(), GAP, OTHER), trivial=Trivial("1", False, 60.0))
    for sentence in found.sentences:
        assert page(found).count(sentence.split(" (")[0]) == 1


@pytest.mark.parametrize(
    ("about", "shown"),
    [
        ({"min_cell": 1}, "Hidden nothing"),
        ({"min_cell": 2}, "Hidden figures on fewer than 2 people"),
        ({"favourable": None}, "Favourable label none named"),
        ({"favourable": "yes"}, "Favourable label yes"),
        (
            {"labels": tuple("abcdefghijkl")},
            "Labels 12: a, b, c, d, e, f, g, h, i, j, k, l Favourable",
        ),
        (
            {"labels": tuple("abcdefghijklm")},
            "Labels 13: a, b, c, d, e, f, g, h, i, j, k, l and 1 more Favourable",
        ),
        (
            {"columns": {"Label": "y", "Sensitive": "sex, race"}},
            "Label column y Sensitive columns sex, race Labels",
        ),
        ({"anonymous": True}, "Names of clients replaced by numbers, the largest client first"),
        ({"command": "evenly audit people.csv"}, "Command evenly audit people.csv"),
    ],
)
def test_the_page_says_what_was_audited(about: dict, shown: str):
    assert shown in page(audit(clients=client_view([made.rate(80.0)]), about=about))


def test_what_was_not_asked_for_is_not_mentioned():
    found = page(audit(clients=client_view([made.rate(80.0)])))
    assert "Names of clients" not in found
    assert "Command" not in found
    assert "Table people.csv Rows 1,000, one per person" in found


def test_formulas_are_of_the_metrics_on_the_page():
    view = pair(group_view(ranges={"spd_range": Estimate(0.3)}), GAP, OTHER)._replace(
        rates=dict.fromkeys(("accuracy", "selection_rate"), (made.rate(80.0),) * 2)
    )
    view = pair(view, Estimate(0.7), Estimate(1.4), "impact_ratio")
    clients = client_view([made.rate(80.0)] * 2, summary={"gini": Estimate(0.1)})
    whole = dict.fromkeys(("accuracy", "selection_rate"), made.rate(80.0))
    caption = "₀ is the group in question"
    names = [row[0] for row in lines(render(audit(view, clients=clients, whole=whole)), caption)]
    assert names == ["Accuracy", "Gini", "SPD", "Disparate impact", "Range of selection rate"]
    summarise_scores = clients._replace(
        scores=dict.fromkeys(("auc", "ece", "bias"), (NOTHING,) * 2)
    )
    with_scores = audit(
        clients=summarise_scores, whole=whole | dict.fromkeys(("auc", "ece", "bias"), Estimate(0.6))
    )
    names = [row[0] for row in lines(render(with_scores), caption)]
    assert names == [
        "Accuracy",
        "Gini",
        "AUC",
        "Calibration error",
        "Mean score less share favourable",
    ]


# Groups


def test_the_unprivileged_group_is_named_with_the_reason():
    first, second = group_view(by_default=True), group_view(unprivileged=1)
    found = text(group_section(audit(first, second)).html)
    assert "“f” is highlighted because it has the lowest selection rate." in found
    assert "“m” is compared with all others (as requested)." in found
    accuracy = audit(group_view(by_default=True, has_favourable=False), favourable=None)
    assert "it has the lowest accuracy." in text(group_section(accuracy).html)
    crossed = audit(
        first,
        intersections=group_view(("a", "b"), unprivileged=None, title="sex and race", against={}),
    )
    found = text(group_section(crossed).html)
    assert found.count("is highlighted") == 1
    assert "Intersections of sex and race" in found
    assert "“Predicted favourable” means predicted “1”." in found
    assert "means predicted" not in text(
        group_section(audit(group_view(has_favourable=False), favourable=None)).html
    )


def test_the_group_with_the_largest_significant_difference_is_highlighted():
    view = group_view(("A", "B", "C"), title="race", by_default=True)
    view = view._replace(
        against=view.against | {"eod": (NOTHING, Estimate(-0.3, -0.4, -0.2), NOTHING)}
    )
    part = group_section(audit(view))
    words = "“B” is highlighted: it has the largest statistically significant difference, in true"
    assert words in text(part.html)
    assert [row[0] for row in lines(part.html, "How every group is served.")] == ["A", "B ←", "C"]
    assert [row["method"] for row in rows_of(part, "chart-groups-0-tpr")] == [
        "others",
        "B",
        "others",
    ]
    assert "True positive rate −30.0 points race “B” minus all others" in page(audit(view))


def test_a_tile_says_that_its_difference_is_not_significant():
    view = group_view(by_default=True, gaps={"spd": Estimate(-0.01, -0.1, 0.1)})
    words = "Predicted “1” −1.0 points sex “f” minus all others, not statistically significant"
    assert words in page(audit(view))


def sized(groups: int):
    """A column of so many groups, each larger than the one before; the first has as many as the
    second.
    """
    people = [100, 100, *range(101, 99 + groups)]
    return group_view(
        [f"g{g:02}" for g in range(groups)],
        accuracy=[made.rate(80.0, n) for n in people],
        has_favourable=False,
    )


@pytest.mark.parametrize(("groups", "first"), [(20, "g00"), (21, "g00")])
def test_the_largest_twenty_groups_are_drawn(groups: int, first: str):
    part = group_section(audit(sized(groups), favourable=None))
    names = [row["name"] for row in rows_of(part, "chart-groups-0-accuracy")]
    assert (len(names), names[0], names[-1]) == (20, first, f"g{groups - 1}")
    assert ("g01" in names) == (groups == 20)  # of two that are as large, the first stays
    assert ("The 20 largest groups." in text(part.html)) == (groups > 20)


@pytest.mark.parametrize("groups", [60, 61])
def test_the_largest_sixty_groups_are_listed(groups: int):
    part = group_section(audit(sized(groups), favourable=None)).html
    found = lines(part, "How every group is served.")
    assert (len(found), found[0][0]) == (60, "g00 ←")
    assert ("The 60 largest of 61 groups; audit.csv has all." in text(part)) == (groups > 60)


def test_a_chart_needs_two_groups_with_a_figure():
    one, two = NOTHING, made.rate(70.0)
    rates = {
        "accuracy": (made.rate(80.0), two),
        "selection_rate": (made.rate(40.0), one),
        "tpr": (made.rate(30.0), two),
    }
    found = audit(group_view(rates=rates), whole=dict.fromkeys(rates, made.rate(75.0)))
    part = group_section(found)
    assert list(part.specs) == ["chart-groups-0-accuracy", "chart-groups-0-tpr"]
    assert "Predicted right, of all people of the group. The dashed line is everybody." in text(
        part.html
    )
    assert [row["method"] for row in rows_of(part, "chart-groups-0-tpr")] == ["f", "others"]
    assert [row["value"] for row in rows_of(part, "chart-groups-0-tpr")] == [30, 70]
    nothing = group_section(audit(group_view(rates={"accuracy": (made.rate(80.0), one)}))).html
    assert 'class="figures' not in nothing


def test_hidden_groups_are_listed_without_figures_and_not_drawn():
    view = group_view(
        ("f", "m", "x", "y"),
        gone=[1],
        accuracy=(made.rate(80.0), NOTHING, NOTHING, made.rate(60.0, 1200)),
        partly=[2],
    )
    view = view._replace(
        rows=np.array([100, 0, 50, 1200]), rates={"accuracy": view.rates["accuracy"]}
    )
    part = group_section(audit(view, whole={"accuracy": made.rate(80.0)}))
    why = f"– {HIDDEN}"
    found = lines(part.html, "How every group is served.")
    assert [row[:2] for row in found] == [
        ["f ←", "100"],
        ["m", "hidden"],
        ["x", "50"],
        ["y", "1,200"],
    ]
    assert [row[2] for row in found] == ["80.0 75.0 to 85.0", why, why, "60.0 55.0 to 65.0"]
    assert [row["name"] for row in rows_of(part, "chart-groups-0-accuracy")] == ["f", "y"]
    undefined = group_view(
        accuracy=(made.rate(80.0), Estimate(np.nan, rows=0)), has_favourable=False
    )
    assert (
        lines(group_section(audit(undefined)).html, "How every group")[1][2]
        == "– undefined: there is nothing to divide by"
    )


def test_an_arrow_marks_the_unprivileged_of_three_or_more():
    two, three = (
        lines(group_section(audit(group_view(names, unprivileged=1))).html, "How every")
        for names in ("ab", "abc")
    )
    assert [row[0] for row in two] == ["a", "b"]
    assert [row[0] for row in three] == ["a", "b ←", "c"]


def test_gaps_are_listed_of_groups_that_have_one():
    view = pair(group_view(), Estimate(0.7512, 0.5, 0.9), NOTHING, "impact_ratio")
    part = group_section(audit(pair(view, GAP, NOTHING))).html
    found = lines(part, "Every group minus all others")
    unknown = f"– {HIDDEN}"
    assert found == [["f", "−0.250 −0.350 to −0.150", *[unknown] * 4, "0.75 0.50 to 0.90", unknown]]
    names = head(part, "Every group minus all others")
    assert names[1] == "SPD closer to 0 is fairer"
    assert names[-2:] == [
        "Disparate impact ratio; 1 is even",
        "FPR difference closer to 0 is fairer",
    ]
    words = "No group can be compared with all others, because one side always has too few people."
    assert words in text(group_section(audit(group_view())).html)
    assert words not in text(part)
    assert words not in text(
        group_section(audit(intersections=group_view(unprivileged=None, against={}))).html
    )


def test_ranges_are_of_groups_that_are_shown_and_have_a_value():
    ranges = {
        "acc_range": Estimate(0.3, 0.2, 0.4),
        "spd_range": NOTHING,
        "eod_range": Estimate(0.1),
        "worst_accuracy": Estimate(51.0),
    }
    view = group_view(("f", "m", "x", "(missing)"), gone=[2], ranges=ranges)
    part = group_section(audit(view)).html
    caption = "Among the visible groups, as fractions; worst group's accuracy 51.0 %."
    assert lines(part, caption) == [["visible groups", "0.300 0.200 to 0.400", "0.100"]]
    assert head(part, caption) == [
        "The best minus the worst",
        "Range of accuracy over 2 groups; lower is fairer",
        "Range of TPR over 2 groups; lower is fairer",
    ]
    hidden = dict.fromkeys(view.rates, (made.rate(80.0), NOTHING, NOTHING, NOTHING))
    alone = view._replace(rates=view.rates | hidden)  # nobody else to be worse than
    without = {name: value for name, value in ranges.items() if name != "worst_accuracy"}
    for one in (alone, view._replace(ranges=without)):
        assert "Among the visible groups, as fractions. " in text(group_section(audit(one)).html)
    none = text(group_section(audit(group_view(ranges={"worst_accuracy": Estimate(51.0)}))).html)
    assert "Fewer than two groups have visible rates." in none


def test_a_range_counts_the_groups_that_it_is_computed_from():
    """Five groups were said to be behind a range of accuracy that three have."""
    ranges = {name: Estimate(0.2) for name in ("acc_range", "spd_range", "odds_range")}
    view = group_view(("a", "b", "c"), ranges=ranges)
    shown, hidden = made.rate(80.0), NOTHING
    view = view._replace(
        rates=view.rates
        | {"accuracy": (shown, hidden, shown), "tpr": (shown, hidden, shown), "fpr": (hidden,) * 3}
    )
    found = head(group_section(audit(view)).html, "Among the visible groups")
    assert [words.partition(" over ")[2].partition(" groups")[0] for words in found[1:]] == [
        "2",
        "3",
        "2",
    ]


def test_figures_of_the_worst_group_are_marked_where_it_has_few_people():
    ranges = {"worst_accuracy": Estimate(60.0), "worst_tpr": Estimate(70.0)}
    ranges |= {"acc_range": Estimate(0.3), "eod_range": Estimate(0.1)}
    accuracy = (made.rate(60.0, 29), made.rate(90.0), made.rate(5.0, 9))
    view = group_view(("a", "b", "(missing)"), accuracy=accuracy, ranges=ranges)
    view = view._replace(
        rates=view.rates | {"tpr": (made.rate(80.0, 30), made.rate(70.0, 30), NOTHING)}
    )
    caption = "Among the visible groups, as fractions; worst group's accuracy 60.0 % *, worst"
    part = group_section(audit(view)).html
    assert f"{caption} group's TPR 70.0 %." in text(part)
    assert lines(part, "Among the visible")[0][1:] == ["0.300 *", "0.100"]


@pytest.mark.parametrize("unprivileged", [0, 1])
def test_gaps_within_clients_are_listed_with_the_largest_disadvantage_first(unprivileged: int):
    spd = (Estimate(0.1, rows=1200), Estimate(-0.2, rows=40), NOTHING)
    within = ClientGaps(spd, (NOTHING, Estimate(-0.3), NOTHING), Estimate(-0.05))
    clients = client_view([made.rate(80.0)] * 3)
    part = group_section(
        audit(group_view(unprivileged=unprivileged, client_gaps=within), clients=clients)
    ).html
    caption = f"“{'fm'[unprivileged]}” minus all others of the same client"
    assert lines(part, caption) == [
        ["b", "40", "−0.200", "−0.300"],
        ["a", "1,200", "0.100", f"– {HIDDEN}"],
    ]
    assert "The gap within each client (2)" in text(part)


def test_no_gaps_within_clients_are_no_table():
    clients = client_view([made.rate(80.0)] * 2)
    nowhere = ClientGaps((NOTHING, NOTHING), (NOTHING, NOTHING), NOTHING)
    for view in (group_view(), group_view(client_gaps=nowhere)):
        assert "The gap within" not in text(group_section(audit(view, clients=clients)).html)


# Clients


def clients_of(number: int, **more) -> PagePart:
    """Clients of which each is served a little better than the next."""
    return client_section(
        audit(clients=client_view([made.rate(90.0 - k / 200) for k in range(number)], **more))
    )


@pytest.mark.parametrize(
    ("number", "listed", "drawn"),
    [(1, None, 0), (2, 2, 2), (19, 19, 19), (20, 10, 20), (21, 10, 20)],
)
def test_clients_are_listed_and_drawn_the_worst_served_first(
    number: int, listed: int | None, drawn: int
):
    part = clients_of(number)
    assert ("chart-clients-each" in part.specs) == (drawn > 0)
    assert ("chart-clients-spread" in part.specs) == (number >= 20)
    if listed is None:
        assert "served worst." not in text(part.html)
        return
    caption = (
        "Every client, the worst served first."
        if number < 20
        else "The 10 clients that are served worst."
    )
    found = lines(part.html, caption)
    assert len(found) == listed
    points = rows_of(part, "chart-clients-each")
    assert (len(points), points[0]["name"]) == (drawn, found[0][0])
    assert sum(point["method"] == "the worst-served tenth" for point in points) == max(
        1, number // 10
    )
    assert ("The 20 worst-served of 21 clients." in text(part.html)) == (number > 20)
    assert (f"All {number} clients" in text(part.html)) == (number >= 20)


@pytest.mark.parametrize("number", [500, 501])
def test_the_first_five_hundred_clients_are_on_the_page(number: int):
    part = clients_of(number).html
    assert len(lines(part, "The worst served first.")) == 500
    assert ("The first 500; audit.csv has all." in text(part)) == (number > 500)


def test_very_many_clients_are_not_listed():
    part = clients_of(10_001)
    assert list(part.specs) == ["chart-clients-spread"]
    assert "served worst." not in text(part.html)


def test_the_histogram_says_what_its_lines_are():
    assert "The solid line is the mean of all clients." in text(clients_of(20).html)
    known = clients_of(20, summary={"worst10": made.rate(60.0), "average_devices": made.rate(80.0)})
    assert (
        "The solid line is the mean of all clients, the dashed one that of the worst-served tenth."
        in text(known.html)
    )


def test_metrics_of_clients_have_their_units():
    figures = {
        "average": Estimate(80.0, 70.0, 90.0),
        "variance": Estimate(12.34),
        "variance_noise": Estimate(3.0),
        "gini": Estimate(0.1234),
    }
    part = clients_of(3, summary=figures | {"angle": Estimate(4.56)}).html
    caption, unknown = "How evenly the clients are served.", f"– {HIDDEN}"
    row = ["3 clients", "80.0 70.0 to 90.0", unknown, unknown, unknown, "12.3", "3.0", "0.123"]
    assert lines(part, caption) == [row]
    names = head(part, caption)
    assert names[1] == "Average (rows) %; higher is better"
    assert names[5:] == [
        "Variance %²; lower is fairer",
        "Variance from sampling %²; chance alone",
        "Gini lower is fairer",
    ]
    further = head(part, "Further measures")
    assert "Angle to (1,…,1) °; lower is fairer" in further
    assert not set(names[1:]) & set(further)
    assert (
        lines(part, "Further measures")[0][further.index("Angle to (1,…,1) °; lower is fairer")]
        == "4.6"
    )


def test_intervals_are_announced_only_where_there_are_some():
    with_interval = clients_of(10, summary={"average": Estimate(80.0, 70.0, 90.0)}).html
    first, further = (head_caption(with_interval, words) for words in ("How evenly", "Further"))
    assert first.endswith("Below a value its 95 % interval, from resampling clients.")
    assert "interval" not in further
    few = clients_of(8, summary={"average": Estimate(80.0)}).html
    for words in ("How evenly", "Further"):
        assert head_caption(few, words).endswith(
            "There are no intervals: fewer than 10 clients are too few to resample."
        )


def test_it_is_said_whether_hidden_clients_count():
    left_out = (
        "1 client is not shown: 1 rests on fewer than 10 people. They are excluded from all figures"
        " over clients"
    )
    assert left_out in text(clients_of(5, gone=[4], clients_in_summary=4).html)
    assert "They are included in all figures over clients." in text(
        clients_of(5, gone=[4], clients_in_summary=5).html
    )
    assert "all figures over clients" not in text(clients_of(5).html)


def test_scores_of_clients_stand_beside_their_accuracy():
    scores = {
        "auc": (Estimate(0.7), NOTHING),
        "ece": (Estimate(0.1), Estimate(0.2)),
        "bias": (Estimate(-0.3), NOTHING),
    }
    part = clients_of(2, scores=scores).html
    unknown = f"– {HIDDEN}"
    found = lines(part, "Every client, the worst served first.")
    assert found == [
        ["b", "100", "90.0 85.0 to 95.0", unknown, "0.200", unknown],
        ["a", "100", "90.0 85.0 to 95.0", "0.700", "0.100", "−0.300"],
    ]
    assert head(part, "Every client")[2:] == [
        "Accuracy %",
        "AUC",
        "Calibration error",
        "Mean score less share favourable",
    ]
    assert head(clients_of(2).html, "Every client")[2:] == ["Accuracy %"]


def test_there_is_no_section_on_clients_without_any():
    with pytest.raises(ValueError, match="has no client column"):
        client_section(audit(group_view()))


# Scores


def summarise_scores(
    people: list[int], *, drawn: list[int] | None = None, spd: float = 0.1, unprivileged: int = 0
):
    """A column with groups of so many people, of which those `drawn` have so many in their first
    bin.
    """
    groups = len(people)
    bins = np.zeros((groups, BINS), int)
    bins[:, 0] = people if drawn is None else drawn
    gaps = np.full((2, groups, THRESHOLDS), np.nan)
    gaps[:, unprivileged, 3] = spd
    scores = {
        name: tuple(Estimate(0.5 + g / 100) for g in range(groups))
        for name in ("auc", "ece", "bias")
    }
    accuracy = [made.rate(80.0, n) if n else NOTHING for n in people]
    curves = Curves(np.full(bins.shape, 0.05), np.full(bins.shape, 0.1), bins, *gaps)
    return group_view(
        [f"g{g}" for g in range(groups)],
        accuracy=accuracy,
        scores=scores,
        curves=curves,
        unprivileged=unprivileged,
    )


WHOLE = {
    "accuracy": made.rate(80.0),
    "auc": Estimate(0.8),
    "ece": Estimate(0.02),
    "bias": Estimate(-0.01),
}


def test_scores_are_listed_of_everybody_and_of_groups_that_are_shown():
    crossed = summarise_scores([40, 60])._replace(unprivileged=None, names=("a", "b"))
    found = score_section(
        audit(summarise_scores([40, 0, 2000]), intersections=crossed, whole=WHOLE)
    ).html
    tables = re.findall(r"<table.*?</table>", found, re.S)
    assert len(tables) == 2
    first, second = (lines(table, "With 95 % intervals") for table in tables)
    assert first[0] == ["everybody", "1,000", "0.800", "0.020", "−0.010"]
    assert [row[:3] for row in first[1:]] == [
        ["sex=g0", "40", "0.500"],
        ["sex=g2", "2,000", "0.520"],
    ]
    assert [row[:3] for row in second] == [["a", "40", "0.500"], ["b", "60", "0.510"]]
    assert "Scores of intersections" in text(found)
    assert "Scores of intersections" not in text(
        score_section(audit(summarise_scores([40, 60]), whole=WHOLE)).html
    )


def test_curves_are_drawn_of_the_eight_largest_groups_with_bins():
    people = [50, 60, 70, 0, 40, 80, 90, 100, 110, 120, 130]
    view = summarise_scores(people, drawn=[0, *people[1:]])
    part = score_section(audit(view, whole=WHOLE))
    assert list(part.specs) == ["chart-scores-0", "chart-thresholds-0"]
    names = dict.fromkeys(row["method"] for row in rows_of(part, "chart-scores-0"))
    # without the smallest, the hidden, and one without bins
    assert list(names) == ["g1", "g2", "g5", "g6", "g7", "g8", "g9", "g10"]
    assert "By sex" in text(part.html)


def test_the_curve_of_thresholds_is_that_of_the_unprivileged():
    part = score_section(audit(summarise_scores([40, 60], unprivileged=1, spd=-0.2), whole=WHOLE))
    assert {row["gap"] for row in rows_of(part, "chart-thresholds-0")} == {-0.2}
    assert "rate of “g1” minus rate of all others" in text(part.html)
    unknown = score_section(audit(summarise_scores([40, 60], spd=np.nan), whole=WHOLE))
    assert list(unknown.specs) == ["chart-scores-0"]
    nothing = score_section(
        audit(summarise_scores([40, 60], drawn=[0, 0], spd=np.nan), whole=WHOLE)
    )
    assert nothing.specs == {}
    assert "By sex" not in text(nothing.html)
    without = summarise_scores([40, 60])._replace(curves=None)
    assert score_section(audit(without, whole=WHOLE)).specs == {}
