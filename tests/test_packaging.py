"""What is installed is what was written: the wheel has the package and nothing else, and works
where the sources are not.

The default tests look into the wheel. Of the slow ones, one lends the development environment's
packages to a clean one, so that nothing is downloaded; the others install everything from the
package index, as a user does, with every version of Python that is on this machine.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import evenly

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
SUFFIXES = {".py", ".typed", ".toml", ".csv", ".md", ".css", ".js", ".html", ".svg", ".txt"}
STRAY = re.compile(
    r"(^|/)(tests?|__pycache__|\.git\w*|\.venv|\.envs|\.jax_cache|results)(/|$)|\.pyc$"
)
PYTHON = "bin/python"
VERSIONS = ("3.11", "3.12", "3.13")


def written() -> set[str]:
    """The files of the package, as the wheel should have them."""
    files = [
        path
        for path in (SOURCE / "evenly").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return {path.relative_to(SOURCE).as_posix() for path in files}


def call(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command as somebody who has never seen this repository."""
    hidden = (
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "EVENLY_DATA",
        "JAX_DISABLE_MOST_OPTIMIZATIONS",
        "XLA_FLAGS",
    )
    env = (
        {key: value for key, value in os.environ.items() if key not in hidden}
        | {"COLUMNS": "200"}
        | environment
    )
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    call(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out, cwd=source)
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def lent(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment with the wheel, to which the packages of this one are lent but not its
    evenly.
    """
    folder = tmp_path_factory.mktemp("lent")
    venv.create(folder, with_pip=False, symlinks=True)
    call(
        sys.executable,
        "-m",
        "pip",
        "--python",
        folder / PYTHON,
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        wheel,
        cwd=folder,
    )
    # Folders named in a .pth file are searched, but the .pth files inside them, such as an editable
    # install's, are not read.
    where = call(
        folder / PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    ).strip()
    shared = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    Path(where, "lent.pth").write_text("\n".join(shared))
    return folder


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if ".dist-info/" not in name}
    assert package == written()
    assert "evenly/py.typed" in package
    assert not [name for name in package if STRAY.search(name) or Path(name).suffix not in SUFFIXES]


def test_the_wheel_says_what_it_is(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        about = f"evenly-{evenly.__version__}.dist-info"
        text, points = (
            archive.read(f"{about}/{name}").decode() for name in ("METADATA", "entry_points.txt")
        )
    extras = set(re.findall(r"^Provides-Extra: (.*)$", text, re.MULTILINE))
    assert extras == {"dev", "docs", "flower", "logging", "privacy", "ray", "torch"}
    assert "Requires-Dist: optuna" in text
    assert "Requires-Python: >=3.11" in text
    assert "evenly = evenly.cli:main" in points


def test_the_source_distribution_builds_the_same_package_and_has_nothing_stray(
    wheel: Path, tmp_path: Path
):
    archive = build("sdist", ROOT, tmp_path)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    names = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    needed = {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "Makefile",
        "constraints.txt",
        "mkdocs.yml",
        "docs/index.md",
        "tests/conftest.py",
    }
    assert needed <= names
    tops = {name.split("/")[0] for name in names if "/" in name}
    assert tops == {"src", "tests", "docs", "examples", "benchmarks", "tools"}
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|\.envs/", name)]
    again = build("wheel", source, tmp_path / "again")
    with zipfile.ZipFile(again) as second, zipfile.ZipFile(wheel) as first:
        assert set(second.namelist()) == set(first.namelist())


OPEN_DATA = """
import json
from importlib.resources import files
import evenly
from evenly.experiment.config import packaged_experiments, read_packaged
tomls = [name for name in packaged_experiments() if read_packaged(name).title]
figures = (files("evenly.papers") / "reference").iterdir()
rows = {f.name: len(f.read_text().splitlines()) for f in figures if f.name.endswith(".csv")}
folders = (files("evenly.report"), files("evenly.report") / "templates")
found = [f for folder in folders for f in folder.iterdir()]
assets = {f.name: len(f.read_text()) for f in found if f.name.endswith((".css", ".js", ".html"))}
print(json.dumps({"home": evenly.__file__, "tomls": tomls, "rows": rows, "assets": assets}))
"""


TRAIN = """
import evenly
federation = evenly.synthetic(clients=5)
task = evenly.models.MODELS["softmax"](federation)
for trace in evenly.train(task, federation, ["fedavg+full", "q-fedavg(q=1)+full"], rounds=2):
    print(evenly.final_metrics(trace, "test")["average"])
print(len(evenly.cite("fedavg", "q-fedavg", "fairfed")))
print(evenly.describe("fairfed"))
"""


def test_the_questions_to_an_installed_package_can_be_asked_of_this_one(
    capsys: pytest.CaptureFixture[str],
):
    """Installing takes minutes and is a slow test; what it then runs must not be out of date."""
    exec(OPEN_DATA, {})
    assert set(json.loads(capsys.readouterr().out)) == {"home", "tomls", "rows", "assets"}
    exec(TRAIN, {})
    check_training(capsys.readouterr().out)


def check_training(printed: str) -> None:
    """Two accuracies in percent, three papers and the tool in BibTeX, and a description."""
    first, second, letters, *description = printed.splitlines()
    assert 0 < float(first) <= 100
    assert 0 < float(second) <= 100
    assert int(letters) > 1000
    assert description[0].startswith("FairFed (Ezzeldin et al.")


def try_it(folder: Path, work: Path) -> None:
    """What a new user does first, away from the repository."""
    program, python = folder / "bin" / "evenly", folder / PYTHON
    found = json.loads(call(python, "-W", "error", "-c", OPEN_DATA, cwd=work))
    assert Path(found["home"]).is_relative_to(folder), "evenly must come from the wheel"
    assert len(found["tomls"]) == len(
        list((SOURCE / "evenly" / "papers" / "experiments").rglob("*.toml"))
    )
    assert set(found["rows"]) == {
        path.name for path in (SOURCE / "evenly" / "papers" / "reference").glob("*.csv")
    }
    assert min(found["rows"].values()) > 1
    assert {"page.css", "page.js", "document.html"} <= set(found["assets"])
    assert call(program, "--version", cwd=work) == f"evenly {evenly.__version__}\n"
    assert call(python, "-m", "evenly", "--version", cwd=work) == f"evenly {evenly.__version__}\n"
    assert (
        json.loads(call(program, "doctor", "--json", cwd=work, EVENLY_DATA=str(work)))["problems"]
        == []
    )
    listed = call(program, "list", cwd=work)
    assert all(name in listed for name in ("q-fedavg", "synthetic-census", "qffl/synthetic"))
    check_training(call(python, "-W", "error", "-c", TRAIN, cwd=work))
    assert call(program, "cite", cwd=work).startswith("@software{evenly,")
    small = shlex.split("--data 'synthetic(clients=5)' --rounds 2 --seeds 1 --sampling full")
    both = "fedavg,q-fedavg(q=1)"
    call(program, "compare", *small, "--algorithms", both, "--out", "tried", cwd=work)
    assert "<html" in (work / "tried" / "report.html").read_text()[:200]
    head, *rows = (work / "tried" / "results.csv").read_text().splitlines()
    columns = json.loads((ROOT / "tests" / "promised.json").read_text())["columns of results.csv"]
    assert head.replace('"', "").split(",") == columns
    assert {method for method in both.split(",") for row in rows if method in row} == {
        *both.split(",")
    }
    try_tutorial(python, work)


def try_tutorial(python: Path, work: Path) -> None:
    """Run the first tutorial in a folder that holds nothing but its script."""
    folder = work / "tutorial"
    folder.mkdir()
    shutil.copy(ROOT / "docs" / "tutorials" / "first_comparison.py", folder)
    printed = call(python, "first_comparison.py", cwd=folder)
    assert "by-loss" in printed
    assert "\\begin{tabular}" in printed
    assert {path.name for path in folder.iterdir()} >= {"report.html", "ward"}


@pytest.mark.slow
def test_the_wheel_works_where_the_sources_are_not(lent: Path, tmp_path: Path):
    try_it(lent, tmp_path)


def test_the_versions_of_python_that_are_tried_are_those_that_the_package_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [f"Programming Language :: Python :: {version}" for version in VERSIONS] == [
        line for line in project["classifiers"] if "Python :: " in line
    ]
    assert project["requires-python"] == f">={VERSIONS[0]}"


def interpreter(version: str) -> Path | None:
    """Python of this version: the one that runs the tests, one on the path, or one that pyenv
    installed; None: there is none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = shutil.which(f"python{version}")
    candidates = [
        Path(sys.executable),
        *([Path(named)] if named else []),
        *sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True),
    ]
    ask = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    # pyenv puts programs on the path that only say that the version is not active
    for one in candidates:
        said = subprocess.run(
            [str(one), "-c", ask], capture_output=True, text=True, timeout=60, check=False
        )
        if said.returncode == 0 and said.stdout.strip() == version:
            return one
    return None


