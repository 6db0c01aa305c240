"""What every metric must do, evenly's own and those of users: say what it rests on, and read
nothing else.
"""

import dataclasses

import numpy as np
import pytest

from evenly.auditing.views import IMPACT
from evenly.metrics import EVERY_METRIC, GROUP_METRICS, METRICS, REGISTRIES, Metric, register
from evenly.metrics.declaration_check import check_declaration
from evenly.metrics.groups import GroupedRates
from evenly.metrics.metric import CLIENTS, GROUPS, ROWS, SIDES, WORST_CLIENT


@pytest.mark.parametrize("metric", [*EVERY_METRIC.values(), IMPACT], ids=lambda metric: metric.name)
def test_a_metric_reads_nothing_that_it_does_not_declare(metric: Metric):
    check_declaration(metric)
    assert metric is IMPACT or REGISTRIES[metric.rests_on][metric.name] is metric


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_client_metric_that_declares_too_little_is_found_out(metric: Metric):
    """Every declaration is checked in earnest: a metric of all clients is no metric of the worst
    one, nor the other way round.
    """
    wrong = WORST_CLIENT if metric.rests_on == CLIENTS else CLIENTS
    with pytest.raises(
        ValueError,
        match=rf"^Metric '{metric.name}' declares rests_on='{wrong}' .* Declare rests_on=",
    ):
        check_declaration(dataclasses.replace(metric, rests_on=wrong))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, n: 100 * (a < 0.5).mean(),  # no client decides it alone
        lambda a, n: 100 * (a < a.mean()).mean(),
        lambda a, n: 100 * np.maximum(0.5 - a, 0).mean(),  # half of the clients
        lambda a, n: 100 * np.sort(a)[3:-3].mean(),
        lambda a, n: np.float32(100 * a.astype(np.float32).std()),
    ],
)
def test_a_metric_of_all_clients_is_taken(function):
    check_declaration(wanted(function))


@pytest.mark.parametrize(
    "metric",
    [m for m in GROUP_METRICS.values() if m.rests_on != ROWS],
    ids=lambda metric: metric.name,
)
def test_a_group_metric_that_declares_too_little_is_found_out(metric: Metric):
    wrong = {SIDES: ROWS, GROUPS: SIDES}[metric.rests_on]
    with pytest.raises(
        ValueError,
        match=(
            rf"^Metric '{metric.name}' declares rests_on='{wrong}' .* It would not be hidden where"
            r" it must be"
        ),
    ):
        check_declaration(dataclasses.replace(metric, rests_on=wrong))


def test_a_metric_that_forgets_what_it_rests_on_is_refused():
    with pytest.raises(
        ValueError,
        match=(
            r"^Metric 'gap': rests_on must say what .* hidden under --min-cell, got ''\. Known:"
            r" 'rows', "
        ),
    ):
        Metric("gap", "gap", "max − min", "0 to 1", -1, lambda seen: seen.groups.tpr.max(-1))


def wanted(function, rests_on: str = "clients", name: str = "mine", better: int = 1) -> Metric:
    return Metric(name, "mine", "?", "0 to 100 %", better, function, rests_on)


@pytest.mark.parametrize(
    "metric, sentence",
    [
        (
            lambda: wanted(lambda a, n: 1, name="average"),
            "There is already a metric 'average'. It is part of evenly: choose",
        ),
        (
            lambda: wanted(lambda a, n: 1, name="my metric"),
            "The name of a metric must begin with a letter .*, got 'my metric'",
        ),
        (
            lambda: wanted(lambda a, n: 1, better=2),
            "better must be 1 .higher., -1 .lower. or 0 .neither., got 2",
        ),
        (
            lambda: wanted(lambda a: 1),
            "its function failed on an example: TypeError: .* See docs/add-a-metric.md",
        ),
        (
            lambda: wanted(lambda a, n: a),
            r"the function must return one number, or NaN, got array\([^)]{,100}…\.$",
        ),
        (
            lambda: wanted(lambda seen: float(seen.sides.tpr.mean()), "sides"),
            "one number for each leading axis .* gave shape",
        ),
        (
            lambda: wanted(lambda a, n: 100 * np.median(a)),
            "only 1 of 31 clients decided its value. .* Declare rests_on='some clients'",
        ),
        (
            lambda: wanted(lambda a, n: 100 * (a.max() - a.min())),
            "only 2 of 31 clients decided",
        ),
        (
            lambda: wanted(lambda a, n: 100 * np.sort(a)[: len(a) // 10].mean()),
            "only 3 of 31 clients decided",
        ),
        (
            lambda: wanted(lambda a, n: 100 * np.subtract(*np.quantile(a, [0.75, 0.25]))),
            "only [2-4] of 31 clients decided",
        ),
        (lambda: wanted(lambda a, n: 100 * a[np.argmax(n)]), "only 1 of 31 clients decided"),
        (
            lambda: wanted(lambda a, n: 100 * np.sort(a)[1], "worst client"),
            "depends on other clients. .* Declare rests_on='some clients'",
        ),
    ],
)
def test_a_metric_that_cannot_be_used_is_refused(metric, sentence: str, registries: None):
    with pytest.raises(ValueError, match=sentence):
        register(metric())
    assert "mine" not in EVERY_METRIC


def test_a_metric_may_be_replaced_by_its_author(registries: None):
    def gap(seen: GroupedRates) -> np.ndarray:
        return seen.sides.f1[..., 0]

    first, second = wanted(lambda a, n: 100 * a.mean()), wanted(gap, "sides")
    register(first)
    register(first)
    assert METRICS["mine"] is first
    with pytest.raises(ValueError, match=r"already a metric 'mine'\. Pass replace=True"):
        register(second)
    register(second, replace=True)
    assert EVERY_METRIC["mine"] is GROUP_METRICS["mine"] is second
    assert "mine" not in METRICS
