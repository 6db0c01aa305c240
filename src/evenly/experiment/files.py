"""Results as files: tidy rows in CSV and Parquet."""

from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from evenly.experiment.results import Comparison, tidy
from evenly.experiment.store import Store
from evenly.writing import csv_cell


def write_rows(store: Store, comparison: Comparison) -> list[dict[str, Any]]:
    """Write results.csv and results.parquet, and return their rows."""
    return write_tidy(store, list(tidy(comparison)))


def write_tidy(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for rows that are already there."""
    store.write("results.parquet", lambda file: pyarrow.parquet.write_table(pa.Table.from_pylist(rows), file))
    write_csv(store, "results.csv", rows)
    return rows


def write_csv(store: Store, name: str, rows: list[dict[str, Any]]) -> None:
    """A table of its own columns beside the tidy rows."""
    store.write(name, lambda file: pyarrow.csv.write_csv(csv_table(rows), file))


def csv_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a CSV file has them: names that a spreadsheet would take for formulas begin with an apostrophe."""
    table = pa.Table.from_pylist(rows)
    for i, name in enumerate(table.column_names):
        column = table.column(i)
        if pa.types.is_string(column.type):
            words = column.unique().to_pylist()
            if words != (safe := [csv_cell(word) for word in words]):
                of = dict(zip(words, safe, strict=True))
                table = table.set_column(i, name, pa.array([of[word] for word in column.to_pylist()], column.type))
    return table.rename_columns([csv_cell(name) for name in table.column_names])
