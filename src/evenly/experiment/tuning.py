"""Search a method's settings on validation rows, and read the test rows once, of what was chosen and of the baseline.

Trials are trained in batches: those of a batch advance in as few programs as possible, which makes a trial nearly free. They are trained
on data without any test rows; only at the end are the chosen method and the baseline trained again, on the same seeds, with all rows.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evenly.data.federation import Federation
from evenly.datasets.load import HIDE_TEST, load
from evenly.experiment import record
from evenly.experiment.choose import Choice, choose
from evenly.experiment.execute import execute
from evenly.experiment.lock import held
from evenly.experiment.results import Comparison, Run, over_seeds
from evenly.experiment.store import Store, sweep
from evenly.experiment.tuning_plan import TuningPlan, planned, source_of
from evenly.experiment.tuning_study import Study, Tried
from evenly.metrics import EQUITY_METRICS, GROUP_METRICS

QFFL = "q-fedavg(q=[0.001, 0.01, 0.1, 1, 2, 5, 10, 15])"  # the values that q-FFL tries
ALWAYS = ("average", "worst10", "variance")
WITH_GROUPS = ("eod_abs", "spd_abs")
STUDY, BATCHES, CHOSEN = "study.db", "batches", "chosen"
Progress = Callable[[int, int], None]


class Tuning(NamedTuple):
    """A search that is finished."""

    plan: TuningPlan
    baseline: Tried
    trials: list[Tried]
    choice: Choice
    final: Comparison  # the baseline and what was chosen, trained with all rows

    @property
    def chosen(self) -> Tried:
        return next(tried for tried in (self.baseline, *self.trials) if tried.label == self.choice.chosen)


def tune(
    method: str = QFFL,
    *,
    data: str | dict[str, Any] = "synthetic",
    out: str | Path | None = None,
    progress: Progress | None = None,
    trials: int | None = None,
    finish: Callable[[Tuning, Path], Any] | None = None,
    **settings: Any,
) -> Tuning:
    """Search the settings that a method's notation leaves open, such as `q-fedavg(q=0.001..10:log)`; `planned` has the other options.

    With a folder `out`, the search is kept there, and the same call goes on where it was stopped. `finish` is called with what was found
    while the folder is held: `evenly.tune` writes its pages then.
    """
    plan, number = planned(method, source_of(data), trials=trials, **settings)
    if out is None:
        return search(plan, number, progress=progress)
    with held(Path(out)):
        sweep(Path(out))
        tuning = search(plan, number, Path(out), progress=progress)
        if finish:
            finish(tuning, Path(out))
        return tuning


def search(
    plan: TuningPlan, trials: int, folder: Path | None = None, *, force: bool = False, progress: Progress | None = None, command: str = ""
) -> Tuning:
    """Make all trials that are not finished yet, choose, and train what was chosen. With a folder, which the caller holds, whatever is
    finished is kept there."""
    metrics = _metrics(plan)
    if folder:
        Store(folder, plan, force=force)
        record.begin(folder, record.Record(command=command))
    study = Study(plan, folder and folder / STUDY)
    meter = _Meter(progress)
    while (done := len(study.tried())) < trials:
        start, stop = _unfinished(folder, done) or (done, min((done // plan.batch + 1) * plan.batch, trials))
        left = -(-trials // plan.batch) - start // plan.batch + 1
        _train(plan, study, (start, stop), folder, meter.stage(left), metrics)
    baseline, tried = study.baseline, study.tried()[:trials]
    assert baseline is not None
    seen = {one.label: one.means for one in (baseline, *tried)}
    choice = choose(seen, plan.baseline, objectives=plan.objectives, keep=plan.keep, within=plan.within)
    return Tuning(plan, baseline, tried, choice, _final(plan, choice, folder, meter.stage(1), command))


def _train(plan: TuningPlan, study: Study, span: tuple[int, int], folder: Path | None, progress: Progress, metrics: Sequence[str]) -> None:
    """Train trials `start` to `stop` together and add them to the study; settings that were tried before are not trained again."""
    start, stop = span
    wanted = study.proposals(start, stop)
    labels = [plan.space.method(settings) for settings in wanted]
    before = [*([study.baseline] if start and study.baseline else []), *study.tried()[:start]]
    seen = {tried.label: tried.seen for tried in before}
    new = [label for label in dict.fromkeys([plan.baseline, *labels]) if label not in seen]
    own = folder and folder / BATCHES / f"{start}-{stop}"
    if new:
        together = plan.trials_together(new)
        comparison = execute(together, own and Store(own, together, force=True), progress=progress, models=False)
        seen |= {label: _seen(comparison, comparison.of(label), metrics) for label in comparison.labels}
    if study.baseline is None:
        study.keep_baseline(seen[plan.baseline])
    for number in range(len(study.tried()), stop):
        study.keep(wanted[number - start], seen[labels[number - start]])
    if own:
        shutil.rmtree(own, ignore_errors=True)  # what was seen is in the study


def _unfinished(folder: Path | None, done: int) -> tuple[int, int] | None:
    """The batch that was begun before the search was stopped, and holds the next trial: it goes on as it was planned."""
    for path in (folder / BATCHES).glob("*-*") if folder else ():
        if found := re.fullmatch(r"(\d+)-(\d+)", path.name):
            start, stop = map(int, found.groups())
            if start <= done < stop:
                return start, stop
    return None


def _seen(comparison: Comparison, runs: Sequence[Run], metrics: Sequence[str]) -> dict[str, list[float]]:
    """Each seed's figures on validation rows."""
    each = [over_seeds(comparison._replace(runs=[run]), run.label, "valid") for run in runs]
    return {metric: [values[metric].mean if metric in values else float("nan") for values in each] for metric in metrics}


