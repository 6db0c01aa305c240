"""The files with which strangers begin: continuous integration, templates and guides fit the
project.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import evenly
from evenly.cli.doctor import TESTED

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
GUIDES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")
TEMPLATES = ("bug", "method", "question")
# options and programs that macOS does not have, or reads otherwise
GNU_ONLY = re.compile(
    r"\bsed -i\b|readlink -f|grep -\w*P|\bdate -d|\bnproc\b|\btimeout \d|\bstat -c|\bcp -\w*[dT]|"
    r"xargs -r|mktemp --|\bsort -V|\bmapfile\b|declare -A|\$\{\w+,,\}"
)


def workflow() -> dict[str, Any]:
    return yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())


def test_ci_runs_the_script_with_every_tested_python_on_linux_and_macos():
    job = workflow()["jobs"]["check"]
    assert tuple(job["strategy"]["matrix"]["python"]) == TESTED["python"]
    assert job["strategy"]["matrix"]["system"] == ["ubuntu-latest", "macos-latest"]
    (script,) = [step for step in job["steps"] if "run" in step]
    assert script["run"] == ".ci/run"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111, "the script can be executed"
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"{name} ?= " in makefile for name in script["env"])
    assert workflow()["permissions"] == {"contents": "read"}
    (python,) = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert (ROOT / python["with"]["cache-dependency-path"]).is_file()


@pytest.mark.parametrize("name", [".ci/run", "Makefile"])
def test_scripts_use_nothing_that_only_linux_has(name: str):
    assert GNU_ONLY.search("sed -i s/a/b/ file")
    lines = (ROOT / name).read_text().splitlines()
    assert [line for line in lines if GNU_ONLY.search(line)] == []
    installs = [at for at, line in enumerate(lines) if "apt-get install" in line]
    assert all("command -v apt-get" in lines[at - 1] for at in installs)


def test_the_script_is_valid_bash():
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run([bash, "-n", ROOT / ".ci" / "run"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_of_an_issue_has_what_github_needs(name: str):
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert {"name", "description", "body"} <= set(form)
    asked = [one for one in form["body"] if one["type"] != "markdown"]
    assert {one["type"] for one in asked} <= {"input", "textarea", "dropdown", "checkboxes"}
    ids = [one["id"] for one in asked]
    assert len(ids) == len(set(ids))
    assert all(one["attributes"]["label"] for one in asked)
    assert any(one.get("validations", {}).get("required") for one in asked)


def test_every_template_is_tested():
    found = {path.stem for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml")} - {"config"}
    assert found == set(TEMPLATES)


def test_files_that_guides_and_templates_name_exist():
    files = [ROOT / name for name in GUIDES]
    files += [*GITHUB.rglob("*.md"), *(GITHUB / "ISSUE_TEMPLATE").glob("*.yml")]
    named = re.compile(r"(?<![\w/.-])(?:docs|tests|src|\.ci)/[\w./-]*\w|\b[A-Z_]{6,}\.(?:md|cff)\b")
    for file in files:
        absent = [one for one in named.findall(file.read_text()) if not (ROOT / one).exists()]
        assert absent == [], f"{file.name} names files that are not there"


@pytest.mark.parametrize("name", [*GUIDES, "docs/citing.md"])
def test_lines_of_guides_fit_a_hundred_columns(name: str):
    long = [line for line in (ROOT / name).read_text().splitlines() if len(line) > 100]
    assert [line for line in long if not line.startswith("|") and " " in line[100:]] == []


def test_the_table_of_commands_for_contributors_names_every_target():
    text, makefile = (ROOT / "CONTRIBUTING.md").read_text(), (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore
    assert {*re.findall(r"`make (\w+)`", text)} >= targets - {"demo", "clean"}


def test_the_newest_minor_version_gets_security_fixes():
    text = (ROOT / "SECURITY.md").read_text()
    supported = re.findall(r"^\| ([\d.]+) \| yes \|$", text, re.MULTILINE)
    assert supported == [".".join(evenly.__version__.split(".")[:2])]
