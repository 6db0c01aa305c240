"""The end of a command: tables for people, JSON for machines, and where everything is."""

import json
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console


def finish(folder: Path, rows: list[dict[str, Any]], as_json: bool, *tables: Any, extra: dict[str, Any] | None = None) -> None:
    """Show the tables, say where everything is and what it took."""
    from evenly.experiment.folder import read_record

    console = Console(stderr=as_json)
    for table in tables:
        console.print(table)
    report = folder / "report.html"
    if as_json:
        print_json(rows, {"report": str(report), **(extra or {})})
    console.print(f"Results: {folder / 'results.csv'}\nReport:  {report}", soft_wrap=True, highlight=False)
    if (known := read_record(folder)) and known.seconds:
        console.print(f"Time:    {known.seconds:.1f} s, of which {known.compiling:.1f} s compiling", highlight=False)


def print_json(rows: list[dict[str, Any]], rest: dict[str, Any]) -> None:
    """Rows for machines, and what else there is to say."""
    plain = [{**row, "value": row["value"] if isfinite(row["value"]) else None} for row in rows]  # JSON has no NaN
    print(json.dumps({"schema": 1, "rows": plain, **rest}))
