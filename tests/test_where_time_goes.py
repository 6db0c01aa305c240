"""The benchmark of parts leaves out what it says, and its table shows every part of every case."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("where_time_goes")


@pytest.mark.slow
def test_parts_of_a_short_run(script: ModuleType):
    (case,) = [case for case in script.cases(["synthetic"], quick=True) if case.runs == 1]
    found = script.measure(case, repeats=1)
    assert found["whole"]
    assert found["compile_seconds"] > 0
    assert set(found["parts_ms"]) == set(sys.modules["where_time_table"].PARTS)
    assert found["parts_ms"]["drawing"] > 0


def test_what_is_left_out(script: ModuleType):
    case = script.cases(["synthetic"], quick=True)[0]
    federation, _ = case.workload.data()
    recorder = script.Recorder()
    script.simulate(
        case.workload.task(federation), federation, case.workload.algorithms(1), 2, advance=recorder
    )
    _, inputs, block, _ = recorder.calls[0]
    data = inputs.data
    assert block.evaluate.any()
    assert not script.evaluations(data, block)[1].evaluate.any()
    assert not script.steps(data, block)[1].first_step.any()
    assert not script.looking(data, block)[0].train_start.any()
    assert block.first_step.any(), "the original stays"


@pytest.mark.parametrize("runs", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_models_without_products_train_nothing(script: ModuleType, runs: int):
    case = script.cases(["synthetic"], quick=True)[0]
    federation, _ = case.workload.data()
    task = case.workload.task(federation)
    for model in (script.idle(task), script.reading(task)):
        trace, *_ = script.simulate(model, federation, case.workload.algorithms(runs), 2)
        for before, after in zip(
            jax.tree.leaves(task.init(jax.random.key(0))), jax.tree.leaves(trace.model), strict=True
        ):
            np.testing.assert_allclose(before, after, atol=1e-6)


def test_the_table_has_every_part_of_every_case(script: ModuleType):
    table = sys.modules["where_time_table"]
    case = {
        "runs": 12,
        "rounds": 4,
        "compile_seconds": 1.5,
        "clock_ms": 3.0,
        "cpu_ms": 6.0,
        "parts_ms": dict.fromkeys(table.PARTS, 0.5),
    }
    found = {
        "cases": {"a": case, "b": case},
        "machine": {"cores": 2, "cpu": "X"},
        "versions": {"jax": "1"},
        "date": "today",
    }
    text = table.document(found)
    assert all(title in text for title in table.PARTS.values())
    assert "| per run, CPU time | 0.50 | 0.50 |" in text
    assert "2 cores of an X" in text
