"""What evenly may know of Flower: its public modules, in one folder."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import evenly

SOURCE = Path(evenly.__file__).parent
HOME = SOURCE / "flower"
PUBLIC = {"flwr.app", "flwr.serverapp", "flwr.serverapp.strategy", "flwr.clientapp"}
SCRIPTS = [*SOURCE.rglob("*.py"), *(SOURCE.parents[1] / "examples").rglob("*.py")]


def imported(path: Path) -> dict[str, list[str]]:
    """The modules of Flower that a file imports from, and what."""
    found: dict[str, list[str]] = {}
    if "flwr" not in (source := path.read_text()):
        return found  # parsing takes long
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "flwr":
            found.setdefault(node.module, []).extend(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            found |= {alias.name: [] for alias in node.names if alias.name.split(".")[0] == "flwr"}
    return found


def test_only_one_folder_imports_flower():
    outside = [path for path in SOURCE.rglob("*.py") if imported(path) and HOME not in path.parents]
    assert outside == []
    assert sum(bool(imported(path)) for path in HOME.rglob("*.py")) > 5


@pytest.mark.parametrize(
    "path", [path for path in SCRIPTS if imported(path)], ids=lambda path: path.name
)
def test_only_public_names_are_imported(path: Path):
    for module, names in imported(path).items():
        assert module in PUBLIC
        offered = importlib.import_module(module).__all__
        assert set(names) <= {
            *offered,
            "ServerApp",
            "ClientApp",
        }, f"{module} does not offer all of {names}"


@pytest.mark.parametrize(
    "path", sorted((HOME / "templates").glob("*.py.txt")), ids=lambda path: path.name
)
def test_templates_import_only_public_names(path: Path):
    for line in path.read_text().splitlines():
        words = line.split()
        if words[:1] in (["from"], ["import"]) and words[1].split(".")[0] == "flwr":
            assert words[1] in PUBLIC


WITHOUT = """
import sys
sys.modules["flwr"] = None
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "flwr":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import evenly
evenly.algorithm("fedavg")
try:
    import evenly.flower
except ImportError as error:
    print(error)
"""


def test_without_flower_everything_else_works_and_it_is_said_what_to_install():
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert 'pip install "evenly[flower]"' in ended.stdout
