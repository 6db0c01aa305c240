"""The generated part of docs/where-the-time-goes.md, from the results that benchmarks/where_time_goes.py kept."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))  # scripts, not a package

import where_time_table

KEPT = Path(where_time_table.__file__).parent / "results" / "where_time_goes.json"


def part() -> str:
    """The table and where it was measured; a word where nothing was yet."""
    return where_time_table.document(json.loads(KEPT.read_text())) if KEPT.exists() else "Nothing is measured yet."
