"""The page of a search: what was chosen and why, fronts, settings, every trial, and test rows only
of two methods.
"""

import re

import pytest
from tests.report.invented import unbroken
from tests.tunings import searched

from evenly.experiment.tuning import Tuning
from evenly.metrics import METRICS
from evenly.report.charts.trials import (
    count_outside,
    cut_off,
    pairs_of_aims,
    tuning_front,
    tuning_setting,
    view_of,
)
from evenly.report.opening import value_text
from evenly.report.tuning_page import caution, finding, reasons, render_tuning, rule
from evenly.report.tuning_trials import kind_of, kinds_of, trials_table
from evenly.report.values import final_values

RANGES = "q-fedavg(q=0.01..100:log, learning_rate=0.01..1:log)"


@pytest.fixture
def even(monkeypatch):
    """Least variance within a point of the baseline."""
    return searched(monkeypatch, RANGES, trials=24, batch=8)[0]


@pytest.fixture
def front(monkeypatch):
    """Average and variance against each other."""
    return searched(monkeypatch, RANGES, objectives=("average", "variance"), trials=24, batch=8)[0]


def rows_of(chart, layer):
    """The rows behind a layer of a chart; Altair keeps those of several layers in one place."""
    spec = chart.to_dict()
    data = spec["layer"][layer].get("data", spec.get("data"))
    return data["values"] if "values" in data else spec["datasets"][data["name"]]


def test_the_first_sentences_say_what_was_chosen_and_why(even, front):
    assert finding(even).startswith(
        f"Chosen: {even.choice.chosen}. On validation rows, beside q-fedavg(q=0): variance "
    )
    # (95 - 65)² / 4
    assert " instead of 225, average (rows) 80" in finding(
        even
    ) or " instead of 225, average (rows) 79" in finding(even)
    allowed = sum(even.choice.allowed[tried.label] for tried in even.trials)
    assert (
        f"the baseline and the {allowed} of 24 settings whose average (rows) stays within 1 point"
        " of the baseline's" in rule(even)
    )
    assert "most balanced point among the baseline and all 24 settings" in rule(front)
    none = even.choice._replace(allowed=dict.fromkeys(even.choice.allowed, False))
    assert rule(even._replace(choice=none)).startswith(
        "None of the 24 settings keeps average (rows) within 1 point of the baseline's."
    )


def test_settings_that_are_equally_good_are_counted(even):
    assert "equally good" not in rule(even)
    other = next(
        tried
        for tried in even.trials
        if even.choice.allowed[tried.label] and tried.label != even.choice.chosen
    )
    twin = other._replace(values={**other.values, "variance": even.chosen.values["variance"]})
    trials = [twin if tried.label == twin.label else tried for tried in even.trials]
    assert "2 of these are equally good; the first of them is taken." in rule(
        even._replace(trials=trials)
    )


def with_variances(tuning: Tuning, variances: list[float]) -> Tuning:
    """The same search in which the chosen trial has these variances."""
    other = tuning.chosen._replace(values={**tuning.chosen.values, "variance": variances})
    trials = [other if tried.label == other.label else tried for tried in tuning.trials]
    return tuning._replace(trials=trials)


def test_chance_is_named_where_it_may_have_chosen(even, monkeypatch):
    # seeds shift all accuracies alike, so the variance changes by the same in each
    assert caution(even) == (
        "Over these seeds the change of variance is not clear: compared seed by seed, it may be"
        " chance."
    )
    regular = [value + 0.1 * seed for seed, value in enumerate(even.chosen.values["variance"])]
    assert caution(with_variances(even, regular)) == ""
    single, _ = searched(monkeypatch, "q-fedavg(q=[0.5])", seeds=1)
    assert caution(single) == "Only one seed was tried, so the effect of chance is unknown."
    assert caution(with_variances(even, [0.0, 500.0, 100.0])).startswith(
        "Over these seeds the change of variance is not clear"
    )
    stays, _ = searched(monkeypatch, "q-fedavg(q=[50])")
    assert caution(stays) == ""


def test_the_opening_names_whom_the_chosen_settings_serve_worst(even):
    """Clients with their people and gaps, and what a trivial model would score."""
    page = render_tuning(even, "chosen/report.html")
    header = page[page.index("<header>") : page.index("</header>")]
    header = unbroken(header.replace("\xa0", " "))
    assert f"On test rows, {even.choice.chosen} is no better than a trivial model" in header
    worst = r"Of the clients, it serves “client 1” worst: right for \d+\.\d % of 10,000 rows"
    assert re.search(worst, header)
    assert "Worst-served client: “client 1”" in header
    assert "A trivial model: always " in header
    chosen, why = header.index("Chosen: "), header.index("This is the least variance")
    assert chosen < header.index("Worst-served client") < why