def short_demo() -> list[str]:
    """The command of `make demo` with few rounds."""
    (recipe,) = re.findall(
        r"^\t\$\(BIN\)/evenly (compare .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    return shlex.split(re.sub(r"--rounds \d+", "--rounds 20", recipe))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_and_the_demo_work_with_everything_from_the_package_index(
    version: str, wheel: Path, tmp_path: Path
):
    python = interpreter(version)
    if python is None:
        pytest.skip(
            f"There is no Python {version} on this machine, neither on the path nor among pyenv's"
            " versions."
        )
    folder, work = tmp_path / "fresh", tmp_path / "work"
    work.mkdir()
    call(python, "-m", "venv", folder, cwd=work)
    call(
        folder / PYTHON,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        ROOT / "constraints.txt",
        wheel,
        cwd=work,
    )
    try_it(folder, work)
    optional = json.loads(call(folder / "bin" / "evenly", "doctor", "--json", cwd=work))["optional"]
    assert not any(one["version"] for one in optional), (
        "the extras are not part of a plain installation"
    )
    assert "q-fedavg(q=1)" in call(folder / "bin" / "evenly", *short_demo(), cwd=work)
    assert "<html" in (work / "demo" / "report.html").read_text()[:200]


def test_every_package_of_the_development_environment_is_pinned_and_nothing_says_where_from():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert not [
        line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+", line)
    ]
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    wanted, seen = [Requirement(text) for text in (*project["dependencies"], *extras)], set()
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        if name == "evenly" or (name, frozenset(one.extras)) in seen:
            continue
        seen.add((name, frozenset(one.extras)))
        assert name in pinned, f"{name} is needed but not in constraints.txt"
        for text in metadata.requires(one.name) or []:
            needed = Requirement(text)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *one.extras)
            ):
                wanted.append(needed)
    assert len(seen) > 60
