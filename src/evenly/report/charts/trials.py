"""Charts of a search: the front of its trials, and how each setting matters."""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from evenly.experiment.search_trials import Trial
from evenly.experiment.tuning import Tuning
from evenly.experiment.tuning_space import Choices, Range
from evenly.metrics import EVERY_METRIC
from evenly.report.charts.theme import colour_of, finish, shape_of, tooltips, values
from evenly.report.tuning_trials import EMPHASISED, aims_of, every_method, kind_of, kinds_of
from evenly.report.values import capitalise, format_spread, unit_of

# The trials of a search, one aim against another: one mark per trial, and a line through those that
# no other beats.


MOST_WIDER = 3  # times that the view of the marks may be widened to hold ranges over seeds


class TuningView(NamedTuple):
    """The visible part of a plane of two metrics."""

    x: str
    y: str
    low: np.ndarray  # [2]
    high: np.ndarray

    def holds(self, tried: Trial) -> bool:
        at = np.array([tried.means[self.x], tried.means[self.y]])
        return bool(((self.low <= at) & (at <= self.high)).all())


def pairs_of_aims(tuning: Tuning) -> list[tuple[str, str]]:
    """The pairs of metrics to plot: a single objective over the metric that must be kept, else all
    pairs or, of more than three, the first with each.
    """
    aims = aims_of(tuning)
    if len(tuning.plan.objectives) == 1:
        aims = aims[::-1]
    if len(aims) <= 3:
        return [(x, y) for i, x in enumerate(aims) for y in aims[i + 1 :]]
    return [(aims[0], y) for y in aims[1:]]


def candidates(tuning: Tuning) -> list[Trial]:
    """The baseline and the trials that can be chosen: those within the margin or, without a margin,
    those on the front.

    All trials if there are fewer than three of these.
    """
    choice, every = tuning.choice, every_method(tuning)
    good = (
        choice.front
        if tuning.plan.within is None
        else [label for label, allowed in choice.allowed.items() if allowed]
    )
    found = [
        tried for label, tried in every.items() if label in (*good, choice.chosen, choice.baseline)
    ]
    return found if len(found) > 2 else list(every.values())


def room_of(tuning: Tuning) -> float:
    """How far a chart extends beyond the candidates, as a fraction of their range."""
    if len(candidates(tuning)) == len(every_method(tuning)):
        return 0.1  # nothing lies beyond
    # a margin is narrow, and what lies just outside tells what it costs
    return 0.35 if tuning.plan.within is None else 1.0


def view_of(tuning: Tuning, x: str, y: str) -> TuningView:
    """The view that fits the candidates. Failed trials may lie outside, since they would compress
    all others.
    """
    at = np.array([[tried.means[x], tried.means[y]] for tried in candidates(tuning)])
    at = at[np.isfinite(at).all(1)]
    room = room_of(tuning) * np.maximum(np.ptp(at, axis=0), 1e-3 * np.abs(at).max(0, initial=1e-9))
    low, high = at.min(0) - room, at.max(0) + room
    ends = _seed_ends(tuning, x, y)
    edge = 0.03 * np.ptp(ends, axis=0)
    wide = np.minimum(low, ends.min(0) - edge), np.maximum(high, ends.max(0) + edge)
    # Seeds that lie very far apart would compress all marks.
    fits = wide[1] - wide[0] <= MOST_WIDER * (high - low)
    return TuningView(x, y, np.where(fits, wide[0], low), np.where(fits, wide[1], high))


def cut_off(tuning: Tuning, view: TuningView) -> bool:
    """Whether the range over seeds of the chosen trial or the baseline leaves the view."""
    ends = _seed_ends(tuning, view.x, view.y)
    return bool(((ends < view.low) | (ends > view.high)).any())


def _seed_ends(tuning: Tuning, x: str, y: str) -> np.ndarray:
    """The values of all seeds of the chosen trial and the baseline, whose ranges are drawn.
    [seeds, 2]
    """
    own = [
        np.array([tried.values[x], tried.values[y]]).T for tried in (tuning.chosen, tuning.baseline)
    ]
    ends = np.concatenate(own)
    return ends[np.isfinite(ends).all(1)]


