"""Every command and every piece of Python in the README and the documentation is tried, in the
order of its page. Tutorials are the exception: tests/test_tutorials.py runs the scripts that their
pages are made from, and then the commands on the pages.

What happens to a command:

- run: `evenly` commands are executed in this process, in a folder that has `table.csv`,
  `predictions.csv`, `experiment.toml` and the files that the page itself shows. The only difference
  to what the page says: rounds, seeds and trials are cut (`SMALL`), in Python to 200 rounds. The
  slow tests run Python as it is written and compare what it prints with what the page says that it
  prints.
- planned: `reproduce` everywhere, and `compare` and `tune` on the pages of methods and results and
  on three that vary commands of the README and the start page (`PLANNED_PAGES`), go as far as the
  plan, with every method, setting, model and data set checked. Training them all takes minutes: the
  slow tests do it.
- parsed: `watch` serves until it is stopped, `data fetch` downloads, `flower up`, `audit` and
  `evaluate` start a federation, and `--on ray` needs a cluster; their own tests do that. Their
  options must exist. So must the targets of `make` and the scripts and options given to `python`.
- sessions (`>>>`) run as they are written, and must print what the page shows. They are small.
- Anything else (pip, ray, ...) must be marked on the page with a comment that says why it is not
  run (see tests/pages.py).
"""

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from evenly.cli import app
from evenly.datasets import DATASETS
from evenly.datasets.load import is_table
from evenly.experiment.config import packaged_experiments, paper_experiments, read_packaged
from tests.datasets.real_data import need
from tests.pages import PAGES, ROOT, Block, blocks, commands, inline_commands

SMALL = {"--rounds": "2", "--seeds": "1", "--trials": "2"}
PARSED = [
    ("watch",),
    ("data", "fetch"),
    ("flower", "up"),
    ("flower", "audit"),
    ("flower", "evaluate"),
]
PLANNED_PAGES = (
    "docs/algorithms/",
    "docs/results/",
    "docs/choose.md",
    "docs/data.md",
    "docs/plugins.md",
    "docs/tuning.md",
)
EXPERIMENT = """
title = "An experiment of one's own"
methods = ["fedavg", "q-fedavg(q=1)"]
rounds = 2
seeds = 1

[data]
name = "synthetic"
clients = 6
"""
# pages that everybody reads
FIRST_PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md"]
COMMAND: Any = typer.main.get_command(app)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registries: None) -> Path:
    """A folder with a user's files; what a page registers is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.Generator(np.random.Philox(3))
    n = 400
    people = {
        "hospital": draw.choice(["east", "north", "west"], n),
        "sex": draw.choice(["f", "m"], n),
        "race": draw.choice(["a", "b"], n),
    }
    age = draw.normal(60, 12, n).round()
    ill = age + draw.normal(0, 8, n) > 60
    told = np.where(ill, "yes", "no")
    table = pd.DataFrame(
        {**people, "age": age, "ward": draw.choice(["heart", "surgery"], n), "returned": told}
    )
    table.to_csv("table.csv", index=False)
    Path("people").mkdir()
    table.to_parquet("people/part-0.parquet", index=False)
    score = np.clip(0.5 + (age - 60) / 60 + draw.normal(0, 0.1, n), 0, 1)
    answers = {"y": ill.astype(int), "p": (score > 0.5).astype(int), "s": score.round(4)}
    pd.DataFrame({**people, **answers}).to_csv("predictions.csv", index=False)
    Path("experiment.toml").write_text(EXPERIMENT)
    return tmp_path


def path_of(words: list[str]) -> tuple[Any, list[str], list[str]]:
    """The click command that words lead to, its name as a path, and what is left: its arguments."""
    found, path, rest = COMMAND, [], words[1:]
    while hasattr(found, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in found.commands, f"there is no command `{' '.join(words)}`"
        path, found, rest = [*path, rest[0]], found.commands[rest[0]], rest[1:]
    return found, path, rest


def options_of(command: Any) -> set[str]:
    return {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help"}


def parse(words: list[str]) -> None:
    """Every option of a command exists."""
    command, _, rest = path_of(words)
    unknown = {word.partition("=")[0] for word in rest if word.startswith("--")} - options_of(
        command
    )
    assert not unknown, f"`{' '.join(words)}` has no option {', '.join(sorted(unknown))}"


def invoke(words: list[str]) -> str:
    command, _, _ = path_of(words)
    small = [
        word
        for option, value in SMALL.items()
        if option in options_of(command)
        for word in (option, value)
    ]
    result = CliRunner().invoke(app, [*words[1:], *small])
    assert result.exit_code == 0, f"{' '.join(words)}\n{result.output}\n{result.exception!r}"
    return result.output


class Planned(Exception):  # noqa: N818 (ends a command early; no error)
    pass


def plan(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Go as far as the plan."""
    _, (path, *_), rest = path_of(words)
    if path == "reproduce":
        assert rest[0] in packaged_experiments() or paper_experiments(rest[0]), (
            f"there is no experiment {rest[0]}"
        )
        return parse(words)

    def stop(plan: Any, *_: Any, **__: Any) -> None:
        plan = getattr(plan, "shared", plan)  # what all trials of a search share
        assert path == "tune" or plan.variants()
        assert "path" in plan.data or plan.data["name"] in DATASETS
        raise Planned

    monkeypatch.setattr("evenly.cli.experiment_runs.run_plan", stop)
    monkeypatch.setattr("evenly.cli.tuning_command._run_search", stop)
    result = CliRunner().invoke(app, words[1:])
    monkeypatch.undo()
    assert isinstance(result.exception, Planned), (
        f"{' '.join(words)}\n{result.output}\n{result.exception!r}"
    )
    return None


