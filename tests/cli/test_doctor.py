"""`evenly doctor` reports versions, problems and remedies, and its self-check can fail."""

import json
import tomllib
from pathlib import Path

import jax
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

import evenly
from evenly.cli import app
from evenly.cli import doctor as checkup
from evenly.datasets import DATASETS
from tests.oracles.run import Settings, run

ROOT = Path(__file__).parents[2]
PASSED = {"expected": 1.0, "found": 1.0, "passed": True, "error": None}
CPU = [{"platform": "cpu", "kind": "cpu", "memory": None}]


def facts(**changes):
    tested = {name: f"{oldest}.2" for name, (oldest, *_) in checkup.TESTED.items()}
    usual = {
        "versions": {**tested, **changes.pop("versions", {})},
        "optional": [],
        "devices": CPU,
        "nvidia": False,
        "data": {"exists": True},
        "self_check": PASSED,
    }
    return {**usual, **changes}


def doctor(*arguments, code=0):
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def test_a_healthy_machine_has_no_findings():
    assert checkup.findings(facts(), {}) == ([], [])
    assert checkup.findings(facts(versions={"jax": "0.11.1", "jaxlib": "0.11.0"}), {}) == ([], [])


@pytest.mark.parametrize(
    "changes, environment, problem, warning",
    [
        (
            {"versions": {"jax": "0.9.2", "jaxlib": "0.9.2"}},
            {},
            "jax 0.9.2 is too old: evenly needs 0.10 or 0.11",
            "",
        ),
        (
            {
                "versions": {"python": "3.14.0"},
                "optional": [{"name": "torch", "version": "3.0rc1"}],
            },
            {},
            "",
            "was tested with: python 3.14.0 (tested: 3.11 to 3.13), torch 3.0rc1 (tested: 2.11 to"
            " 2.13).",
        ),
        (
            {"versions": {"numpy": "2.3.9"}, "optional": [{"name": "ray", "version": None}]},
            {},
            "",
            f"Older than evenly {evenly.__version__} was tested with: numpy 2.3.9 (tested: 2.4).",
        ),
        (
            {"versions": {"jax": "0.12.0", "jaxlib": "0.12.0"}},
            {},
            "",
            f"Newer than evenly {evenly.__version__} was tested with: jax 0.12.0 (tested: 0.10 to"
            " 0.11), jaxlib 0.12.0 (tested: 0.10 to 0.11). If something fails, install the tested"
            " versions.",
        ),
        (
            {"versions": {"jaxlib": "0.11.0"}},
            {},
            "jax 0.10.2 and jaxlib 0.11.0 do not belong together",
            "",
        ),
        ({"versions": {"optuna": None}}, {}, "optuna is not installed", ""),
        ({"nvidia": True}, {}, "", "There is an NVIDIA GPU, but JAX uses the CPU only"),
        ({}, {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}, "", "JAX_DISABLE_MOST_OPTIMIZATIONS is set"),
        (
            {"data": {"exists": False}},
            {"EVENLY_DATA": "/nowhere"},
            "",
            "EVENLY_DATA is /nowhere, which is not a folder",
        ),
        (
            {"self_check": {**PASSED, "found": 1.5, "passed": False}},
            {},
            "must be 1, but its length was 1.5",
            "",
        ),
        (
            {"self_check": {**PASSED, "found": None, "passed": False, "error": "ValueError: no"}},
            {},
            "but ValueError: no",
            "",
        ),
    ],
)
def test_each_problem_is_reported(changes, environment, problem, warning):
    found = checkup.findings(facts(**changes), environment)
    assert [len(found.problems), len(found.warnings)] == [bool(problem), bool(warning)]
    assert problem in "".join(found.problems)
    assert warning in "".join(found.warnings)


def test_the_tested_versions_are_those_that_the_tests_run_with():
    """constraints.txt pins what is installed for the tests. JAX 0.11 is tried on GPUs and with
    PyTorch 2.11, and several versions of Flower by `make versions`.
    """
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(name): version for name, version in (x.split("==") for x in lines)}
    for name, versions in checkup.TESTED.items():
        if name != "python":
            assert f"{'.'.join(pinned[canonicalize_name(name)].split('.')[:2])}" in versions
            assert len(versions) == 1 or name in ("jax", "jaxlib", "flwr", "torch")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert {canonicalize_name(name) for name in checkup.REQUIRED} == needed | {"jaxlib"}
    named = [line for line in project["classifiers"] if "Python :: " in line]
    assert named == [f"Programming Language :: Python :: {one}" for one in checkup.TESTED["python"]]


def test_the_known_length_is_that_of_the_papers_algorithm_in_float64():
    algorithm = evenly.algorithm(checkup.SELF_CHECK)
    expected = run(
        evenly.synthetic(clients=8), algorithm, Settings("q-fedavg", rate=0.03, q=1.0), 5
    )
    assert (expected.model**2).sum() ** 0.5 == pytest.approx(checkup.KNOWN_LENGTH, rel=1e-12)


def test_it_prints_everything_and_passes_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("EVENLY_DATA", str(tmp_path))
    found = json.loads(doctor("--json"))
    assert found["problems"] == []
    assert found["self_check"]["passed"]
    assert found["self_check"]["found"] == pytest.approx(found["self_check"]["expected"], rel=1e-5)
    assert found["versions"]["evenly"] == evenly.__version__
    assert found["tested"]["jax"] == ["0.10", "0.11"]
    assert not [one for one in found["warnings"] if "was tested with" in one]
    assert [one["name"] for one in found["data"]["sets"]] == list(DATASETS)
    assert found["data"]["folder"] == str(tmp_path)
    ways = {one["name"]: (one["files"], one["get"]) for one in found["data"]["sets"]}
    assert ways["synthetic"] == ("none needed", None)
    assert ways["adult"] == ("fetch", "evenly data fetch adult")
    assert ways["femnist"] == ("by hand", "evenly data describe femnist")


def test_a_wrong_training_result_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkup, "SELF_CHECK", checkup.SELF_CHECK.replace("q=1", "q=2"))
    printed = doctor(code=1)
    assert "FAILED: length of the model" in printed
    assert "problem: The self-check failed" in printed
    assert "Everything that training needs is here" not in printed


def test_a_jax_that_cannot_start_is_the_only_finding(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkup, "jax_failure", lambda: "RuntimeError: no backend")
    printed = doctor(code=1)
    assert "problem: JAX does not work (RuntimeError: no backend)." in printed
    assert f"versions that evenly {evenly.__version__} was tested with" in printed
    assert "python 3.11 to 3.13, jax 0.10 to 0.11" in printed


def test_missing_optional_packages_are_listed_with_their_purpose(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkup, "version_of", lambda name: None if name == "ray" else "9.9")
    monkeypatch.setattr(checkup, "jax_failure", lambda: "not looked at")
    assert (
        "ray is not here: pip install 'evenly[ray]' for spreading an experiment over machines"
        in doctor(code=1)
    )


def test_the_compile_cache_is_measured(tmp_path: Path):
    (tmp_path / "program").write_bytes(b"12345")
    before = jax.config.values["jax_compilation_cache_dir"]
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert checkup.compile_cache() == {"folder": str(tmp_path), "bytes": 5}
        jax.config.update("jax_compilation_cache_dir", None)
        assert checkup.compile_cache() == {"folder": None, "bytes": 0}
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"evenly {evenly.__version__}\n")
