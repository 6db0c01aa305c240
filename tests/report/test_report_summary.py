"""What the report says in words, and that it says no more than the numbers allow."""

import pytest
from tests.report.invented import comparison, federation

from evenly.report.charts.focus import MOST_SERIES, Focus, best_of, choose_focus
from evenly.report.opening import _tile, against, noise_note, summarise
from evenly.report.paired_section import compare_all, verdict
from evenly.report.values import COLUMNS, final_values

NAN = float("nan")


def measured(**metrics: list[float]) -> dict[int, dict[str, float]]:
    seeds = len(next(iter(metrics.values())))
    return {s: {name: metrics[name][s] for name in metrics} for s in range(seeds)}


def pair(before: dict[str, list[float]], after: dict[str, list[float]]) -> tuple[dict, Focus]:
    values = {"fedavg": measured(**before), "fair": measured(**after)}
    return values, Focus("fedavg", "fair", "", ("fedavg", "fair"))


def test_a_clear_gain_is_stated_with_both_numbers():
    values, choice = pair(
        {
            "variance": [500, 520, 510, 505, 515],
            "worst10": [10, 11, 12, 10, 11],
            "average": [80, 81, 80, 79, 80],
        },
        {
            "variance": [300, 321, 309, 306, 314],
            "worst10": [20, 21.5, 22, 20, 21],
            "average": [78, 79.1, 78, 77, 78],
        },
    )
    summary = summarise(values, choice)
    assert (
        summary.finding
        == "Compared with fedavg, fair lowers the variance of test accuracy between clients from"
        " 510 to 310 and raises the accuracy of the worst-served 10 % of clients from 10.8 % to"
        " 20.9 %; the average accuracy changes by −2.0 points."
    )
    assert summary.cautions == ""


def test_the_opposite_is_said_as_plainly():
    values, _ = pair(
        {"variance": [300, 301, 302], "worst10": [20, 21, 22], "average": [80, 80, 80]},
        {"variance": [500, 502, 503], "worst10": [10, 11, 12.5], "average": [80, 80, 80]},
    )
    text = against(values, "fedavg", "fair")
    assert "raises the variance" in text
    assert "lowers the accuracy of the worst-served" in text
    assert "the average accuracy stays the same" in text


def test_an_interval_that_includes_zero_is_not_called_a_change():
    values, choice = pair(
        {"variance": [500, 300], "worst10": [10, 20], "average": [80, 70]},
        {"variance": [300, 490], "worst10": [20, 11], "average": [70, 79]},
    )
    summary = summarise(values, choice)
    assert "does not clearly change the variance" in summary.finding
    assert "does not clearly change the accuracy of the worst-served 10 %" in summary.finding
    assert "which may be chance" in summary.finding
    assert "only 2 seeds" in summary.cautions


def test_the_same_change_in_both_seeds_may_be_chance_everywhere_on_the_page():
    """An interval without width is no certainty: the opening must not contradict the sign test."""
    values, choice = pair(
        {"variance": [500, 300], "worst10": [12.5, 10], "average": [80, 70], "gini": [0.2, 0.2]},
        {"variance": [400, 200], "worst10": [18.75, 16.25], "average": [79, 69], "gini": [0, 0.3]},
    )
    text = summarise(values, choice).finding
    assert "does not clearly change the variance" in text
    assert "does not clearly change the accuracy of the worst-served 10 %" in text
    assert "the average accuracy changes by −1.0 points, which may be chance" in text
    (line,) = compare_all(values, "fedavg", ("worst10",))["worst10"]
    assert verdict(COLUMNS["worst10"], line) == "may be chance"
    found = _tile(values, choice, "worst10")
    assert found.change == "change: +6.2, the same in both seeds"


def test_the_same_change_in_all_of_three_seeds_is_told_in_its_tile():
    values, choice = pair({"worst10": [10, 11, 12]}, {"worst10": [20, 21, 22]})
    found = _tile(values, choice, "worst10")
    assert found.change == "change: +10.0, the same in all 3 seeds"


def test_a_single_seed_is_named_as_such():
    values, choice = pair(
        {"variance": [500], "worst10": [10], "average": [80]},
        {"variance": [300], "worst10": [10], "average": [80]},
    )
    summary = summarise(values, choice)
    assert "leaves the accuracy of the worst-served 10 % of clients at 10.0 %" in summary.finding
    assert "single seed" in summary.cautions


def test_one_method_is_described_without_a_comparison():
    values = {"fedavg": measured(variance=[500], worst10=[10], average=[80])}
    summary = summarise(values, Focus("fedavg", "fedavg", "", ("fedavg",)))
    assert summary.finding.startswith("fedavg reaches an average test accuracy of 80.0 %")
    assert summary.cautions == "There is no other method to compare it with."


def test_without_test_rows_nothing_is_claimed():
    found = comparison(data=federation(3, rows=(10, 5, 0)))
    values = final_values(found)
    assert summarise(values, choose_focus(found, values)).finding.startswith(
        "No client has test rows"
    )


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (100.0, "About 20 % of it can be chance"),
        (600.0, "All of it can be chance"),
        (NAN, "No client has two test rows"),
        (5.0, ""),
    ],
)
def test_the_noise_note_says_how_much_is_chance(noise, words):
    values = {"fedavg": measured(variance=[500.0], variance_noise=[noise])}
    text = noise_note(values, Focus("fedavg", "fedavg", "", ("fedavg",)), 11)
    assert words in text
    assert bool(text) == bool(words)


def test_the_lead_is_chosen_on_validation_rows():
    # each more even than the one before
    found = comparison(("fedavg", "q-fedavg(q=1)", "q-fedavg(q=5)"))
    choice = choose_focus(found, final_values(found))
    assert (choice.baseline, choice.lead, choice.lead_split) == ("fedavg", "q-fedavg(q=5)", "valid")


def test_among_equals_the_most_accurate_method_leads():
    values = {
        "fedavg": measured(worst10=[0], average=[9]),
        "a": measured(worst10=[0], average=[5]),
        "b": measured(worst10=[0], average=[6]),
    }
    assert best_of(values, ["a", "b"], "worst10") == "b"


def test_without_validation_rows_the_choice_admits_to_the_test_rows():
    found = comparison(("fedavg", "a", "b"), data=federation(10, rows=(20, 0, 20)))
    values = final_values(found)
    choice = choose_focus(found, values)
    assert choice.lead_split == "test"
    assert "which favours it" in summarise(values, choice).cautions
    cautions = summarise(values, choice._replace(lead_split="valid")).cautions
    assert "which favours it" not in cautions
    assert cautions.endswith(
        f"These sentences describe {choice.lead}. Of the 2 methods that are compared with fedavg,"
        " it has the highest accuracy for the worst-served 10 % of clients on validation rows; if"
        " several have it, it is the most accurate of them on average."
    )


def test_with_many_methods_only_some_are_coloured_and_those_include_baseline_and_lead():
    found = comparison(["fedavg", *(f"q-fedavg(q={i})" for i in range(30))], seeds=1)
    choice = choose_focus(found, final_values(found))
    assert len(choice.series) == MOST_SERIES
    assert {choice.baseline, choice.lead} <= set(choice.series)
