"""What was compiled side by side, or inside another, counts once; and a run's record says how much
it was.
"""

import time
from pathlib import Path

import jax
import pytest

from evenly.experiment import folder
from evenly.simulate import program_cache

COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.mark.parametrize(
    "told, expected",
    [
        ([], 0),
        ([(10, 3)], 3),
        ([(10, 3), (12, 3)], 5),  # from 7 to 10 and from 9 to 12
        ([(9, 1), (10, 3)], 3),  # one inside the other
        ([(3, 2), (10, 3)], 3),  # the first ended before we looked
        ([(6, 2), (10, 3)], 4),  # half of the first did
    ],
)
def test_seconds_in_which_something_was_compiled(
    monkeypatch: pytest.MonkeyPatch, told: list[tuple[float, float]], expected: float
):
    monkeypatch.setattr(program_cache, "_spans", [])
    for end, seconds in told:
        monkeypatch.setattr(program_cache.time, "monotonic", lambda end=end: end)
        program_cache._note(COMPILED, seconds)
        program_cache._note("/jax/something/else", 100.0)
    assert program_cache.compile_seconds(since=5.0) == expected


def test_jax_tells(monkeypatch: pytest.MonkeyPatch):
    program_cache.record_compile_times()
    began = time.monotonic()
    jax.jit(lambda x: x * 5 - began)(1.0)
    assert 0 < program_cache.compile_seconds(began) < time.monotonic() - began + 0.01


def test_the_record_adds_it_up(tmp_path: Path):
    folder.add_training(tmp_path, 10.0, compiling=2.0)
    folder.add_training(tmp_path, 5.0, compiling=1.5)
    known = folder.read_record(tmp_path)
    assert known
    assert (known.seconds, known.compiling) == (15.0, 3.5)
