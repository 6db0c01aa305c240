"""Execute the tutorials and write their pages.

    python -m tools.tutorials                     renew the pages of all tutorials
    python -m tools.tutorials first_comparison    renew one page

A tutorial is a script in docs/tutorials in the percent format, which VS Code and Jupyter open as a
notebook: `# %% [markdown]` begins a cell of prose, written as comments, and `# %%` a cell of code.
Its page shows the prose, the code, what each cell printed, and the value of its last expression.
Charts are saved as SVG in docs/tutorials/images.

Each script runs in a process, a namespace and a working folder of its own.
"""

import argparse
import ast
import contextlib
import io
import json
import os
import pprint
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tools import markdown

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
IMAGES, OUTPUTS = "images", "outputs.json"
MOST_BYTES = 80_000  # of an image
MOST_SECONDS = 600  # that a script may take
WIDEST = 90  # line of a value that is printed
MARK = re.compile(r"^# %%(?P<kind> \[markdown\])?(?: tags=(?P<tags>\[.*\]))?\s*$")
BEGIN, END = '<div class="output" markdown>', "</div>"
OUTPUT = re.compile(f"{re.escape(BEGIN)}\n\n(.*?)\n\n{re.escape(END)}\n\n", re.DOTALL)
NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
RELATIVE = 0.02  # by how much a number of an output may differ from the page


class Cell(NamedTuple):
    """A cell of a script."""

    is_code: bool
    text: str
    line: int  # of the script, on which the text begins
    tags: tuple[str, ...] = ()


def scripts() -> list[Path]:
    """Return the scripts of all tutorials."""
    return sorted(FOLDER.glob("*.py"))


def cells(script: Path) -> list[Cell]:
    """Split a script into its cells."""
    lines = script.read_text().splitlines()
    starts = [(i, mark) for i, line in enumerate(lines) if (mark := MARK.match(line))]
    if not starts or starts[0][0] != 0:
        raise ValueError(f"{script.name} must begin with a cell, '# %% [markdown]'.")
    ends = [i for i, _ in starts[1:]] + [len(lines)]
    return [
        _cell(mark, lines[i + 1 : end], i + 2) for (i, mark), end in zip(starts, ends, strict=True)
    ]


def _cell(mark: re.Match[str], lines: Sequence[str], line: int) -> Cell:
    is_code = mark["kind"] is None
    while is_code and lines and not lines[0].strip():
        lines, line = lines[1:], line + 1
    text = "\n".join(lines if is_code else [re.sub("^# ?", "", one) for one in lines])
    return Cell(is_code, text.strip("\n"), line, tuple(json.loads(mark["tags"] or "[]")))


def tagged(script: Path, tag: str) -> str:
    """Return the code of the cell with a tag."""
    (text,) = [cell.text for cell in cells(script) if tag in cell.tags]
    return text


# Execution, in the process of a script.


def execute(script: Path, folder: Path) -> None:
    """Execute a script. Write what its code cells show, as Markdown and images, into a folder."""
    main = ModuleType("__main__")
    main.__file__ = str(script)
    sys.modules["__main__"] = main  # where notebooks have their names, too
    outputs: list[str] = []
    for cell in cells(script):
        if cell.is_code:
            printed, value = _run(cell, script, main.__dict__)
            number = sum(IMAGES in output for output in outputs) + 1
            parts = [_fenced(printed), _shown(value, folder, f"{script.stem}-{number}")]
            outputs.append("\n\n".join(filter(None, parts)))
    (folder / OUTPUTS).write_text(json.dumps(outputs))


