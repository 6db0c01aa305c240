"""Files are parsed again only after a change, those of one folder stay in memory, and their arrays
are read-only.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from evenly.datasets import acs_income
from evenly.datasets.acs_income import COLUMNS
from evenly.datasets.files import read_once
from tests.datasets.making import put


class Reader:
    """Counts how often each file is parsed."""

    def __init__(self) -> None:
        self.parsed: list[str] = []
        self.read = read_once(self._read)

    def _read(self, path: Path) -> np.ndarray:
        self.parsed.append(path.name)
        return np.array([float(word) for word in path.read_text().split()])


def test_a_file_is_parsed_once_until_it_changes(tmp_path: Path):
    reader, path = Reader(), tmp_path / "one.txt"
    path.write_text("1 2")
    assert reader.read(path) is reader.read(path)
    assert reader.parsed == ["one.txt"]
    path.write_text("3 4")
    os.utime(path, ns=(0, 1))  # also where two writes fall into the same tick of the clock
    assert reader.read(path).tolist() == [3, 4]
    assert reader.parsed == ["one.txt"] * 2


def test_only_files_of_one_folder_stay_in_memory(tmp_path: Path):
    reader = Reader()
    for folder in ("a", "b"):
        for name in ("one", "two"):
            put(tmp_path / folder / f"{folder}-{name}", b"1")
            reader.read(tmp_path / folder / f"{folder}-{name}")
    reader.read(tmp_path / "b" / "b-one")
    assert reader.parsed == ["a-one", "a-two", "b-one", "b-two"]
    reader.read(tmp_path / "a" / "a-one")
    assert reader.parsed[4:] == ["a-one"]
    reader.read(tmp_path / "b" / "b-one")
    assert reader.parsed[5:] == ["b-one"]


def test_shared_arrays_are_read_only(tmp_path: Path):
    path = tmp_path / "one.txt"
    path.write_text("1 2")
    with pytest.raises(ValueError, match="read-only"):
        Reader().read(path)[0] = 5
    words = read_once(lambda path: {"text": np.array(path.read_text().split())})(path)
    with pytest.raises(ValueError, match="read-only"):
        words["text"][0] = "5"


def test_a_changed_state_file_gives_its_new_rows(made: Path):
    person = "40.0,1.0,21.0,1.0,440.0,17.0,0.0,40.0,1.0,1.0,True\n"
    for people in (4, 7):
        put(made / "acs_income_2018/AL.csv", (",".join(COLUMNS) + "\n" + person * people).encode())
        assert len(acs_income(states="AL", train=1.0, valid=0.0).y) == people
