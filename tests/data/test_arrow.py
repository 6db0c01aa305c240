"""Tables of Arrow, Polars and Hugging Face, and folders of Parquet files: the same federation as
that of a pandas table, to the bit.
"""

import io
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import evenly
from evenly import Federation
from evenly.data import arrow
from evenly.data.encoding import TableColumn
from evenly.datasets.load import is_table, load, table_source

ROWS = 900
ROLES = {"client": "site", "label": "ill", "sensitive": "sex"}


def people() -> pd.DataFrame:
    """Numbers and words, whole numbers that floats cannot hold, and gaps in all kinds of them."""
    draw = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "site": draw.choice(["north", "south", "west"], ROWS),
            "ill": draw.choice(["no", "yes"], ROWS),
            "sex": draw.choice(["f", "m"], ROWS),
            "age": draw.integers(20, 80, ROWS),
            "weight": draw.normal(70, 9, ROWS),
            "ward": pd.Series(draw.choice(["heart", "lung", "skin"], ROWS), dtype=object),
            "insured": draw.random(ROWS) < 0.7,
        }
    )
    frame.loc[::7, "ward"] = None
    frame.loc[::11, "weight"] = None
    frame["visits"] = pd.array([None if i % 13 == 0 else i % 17 for i in range(ROWS)], "Int64")
    return frame


def as_arrow() -> pa.Table:
    return pa.Table.from_pandas(people(), preserve_index=False)


def write_folder(folder: Path, files: int = 4) -> Path:
    folder.mkdir(exist_ok=True)
    size = ROWS // files
    for i in range(files):
        rows = as_arrow().slice(i * size, size if i < files - 1 else None)
        pq.write_table(rows, folder / f"part-{i}.parquet")
    return folder


def assert_same(one: Federation, other: Federation) -> None:
    assert one.encoder is not None
    assert other.encoder is not None
    assert repr(one.encoder) == repr(other.encoder)
    assert (one.names, one.labels, one.attributes) == (other.names, other.labels, other.attributes)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def polars_frame() -> Any:
    return pytest.importorskip("polars", reason="Polars is optional").from_pandas(people())


def hugging_face() -> Any:
    library = pytest.importorskip("datasets", reason="Hugging Face's datasets is optional")
    return library.Dataset.from_pandas(people())


DOORS = {
    "arrow table": as_arrow,
    "chunked arrow table": lambda: pa.concat_tables(
        [as_arrow().slice(0, 100), as_arrow().slice(100)]
    ),
    "record batches": lambda: as_arrow().to_reader(100),
    "arrow dataset": lambda: ds.dataset(as_arrow()),
    "polars": polars_frame,
    "lazy polars": lambda: polars_frame().lazy(),
    "hugging face": hugging_face,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_table_of_any_library_gives_the_federation_of_a_pandas_table(door: str):
    assert_same(
        Federation.from_frame(people(), **ROLES), Federation.from_frame(DOORS[door](), **ROLES)
    )


@pytest.mark.parametrize("mapped", [False, True])
def test_a_folder_gives_the_federation_of_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool
):
    monkeypatch.setattr(arrow, "PIECE_ROWS", 70)  # pieces that do not end where files end
    monkeypatch.setattr(arrow, "MAPPED_BYTES", 1 if mapped else 2**26)
    whole = Federation.from_frame(people(), **ROLES)
    folder = write_folder(tmp_path / "people")
    for path in (folder, str(folder)):
        found = Federation.from_frame(path, **ROLES)
        assert isinstance(found.x, np.memmap) == mapped
        assert_same(whole, found)
    if mapped:
        assert not found.x.flags.writeable


def test_names_of_folders_are_a_column(tmp_path: Path):
    for site, rows in people().groupby("site"):
        (tmp_path / f"site={site}").mkdir()
        rows.drop(columns="site").to_parquet(tmp_path / f"site={site}" / "rows.parquet")
    federation = Federation.from_frame(tmp_path, **ROLES, drop="__index_level_0__")
    assert federation.names == ("north", "south", "west")
    counts = people()["site"].value_counts()
    rows = sum(federation.split(name).counts for name in ("train", "valid", "test"))
    assert rows.tolist() == [counts[name] for name in federation.names]


