"""An aim against one searched setting: one mark per trial, and the baseline as a line."""

from math import ceil, floor, log10

import altair as alt
import numpy as np

from evenly.experiment.tuning import Tuning
from evenly.experiment.tuning_space import Choices, Range
from evenly.metrics import EVERY_METRIC
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.charts.tuning_front import axis_title, in_question, room_of, said_of, tooltip_of
from evenly.report.tuning_trials import kinds_of


def tuning_setting(tuning: Tuning, setting: str, aim: str) -> alt.LayerChart:
    """How the aim changes with the setting, whatever the others are."""
    kinds, search = kinds_of(tuning), tuning.plan.space.searched[setting]
    low, high = _reach(tuning, aim)
    shown = [tried for tried in tuning.trials if low <= tried.means[aim] <= high]
    rows = [{**said_of(tuning, tried), "setting": _place(search, tried.settings[setting]), "aim": tried.means[aim]} for tried in shown]
    y = alt.Y("aim:Q", axis=alt.Axis(title=axis_title(aim), tickCount=5), scale=alt.Scale(domain=[low, high], nice=False, zero=False))
    marks = alt.Chart(values(rows)).mark_point(filled=True, opacity=0.9)
    base = marks.encode(x=_axis(search, setting), y=y, color=colour_of(kinds), shape=shape_of(kinds), tooltip=tooltip_of(tuning))
    baseline = alt.Chart(values([{"aim": tuning.baseline.means[aim]}]))
    layers = [
        baseline.mark_rule(style="guide-line", strokeDash=[4, 4]).encode(y="aim:Q"),
        base.encode(size=alt.condition(f"datum.method === '{kinds[2]}'", alt.value(180), alt.value(60))),
    ]
    title = f"{EVERY_METRIC[aim].title} by {setting}"
    title = title[:1].upper() + title[1:]
    return finish(layers, title=title, description=f"{title}: one point for each of {len(rows)} settings.", height=260)


def left_out(tuning: Tuning, aim: str) -> int:
    """How many trials lie outside of what is drawn, or have no value."""
    low, high = _reach(tuning, aim)
    return sum(not low <= tried.means[aim] <= high for tried in tuning.trials)


def _reach(tuning: Tuning, aim: str) -> tuple[float, float]:
    """From the best to the worst of those that can be chosen, and some room."""
    means = np.array([tried.means[aim] for tried in in_question(tuning)])
    means = means[np.isfinite(means)]
    room = room_of(tuning) * max(float(np.ptp(means)), 1e-3 * float(np.abs(means).max()), 1e-9)
    return float(means.min()) - room, float(means.max()) + room


def _place(search: Range | Choices, value: object) -> object:
    return value if isinstance(search, Range) else str(value)


def _axis(search: Range | Choices, setting: str) -> alt.X:
    if isinstance(search, Choices):
        return alt.X("setting:N", sort=[str(value) for value in search.values], axis=alt.Axis(title=setting, labelAngle=0))
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
    """Powers of ten in a range of orders of magnitude: more lines than these make a log axis grey."""
    return [10.0**k for k in range(ceil(log10(search.low) - 1e-9), floor(log10(search.high) + 1e-9) + 1)]
