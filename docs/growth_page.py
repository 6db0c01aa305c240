"""The generated part and the pictures of docs/growth.md, from the results that benchmarks/growth.py kept."""

import json
import sys
from pathlib import Path
from typing import Any

import altair as alt

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))  # scripts, not a package

import growth_chart
import growth_summary

KEPT = Path(growth_summary.__file__).parent / "results" / "growth.json"


def part() -> str:
    """The requirements first, then every section; a word where nothing was measured yet."""
    return growth_summary.document(_kept()) if KEPT.exists() else "Nothing is measured yet."


def pictures() -> dict[str, alt.LayerChart]:
    """Charts by the names of their files."""
    return growth_chart.pictures(_kept()) if KEPT.exists() else {}


def _kept() -> dict[str, Any]:
    return json.loads(KEPT.read_text())