def tuning_front(tuning: Tuning, view: TuningView) -> alt.LayerChart:
    """The trials in one plane. Lines show the range over seeds of the chosen trial and of the
    baseline.
    """
    kinds, (x, y) = kinds_of(tuning), axes_of(view)
    every = every_method(tuning)
    rows = [_row(tuning, tried, view) for tried in every.values() if view.holds(tried)]
    two = len(aims_of(tuning)) == 2
    base = alt.Chart(values(rows)).encode(color=colour_of(kinds))
    marks = base.encode(x=x, y=y, shape=shape_of(kinds), tooltip=tooltip_of(tuning))
    spans = base.transform_filter(_is(EMPHASISED)).mark_rule(
        opacity=0.6, strokeWidth=1.6, clip=True
    )
    layers = [
        *([_line(rows, x, y)] if two else []),
        *_margin(tuning, view),
        spans.encode(x=alt.X("x_low:Q", title=axis_title(view.x)), x2="x_high:Q", y=y),
        spans.encode(x=x, y=alt.Y("y_low:Q", title=axis_title(view.y)), y2="y_high:Q"),
        marks.transform_filter(f"!({_is(EMPHASISED)})").mark_point(
            filled=True, size=60, opacity=0.9
        ),
        marks.transform_filter(_is(EMPHASISED)).mark_point(filled=True, size=180, opacity=0.9),
    ]
    title = capitalise(f"{EVERY_METRIC[view.x].title} and {EVERY_METRIC[view.y].title}")
    description = (
        f"{title}: one point for each of {len(rows)} settings; chosen is {tuning.choice.chosen}."
    )
    return finish(layers, title=title, description=description, height=380)


def _is(kinds: Sequence[str]) -> str:
    return " || ".join(f"datum.method === '{kind}'" for kind in kinds)


def axes_of(view: TuningView) -> tuple[alt.X, alt.Y]:
    """The axes of a view."""

    def scale(i: int) -> alt.Scale:
        return alt.Scale(domain=[float(view.low[i]), float(view.high[i])], nice=False, zero=False)

    return alt.X(
        "x:Q", axis=alt.Axis(title=axis_title(view.x), tickCount=6), scale=scale(0)
    ), alt.Y("y:Q", axis=alt.Axis(title=axis_title(view.y), tickCount=5), scale=scale(1))


def axis_title(name: str) -> str:
    """A metric's title, unit and better direction."""
    metric = EVERY_METRIC[name]
    unit = "" if unit_of(metric) == "%" and "%" in metric.title else unit_of(metric)
    return f"{capitalise(metric.title)}{f' ({unit})' if unit else ''}: {metric.direction}"


def _line(rows: list[dict[str, Any]], x: alt.X, y: alt.Y) -> alt.Chart:
    front = [row for row in rows if row["front"] == "yes"]
    return (
        alt.Chart(values(front))
        .mark_line(style="guide-line", strokeWidth=1.6, clip=True)
        .encode(x=x, y=y, order="x:Q")
    )


def margin_in(tuning: Tuning, view: TuningView) -> float | None:
    """Where the margin ends on an axis of the view; None if it is on neither axis or out
    of view.
    """
    plan = tuning.plan
    if plan.within is None or plan.keep not in (view.x, view.y):
        return None
    end, axis = (
        tuning.baseline.means[plan.keep] - EVERY_METRIC[plan.keep].better * plan.within,
        int(plan.keep == view.y),
    )
    return end if view.low[axis] <= end <= view.high[axis] else None


def _margin(tuning: Tuning, view: TuningView) -> list[alt.Chart]:
    if (end := margin_in(tuning, view)) is None:
        return []
    rule = alt.Chart(values([{"end": end}])).mark_rule(style="guide-line", strokeDash=[4, 4])
    return [rule.encode(x="end:Q") if tuning.plan.keep == view.x else rule.encode(y="end:Q")]


def tooltip_of(tuning: Tuning) -> list[alt.Tooltip]:
    """The tooltip of a trial."""
    aims = {f"aim{i}": EVERY_METRIC[name].title for i, name in enumerate(aims_of(tuning))}
    return tooltips(label="Method", method="It is", front="On the front", **aims)


def trial_row(tuning: Tuning, tried: Trial) -> dict[str, Any]:
    """The kind, the label and the metrics of a trial, as chart data."""
    return {
        "method": kind_of(tuning, tried),
        "label": tried.label,
        "front": "yes" if tried.label in tuning.choice.front else "no",
        **{
            f"aim{i}": format_spread(tried.spread(name), EVERY_METRIC[name])
            for i, name in enumerate(aims_of(tuning))
        },
    }


