"""Tables, charts and the HTML page of a comparison."""

from pathlib import Path

from evenly.experiment.comparison import Comparison
from evenly.report.values import Cell, Row, Table, results_table

__all__ = ["Cell", "Row", "Table", "results_table", "write_report"]


def write_report(comparison: Comparison, path: str | Path, *, least: int = 0) -> Path:
    """Write the report of a comparison as one self-contained HTML file; what rests on fewer than `least` people is hidden."""
    from evenly.report import page  # Altair is slow to import; a table on the terminal does not need it

    return page.write_report(comparison, path, least=least)
