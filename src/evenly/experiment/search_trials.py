"""The trials of a search: a database of them, and the choice among them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import StorageInternalError
from optuna.samplers import TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from evenly.experiment.tuning_space import Range, TuningPlan
from evenly.metrics import EVERY_METRIC, Spread, spread
from evenly.metrics.statistics import on_front
from evenly.notation import Value

# Choosing among candidates.

# candidate -> metric -> mean over seeds, on validation rows
Means = Mapping[str, Mapping[str, float]]


class TuningChoice(NamedTuple):
    """The chosen candidate, the Pareto front, and which candidates stay within the margin."""

    chosen: str
    baseline: str
    front: tuple[str, ...]
    allowed: dict[str, bool]  # whether what is to be kept stays within the margin


def choose(
    means: Means,
    baseline: str,
    *,
    objectives: Sequence[str] = ("variance",),
    keep: str = "average",
    within: float | None = 1.0,
) -> TuningChoice:
    """The best candidate whose `keep` metric stays within a margin of the baseline's (None: no
    margin).

    With one objective this is q-FFL's rule: the best value of the objective among the candidates
    within the margin. With several objectives, it is the most balanced candidate of the Pareto
    front: the nearest to the best value of each objective, when objectives are scaled from the
    worst (0) to the best (1). The baseline is a candidate itself.
    """
    if baseline not in means:
        raise ValueError(f"The baseline must be one of {', '.join(means)}, got {baseline!r}.")
    if within is not None and within < 0:
        raise ValueError(f"within must be at least 0 points, got {within:g}.")
    allowed = {
        name: within is None or shortfall(means, name, baseline, keep, within) <= 0
        for name in means
    }
    candidates = [
        name for name in means if all(isfinite(means[name][metric]) for metric in objectives)
    ]
    candidates.sort(key=lambda name: name != baseline)  # the baseline wins ties
    unbeaten = on_front(_better(means, candidates, front_metrics(objectives, keep, within)))
    front = [name for name, is_best in zip(candidates, unbeaten.tolist(), strict=True) if is_best]
    possible = [name for name in (candidates if len(objectives) == 1 else front) if allowed[name]]
    if not possible:
        raise ValueError(
            "Nothing can be chosen: on validation rows no candidate within the margin has a value"
            f" of {' and '.join(objectives)}."
        )
    better = _better(means, possible, objectives)
    start = _better(means, [baseline], objectives)
    best = int(
        np.argmax(better[:, 0]) if len(objectives) == 1 else np.argmin(_unbalance(better, start))
    )
    return TuningChoice(
        possible[best], baseline, tuple(name for name in means if name in front), allowed
    )


def front_metrics(objectives: Sequence[str], keep: str, within: float | None) -> tuple[str, ...]:
    """The metrics of the Pareto front: the objectives and, with one objective or a margin, the
    metric to keep.
    """
    return (
        tuple(dict.fromkeys((*objectives, keep)))
        if len(objectives) == 1 or within is not None
        else tuple(objectives)
    )


def shortfall(means: Means, name: str, baseline: str, keep: str, within: float) -> float:
    """How far a candidate's `keep` metric is below the margin: at most 0 if it is within, infinite
    if undefined.
    """
    side = EVERY_METRIC[keep].better
    missing = (side * means[baseline][keep] - within) - side * means[name][keep]
    return missing if isfinite(missing) else float("inf")


def _better(means: Means, names: Sequence[str], metrics: Sequence[str]) -> np.ndarray:
    """Values [names, metrics], signed so that larger is better in every column."""
    values = [[EVERY_METRIC[m].better * means[name][m] for m in metrics] for name in names]
    return np.array(values, np.float64).reshape(len(names), len(metrics))


def _unbalance(better: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """The distance of each row to the best value of every column, with columns scaled to 0 to 1."""
    # the baseline's where it has a value
    low, high = np.fmin(better.min(0), baseline[0]), better.max(0)
    missing = (high - better) / np.where(high > low, high - low, 1)
    return np.sqrt((missing**2).sum(-1))


# The database of trials. It holds finished trials only, each written in one transaction, and can
# be read by Optuna's tools.

STUDY_NAME = "evenly"
BASELINE = "baseline"
SeedValues = Mapping[str, Sequence[float]]  # metric -> one value for each seed, on validation rows

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would announce every study on stderr


class Trial(NamedTuple):
    """A finished trial: the method, its searched settings, and its metrics on validation rows by
    seed.
    """

    label: str
    settings: dict[str, Value]
    values: SeedValues

    def spread(self, metric: str) -> Spread:
        return spread(np.array(self.values[metric]))

    @property
    def means(self) -> dict[str, float]:
        return {metric: self.spread(metric).mean for metric in self.values}


class TrialDatabase:
    """The finished trials of a search in an Optuna database on disk, or in memory if `path` is
    None.

    The proposals of a batch depend only on its number and on the trials of earlier batches. An
    interrupted search therefore continues with the same trials, and a longer search starts with the
    trials of a shorter one.
    """

    def __init__(self, plan: TuningPlan, path: Path | None) -> None:
        self._plan, self._space = plan, plan.space
        self._distributions = {
            name: _distribution(search) for name, search in self._space.dimensions.items()
        }
        if path is not None and not path.exists():
            _create_database(plan, path)
        self._study = _new_study(plan) if path is None else _open_database(path)

    @property
    def baseline(self) -> Trial | None:
        values = self._study.user_attrs.get(BASELINE)
        return None if values is None else Trial(self._plan.baseline, {}, _from_json(values))

    def trials(self) -> list[Trial]:
        """All finished trials in the order of their numbers."""
        return [
            Trial(self._space.method(trial.params), trial.params, _from_json(trial.user_attrs))
            for trial in self._study.trials
        ]

    def add_baseline(self, values: SeedValues) -> None:
        with _storage_errors():
            self._study.set_user_attr(BASELINE, _to_json(values))

    def add(self, settings: dict[str, Value], values: SeedValues) -> None:
        """Add a finished trial. A trial with an undefined objective is stored as failed, so that
        the sampler ignores it.
        """
        assert self.baseline is not None
        plan, means = (
            self._plan,
            {"trial": Trial("", {}, values).means, BASELINE: self.baseline.means},
        )
        objectives = [means["trial"][metric] for metric in plan.objectives]
        limit = (
            {}
            if plan.within is None
            else {plan.keep: shortfall(means, "trial", BASELINE, plan.keep, plan.within)}
        )
        outcome: dict[str, Any] = {"state": TrialState.FAIL}
        if all(map(isfinite, [*objectives, *limit.values()])):
            outcome = {"values": objectives, "constraints": limit}
        with _storage_errors():
            self._study.add_trial(
                create_trial(
                    params=settings,
                    distributions=self._distributions,
                    user_attrs=_to_json(values),
                    **outcome,
                )
            )

    def proposals(self, start: int, stop: int) -> list[dict[str, Value]]:
        """The settings of trials `start` to `stop` of one batch."""
        if self._plan.sampler == "grid":
            return self._space.grid()[start:stop]
        batch = start // self._plan.batch
        first = batch * self._plan.batch
        scratch = _new_study(self._plan, TPESampler(seed=batch))
        scratch.add_trials(self._study.trials[:first])
        return [self._propose(scratch) for _ in range(first, stop)][start - first :]

    def _propose(self, scratch: optuna.Study) -> dict[str, Value]:
        params, dimensions = scratch.ask(self._distributions).params, self._space.dimensions
        return {
            name: search.near(params[name]) if isinstance(search, Range) else params[name]
            for name, search in dimensions.items()
        }


def _new_study(
    plan: TuningPlan,
    sampler: TPESampler | None = None,
    storage: optuna.storages.BaseStorage | None = None,
) -> optuna.Study:
    sides = [
        StudyDirection.MAXIMIZE if EVERY_METRIC[metric].better > 0 else StudyDirection.MINIMIZE
        for metric in plan.objectives
    ]
    return optuna.create_study(
        directions=sides, study_name=STUDY_NAME, sampler=sampler, storage=storage
    )


def _create_database(plan: TuningPlan, path: Path) -> None:
    """Create a database atomically."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    for left in (beside, *(own.with_name(f"{own.name}-journal") for own in (beside, path))):
        # SQLite would play the journal of an older database into a new one of its name
        left.unlink(missing_ok=True)
    storage = optuna.storages.RDBStorage(_address(beside))
    _new_study(plan, storage=storage).set_user_attr("objectives", list(plan.objectives))
    storage.remove_session()
    storage.engine.dispose()
    os.replace(beside, path)


