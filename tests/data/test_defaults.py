"""What functions and records of `evenly.data` assume where nothing is given."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from evenly.data import (
    Rows,
    choose_clients,
    cov_diff_size,
    cov_same_size,
    dirichlet,
    dirichlet_attribute,
    dirichlet_label_attribute,
    equal,
    natural,
    official,
    ratio_dirichlet,
)
from evenly.data.federation import Census, Federation
from evenly.data.partition_coverage import count_clients, quota
from evenly.data.sensitive import Attribute, Groups, Sensitive

MOST = {"shares": (0.8, 0.1), "split_seed": 0}
GROUPED = {"shares": (0.9, 0.1), "seed": 0, "split_seed": 0}
COVERED = {**GROUPED, "clients": 0, "tolerance": 0.1, "good_share": 0.5}
DRAWN = {**GROUPED, "clients": 5, "alpha": 0.5, "min_samples": 100, "tries": 1000}
DEFAULTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (choose_clients, {"clients": 0, "min_samples": 1, "max_samples": 0, "seed": 0}),
    (equal, {**MOST, "clients": 10, "seed": 0}),
    (natural, MOST),
    (official, {"valid": 0.1, "split_seed": 0}),
    (
        dirichlet,
        {**MOST, "clients": 10, "beta": 0.5, "min_samples": 1, "tries": 1000, "seed": 0},
    ),
    (dirichlet_attribute, DRAWN),
    (dirichlet_label_attribute, DRAWN),
    (ratio_dirichlet, {**DRAWN, "concentration": 5.0}),
    (cov_same_size, COVERED),
    (cov_diff_size, COVERED),
    (count_clients, {"good_share": 0.5}),
    (quota, {"tolerance": 0.1, "good_share": 0.5, "dealt_share": 1.0}),
    (Federation.from_arrays, {"shares": (0.8, 0.1), "seed": 0}),
    (Federation.from_frame, {"shares": (0.8, 0.1), "seed": 0}),
    (Rows, {"unprivileged": (0,), "favourable": 1}),
    (Federation, {"unprivileged": (0,), "favourable": 1}),
    (Census, {"unprivileged": (0,), "favourable": 1}),
    (Attribute, {"unprivileged": 0}),
    (Sensitive, {"unprivileged": 0}),
    (Groups, {"unprivileged": (0,)}),
]


@pytest.mark.parametrize("function, expected", DEFAULTS, ids=[f.__qualname__ for f, _ in DEFAULTS])
def test_numbers_that_are_not_given_are_the_documented_ones(
    function: Callable[..., Any], expected: dict[str, Any]
):
    found = {name: p.default for name, p in inspect.signature(function).parameters.items()}
    assert {name: found[name] for name in expected} == expected


def test_without_further_words_a_census_takes_group_0_for_unprivileged_and_label_1_for_favourable():
    census = Census(np.array([6]), np.array([[[1, 2], [3, 0]]]))
    assert census.unprivileged_rows.tolist() == [3]
    assert census.favourable == 1
