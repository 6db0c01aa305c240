"""Change the program in random places, one operator at a time, and count the changes that a test
notices.

    python -m tools.mutate --count 100 --seed 7            # about 30 minutes on two cores
    python -m tools.mutate --packages metrics --json outcomes.json

A mutant changes one operator, constant or condition: `+` becomes `-`, `<` becomes `<=`, `and`
becomes `or`, `0` becomes `1`, a condition is inverted, a `not` is dropped, `min` becomes `max`.
Annotations, docstrings, f-strings, assertions, decorators, `__repr__` and the arguments of
exceptions stay unchanged, because they do not affect results. Mutants are made in temporary copies
of the repository.

The tests of a mutant are those closest to its module: by the number of imports between them, by
folder and by name. The examples in docstrings, tests of whole runs and tests of everything that is
registered follow, because they use a module without importing it. All run in this order until one
fails or the time is up. A mutant is killed if a test fails that passes on the unchanged program.
`equivalent.toml` lists mutants that no test can notice, each with the reason; they are not drawn.
"""

import argparse
import ast
import contextlib
import copy
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("algorithms", "auditing", "data", "flower", "metrics", "parts", "simulate")
SWAPS: dict[type[ast.AST], type[Any]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Lt: ast.LtE,
    ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip
NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
}
IGNORED = (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)
UNCHANGED_FIELDS = {"annotation", "returns", "decorator_list", "type_params"}
FAR = 5  # imports between a module and a test that still belongs to it
HANGING = 100  # seconds after which a single test is taken to hang
PYTEST_OPTIONS = [
    "-x", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-rfE",
    "-o", f"faulthandler_timeout={HANGING}", "-o", "faulthandler_exit_on_timeout=true",
]  # fmt: skip
NEAREST = 16  # test files for a mutant
ELSEWHERE = re.compile(  # tests that start programs, or look at pages and files only
    r"tests/(browser/|flower/test_(deploy|engine)|experiment/test_(cluster|killed)|test_(architecture|benchmarks|commands|docs|packaging|site))"
)
EXAMPLES = "tests/test_python_interface.py"  # tries the examples in docstrings
WHOLE_RUNS = (
    "tests/golden/test_golden.py",
    "tests/simulate/test_whole_runs.py",
    "tests/simulate/test_group_runs.py",
    "tests/conformance/test_methods.py",
)
IN_USE = {  # tests that use most modules of a package
    "algorithms": ("tests/test_client_limits.py", *WHOLE_RUNS),
    "parts": ("tests/conformance/test_samplings.py", *WHOLE_RUNS),
    "simulate": (*WHOLE_RUNS, "tests/algorithms/test_frl_and_e2fl.py"),
    "metrics": ("tests/conformance/test_metrics.py",),
}
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.M)
LEFT_OUT = {"demo", "results", "site"}  # of the copies, besides what is hidden


class Mutant(NamedTuple):
    """One change of one file."""

    file: str  # relative to the root of the repository
    line: int
    text: str  # the line as it is, without its indentation
    change: str  # the change in words: "a - b -> a + b"
    source: str  # the whole file with the change


class Outcome(NamedTuple):
    """The result of a mutant: the test that failed, if any, and the test files that ran."""

    mutant: Mutant
    killed: bool
    by: str  # the test that failed, or how the tests ended otherwise
    files: list[str]
    seconds: float