@pytest.mark.parametrize(
    "first, clients, kind",
    [("007", ("007", "12", "7"), "string"), ("8", ("7", "8", "12"), "int32")],
)
def test_folders_whose_names_are_the_same_number_are_two_clients(
    tmp_path: Path, first: str, clients: tuple[str, ...], kind: str
):
    folder = tmp_path / "site=1"  # not part of the table
    for site, year in ((first, 2023), ("7", 2024), ("12", 2024)):
        (folder / f"site={site}" / f"year={year}").mkdir(parents=True)
        table = pa.table({"ill": [0, 1] * 5, "age": range(10)})
        pq.write_table(table, folder / f"site={site}" / f"year={year}" / "rows.parquet")
    types = {field.name: str(field.type) for field in arrow.parquet_table(folder).source.schema}
    assert (types["site"], types["year"]) == (kind, "int32")
    federation = Federation.from_frame(folder, client="site", label="ill")
    assert sorted(federation.names) == sorted(clients)
    assert federation.x.shape == (30, 2)


def test_the_name_of_a_folder_is_not_that_of_a_shorter_column(tmp_path: Path):
    """`site=south` is no column `e`; Arrow would fill it with missing values."""
    for site, columns in {"north": {"y": [0, 1], "e": [1.0, 2.0]}, "south": {"y": [0, 1]}}.items():
        (tmp_path / f"site={site}").mkdir()
        pq.write_table(pa.table(columns), tmp_path / f"site={site}" / "rows.parquet")
    with pytest.raises(ValueError, match="has 'e' not at all"):
        arrow.parquet_table(tmp_path)


@pytest.mark.parametrize(
    "north, south, joined",
    [
        ([1, 2], [1.5], [1.0, 2.0, 1.5]),
        ([None, None], ["a"], [None, None, "a"]),
        ([7, 8], ["007"], "at 'south' it holds string, and before that int64"),
        ([True], [2], "at 'south' it holds int64, and before that bool"),
    ],
)
def test_tables_of_clients_are_joined_without_changing_a_value(
    north: list[Any], south: list[Any], joined: Any
):
    own = {"north": north, "south": south}
    tables = {name: arrow.as_table(pa.table({"x": values})) for name, values in own.items()}
    if isinstance(joined, str):
        with pytest.raises(ValueError, match=joined):
            arrow.joined_tables(tables, "client")
        return
    found = arrow.joined_tables(tables, "client").source
    assert found["x"].to_pylist() == joined
    assert found["client"].to_pylist() == ["north"] * len(north) + ["south"] * len(south)
    tables["south"] = arrow.as_table(pa.table({"z": south}))
    with pytest.raises(ValueError, match="only one of 'north' and 'south' has 'x', 'z'"):
        arrow.joined_tables(tables, "client")


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda t: t.drop_columns("age"), "part-9.parquet has 'age' not at all"),
        (lambda t: t.append_column("new", t["age"]), "only part-9.parquet has 'new'"),
        (
            lambda t: t.set_column(3, "age", t["age"].cast(pa.float64())),
            "part-9.parquet has 'age' as double, and the first file as int64",
        ),
    ],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path: Path, change: Any, words: str):
    folder = write_folder(tmp_path / "people")
    pq.write_table(change(as_arrow()), folder / "part-9.parquet")
    with pytest.raises(ValueError, match=words):
        Federation.from_frame(folder, **ROLES)


def test_folders_without_tables_and_damaged_files_are_refused(tmp_path: Path):
    (tmp_path / "_part.parquet").write_text("left by a writer")
    with pytest.raises(ValueError, match=r"must be a \.parquet file or a folder of them"):
        Federation.from_frame(tmp_path, **ROLES)
    assert not is_table(str(tmp_path))
    (tmp_path / "part.parquet").write_text("no Parquet")
    with pytest.raises(ValueError, match="could not be read as Parquet"):
        Federation.from_frame(tmp_path, **ROLES)
    with pytest.raises(ValueError, match="read other files first"):
        Federation.from_frame("people.csv", **ROLES)


@pytest.mark.parametrize("table", [lambda frame: frame, pa.Table.from_pandas])
def test_a_column_of_lists_is_named(table: Any):
    frame = people().assign(scans=[[1, 2]] * ROWS)
    with pytest.raises(ValueError, match=r"Column 'scans' must hold numbers or words"):
        table_source(arrow.as_table(table(frame)), client="site", label="ill")


def test_identifiers_and_quantities_are_refused_as_in_other_tables(tmp_path: Path):
    folder = write_folder(tmp_path / "people", files=1)
    table = as_arrow().append_column("patient_id", pa.array(range(ROWS)))
    pq.write_table(table, folder / "part-0.parquet")
    with pytest.raises(ValueError, match="'patient_id' looks like an identifier"):
        Federation.from_frame(folder, **ROLES)
    with pytest.raises(ValueError, match="seems to be a quantity"):
        Federation.from_frame(folder, client="site", label="age", drop="patient_id")


