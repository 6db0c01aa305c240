"""The reference describes every public name, with an example that is executed."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

from tests.test_python_interface import PACKAGES, WITH_EXAMPLES
from tools import command_line, reference
from tools.reference import MODULES, Entry

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC = [entry for module in MODULES for entry in reference.entries(module)]
CONSTANTS = [entry for entry in PUBLIC if entry.is_constant]


def name(entry: Entry) -> str:
    return f"{entry.module}.{entry.name}"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str):
    names = [entry.name for entry in reference.entries(module)]
    assert sorted(names) == sorted(importlib.import_module(module).__all__)


@pytest.mark.parametrize("entry", PUBLIC, ids=name)
def test_a_public_name_is_described_with_an_example(entry: Entry):
    assert entry.doc, "it has no docstring; a constant has it below its assignment"
    assert entry.has_example, "its docstring has no example"
    page = (DOCS / "reference" / reference.page_name(entry.module)).read_text()
    (part,) = re.findall(rf"^## {entry.heading}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert "```pycon\n>>> " in part
    assert "```py\n" in part or part.strip().startswith("Module ")
    assert f"](#{entry.anchor})" in page


@pytest.mark.parametrize("module", MODULES)
def test_no_two_names_of_a_page_share_an_anchor(module: str):
    anchors = [entry.anchor for entry in reference.entries(module)]
    assert len(anchors) == len(set(anchors))


@pytest.mark.parametrize("entry", CONSTANTS, ids=name)
def test_the_example_of_a_constant_holds(entry: Entry):
    names = dict(vars(importlib.import_module(entry.module)))
    test = doctest.DocTestParser().get_doctest(entry.doc, names, name(entry), None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize("entry", [e for e in PUBLIC if e not in CONSTANTS], ids=name)
def test_the_example_of_anything_else_is_run_with_its_module(entry: Entry):
    home = getattr(entry.value, "__module__", None) or entry.value.__name__
    assert home in {*PACKAGES, *WITH_EXAMPLES} or home.startswith("evenly.metrics.")


def test_sections_of_a_docstring_become_markdown():
    doc = "Do it.\n\nArgs:\n    a: One\n        line.\n    b: Two.\n\nExample:\n    >>> 1\n    1"
    assert reference.described(doc) == (
        "Do it.\n\n**Parameters**\n\n- `a`: One line.\n- `b`: Two.\n\n**Example**\n\n"
        "```pycon\n>>> 1\n1\n```"
    )


def test_every_command_and_option_is_on_the_page_of_the_command_line():
    page = command_line.page()
    assert "## evenly data fetch\n" in page
    assert "| `--rounds` integer | `2000` |" in page
    assert page == (DOCS / "reference" / "cli.md").read_text()
