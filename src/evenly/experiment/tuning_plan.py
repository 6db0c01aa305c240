"""Everything that determines a search but its length, as plain data: the same search with more trials goes on where it ended."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from evenly.datasets.load import HIDE_TEST, is_table
from evenly.experiment.plan import SCHEMA, Plan, plain
from evenly.experiment.tuning_space import Space, space_of
from evenly.metrics import EVERY_METRIC
from evenly.notation import Part, parse, parse_one, show, unknown
from evenly.records import require

TRIALS, BATCH = 64, 16
MARGIN = 1.0  # points of average accuracy that q-FFL gives away for evenness
SAMPLERS = {"grid": "every combination", "tpe": "tree-structured Parzen estimators"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """What is searched, what for, and what every trial shares."""

    shared: Plan  # its methods are filled in batch by batch
    method: str
    baseline: str
    objectives: tuple[str, ...]
    keep: str
    within: float | None  # None: no margin
    batch: int
    sampler: str

    def __post_init__(self) -> None:
        for name in (*self.objectives, self.keep):
            _check_metric(name)
        require(len(set(self.objectives)) == len(self.objectives), f"Objectives must differ, got {', '.join(self.objectives)}.")
        require(bool(self.objectives), "At least one objective is needed, got none.")
        require(self.within is None or self.within >= 0, f"within must be at least 0 points, got {self.within}.")
        require(self.batch >= 1, f"batch must be at least 1 trial, got {self.batch}.")

    @property
    def name(self) -> str:
        return self.shared.name

    @property
    def space(self) -> Space:
        return space_of(self.method)

    def check(self) -> None:
        """Build what will be trained at the ends of the space, so that mistakes are reported before anything is written."""
        baseline = dataclasses.replace(self.shared, methods=(self.baseline,)).variants()
        require(len(baseline) == 1, f"The baseline must be one method without a sweep, got {self.baseline!r}.")
        for values in self.space.grid() if self.sampler == "grid" else self.space.corners():
            dataclasses.replace(self.shared, methods=(self.space.method(values),)).variants()

    def trials_together(self, methods: Sequence[str]) -> Plan:
        """The plan of a batch: evaluated at the end only, and without test rows."""
        data = {**self.shared.data, HIDE_TEST: True}
        return dataclasses.replace(self.shared, methods=tuple(methods), data=data, evaluate_every=self.shared.rounds)

    def final(self, chosen: str) -> Plan:
        """The plan of the chosen method beside the baseline, on all rows."""
        return dataclasses.replace(self.shared, methods=tuple(dict.fromkeys((self.baseline, chosen))))

    def to_json(self) -> str:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "shared"}
        return json.dumps({"schema": SCHEMA, **fields, "shared": json.loads(self.shared.to_json())}, indent=2, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> "TuningPlan":
        fields = plain(text)
        try:
            shared = Plan.from_json(json.dumps(fields.pop("shared")))
            return TuningPlan(**{**fields, "objectives": tuple(fields["objectives"])}, shared=shared)
        except (TypeError, KeyError) as error:
            raise ValueError(f"This is not a search of evenly: {error}.") from None

    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


def planned(
    method: str,
    data: dict[str, Any],
    *,
    searches: Sequence[str] = (),
    objectives: Sequence[str] = ("variance",),
    keep: str = "average",
    within: float | None = None,
    baseline: str = "",
    trials: int | None = None,
    batch: int = BATCH,
    rounds: int = 2000,
    seeds: int = 3,
    **shared: Any,
) -> tuple[TuningPlan, int]:
    """The search and how many trials it takes. `shared` are further fields of a Plan: model, sampling, training, dropout."""
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}.")
    space = space_of(method, searches)
    sampler, number = length_of(space, trials)
    plan = TuningPlan(
        shared=Plan(name="tune", data=data, methods=(), rounds=rounds, seeds=tuple(range(seeds)), **shared),
        method=show(space.composition),
        baseline=show(parse(baseline)) if baseline else baseline_of(space),
        objectives=tuple(objectives),
        keep=keep,
        within=margin_of(objectives, within),
        batch=batch,
        sampler=sampler,
    )
    plan.check()
    return plan, number


def source_of(data: str | dict[str, Any]) -> dict[str, Any]:
    """A plan's `data` from the name of a data set, settings in brackets; a table of one's own comes as `sources.table_source` has it."""
    if isinstance(data, dict):
        return data
    if is_table(data):
        raise ValueError(f"A table such as {data!r} needs its columns: give data=evenly.datasets.load.table_source(...).")
    part = parse_one(data, "data set")
    return {"name": part.name, **part.settings}


def baseline_of(space: Space) -> str:
    """What a method is compared with, unless the user says: itself with q = 0 where it has a q to search, else plain FedAvg."""
    head, *rest = space.composition
    if "q" not in space.searched:
        return "fedavg"
    fixed = {key: value for key, value in head.settings.items() if key not in space.searched}
    parts = (Part(part.name, {k: v for k, v in part.settings.items() if f"{part.name}.{k}" not in space.searched}) for part in rest)
    return show((Part(head.name, {"q": 0, **fixed}), *parts))


def length_of(space: Space, trials: int | None) -> tuple[str, int]:
    """How a space is searched, and in how many trials: all combinations where that is no more than was asked for."""
    require(trials is None or trials >= 1, f"trials must be at least 1, got {trials}.")
    combinations = len(space.grid())
    if combinations and combinations <= (TRIALS if trials is None else trials):
        return "grid", combinations
    return "tpe", TRIALS if trials is None else trials


def margin_of(objectives: Sequence[str], within: float | None) -> float | None:
    """The margin: as given (infinite: none), else one point for a single objective, and none where a front is wanted."""
    if within is None:
        return MARGIN if len(objectives) == 1 else None
    return None if within == float("inf") else within


def _check_metric(name: str) -> None:
    if name not in EVERY_METRIC:
        raise unknown("metric", name, EVERY_METRIC)
    if EVERY_METRIC[name].better == 0:
        hint = f" Use {name}_abs." if f"{name}_abs" in EVERY_METRIC else ""
        raise ValueError(f"An objective needs a better side, but of {name} neither more nor less is better.{hint}")
