"""XLA's flags, and whether loops are compiled whole."""

import os
import subprocess
import sys

import jax
import pytest

from evenly import xla_flags
from evenly.simulate import program


@pytest.mark.parametrize(
    "given, expected",
    [
        (None, f"--xla_backend_extra_options={xla_flags.LOOPS}={xla_flags.MOST_BYTES}"),
        (
            "--xla_dump_to=x",
            (
                "--xla_dump_to=x"
                f" --xla_backend_extra_options={xla_flags.LOOPS}={xla_flags.MOST_BYTES}"
            ),
        ),
        ("--xla_backend_extra_options=mine=1", "--xla_backend_extra_options=mine=1"),
        ("flags.txt", "flags.txt"),  # a file of flags, which XLA reads instead
    ],
)
def test_flags_are_added_to_what_the_user_chose(
    monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str
):
    monkeypatch.delenv("XLA_FLAGS") if given is None else monkeypatch.setenv("XLA_FLAGS", given)
    xla_flags.set_flags()
    xla_flags.set_flags()
    assert os.environ["XLA_FLAGS"] == expected


LATE = """
import jax
{}
from evenly import xla_flags
xla_flags.set_flags()
from evenly.simulate import program
print(program.can_fuse_loops())
"""


@pytest.mark.parametrize("before, expected", [("", "True"), ("jax.devices()", "False")])
def test_flags_count_until_jax_has_used_a_device(before: str, expected: str):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", LATE.format(before)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected


def test_an_option_that_xla_does_not_know_is_done_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program, "WITHOUT_LIBRARY", {"xla_cpu_no_such_option": "1"})
    assert program.can_fuse_loops.__wrapped__() is False


def test_the_tests_train_with_whole_loops():
    assert program.can_fuse_loops()


def test_whoever_trains_has_the_flags_before_a_device_is_used():
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    code = (
        "import evenly.experiment.execute, jax; jax.devices(); from evenly.simulate import program;"
        " print(program.can_fuse_loops())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"


def test_a_gpu_starts_short_steps_as_graphs_unless_the_user_chose(monkeypatch: pytest.MonkeyPatch):
    graphs = program.graph_options.__wrapped__
    assert graphs() == {}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert graphs() == {"xla_gpu_graph_min_graph_size": 2}
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_graph_min_graph_size=7")
    assert graphs() == {}
