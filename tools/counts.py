"""Measure the code base: files, lines, imports, names, and the files that a reader opens to follow
three calls.

    python -m tools.counts               # of this checkout
    python -m tools.counts --walks       # also run the three walks (a minute)
    python -m tools.counts --json out.json

A walk is one call from its beginning to its end: `evenly compare` to its report, one simulated
round, one deployed round. Its files are the modules of evenly whose functions are called, as
`sys.setprofile` reports them. Lines of code exclude docstrings, comments and blank lines.
"""

import argparse
import ast
import inspect
import io
import json
import statistics
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "evenly"
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def is_string(node: ast.AST) -> bool:
    """Return whether a statement is only a string: a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def statements(tree: ast.AST) -> int:
    """Count the statements without docstrings. Unlike lines, they do not depend on the layout."""
    return sum(isinstance(node, ast.stmt) and not is_string(node) for node in ast.walk(tree))


def code_lines(text: str) -> int:
    """Count the lines of code, without docstrings, comments and blank lines."""
    tree, strings = ast.parse(text), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and is_string(node):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in LAYOUT
    ]
    return len(
        {line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - strings
    )


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST, modules: set[str]) -> set[str]:
    """Return the modules of evenly that a module imports, anywhere in its code."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {
                inner if (inner := f"{node.module}.{alias.name}") in modules else node.module
                for alias in node.names
            }
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules


def counts() -> dict[str, Any]:
    """Return all measures by name."""
    files = sorted(SOURCE.rglob("*.py"))
    texts = {module_of(path): path.read_text() for path in files}
    trees = {module: ast.parse(text) for module, text in texts.items()}
    edges = {module: imports_of(tree, set(texts)) - {module} for module, tree in trees.items()}
    importers = Counter(target for targets in edges.values() for target in targets)
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    stems = Counter(path.stem for path in files if path.stem not in ("__init__", "__main__"))
    lines = {module: len(text.splitlines()) for module, text in texts.items()}
    largest = max(lines, key=lines.__getitem__)
    sys.path.insert(0, str(SOURCE.parent))
    import evenly

    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "lines of code": sum(map(code_lines, texts.values())),
        "statements": sum(map(statements, trees.values())),
        "median lines of a file": statistics.median(lines.values()),
        "largest file": f"{largest} ({lines[largest]} lines)",
        "import edges": sum(map(len, edges.values())),
        "modules with one importer": sum(count == 1 for count in importers.values()),
        "repeated class names": sorted(name for name, count in classes.items() if count > 1),
        "repeated module names": sorted(name for name, count in stems.items() if count > 1),
        "most files in a folder": max(
            Counter(path.parent for path in files if path.parent.name != "algorithms").values()
        ),
        "public names of evenly": len(evenly.__all__),
    }


def modules_of(walk: Callable[[], Any]) -> list[str]:
    """Return the modules of evenly whose functions are called while `walk` runs."""
    files = set[str]()

    def record(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # bodies of classes are not optimised
        in_module = code.co_filename.startswith(str(SOURCE)) and code.co_filename.endswith(".py")
        if event == "call" and is_function and in_module and not code.co_name.startswith("<"):
            files.add(code.co_filename)

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        walk()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(module_of(Path(name)) for name in files)


def walks() -> dict[str, list[str]]:
    """Return the modules of the three walks. Imports and preparations are not counted."""
    from tests import federations
    from tests.flower.grids import NODES, OneProcess
    from tests.flower.small import SEEDS, algorithm_of, small, task_of
    from tests.simulations import algorithms

    from evenly.flower import first_arrays, strategy
    from evenly.flower.clients.jax import app as client_app
    from evenly.models import Softmax
    from evenly.simulate import simulate
    from tools.freeze import execute

    text, tiny = "q-fedavg(q=1)", federations.tiny()
    task, methods = Softmax(features=tiny.x.shape[1], classes=len(tiny.labels)), algorithms(text)
    server = strategy(
        algorithm_of(text), seeds=SEEDS, min_available_nodes=3, min_train_nodes=1, introduce=True
    )
    grid, first = (
        OneProcess(client_app(small(3), task_of(text)), NODES[:3]),
        first_arrays(algorithm_of(text), task_of(text), SEEDS),
    )
    with tempfile.TemporaryDirectory() as out:
        words = [
            "compare",
            "--algorithms",
            f"fedavg,{text}",
            "--rounds",
            "2",
            "--seeds",
            "1",
            "--out",
            f"{out}/results",
        ]
        return {
            "evenly compare": modules_of(lambda: execute(words)),
            "one simulated round": modules_of(lambda: simulate(task, tiny, methods, 1)),
            "one deployed round": modules_of(lambda: server.start(grid, first, num_rounds=1)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--walks", action="store_true", help="also count the files along the three walks"
    )
    parser.add_argument("--json", type=Path, help="write everything into this file")
    options = parser.parse_args()
    result: dict[str, Any] = counts()
    if options.walks:
        result["walks"] = walks()
    for name, value in result.items():
        if name == "walks":
            print(
                *(f"files along {walk}: {len(modules)}" for walk, modules in value.items()),
                sep="\n",
            )
        else:
            print(
                f"{name}: {len(value)} ({', '.join(value)})"
                if isinstance(value, list)
                else f"{name}: {value}"
            )
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
