"""What functions of `evenly.metrics` assume where nothing is given."""

from collections.abc import Callable
from typing import Any

import pytest

from evenly.metrics.representation import good_clients, good_clients_of
from evenly.metrics.statistics import (
    dual_weights,
    generalised_mean,
    over_clients,
    over_people,
    percentile_interval,
    t_quantile,
)
from tests.signatures import default_numbers

INTERVAL = {"draws": 1000, "level": 0.95, "seed": 0}
DEFAULTS: list[tuple[Callable[..., Any], dict[str, float]]] = [
    (good_clients, {"tolerance": 0.1}),
    (good_clients_of, {"tolerance": 0.1}),
    (over_clients, INTERVAL),
    (over_people, INTERVAL),
    (percentile_interval, {"level": 0.95}),
    (t_quantile, {"level": 0.95}),
    (generalised_mean, {"parameter": 0.0}),
    (dual_weights, {"parameter": 0.0}),
]


@pytest.mark.parametrize("function, expected", DEFAULTS, ids=[f.__name__ for f, _ in DEFAULTS])
def test_numbers_that_are_not_given_are_the_documented_ones(
    function: Callable[..., Any], expected: dict[str, float]
):
    assert default_numbers(function) == expected
