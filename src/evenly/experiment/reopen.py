"""Read folders of results: comparisons, studies, deployments, and what differs between two."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isclose, isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.data.federation import Federation
from evenly.data.sensitive import Attribute, attributes_from
from evenly.data.splits import CENTRAL, SPLITS, Ragged
from evenly.datasets.load import load
from evenly.experiment.comparison import Comparison, DeploymentSetup, Incidents, Run, final_by_seed
from evenly.experiment.deployment import (
    CLIP,
    UNKNOWN,
    Deployment,
    DeploymentFacts,
    Evaluation,
    Round,
    ServerOptions,
    read_exclusions,
    read_facts,
    read_options,
    read_releases,
    read_rounds,
)
from evenly.experiment.execute import SeedSetting, execute, setting_of
from evenly.experiment.folder import (
    CHOSEN,
    RunRecord,
    Store,
    read_record,
    slug,
    starting_directory,
    with_record,
)
from evenly.experiment.plan import NewerError, Plan, programs, read_fields
from evenly.experiment.python_objects import read_federation
from evenly.experiment.study import Study, StudyPlan, execute_study
from evenly.experiment.tuning_space import TuningPlan
from evenly.models.named_models import choose_model
from evenly.notation import parse
from evenly.plugins import refuse_unloaded
from evenly.privacy import PRIVACIES
from evenly.privacy.claims import CLIENT, uncounted
from evenly.privacy.row_account import unverified
from evenly.types import NO_CHOICE, Trace

# Deployments. Clients do not answer in every round, so each evaluation shows the last answer of
# every client. If clients send an accuracy only, the number of right rows is rounded to the nearest
# whole number.

PARTITION = "who holds them: this is a deployment"
NOT_FINITE = "NaN or infinity"


def open_deployment(folder: Path, deployment: Deployment) -> Comparison:
    """The comparison of a deployment up to its last evaluation. The deployment may still be
    running.
    """
    rounds, about = read_rounds(folder), read_facts(folder)
    if not any(done.evaluation for done in rounds):
        raise ValueError(
            f"{str(folder)!r} holds no evaluation yet: {len(rounds)} rounds, and no client has"
            " evaluated the model yet. Let clients evaluate (fraction_evaluate above 0) and wait"
            " for the first round."
        )
    left, flagged = read_exclusions(folder)
    told = Incidents(tuple(left), tuple(flagged), sum(len(done.cohort) for done in rounds))
    made = comparison_of(deployment, about, rounds, told, read_options(folder))
    return with_record(made._replace(privacy=promises_of(deployment, folder)), folder)


def promises_of(deployment: Deployment, folder: Path | None) -> dict[str, Any]:
    """What a deployment promises to its clients, by method; empty without such a promise.

    A deployment that only evaluates a model releases nothing and promises nothing, and its figures
    are withheld like those of the training. About private rows the server states no number, because
    the clients add the noise.
    """
    known = None if folder is None else read_releases(folder)
    if known is not None:
        return {deployment.method: known["promise"]}
    parts = parse(deployment.notation) if deployment.notation else ()
    asked = [PRIVACIES[part.name](**part.settings) for part in parts if part.name in PRIVACIES]
    if not asked:
        return {}
    told = uncounted(asked[0]) if asked[0].unit == CLIENT else unverified(asked[0])
    return {deployment.method: told}


def comparison_of(
    deployment: Deployment,
    about: DeploymentFacts,
    rounds: Sequence[Round],
    told: Incidents,
    options: Sequence[ServerOptions] = (),
) -> Comparison:
    """A deployment as a comparison of one run."""
    trace = trace_of(about, rounds, told)
    federation = federation_of(deployment, about, rounds, trace)
    return Comparison(
        name=deployment.name,
        federation=federation,
        partition=PARTITION,
        model=_model(deployment),
        runs=[
            Run(
                deployment.method,
                deployment.algorithm,
                deployment.settings,
                deployment.seeds["cohort"],
                trace,
                frozenset(deployment.needs),
            )
        ],
        rounds=max((done.number for done in rounds), default=0),
        command="",
        seconds=sum(done.seconds for done in rounds),
        versions={},
        sampling=deployment.sampling,
        incidents=told,
        assumed=about.assumed,
        deployed=_setup(deployment, about, rounds, options),
    )


def _setup(
    deployment: Deployment,
    about: DeploymentFacts,
    rounds: Sequence[Round],
    options: Sequence[ServerOptions],
) -> DeploymentSetup:
    found = [done.evaluation for done in rounds if done.evaluation]
    last = max((done.number for done in rounds), default=0)
    return DeploymentSetup(
        caps=deployment.caps,
        # a server that found all rounds done decided nothing
        options=tuple(one for one in options if one.since <= max(last, 1)),
        census=bool(about.examples),
        evaluated=tuple(
            split
            for s, split in enumerate(SPLITS)
            if any(one.examples[:, s].any() for one in found)
        ),
        tables=any(one.tables.any() for one in found),
        accuracies=any((one.correct != UNKNOWN).any() for one in found),
    )


def trace_of(
    about: DeploymentFacts, rounds: Sequence[Round], told: Incidents | None = None
) -> Trace:
    """The rounds of a deployment as a trace, like a simulation's but without the model."""
    seen = [done for done in rounds if done.evaluation]
    tables, losses, choice = _stack_evaluations(
        about, [done.evaluation for done in seen if done.evaluation]
    )
    trained = [done for done in rounds if done.number]
    cohort, weights = _cohorts(trained)
    # a mean over rounds without replies would tell how many they were
    uploads = [done.upload for done in trained if done.upload]
    clips = [done.reports[CLIP] for done in trained if CLIP in done.reports]
    excluded = np.zeros(len(about.names), np.int32)
    for one in told.left_out if told else ():
        if NOT_FINITE in one.reason and one.client != UNKNOWN:
            excluded[one.client] += 1
    return Trace(
        rounds=np.array([done.number for done in seen], np.int32),
        tables=tables,
        losses=losses,
        central=np.zeros((len(seen), *tables.shape[3:]), np.int32),
        cohort=cohort,
        weights=weights,
        excluded=excluded,
        upload=float(np.mean(uploads or [0.0])),
        download=float(np.mean([done.download for done in trained if done.download] or [0.0])),
        model={},
        reports=trained[-1].reports if trained else {},
        choice=choice,
        clip=np.array(clips, np.float32) if len(clips) == len(trained) > 0 else None,
    )


