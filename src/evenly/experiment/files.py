"""Results as files: tidy rows in CSV and Parquet."""

from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from evenly.experiment.results import Comparison, tidy
from evenly.experiment.store import Store


def write_rows(store: Store, comparison: Comparison) -> list[dict[str, Any]]:
    """Write results.csv and results.parquet, and return their rows."""
    return write_tidy(store, list(tidy(comparison)))


def write_tidy(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for rows that are already there."""
    table = pa.Table.from_pylist(rows)
    store.write("results.parquet", lambda file: pyarrow.parquet.write_table(table, file))
    store.write("results.csv", lambda file: pyarrow.csv.write_csv(table, file))
    return rows


def write_csv(store: Store, name: str, rows: list[dict[str, Any]]) -> None:
    """A table of its own columns beside the tidy rows."""
    store.write(name, lambda file: pyarrow.csv.write_csv(pa.Table.from_pylist(rows), file))
