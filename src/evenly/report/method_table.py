"""The results table as HTML and as LaTeX."""

from collections.abc import Collection, Mapping

import numpy as np

from evenly.metrics import Metric
from evenly.report.html import Column, Entry, Html, element, grid, join, sentence_case
from evenly.report.values import (
    UNDEFINED,
    Cell,
    Table,
    capitalise,
    format_spread,
    format_value,
    spread_words,
)

# The results table as HTML: one row per method, the best value marked, intervals, and a reason
# where there is no value.

# label -> metric -> ends, where seeds give none
Intervals = Mapping[str, Mapping[str, tuple[float, float]]]


def method_table(
    table: Table,
    caption: str,
    kind: str = "",
    *,
    intervals: Intervals | None = None,
    withheld: frozenset[str] = frozenset(),
    few: Mapping[str, Collection[str]] | None = None,
) -> Html:
    """One row per method. Metrics in `withheld` are hidden; `few` names those of each method that
    rest on few rows and get a star.
    """
    columns = [Column("Method"), *(Column(sentence_case(m.title), _hint(m)) for m in table.metrics)]
    own = intervals or {}
    rows = [
        [
            row.label,
            *(
                (
                    hidden_dash()
                    if m.name in withheld
                    else _entry(
                        row.cells[m.name],
                        own.get(row.label, {}).get(m.name),
                        star=m.name in (few or {}).get(row.label, ()),
                    )
                )
                for m in table.metrics
            ),
        ]
        for row in table.rows
    ]
    return grid(caption, columns, rows, kind=kind, methods=True)


def _hint(metric: Metric) -> str:
    if metric.name == "variance_noise":
        return "chance alone"
    return "" if metric.direction == "neither" else metric.direction


def _entry(cell: Cell, interval: tuple[float, float] | None, *, star: bool = False) -> Entry:
    if cell.metric.undefined and not np.isfinite(cell.spread.mean):
        return dash(cell.metric.undefined)
    spoken = {True: " (best)", False: ""}[cell.best] + (
        " (not clearly worse than the best)" if cell.near else ""
    )
    parts: list[str] = [
        element(
            "span",
            {"class": "nowrap"},
            _proper(cell.text).replace("± ", "±\u00a0") + (" *" if star else ""),
        )
    ]
    if interval and np.isfinite(interval).all():
        ends = " to ".join(_proper(format_value(end, cell.metric)) for end in interval)
        parts.append(element("small", {"class": "interval"}, f" {ends}"))
    return Entry(
        join([*parts, element("span", {"class": "spoken"}, spoken)]),
        "best" if cell.best else "near" if cell.near else "",
    )


# One reason for both kinds of hidden cells. To tell them apart would give numbers away: if two
# hidden groups have 11 people together and the smaller one is known to have fewer than 10, the
# other at least 10, then they have 1 and 10.
HIDDEN = "hidden: it rests on too few people, or would reveal a figure that does"


def hidden_dash() -> Entry:
    """A cell that is not shown because it rests on too few people, or would reveal one that
    does.
    """
    return _dash(HIDDEN)


def dash(reason: str) -> Entry:
    """A cell without a value, and why."""
    return _dash(f"undefined: {reason}")


def _dash(why: str) -> Entry:
    return Entry(
        join(
            [
                element("span", {"title": why, "aria-hidden": "true"}, "–"),
                element("span", {"class": "spoken"}, why),
            ]
        ),
        "",
    )


def _proper(number: str) -> str:
    return number.replace("-", "−")


def key_of(table: Table, unit: str, single: str = "One seed, so there are no intervals. ") -> Html:
    """How to read the numbers and the marks; `single` is what is said of intervals where there is
    one seed.
    """
    spread = (
        f"{capitalise(spread_words(table.seeds))} (Student's t). " if table.seeds > 1 else single
    )
    marks: list[str] = []
    if len(table.rows) > 1:
        marks = [element("span", {"class": "swatch best"}, "best")]
        if table.seeds > 1:
            near = (
                " the 95 % interval of the seed-by-seed difference from the best includes 0, or"
                " there are fewer than six seeds and the difference is the same in all."
            )
            marks += [" ", element("span", {"class": "swatch near"}, "not clearly worse"), near]
    return element("p", {"class": "soft marks"}, spread, unit, *marks)


# The results table for a paper: LaTeX with booktabs, mean ± half of the 95 % interval over seeds.
#
# Bold is what is best in its column and clearly so: over these seeds, every other method is clearly
# worse.

# What LaTeX would take for something else, or would not print in every font.
ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "'": r"\textquotesingle{}",
    '"': r"\textquotedbl{}",
    "²": r"\textsuperscript{2}",
    "±": r"$\pm$",
    "−": r"$-$",
}


def latex(table: Table, names: Mapping[str, str], about: str) -> str:
    """One row per method, and a column for each metric under its name here."""
    lines = [
        f"% {' '.join(about.split())}",
        (
            r"% In the preamble: \usepackage{booktabs}, and \usepackage[T1]{fontenc} and"
            r" \usepackage{textcomp} where names need quotes."
        ),
        rf"\begin{{tabular}}{{l{'r' * len(names)}}}",
        r"\toprule",
        _row("method", *map(escape_latex, names.values())),
        r"\midrule",
        *(
            _row(_label(row.label), *(_cell(row.cells[metric]) for metric in names))
            for row in table.rows
        ),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(ESCAPES.get(char, char) for char in text)


def _label(text: str) -> str:
    """How a method is called: as it is if it is LaTeX, such as `$q$-FedAvg`."""
    return text if set(text) & set("$\\") else escape_latex(text)


def _row(*cells: str) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: Cell) -> str:
    if not np.isfinite(cell.spread.mean):
        return UNDEFINED
    mean, *half = format_spread(cell.spread, cell.metric).split(" ± ")
    shown = rf"\mathbf{{{mean}}}" if cell.clear else mean
    return rf"${shown} \pm {half[0]}$" if half else f"${shown}$"
