"""Tables, charts and the HTML page of a comparison."""

from pathlib import Path

from evenly.experiment.comparison import Comparison
from evenly.report.values import Cell, Row, Table, results_table

__all__ = ["Cell", "Row", "Table", "results_table", "write_report"]


def write_report(comparison: Comparison, path: str | Path, *, least: int = 0) -> Path:
    """Write the report of a comparison as one self-contained HTML file.

    Args:
        comparison: The runs to compare, on the same clients.
        path: The file to write.
        least: Hide everything that rests on fewer people than this. 0 hides nothing.

    Returns:
        The path.

    Raises:
        ValueError: If there are no runs, if runs have different clients, or if `least` is negative.
    """
    # Altair is slow to import; a table on the terminal does not need it
    from evenly.report import page

    return page.write_report(comparison, path, least=least)
