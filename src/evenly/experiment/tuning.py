"""Search settings of a method on validation rows, then evaluate the choice and the baseline once on
test rows.

Trials are trained in batches. The trials of a batch share programs, which makes a trial nearly
free. They are trained on data without test rows. At the end, the chosen method and the baseline are
trained again with all rows, on the same seeds.
"""

import csv
import io
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from evenly.data.federation import Federation
from evenly.datasets.load import HIDE_TEST, load
from evenly.experiment.comparison import Comparison, Run, final_spreads
from evenly.experiment.execute import execute
from evenly.experiment.folder import (
    CHOSEN,
    RunRecord,
    Store,
    begin,
    folder_lock,
    sweep,
    training_timer,
    with_record,
)
from evenly.experiment.reopen import open_results
from evenly.experiment.search_trials import (
    Trial,
    TrialDatabase,
    TuningChoice,
    choose,
)
from evenly.experiment.tuning_space import TuningPlan, plan_tuning, source_of
from evenly.metrics import EQUITY_METRICS, GROUP_METRICS
from evenly.privacy.claims import CLIENT
from evenly.privacy.search_account import search_epsilon
from evenly.types import Algorithm
from evenly.writing import csv_row, write_whole

QFFL = "q-fedavg(q=[0.001, 0.01, 0.1, 1, 2, 5, 10, 15])"  # the values that q-FFL tries
ALWAYS = ("average", "worst10", "variance")
WITH_GROUPS = ("eod_abs", "spd_abs")
STUDY, BATCHES = "study.db", "batches"
Progress = Callable[[int, int], None]


class Tuning(NamedTuple):
    """The result of a search."""

    plan: TuningPlan
    baseline: Trial
    trials: list[Trial]
    choice: TuningChoice
    final: Comparison  # the baseline and what was chosen, trained with all rows
    unused: tuple[Trial, ...] = ()  # trials that a longer search has trained in the same folder

    @property
    def chosen(self) -> Trial:
        return next(
            trial for trial in (self.baseline, *self.trials) if trial.label == self.choice.chosen
        )


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
    """Search the settings that a notation leaves open, such as `q-fedavg(q=0.001..10:log)`.

    Args:
        method: Method with ranges or lists of values.
        data: Name of a data set, or the source of a table.
        out: Folder of the search. The same call resumes an interrupted search.
        progress: Called with the number of finished rounds and the total.
        trials: Number of trials. By default 64, or every combination if there are fewer.
        finish: Called with the result and the folder while the folder is locked.
        settings: Further options of `plan_tuning`.
    """
    plan, number = plan_tuning(method, source_of(data), trials=trials, **settings)
    if out is None:
        return search(plan, number, progress=progress)
    with folder_lock(Path(out)):
        sweep(Path(out))
        tuning = search(plan, number, Path(out), progress=progress)
        if finish:
            finish(tuning, Path(out))
        return tuning