def _row(tuning: Tuning, tried: Trial, view: TuningView) -> dict[str, Any]:
    row = trial_row(tuning, tried)
    for axis, name in (("x", view.x), ("y", view.y)):
        seeds = [value for value in tried.values[name] if np.isfinite(value)]
        row |= {axis: tried.means[name], f"{axis}_low": min(seeds), f"{axis}_high": max(seeds)}
    return row


# An aim against one searched setting: one mark per trial, and the baseline as a line.


def tuning_setting(tuning: Tuning, setting: str, aim: str) -> alt.LayerChart:
    """An objective against one searched setting, one mark for each trial."""
    kinds, search = kinds_of(tuning), tuning.plan.space.dimensions[setting]
    low, high = _reach(tuning, aim)
    shown = [tried for tried in tuning.trials if low <= tried.means[aim] <= high]
    rows = [
        {
            **trial_row(tuning, tried),
            "setting": _place(search, tried.settings[setting]),
            "aim": tried.means[aim],
        }
        for tried in shown
    ]
    y = alt.Y(
        "aim:Q",
        axis=alt.Axis(title=axis_title(aim), tickCount=5),
        scale=alt.Scale(domain=[low, high], nice=False, zero=False),
    )
    marks = alt.Chart(values(rows)).mark_point(filled=True, opacity=0.9)
    base = marks.encode(
        x=_axis(search, setting),
        y=y,
        color=colour_of(kinds),
        shape=shape_of(kinds),
        tooltip=tooltip_of(tuning),
    )
    baseline = alt.Chart(values([{"aim": tuning.baseline.means[aim]}]))
    layers = [
        baseline.mark_rule(style="guide-line", strokeDash=[4, 4]).encode(y="aim:Q"),
        base.encode(size=alt.condition(_is(EMPHASISED[:1]), alt.value(180), alt.value(60))),
    ]
    title = capitalise(f"{EVERY_METRIC[aim].title} by {setting}")
    return finish(
        layers,
        title=title,
        description=f"{title}: one point for each of {len(rows)} settings.",
        height=260,
    )


def count_outside(tuning: Tuning, aim: str) -> int:
    """The number of trials that lie outside the chart or have no value."""
    low, high = _reach(tuning, aim)
    return sum(not low <= tried.means[aim] <= high for tried in tuning.trials)


def _reach(tuning: Tuning, aim: str) -> tuple[float, float]:
    """The range of the candidates' values, with a margin."""
    means = np.array([tried.means[aim] for tried in candidates(tuning)])
    means = means[np.isfinite(means)]
    room = room_of(tuning) * max(float(np.ptp(means)), 1e-3 * float(np.abs(means).max()), 1e-9)
    return float(means.min()) - room, float(means.max()) + room


def _place(search: Range | Choices, value: object) -> object:
    return value if isinstance(search, Range) else str(value)


def _axis(search: Range | Choices, setting: str) -> alt.X:
    if isinstance(search, Choices):
        return alt.X(
            "setting:N",
            sort=[str(value) for value in search.values],
            axis=alt.Axis(title=setting, labelAngle=0),
        )
    axis, ends = alt.Axis(title=setting, format="~g", tickCount=5), list(_padded(search))
    if search.whole:
        axis.tickMinStep = 1
    if not search.log:
        return alt.X("setting:Q", axis=axis, scale=alt.Scale(domain=ends, nice=False, zero=False))
    if len(decades := _decades(search)) > 1:
        axis.values = decades
    return alt.X("setting:Q", axis=axis, scale=alt.Scale(domain=ends, nice=False, type="log"))


def _padded(search: Range) -> tuple[float, float]:
    """The range with a little room, so that marks at its ends are whole."""
    if search.log:
        factor = (search.high / search.low) ** 0.03
        return search.low / factor, search.high * factor
    room = 0.03 * (search.high - search.low)
    return search.low - room, search.high + room


def _decades(search: Range) -> list[float]:
    """Powers of ten in a range of orders of magnitude: more lines than these make a log
    axis grey.
    """
    return [
        10.0**k for k in range(ceil(log10(search.low) - 1e-9), floor(log10(search.high) + 1e-9) + 1)
    ]
