"""The public functions that train: `compare`, `run` and `reproduce`; and `load_results`. `tune` is
in `evenly.api.search`.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from evenly.api.execution import (
    ExecutionSettings,
    experiment_record,
    joint_report,
    paper_folder,
    run_each,
    run_plan,
    run_study,
)
from evenly.api.progress import progress_bar
from evenly.api.results import Results
from evenly.api.settings import (
    ColumnSettings,
    MethodLike,
    TrainingSettings,
    plan_comparison,
    with_settings,
)
from evenly.api.study_results import StudyResults
from evenly.experiment.config import (
    Experiment,
    experiment_of,
    paper_experiments,
    read,
    read_packaged,
)
from evenly.experiment.deployment import Deployment
from evenly.experiment.execute import Progress
from evenly.experiment.folder import RunRecord, read_record
from evenly.experiment.loggers import check_loggers
from evenly.experiment.observe import Log
from evenly.experiment.paper import paper_lines
from evenly.experiment.reopen import open_results, open_study, read_plan, read_search
from evenly.experiment.study import StudyPlan
from evenly.plugins import file_names, load_files
from evenly.validation import shortened

if TYPE_CHECKING:
    from evenly.api.search import TuningResults

Show = bool | Progress  # whether to show progress, or a function that is told of it
Loggers = str | Iterable[str] | Log
METHODS = ("fedavg", "q-fedavg(q=[1, 5])")


class AnyPlan(Protocol):
    """A plan of a comparison, a study or a search."""

    @property
    def name(self) -> str: ...
    def fingerprint(self) -> str: ...


def default_folder(plan: AnyPlan) -> Path:
    """The folder of a plan's results, unless the user chooses another."""
    return Path("results") / f"{plan.name.replace('/', '-')}-{plan.fingerprint()[:8]}"


@with_settings(ColumnSettings, TrainingSettings)
def compare(
    data: Any = "synthetic",
    methods: MethodLike | Iterable[MethodLike] = METHODS,
    *,
    out: str | Path | None = None,
    force: bool = False,
    progress: Show = True,
    plugins: str | Path | Iterable[str | Path] = (),
    log: Loggers = (),
    **settings: Any,
) -> Results:
    """Train several methods on the same data and compare them, as `evenly compare` does.

    All methods see the same clients and batches, so that differences are due to the methods.

    Args:
        data: A DataFrame of pandas or Polars, an Arrow table, the path of a .csv or .parquet file
            or of a folder of Parquet files, a Dataset of PyTorch or Hugging Face, a dict from
            clients to Datasets, a `Federation`, or a data set such as
            ``"synthetic(clients=20)"``. Tables and Datasets are split anew for each seed; a
            `Federation` keeps its split.
        methods: Methods in notation, such as ``"q-fedavg(q=[1, 5])"``, or algorithms of your own.
        out: A folder for results, models and the report. Repeat the call to resume after an
            interruption. By default everything stays in memory.
        force: Whether to replace results of other settings in the folder.
        progress: Whether to show progress, or a function that is called with the number of rounds
            done and of all rounds.
        plugins: Python file, or files, that register methods, metrics or data sets.
        log: Loggers that follow every evaluation: "tensorboard", "mlflow" or "wandb". They need
            `out`. Or a function, which is called with the `Point` of each evaluation.
        client: Column of a table that names the client of each row. For a Dataset also an array
            with one client for each example.
        label: Column to predict.
        sensitive: Columns whose values are groups of people.
        favourable: Label that people want to get. Detected for yes and no, and for two numbers.
        unprivileged: Value of the sensitive column whose people are compared with all others; with
            several columns a dict from columns to values. By default the value with the lowest
            share of favourable labels.
        features: Columns to learn from. By default all others.
        drop: Columns to exclude, such as ids and dates.
        split: Column that holds "train", "valid", "test" or "central" for each row. By default rows
            are split at random.
        client_group: Column that names the group of each client.
        name: Name of a DataFrame in tables and reports.
        rounds: Number of communication rounds.
        seeds: Number of seeds, or a list of them. Each draws new cohorts and batches, and new
            splits unless the data are a `Federation` or have a split column.
        model: Name of a model, such as ``"mlp(hidden=[64])"``, a model of `evenly.models`, or one
            that `evenly.from_torch` made of a PyTorch module. By default the simplest that fits.
        sampling: How the cohort of a round is sampled, for methods that do not set their own.
        learning_rate: Local learning rate, for methods that do not set their own.
        batch_size: Rows in a local step, for methods that do not set their own.
        epochs: Passes over a client's rows in a round, for methods that do not set their own.
        dropout: Probability that a client of the cohort does not return.
        evaluate_every: Rounds between evaluations. With 0, about fifty evaluations in all.

    Returns:
        The results: tables, charts, a report and trained models.

    Raises:
        TypeError: If an argument has a wrong type or does not exist.
        ValueError: If data, methods or settings are not valid, or the folder holds other results.

    Example:
        >>> import evenly
        >>> results = evenly.compare("synthetic(clients=10)", rounds=20, seeds=2, progress=False)
        >>> results.methods
        ['fedavg', 'q-fedavg(q=1)', 'q-fedavg(q=5)']
    """
    if isinstance(methods, Iterator):
        methods = list(methods)
    plugins = file_names(plugins)
    plan = plan_comparison(data, methods, settings, plugins)
    record = RunRecord(command=call_of("compare", data, methods, settings, plugins))
    options = options_of(progress, force=force, log=log)
    return run_plan(plan, record, None if out is None else Path(out), options)


