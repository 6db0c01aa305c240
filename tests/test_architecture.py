"""How the code is laid out, as rules that can fail."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import evenly
from evenly.algorithms import METHODS

SOURCE = Path(evenly.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
VAGUE = {"utils", "util", "helpers", "helper", "misc", "base", "common", "core", "tools", "stuff"}
HEAVY = {
    "pandas",
    "pyarrow",
    "altair",
    "typer",
    "rich",
    "pydantic",
    "torch",
    "flwr",
    "matplotlib",
    "scipy.stats",
}


def name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


MOST_LINES = 600  # of a module
MOST_BODY_LINES = 40  # of a function, without its signature and its docstring
MOST_POSITIONAL = 5  # parameters that may be passed by position, without self and cls
INHERITED = {"FairStrategy.start"}  # Flower decides the parameters


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions and methods of a module with their qualified names."""

    def below(
        node: ast.AST, prefix: str
    ) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            inner = f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", child
                inner = f"{prefix}{child.name}."
            yield from below(child, inner)

    return below(ast.parse(path.read_text()), "")


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    last = body[-1].end_lineno if body else None
    return last - body[0].lineno + 1 if last else 0


def lines_to_read(path: Path) -> int:
    """The lines of a module. Examples in docstrings do not count: every public name has one."""
    lines = path.read_text().splitlines()
    return sum(not line.lstrip().startswith((">>> ", "... ")) for line in lines)


def positional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_and_functions_are_short_enough_to_read(path: Path):
    assert lines_to_read(path) <= MOST_LINES
    long = {
        label: lines
        for label, one in functions(path)
        if (lines := body_lines(one)) > MOST_BODY_LINES
    }
    assert long == {}, "split these functions where a new idea begins"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_functions_take_few_parameters_by_position(path: Path):
    many = {
        label: count
        for label, one in functions(path)
        if (count := positional(one)) > MOST_POSITIONAL
    }
    assert many.keys() <= INHERITED, "pass the others by keyword (after *), or as a record"


def test_long_functions_and_parameters_are_counted(tmp_path: Path):
    """The two limits above hold nothing if the counting is wrong."""
    lines = [
        "class A:",
        "    def f(self, a, b, /, c, *, d):",
        '        """Words."""',
        "        x = [",
        "            a,",
        "        ]",
        "        return x",
    ]
    text = "\n".join(lines)
    (tmp_path / "one.py").write_text(text)
    ((label, one),) = functions(tmp_path / "one.py")
    assert (label, body_lines(one), positional(one)) == ("A.f", 4, 3)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_names_say_what_is_inside(path: Path):
    assert path.stem not in VAGUE
    assert path.parent.name not in VAGUE


@pytest.mark.parametrize("path", [p for p in MODULES if p.read_text().strip()], ids=name)
def test_every_module_says_what_it_is_for(path: Path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "the first lines of a module say what it is for"


LISTED = (
    "api",
    "auditing",
    "experiment",
    "flower",
    "flower/clients",
    "metrics",
    "parts",
    "privacy",
)


@pytest.mark.parametrize("package", LISTED)
def test_a_package_with_a_list_of_its_modules_lists_them_all(package: str):
    """docs/architecture.md names these packages."""
    folder = SOURCE / package
    described = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py"}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert (modules | packages) - {"__init__"} <= set(re.findall(r"`(\w+)`", described))


def test_no_module_at_the_top_bears_the_name_of_a_public_function_or_class():
    """`evenly.audit` is a function, so the package is `evenly.auditing`: one name cannot
    be both.
    """
    modules = {
        path.stem
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert modules & set(evenly.__all__) == set(evenly._MODULES)
    assert modules.isdisjoint(evenly._HOME)


def test_a_class_name_occurs_once():
    found = [
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert {name for name, count in Counter(found).items() if count > 1} == set()


def test_a_module_name_occurs_twice_only_where_its_package_completes_it():
    """`report.page` is the page of a report, and `auditing.page` that of an audit."""
    stems = Counter(path.stem for path in MODULES if not path.stem.startswith("__"))
    assert {stem: count for stem, count in stems.items() if count > 1} == {"page": 2}


def test_every_package_that_is_imported_is_declared():
    """Optuna brings SQLAlchemy, and IPython is used only where it runs already."""
    nodes = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text()))]
    modules = {
        *(alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names),
        *(str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)),
    }
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    declared = {
        canonicalize_name(Requirement(text).name) for text in (*project["dependencies"], *extras)
    }
    installed = packages_distributions()
    imported = {module.partition(".")[0] for module in modules} & installed.keys()
    undeclared = {
        package
        for package in imported - {"IPython", "evenly", "sqlalchemy"}
        if not declared & {canonicalize_name(one) for one in installed[package]}
    }
    assert not undeclared


def test_folders_can_be_looked_through():
    files = Counter(path.parent for path in MODULES if path.parent.name != "algorithms")
    assert {name(folder): count for folder, count in files.items() if count > 20} == {}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_randomness_is_never_global(path: Path):
    assert not re.search(
        r"np\.random\.(seed|rand|randn|choice|permutation|shuffle|normal)\(|^import random\b|^from"
        r" random\b",
        path.read_text(),
        re.M,
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_one_file_that_cites_its_paper(name: str):
    method = METHODS[name]
    module = importlib.import_module(f"evenly.algorithms.{name.replace('-', '_')}")
    assert module.METHOD is method
    author = re.match(r"[^\s,]+", method.reference)
    assert author
    assert re.search(rf"\b{author[0]}\b", module.__doc__), f"the docstring names {author[0]}"


CORE = (
    "evenly.metrics",
    "evenly.models",
    "evenly.datasets",
    "evenly.algorithms",
    "evenly.simulate",
)
IMPORTED = f"""
import importlib, sys
for module in {CORE}:
    importlib.import_module(module)
    print(module, *sys.modules)
"""


def test_the_core_imports_nothing_heavy():
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORTED], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [module for module, *_ in lines] == list(CORE)
    assert {module: heavy for module, *found in lines if (heavy := HEAVY & set(found))} == {}


NOT_FOR_HELP = {*HEAVY, "evenly.experiment", "importlib.metadata", "jax", "numpy"} - {"typer"}
HELP = """
import sys
import evenly.cli
sys.argv = ["evenly", "--help"]
try:
    evenly.cli.main()
finally:
    print(*sys.modules)
"""


def test_the_help_imports_nothing_that_it_does_not_need():
    ended = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("Usage: evenly")
    assert NOT_FOR_HELP & set(ended.stdout.splitlines()[-1].split()) == set()


UNTOUCHED = """
import os
before = dict(os.environ)
import evenly.simulate, jax
assert dict(os.environ) == before
print(jax.config.jax_enable_x64)
"""


def test_importing_leaves_the_environment_and_the_settings_of_jax_alone():
    ended = subprocess.run(
        [sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "False"