def _open_database(path: Path) -> optuna.Study:
    try:
        study = optuna.load_study(study_name=STUDY_NAME, storage=_address(path))
        study.get_trials()
    except (KeyError, SQLAlchemyError, StorageInternalError):
        raise ValueError(
            f"The database {str(path)!r} of this search is damaged. Remove it; its trials are then"
            " repeated."
        ) from None
    return study


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Context for writing to the database: errors of SQLite become one OSError."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        # SQLite's own words
        why = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
        raise OSError(
            f"A trial could not be stored: {why}. Earlier trials are stored; run the same command"
            " again to continue."
        ) from None


def _address(path: Path) -> str:
    return f"sqlite:///{path.resolve()}"


def _distribution(search: Any) -> BaseDistribution:
    if not isinstance(search, Range):
        return CategoricalDistribution(search.values)
    if search.whole:
        return IntDistribution(int(search.low), int(search.high), log=search.log)
    return FloatDistribution(search.low, search.high, log=search.log)


def _to_json(values: SeedValues) -> dict[str, list[float | None]]:
    """Values with None for undefined numbers, because JSON has no NaN."""
    return {
        metric: [value if isfinite(value) else None for value in each]
        for metric, each in values.items()
    }


def _from_json(values: Mapping[str, Sequence[float | None]]) -> dict[str, list[float]]:
    return {
        metric: [float("nan") if value is None else value for value in each]
        for metric, each in values.items()
    }
