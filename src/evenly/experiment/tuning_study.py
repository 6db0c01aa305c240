"""The study: finished trials in an Optuna database, and what Optuna would try next.

Proposals come in batches. A batch is a function of its place and of the trials of the batches before it, because every batch has a
sampler of its own: a search that was killed goes on as if it had not been, and one with more trials begins with those of the shorter
one. The database holds finished trials only, each written in one transaction; Optuna's own tools can read it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError
from optuna.samplers import TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from evenly.experiment.choose import shortfall
from evenly.experiment.tuning_plan import TuningPlan
from evenly.experiment.tuning_space import Range
from evenly.metrics import EVERY_METRIC, Spread, spread
from evenly.notation import Value

NAME = "evenly"
BASELINE = "baseline"
BY_SEED = Mapping[str, Sequence[float]]  # metric -> one value for each seed, on validation rows

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it would announce every study on stderr


class Tried(NamedTuple):
    """A trial that is finished: the method, its searched settings, and what was seen of it on validation rows."""

    label: str
    settings: dict[str, Value]
    seen: BY_SEED

    def spread(self, metric: str) -> Spread:
        return spread(np.array(self.seen[metric]))

    @property
    def means(self) -> dict[str, float]:
        return {metric: self.spread(metric).mean for metric in self.seen}


class Study:
    """The finished trials of a search, kept in a file (None: in memory)."""

    def __init__(self, plan: TuningPlan, path: Path | None) -> None:
        self._plan, self._space = plan, plan.space
        self._distributions = {name: _distribution(search) for name, search in self._space.searched.items()}
        if path is not None and not path.exists():
            _create(plan, path)
        self._study = _blank(plan) if path is None else _opened(path)

    @property
    def baseline(self) -> Tried | None:
        kept = self._study.user_attrs.get(BASELINE)
        return None if kept is None else Tried(self._plan.baseline, {}, _read(kept))

    def tried(self) -> list[Tried]:
        """Every finished trial in the order of its number."""
        return [Tried(self._space.method(trial.params), trial.params, _read(trial.user_attrs)) for trial in self._study.trials]

    def keep_baseline(self, seen: BY_SEED) -> None:
        with _kept():
            self._study.set_user_attr(BASELINE, _plain(seen))

    def keep(self, settings: dict[str, Value], seen: BY_SEED) -> None:
        """Add a finished trial. One with an undefined objective counts as failed, so that the sampler does not learn from it."""
        assert self.baseline is not None
        plan, means = self._plan, {"trial": Tried("", {}, seen).means, BASELINE: self.baseline.means}
        values = [means["trial"][metric] for metric in plan.objectives]
        limit = {} if plan.within is None else {plan.keep: shortfall(means, "trial", BASELINE, plan.keep, plan.within)}
        known: dict[str, Any] = {"state": TrialState.FAIL}
        if all(map(isfinite, [*values, *limit.values()])):
            known = {"values": values, "constraints": limit}
        with _kept():
            self._study.add_trial(create_trial(params=settings, distributions=self._distributions, user_attrs=_plain(seen), **known))

    def proposals(self, start: int, stop: int) -> list[dict[str, Value]]:
        """What trials `start` to `stop` of one batch should try, from what was seen in the batches before."""
        if self._plan.sampler == "grid":
            return self._space.grid()[start:stop]
        batch = start // self._plan.batch
        first = batch * self._plan.batch
        scratch = _blank(self._plan, TPESampler(seed=batch))
        scratch.add_trials(self._study.trials[:first])
        return [self._asked(scratch) for _ in range(first, stop)][start - first :]

    def _asked(self, scratch: optuna.Study) -> dict[str, Value]:
        asked = scratch.ask(self._distributions).params
        return {
            name: search.near(asked[name]) if isinstance(search, Range) else asked[name] for name, search in self._space.searched.items()
        }


def _blank(plan: TuningPlan, sampler: TPESampler | None = None, storage: optuna.storages.BaseStorage | None = None) -> optuna.Study:
    sides = [StudyDirection.MAXIMIZE if EVERY_METRIC[metric].better > 0 else StudyDirection.MINIMIZE for metric in plan.objectives]
    return optuna.create_study(directions=sides, study_name=NAME, sampler=sampler, storage=storage)


def _create(plan: TuningPlan, path: Path) -> None:
    """A new database, made beside its place: a kill while its tables are laid out leaves none."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    for left in (beside, *(own.with_name(f"{own.name}-journal") for own in (beside, path))):
        left.unlink(missing_ok=True)  # SQLite would play the journal of an older database into a new one of its name
    storage = optuna.storages.RDBStorage(_address(beside))
    _blank(plan, storage=storage).set_user_attr("objectives", list(plan.objectives))
    storage.remove_session()
    storage.engine.dispose()
    os.replace(beside, path)


def _opened(path: Path) -> optuna.Study:
    try:
        study = optuna.load_study(study_name=NAME, storage=_address(path))
        study.get_trials()
    except (KeyError, SQLAlchemyError, StorageInternalError):
        raise ValueError(f"The database {str(path)!r} of this search is damaged. Remove it; its trials are then made again.") from None
    return study


@contextmanager
def _kept() -> Iterator[None]:
    """Around whatever is written to the database: a full disk in one sentence."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        why = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error  # SQLite's own words
        raise OSError(f"A trial could not be kept: {why}. Those before it are; the same command goes on from there.") from None


def _address(path: Path) -> str:
    return f"sqlite:///{path.resolve()}"


def _distribution(search: Any) -> BaseDistribution:
    if not isinstance(search, Range):
        return CategoricalDistribution(search.values)
    if search.whole:
        return IntDistribution(int(search.low), int(search.high), log=search.log)
    return FloatDistribution(search.low, search.high, log=search.log)


def _plain(seen: BY_SEED) -> dict[str, list[float | None]]:
    """Undefined numbers as null: JSON has no NaN."""
    return {metric: [value if isfinite(value) else None for value in values] for metric, values in seen.items()}


def _read(kept: Mapping[str, Sequence[float | None]]) -> dict[str, list[float]]:
    return {metric: [float("nan") if value is None else value for value in values] for metric, values in kept.items()}
