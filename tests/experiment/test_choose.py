"""Choosing on validation rows: q-FFL's rule for one objective, the front and its most balanced
point for several.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.experiment.search_trials import choose, front_metrics, shortfall
from evenly.metrics import measure


def of_two(**accuracies):
    """Candidates by the accuracies of their two clients, who have equally many rows."""
    return {
        name: measure(np.array(value), np.array([1000, 1000])) for name, value in accuracies.items()
    }


def planes(**values):
    """Candidates by (average, variance)."""
    return {name: {"average": float(a), "variance": float(v)} for name, (a, v) in values.items()}


def test_the_fairest_within_the_margin_is_chosen():
    choice = choose(of_two(base=(0.95, 0.65), fairer=(0.85, 0.74), fairest=(0.75, 0.75)), "base")
    assert choice.chosen == "fairer"  # 79.5 is within a point of 80; 75 is not
    assert choice.allowed == {"base": True, "fairer": True, "fairest": False}
    # each is better than the others in one of the two
    assert choice.front == ("base", "fairer", "fairest")


def test_a_wider_margin_allows_more_and_none_allows_all():
    seen = of_two(base=(0.95, 0.65), fairer=(0.85, 0.74), fairest=(0.75, 0.75))
    assert choose(seen, "base", within=5).chosen == "fairest"
    # equal variance: the first
    assert choose(seen | of_two(constant=(0.1, 0.1)), "base", within=None).chosen == "fairest"
    assert choose(seen, "base", within=0).chosen == "base"


def test_the_baseline_stays_if_nothing_is_fairer_and_wins_ties():
    assert choose(of_two(base=(0.8, 0.8), worse=(0.9, 0.75)), "base").chosen == "base"
    assert choose(of_two(other=(0.9, 0.7), base=(0.9, 0.7)), "base").chosen == "base"


def test_better_average_is_always_allowed():
    assert choose(of_two(base=(0.6, 0.4), better=(0.9, 0.9)), "base", within=0).chosen == "better"


def test_what_is_kept_may_be_something_that_should_be_small():
    seen = {
        "base": {"gini": 0.10, "worst10": 50.0},
        "a": {"gini": 0.12, "worst10": 60.0},
        "b": {"gini": 0.20, "worst10": 70.0},
    }
    assert choose(seen, "base", objectives=("worst10",), keep="gini", within=0.05).chosen == "a"
    assert shortfall(seen, "b", "base", "gini", 0.05) == pytest.approx(0.05)


def test_a_front_is_what_no_other_beats_and_its_most_balanced_point_is_taken():
    seen = planes(
        base=(80, 500),
        even=(70, 100),
        accurate=(82, 600),
        both=(78, 200),
        beaten=(75, 300),
        twin=(78, 200),
    )
    choice = choose(seen, "base", objectives=("average", "variance"), within=None)
    assert choice.front == ("base", "even", "accurate", "both", "twin")
    # From the best (82 and 100), scaled by 12 points and 500: both misses 4/12 and 100/500, base
    # 2/12 and 400/500.
    assert choice.chosen == "both"


def test_objectives_are_measured_from_the_baseline_where_it_is_worse_than_the_front():
    seen = planes(base=(80, 900), a=(80.5, 110), b=(82, 120))
    # On the front alone the ten %² between a and b would count as much as the 1.5 points; beside
    # the baseline's 900 they do not.
    assert choose(seen, "base", objectives=("average", "variance"), within=None).chosen == "b"


def test_a_margin_also_holds_for_a_front_and_what_is_kept_is_part_of_it():
    seen = {
        "base": {"average": 80.0, "variance": 500.0, "worst10": 20.0},
        "far": {"average": 60.0, "variance": 50.0, "worst10": 60.0},
        "near": {"average": 79.5, "variance": 400.0, "worst10": 30.0},
    }
    choice = choose(seen, "base", objectives=("variance", "worst10"), within=1.0)
    assert choice.chosen == "near"
    assert choice.front == ("base", "far", "near")
    assert choose(seen, "base", objectives=("variance", "worst10"), within=None).front == ("far",)


def test_what_is_undefined_is_never_chosen():
    seen = {
        "base": {"average": 80.0, "eod_abs": 0.3},
        "none": {"average": 90.0, "eod_abs": float("nan")},
    }
    assert choose(seen, "base", objectives=("eod_abs",)).chosen == "base"
    with pytest.raises(ValueError, match="no candidate within the margin has a value of eod_abs"):
        choose({"base": seen["none"]}, "base", objectives=("eod_abs",))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="baseline must be one of"):
        choose(of_two(base=(0.5, 0.5)), "nobody")
    with pytest.raises(ValueError, match="within must be at least 0"):
        choose(of_two(base=(0.5, 0.5)), "base", within=-1)


def old_rule(seen, baseline, within):
    """q-FFL's rule as it was first written here, before there were other objectives."""
    allowed = [name for name in seen if seen[name]["average"] >= seen[baseline]["average"] - within]
    return min(allowed, key=lambda name: (seen[name]["variance"], name != baseline))


# few values, so that ties occur
VALUES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=8)


@given(VALUES, st.integers(0, 4))
def test_one_objective_is_the_rule_of_q_ffl(values, within):
    seen = planes(**{f"q{i}": value for i, value in enumerate(values)})
    assert choose(seen, "q0", within=float(within)).chosen == old_rule(seen, "q0", within)


@given(VALUES)
def test_of_a_front_somebody_is_always_chosen_and_nobody_beats_it(values):
    seen = planes(**{f"q{i}": value for i, value in enumerate(values)})
    choice = choose(seen, "q0", objectives=("average", "variance"), within=None)
    assert choice.chosen in choice.front

    def beats(a, b):
        better = [a["average"] - b["average"], b["variance"] - a["variance"]]
        return min(better) >= 0 and max(better) > 0

    for name in seen:
        assert (name in choice.front) == (
            not any(beats(other, seen[name]) for other in seen.values())
        )


def test_a_single_objective_is_judged_beside_what_is_kept():
    assert front_metrics(("variance",), "average", None) == ("variance", "average")
    assert front_metrics(("accuracy", "eod_abs"), "average", None) == ("accuracy", "eod_abs")
    assert front_metrics(("accuracy", "eod_abs"), "average", 1.0) == (
        "accuracy",
        "eod_abs",
        "average",
    )
