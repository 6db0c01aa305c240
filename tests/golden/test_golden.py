"""Nothing changes by accident: five rounds of every method, to 1e-5.

If a change is meant, run `python -m tests.golden.regenerate` and review the difference.
"""

from typing import Any

import numpy as np
import pytest

from evenly.algorithms import METHODS
from tests.golden import traces
from tests.simulations import Simulated


def compare(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            compare(found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list) and expected and isinstance(expected[0], dict):
        assert len(found) == len(expected), where
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            compare(a, b, f"{where}[{i}]")
    else:
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5, err_msg=where)


@pytest.mark.parametrize("name", METHODS)
def test_five_rounds_are_as_they_were(name: str, simulated: Simulated):
    assert traces.path(name).exists(), (
        f"no golden trace yet: run `python -m tests.golden.regenerate {name}` and review it"
    )
    compare(traces.digest(name, simulated.task, simulated.federation), traces.stored(name), name)


def test_there_is_no_trace_of_a_method_that_is_gone():
    assert {path.stem for path in traces.FOLDER.glob("*.json")} == set(METHODS)


def test_a_golden_trace_would_notice_a_change():
    expected = traces.stored("q-fedavg")
    changed = traces.stored("q-fedavg")
    changed["runs"][0]["model"][3] += 1e-4
    with pytest.raises(AssertionError, match=r"q-fedavg\.runs\[0\]\.model"):
        compare(changed, expected, "q-fedavg")
