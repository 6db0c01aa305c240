"""The benchmark of a lying client measures what it says, and its page claims no more than was
measured.
"""

import importlib
from pathlib import Path

import pytest

from tools.measurements import lying_client_sentences

ROOT = Path(__file__).parents[2]


def test_one_lie_takes_the_model_and_caps_give_it_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    bench = importlib.import_module("lying_client")
    case = next(case for case in bench.CASES if case.method == "q-fedavg(q=1)")
    honest, lying, capped = (
        bench.run(case, 0, lies=lies, caps=caps, length=6)
        for lies, caps in ((False, None), (True, None), (True, bench.CAPS))
    )
    assert honest.weight == pytest.approx(5, abs=3)
    assert lying.weight > 95
    assert capped.weight <= 15 + 1e-3
    assert capped.average > lying.average + 5


def test_the_sentences_of_the_page_agree_with_the_figures():
    def row(
        method: str, lie: str, honest: float, lying: float, capped: float, weight: float
    ) -> dict:
        found = {
            "honest": (5.0, honest),
            "honest, capped": (5.0, honest),
            "lying": (weight, lying),
            "capped": (9.0, capped),
        }
        return {"method": method, "lie": lie} | {
            how: {"weight": w, "average": a} for how, (w, a) in found.items()
        }

    rows = [
        row("a", "rows", 80, 20, 79, 99),
        row("b", "huge loss", 80, 70, 75, 20),
        row("c", "update", 80, 30, 60, 5),
    ]
    first, second, third = lying_client_sentences({"rows": rows, "clients": 20})
    assert "more than half of all weight in 1 of 2 cases" in first
    assert "under a: from 80.0 % to 20.0 %" in first
    assert "gets at most 9.0 % (a)" in second
    assert "lose at most 5.0 points (b)" in second
    assert "from 80.0 % to 30.0 %, and with a cap on its norm to 60.0 %" in third
