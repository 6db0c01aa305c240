"""The trials of a search as a table: which are worth showing, what is said of each, and its figures
as text.

The command line and the page both show this table, so it knows nothing of either.
"""

from math import isfinite
from typing import NamedTuple

from evenly.algorithms import METHODS
from evenly.experiment.search_trials import Trial, front_metrics
from evenly.experiment.tuning import Tuning
from evenly.experiment.tuning_space import TuningPlan
from evenly.metrics import EVERY_METRIC, Metric
from evenly.notation import Value, parse
from evenly.report.values import format_spread

MOST = 16
BASELINE, NOTHING = "baseline", "–"


class TrialLine(NamedTuple):
    """One trial: its number, its settings, its metrics as text, and its marks."""

    name: str
    settings: tuple[str, ...]
    cells: tuple[str, ...]
    marks: tuple[str, ...]  # of "chosen", "baseline", "front" and "outside" the margin


class Trials(NamedTuple):
    """The trials as a table."""

    settings: tuple[str, ...]
    metrics: tuple[Metric, ...]
    lines: tuple[TrialLine, ...]


def trials_table(tuning: Tuning, *, most: int | None = None) -> Trials:
    """The baseline and the trials. With `most`, only the chosen trial, the front and the best by
    the first objective.
    """
    plan = tuning.plan
    metrics = tuple(EVERY_METRIC[name] for name in aims_of(tuning))
    settings, numbers = (
        tuple(plan.space.dimensions),
        {tried.label: str(i) for i, tried in reversed(list(enumerate(tuning.trials)))},
    )
    lines = tuple(
        _line(tuning, tried, numbers.get(tried.label, BASELINE), metrics)
        for tried in _shown(tuning, most)
    )
    return Trials(settings, metrics, lines)


def marks_words(tuning: Tuning, trials: Trials) -> str:
    """What the marks of these trials mean, in sentences; only those that occur."""
    aims = " and ".join(metric.title for metric in trials.metrics)
    kept = EVERY_METRIC[tuning.plan.keep].title
    texts = {
        "front": f"“front”: no other setting is better in {aims} together.",
        "outside": (
            f"“outside”: its {kept} is more than {margin_text(tuning.plan)} worse than the"
            " baseline's, so it could not be chosen."
        ),
    }
    used = {mark for line in trials.lines for mark in line.marks}
    return " ".join(text for mark, text in texts.items() if mark in used)


def margin_text(plan: TuningPlan) -> str:
    """The margin with its unit; "" without a margin."""
    if plan.within is None:
        return ""
    points = " point" if plan.within == 1 else " points"
    return f"{plan.within:g}{points if '%' in EVERY_METRIC[plan.keep].range else ''}"


def aims_of(tuning: Tuning) -> tuple[str, ...]:
    """The metrics that trials are judged by: the objectives and, with a margin, the metric that
    must be kept.
    """
    return tuple(front_metrics(tuning.plan.objectives, tuning.plan.keep, tuning.plan.within))


KINDS = ("beaten", "on the front")
KINDS_WITH_MARGIN = ("outside the margin", "within the margin")
EMPHASISED = ("chosen", BASELINE)


def kinds_of(tuning: Tuning) -> tuple[str, ...]:
    """The kinds of trials that occur, as charts name them, the least interesting first."""
    used = {kind_of(tuning, tried) for tried in every_method(tuning).values()}
    return tuple(kind for kind in (*_plain_kinds(tuning), *EMPHASISED) if kind in used)


def _plain_kinds(tuning: Tuning) -> tuple[str, str]:
    return KINDS if tuning.plan.within is None else KINDS_WITH_MARGIN


def kind_of(tuning: Tuning, tried: Trial) -> str:
    """The kind of a trial, as charts name it."""
    choice, (no, yes), (chosen, baseline) = tuning.choice, _plain_kinds(tuning), EMPHASISED
    if tried.label in (choice.chosen, choice.baseline):
        return chosen if tried.label == choice.chosen else baseline
    return (
        yes
        if (
            tried.label in choice.front
            if tuning.plan.within is None
            else choice.allowed[tried.label]
        )
        else no
    )


def every_method(tuning: Tuning) -> dict[str, Trial]:
    """The baseline and the trials by label. A trial with the baseline's settings replaces it."""
    return {tried.label: tried for tried in (tuning.baseline, *tuning.trials)}


def _shown(tuning: Tuning, most: int | None) -> list[Trial]:
    every = every_method(tuning)
    if most is None or len(every) <= most + 1:
        return list(every.values())
    metric = EVERY_METRIC[tuning.plan.objectives[0]]
    value = {
        label: metric.better * tried.means[metric.name]
        for label, tried in every.items()
        if tuning.choice.allowed[label]
    }
    best = sorted(
        (label for label in value if isfinite(value[label])), key=value.__getitem__, reverse=True
    )
    wanted = list(
        dict.fromkeys([tuning.choice.baseline, tuning.choice.chosen, *tuning.choice.front, *best])
    )[: most + 1]
    return [tried for label, tried in every.items() if label in wanted]


def _line(tuning: Tuning, tried: Trial, name: str, metrics: tuple[Metric, ...]) -> TrialLine:
    choice, settings = tuning.choice, tuple(tuning.plan.space.dimensions)
    values = tried.settings or _baseline_settings(tuning.plan)
    said = {
        "chosen": tried.label == choice.chosen,
        BASELINE: tried.label == choice.baseline and name != BASELINE,
    }
    said |= {
        "front": tried.label in choice.front,
        "outside": not choice.allowed[tried.label],
    }
    return TrialLine(
        name,
        tuple(
            (f"{value:g}" if isinstance(value := values.get(key, NOTHING), float) else str(value))
            for key in settings
        ),
        tuple(format_spread(tried.spread(metric.name), metric) for metric in metrics),
        tuple(word for word, holds in said.items() if holds),
    )


def _baseline_settings(plan: TuningPlan) -> dict[str, Value]:
    """The baseline's settings: those of its notation, then those that all methods share, then the
    defaults.
    """
    method, *parts = parse(plan.baseline)
    known = METHODS[method.name].settings if method.name in METHODS else {}
    defaults = {
        name: setting.default for name, setting in known.items() if setting.default is not None
    }
    shared = {name: value for name, value in plan.shared.training.items() if name in known}
    own = {f"{part.name}.{key}": value for part in parts for key, value in part.settings.items()}
    return {**defaults, **shared, **method.settings, **own}