def federation_of(
    deployment: Deployment, about: DeploymentFacts, rounds: Sequence[Round], trace: Trace
) -> Federation:
    """A federation without rows that holds the number of rows of each client."""
    groups, labels = trace.tables.shape[3:5]
    sizes = (
        trace.tables[-1].sum((-3, -2, -1))
        if len(trace.tables)
        else np.zeros((len(SPLITS), len(about.names)), int)
    )
    train, valid, test = sizes
    return Federation(
        x=np.zeros((0, 1), np.float32),
        y=np.zeros(0, np.int32),
        group=np.zeros(0, np.int32),
        train=_only_counts(np.where(train > 0, train, training_rows(about, rounds))),
        valid=_only_counts(valid),
        test=_only_counts(test),
        central=np.zeros(0, np.int32),
        client_group=np.array(about.client_group, np.int32) if about.client_group else None,
        name=deployment.name,
        names=about.names,
        labels=about.labels if len(about.labels) == labels else _plain_labels(rounds, labels),
        groups=about.groups
        or (tuple(f"group {g + 1}" for g in range(groups)) if groups > 1 else ("all",)),
        unprivileged=about.unprivileged,
        favourable=about.favourable,
        attributes=_sided(about),
    )


def _sided(about: DeploymentFacts) -> tuple[Attribute, ...]:
    """The attributes, if clients said the unprivileged value of each."""
    found = attributes_from(about.attributes)
    return found if all(one.unprivileged >= 0 for one in found) else ()


def training_rows(about: DeploymentFacts, rounds: Sequence[Round]) -> np.ndarray:
    """Training rows of each client [clients], from its last update or from the census; 0 if
    unknown.
    """
    rows = np.array(about.examples or [0] * len(about.names), np.int64)
    for done in rounds:
        rows[done.cohort] = np.where(done.examples > 0, done.examples, rows[done.cohort])
    return rows