def test_a_plan_knows_the_content_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_folder(tmp_path / "people")
    monkeypatch.chdir(tmp_path)
    assert is_table("people")
    data = table_source("people", **ROLES)
    sides = dict(data["unprivileged"])  # of the split with seed 0
    whole = Federation.from_frame(people(), **ROLES, seed=5, unprivileged=sides)
    assert_same(load(data, 5), whole)
    pq.write_table(as_arrow(), folder / "part-3.parquet")
    with pytest.raises(ValueError, match="has changed"):
        load(data, 5)
    (tmp_path / "synthetic").mkdir()
    write_folder(tmp_path / "synthetic")
    assert not is_table("synthetic")  # the data set of this name
    assert is_table("./synthetic")


def test_a_comparison_takes_folders_and_arrow_tables_alike(tmp_path: Path):
    folder = write_folder(tmp_path / "people")
    settings = {**ROLES, "rounds": 3, "seeds": 2, "progress": False}
    tables = [evenly.compare(d, "fedavg", **settings).table() for d in (people(), as_arrow())]
    tables.append(evenly.compare(folder, "fedavg", **settings).table())
    for table in tables[1:]:
        pd.testing.assert_frame_equal(tables[0], table)


@pytest.mark.further
def test_mapped_features_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The benchmark with fewer rows, whose features are still large enough to be mapped."""
    benchmark = Path(__file__).parents[2] / "benchmarks" / "parquet_folder.py"
    out = tmp_path / "out.json"
    options = ["--rows", "700000", "--clients", "50", "--rounds", "1", "--json", str(out)]
    ended = subprocess.run(
        [sys.executable, str(benchmark), *options], capture_output=True, text=True, timeout=500
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(out.read_text())["lines"]["folder"]
    assert found["mapped"]
    assert (found["rows"], found["clients"]) == (700_000, 50)
    assert found["features"] == 26
    assert found["peak_megabytes"] < 2048


def test_the_kept_measurement_is_within_two_gibibytes():
    kept = Path(__file__).parents[2] / "benchmarks" / "results" / "parquet_folder.json"
    lines = json.loads(kept.read_text())["lines"]
    assert (lines["folder"]["rows"], lines["folder"]["clients"]) == (10_000_000, 1000)
    beyond = lines["folder"]["peak_megabytes"] - lines["program"]["peak_megabytes"]
    assert beyond < 2048


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_while_reading(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> str:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    Federation.from_frame(folder, **ROLES, **settings)
    return terminal.getvalue()


@pytest.mark.parametrize("settings", [{}, {"features": ["age", "ward"]}, {"drop": "age"}])
def test_a_folder_that_takes_long_shows_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
):
    folder = write_folder(tmp_path / "people")
    assert lines_while_reading(folder, monkeypatch, **settings) == ""  # it takes no two seconds
    monkeypatch.setattr(arrow, "PATIENCE", -1.0)
    monkeypatch.setattr(arrow, "PAUSE", -1.0)
    shown = lines_while_reading(folder, monkeypatch, **settings)
    shares = [int(share) for share in re.findall(r"Reading the table: (\d+)%, \d+ s left", shown)]
    assert shares == sorted(shares)
    assert shares[0] < 20
    assert shares[-1] == 100  # as many columns are read as were expected
    assert shares.count(100) == 1
    assert shown.endswith(f"\r{'':<60}\r")


def test_progress_is_not_written_to_files_or_by_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = write_folder(tmp_path / "people")
    monkeypatch.setattr(arrow, "PATIENCE", -1.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    thread = threading.Thread(target=Federation.from_frame, args=(folder,), kwargs=ROLES)
    thread.start()
    thread.join()
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    Federation.from_frame(folder, **ROLES)
    assert terminal.getvalue() == plain.getvalue() == ""


def test_categories_that_no_row_has_and_missing_ones():
    values = pd.Series(pd.Categorical(["b", None, "d", "b"], categories=["a", "b", "c", "d"]))
    column, inverse = TableColumn.of("x", values).distinct()
    assert column.values.tolist() == ["b", "d", None]
    assert inverse.tolist() == [0, 2, 1, 0]
    column, inverse = TableColumn.of("x", values[:0]).distinct()
    assert len(column.values) == len(inverse) == 0


def test_a_lazy_frame_is_recognised_without_resolving_its_columns():
    """Polars warns of it, and warnings are errors here."""
    assert arrow.is_frame(polars_frame().lazy())
