"""The public function `tune`, and the results of a search for settings: its trials, its choice, and
what the choice does on test rows.
"""

from collections.abc import Iterable
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenly.api.execution import locked
from evenly.api.experiments import Show, call_of, options_of
from evenly.api.results import Results
from evenly.api.settings import (
    ColumnSettings,
    TrainingSettings,
    plan_fields,
    record_of,
    source_of,
    with_settings,
)
from evenly.experiment.folder import CHOSEN
from evenly.experiment.search_trials import Trial, TuningChoice
from evenly.experiment.tuning import QFFL, Tuning, open_search, search, trial_rows
from evenly.experiment.tuning_space import TuningPlan, plan_tuning
from evenly.plugins import file_names, load_files

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


class TuningResults:
    """The results of a search. `evenly.tune` and `evenly.load_results` return them.

    Attributes:
        best: Notation of the chosen method.
        results: `Results` of the chosen method beside the baseline, on all rows.
        folder: The folder of the search; None if it is in memory only.

    Example:
        >>> import evenly
        >>> found = evenly.tune(
        ...     "synthetic(clients=10)", "q-fedavg(q=[1, 5])", rounds=5, seeds=1, progress=False
        ... )
        >>> found.best in found.results.methods
        True
    """

    def __init__(self, tuning: Tuning, folder: Path | None = None) -> None:
        self.tuning, self.folder = tuning, folder

    @property
    def best(self) -> str:
        return self.tuning.choice.chosen

    @property
    def settings(self) -> dict[str, Any]:
        """Values of the searched settings that were chosen; empty if the baseline is kept."""
        return dict(self.chosen.settings)

    @property
    def chosen(self) -> Trial:
        """The chosen trial, with its metrics on validation rows."""
        return self.tuning.chosen

    @property
    def baseline(self) -> Trial:
        """The baseline, with its metrics on validation rows."""
        return self.tuning.baseline

    @property
    def trials(self) -> list[Trial]:
        """All trials in the order in which they were proposed."""
        return self.tuning.trials

    @property
    def choice(self) -> TuningChoice:
        """Which trials are admissible, on the front and chosen."""
        return self.tuning.choice

    @cached_property
    def results(self) -> Results:
        tuning = self.tuning
        folder = self.folder and self.folder / CHOSEN
        plan = tuning.plan.final(tuning.choice.chosen, tuning.final.privacy)
        return Results(tuning.final, plan=plan, folder=folder)

    def table(self) -> "pd.DataFrame":
        """One row for the baseline and for each trial, as in tuning.csv: settings, metrics on
        validation rows with their deviation over seeds, and whether it is admissible, on the front
        and chosen.
        """
        import pandas as pd

        table = pd.DataFrame(trial_rows(self.tuning))
        metrics = [name for name in self.baseline.values if name in table]
        for name in [*metrics, *(f"{metric}_deviation" for metric in metrics)]:
            table[name] = pd.to_numeric(table[name])
        return table

    def plot(self, x: str = "", y: str = "") -> "alt.LayerChart":
        """The trials as an Altair chart, one metric against another; by default the metric that is
        kept against the first objective.
        """
        from evenly.report.charts.theme import standalone
        from evenly.report.charts.trials import pairs_of_aims, tuning_front, view_of

        pairs = pairs_of_aims(self.tuning) or [(self.tuning.plan.keep,) * 2]
        first, second = pairs[0]
        return standalone(tuning_front(self.tuning, view_of(self.tuning, x or first, y or second)))

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the report of the search as one HTML file. Its link to the results of the choice
        needs the folder of the search.
        """
        from evenly.report.tuning_page import write_tuning_report

        return write_tuning_report(self.tuning, Path(path), f"{CHOSEN}/report.html")

    def __len__(self) -> int:
        return len(self.trials)

    def __repr__(self) -> str:
        return "\n".join([f"Search of {len(self)} settings", *self._sentences()])

    def _sentences(self) -> list[str]:
        from evenly.report.tuning_page import caution, finding, rule

        return [text(self.tuning) for text in (finding, rule, caution) if text(self.tuning)]

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(sentence)}</p>" for sentence in self._sentences())
        return f"<div>{words}</div>{self.results._repr_html_()}"


@with_settings(ColumnSettings, TrainingSettings)
def tune(
    data: Any = "synthetic",
    method: str = QFFL,
    *,
    objectives: str | Iterable[str] = ("variance",),
    keep: str = "average",
    within: float | None = None,
    baseline: str = "",
    trials: int | None = None,
    batch: int = 16,
    out: str | Path | None = None,
    force: bool = False,
    progress: Show = True,
    plugins: str | Path | Iterable[str | Path] = (),
    **settings: Any,
) -> TuningResults:
    """Search the settings that a method leaves open, as `evenly tune` does.

    Trials are compared on validation rows. The chosen settings and the baseline are then trained
    again and evaluated on test rows, once.

    Args:
        data: As for `compare`.
        method: The method with the settings to search, such as ``"q-fedavg(q=0.001..10:log)"`` or
            ``"q-fedavg(q=[0.1, 1, 5])"``.
        objectives: Metrics to improve. Several give a Pareto front.
        keep: Metric that must stay within a margin of the baseline's.
        within: The margin, in the unit of `keep`; infinity for none. By default 1 with one
            objective, which is a point of accuracy, and none with several.
        baseline: Method from which the margin is measured. By default q = 0 if q is searched, else
            fedavg.
        trials: Number of settings to try. By default 64, or all combinations if there are fewer.
        batch: Number of trials that are proposed and trained together.
        out: A folder for trials, results and both reports. Repeat the call to resume.
        force: Whether to replace results of other settings in the folder.
        progress: As for `compare`.
        plugins: As for `compare`.
        settings: The columns of a table and how methods are trained, from `client` to
            `evaluate_every`, as for `compare`. Trials are evaluated after their last round only;
            `evaluate_every` is for the chosen settings and the baseline.

    Returns:
        All trials, the choice, and the results of the chosen settings beside the baseline.

    Raises:
        TypeError: If an argument has a wrong type or does not exist.
        ValueError: If the method leaves no setting open, or an option is not valid.

    Example:
        >>> import evenly
        >>> found = evenly.tune(
        ...     "synthetic(clients=10)", "q-fedavg(q=[1, 5])", rounds=5, seeds=1, progress=False
        ... )
        >>> len(found.table())
        3
    """
    plugins, training = file_names(plugins), record_of(TrainingSettings, settings)
    files = load_files(plugins)
    source, held = source_of(data, record_of(ColumnSettings, settings))
    plan, number = plan_tuning(
        method,
        source,
        objectives=[objectives] if isinstance(objectives, str) else list(objectives),
        keep=keep,
        within=within,
        baseline=baseline,
        trials=trials,
        batch=batch,
        plugins=files,
        **plan_fields(training, held),
    )
    command = call_of("tune", data, method, settings, plugins)
    options = options_of(progress, force=force)
    what = f"trying {number} settings on {len(plan.shared.seeds)} seeds"
    if out is None:
        with options.bar(what) as report:
            return TuningResults(search(plan, number, progress=report, command=command))
    from evenly.report.tuning_page import write_tuning  # Altair is slow to import

    folder = Path(out)
    with locked(folder):
        with options.bar(what) as report:
            tuning = search(plan, number, folder, force=force, progress=report, command=command)
        write_tuning(tuning, folder)
    return TuningResults(tuning, folder)


def open_tuning(plan: TuningPlan, folder: Path) -> TuningResults:
    """The results of a finished search, from its folder."""
    return TuningResults(open_search(plan, folder), folder)