def test_marks_of_trials_are_explained(even, front):
    page = render_tuning(even, "chosen/report.html").replace("\xa0", " ")
    assert "“outside”: its average (rows) is more than 1 point worse than the baseline" in page
    page = render_tuning(front, "chosen/report.html")
    assert "“front”: no other setting is better in average (rows) and variance together." in page
    assert "“outside”" not in page


def test_the_baseline_has_its_settings_and_its_mark_in_the_table(even, front, monkeypatch):
    """It was on the front in the chart and in tuning.csv, and a dash stood for q = 0."""
    for tuning in (even, front):
        marked = [line.marks for line in trials_table(tuning).lines]
        labels = [tuning.baseline.label, *(tried.label for tried in tuning.trials)]
        assert ["front" in marks for marks in marked] == [
            label in tuning.choice.front for label in labels
        ]
        assert trials_table(tuning).lines[0].settings == ("0", "0.1")
    assert "front" in trials_table(even).lines[0].marks
    other, _ = searched(monkeypatch, "q-fedavg(q=[1, 2])", baseline="fedavg")
    assert trials_table(other).lines[0].settings == ("–",)  # it has no q


def test_the_chosen_trial_does_not_look_like_the_best_of_a_column(even):
    trials = render_tuning(even, "").partition('<section id="trials"')[2].partition("</section>")[0]
    assert 'class="picked"' in trials
    assert 'class="best"' not in trials
    assert 'class="near"' not in trials


def test_the_legend_has_the_kinds_that_occur(even, monkeypatch):
    assert kinds_of(even) == ("outside the margin", "within the margin", "chosen", "baseline")
    near, _ = searched(monkeypatch, "q-fedavg(q=[0.01, 0.02])")
    assert kinds_of(near) == ("within the margin", "chosen", "baseline")
    assert "outside the margin" not in render_tuning(near, "")


def test_the_choice_is_also_told_by_its_figures_on_test_rows(even):
    """The search favours figures of validation rows; those of test rows can be worse."""
    values = final_values(even.final, "test")
    chosen, baseline = even.choice.chosen, "q-fedavg(q=0)"
    told = ", ".join(
        f"{METRICS[name].title} {value_text(values, chosen, name)} instead of"
        f" {value_text(values, baseline, name)}"
        for name in ("variance", "average")
    )
    sentence = f"On test rows, beside {baseline}: {told}."
    assert reasons(even)[-1] == sentence
    assert sentence in unbroken(render_tuning(even, ""))
    kept = even._replace(choice=even.choice._replace(chosen=baseline))
    assert not any("beside" in text for text in reasons(kept))


def test_trials_of_one_batch_are_not_said_to_be_of_several(even, monkeypatch):
    assert "tree-structured Parzen estimators, 8 at a time" in render_tuning(even, "")
    few, _ = searched(monkeypatch, "q-fedavg(q=0.01..1:log)", trials=4)
    assert "tree-structured Parzen estimators, all together" in render_tuning(few, "")


def test_where_the_baseline_stays_it_is_said(monkeypatch):
    found, _ = searched(monkeypatch, "q-fedavg(q=[50, 90])")
    assert finding(found) == "The baseline q-fedavg(q=0) is kept: no admissible setting is better."
    assert "q-fedavg(q=0)" in render_tuning(found, "chosen/report.html")


def test_a_single_setting_has_no_front(monkeypatch):
    found, _ = searched(monkeypatch, "q-fedavg(q=[0])")
    page = render_tuning(found, "chosen/report.html")
    assert '<section id="front"' not in page
    assert "chart-front" not in page


def test_where_hardly_any_trial_can_be_chosen_all_are_drawn(monkeypatch):
    found, _ = searched(monkeypatch, "q-fedavg(q=[50, 90])")
    assert sum(found.choice.allowed[tried.label] for tried in found.trials) == 0
    view = view_of(found, "average", "variance")
    assert all(view.holds(tried) for tried in (found.baseline, *found.trials))
    assert count_outside(found, "variance") == 0


def test_one_objective_stands_over_what_is_kept_and_several_in_pairs(even, front, monkeypatch):
    assert pairs_of_aims(even) == [("average", "variance")]
    assert pairs_of_aims(front) == [("average", "variance")]
    three, _ = searched(
        monkeypatch, RANGES, objectives=("average", "variance", "worst10"), trials=8, batch=8
    )
    assert pairs_of_aims(three) == [
        ("average", "variance"),
        ("average", "worst10"),
        ("variance", "worst10"),
    ]