def search(
    plan: TuningPlan,
    trials: int,
    folder: Path | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    command: str = "",
) -> Tuning:
    """Run all trials that are not finished, choose, and train the choice. The caller must hold the
    lock of the folder.
    """
    metrics = _metrics(plan)
    if folder:
        Store(folder, plan, force=force)
        begin(folder, RunRecord(command=command))
    study = TrialDatabase(plan, folder and folder / STUDY)
    meter = _StageProgress(progress)
    while (done := len(study.trials())) < trials:
        start, stop = _interrupted_batch(folder, done) or (
            done,
            min((done // plan.batch + 1) * plan.batch, trials),
        )
        left = -(-trials // plan.batch) - start // plan.batch + 1
        _train(
            plan, study, (start, stop), folder=folder, progress=meter.stage(left), metrics=metrics
        )
    return _chosen_among(
        plan, study, trials, lambda choice: _final(plan, choice, folder, meter.stage(1), command)
    )


def open_search(plan: TuningPlan, folder: Path) -> Tuning:
    """The finished search in a folder. Nothing is trained.

    Raises:
        ValueError: If the trials of the search are missing or damaged.
    """
    absent = [name for name in (TABLE_FILE, STUDY) if not (folder / name).is_file()]
    number, study = -1, None
    if not absent:
        with suppress(UnicodeDecodeError, csv.Error), open(folder / TABLE_FILE, newline="") as file:
            number = sum(1 for _ in csv.DictReader(file)) - 1  # the first row is the baseline
        study = TrialDatabase(plan, folder / STUDY)
    if study is None or study.baseline is None or not 0 < number <= len(study.trials()):
        why = f"has no {' and no '.join(absent)}" if absent else f"has a damaged {TABLE_FILE}"
        raise ValueError(
            f"The search in {str(folder)!r} {why}. Run the command that started it again; trials"
            f" in {STUDY} are not repeated."
        )
    return _chosen_among(plan, study, number, lambda _: open_results(folder / CHOSEN))


def _chosen_among(
    plan: TuningPlan,
    study: TrialDatabase,
    trials: int,
    final: Callable[[TuningChoice], Comparison],
) -> Tuning:
    """Choose among the first trials. `final` gives the results of the choice on all rows."""
    baseline, every = study.baseline, study.trials()
    assert baseline is not None
    finished, unused = every[:trials], tuple(every[trials:])
    means = {trial.label: trial.means for trial in (baseline, *finished)}
    choice = choose(
        means, plan.baseline, objectives=plan.objectives, keep=plan.keep, within=plan.within
    )
    return Tuning(plan, baseline, finished, choice, final(choice), unused)


def _trained(tuning: Tuning) -> list[Algorithm]:
    """The baseline and the methods of all trials that were ever trained."""
    every = (tuning.baseline, *tuning.trials, *tuning.unused)
    labels = list(dict.fromkeys(one.label for one in every))
    return [one.members[0] for one in tuning.plan.trials_together(labels).variants()]


def withholds_trials(tuning: Tuning) -> bool:
    """Whether figures of trials without noise are left out of what is meant to be shared, even if a
    method without privacy was chosen.
    """
    private = [one.privacy for one in _trained(tuning) if one.privacy]
    return any(one.unit == CLIENT and not one.publish for one in private)


def spent_by_search(tuning: Tuning) -> dict[str, Any] | None:
    """What the baseline and all trials reveal together (`privacy.search_account`); None if none of
    them is private. Training the choice again repeats its releases and spends nothing more.
    """
    plan, methods = tuning.plan, _trained(tuning)
    if not any(one.privacy for one in methods):
        return None
    return search_epsilon(
        methods,
        clients=tuning.final.everyone.clients,
        rounds=plan.shared.rounds,
        seeds=len(plan.shared.seeds),
        together=plan.sampler == "grid" or len(tuning.trials) + len(tuning.unused) <= plan.batch,
    )


def _train(
    plan: TuningPlan,
    study: TrialDatabase,
    batch: tuple[int, int],
    *,
    folder: Path | None,
    progress: Progress,
    metrics: Sequence[str],
) -> None:
    """Train the trials of a batch, numbers `start` to `stop`, together and add them to the
    database.

    Settings that were tried before are not trained again.
    """
    start, stop = batch
    settings = study.proposals(start, stop)
    labels = [plan.space.method(one) for one in settings]
    finished = [*([study.baseline] if start and study.baseline else []), *study.trials()[:start]]
    values = {trial.label: trial.values for trial in finished}
    new = [label for label in dict.fromkeys([plan.baseline, *labels]) if label not in values]
    path = folder and folder / BATCHES / f"{start}-{stop}"
    if new:
        together = plan.trials_together(new)
        comparison = execute(
            together, path and Store(path, together, force=True), progress=progress, models=False
        )
        values |= {
            label: _validation_values(comparison, comparison.of(label), metrics)
            for label in comparison.labels
        }
    if study.baseline is None:
        study.add_baseline(values[plan.baseline])
    for number in range(len(study.trials()), stop):
        study.add(settings[number - start], values[labels[number - start]])
    if path:
        shutil.rmtree(path, ignore_errors=True)  # the database holds the values


def _interrupted_batch(folder: Path | None, done: int) -> tuple[int, int] | None:
    """The batch that an interrupted search had started and that holds trial `done`."""
    for path in (folder / BATCHES).glob("*-*") if folder else ():
        if match := re.fullmatch(r"(\d+)-(\d+)", path.name):
            start, stop = map(int, match.groups())
            if start <= done < stop:
                return start, stop
    return None


def _validation_values(
    comparison: Comparison, runs: Sequence[Run], metrics: Sequence[str]
) -> dict[str, list[float]]:
    """Metrics on validation rows, for each seed."""
    each = [final_spreads(comparison._replace(runs=[run]), run.label, "valid") for run in runs]
    return {
        metric: [values[metric].mean if metric in values else float("nan") for values in each]
        for metric in metrics
    }


def _metrics(plan: TuningPlan) -> list[str]:
    """The metrics that are stored for every trial.

    Raises:
        ValueError: If the data do not have a metric that was asked for.
    """
    shared = plan.shared
    federation = load({**shared.data, HIDE_TEST: True}, shared.seeds[0], shared.objects.data)
    if not federation.valid.counts.any():
        raise ValueError(
            "Settings are chosen by their results on validation rows, but no client of"
            f" {federation.name} has any."
        )
    for name in (*plan.objectives, plan.keep):
        if reason := _missing(name, federation):
            raise ValueError(f"{name} cannot be measured on {federation.name}: {reason}.")
    return list(
        dict.fromkeys(
            (
                *plan.objectives,
                plan.keep,
                *ALWAYS,
                *(WITH_GROUPS if len(federation.groups) > 1 else ()),
            )
        )
    )


def _missing(name: str, federation: Federation) -> str:
    if name in GROUP_METRICS and len(federation.groups) < 2:
        return (
            "its rows belong to no groups of people; of a table of your own, --sensitive names the"
            " column"
        )
    return (
        "its clients belong to no groups"
        if name in EQUITY_METRICS and federation.client_group is None
        else ""
    )


def _final(
    plan: TuningPlan, choice: TuningChoice, folder: Path | None, progress: Progress, command: str
) -> Comparison:
    """Train the baseline and the chosen method with all rows, into a folder of results."""
    final = plan.final(choice.chosen)
    if folder is None:
        comparison = execute(final, progress=progress, command=command)
        return comparison._replace(chosen=choice.chosen)
    own = folder / CHOSEN
    store = Store(own, final, force=True)  # a longer search may choose otherwise
    title = f"{choice.chosen} beside {choice.baseline}"
    begin(own, RunRecord(command=command, title=title, chosen=choice.chosen))
    with training_timer(own, own / "traces"):
        comparison = execute(final, store, progress=progress)
    shutil.rmtree(folder / BATCHES, ignore_errors=True)
    return with_record(comparison, own)


class _StageProgress:
    """Adds up the progress of stages. Later stages are assumed to be as long as the present one."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._done = progress, 0

    def stage(self, left: int) -> Progress:
        before = self._done

        def report(done: int, of: int) -> None:
            self._done = before + done
            if self._progress:
                self._progress(self._done, before + of * left)

        return report


# tuning.csv: every trial with its settings and its metrics on validation rows.

TABLE_FILE = "tuning.csv"


def trial_rows(tuning: Tuning) -> list[dict[str, Any]]:
    """One row for the baseline and for each trial: mean, standard deviation and the values of all
    seeds for every metric.
    """
    settings = list(tuning.plan.space.dimensions)
    return [
        _row(tuning, "baseline", tuning.baseline, settings),
        *(_row(tuning, i, one, settings) for i, one in enumerate(tuning.trials)),
    ]


def write_trials(tuning: Tuning, folder: Path) -> Path:
    """Write tuning.csv."""
    rows, text = [csv_row(row) for row in trial_rows(tuning)], io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_whole(folder / TABLE_FILE, lambda file: file.write(text.getvalue().encode()))


def _row(tuning: Tuning, number: int | str, trial: Trial, settings: list[str]) -> dict[str, Any]:
    choice = tuning.choice
    row: dict[str, Any] = {
        "trial": number,
        "method": trial.label,
        **{name: trial.settings.get(name, "") for name in settings},
        "allowed": choice.allowed[trial.label],
        "front": trial.label in choice.front,
        "chosen": trial.label == choice.chosen,
    }
    for metric in trial.values:
        spread_of = trial.spread(metric)
        each = " ".join(map(_number, trial.values[metric]))
        row |= {
            metric: _number(spread_of.mean),
            f"{metric}_deviation": _number(spread_of.deviation),
            f"{metric}_seeds": each,
        }
    return row


def _number(value: float) -> str:
    """A number with all its digits, or "" if it is undefined."""
    return repr(value) if isfinite(value) else ""
