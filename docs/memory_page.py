"""The generated part of benchmarks/README.md, from the results that benchmarks/memory.py kept."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))  # scripts, not a package

import memory_table

KEPT = Path(memory_table.__file__).parent / "results" / "memory.json"


def part() -> str:
    """The table and where it was measured; a word where nothing was yet."""
    return memory_table.table(json.loads(KEPT.read_text())) if KEPT.exists() else "Nothing is measured yet."