def test_the_front_is_joined_by_a_line_and_every_trial_in_view_is_a_mark(front):
    view = view_of(front, "average", "variance")
    chart = tuning_front(front, view)
    rows = rows_of(chart, -1)
    assert {row["label"] for row in rows} == {
        t.label for t in (front.baseline, *front.trials) if view.holds(t)
    }
    joined = rows_of(chart, 0)
    assert {row["label"] for row in joined} == set(front.choice.front)
    assert {row["method"] for row in rows if row["label"] == front.choice.chosen} == {"chosen"}
    shown = next(row for row in rows if row["label"] == front.choice.chosen)
    assert shown["x_low"] < shown["x"] < shown["x_high"]  # three seeds that differ


def test_ranges_over_seeds_stay_inside_the_axes(even):
    view = view_of(even, "average", "variance")
    spread_out = [value + 3.0 * seed for seed, value in enumerate(even.chosen.values["variance"])]
    wider = with_variances(even, spread_out)
    other = view_of(wider, "average", "variance")
    assert not cut_off(wider, other)
    assert other.high[1] > max(spread_out)
    assert other.low[0] == view.low[0]
    assert "goes on beyond it" not in render_tuning(wider, "chosen/report.html")
    # seeds that lie very far apart are cut off, and it is said
    mean = even.chosen.means["variance"]
    far = with_variances(even, [mean - 5000, mean, mean + 5000])
    assert cut_off(far, view_of(far, "average", "variance"))
    assert "One that ends at the frame goes on beyond it." in render_tuning(
        far, "chosen/report.html"
    )


def test_the_margin_is_drawn_where_it_ends(even):
    chart = tuning_front(even, view_of(even, "average", "variance"))
    (row,) = rows_of(chart, 1)
    assert row["end"] == pytest.approx(even.baseline.means["average"] - 1, rel=1e-4)
    kinds = {kind_of(even, tried) for tried in even.trials}
    assert kinds == {"outside the margin", "within the margin", "chosen"}


def test_trials_that_went_wrong_do_not_press_the_others_into_a_corner(even):
    view = view_of(even, "average", "variance")
    outside = [tried for tried in even.trials if not view.holds(tried)]
    assert outside
    assert not any(even.choice.allowed[tried.label] for tried in outside)
    assert f"{len(outside)} of 25 lie too far away to be drawn" in render_tuning(
        even, "chosen/report.html"
    )


def test_each_setting_has_its_axis(even, monkeypatch):
    chart = tuning_setting(even, "learning_rate", "variance").to_dict()
    axis = chart["layer"][-1]["encoding"]["x"]
    assert axis["scale"]["type"] == "log"
    assert axis["scale"]["domain"][0] < 0.01 < 1 < axis["scale"]["domain"][1]
    assert axis["axis"]["values"] == [0.01, 0.1, 1]
    assert len(rows_of(tuning_setting(even, "q", "variance"), -1)) == 24 - count_outside(
        even, "variance"
    )
    grid, _ = searched(monkeypatch, "q-fedavg(q=[1, 0.1])")
    axis = tuning_setting(grid, "q", "variance").to_dict()["layer"][-1]["encoding"]["x"]
    assert axis["type"] == "nominal"
    assert axis["sort"] == ["1", "0.1"]  # as they were written


def test_the_table_of_many_trials_has_the_chosen_one_the_front_and_the_best(even):
    every, some = trials_table(even), trials_table(even, most=6)
    assert [line.name for line in every.lines] == ["baseline", *map(str, range(24))]
    assert len(some.lines) == 7
    assert some.lines[0].name == "baseline"
    assert sum("chosen" in line.marks for line in some.lines) == 1
    chosen = next(line for line in every.lines if "chosen" in line.marks)
    assert chosen.settings == tuple(
        f"{even.chosen.settings[name]:g}" for name in ("q", "learning_rate")
    )


def test_the_page_holds_its_sections_and_test_rows_of_two_methods_only(even):
    page = render_tuning(even, "chosen/report.html")
    assert re.findall(r'<section id="([a-z-]+)"', page) == [
        "front",
        "by-setting",
        "test",
        "trials",
        "how",
    ]
    assert '<a href="chosen/report.html">' in page
    test = unbroken(page.partition('<section id="test"')[2].partition("</section>")[0])
    others = {tried.label for tried in even.trials} - {even.choice.chosen}
    assert even.choice.chosen in test
    assert not any(label in test for label in others)
    assert "All 24 trials" in page
    assert page == render_tuning(even, "chosen/report.html")


def test_the_page_says_where_sizes_do_not_count(even):
    sizes = "All 5 clients take part in every round, and larger ones do not count more."
    final = even.final._replace(sizes=sizes)
    how = unbroken(render_tuning(even._replace(final=final), "")).partition('id="how"')[2]
    assert f"<dt>Sizes of clients</dt><dd>{sizes}</dd>" in how