def _metrics(plan: TuningPlan) -> list[str]:
    """The metrics that are kept of every trial; those asked for that the data cannot give are an error, before anything is trained."""
    federation = load({**plan.shared.data, HIDE_TEST: True}, plan.shared.seeds[0])
    if not federation.valid.counts.any():
        raise ValueError(f"Settings are chosen on the clients' validation rows, but no client of {federation.name} has any.")
    for name in (*plan.objectives, plan.keep):
        if reason := _missing(name, federation):
            raise ValueError(f"{name} cannot be measured on {federation.name}: {reason}.")
    return list(dict.fromkeys((*plan.objectives, plan.keep, *ALWAYS, *(WITH_GROUPS if len(federation.groups) > 1 else ()))))


def _missing(name: str, federation: Federation) -> str:
    if name in GROUP_METRICS and len(federation.groups) < 2:
        return "its rows belong to no groups of people; of a table of your own, --sensitive names the column"
    return "its clients belong to no groups" if name in EQUITY_METRICS and federation.client_group is None else ""


def _final(plan: TuningPlan, choice: Choice, folder: Path | None, progress: Progress, command: str) -> Comparison:
    """Train the baseline and what was chosen with all rows, into a folder of results like any other."""
    final = plan.final(choice.chosen)
    if folder is None:
        return execute(final, progress=progress, command=command)
    own = folder / CHOSEN
    store = Store(own, final, force=True)  # a longer search may choose otherwise
    record.begin(own, record.Record(command=command, title=f"{choice.chosen} beside {choice.baseline}"))
    with record.timed(own, own / "traces"):
        comparison = execute(final, store, progress=progress)
    shutil.rmtree(folder / BATCHES, ignore_errors=True)
    return record.told(comparison, own)


class _Meter:
    """Adds up the progress of one stage after another; how long later stages are is guessed from the present one."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._done = progress, 0

    def stage(self, left: int) -> Progress:
        before = self._done

        def report(done: int, of: int) -> None:
            self._done = before + done
            if self._progress:
                self._progress(self._done, before + of * left)

        return report