def planned(page: Path, words: list[str]) -> bool:
    trained = (
        words[0] == "evenly"
        and words[1] in ("compare", "tune")
        and name(page).startswith(PLANNED_PAGES)
    )
    return trained or words[:2] == ["evenly", "reproduce"]


def parsed(words: list[str]) -> bool:
    return any(tuple(words[1 : 1 + len(path)]) == path for path in PARSED) or "--on" in words


def script(words: list[str]) -> None:
    """A script or module of the repository is there and has the options that are given to it."""
    if words[1] == "-m":
        assert importlib.util.find_spec(words[2]), f"there is no module {words[2]}"
        return
    file = ROOT / words[1]
    assert file.is_file(), f"there is no script {words[1]}"
    for option in (word for word in words[2:] if word.startswith("--")):
        assert option in file.read_text(), f"{words[1]} has no option {option}"


def try_command(page: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), (
            f"there is no target {words[1]}"
        )
    elif words[0] == "python":
        script(words)
    else:
        assert words[0] == "evenly", (
            f"`{' '.join(words)}` cannot be tested: say why with <!-- not run: ... -->"
        )
        parse(words)
        if planned(page, words):
            plan(words, monkeypatch)
        elif not parsed(words):
            invoke(words)


def missing(block: Block) -> list[str]:
    from evenly.datasets.files import complete

    return [
        one for one in block.needs if not any(complete(layout) for layout in DATASETS[one].layouts)
    ]


TUTORIALS = [page for page in PAGES if page.with_suffix(".py").exists()]
RUNNABLE = [
    page
    for page in PAGES
    if page not in TUTORIALS and any(block.kind in ("python", "shell") for block in blocks(page))
]


@pytest.mark.further
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_what_the_page_says_works(page: Path, folder: Path, capsys: pytest.CaptureFixture[str]):
    names: dict[str, Any] = {"__name__": "page"}
    absent: list[str] = []
    for block in blocks(page):
        if block.not_run:
            assert len(block.not_run) > 12, f"{name(page)}:{block.line}: say why it is not run"
            for words in commands(block) if block.kind == "shell" else ():
                if words[0] == "evenly":
                    parse(words)
        elif missing(block):
            absent += missing(block)
        elif block.kind == "file":
            (folder / block.title).write_text(block.text)
        elif block.kind == "python":
            text = re.sub(r"rounds=\d{4,}", "rounds=20", block.text)
            # errors name the line of the page
            exec(compile("\n" * (block.line - 1) + text, name(page), "exec"), names)
        elif block.kind == "shell":
            for words in commands(block):
                with pytest.MonkeyPatch.context() as patch:
                    try_command(page, words, patch)
    check_printed(page, capsys.readouterr().out)
    if absent:
        need(absent[0])


# The examples of the reference are those of docstrings, which test_python_interface.py runs.
SESSIONS = [
    page
    for page in PAGES
    if page.parent.name != "reference" and any(block.kind == "session" for block in blocks(page))
]


@pytest.mark.parametrize("page", SESSIONS, ids=name)
def test_sessions_print_what_the_page_shows(page: Path, folder: Path):
    """The sessions of a page share their names, as if they were typed one after another."""
    names: dict[str, Any] = {}
    runner, parser = doctest.DocTestRunner(), doctest.DocTestParser()
    for block in blocks(page):
        if block.kind == "session":
            # errors name the line of the page
            lines = parser.get_doctest(block.text, names, name(page), name(page), block.line - 1)
            runner.run(lines, clear_globs=False)
            names = lines.globs
    assert runner.summarize(verbose=False).failed == 0


