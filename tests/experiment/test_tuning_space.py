"""What is searched: ranges, choices and whole numbers read from the notation of methods, and one
sentence for every mistake.
"""

import pytest

from evenly.experiment.tuning_space import (
    Choices,
    Range,
    TuningPlan,
    baseline_of,
    length_of,
    margin_of,
    plan_tuning,
    space_of,
)

DATA = {"name": "synthetic"}


def test_ranges_choices_and_whole_numbers_are_told_apart():
    space = space_of(
        "q-fedavg(q=0..10, learning_rate=0.001..1:log, epochs=1..3, batch_size=[5, 10],"
        " mu=0.1)+parity(p=0.1..0.9)"
    )
    assert space.dimensions == {
        "q": Range(0, 10, log=False, whole=False),
        "learning_rate": Range(0.001, 1, log=True, whole=False),
        "epochs": Range(1, 3, log=False, whole=True),
        "batch_size": Choices((5, 10)),
        "parity.p": Range(0.1, 0.9, log=False, whole=False),
    }
    values = {"q": 0.5, "learning_rate": 0.01, "epochs": 2, "batch_size": 5, "parity.p": 0.2}
    assert (
        space.method(values)
        == "q-fedavg(q=0.5, learning_rate=0.01, epochs=2, batch_size=5, mu=0.1)+parity(p=0.2)"
    )


def test_settings_can_be_given_apart_from_the_method():
    apart = space_of(
        "fedprox(epochs=2)+parity",
        ["mu=0.001..1:log", "learning_rate=0.01, 0.1", "parity.p=0.1..0.9"],
    )
    whole = space_of(
        "fedprox(epochs=2, mu=0.001..1:log, learning_rate=[0.01, 0.1])+parity(p=0.1..0.9)"
    )
    assert apart == whole


def test_words_and_truth_can_be_chosen_among():
    space = space_of("fairfed(metric=[eod, spd], clamp=[true, false])")
    assert [space.method(values) for values in space.grid()] == [
        "fairfed(metric=eod, clamp=true)",
        "fairfed(metric=eod, clamp=false)",
        "fairfed(metric=spd, clamp=true)",
        "fairfed(metric=spd, clamp=false)",
    ]


def test_a_list_that_is_a_methods_own_value_is_not_searched():
    assert list(space_of("multi-q(q=[0, 1, 5], learning_rate=0.1..1)").dimensions) == [
        "learning_rate"
    ]


def test_the_grid_is_there_only_where_everything_is_a_choice():
    assert space_of("q-fedavg(q=[0, 1], learning_rate=0.1..1)").grid() == []
    # a value given twice is one
    assert len(space_of("q-fedavg(q=[0, 1, 1], learning_rate=[0.1, 0.2])").grid()) == 4


def test_proposed_numbers_keep_few_digits_and_stay_inside():
    found = Range(0.0012345, 10, log=True, whole=False)
    assert found.near(0.123456) == 0.123
    assert found.near(0.0012346) == 0.0012345
    assert Range(1, 9, log=False, whole=True).near(3) == 3


