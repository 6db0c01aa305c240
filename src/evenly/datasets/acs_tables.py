"""Rows of ACSIncome from a state's file: FeDa4Fair's, or the Census Bureau's own with folktables' filters."""

import bz2
import csv
from pathlib import Path

import numpy as np

from evenly.datasets.files import DataError
from evenly.datasets.kept import read_once

COLUMNS: tuple[str, ...] = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P", "PINCP")
# The census's nine races as FeDa4Fair's five: White, Black, Asian, American Indian or Alaska Native, other or several.
RACES = np.array([0, 1, 2, 4, 4, 4, 3, 5, 5, 5], np.float32)
EMPTY = -1  # stands for a cell without a number, as in folktables


@read_once
def read_published(path: Path) -> np.ndarray:
    """The columns of FeDa4Fair's CSV file, packed or not, float32 [columns, rows]; income is 0 or 1."""
    content = path.read_bytes()
    header, _, body = (bz2.decompress(content) if path.suffix == ".bz2" else content).partition(b"\n")
    if header.strip().decode("utf-8", "replace").split(",") != list(COLUMNS):
        raise DataError(f"{path}: the header must be {','.join(COLUMNS)}, got {header[:100].decode('utf-8', 'replace')!r}.")
    cells = body.replace(b"True", b"1").replace(b"False", b"0").replace(b"\r", b"").strip().replace(b"\n", b",").split(b",")
    try:
        return np.array(cells, np.float32).reshape(-1, len(COLUMNS)).T
    except ValueError as error:
        raise DataError(f"{path}: every row must hold {len(COLUMNS)} numbers ({error}).") from None


@read_once
def read_census(path: Path) -> np.ndarray:
    """The same columns of the Census Bureau's file of a state's people, filtered as folktables does, float32 [columns, rows].

    Kept are people older than 16 with an income above 100 dollars, working hours and a sampling weight of at least 1.
    """
    used = (*COLUMNS, "PWGTP")
    with open(path, newline="", encoding="utf-8-sig") as stream:
        lines = csv.reader(stream)
        header = next(lines, [])
        absent = [name for name in used if name not in header]
        if absent:
            raise DataError(f"{path}: the header must name {', '.join(absent)}, and does not. It must be a 2018 file of people.")
        places = [header.index(name) for name in used]
        people = [[float(line[place] or EMPTY) for place in places] for line in lines if line]
    table: dict[str, np.ndarray] = dict(zip(used, np.array(people, np.float32).reshape(-1, len(used)).T, strict=True))
    kept = (table["AGEP"] > 16) & (table["PINCP"] > 100) & (table["WKHP"] > 0) & (table["PWGTP"] >= 1)
    table["PINCP"] = table["PINCP"] > 50_000
    table["MAR"] = np.where(table["MAR"] == 1, 1, 2)
    table["RAC1P"] = RACES[table["RAC1P"].astype(int)]
    return np.stack([table[name][kept] for name in COLUMNS]).astype(np.float32)