def run(
    experiment: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    quick: bool = False,
    seeds: int | None = None,
    rounds: int | None = None,
    force: bool = False,
    progress: Show = True,
    plugins: str | Path | Iterable[str | Path] = (),
    log: Loggers = (),
) -> Results | StudyResults:
    """Run an experiment file, as `evenly run` does.

    Args:
        experiment: The path of a TOML file, or its contents as a dict.
        out: A folder for results. By default a comparison stays in memory, and a study goes to
            results/.
        quick: Whether to run the experiment's short version.
        seeds: Number of seeds, instead of the experiment's.
        rounds: Number of rounds, instead of the experiment's.
        force: Whether to replace results of other settings in the folder.
        progress: As for `compare`.
        plugins: As for `compare`, besides those that the experiment names.
        log: As for `compare`.

    Returns:
        The results of the comparison or of the study.

    Raises:
        ValueError: At the first mistake in the file, with its key.

    Example:
        >>> import evenly
        >>> experiment = {
        ...     "title": "A first try",
        ...     "methods": ["fedavg"],
        ...     "data": {"name": "synthetic", "clients": 5},
        ...     "rounds": 3,
        ...     "seeds": 1,
        ... }
        >>> len(evenly.run(experiment, progress=False))
        1
    """
    if isinstance(experiment, Mapping):
        contents, name = experiment_of(dict(experiment), "The experiment"), "experiment"
    else:
        contents, name = read(Path(experiment)), Path(experiment).stem
    short = {"quick": quick, "seeds": seeds, "rounds": rounds}
    words = "..." if isinstance(experiment, Mapping) else repr(str(experiment))
    call = _Call("run", short, file_names(plugins), options_of(progress, force=force, log=log))
    return call.of(contents, name, out, words)


def reproduce(
    name: str,
    *,
    out: str | Path | None = None,
    quick: bool = False,
    seeds: int | None = None,
    rounds: int | None = None,
    force: bool = False,
    progress: Show = True,
    plugins: str | Path | Iterable[str | Path] = (),
    log: Loggers = (),
) -> Results | StudyResults | dict[str, Results | StudyResults]:
    """Run a paper's experiment and compare its figures with ours, as `evenly reproduce` does.

    Args:
        name: An experiment such as ``"qffl/synthetic"``, or a paper such as ``"thesis"``, all of
            whose experiments are run.
        out: A folder for results. By default a comparison stays in memory, and a study goes to
            results/.
        quick: Whether to run the short version, whose figures are not comparable with the paper's.
        seeds: Number of seeds, instead of the experiment's.
        rounds: Number of rounds, instead of the experiment's.
        force: Whether to replace results of other settings in the folder.
        progress: As for `compare`.
        plugins: As for `compare`, besides those that the experiment names.
        log: As for `compare`.

    Returns:
        The results; for a paper, a dict from the names of its experiments to their results. An
        experiment of a paper that fails is left out with a warning. The studies of a paper are also
        reported together, in report.html of `out`.

    Raises:
        ValueError: If there is no such experiment or paper.

    Example:
        >>> import evenly
        >>> results = evenly.reproduce(
        ...     "qffl/synthetic", quick=True, seeds=1, rounds=2, progress=False
        ... )
        >>> results.paper().columns[:4].tolist()
        ['split', 'method', 'metric', 'paper']
    """
    short = {"quick": quick, "seeds": seeds, "rounds": rounds}
    call = _Call(
        "reproduce", short, file_names(plugins), options_of(progress, force=force, log=log)
    )
    names = paper_experiments(name)
    if not names:
        return call.of(read_packaged(name), name, out, repr(name))
    folder = Path(out) if out else paper_folder(name, short)

    def one(experiment: str) -> Results | StudyResults:
        contents = read_packaged(experiment)
        own = folder / experiment.partition("/")[2] if out or contents.study else None
        return call.of(contents, experiment, own, repr(experiment))

    found = run_each({each: partial(one, each) for each in names}, warnings.warn)
    studies = [each.study for each in found.values() if isinstance(each, StudyResults)]
    joint_report(studies, name, folder)
    return found