@pytest.mark.parametrize(
    ("method", "searches", "words"),
    [
        (
            "fedavg",
            [],
            "fedavg has no setting to search. A range is written LOW..HIGH or LOW..HIGH:log",
        ),
        ("q-fedavg(q=[])", [], "q-fedavg: q must list at least one value"),
        ("q-fedavg(q=10..1)", [], "must go from the lower to the higher number, got 10..1"),
        ("q-fedavg(q=1..1)", [], "must go from the lower to the higher number, got 1..1"),
        (
            "q-fedavg(q=0..10:log)",
            [],
            "q-fedavg: q must start above 0 to be searched on a logarithmic scale, got 0..10:log",
        ),
        ("q-fedavg(q=0..10:ln)", [], "q-fedavg: q cannot be read. A range is written"),
        ("q-fedavg(q=a..b)", [], "cannot be read"),
        ("q-fedavg(q=0..inf)", [], "cannot be read"),
        ("q-fedavg(q=[0..1, 3])", [], "must be a range or a list of values, got both"),
        ("q-fedavg(epochs=1..2.5)", [], "q-fedavg: epochs must be whole numbers, got 1..2.5"),
        ("q-fedavg(qq=0..1)", [], "q-fedavg: There is no setting 'qq'. Did you mean 'q'?"),
        ("fedavg+parity(q=0..1)", [], "parity: There is no setting 'q'"),
        ("fairfed(metric=0..1)", [], "fairfed: metric is not a number and cannot have a range"),
        ("q-fedavg(q=0..1), fedavg", [], "Exactly one method can be tuned at a time, got 2"),
        ("q-fedavg", ["q"], "--search is written NAME=VALUES"),
        ("q-fedavg", ["parity.p=0..1"], "q-fedavg has no part 'parity'; write +parity after it"),
        ("q-fedavg+parity", ["party.p=0..1"], "There is no part 'party'. Did you mean 'parity'?"),
    ],
)
def test_mistakes_in_a_space_are_named(method, searches, words):
    with pytest.raises(ValueError) as caught:
        space_of(method, searches)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("q-fedavg(q=-1..1)", {}, "q must be at least 0, got -1"),
        ("q-fedav(q=0..1)", {}, "Did you mean 'q-fedavg'"),
        (
            "q-fedavg(q=0..1)",
            {"objectives": ["varience"]},
            "There is no metric 'varience'. Did you mean 'variance'?",
        ),
        (
            "q-fedavg(q=0..1)",
            {"objectives": ["eod"]},
            (
                "eod cannot be an objective, because neither a higher nor a lower value is better."
                " Use eod_abs."
            ),
        ),
        ("q-fedavg(q=0..1)", {"objectives": ["variance", "variance"]}, "Objectives must differ"),
        ("q-fedavg(q=0..1)", {"keep": "avrage"}, "Did you mean 'average'?"),
        ("q-fedavg(q=0..1)", {"within": -1.0}, "within must be at least 0"),
        ("q-fedavg(q=0..1)", {"trials": 0}, "trials must be at least 1, got 0"),
        ("q-fedavg(q=0..1)", {"batch": 0}, "batch must be at least 1 trial, got 0"),
        ("q-fedavg(q=0..1)", {"seeds": 0}, "seeds must be at least 1, got 0"),
        (
            "q-fedavg(q=0..1)",
            {"baseline": "fedavg(learning_rate=[0.1, 1])"},
            "must be one method without a sweep",
        ),
        ("q-fedavg(q=0..1)", {"rounds": 0}, "rounds must be at least 1"),
        ("q-fedavg(q=0..1)", {"sampling": "unifrm"}, "Did you mean 'uniform'"),
        (
            "multi-q(learning_rate=0.1..1)+dp(epsilon=8)",
            {"baseline": "fedavg+dp(epsilon=8)"},
            "models of the same clients reveal far more than one",
        ),
    ],
)
def test_mistakes_in_a_search_are_named_before_anything_is_trained(method, options, words):
    with pytest.raises(ValueError) as caught:
        plan_tuning(method, DATA, **options)
    assert words in str(caught.value)


def test_the_baseline_is_q_0_where_q_is_searched_and_else_fedavg():
    assert (
        baseline_of(space_of("q-fedavg(q=0..1, epochs=2, learning_rate=0.1..1)+uniform(clients=5)"))
        == "q-fedavg(q=0, epochs=2)+uniform(clients=5)"
    )
    assert baseline_of(space_of("fairfed(beta=0..1)+parity(p=0.1..0.9)")) == "fedavg"


def test_all_combinations_are_tried_where_they_are_no_more_than_asked_for():
    grid = space_of("q-fedavg(q=[0, 1, 5], learning_rate=[0.1, 0.2])")
    assert length_of(grid, None) == ("grid", 6)
    assert length_of(grid, 100) == ("grid", 6)
    assert length_of(grid, 5) == ("tpe", 5)
    assert length_of(space_of("q-fedavg(q=0..1)"), None) == ("tpe", 64)


def test_one_objective_has_a_margin_of_a_point_and_a_front_has_none():
    assert margin_of(["variance"], None) == 1.0
    assert margin_of(["variance", "average"], None) is None
    assert margin_of(["variance", "average"], 2.0) == 2.0
    assert margin_of(["variance"], float("inf")) is None


def test_a_plan_is_read_back_as_it_was_and_its_length_is_no_part_of_it():
    plan, number = plan_tuning(
        "q-fedavg(q=0.001..10:log)", DATA, trials=12, batch=4, objectives=["variance", "worst10"]
    )
    longer, _ = plan_tuning(
        "q-fedavg(q=0.001..10:log)", DATA, trials=40, batch=4, objectives=["variance", "worst10"]
    )
    assert number == 12
    assert TuningPlan.from_json(plan.to_json()) == plan
    assert longer.fingerprint() == plan.fingerprint()
    with pytest.raises(ValueError, match="not a search of evenly"):
        TuningPlan.from_json(plan.shared.to_json())