def mutants(root: Path, file: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file, in the order of its lines."""
    source, where = file.read_text(), file.relative_to(root).as_posix()
    lines = source.splitlines()
    for node, changed in _changes(ast.parse(source)):
        new = ast.unparse(changed)
        change = f"{_short(ast.unparse(node))} -> {_short(new)}"
        yield Mutant(
            where, node.lineno, lines[node.lineno - 1].strip(), change, _splice(source, node, new)
        )


def _changes(tree: ast.AST) -> Iterator[tuple[Any, ast.AST]]:
    """Yield nodes and their replacements."""
    for node in _effective_nodes(tree):
        if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
            (new := copy.deepcopy(node)).op = SWAPS[type(node.op)]()
            yield node, new
        elif isinstance(node, ast.Compare):
            for i, operator in enumerate(node.ops):
                (new := copy.deepcopy(node)).ops[i] = SWAPS[type(operator)]()
                yield node, new
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
            yield node, node.operand
        elif (
            isinstance(node, ast.Constant)
            and type(node.value) in (int, float)
            and node.value in (0, 1)
        ):
            yield node, ast.Constant(node.value + 1)
            if node.value:
                yield node, ast.Constant(node.value - 1)
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield node, ast.Name(NAMES[node.id])
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node, ast.Attribute(node.value, NAMES[node.attr])
        tests = (
            [node.test]
            if isinstance(node, ast.If | ast.While | ast.IfExp)
            else getattr(node, "ifs", [])
        )
        yield from (
            (test, ast.UnaryOp(ast.Not(), test)) for test in tests if not _has_other_inversion(test)
        )


def _has_other_inversion(test: ast.expr) -> bool:
    """Return whether another mutant inverts this condition: it drops the `not`, or swaps `==`, `is`
    or `in` and their opposites.
    """
    swapped = isinstance(test, ast.Compare) and isinstance(
        test.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot | ast.In | ast.NotIn
    )
    return swapped or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _effective_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it that affect results."""
    if isinstance(node, IGNORED) or (isinstance(node, ast.FunctionDef) and node.name == "__repr__"):
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in UNCHANGED_FIELDS:
                yield from _effective_nodes(child)


def _splice(source: str, node: Any, new: str) -> str:
    """Return the source with a node replaced by another text, in parentheses if it is an
    expression.
    """
    lines = source.encode().splitlines(keepends=True)
    begin = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    text = b"".join(lines)
    return (
        text[:begin] + (new if isinstance(node, ast.stmt) else f"({new})").encode() + text[end:]
    ).decode()


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def draw(root: Path, packages: list[str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants from random places, all equally likely, without those that are listed as
    equivalent.
    """
    entries = tomllib.loads((root / "tools" / "equivalent.toml").read_text()).get("mutant", [])
    equivalent = {(entry["file"], entry["text"], entry["change"]) for entry in entries}
    files = [
        file
        for package in packages
        for file in sorted((root / "src" / "evenly" / package).rglob("*.py"))
    ]
    possible = [
        one
        for file in files
        for one in mutants(root, file)
        if (one.file, one.text, one.change) not in equivalent
    ]
    return random.Random(seed).sample(possible, min(count, len(possible)))


def imports(root: Path) -> dict[str, set[str]]:
    """Return, for each module of `src` and `tests`, the modules that import it anywhere in their
    code.
    """
    files = {
        _name(path, root): path
        for folder in ("src", "tests")
        for path in sorted((root / folder).rglob("*.py"))
    }
    users: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [one if one in files else str(node.module) for one in inner]
            for one in names:
                users.get(one, set()).add(name)
    return users


def _name(path: Path, root: Path) -> str:
    relative = path.relative_to(root / "src" if root / "src" in path.parents else root)
    return ".".join(part for part in relative.with_suffix("").parts if part != "__init__")


def tests_of(file: str, root: Path, users: Mapping[str, set[str]]) -> list[str]:
    """Return the test files of a module, closest first, then those that use its whole package;
    without those that start browsers, federations or clusters.
    """
    module = _name(root / file, root)
    distance, border = {module: 0}, [module]
    while border:
        reached = {user for name in border for user in users.get(name, ())} - distance.keys()
        distance |= dict.fromkeys(reached, distance[border[0]] + 1)
        border = sorted(reached)
    words, package = (
        set(Path(file).stem.split("_")),
        Path(file).parent.relative_to("src/evenly").parts[0],
    )
    others = {f"test_{path.stem}" for path in (root / file).parent.glob("*.py")} - {
        f"test_{Path(file).stem}"
    }
    ranked = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        test = path.relative_to(root).as_posix()
        in_folder = path.is_relative_to(root / "tests" / package)
        same_folder = in_folder and path.stem not in others
        away = min(distance.get(_name(path, root), FAR + 1), FAR if same_folder else FAR + 1)
        if away <= FAR and not ELSEWHERE.match(test):
            close = in_folder + same_folder + 2 * len(words & set(path.stem.split("_")))
            ranked.append((away - close, path.stat().st_size, test))
    nearest = [test for *_, test in sorted(ranked)][:NEAREST]
    examples = [EXAMPLES] if ">>> " in (root / file).read_text() else []
    further = [test for test in [*examples, *IN_USE.get(package, ())] if (root / test).exists()]
    return nearest + [test for test in further if test not in nearest]


def run_tests(folder: Path, tests: list[str], seconds: float) -> tuple[int | None, str]:
    """Return pytest's exit status, or None if it ran out of time, and its output.

    The limit is `seconds` of processor time, and five times as many on the clock.
    """
    env = os.environ | {
        "PYTHONPATH": str(folder / "src"),
        "HYPOTHESIS_PROFILE": "mutants",
        "CI": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    env.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
    pytest = [sys.executable, "-m", "pytest", *PYTEST_OPTIONS, *tests]
    limited = ["sh", "-c", f'ulimit -t {seconds:.0f}; exec "$@"', "sh", *pytest]
    with tempfile.TemporaryFile("w+") as output:
        # In a session of its own, because a mutant may send signals to other processes.
        process = subprocess.Popen(
            limited,
            cwd=folder,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(5 * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            status = None
        end_all(folder)
        process.wait()
        output.seek(0)
        return None if status in (-signal.SIGXCPU, -signal.SIGKILL) else status, output.read()


def end_all(folder: Path) -> None:
    """End every process whose working directory is in this copy: the tests, and processes that they
    left running.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").resolve().is_relative_to(folder):
                os.kill(int(process.name), signal.SIGKILL)


def try_mutant(mutant: Mutant, folder: Path, tests: list[str], seconds: float) -> Outcome:
    """Run the tests on a mutant in a copy of the repository, and restore the copy."""
    path, began = folder / mutant.file, time.monotonic()
    before = path.read_text()
    path.write_text(mutant.source)
    try:
        status, output = run_tests(folder, tests, seconds)
    finally:
        path.write_text(before)
    failed = FAILED.search(output)
    by = (
        failed[1]
        if failed
        else "a test that hangs"
        if "Timeout (" in output
        else f"pytest's exit status {status}"
    )
    survivals = {0: "", 5: "without tests", None: "so far, when the time was up"}
    return Outcome(
        mutant, status not in survivals, survivals.get(status, by), tests, time.monotonic() - began
    )


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names that are not copied: outputs of commands in the root, and hidden files
    anywhere.
    """
    return {
        name
        for name in names
        if name.startswith(".")
        or name == "__pycache__"
        or (Path(folder) == ROOT and name in LEFT_OUT)
    }


def try_all(chosen: list[Mutant], seconds: float, workers: int) -> list[Outcome]:
    """Try every mutant, each worker in a copy of its own. Tests that kill a mutant must pass on the
    unchanged program.
    """
    outcomes, began = [], time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as short,
        ThreadPoolExecutor(workers) as pool,
    ):
        copies: Queue[Path] = Queue()
        for i in range(workers):
            shutil.copytree(ROOT, Path(short) / str(i), symlinks=True, ignore=left_out)
            copies.put(Path(short) / str(i))
        users = imports(Path(short) / "0")

        def one(mutant: Mutant) -> Outcome:
            folder = copies.get()
            try:
                # of the copy: tests that are written meanwhile are not in it
                return try_mutant(mutant, folder, tests_of(mutant.file, folder, users), seconds)
            finally:
                copies.put(folder)

        for done, future in enumerate(
            as_completed([pool.submit(one, mutant) for mutant in chosen]), 1
        ):
            outcomes.append(future.result())
            left = (time.monotonic() - began) / done * (len(chosen) - done)
            print(
                f"[{done}/{len(chosen)}, {left / 60:.0f} min left] {describe(outcomes[-1])}",
                flush=True,
            )
        return check_failures(outcomes, copies.get())


def check_failures(outcomes: list[Outcome], folder: Path) -> list[Outcome]:
    """Return the outcomes without kills by tests that also fail on the unchanged program."""
    killers = sorted({one.by.partition("[")[0] for one in outcomes if one.by.startswith("tests/")})
    output = run_tests(folder, ["--maxfail=1000", *killers], 900.0)[1] if killers else ""
    broken = set(FAILED.findall(output))
    return [
        (
            one._replace(killed=False, by=f"fails without the change too: {one.by}")
            if one.by in broken
            else one
        )
        for one in outcomes
    ]


def describe(outcome: Outcome) -> str:
    mutant, state = (
        outcome.mutant,
        f"killed by {outcome.by}" if outcome.killed else "SURVIVED " + outcome.by,
    )
    return f"{mutant.file}:{mutant.line}  {mutant.change}  {state} ({outcome.seconds:.0f} s)"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument(
        "--packages", nargs="+", default=list(PACKAGES), help="folders below src/evenly"
    )
    parser.add_argument(
        "--seconds", type=float, default=90.0, help="processor time for the tests of one mutant"
    )
    parser.add_argument("--workers", type=int, default=2, help="number of mutants at a time")
    parser.add_argument(
        "--list", action="store_true", help="print the mutants without running tests"
    )
    parser.add_argument("--json", type=Path, help="write all outcomes into this file")
    options = parser.parse_args()
    chosen = draw(ROOT, options.packages, options.count, options.seed)
    if options.list:
        print(*(f"{one.file}:{one.line}  {one.change}" for one in chosen), sep="\n")
        return 0
    report(try_all(chosen, options.seconds, options.workers), options.seed, options.json)
    return 0


def report(outcomes: list[Outcome], seed: int, file: Path | None) -> None:
    """Print the survivors, and write all outcomes into a file if one is given."""
    survivors = [one for one in outcomes if not one.killed]
    print(
        f"\n{len(outcomes) - len(survivors)} of {len(outcomes)} mutants killed (seed {seed})."
        " Survivors:"
    )
    for one in survivors:
        print(f"- {describe(one)}\n  {one.mutant.text}\n  tests: {' '.join(one.files)}")
    if file:
        rows = [
            {
                **one._asdict(),
                "mutant": {k: v for k, v in one.mutant._asdict().items() if k != "source"},
            }
            for one in outcomes
        ]
        file.write_text(json.dumps({"seed": seed, "outcomes": rows}, indent=2))


if __name__ == "__main__":
    sys.exit(main())