def load_results(
    folder: str | Path, *, plugins: str | Path | Iterable[str | Path] = ()
) -> "Results | StudyResults | TuningResults":
    """Read the results in a folder, written by a function, by the command line or by a deployment.
    Nothing is trained.

    Args:
        folder: The folder.
        plugins: Python files that register the methods, metrics or data sets of these results.
            Name them again: code is never run just because a folder mentions it.

    Returns:
        `Results` of a comparison or a deployment, `StudyResults` of a study, or `TuningResults` of
        a search.

    Raises:
        ValueError: If the folder holds no finished results, or they need a plugin that is not
            loaded.

    Example:
        >>> import evenly, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first = evenly.compare(
        ...         "synthetic(clients=5)", "fedavg", rounds=2, seeds=1, out=folder, progress=False
        ...     )
        ...     again = evenly.load_results(folder)
        >>> bool((first.table() == again.table()).iloc[0]["average"])
        True
    """
    load_files(plugins)
    path = Path(folder)
    if searched := read_search(path):
        from evenly.api.search import open_tuning  # Optuna is slow to import

        return open_tuning(searched, path)
    plan = read_plan(path)
    if isinstance(plan, StudyPlan):
        record = read_record(path) or RunRecord()
        return StudyResults(open_study(path), path, title=record.title, notes=record.notes)
    comparison = open_results(path)
    deployed = isinstance(plan, Deployment)
    paper = [] if deployed else paper_lines(comparison, path)
    return Results(comparison, plan=None if deployed else plan, folder=path, paper=paper)


class _Call(NamedTuple):
    """A call of `run` or `reproduce`."""

    function: str
    short: dict[str, Any]
    plugins: tuple[str | Path, ...]
    options: ExecutionSettings

    def of(
        self, experiment: Experiment, name: str, out: str | Path | None, words: str
    ) -> Results | StudyResults:
        """Run an experiment, which `words` name in the command of its report."""
        files = [*experiment.plugins, *map(str, self.plugins)]
        experiment = experiment.model_copy(update={"plugins": files})
        given = {key: value for key, value in self.short.items() if value}
        command = _call(self.function, [words], given, self.plugins)
        record = experiment_record(experiment, command, short=self.short["quick"])
        if experiment.study:
            study = experiment.study_plan(name, **self.short)
            folder = Path(out) if out else default_folder(study)
            return run_study(study, record, folder, self.options)
        plan = experiment.plan(name, **self.short)
        return run_plan(plan, record, Path(out) if out else None, self.options)


@contextmanager
def _told(report: Progress, what: str) -> Iterator[Progress]:
    yield report


def options_of(progress: Show, *, force: bool, log: Loggers = ()) -> ExecutionSettings:
    """How a plan is executed, from what the caller passed."""
    options = ExecutionSettings(force)
    if callable(log):
        options = options._replace(log=log)
    else:
        loggers = (log,) if isinstance(log, str) else tuple(log)
        check_loggers(loggers)
        options = options._replace(loggers=loggers)
    if callable(progress):
        return options._replace(bar=partial(_told, progress))
    return options._replace(bar=progress_bar) if progress else options


def call_of(
    function: str,
    data: Any,
    methods: Any,
    settings: Mapping[str, Any],
    plugins: Sequence[str | Path] = (),
) -> str:
    """The call as a report repeats it."""
    shown = repr(str(data)) if isinstance(data, str | Path) else type(data).__name__
    what = [methods] if isinstance(methods, str) or not isinstance(methods, Iterable) else methods
    names = [repr(one) if isinstance(one, str) else type(one).__name__ for one in what]
    return _call(function, [shown, f"[{', '.join(names)}]"], settings, plugins)


def _call(
    function: str,
    arguments: Sequence[str],
    settings: Mapping[str, Any],
    plugins: Sequence[str | Path],
) -> str:
    words = [f"{name}={_argument(value)}" for name, value in settings.items()]
    files = [f"plugins={[str(path) for path in plugins]}"] if plugins else []
    return f"evenly.{function}({', '.join([*arguments, *words, *files])})"


def _argument(value: Any) -> str:
    plain = isinstance(value, str | int | float | list | tuple | dict | None)
    return shortened(value, 60) if plain else type(value).__name__
