"""The script that makes mutants: what it changes, what it leaves alone, and which tests
it finds.
"""

import ast
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import pytest_collection_modifyitems
from tools import mutate

ROOT = Path(__file__).parents[2]

SOURCE = '''"""Adds 1 + 1."""


@made(1 + 1)
def f(a: int | None, b: list[0] = ()) -> "x < y":
    """Returns a - b."""
    if not a:
        raise ValueError("ü" + str(1))
    n = "é" * (a + b)  # é takes two bytes
    n += 3
    assert a < b
    return [x for x in n if x] if 0 < a <= b else f"{a - b}" and -max(a, 7)
'''
CHANGES = [
    "not a -> a", "'é' * (a + b) -> 'é' / (a + b)", "a + b -> a - b", "n += 3 -> n -= 3",
    "0 < a <= b -> 0 <= a <= b", "0 < a <= b -> 0 < a < b", "0 < a <= b -> not 0 < a <= b",
    "0 -> 1", "x -> not x", "f'{a - b}' and -max(a, 7) -> f'{a - b}' or -max(a, 7)",
    "-max(a, 7) -> max(a, 7)", "max -> min",
]  # fmt: skip


def test_every_operator_constant_and_condition_is_changed_once(tmp_path: Path):
    file = tmp_path / "one.py"
    file.write_text(SOURCE)
    found = list(mutate.mutants(tmp_path, file))
    assert sorted(one.change for one in found) == sorted(CHANGES)
    for one in found:
        ast.parse(one.source)
        assert one.source.splitlines()[one.line - 1] != SOURCE.splitlines()[one.line - 1]
        assert (
            sum(a != b for a, b in zip(one.source.splitlines(), SOURCE.splitlines(), strict=True))
            == 1
        )
    (bytes_kept,) = [one.source for one in found if one.change == "a + b -> a - b"]
    # positions are counted in bytes, texts in letters
    assert bytes_kept == SOURCE.replace("(a + b)", "((a - b))")


def test_one_becomes_zero_and_two(tmp_path: Path):
    file = tmp_path / "one.py"
    file.write_text("x = f(1, 1.0, True, 5)\n")
    assert [one.change for one in mutate.mutants(tmp_path, file)] == [
        "1 -> 2",
        "1 -> 0",
        "1.0 -> 2.0",
        "1.0 -> 0.0",
    ]


def test_the_same_seed_draws_the_same_mutants():
    first, again, other = (mutate.draw(ROOT, ["parts"], 9, seed) for seed in (3, 3, 4))
    assert first == again != other
    assert len({one.source for one in first}) == 9


def test_every_equivalent_mutant_is_still_there_and_has_a_reason():
    for entry in tomllib.loads((ROOT / "tools" / "equivalent.toml").read_text()).get("mutant", []):
        found = mutate.mutants(ROOT, ROOT / entry["file"])
        assert any((one.text, one.change) == (entry["text"], entry["change"]) for one in found), (
            f"{entry} has no place any more"
        )
        assert len(entry["reason"]) > 20


def test_mutants_that_are_known_to_be_equivalent_are_not_drawn(tmp_path: Path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "src" / "evenly" / "sums").mkdir(parents=True)
    (tmp_path / "src" / "evenly" / "sums" / "two.py").write_text("a = b + c\nd = e * f\n")
    entry = {"file": "src/evenly/sums/two.py", "text": "a = b + c", "change": "b + c -> b - c"}
    known = "".join(f'{key} = "{value}"\n' for key, value in entry.items())
    (tmp_path / "tools" / "equivalent.toml").write_text(f"[[mutant]]\n{known}")
    assert [one.change for one in mutate.draw(tmp_path, ["sums"], 9, 0)] == ["e * f -> e / f"]


