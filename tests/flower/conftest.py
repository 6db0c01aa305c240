"""Flower collects garbage for every array that it turns into NumPy: with all that the tests keep in
memory, a second each time.
"""

import gc

import pytest


@pytest.fixture(autouse=True)
def _no_collection_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
