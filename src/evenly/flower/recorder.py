"""Record of a deployment: a folder with the same contents as that of a simulation.

After every round its files are written completely, so a server that is killed loses at most the
round it was in. Without a folder the record is kept in memory, and `trace` returns the same.
"""

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import MetricRecord
from flwr.serverapp.strategy import Result

from evenly.experiment import deployment as files
from evenly.experiment.comparison import Comparison, Incidents, compared_split, live_metrics
from evenly.experiment.deployment import (
    Deployment,
    DeploymentFacts,
    Evaluation,
    Exclusion,
    Flag,
    Round,
    RoundFlag,
    ServerOptions,
    read_options,
    update_options,
    write_options,
)
from evenly.experiment.folder import RunRecord, add_training, begin, finish, with_record
from evenly.experiment.observe import Live
from evenly.experiment.plan import SCHEMA, read_fields
from evenly.experiment.promises import withholds
from evenly.experiment.reopen import (
    comparison_of,
    merge_evaluations,
    promises_of,
    trace_of,
)
from evenly.flower.checks import SIGNALS
from evenly.flower.replies import ClientEvaluation
from evenly.notation import parse
from evenly.types import Algorithm, Seeds, Trace
from evenly.writing import write_whole

LOG = logging.getLogger("flwr")


class Traffic(NamedTuple):
    """Bytes that one client sends and receives in a round."""

    upload: float = 0.0
    download: float = 0.0


def deployment_of(
    algorithm: Algorithm,
    seeds: Seeds,
    arrays: Iterable[tuple[str, Sequence[int], Any]],
    *,
    notation: str = "",
    name: str = "deployment",
    caps: Any = None,
    identity: str = "",
) -> Deployment:
    """Description of a deployment, for its folder. `arrays` are name, shape and type of each array
    of the model.
    """
    label = algorithm.label or type(algorithm.rule).__name__
    head = parse(label)[0]
    return Deployment(
        name=name,
        method=label,
        algorithm=head.name,
        settings=dict(head.settings),
        seeds=dataclasses.asdict(seeds),  # pyright: ignore[reportArgumentType]
        arrays=[[key, list(shape), str(np.dtype(dtype))] for key, shape, dtype in arrays],
        sampling=_sampling(notation),
        caps=(
            {}
            if caps is None
            else {
                key: value for key, value in dataclasses.asdict(caps).items() if value is not None
            }
        ),
        needs=tuple(sorted(algorithm.needs)),
        notation=notation,
        identity=identity,
    )