def test_the_closest_tests_come_first(tmp_path: Path):
    files = {
        "src/evenly/sums/deep.py": "",
        "src/evenly/sums/__init__.py": "from evenly.sums.deep import x",
        "src/evenly/shown/late.py": "",
        "tests/helpers.py": "import evenly.sums",
        "tests/sums/test_deep.py": "from evenly.sums import x",
        "tests/sums/test_other.py": "from evenly.sums import deep",
        "tests/test_far.py": "from tests.helpers import y",
        "tests/test_nearer.py": "def test():\n    from evenly.sums.deep import x",
        "tests/test_without.py": "import numpy",
        "tests/browser/test_deep.py": "from evenly.sums.deep import x",
        "tests/shown/test_page.py": "import evenly",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    users = mutate.imports(tmp_path)
    expected = [
        "tests/sums/test_deep.py",
        "tests/sums/test_other.py",
        "tests/test_nearer.py",
        "tests/test_far.py",
    ]
    assert mutate.tests_of("src/evenly/sums/deep.py", tmp_path, users) == expected
    # imported by nobody: its folder's
    assert mutate.tests_of("src/evenly/shown/late.py", tmp_path, users) == [
        "tests/shown/test_page.py"
    ]


def test_tests_that_use_a_whole_package_follow_the_closest_ones():
    """They train with all methods, and so with modules that they do not import."""
    users = {"evenly.data.sensitive": {"tests.data.test_federation"}}
    for package, added in mutate.IN_USE.items():
        (first, *_) = sorted((ROOT / "src" / "evenly" / package).glob("[a-z]*.py"))
        found = mutate.tests_of(first.relative_to(ROOT).as_posix(), ROOT, users)
        assert set(added) < set(found)
        assert len(found) == len(set(found)) <= mutate.NEAREST + 1 + len(added)
    found = mutate.tests_of("src/evenly/data/sensitive.py", ROOT, users)
    assert "tests/data/test_federation.py" in found
    assert found[-1] == mutate.EXAMPLES, "the module has examples"


@pytest.mark.parametrize("profile, first", [("ci", "cli/test_cli"), ("mutants", "parts/test_a")])
def test_only_for_mutants_tests_keep_the_order_in_which_they_are_named(
    monkeypatch: pytest.MonkeyPatch, profile: str, first: str
):
    monkeypatch.setenv("HYPOTHESIS_PROFILE", profile)
    items = [SimpleNamespace(nodeid=f"tests/{n}.py::t") for n in ("parts/test_a", "cli/test_cli")]
    pytest_collection_modifyitems(cast(list[pytest.Item], items))
    assert items[0].nodeid == f"tests/{first}.py::t"


def test_a_mutant_is_killed_by_a_failing_test_and_lives_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "sums.py").write_text("def total(a, b):\n    return a + b\n")
    (tmp_path / "test_sums.py").write_text(
        "from sums import total\n\ndef test_zero():\n    assert total(3, 0) == 3\n\ndef"
        " test_one():\n    assert total(3, 1) == 4\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (mutant,) = mutate.mutants(tmp_path, tmp_path / "src" / "sums.py")
    killed = mutate.try_mutant(mutant, tmp_path, ["test_sums.py"], 60)
    assert (killed.killed, killed.by) == (True, "test_sums.py::test_one")
    assert "a + b" in (tmp_path / "src" / "sums.py").read_text()
    for status, words in ((0, ""), (None, "so far, when the time was up"), (5, "without tests")):
        monkeypatch.setattr(mutate, "run_tests", lambda *_, status=status: (status, ""))
        assert mutate.try_mutant(mutant, tmp_path, [], 60)[1:3] == (False, words)


def test_a_test_that_fails_without_the_change_kills_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one, other = (
        mutate.Outcome(cast(mutate.Mutant, None), True, f"tests/test_{name}.py::test[a b]", [], 1.0)
        for name in ("good", "broken")
    )
    monkeypatch.setattr(
        mutate, "run_tests", lambda *_: (1, f"..\nFAILED {other.by} - assert 0\n1 failed")
    )
    assert [outcome.killed for outcome in mutate.check_failures([one, other], tmp_path)] == [
        True,
        False,
    ]
