"""The growth benchmark times what it says, judges what was required, and can be taken section by
section.
"""

import gc
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from evenly.data.splits import SPLITS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def growth(load: Any) -> ModuleType:
    return load("growth")


@pytest.fixture
def summary(load: Any) -> ModuleType:
    return load("growth_summary")


def line(section: str, **given: Any) -> dict[str, Any]:
    """A point as `measure` gives it: 2 µs a step, unless told otherwise."""
    usual = {
        "section": section, "clients": 100, "cohort": 10, "rows": 14.0, "spread": 0.8, "hidden": 0,
        "runs": 1, "mapped": False, "rows_per_round": 200.0, "smallest_client": 1,
        "largest_client": 90, "parameters": 610, "steps_per_round": 50.0, "ms_per_round": 0.1,
        "range": [0.09, 0.2], "us_per_step": 2.0, "first_block_seconds": 1.0,
        "compile_seconds": 0.5, "raw_megabytes": 10.0, "peak_megabytes": 400,
        "anonymous_megabytes": 300, "file_megabytes": 100, "others": 0.0,
    }  # fmt: skip
    return usual | given


def sections(**points: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: {"date": "2026-01-01", "points": own} for name, own in points.items()}


EVERYTHING = sections(
    cohort=[
        line("cohort", cohort=n, us_per_step=us, ms_per_round=n * us / 20)
        for n, us in ((10, 2.3), (100, 2.0), (1000, 1.9))
    ],
    clients=[
        line("clients", clients=1000, cohort=1000, ms_per_round=30.0),
        line(
            "clients",
            clients=10**6,
            cohort=1000,
            ms_per_round=33.0,
            raw_megabytes=3000.0,
            peak_megabytes=4419,
        ),
        line(
            "clients",
            clients=10**6,
            cohort=1000,
            ms_per_round=45.0,
            raw_megabytes=3000.0,
            peak_megabytes=6000,
            mapped=True,
        ),
    ],
    sizes=[
        line("sizes", spread=0.0, ms_per_round=1.0),
        line("sizes", spread=1.2, ms_per_round=2.4, rows_per_round=400.0),
    ],
    model=[line("model", parameters=10**k, us_per_step=10.0**k) for k in (3, 4)],
    runs=[line("runs", runs=n, ms_per_round=0.1 * n**0.5) for n in (1, 4)],
)


def test_requirements_are_judged_by_what_was_measured(summary: ModuleType):
    found = [(one["found"], one["limit"], one["reached"]) for one in summary.judged(EVERYTHING)]
    assert found == [
        (0.15, 0.2, True),  # 2.3 µs against the median of 2.0
        (1.1, 1.2, True),
        (0.8, 1.0, True),  # 4,419 of 1.5 * 3,000 + 1,024 MB
        (1.5, 1.2, False),
        (1.086, 1.0, False),
        (1.2, 1.3, True),  # 6 against 5 µs a row
    ]


def test_what_was_not_measured_is_not_judged(summary: ModuleType):
    assert (
        summary.judged(
            sections(runs=EVERYTHING["runs"]["points"], sizes=EVERYTHING["sizes"]["points"][:1])
        )
        == []
    )


def test_tables_and_verdicts_show_every_point(summary: ModuleType):
    found = {"sections": EVERYTHING, "judged": summary.judged(EVERYTHING)}
    text = summary.page(found)
    assert "| 1,000,000, in a file | 50 | 45 | 1.0 | 0.5 | 3,000 | 6,000 | 300 | 100 |" in text
    assert text.count("**missed**") == 2
    assert all(
        len(row.split("|")) == len(text.split("\n\n")[1].splitlines()[0].split("|"))
        for row in text.split("\n\n")[1].splitlines()
    )


def test_of_several_measurements_the_middle_time_counts_and_the_most_memory(summary: ModuleType):
    lines = [
        line("clients", ms_per_round=ms, range=[ms - 1, ms + 1], peak_megabytes=mb)
        for ms, mb in ((9.0, 400), (4.0, 410), (5.0, 390))
    ]
    found = summary.middle(lines)
    assert (found["ms_per_round"], found["range"], found["peak_megabytes"]) == (
        5.0,
        [3.0, 10.0],
        410,
    )
    assert found["turns"] == [9.0, 4.0, 5.0]


def test_points_of_a_section_take_turns(growth: ModuleType, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, int]] = []

    def made_up(point: Any, folder: Path) -> dict[str, Any]:
        asked.append((point.section, point.cohort))
        return line(**point._asdict())

    monkeypatch.setattr(growth, "elsewhere", made_up)
    found = growth.measured(
        [growth.Point("cohort", 40, n) for n in (4, 40)] + [growth.Point("runs", 40, 4)], 0, turns=2
    )
    assert asked == [*[("cohort", 4), ("cohort", 40)] * 2, *[("runs", 4)] * 2]
    assert {name: len(section["points"]) for name, section in found.items()} == {
        "cohort": 2,
        "runs": 1,
    }


