"""Pictures of how time and memory grow, from the results that `growth.py` kept. `python -m
tools.generate --pictures` saves them.
"""

from math import ceil, floor, log10
from typing import Any, NamedTuple

import altair as alt
from growth_summary import most_megabytes

from evenly.report.charts.theme import finish, values

Line = dict[str, Any]


class Axis(NamedTuple):
    """What is measured, and on what kind of axis."""

    field: str
    title: str
    logarithmic: bool = True  # else from zero: for what should stay as it is


class Picture(NamedTuple):
    """One section: what grows, what is measured, and how it should grow."""

    title: str
    over: Axis
    shown: Axis
    proportional: bool = False  # whether the dashed line rises in proportion; else it is level
    # the point through which it goes; the largest is the one whose overheads count least
    reference: int = 0


CLIENTS, ROUND = Axis("clients", "Registered clients"), Axis("ms_per_round", "ms a round")
PICTURES = {
    "cohort": Picture(
        "Time of a round, and the clients in it",
        Axis("cohort", "Clients a round"),
        ROUND,
        proportional=True,
        reference=-1,
    ),
    "clients": Picture(
        "Time of a round of 1,000, and registered clients",
        CLIENTS,
        ROUND._replace(logarithmic=False),
    ),
    "memory": Picture(
        "Peak memory, and registered clients", CLIENTS, Axis("peak_megabytes", "Peak, MB")
    ),
    "model": Picture(
        "Time of a step, and the model",
        Axis("parameters", "Parameters"),
        Axis("us_per_step", "µs a step"),
        proportional=True,
        reference=-1,
    ),
    "runs": Picture(
        "Time of a round, and runs together", Axis("runs", "Runs"), ROUND, proportional=True
    ),
}


def pictures(found: dict[str, Any]) -> dict[str, alt.LayerChart]:
    """A chart for each section that the results have, by the name of its file."""
    points = {name: section["points"] for name, section in found["sections"].items()}
    points["memory"] = points.get("clients", [])
    return {
        f"growth-{name}": chart(picture, points[name])
        for name, picture in PICTURES.items()
        if points.get(name)
    }


def chart(picture: Picture, lines: list[Line]) -> alt.LayerChart:
    """The points joined by a line; dashed beside it the same growing as it should, or how much
    memory it may take.
    """
    over, shown = picture.over, picture.shown
    # a round of fewer clients than wanted, because there are no more, is another thing
    whole = shown.field == "ms_per_round"
    lines = [
        line
        for line in lines
        if not line["mapped"] and not (whole and line["clients"] < line["cohort"])
    ]
    drawn = [{name: line[name] for name in (over.field, shown.field)} for line in lines]
    beside = [
        {over.field: line[over.field], shown.field: value}
        for line, value in zip(lines, _beside(picture, lines), strict=True)
    ]
    every = drawn + beside
    x = alt.X(f"{over.field}:Q", scale=_scale(over, every), axis=_axis(over, every))
    y = alt.Y(f"{shown.field}:Q", scale=_scale(shown, every), axis=_axis(shown, every))
    base = alt.Chart(values(drawn)).encode(x=x, y=y)
    layers = [
        alt.Chart(values(beside)).mark_line(style="guide-line", strokeDash=[4, 3]).encode(x=x, y=y),
        base.mark_line(strokeWidth=1.6, style="weight"),
        base.mark_point(filled=True, size=50, opacity=1, style="weight"),
    ]
    told = "; ".join(f"{line[over.field]:,}: {line[shown.field]:,.3g}" for line in lines)
    return finish(
        layers,
        title=picture.title,
        description=f"{shown.title} by {over.title.lower()}: {told}.",
        height=220,
    )


def _beside(picture: Picture, lines: list[Line]) -> list[float]:
    """What every point may be; else what it would be if it grew from the reference as it should."""
    if picture.shown.field == "peak_megabytes":
        return [most_megabytes(line) for line in lines]
    over, shown = picture.over.field, picture.shown.field
    one = lines[picture.reference]
    return [one[shown] * (line[over] / one[over] if picture.proportional else 1) for line in lines]


def _ticks(axis: Axis, rows: list[Line]) -> list[float]:
    """Powers of ten around all values; where those are few, also 2 and 5 times them."""
    found = [row[axis.field] for row in rows]
    low, high = floor(log10(min(found))), ceil(log10(max(found)))
    return [
        step * 10.0**k
        for k in range(low, high + 1)
        for step in ((1,) if high - low > 2 else (1, 2, 5))
    ]


def _scale(axis: Axis, rows: list[Line]) -> alt.Scale:
    found = [row[axis.field] for row in rows]
    low, high = min(found), max(found)
    if not axis.logarithmic:
        return alt.Scale(domain=[0, high * 1.3], nice=False)
    return alt.Scale(type="log", domain=[low / 1.3, high * 1.3], nice=False)


def _axis(axis: Axis, rows: list[Line]) -> alt.Axis:
    if not axis.logarithmic:
        return alt.Axis(title=axis.title, format=",~r", tickCount=5)
    return alt.Axis(title=axis.title, format=",~r", values=_ticks(axis, rows))
