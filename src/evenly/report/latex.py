"""The results table for a paper: LaTeX with booktabs, mean ± half of the 95 % interval over seeds.

Bold is what is best in its column and clearly so: over these seeds, every other method is clearly worse.
"""

from collections.abc import Mapping

import numpy as np

from evenly.report.table import UNDEFINED, Cell, Table, format_spread

# What LaTeX would take for something else, or would not print in every font.
ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "'": r"\textquotesingle{}", '"': r"\textquotedbl{}", "²": r"\textsuperscript{2}", "±": r"$\pm$", "−": r"$-$",
}  # fmt: skip


def latex(table: Table, names: Mapping[str, str], about: str) -> str:
    """One row per method, and a column for each metric under its name here."""
    lines = [
        f"% {' '.join(about.split())}",
        r"% In the preamble: \usepackage{booktabs}, and \usepackage[T1]{fontenc} and \usepackage{textcomp} where names need quotes.",
        rf"\begin{{tabular}}{{l{'r' * len(names)}}}",
        r"\toprule",
        _row("method", *map(escaped, names.values())),
        r"\midrule",
        *(_row(escaped(row.label), *(_cell(row.cells[metric]) for metric in names)) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(ESCAPES.get(char, char) for char in text)


def _row(*cells: str) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: Cell) -> str:
    if not np.isfinite(cell.spread.mean):
        return UNDEFINED
    mean, *half = format_spread(cell.spread, cell.metric).split(" ± ")
    shown = rf"\mathbf{{{mean}}}" if cell.clear else mean
    return rf"${shown} \pm {half[0]}$" if half else f"${shown}$"
