"""The documentation says what the code does: generated parts are up to date, links lead somewhere
(test_commands_in_docs runs its code).
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from evenly.algorithms import METHODS
from evenly.metrics import EVERY_METRIC
from tools import formulas

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(text: str) -> set[str]:
    """The anchors that headings get on the usual Markdown hosts."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def prose(text: str) -> str:
    """A page without its code and comments, in which brackets are no links."""
    hidden = r"^( *)(```+).*?^\1\2$|<!--.*?-->"
    return re.sub(r"`[^`\n]+`", "", re.sub(hidden, "", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.further
def test_generated_parts_are_up_to_date():
    command = [sys.executable, "-m", "tools.generate", "--check"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_internal_links_lead_somewhere(page: Path):
    for target in LINK.findall(prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{name(page)} links to {target}"
        assert not anchor or anchor in anchors(found.read_text()), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_placeholder_was_left_behind(page: Path):
    assert re.findall(r"^[A-Z][A-Z0-9_]+$", prose(page.read_text()), re.MULTILINE) == []


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_page_that_names_its_settings_and_departures(method: str):
    text = (DOCS / "algorithms" / f"{method}.md").read_text()
    assert all(f"`{setting}`" in text for setting in METHODS[method].settings)
    assert "## Departures from the paper and from public code" in text
    assert f"({method}.md)" in (DOCS / "algorithms" / "index.md").read_text()


def test_every_page_of_a_method_belongs_to_one():
    pages = {path.stem for path in (DOCS / "algorithms").glob("*.md")} - {"index"}
    assert pages == set(METHODS)


def test_formulas_and_papers_belong_to_methods_and_metrics():
    assert {*formulas.METHODS, *formulas.PAPERS} <= set(METHODS)
    assert set(formulas.METRICS) <= set(EVERY_METRIC)


def test_every_metric_is_explained():
    text = (DOCS / "metrics.md").read_text()
    assert all(f"- `{metric}`: " in text for metric in EVERY_METRIC)


def test_no_two_metrics_have_the_same_meaning():
    meanings = [metric.doc for metric in EVERY_METRIC.values()]
    assert len(set(meanings)) == len(meanings)


def test_every_decision_is_listed():
    listed = set(LINK.findall((DOCS / "decisions" / "index.md").read_text()))
    assert listed == {path.name for path in (DOCS / "decisions").glob("*.md")} - {"index.md"}


def test_the_example_and_the_page_define_the_same_rule():
    rule = re.compile(
        r"^@record\nclass Urgent\(Rule\):.*?(?=\n\n\nMETHOD)", re.MULTILINE | re.DOTALL
    )
    page, example = (
        rule.findall(path.read_text())
        for path in (DOCS / "add-a-method.md", ROOT / "examples" / "own_method.py")
    )
    assert len(page) == 1
    assert page == example


# Of a table, a picture or a list of links, one line cannot be broken; tests of their own check what
# generators write.
UNBROKEN = re.compile(r"\||!?\[|\[!\[|- \[[^]]*\]\([^)]*\)$|<|% |\*This page is made from ")
# commands, diffs and what programs print are shown as they are
AS_IT_IS = re.compile(r"^```.*?^```$|^(?:    .*\n)+", re.DOTALL | re.MULTILINE)
PROSE = [page for page in PAGES if not {"results", "reference"} & set(page.parts)]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_fit_a_hundred_columns(page: Path):
    lines = AS_IT_IS.sub("", page.read_text()).splitlines()
    assert [line for line in lines if len(line) > 100 and not UNBROKEN.match(line)] == []