def _only_counts(counts: np.ndarray) -> Ragged:
    return Ragged(np.zeros(0, np.int32), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def _plain_labels(rounds: Sequence[Round], labels: int) -> tuple[str, ...]:
    tables = any(done.evaluation and done.evaluation.tables.shape[-1] for done in rounds)
    return tuple(map(str, range(labels))) if tables else ("not told",)


def _model(deployment: Deployment) -> str:
    numbers = sum(int(np.prod(shape)) for _, shape, _ in deployment.arrays)
    return f"{numbers:,} numbers in {len(deployment.arrays):,} arrays"


def _stack_evaluations(
    about: DeploymentFacts, evaluations: Sequence[Evaluation]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tables, losses and choices of every client at every evaluation. Clients that did not answer
    keep their last values.
    """
    shape = _shape(about, evaluations)
    clients, count = len(about.names), len(evaluations)
    tables = np.zeros((count, len(SPLITS), clients, *shape), np.int32)
    losses = np.full(tables.shape[:3], np.nan, np.float32)
    choice = np.full((count, clients), UNKNOWN, np.int32)
    for t, found in enumerate(evaluations):
        if t:
            tables[t], losses[t], choice[t] = tables[t - 1], losses[t - 1], choice[t - 1]
        for i, k in enumerate(found.clients.tolist()):
            tables[t, :, k], losses[t, :, k] = _tables(found, i, shape), found.losses[i]
            choice[t, k] = found.choice[i]
    return tables, losses, np.maximum(choice, 0) if (choice != UNKNOWN).any() else NO_CHOICE


def _shape(about: DeploymentFacts, evaluations: Sequence[Evaluation]) -> tuple[int, int, int]:
    """Numbers of groups, labels and outcomes. If clients sent accuracies only, there are two
    labels.
    """
    sent = next(
        (found.tables.shape[2:] for found in evaluations if found.tables.shape[-1]), (1, 2, 2)
    )
    groups, labels = len(about.groups) or sent[0], max(len(about.labels), sent[1], 2)
    return groups, labels, labels


def merge_evaluations(before: Evaluation | None, now: Evaluation) -> Evaluation:
    """The last evaluation of every client. Older tables with another shape are dropped."""
    if before is None or before.tables.shape[1:] != now.tables.shape[1:]:
        return now
    old = ~np.isin(before.clients, now.clients)
    return Evaluation(*(np.concatenate([a[old], b]) for a, b in zip(before, now, strict=True)))


def _tables(found: Evaluation, i: int, shape: tuple[int, int, int]) -> np.ndarray:
    """The tables of one client by split. From an accuracy, rows are counted as right or wrong
    without their label.
    """
    made = np.zeros((len(SPLITS), *shape), np.int32)
    groups, labels, outcomes = found.tables.shape[2:]
    if groups == shape[0] and labels <= shape[1]:
        made[:, :, :labels, :outcomes] = found.tables[i]
    told = (found.correct[i] != UNKNOWN) & (made.sum((1, 2, 3)) == 0)
    made[told, 0, 0, 0] = found.correct[i, told]
    made[told, 0, 0, 1] = found.examples[i, told] - found.correct[i, told]
    return made


def _cohorts(trained: Sequence[Round]) -> tuple[np.ndarray, np.ndarray]:
    """Cohorts and coefficients, padded to equal length. A shorter cohort repeats its first client
    with coefficient 0.
    """
    slots = max((len(done.cohort) for done in trained), default=0)
    cohort, weights = (
        np.zeros((len(trained), slots), np.int32),
        np.zeros((len(trained), slots), np.float32),
    )
    for t, done in enumerate(trained):
        n = len(done.cohort)
        cohort[t, :n], weights[t, :n] = done.cohort, done.weights
        cohort[t, n:] = done.cohort[0] if n else 0
    return cohort, weights


# Folders of plans and studies.


def read_plan(folder: Path) -> Plan | StudyPlan | Deployment:
    """The plan, study or deployment whose results are in a folder."""
    path = folder / "plan.json"
    if not folder.is_dir():
        raise ValueError(
            f"There is no folder {str(folder)!r}. Give a folder of results written by evenly."
        )
    if not path.exists():
        raise ValueError(_without_plan(folder))
    try:
        text = path.read_text()
        fields = read_fields(text)
        if "deployment" in fields:
            return Deployment.from_json(text)
        if "shared" not in fields:
            return StudyPlan.from_json(text) if "cells" in fields else Plan.from_json(text)
    except NewerError as error:
        raise ValueError(f"The folder {str(folder)!r} {error}. Nothing was changed.") from None
    except ValueError as error:
        raise ValueError(
            f"{str(path)!r} is damaged, so the settings of these results are unknown: {error}"
        ) from None
    raise ValueError(_search_words(folder))


def _without_plan(folder: Path) -> str:
    if (folder / "audit.json").exists():
        return (
            f"The folder {str(folder)!r} contains an audit. Its figures are in"
            f" {str(folder / 'audit.csv')!r}, one per row, and its report is"
            f" {str(folder / 'report.html')!r}. To change them, run `evenly audit` again."
        )
    return f"The folder {str(folder)!r} holds no results of evenly: there is no plan.json in it."


def _search_words(folder: Path) -> str:
    """Where the results of a search are or, before it has any, how to continue it."""
    known, chosen = read_record(folder), folder / CHOSEN
    command = f": {known.command}" if known and known.command else ""
    if (chosen / "results.csv").exists():
        return (
            f"The folder {str(folder)!r} contains a search for settings. The results of the chosen"
            f" settings are in {str(chosen)!r}: give that folder instead. All trials are in"
            f" {str(folder / 'tuning.csv')!r}. To continue the search, run the command that started"
            f" it{command}"
        )
    return (
        f"The folder {str(folder)!r} contains a search for settings. Run the command that started"
        f" it to continue{command}"
    )


def read_search(folder: Path) -> TuningPlan | None:
    """The plan of a finished search for settings; None if the folder holds something else.

    Raises:
        ValueError: If the search is not finished, or needs a plugin that is not loaded.
    """
    path = folder / "plan.json"
    if not path.exists():
        return None
    try:
        text = path.read_text()
        fields = read_fields(text)
    except ValueError:
        return None  # `read_plan` says what is wrong
    if "shared" not in fields:
        return None
    if not (folder / CHOSEN / "results.csv").exists():
        raise ValueError(_search_words(folder))
    try:
        plan = TuningPlan.from_json(text)
    except ValueError as error:
        raise ValueError(
            f"{str(path)!r} is damaged, so the settings of this search are unknown: {error}"
        ) from None
    refuse_unloaded(plan.shared.plugins, folder)
    return plan


def open_results(folder: Path) -> Comparison:
    """The comparison in a finished folder, or the present state of a deployment. Nothing is
    trained.
    """
    plan = read_plan(folder)
    if isinstance(plan, Deployment):
        return open_deployment(folder, plan)
    if isinstance(plan, StudyPlan):
        raise ValueError(
            f"The folder {str(folder)!r} holds a study of {len(plan.cells)} partitions, not one"
            " comparison."
        )
    results = folder.resolve()
    refuse_unloaded(plan.plugins, folder, plan.method_names)
    with starting_directory(folder, plan):
        first = _stored_setting(plan, results)
        _refuse_unfinished(folder, *progress(plan, results, first))
        return with_record(execute(plan, Store(results, plan), models=False, first=first), results)


def _stored_setting(plan: Plan, folder: Path) -> SeedSetting:
    """Data and model of the first seed. What was passed from Python is not there; then the data
    have counts only, and there is no model.
    """
    absent = plan.in_memory and plan.objects.data is None
    federation = (
        read_federation(folder) if absent else load(plan.data, plan.seeds[0], plan.objects.data)
    )
    own = "model" in plan.own
    task = plan.objects.model if own else choose_model(plan.model, federation)
    return SeedSetting(federation, task)


def open_study(folder: Path) -> Study:
    """The study in a finished folder. Nothing is trained."""
    plan = read_plan(folder)
    if not isinstance(plan, StudyPlan):
        raise ValueError(f"The folder {str(folder)!r} holds one comparison, not a study.")
    results = folder.resolve()
    refuse_unloaded((record for own in plan.cells.values() for record in own.plugins), folder)
    with starting_directory(folder, *plan.cells.values()):
        counts = [
            progress(own, results / "cells" / slug(name), setting_of(own, own.seeds[0]))
            for name, own in plan.cells.items()
        ]
        _refuse_unfinished(
            folder, sum(done for done, _ in counts), sum(total for _, total in counts)
        )
        known = read_record(folder) or RunRecord()
        return execute_study(plan, results)._replace(seconds=known.seconds)


def progress(plan: Plan, folder: Path, first: SeedSetting) -> tuple[int, int]:
    """The number of a plan's finished programs, and the number of its programs."""
    kept = [
        Store.traces_in(folder, program.keys).exists()
        for program in programs(plan, first.task, folder)
    ]
    return sum(kept), len(kept)


def _refuse_unfinished(folder: Path, done: int, total: int) -> None:
    if done < total:
        raise ValueError(
            f"{str(folder)!r} is not finished: {done} of {total} programs. Continue with `evenly"
            f" resume {folder}`."
        )


# Differences between two folders: settings, methods and metrics.

ABSENT = "not there"


class SettingDifference(NamedTuple):
    """A setting that differs, by its path in plan.json."""

    key: str
    first: Any
    second: Any


class FigureDifference(NamedTuple):
    """A metric that differs: means over the seeds."""

    label: str
    split: str  # of a study the protocol
    metric: str
    first: float
    second: float
    cell: str = ""  # of a study: the partition

    @property
    def difference(self) -> float:
        return self.second - self.first


class Difference(NamedTuple):
    """All differences between two folders."""

    settings: list[SettingDifference]
    only_first: list[str]  # methods
    only_second: list[str]
    figures: list[FigureDifference]
    compared: int  # figures that both have

    @property
    def same(self) -> bool:
        return not (self.settings or self.only_first or self.only_second or self.figures)


class _Place(NamedTuple):
    cell: str
    label: str
    split: str
    metric: str


Values = dict[_Place, dict[int, float]]  # by seed


def diff(first: Path, second: Path, *, tolerance: float = 0.0) -> Difference:
    """Compare two finished folders. Results are equal if they differ by at most `tolerance` for
    every seed.
    """
    if not tolerance >= 0:
        raise ValueError(f"The tolerance must be at least 0, got {tolerance}.")
    plans = [read_plan(folder) for folder in (first, second)]
    a, b = (_values(folder, plan) for folder, plan in zip((first, second), plans, strict=True))
    methods = [list(dict.fromkeys(place.label for place in values)) for values in (a, b)]
    shared = [place for place in a if place in b]
    return Difference(
        settings=list(_settings(*(json.loads(plan.to_json()) for plan in plans))),
        only_first=[label for label in methods[0] if label not in methods[1]],
        only_second=[label for label in methods[1] if label not in methods[0]],
        figures=[
            _figure(place, a[place], b[place])
            for place in shared
            if not _equal(a[place], b[place], tolerance)
        ],
        compared=len(shared),
    )


def _settings(first: Any, second: Any, at: str = "") -> Iterator[SettingDifference]:
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            yield from _settings(
                first.get(key, ABSENT), second.get(key, ABSENT), f"{at}.{key}" if at else key
            )
    elif first != second:
        yield SettingDifference(at, first, second)


def _values(folder: Path, plan: Plan | StudyPlan | Deployment) -> Values:
    return dict(
        _study_values(open_study(folder))
        if isinstance(plan, StudyPlan)
        else _comparison_values(open_results(folder))
    )


def _comparison_values(comparison: Comparison) -> Iterator[tuple[_Place, dict[int, float]]]:
    for label in comparison.labels:
        for split in (*SPLITS, CENTRAL):
            for metric, values in final_by_seed(comparison, label, split).items():
                yield _Place("", label, split, metric), values


def _study_values(study: Study) -> Iterator[tuple[_Place, dict[int, float]]]:
    for outcome in study.outcomes:
        seeds = study.plan.cells[outcome.cell].seeds
        for metric, values in outcome.values.items():
            yield (
                _Place(outcome.cell, outcome.method, outcome.protocol, metric),
                dict(zip(seeds, values.tolist(), strict=True)),
            )


def _equal(first: Mapping[int, float], second: Mapping[int, float], tolerance: float) -> bool:
    if first.keys() != second.keys():
        return _close(_mean(first), _mean(second), tolerance)
    return all(_close(first[seed], second[seed], tolerance) for seed in first)


def _close(a: float, b: float, tolerance: float) -> bool:
    return (isnan(a) and isnan(b)) or a == b or isclose(a, b, rel_tol=0.0, abs_tol=tolerance)


def _figure(
    place: _Place, first: Mapping[int, float], second: Mapping[int, float]
) -> FigureDifference:
    return FigureDifference(
        place.label, place.split, place.metric, _mean(first), _mean(second), place.cell
    )


def _mean(values: Mapping[int, float]) -> float:
    return float(np.mean(list(values.values())))
