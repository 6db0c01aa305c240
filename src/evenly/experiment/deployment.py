"""The files of a deployment: a federation of real clients, whose folder is read like a simulation's."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from evenly.data.splits import SPLITS
from evenly.experiment.plan import SCHEMA, read_fields
from evenly.outside import check_kinds, kinds_of, shortened
from evenly.saving import Archive, DamagedError, read_archive, write_archive
from evenly.writing import write_whole

# The files of a deployment: a federation of real clients, whose folder is read like a simulation's.
#
# plan.json what was asked for: method, seeds, the model's arrays federation.json who the clients are, and what their labels and groups
# are called history/ a file for every round: who was chosen, what each counted, what clients found when they evaluated the model
# options.json what the server was told besides: see evenly.experiment.deployment left_out.json whose replies did not count in which round
# and why, and who claimed more than the caps allow
#
# Every file is whole or not there. Nothing here needs Flower, so that a report can be written where only the folder is.

HISTORY, FEDERATION, LEFT_OUT = "history", "federation.json", "left_out.json"
UNKNOWN = -1


class Exclusion(NamedTuple):
    """A client whose reply did not count, or did not come."""

    node: int
    client: int  # UNKNOWN: it never said who it is
    round: int
    reason: str  # what it did, without saying who: "sent NaN ..."
    kind: str = "reply"  # a word for the reason: see evenly.flower.replies
    phase: str = "train"  # or "evaluate", "measure", "census"


class Flag(NamedTuple):
    """A client that claimed more than a cap allows; client UNKNOWN: the cap itself cannot hold for so few clients."""

    client: int
    what: str  # "loss", "examples", "coefficient", "norm"
    said: float
    counted: float  # what it was cut to


class RoundFlag(NamedTuple):
    """A flag, and when it was raised. Round 0: before the first."""

    round: int
    flag: Flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment:
    """What a deployment was asked to do: another server may go on with its folder only if it is asked for the same."""

    name: str
    method: str  # the label, as a method is written down
    algorithm: str  # the name of the method
    settings: dict[str, Any]
    seeds: dict[str, int]
    arrays: list[list[Any]]  # of the model: [name, shape, type]
    sampling: str = ""
    caps: dict[str, Any] = dataclasses.field(default_factory=dict)
    needs: tuple[str, ...] = ()  # what clients reveal
    notation: str = ""  # the method with every setting that matters, also of one that was given as an object

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, "deployment": dataclasses.asdict(self)}, indent=2, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> "Deployment":
        fields = read_fields(text)
        try:
            check_kinds(fields, {"deployment": dict[str, Any]})
            check_kinds(fields["deployment"], kinds_of(Deployment))
            return Deployment(**{**fields["deployment"], "needs": tuple(fields["deployment"].get("needs", ()))})
        except (TypeError, KeyError) as error:
            raise ValueError(f"This is not the plan of a deployment: {shortened(str(error))}.") from None

    def fingerprint(self) -> str:
        return hashlib.sha256(dataclasses.replace(self, name="").to_json().encode()).hexdigest()[:16]


class DeploymentFacts(NamedTuple):
    """Who the clients are. What they never said has a plain name: labels and groups are then known from their tables alone."""

    names: tuple[str, ...]
    nodes: tuple[int, ...] = ()  # Flower's numbers for them, in this session
    examples: tuple[int, ...] = ()  # training rows that they said before the first round
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    unprivileged: tuple[int, ...] = (0,)
    favourable: int = 1
    client_group: tuple[int, ...] = ()


class Evaluation(NamedTuple):
    """What clients found when they evaluated the model they are served; those that did not answer are not there."""

    clients: np.ndarray  # int32 [n]
    examples: np.ndarray  # int64 [n, splits]
    correct: np.ndarray  # int64 [n, splits] rows predicted right; UNKNOWN where a table says it, or nobody does
    losses: np.ndarray  # float32 [n, splits]; NaN: not told
    tables: np.ndarray  # int32 [n, splits, groups, labels, outcomes]; of no labels where nobody sent one
    choice: np.ndarray  # int32 [n] which of several models each is served; UNKNOWN: there is one


class Round(NamedTuple):
    """What one round left. Round 0 is before any training."""

    number: int
    cohort: np.ndarray  # int32 [K] who was chosen
    weights: np.ndarray  # float32 [K] what each counted; 0 for who was left out
    examples: np.ndarray  # int64 [K] training rows that each said; 0 for who was left out
    seconds: float = 0.0
    upload: float = 0.0  # bytes, of a client that replied
    download: float = 0.0
    reports: Mapping[str, float] = MappingProxyType({})
    evaluation: Evaluation | None = None


def write_round(folder: Path, done: Round) -> Path:
    """Keep a round; one with the same number is replaced."""
    header = {name: getattr(done, name) for name in ("number", "seconds", "upload", "download")} | {"reports": dict(done.reports)}
    arrays = {name: getattr(done, name) for name in ("cohort", "weights", "examples")}
    arrays |= {f"evaluation.{name}": array for name, array in done.evaluation._asdict().items()} if done.evaluation else {}
    return write_archive(folder / HISTORY / f"{done.number:06d}.npz", arrays, header, compress=True)


def read_rounds(folder: Path, until: int | None = None) -> list[Round]:
    """All rounds in order, or those up to a number."""
    paths = sorted((folder / HISTORY).glob("[0-9]*.npz"))
    return [done for path in paths if (done := _read_round(path)) and (until is None or done.number <= until)]


def forget_rounds(folder: Path, after: int) -> None:
    """Remove rounds that will be done again."""
    for path in (folder / HISTORY).glob("[0-9]*.npz"):
        if path.stem.isdigit() and int(path.stem) > after:
            path.unlink()


def _read_round(path: Path) -> Round:
    try:
        return read_archive(path, _round)
    except DamagedError:
        raise ValueError(f"{str(path)!r} is damaged. Remove it; the report is then made of the other rounds.") from None


def _round(archive: Archive) -> Round:
    header, file = archive
    check_kinds(header, kinds_of(Round))
    arrays: dict[str, Any] = {name: file[name] for name in ("cohort", "weights", "examples")}
    evaluation = {name: file[f"evaluation.{name}"] for name in Evaluation._fields if f"evaluation.{name}" in file}
    return Round(**header, **arrays, evaluation=Evaluation(**evaluation) if evaluation else None)


def write_facts(folder: Path, about: DeploymentFacts) -> Path:
    text = json.dumps({"schema": SCHEMA, **about._asdict()}, indent=1)
    return write_whole(folder / FEDERATION, lambda file: file.write(text.encode()))


def read_facts(folder: Path) -> DeploymentFacts:
    path = folder / FEDERATION
    try:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in read_fields(path.read_text()).items()}
        check_kinds(fields, kinds_of(DeploymentFacts))
        return DeploymentFacts(**fields)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{str(path)!r} is missing or damaged, so it is not known who the clients are: {error}") from None


def write_exclusions(folder: Path, left_out: Iterable[Exclusion], flagged: Iterable[RoundFlag]) -> Path:
    told = [{"round": one.round, **one.flag._asdict()} for one in flagged]
    text = json.dumps({"schema": SCHEMA, "left_out": [one._asdict() for one in left_out], "flagged": told}, indent=1)
    return write_whole(folder / LEFT_OUT, lambda file: file.write(text.encode()))


def read_exclusions(folder: Path, until: int | None = None) -> tuple[list[Exclusion], list[RoundFlag]]:
    """Who was left out and who was flagged, up to a round; nobody where the file is not there."""
    path = folder / LEFT_OUT
    if not path.exists():
        return [], []
    try:
        fields = read_fields(path.read_text())
        for name, kind in (("left_out", Exclusion), ("flagged", Flag)):
            check_kinds(fields, {name: list[dict[str, Any]]})
            for one in fields[name]:
                check_kinds(one, kinds_of(kind) | {"round": int})
        left = [Exclusion(**one) for one in fields["left_out"]]
        flagged = [RoundFlag(one["round"], Flag(*(one[name] for name in Flag._fields))) for one in fields["flagged"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{str(path)!r} is damaged. Remove it; the report then does not say who was left out: {error}") from None
    kept = [one for one in left if until is None or one.round <= until]
    return kept, [one for one in flagged if until is None or one.round <= until]


def no_evaluation() -> Evaluation:
    """Nobody answered."""
    return gather_evaluation([], [])


def gather_evaluation(clients: Sequence[int], found: Sequence[dict[str, Any]]) -> Evaluation:
    """One evaluation from what every client said: by split its `examples`, `loss`, `correct` and `table`, and its `choice`."""
    shape = next((each[s]["table"].shape for each in found for s in SPLITS if each.get(s, {}).get("table") is not None), (0, 0, 0))
    n, splits = len(clients), len(SPLITS)
    made = Evaluation(
        np.array(clients, np.int32),
        np.zeros((n, splits), np.int64),
        np.full((n, splits), UNKNOWN, np.int64),
        np.full((n, splits), np.nan, np.float32),
        np.zeros((n, splits, *shape), np.int32),
        np.array([each.get("choice", UNKNOWN) for each in found], np.int32),
    )
    for i, each in enumerate(found):
        for s, split in enumerate(SPLITS):
            if own := each.get(split):
                made.examples[i, s], made.losses[i, s] = own["examples"], own["loss"]
                if own["table"] is not None:
                    made.tables[i, s] = own["table"]
                elif own["correct"] is not None:
                    made.correct[i, s] = own["correct"]
    return made


# What the server of a deployment was told besides the method, for those who audit it: `options.json` in its folder.
#
# Unlike the plan, this need not be the same for a server that goes on: what was in force before is kept beside it.

OPTIONS = "options.json"


class ServerOptions(NamedTuple):
    """Options, and since when."""

    since: int  # a round
    fraction_train: float | None = None  # None: clients are drawn by the sampling of the method
    fraction_evaluate: float = 1.0
    min_train_nodes: int = 2
    min_evaluate_nodes: int = 2
    min_available_nodes: int = 2
    two_phase: bool = False
    given_sum: bool = False  # in two phases: whether a function of the user's made the sum, of masked updates say


def update_options(before: Sequence[ServerOptions], now: ServerOptions) -> tuple[ServerOptions, ...]:
    """With what is in force from a round on; what was to be in force later never was.

    >>> before = ServerOptions(since=1), ServerOptions(since=5, min_train_nodes=3)
    >>> [one.since for one in update_options(before, ServerOptions(since=4, two_phase=True))]
    [1, 4]
    >>> [one.since for one in update_options(before, ServerOptions(since=4))]  # as it was
    [1]
    """
    kept = tuple(one for one in before if one.since < now.since)
    return kept if kept and kept[-1]._replace(since=now.since) == now else (*kept, now)


def write_options(folder: Path, options: Sequence[ServerOptions]) -> Path:
    text = json.dumps({"schema": SCHEMA, "options": [one._asdict() for one in options]}, indent=1)
    return write_whole(folder / OPTIONS, lambda file: file.write(text.encode()))


def read_options(folder: Path) -> tuple[ServerOptions, ...]:
    """In the order of rounds; nothing where the folder is older than this file."""
    path = folder / OPTIONS
    if not path.exists():
        return ()
    try:
        fields = read_fields(path.read_text())
        check_kinds(fields, {"options": list[dict[str, Any]]})
        for one in fields["options"]:
            check_kinds(one, kinds_of(ServerOptions))
        return tuple(ServerOptions(**one) for one in fields["options"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{str(path)!r} is damaged. Remove it; the report then does not say what the server was told: {error}") from None
