"""The tutorials: every script runs, its page shows the script and what it prints today, and
the commands on the page run.
"""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evenly.api.results import KINDS
from evenly.cli import app
from tests.datasets.real_data import need
from tests.pages import blocks, commands
from tools import tutorials

FLOWER = "hospitals_with_flower"
DATA = {"group_fairness": "acs-income"}
EVERY = pytest.mark.parametrize("script", tutorials.scripts(), ids=lambda script: script.stem)


def executed(script: Path) -> object:
    """The script as a parameter, with the marks of its test."""
    marks = [pytest.mark.data] if script.stem in DATA else []
    return pytest.param(script, marks=marks, id=script.stem)


@pytest.mark.further
@pytest.mark.parametrize("script", [executed(script) for script in tutorials.scripts()])
def test_a_tutorial_shows_what_its_page_says(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if script.stem in DATA:
        need(DATA[script.stem])
    if script.stem == FLOWER:
        pytest.importorskip("flwr")
    outputs = tutorials.outputs_of(script, tmp_path)
    old = script.with_suffix(".md").read_text()
    assert tutorials.differences(old, tutorials.page(script, outputs)) == []
    images = {path.name for path in (tutorials.FOLDER / "images").glob(f"{script.stem}-*.svg")}
    assert {path.name for path in tmp_path.glob("images/*.svg")} == images
    monkeypatch.chdir(tmp_path / "work")  # with the files that the script has written
    for words in shell_commands(script):
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{' '.join(words)}\n{done.output}"


def shell_commands(script: Path) -> list[list[str]]:
    """The commands of a tutorial's page."""
    shells = [block for block in blocks(script.with_suffix(".md")) if block.kind == "shell"]
    return [words for block in shells for words in commands(block)]


@EVERY
def test_a_page_has_the_prose_and_the_code_of_its_script(script: Path):
    text = script.with_suffix(".md").read_text()
    assert tutorials.prose_and_code(text) == tutorials.page(script), (
        f"run `python -m tools.tutorials {script.stem}`"
    )


@EVERY
def test_a_tutorial_says_what_it_is_about_and_what_comes_next(script: Path):
    first, *_, last = tutorials.cells(script)
    assert first.text.startswith("# ")
    assert re.findall(r"^\*\*(.*?)\*\*", first.text, re.MULTILINE) == [
        "You will learn",
        "You need",
        "It takes",
    ]
    assert last.text.startswith("## Next") or "\n## Next\n" in last.text
    assert len(script.read_text().splitlines()) <= 250


def test_every_image_is_shown_and_small():
    shown = set()
    for script in tutorials.scripts():
        shown |= set(re.findall(r"\(images/(.*?)\)", script.with_suffix(".md").read_text()))
    images = list((tutorials.FOLDER / "images").iterdir())
    assert {path.name for path in images} == shown
    assert all(path.stat().st_size <= tutorials.MOST_BYTES for path in images)


def test_every_tutorial_is_listed():
    index = (tutorials.FOLDER / "index.md").read_text()
    listed = re.findall(r"^\| \[.*?\]\((\w+)\.md\)", index, re.MULTILINE)
    assert sorted(listed) == [script.stem for script in tutorials.scripts()]


def test_one_cell_of_25_lines_does_everything_that_results_offer():
    code = tutorials.tagged(tutorials.FOLDER / "first_comparison.py", "everything")
    assert "evenly.compare(" in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    used = ("table", "clients", "groups", "history", "plot", "latex", "report", "best", "model")
    assert [name for name in used if f"results.{name}(" not in code] == []
    assert [kind for kind in KINDS if f'"{kind}"' not in code] == []


def test_the_file_in_a_tutorial_has_the_rule_of_its_cell():
    text = (tutorials.FOLDER / "own_method.py").read_text()
    rules = re.findall(r"^@record\nclass Urgent.*?(?=\n\n\n)", text, re.MULTILINE | re.DOTALL)
    assert len(rules) == 2
    assert rules[0] == rules[1]


SCRIPT = """# %% [markdown]
# # Title
#
# Words.

# %% tags=["kept"]
import altair as alt
import pandas as pd

print("printed")
frame = pd.DataFrame({"name": ["a", "b"], "value": [1.25, None]})
frame

# %%
frame.set_index("name")["value"].rename("v")

# %%
alt.Chart(frame, title="A chart").mark_bar().encode(x="name:N", y="value:Q")

# %%
x = 3

# %%
"text"
"""


def test_what_cells_show(tmp_path: Path):
    script = tmp_path / "try.py"
    script.write_text(SCRIPT)
    first, second, *_ = tutorials.cells(script)
    assert (first.is_code, first.text) == (False, "# Title\n\nWords.")
    assert (second.is_code, second.line, second.tags) == (True, 7, ("kept",))
    assert tutorials.tagged(script, "kept") == second.text
    outputs = tutorials.outputs_of(script, tmp_path / "out")
    assert outputs == [
        "```text\nprinted\n```\n\n"
        "| name | value |\n| --- | ---: |\n| a | 1.25 |\n| b | NaN |",
        "| name | v |\n| --- | ---: |\n| a | 1.25 |\n| b | NaN |",
        "![A chart](images/try-1.svg)",
        "",
        "```text\n'text'\n```",
    ]  # fmt: skip
    assert "<svg" in (tmp_path / "out" / "images" / "try-1.svg").read_text()
    page = tutorials.page(script, outputs)
    assert page.startswith("# Title\n\nWords.\n\n<!-- generated from try.py")
    assert tutorials.prose_and_code(page) == tutorials.page(script)


def test_a_script_that_fails_names_its_line(tmp_path: Path):
    script = tmp_path / "try.py"
    script.write_text("# %% [markdown]\n# # Title\n\n# %%\nx = 1\ny = x / 0\n")
    with pytest.raises(RuntimeError, match=r"(?s)try.py failed.*line 6.*ZeroDivisionError"):
        tutorials.outputs_of(script, tmp_path / "out")


@pytest.mark.parametrize(
    ("new", "alike"),
    [
        ("accuracy 67.8 ± 1.2 of 6,000 rows", True),
        ("accuracy   66.9 ± 1.3 of 6,010 rows", True),
        ("accuracy 65.0 ± 1.2 of 6,000 rows", False),
        ("accuracy 67.8 ± 1.4 of 6,000 rows", False),
        ("accuracy 67.8 ± 1.2 of 6,000 people", False),
    ],
)
def test_numbers_may_differ_a_little(new: str, alike: bool):
    pages = [
        f"# Title\n\n{tutorials.BEGIN}\n\n{line}\n\n{tutorials.END}\n\nEnd.\n"
        for line in ("accuracy 67.8 ± 1.2 of 6,000 rows", new)
    ]
    assert (tutorials.differences(*pages) == []) is alike
