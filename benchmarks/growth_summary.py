"""What the points of `growth.py` say: tables, and whether what grows grows as it must. Nothing is
timed here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

SECTIONS = ("cohort", "clients", "sizes", "model", "runs")
PROPORTIONAL, FLAT, UNEQUAL = 0.20, 1.2, 1.3
OF_DATA, BESIDE = 1.5, 1024  # memory: times the raw data, and MiB beside

TITLES = {
    "cohort": "Clients per round",
    "clients": "Registered clients",
    "sizes": "Clients of different sizes",
    "model": "Size of the model",
    "runs": "Runs in one program",
}
DRAWN = {
    "cohort": {"cohort": "Time of a round by clients per round; dashed: proportional growth"},
    "clients": {
        "clients": "Time of a round of 1,000 clients, by registered clients; dashed: constant",
        "memory": "Peak memory by registered clients; dashed: limit",
    },
    "model": {"model": "Time of a step by parameters; dashed: proportional growth"},
    "runs": {"runs": "Time of a round by runs in one program; dashed: one run after another"},
}

Line = dict[str, Any]


class Column(NamedTuple):
    title: str
    text: Callable[[Line], str]


def number(name: str, form: str = ",") -> Callable[[Line], str]:
    return lambda line: format(line[name], form)


def figures(name: str) -> Callable[[Line], str]:
    """Three of them, but none of a large number left out."""
    return lambda line: f"{line[name]:,.0f}" if line[name] >= 100 else f"{line[name]:.3g}"


COHORT = Column("clients per round", number("cohort"))
STEPS = Column("steps per round", number("steps_per_round", ",.0f"))
ROUND, STEP = (
    Column("ms per round", figures("ms_per_round")),
    Column("µs per step", figures("us_per_step")),
)
PEAK, COMPILING = (
    Column("peak, MB", number("peak_megabytes")),
    Column("compiling, s", number("compile_seconds", ".1f")),
)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "cohort": (COHORT, STEPS, ROUND, STEP, COMPILING, PEAK),
    "clients": (
        Column(
            "registered clients",
            lambda line: f"{line['clients']:,}" + (", in a file" if line["mapped"] else ""),
        ),
        STEPS,
        ROUND,
        Column("first rounds done after, s", number("first_block_seconds", ".1f")),
        COMPILING,
        Column("raw data, MB", number("raw_megabytes", ",.0f")),
        PEAK,
        Column("peak of own memory, MB", number("anonymous_megabytes")),
        Column("peak of mapped files, MB", number("file_megabytes")),
    ),
    "sizes": (
        Column(
            "clients",
            lambda line: (
                f"{line['smallest_client']:,} to {line['largest_client']:,} rows"
                if line["spread"]
                else "equal"
            ),
        ),
        Column("rows per round", number("rows_per_round", ",.0f")),
        STEPS,
        ROUND,
        STEP,
        COMPILING,
        PEAK,
    ),
    "model": (Column("parameters", number("parameters")), ROUND, STEP, COMPILING, PEAK),
    "runs": (
        Column("runs in one program", number("runs")),
        ROUND,
        Column("ms per round and run", lambda line: f"{line['ms_per_round'] / line['runs']:.3g}"),
        COMPILING,
        PEAK,
    ),
}


def table(section: str, lines: list[Line]) -> str:
    """One section's points as a Markdown table."""
    columns = COLUMNS[section]
    rows = [
        [c.title for c in columns],
        ["---:"] * len(columns),
        *([c.text(line) for c in columns] for line in lines),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def middle(lines: list[Line]) -> Line:
    """A point's several measurements as one: that with the middle time, and the most memory and the
    widest range of all of them.
    """
    one = sorted(lines, key=lambda line: line["ms_per_round"])[(len(lines) - 1) // 2]
    most = {name: max(line[name] for line in lines) for name in one if name.endswith("_megabytes")}
    lows, highs = zip(*(line["range"] for line in lines), strict=True)
    return (
        one
        | most
        | {
            "range": [min(lows), max(highs)],
            "turns": [line["ms_per_round"] for line in lines],
        }
    )


def judged(sections: dict[str, Any]) -> list[dict[str, Any]]:
    """Each requirement that the sections allow to judge: what it is, what was found, the limit, and
    whether it is reached.
    """
    points = {name: section["points"] for name, section in sections.items()}
    found = [
        *_cohort(points.get("cohort", [])),
        *_clients(points.get("clients", [])),
        *_sizes(points.get("sizes", [])),
    ]
    return [
        {"what": what, "found": round(value, 3), "limit": limit, "reached": bool(value <= limit)}
        for what, value, limit in found
    ]


Judged = list[tuple[str, float, float]]


def _cohort(lines: list[Line]) -> Judged:
    if len(lines) < 2:
        return []
    per_step = np.array([line["us_per_step"] for line in lines])
    off = float(np.abs(per_step / np.median(per_step) - 1).max())
    return [
        (
            (
                f"Cohorts of {lines[0]['cohort']:,} to {lines[-1]['cohort']:,} clients: largest"
                " relative deviation of the time per step from its median"
            ),
            off,
            PROPORTIONAL,
        )
    ]


def _clients(lines: list[Line]) -> Judged:
    found: Judged = []
    everyone = next((line for line in lines if line["clients"] == line["cohort"]), None)
    for line in (line for line in lines if line["clients"] == max(one["clients"] for one in lines)):
        kind = f"{line['clients']:,} clients" + (", in a file" if line["mapped"] else "")
        if everyone and everyone is not line:
            what = (
                f"{kind}: time of a round with {line['cohort']:,} of them, relative to a federation"
                f" of {line['cohort']:,}"
            )
            found.append((what, line["ms_per_round"] / everyone["ms_per_round"], FLAT))
        share = line["peak_megabytes"] / most_megabytes(line)
        found.append(
            (f"{kind}: peak memory, relative to 1.5 times the raw data plus 1 GiB", share, 1.0)
        )
    return found


def most_megabytes(line: Line) -> float:
    """How much memory a point may take at its peak, Python, JAX and the data included."""
    return OF_DATA * line["raw_megabytes"] + BESIDE


def _sizes(lines: list[Line]) -> Judged:
    equal, unequal = (
        [line for line in lines if bool(line["spread"]) is given] for given in (False, True)
    )
    if not (equal and unequal):
        return []
    by_row = [line["ms_per_round"] / line["rows_per_round"] for line in (unequal[0], equal[0])]
    return [
        (
            "Clients of different sizes: time per row, relative to clients of equal size",
            by_row[0] / by_row[1],
            UNEQUAL,
        )
    ]


def sentence(line: Line) -> str:
    """One point, while others are still to come."""
    low, high = line["range"]
    return (
        f"{line['section']}: {line['clients']:,} clients{' in a file' if line['mapped'] else ''},"
        f" {line['cohort']:,} a round, {line['parameters']:,} parameters, {line['runs']} runs:"
        f" {line['ms_per_round']:.3f} ms a round ({low:.3f} to {high:.3f}),"
        f" {line['us_per_step']:.2f} µs a step; peak {line['peak_megabytes']:,} MB,"
        f" {line['raw_megabytes']:,.0f} MB of it data; others used {100 * line['others']:.0f} % of"
        " the machine"
    )


def verdicts(found: dict[str, Any]) -> str:
    """The requirements in words."""
    return "\n".join(
        f"- {one['what']}: {one['found']:.2f} (limit: {one['limit']:g},"
        f" {'met' if one['reached'] else '**missed**'})."
        for one in found["judged"]
    )


def page(found: dict[str, Any]) -> str:
    """All tables and verdicts, for the terminal."""
    return "\n\n".join(
        [
            *(table(name, section["points"]) for name, section in found["sections"].items()),
            verdicts(found),
        ]
    )


def document(found: dict[str, Any]) -> str:
    """The same as the generated part of a page of the documentation, with pictures."""
    where, used = (
        found["machine"],
        ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
    )
    cpu = f"{where['cpu']}, {where['cores']} cores, {where['system']}"
    taken = f"Measured on {found['date']} on {cpu}, with {used}:\n\n    {found['command']}"
    parts = [taken, "## Requirements", verdicts(found | {"judged": judged(found["sections"])})]
    for name, section in found["sections"].items():
        drawn = [
            f"![{words}](pictures/growth-{picture}.svg)"
            for picture, words in DRAWN.get(name, {}).items()
        ]
        parts += [f"## {TITLES[name]}", *drawn, table(name, section["points"])]
    return "\n\n".join(parts)
