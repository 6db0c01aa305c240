"""The files of a deployment: a federation of real clients, whose folder is read like a
simulation's.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from evenly.archives import Archive, DamagedError, read_archive, write_archive
from evenly.data.sensitive import attributes_from
from evenly.data.splits import SPLITS
from evenly.experiment.plan import SCHEMA, read_fields, write_fields
from evenly.validation import check_kinds, kinds_of, shortened

# The files of a deployment:
#
#     plan.json        settings: method, seeds, the model's arrays
#     federation.json  clients, and the names of labels and groups
#     history/         one file per round: cohort, coefficients, evaluations
#     options.json     the server's other options
#     releases.json    with privacy for clients: what is promised, and how much was released
#     left_out.json    excluded replies with round and reason, and claims above a cap
#
# Files are written atomically. Nothing here needs Flower, so reports can be written on any machine.

HISTORY, FEDERATION, LEFT_OUT = "history", "federation.json", "left_out.json"
RELEASES = "releases.json"
CLIP = "clip"  # what a round reports with privacy for clients: the longest update that counted
RELEASES_KINDS = {"format": int, "clients": int, "used": int, "promise": dict[str, Any]}
UNKNOWN = -1


class Exclusion(NamedTuple):
    """A client whose reply did not count or did not arrive."""

    node: int
    client: int  # UNKNOWN: it never said who it is
    round: int
    reason: str  # what it did, without saying who: "sent NaN ..."
    kind: str = "reply"  # a word for the reason: see evenly.flower.replies
    phase: str = "train"  # or "evaluate", "measure", "census"


class Flag(NamedTuple):
    """A client that claimed more than a cap allows. With client UNKNOWN, there are too few clients
    for the cap.
    """

    client: int
    what: str  # "loss", "examples", "coefficient", "norm"
    said: float
    counted: float  # what it was cut to


class RoundFlag(NamedTuple):
    """A flag and its round. Round 0 is before the first."""

    round: int
    flag: Flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment:
    """The settings of a deployment. Another server can continue a folder only with the same
    settings.
    """

    name: str
    method: str  # the label, as a method is written down
    algorithm: str  # the name of the method
    settings: dict[str, Any]
    seeds: dict[str, int]
    arrays: list[list[Any]]  # of the model: [name, shape, type]
    sampling: str = ""
    caps: dict[str, Any] = dataclasses.field(default_factory=dict)
    needs: tuple[str, ...] = ()  # what clients reveal
    # the method with every setting that matters, also of one that was given as an object
    notation: str = ""
    identity: str = ""  # drawn once: clients keep models of their own under it

    def to_json(self) -> str:
        return json.dumps(
            {"schema": SCHEMA, "deployment": dataclasses.asdict(self)}, indent=2, sort_keys=True
        )

    @staticmethod
    def from_json(text: str) -> "Deployment":
        fields = read_fields(text)
        try:
            check_kinds(fields, {"deployment": dict[str, Any]})
            check_kinds(fields["deployment"], kinds_of(Deployment))
            return Deployment(
                **{**fields["deployment"], "needs": tuple(fields["deployment"].get("needs", ()))}
            )
        except (TypeError, KeyError) as error:
            raise ValueError(
                f"This is not the plan of a deployment: {shortened(str(error))}."
            ) from None

    def fingerprint(self) -> str:
        settings = dataclasses.replace(self, name="", identity="")
        return hashlib.sha256(settings.to_json().encode()).hexdigest()[:16]


class DeploymentFacts(NamedTuple):
    """The clients of a deployment, and the names of labels and groups as far as clients
    sent them.
    """

    names: tuple[str, ...]
    nodes: tuple[int, ...] = ()  # Flower's numbers for them, in this session
    examples: tuple[int, ...] = ()  # training rows that they said before the first round
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    unprivileged: tuple[int, ...] = (0,)
    favourable: int = 1
    client_group: tuple[int, ...] = ()
    attributes: tuple[dict[str, Any], ...] = ()  # the fields of each sensitive attribute
    assumed: tuple[str, ...] = ()  # what nobody named: "favourable", or attributes


class Evaluation(NamedTuple):
    """The evaluations that clients sent. Clients that did not answer are not included."""

    clients: np.ndarray  # int32 [n]
    examples: np.ndarray  # int64 [n, splits]
    # int64 [n, splits] rows predicted right; UNKNOWN where a table says it, or nobody does
    correct: np.ndarray
    losses: np.ndarray  # float32 [n, splits]; NaN: not told
    # int32 [n, splits, groups, labels, outcomes]; of no labels where nobody sent one
    tables: np.ndarray
    choice: np.ndarray  # int32 [n] which of several models each is served; UNKNOWN: there is one


class Round(NamedTuple):
    """The record of one round. Round 0 is before training."""

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
    """Write the record of a round, and replace an existing one."""
    header = {name: getattr(done, name) for name in ("number", "seconds", "upload", "download")} | {
        "reports": dict(done.reports)
    }
    arrays = {name: getattr(done, name) for name in ("cohort", "weights", "examples")}
    arrays |= (
        {f"evaluation.{name}": array for name, array in done.evaluation._asdict().items()}
        if done.evaluation
        else {}
    )
    return write_archive(folder / HISTORY / f"{done.number:06d}.npz", arrays, header, compress=True)


def read_rounds(folder: Path, until: int | None = None) -> list[Round]:
    """The records of all rounds in order, or of those up to `until`."""
    paths = sorted((folder / HISTORY).glob("[0-9]*.npz"))
    return [
        done
        for path in paths
        if (done := _read_round(path)) and (until is None or done.number <= until)
    ]


def forget_rounds(folder: Path, after: int) -> None:
    """Remove the records of later rounds, which will be repeated."""
    for path in (folder / HISTORY).glob("[0-9]*.npz"):
        if path.stem.isdigit() and int(path.stem) > after:
            path.unlink()


def _read_round(path: Path) -> Round:
    try:
        return read_archive(path, _round)
    except DamagedError:
        raise ValueError(
            f"{str(path)!r} is damaged. Remove it; the report then covers the other rounds."
        ) from None


def _round(archive: Archive) -> Round:
    header, file = archive
    check_kinds(header, kinds_of(Round))
    arrays: dict[str, Any] = {name: file[name] for name in ("cohort", "weights", "examples")}
    evaluation = {
        name: file[f"evaluation.{name}"]
        for name in Evaluation._fields
        if f"evaluation.{name}" in file
    }
    return Round(**header, **arrays, evaluation=Evaluation(**evaluation) if evaluation else None)


def write_facts(folder: Path, about: DeploymentFacts) -> Path:
    """Write federation.json."""
    return write_fields(folder / FEDERATION, about._asdict())


def read_releases(folder: Path) -> dict[str, Any] | None:
    """Read releases.json; None where there is none."""
    path = folder / RELEASES
    if not path.exists():
        return None
    try:
        known = json.loads(path.read_text())
        check_kinds(known, RELEASES_KINDS, complete=True)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged ({error}), so that nobody knows what was released. Restore"
            " it from a backup. Without one, this deployment must not continue."
        ) from None
    return known


def read_facts(folder: Path) -> DeploymentFacts:
    """Read federation.json."""
    path = folder / FEDERATION
    try:
        fields: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v
            for k, v in read_fields(path.read_text()).items()
        }
        check_kinds(fields, kinds_of(DeploymentFacts))
        attributes_from(fields.get("attributes", ()))
        return DeploymentFacts(**fields)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} is missing or damaged, so the clients are unknown: {error}"
        ) from None


def write_exclusions(
    folder: Path, left_out: Iterable[Exclusion], flagged: Iterable[RoundFlag]
) -> Path:
    """Write left_out.json."""
    flags = [{"round": one.round, **one.flag._asdict()} for one in flagged]
    return write_fields(
        folder / LEFT_OUT, {"left_out": [one._asdict() for one in left_out], "flagged": flags}
    )


def read_exclusions(
    folder: Path, until: int | None = None
) -> tuple[list[Exclusion], list[RoundFlag]]:
    """Exclusions and flags up to a round; empty lists if the file does not exist."""
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
        flagged = [
            RoundFlag(one["round"], Flag(*(one[name] for name in Flag._fields)))
            for one in fields["flagged"]
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged. Remove it; the report then does not list excluded clients:"
            f" {error}"
        ) from None
    kept = [one for one in left if until is None or one.round <= until]
    return kept, [one for one in flagged if until is None or one.round <= until]


def gather_evaluation(clients: Sequence[int], found: Sequence[dict[str, Any]]) -> Evaluation:
    """One evaluation from the replies of clients: by split `examples`, `loss`, `correct` and
    `table`, and `choice`.
    """
    shape = next(
        (
            each[s]["table"].shape
            for each in found
            for s in SPLITS
            if each.get(s, {}).get("table") is not None
        ),
        (0, 0, 0),
    )
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


# options.json: the server's options besides the method, for audits. They may change when a server
# continues a deployment; earlier options are kept.

OPTIONS = "options.json"


class ServerOptions(NamedTuple):
    """Options of the server and the first round in which they apply."""

    since: int  # a round
    fraction_train: float | None = None  # None: clients are drawn by the sampling of the method
    fraction_evaluate: float = 1.0
    min_train_nodes: int = 2
    min_evaluate_nodes: int = 2
    min_available_nodes: int = 2
    two_phase: bool = False
    # in two phases: whether a function of the user's made the sum, of masked updates say
    given_sum: bool = False


def update_options(
    before: Sequence[ServerOptions], now: ServerOptions
) -> tuple[ServerOptions, ...]:
    """The history of options with those that apply from a round on. Later entries, which never
    applied, are dropped.

    >>> before = ServerOptions(since=1), ServerOptions(since=5, min_train_nodes=3)
    >>> [one.since for one in update_options(before, ServerOptions(since=4, two_phase=True))]
    [1, 4]
    >>> # Unchanged options add no entry.
    >>> [one.since for one in update_options(before, ServerOptions(since=4))]
    [1]
    """
    kept = tuple(one for one in before if one.since < now.since)
    return kept if kept and kept[-1]._replace(since=now.since) == now else (*kept, now)


def write_options(folder: Path, options: Sequence[ServerOptions]) -> Path:
    """Write options.json."""
    return write_fields(folder / OPTIONS, {"options": [one._asdict() for one in options]})


def read_options(folder: Path) -> tuple[ServerOptions, ...]:
    """The options in the order of rounds; empty if the folder has no options.json."""
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
        raise ValueError(
            f"{str(path)!r} is damaged. Remove it; the report then does not list the server's"
            f" options: {error}"
        ) from None
