"""XLA's flags, and whether loops are compiled whole."""

import os
import subprocess
import sys

import pytest

from evenly import compiling


@pytest.mark.parametrize(
    "given, expected",
    [
        (None, f"--xla_backend_extra_options={compiling.LOOPS}={compiling.MOST_BYTES}"),
        ("--xla_dump_to=x", f"--xla_dump_to=x --xla_backend_extra_options={compiling.LOOPS}={compiling.MOST_BYTES}"),
        ("--xla_backend_extra_options=mine=1", "--xla_backend_extra_options=mine=1"),
    ],
)
def test_flags_are_added_to_what_the_user_chose(monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str):
    monkeypatch.delenv("XLA_FLAGS") if given is None else monkeypatch.setenv("XLA_FLAGS", given)
    compiling.set_flags()
    compiling.set_flags()
    assert os.environ["XLA_FLAGS"] == expected


LATE = """
import jax
{}
from evenly import compiling
compiling.set_flags()
print(compiling.whole_loops())
"""


@pytest.mark.parametrize("before, expected", [("", "True"), ("jax.devices()", "False")])
def test_flags_count_until_jax_has_used_a_device(before: str, expected: str):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", LATE.format(before)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_an_option_that_xla_does_not_know_is_done_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiling, "WITHOUT_LIBRARY", {"xla_cpu_no_such_option": "1"})
    assert compiling.whole_loops.__wrapped__() is False


def test_the_tests_train_with_whole_loops():
    assert compiling.whole_loops()