class Recorder:
    """Record of one deployment, in memory and, with a folder, on disk."""

    def __init__(
        self,
        folder: Path | str | None,
        deployment: Deployment,
        about: DeploymentFacts,
        *,
        rounds: int,
        done: int,
        options: ServerOptions | None = None,
    ) -> None:
        """`rounds` are planned, and `done` were completed by an earlier server; its later files are
        removed.
        """
        self.deployment, self.about = deployment, about
        self._folder = None if folder is None else Path(folder)
        self._planned = rounds
        self._options = () if options is None else (options,)
        self._rounds: dict[int, Round] = {}
        self._left_out: list[Exclusion] = []
        self._flagged: list[RoundFlag] = []
        self._unwritten: set[int] = set()
        self._written: tuple[int, int] | None = None  # how many of both are in the file
        self._live: Live | None = None
        self._latest: Evaluation | None = None  # every client's last answer
        if self._folder:
            self._begin(self._folder, done)

    def _begin(self, folder: Path, done: int) -> None:
        files.forget_rounds(folder, done if done else -1)
        self._rounds = {one.number: one for one in files.read_rounds(folder)}
        left, flagged = files.read_exclusions(folder, done) if done else ([], [])
        self._left_out, self._flagged = left, flagged
        files.write_facts(folder, self.about)
        if self._options:
            self._options = update_options(read_options(folder), self._options[0])
            write_options(folder, self._options)
        begin(folder, RunRecord(title=self._title))
        self._live = self._followed(folder)
        self._report_progress(self._rounds)

    def record_left_out(self, left_out: Iterable[Exclusion]) -> None:
        """Record exclusions from a round that could not be completed."""
        self._left_out += left_out

    def record_census(
        self, left_out: Iterable[Exclusion] = (), flagged: Iterable[Flag] = ()
    ) -> None:
        """Record exclusions and flags of the census."""
        self._left_out += left_out
        self._flagged += [RoundFlag(0, flag) for flag in flagged]

    def record_joining(
        self,
        number: int,
        about: DeploymentFacts,
        left_out: Iterable[Exclusion] = (),
        flagged: Iterable[Flag] = (),
    ) -> None:
        """Record the clients from a round on, and exclusions and flags of those that wanted to
        join.
        """
        self._left_out += left_out
        self._flagged += [RoundFlag(number, flag) for flag in flagged]
        if about != self.about:
            self.about = about
            if self._folder:
                files.write_facts(self._folder, about)

    def record_round(
        self,
        number: int,
        cohort: Any,
        weights: Any,
        *,
        left_out: Iterable[Exclusion] = (),
        flagged: Iterable[Flag] = (),
        examples: Mapping[int, int] | None = None,
        seconds: float = 0.0,
        traffic: Traffic = Traffic(),  # noqa: B008 - a tuple
        reports: Mapping[str, float] | None = None,
    ) -> None:
        """Record a round of training. `weights` are the coefficients [K] or [K, models]; `examples`
        the reported training rows.
        """
        cohort, weights = np.asarray(cohort, np.int32), np.asarray(weights, np.float32)
        said = examples or {}
        self._rounds[number] = Round(
            number,
            cohort,
            weights.sum(1) if weights.ndim == 2 else weights,
            np.array([said.get(k, 0) for k in cohort.tolist()], np.int64),
            float(seconds),
            float(traffic.upload),
            float(traffic.download),
            {name: float(value) for name, value in (reports or {}).items()},
            self._rounds[number].evaluation if number in self._rounds else None,
        )
        self._left_out += left_out
        self._flagged += [RoundFlag(number, flag) for flag in flagged]
        self._unwritten.add(number)

    def record_evaluation(
        self,
        number: int,
        replies: Sequence[ClientEvaluation],
        left_out: Iterable[Exclusion] = (),
        *,
        seconds: float = 0.0,
    ) -> None:
        """Record an evaluation. Tables with other groups or labels than those of most clients are
        left out.
        """
        usable, strange = comparable_evaluations(replies, number, dict(enumerate(self.about.nodes)))
        found = files.gather_evaluation(
            [reply.client for reply in usable], [reply.splits for reply in usable]
        )
        before = self._rounds.get(number) or Round(
            number, np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int64)
        )
        self._rounds[number] = before._replace(
            evaluation=found if usable else None, seconds=before.seconds + seconds
        )
        self._left_out += [*left_out, *strange]
        self._unwritten.add(number)

    def write(self) -> None:
        """Write what is new. Every file is complete even if the process is killed meanwhile."""
        if not self._folder:
            return
        for number in sorted(self._unwritten):
            files.write_round(self._folder, self._rounds[number])
        if self._written != (told := (len(self._left_out), len(self._flagged))):
            files.write_exclusions(self._folder, self._left_out, self._flagged)
            self._written = told
        new = {number: self._rounds[number] for number in sorted(self._unwritten)}
        add_training(
            self._folder, sum(done.seconds for done in new.values()), also={"flwr": version("flwr")}
        )
        self._report_progress(new)
        self._unwritten.clear()

    def end(self, how: str = "finished", error: str = "") -> None:
        """End the record: "finished", "stopped" or "failed". If it finished, write the report."""
        self.write()
        if self._live:
            self._live.end(how, error)
            self._live = None
        if self._folder and how == "finished":
            self._write_report(self._folder)
            finish(self._folder, promises_of(self.deployment, self._folder))

    def last_training(self) -> dict[int, int]:
        """The last round from which there is a reply of each client."""
        return {
            int(k): number
            for number, done in sorted(self._rounds.items())
            for k in done.cohort[done.examples > 0]
        }

    @property
    def left_out(self) -> list[Exclusion]:
        return list(self._left_out)

    @property
    def flagged(self) -> list[RoundFlag]:
        return list(self._flagged)

    def trace(self) -> Trace:
        """Trace of all rounds so far, like that of a simulation but without the model."""
        return trace_of(self.about, self._ordered(), self._incidents())

    def comparison(self) -> Comparison:
        """Comparison of all rounds so far, for tables and reports."""
        made = comparison_of(
            self.deployment, self.about, self._ordered(), self._incidents(), self._options
        )
        return made._replace(privacy=promises_of(self.deployment, self._folder))

    def _ordered(self) -> list[Round]:
        return [self._rounds[number] for number in sorted(self._rounds)]

    def _incidents(self) -> Incidents:
        return Incidents(
            tuple(self._left_out),
            tuple(self._flagged),
            sum(len(done.cohort) for done in self._rounds.values()),
        )

    def _followed(self, folder: Path) -> Live:
        """Files that `evenly watch` reads."""
        about = {
            "name": self._title,
            "data": self.deployment.name,
            "rounds": self._planned,
            "every": 1,
            "splits": ["test", "valid"],
        }
        live = Live(folder, about, [self._run])
        live.mark("started", [self._run])
        return live

    @property
    def _title(self) -> str:
        return f"A deployment of {self.deployment.method}"

    @property
    def _run(self) -> tuple[str, int]:
        return self.deployment.method, self.deployment.seeds["cohort"]

    def _report_progress(self, rounds: Mapping[int, Round]) -> None:
        """Write the metrics of these rounds for `evenly watch`. If they cannot be computed,
        training continues without.
        """
        if not self._live:
            return
        for number, done in rounds.items():
            self._live.progress(number, self._planned)
            if done.evaluation is None or withholds(promises_of(self.deployment, self._folder)):
                continue
            try:
                self._latest = merge_evaluations(self._latest, done.evaluation)
                own = comparison_of(
                    self.deployment,
                    self.about,
                    [done._replace(evaluation=self._latest)],
                    Incidents(),
                )
                split = compared_split(own.federation)
                values = {
                    name: float(v[-1])
                    for name, v in live_metrics(own.federation, own.runs[0].trace, split).items()
                    if np.isfinite(v[-1])
                }
                self._live.point(*self._run, number, {split: values})
            except Exception as error:
                LOG.warning(
                    "Progress reporting failed and is off (%s: %s). Training continues.",
                    type(error).__name__,
                    error,
                )
                self._live.end("stopped")
                self._live = None
                return

    def _write_report(self, folder: Path) -> None:
        """Write the report. If that fails, log a warning: the trained model must not be lost."""
        if not any(done.evaluation for done in self._rounds.values()):
            LOG.warning(
                "No report was written, because no client evaluated the model. Set"
                " fraction_evaluate above 0."
            )
            return
        try:
            from evenly.report import write_report  # charts are slow to import, and wanted only now

            path = write_report(with_record(self.comparison(), folder), folder / "report.html")
            LOG.info("Report: %s", path)
        except Exception as error:
            LOG.warning(
                "The report was not written (%s: %s). Try `evenly report %s`.",
                type(error).__name__,
                error,
                folder,
            )


