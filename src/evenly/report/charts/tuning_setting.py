"""An aim against one searched setting: one mark per trial, and the baseline as a line."""

import altair as alt
import numpy as np

from evenly.experiment.tuning import Tuning
from evenly.experiment.tuning_space import Choices, Range
from evenly.metrics import EVERY_METRIC
from evenly.report.charts.theme import colour_of, finish, shape_of, values
from evenly.report.charts.tuning_front import ROOM, axis_title, said_of, tooltip_of
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
    """From the best of all to a little beyond the worst of those that can be chosen."""
    kept = [t for t in (tuning.baseline, *tuning.trials) if tuning.choice.allowed[t.label] or t.label in tuning.choice.front]
    means = np.array([t.means[aim] for t in kept])
    means = means[np.isfinite(means)]
    room = ROOM * max(float(np.ptp(means)), 1e-3 * float(np.abs(means).max()), 1e-9)
    return float(means.min()) - room, float(means.max()) + room


def _place(search: Range | Choices, value: object) -> object:
    return value if isinstance(search, Range) else str(value)


def _axis(search: Range | Choices, setting: str) -> alt.X:
    if isinstance(search, Choices):
        return alt.X("setting:N", sort=[str(value) for value in search.values], axis=alt.Axis(title=setting, labelAngle=0))
    reach = {"domain": [search.low, search.high], "nice": False}
    ends = alt.Scale(**reach, type="log") if search.log else alt.Scale(**reach, zero=False)
    return alt.X("setting:Q", axis=alt.Axis(title=setting, tickCount=5, format="~g"), scale=ends)