def test_models_grow_by_powers_of_ten_and_every_section_has_several_points(
    growth: ModuleType, summary: ModuleType
):
    for quick in (False, True):
        points = growth.points(quick)
        assert list(dict.fromkeys(point.section for point in points)) == list(summary.SECTIONS)
        assert min(sum(point.section == name for point in points) for name in summary.SECTIONS) >= 2
    widths = [point.hidden for point in growth.points(False) if point.section == "model"]
    np.testing.assert_allclose([71 * h + 10 for h in widths], [1e3, 1e4, 1e5, 1e6, 1e7], rtol=0.01)


def clock(block: int, before: float, each: float, after: float) -> Any:
    """A trainer whose rounds take `each` seconds, in blocks; its first block also takes `before`,
    and the end `after`.
    """

    def train(rounds: int) -> tuple[np.ndarray, list[tuple[int, float]]]:
        marks = [(0, 5.0)]
        for done in (*range(block, rounds, block), rounds):
            marks.append((done, 5.0 + before + each * done))
        return np.zeros((rounds, 1), int), [*marks, (rounds, marks[-1][1] + after)]

    return train


@pytest.mark.parametrize("block", [10, 1000], ids=["several blocks", "one block"])
def test_a_rounds_time_leaves_out_what_comes_before_and_after(growth: ModuleType, block: int):
    timed = growth.pace(clock(block, before=3.0, each=0.25, after=7.0), 100)
    np.testing.assert_allclose(timed.seconds, 0.25)
    assert timed.first == pytest.approx(3.0 + 0.25 * min(block, 100))
    assert timed.cohort.shape == (100, 1)


@pytest.mark.further
def test_a_point_is_measured_also_with_its_features_in_a_file(growth: ModuleType, tmp_path: Path):
    point = growth.Point("clients", 60, 20, mapped=True, steps=300)
    growth.keep(growth.drawn(point), tmp_path)
    own, there = growth.drawn(point), growth.mapped(point, tmp_path)
    assert isinstance(there.x, np.memmap)
    np.testing.assert_array_equal(own.x, there.x)
    for name in SPLITS:
        np.testing.assert_array_equal(own.split(name).rows, there.split(name).rows)
    gc.collect()  # the system may take memory that other tests left between two looks
    found = growth.measure(point, tmp_path)
    assert found["rounds"] == round(300 / (20 * (-(-own.train.counts // 10)).mean()))
    # of so few rounds, more noise than time
    assert found["range"][0] <= found["ms_per_round"] <= found["range"][1]
    assert found["us_per_step"] == pytest.approx(
        1e3 * found["ms_per_round"] / found["steps_per_round"], rel=0.01, abs=0.01
    )
    assert found["anonymous_megabytes"] + found["file_megabytes"] >= 0.5 * found["ready_megabytes"]
    assert found["raw_megabytes"] == round((own.x.nbytes + own.y.nbytes) / 2**20, 1)
    assert found["parameters"] == 610


def test_sections_can_be_taken_one_at_a_time(
    growth: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    def made_up(point: Any, folder: Path) -> dict[str, Any]:
        return line(**point._asdict(), us_per_step=4.0 if point.cohort == 40 else 2.0)

    monkeypatch.setattr(growth, "elsewhere", made_up)
    kept = tmp_path / "growth.json"
    assert growth.main(["--quick", "--patience", "0", "--only", "runs", "--json", str(kept)]) == 0
    assert growth.main(["--quick", "--patience", "0", "--only", "cohort", "--json", str(kept)]) == 0
    found = json.loads(kept.read_text())
    assert list(found["sections"]) == ["cohort", "runs"]
    assert [one["reached"] for one in found["judged"]] == [False]
    assert found["command"] == "python benchmarks/growth.py --quick"
    assert {"date", "machine", "versions"} <= found.keys()
    assert "**missed**" in capsys.readouterr().out
    monkeypatch.setattr(
        growth, "points", lambda quick: [growth.Point("cohort", 40, n) for n in (4, 40)]
    )
    assert growth.main(["--patience", "0", "--only", "cohort"]) == 1


def test_an_unknown_section_is_refused(growth: ModuleType, capsys: Any):
    with pytest.raises(SystemExit):
        growth.main(["--only", "cohort,speed"])
    assert "got speed" in capsys.readouterr().err


def test_every_picture_is_a_whole_chart(load: Any):
    drawn = load("growth_chart").pictures({"sections": EVERYTHING})
    assert list(drawn) == [
        f"growth-{name}" for name in ("cohort", "clients", "memory", "model", "runs")
    ]
    for chart in drawn.values():
        spec = chart.to_dict()  # checked by Altair
        assert len(spec["layer"]) == 3
    assert "1,000,000: 33" in drawn["growth-clients"].to_dict()["description"]