def comparable_evaluations(
    replies: Sequence[ClientEvaluation], number: int, nodes: Mapping[int, int]
) -> tuple[list[ClientEvaluation], list[Exclusion]]:
    """Evaluations with tables of the most frequent shape, and exclusions for the others."""
    shapes = [_shape(reply) for reply in replies]
    known = [shape for shape in shapes if shape]
    usual = max(sorted(set(known)), key=known.count, default=None)
    # a few tables do not decide for those who send an accuracy: they are read as one
    if len(known) < shapes.count(None):
        return [_accuracy(reply) for reply in replies], []
    grouped = usual is not None and usual[0] > 1
    kept, strange = [], []
    for reply, shape in zip(replies, shapes, strict=True):
        if shape == usual or (shape is None and not grouped):
            kept.append(reply)
            continue
        told = (
            f"sent a table of shape {list(shape)}" if shape else "sent an accuracy without a table"
        )
        reason = f"{told}, where the others send {list(usual or ())} (groups, labels, outcomes)"
        strange.append(
            Exclusion(
                nodes.get(reply.client, files.UNKNOWN),
                reply.client,
                number,
                reason,
                SIGNALS,
                "evaluate",
            )
        )
    return kept, strange


def _accuracy(reply: ClientEvaluation) -> ClientEvaluation:
    """The evaluation with the number of correct rows in place of its tables."""

    def plain(part: Any) -> Any:
        tables = isinstance(part, dict) and part["table"] is not None
        return (
            {**part, "table": None, "correct": int(np.trace(part["table"].sum(0)))}
            if tables
            else part
        )

    return reply._replace(splits={split: plain(part) for split, part in reply.splits.items()})


def _shape(reply: ClientEvaluation) -> tuple[int, ...] | None:
    tables = [
        part["table"]
        for part in reply.splits.values()
        if isinstance(part, dict) and part["table"] is not None
    ]
    return tables[0].shape if tables else None


def _sampling(notation: str) -> str:
    from evenly.parts.sampling import SAMPLINGS

    parts = parse(notation)[1:] if notation else ()
    return next((str(part) for part in parts if part.name in SAMPLINGS), "")


# `metrics.json`: the averages that Flower returns as a run's result, so that one that was
# interrupted returns them all.

METRICS = "metrics.json"


def write_metrics(folder: Path, result: Result) -> None:
    """Write the averages of all rounds so far."""
    kinds = {
        kind: {number: dict(found) for number, found in own.items()}
        for kind, own in _metrics_by_kind(result).items()
    }
    text = json.dumps({"schema": SCHEMA, **kinds}, indent=1)
    write_whole(folder / METRICS, lambda file: file.write(text.encode()))


def read_metrics(folder: Path, result: Result, until: int) -> None:
    """Read the averages of an earlier server up to a round. A damaged file is ignored."""
    try:
        kept = read_fields((folder / METRICS).read_text())
        for kind, own in _metrics_by_kind(result).items():
            own |= {
                int(number): MetricRecord(found)
                for number, found in kept[kind].items()
                if int(number) <= until
            }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return


def _metrics_by_kind(result: Result) -> dict[str, dict[int, MetricRecord]]:
    return {
        "train": result.train_metrics_clientapp,
        "evaluate": result.evaluate_metrics_clientapp,
        "server": result.evaluate_metrics_serverapp,
    }
