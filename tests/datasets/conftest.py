from pathlib import Path

import pytest

from evenly.datasets import files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder."""
    monkeypatch.setenv("EVENLY_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder for small files in a published format: their checksums are not the
    published ones and not checked.
    """
    monkeypatch.setattr(files, "check", files.locate)
    return folder