def _run(cell: Cell, script: Path, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell. Return what it printed, and the value of its last expression."""
    tree, value = ast.parse(cell.text), None
    ast.increment_lineno(tree, cell.line - 1)  # errors name the line of the script
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, str(script), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(script), "eval"), names)
    return printed.getvalue(), value


def _shown(value: Any, folder: Path, image: str) -> str:
    """Return a value as a notebook shows it, in Markdown."""
    import altair as alt
    import pandas as pd

    if value is None:
        return ""
    if isinstance(value, alt.TopLevelMixin):
        return _chart(value, folder, image)
    if isinstance(value, pd.Series):
        value = value.to_frame()
    if isinstance(value, pd.DataFrame):
        return _table(value)
    if hasattr(value, "_repr_html_"):
        return re.sub(r"(?<!\n)(?=<(?:p|table|tr|/table)\b)", "\n", value._repr_html_())
    return _fenced(pprint.pformat(value, width=WIDEST, sort_dicts=False))


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def _chart(chart: Any, folder: Path, name: str) -> str:
    from evenly.report.charts.theme import saved_config

    place = folder / IMAGES / f"{name}.svg"
    place.parent.mkdir(exist_ok=True)
    told = chart.to_dict()
    if "background" not in told["config"]:  # a chart of the tutorial's own
        chart = chart.properties(config=saved_config())
    chart.save(str(place))
    size = place.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{place.name} must have at most {MOST_BYTES:,} bytes, got {size:,}.")
    title = told.get("title", "Chart")
    words = title if isinstance(title, str) else title["text"]
    return f"![{words}]({IMAGES}/{place.name})"


def _table(frame: Any) -> str:
    """Return a DataFrame as a Markdown table, with its index unless it only numbers the rows."""
    import pandas as pd

    if frame.index.name or not pd.api.types.is_integer_dtype(frame.index.dtype):
        frame = frame.reset_index(names=frame.index.names if any(frame.index.names) else "")
    marks = [
        "---:" if pd.api.types.is_numeric_dtype(kind) and kind.kind != "b" else "---"
        for kind in frame.dtypes
    ]
    rows = zip(*(_texts(frame.iloc[:, i]) for i in range(frame.shape[1])), strict=True)
    return markdown.table([str(name) for name in frame.columns], list(rows), marks)


def _texts(column: Any) -> list[str]:
    """Return the values of a column as text, floating-point numbers with equally many decimals."""
    import pandas as pd

    if not pd.api.types.is_float_dtype(column.dtype):
        return [str(value) for value in column]
    places = max((len(f"{value:.6g}".partition(".")[2]) for value in column.dropna()), default=0)
    return ["NaN" if value != value else f"{value:.{places}f}" for value in column]


# Pages, in the process that starts the others.


def outputs_of(script: Path, folder: Path) -> list[str]:
    """Execute a script in a process of its own. Return what its code cells show, in Markdown.
    Images are written into the folder.

    Raises:
        RuntimeError: If the script fails or does not end in time. Whatever it started is stopped.
    """
    work = folder / "work"
    work.mkdir(parents=True)
    command = [sys.executable, "-W", "error", "-m", "tools.tutorials", "--execute", str(folder)]
    process = subprocess.Popen(
        [*command, str(script)],
        cwd=work,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # commands of evenly stop what they started
        printed, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{script.name} failed.\n{printed}")
    return json.loads((folder / OUTPUTS).read_text())


def _environment() -> dict[str, str]:
    """Return the environment of a reader: JAX as it is, plain text, a terminal of fixed width."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "PYTEST_"))
    }
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [kept.get("PYTHONPATH")])]
    own = {"JAX_PLATFORMS": "cpu", "NO_COLOR": "1", "COLUMNS": "88"}
    return {**kept, **own, "PYTHONPATH": os.pathsep.join(paths)}


def page(script: Path, outputs: Sequence[str] | None = None) -> str:
    """Return the page of a script, with what its code cells show; without outputs, prose and code
    alone.
    """
    first, *others = cells(script)
    parts = [
        first.text,
        f"<!-- generated from {script.name} by tools/tutorials.py: do not edit -->",
    ]
    left = list(outputs or [])
    for cell in others:
        code = cell.text.replace("  # fmt: skip", "")  # for the formatter, not for readers
        parts.append(f"```python\n{code}\n```" if cell.is_code else cell.text)
        if cell.is_code and left and (output := left.pop(0)):
            parts.append(f"{BEGIN}\n\n{output}\n\n{END}")
    parts.append(
        f"*This page is made from `docs/tutorials/{script.name}`: [open it as a"
        " notebook](index.md).*"
    )
    return "\n\n".join(parts) + "\n"


def prose_and_code(text: str) -> str:
    """Return a page without its outputs."""
    return OUTPUT.sub("", text)


def differences(old: str, new: str) -> list[str]:
    """Return how the outputs of two pages of the same script differ. Numbers may differ by 2 % or
    by one unit of their last digit.
    """
    before, after = OUTPUT.findall(old), OUTPUT.findall(new)
    if len(before) != len(after):
        return [f"{len(before)} outputs became {len(after)}"]
    return [
        f"{one.strip()!r} became {other.strip()!r}"
        for first, second in zip(before, after, strict=True)
        for one, other in _paired(first.splitlines(), second.splitlines())
        if not _alike(one, other)
    ]


def _paired(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    most = max(len(old), len(new))
    fill = [""] * most
    return list(zip([*old, *fill][:most], [*new, *fill][:most], strict=True))


def _alike(old: str, new: str) -> bool:
    """Whether two lines have the same words, and numbers that are close."""
    words = [" ".join(NUMBER.sub("0", line).split()) for line in (old, new)]
    numbers = zip(NUMBER.findall(old), NUMBER.findall(new), strict=False)
    return words[0] == words[1] and all(_close(one, other) for one, other in numbers)


def _close(old: str, new: str) -> bool:
    values = [float(text.replace(",", "").replace("−", "-")) for text in (old, new)]
    unit = max(10.0 ** -len(text.partition(".")[2].partition("e")[0]) for text in (old, new))
    return abs(values[0] - values[1]) <= max(RELATIVE * abs(values[0]), unit * (1 + 1e-9))


def renew(script: Path) -> None:
    """Execute a script and write its page and its images."""
    with tempfile.TemporaryDirectory(prefix="tutorial-") as name:
        folder = Path(name)
        outputs = outputs_of(script, folder)
        for old in (FOLDER / IMAGES).glob(f"{script.stem}-*.svg"):
            old.unlink()
        for image in sorted((folder / IMAGES).glob("*.svg")):
            (FOLDER / IMAGES / image.name).write_text(image.read_text())
    script.with_suffix(".md").write_text(page(script, outputs))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.tutorials", description="Renew tutorials."
    )
    known: Mapping[str, Path] = {script.stem: script for script in scripts()}
    parser.add_argument("names", nargs="*", help=f"of {', '.join(known)}; all if none is given")
    parser.add_argument("--execute", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.execute:
        execute(Path(options.names[0]), Path(options.execute))
        return 0
    for name in options.names or known:
        if name not in known:
            parser.error(f"there is no tutorial {name!r}; there are {', '.join(known)}")
        print(f"{name} ...", flush=True)
        renew(known[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