def check_printed(page: Path, printed: str) -> None:
    """What the Python of a page prints is what the page says, where it says so."""
    if name(page) == "docs/data.md":
        assert (
            "('age', 'age is missing', 'ward=(missing)', 'ward=heart', 'ward=surgery')\n" in printed
        )
    numbers = {
        "README.md": 4,
        "docs/index.md": 4,
        "docs/add-a-method.md": 5,  # worst tenths, and a mean beside what clients remember
        "docs/add-a-data-set.md": 1,
        "docs/add-a-metric.md": 1,
    }
    found = figures(printed)
    assert len(found) == numbers.get(name(page), len(found))
    assert all(0 <= accuracy <= 100 for accuracy in found)


def figures(text: str) -> list[float]:
    """The numbers on lines that hold nothing else, or nothing but the method before them."""
    lines = (
        re.fullmatch(r"([a-z-]+(\(\S*\))? +)?(?P<numbers>\d+(\.\d+)?( +\d+(\.\d+)?)*)", line)
        for line in text.splitlines()
    )
    return [float(number) for line in lines if line for number in line["numbers"].split()]


def printing(page: Path) -> tuple[str, list[float]]:
    """The Python of a page, and the figures that it prints according to the block below it."""
    every = list(blocks(page))
    (at,) = [i for i, block in enumerate(every) if block.kind == "python"]
    return every[at].text, figures(every[at + 1].text)


@pytest.mark.parametrize("page", FIRST_PAGES, ids=name)
def test_the_first_example_in_python_shows_figures_that_mean_something(page: Path):
    """The examples printed 0.0, because the worst-served clients have learned nothing after 200
    rounds.
    """
    _, printed = printing(page)
    assert printed
    assert all(0 < accuracy <= 100 for accuracy in printed)


@pytest.mark.slow
@pytest.mark.parametrize("page", FIRST_PAGES, ids=name)
def test_the_first_example_in_python_prints_what_its_page_says(page: Path, tmp_path: Path):
    """As a user runs it: the tests compile without most optimisations, which rounds otherwise and
    takes much longer here.
    """
    text, printed = printing(page)
    plain = {
        variable: value
        for variable, value in os.environ.items()
        if not variable.startswith(("JAX_", "XLA_"))
    }
    ended = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,  # it writes a report
        env=plain,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr
    np.testing.assert_allclose(figures(ended.stdout), printed, atol=3)


def test_the_readme_says_how_to_call_the_command_after_the_demo():
    start = (
        (ROOT / "README.md").read_text().partition("make demo")[2].partition("evenly compare")[0]
    )
    assert "`.venv/bin/evenly`" in start
    assert "source .venv/bin/activate" in start


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_inside_sentences_exist(page: Path):
    for words in inline_commands(page):
        parse(words)


@pytest.mark.parametrize("page", TUTORIALS, ids=name)
def test_commands_in_tutorials_exist(page: Path):
    for block in blocks(page):
        for words in commands(block) if block.kind == "shell" else ():
            assert words[0] == "evenly"
            parse(words)


def later(command: str) -> dict[str, tuple[Path, list[str]]]:
    """The commands of one kind that the default tests only plan: the page and the words of each."""
    shells = [
        (page, block)
        for page in RUNNABLE
        for block in blocks(page)
        if block.kind == "shell" and not block.not_run
    ]
    found = [
        (page, words)
        for page, block in shells
        for words in commands(block)
        if planned(page, words) and words[1] == command
    ]
    return {" ".join(words): (page, words) for page, words in found}


def experiments() -> list[str]:
    """What `reproduce` is told to run; the name of a paper stands for its experiments."""
    return sorted(
        {
            one
            for _, words in later("reproduce").values()
            for one in paper_experiments(words[2]) or [words[2]]
        }
    )


def need_files(data: str) -> None:
    if DATASETS[data].layouts:
        need(data, always_optional=data == "cifar10")


@pytest.mark.slow
@pytest.mark.parametrize("command", PLANNED := later("compare") | later("tune"))
def test_a_planned_comparison_or_search_trains(command: str, folder: Path):
    page, words = PLANNED[command]
    for block in blocks(page):
        if block.kind == "file":
            (folder / block.title).write_text(block.text)
    data = words[words.index("--data") + 1] if "--data" in words else "synthetic"
    if not is_table(data):
        need_files(data.partition("(")[0])
    if any("resnet18" in word for word in words):
        pytest.skip(
            "Two rounds of ResNet-18 are many hours of a CPU; propfair/cifar10 trains a small one"
            " in its short version."
        )
    invoke(words)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", experiments())
def test_a_planned_reproduction_trains_its_short_version(experiment: str, folder: Path):
    need_files(read_packaged(experiment).data["name"])
    result = CliRunner().invoke(app, ["reproduce", experiment, "--quick", "--seeds", "1"])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
