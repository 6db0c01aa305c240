"""The search space in the notation of methods, and the plan of a search, as plain data.

In `q-fedavg(q=0.001..10:log, learning_rate=[0.1, 0.3])+parity(p=0.1..0.9)`, `LOW..HIGH` is a range,
`LOW..HIGH:log` a range on a logarithmic scale, and a list in brackets a choice. Settings that count
something, such as epochs, take whole numbers. A setting of the method has its own name; a setting
of another part has the name of the part before it: `parity.p`.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from evenly.algorithms import METHODS, settings_of
from evenly.datasets.load import HIDE_TEST, is_table, load
from evenly.experiment.plan import SCHEMA, Plan, read_fields, seeds_of
from evenly.metrics import EVERY_METRIC
from evenly.notation import Composition, Part, Value, parse, parse_list, parse_one, show, unknown
from evenly.parts.sampling import SAMPLINGS
from evenly.parts.work import PREPARES
from evenly.privacy import PRIVACIES
from evenly.privacy.claims import refuse_several
from evenly.records import require
from evenly.validation import check_kinds, kinds_of

# The search space.

FORM = "A range is written LOW..HIGH or LOW..HIGH:log, such as 0.001..10:log"
DIGITS = 3  # of a number that is tried: labels stay readable


class Range(NamedTuple):
    """All numbers from `low` to `high`."""

    low: float
    high: float
    log: bool
    whole: bool

    def near(self, value: float) -> float:
        """A proposed number, rounded to a few digits."""
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


class Choices(NamedTuple):
    """A list of values."""

    values: tuple[Value, ...]


class Space(NamedTuple):
    """A method with the settings that are searched."""

    composition: Composition
    dimensions: dict[str, Range | Choices]

    def method(self, values: Mapping[str, Value]) -> str:
        """The notation of the method with these values."""
        return show(
            tuple(
                Part(
                    part.name,
                    {
                        key: values.get(_name(at, part, key), value)
                        for key, value in part.settings.items()
                    },
                )
                for at, part in enumerate(self.composition)
            )
        )

    def corners(self) -> Iterator[dict[str, Value]]:
        """Combinations that together contain both ends of every range and every value of every
        list.
        """
        ends = [
            (s.low, s.high) if isinstance(s, Range) else s.values for s in self.dimensions.values()
        ]
        for at in range(max(map(len, ends))):
            yield {
                name: own[min(at, len(own) - 1)]
                for name, own in zip(self.dimensions, ends, strict=True)
            }

    def grid(self) -> list[dict[str, Value]]:
        """All combinations if every setting is a list, otherwise an empty list."""
        lists = [s.values for s in self.dimensions.values() if isinstance(s, Choices)]
        if len(lists) < len(self.dimensions):
            return []
        return [
            dict(zip(self.dimensions, chosen, strict=True)) for chosen in itertools.product(*lists)
        ]


def space_of(method: str, searches: Sequence[str] = ()) -> Space:
    """The search space of a notation, and of settings given separately, as `q=0.1..10` or
    `parity.p=0.1,0.5`.
    """
    wanted = parse_list(method)
    require(
        len(wanted) == 1,
        f"Exactly one method can be tuned at a time, got {len(wanted)} in {method!r}.",
    )
    composition = wanted[0]
    for text in searches:
        composition = _add_search(composition, text)
    dimensions = {
        _name(at, part, key): found
        for at, part in enumerate(composition)
        for key, value in part.settings.items()
        if (found := _search(at, part, key, value)) is not None
    }
    require(
        bool(dimensions),
        f"{show(composition)} has no setting to search. {FORM}; several values are a list, such as"
        " q=[0, 1, 5].",
    )
    return Space(composition, dimensions)


def _name(at: int, part: Part, key: str) -> str:
    return key if at == 0 else f"{part.name}.{key}"


def _add_search(composition: Composition, text: str) -> Composition:
    """A composition with one more search, or with another search of a setting that it has."""
    name, equals, value = (piece.strip() for piece in text.partition("="))
    require(
        bool(name and equals and value),
        f"--search is written NAME=VALUES, such as q=0.001..10:log or q=0,1,5, got {text!r}.",
    )
    where, dot, key = name.rpartition(".")
    names = [part.name for part in composition]
    if dot and where not in names[1:]:
        raise (
            unknown("part", where, names[1:])
            if names[1:]
            else ValueError(f"{names[0]} has no part {where!r}; write +{where} after it.")
        )
    at = names.index(where, 1) if dot else 0
    listed = f"[{value}]" if "," in value and not value.startswith("[") else value
    (read,) = parse(f"search(value={listed})")
    part = composition[at]
    return (
        *composition[:at],
        Part(part.name, {**part.settings, key: read.settings["value"]}),
        *composition[at + 1 :],
    )


def _search(at: int, part: Part, key: str, value: Value) -> Range | Choices | None:
    where = f"{part.name}: {key}"
    ranged = [
        v
        for v in (value if isinstance(value, list) else [value])
        if isinstance(v, str) and ".." in v
    ]
    if isinstance(value, list) and not _is_list_setting(at, part, key):
        require(not ranged, f"{where} must be a range or a list of values, got both in {value}.")
        require(bool(value), f"{where} must list at least one value.")
        return Choices(tuple(dict.fromkeys(value)))
    return _range(where, str(value), _default(at, part, key)) if ranged else None


def _is_list_setting(at: int, part: Part, key: str) -> bool:
    """Whether the value of a setting is a list itself, as multi-q's q."""
    method = METHODS.get(part.name) if at == 0 else None
    return bool(
        method
        and method.combine
        and key in method.settings
        and isinstance(method.settings[key].default, list)
    )


def _default(at: int, part: Part, key: str) -> Any:
    """The default of a setting, or 0.0 if it is unknown here; building the method then reports the
    mistake.
    """
    if at == 0:
        known = METHODS[part.name].settings if part.name in METHODS else {}
    else:
        kind = {**SAMPLINGS, **PREPARES, **PRIVACIES}.get(part.name)
        known = {s.name: s for s in settings_of(kind, "part")} if kind else {}
    if known and key not in known:
        raise ValueError(f"{part.name}: {unknown('setting', key, known)}")
    found = known.get(key)
    return 0.0 if found is None or found.swept else found.default


def _range(where: str, text: str, default: Any) -> Range:
    match = re.fullmatch(r"(?P<low>[^:]+?)\.\.(?P<high>[^:]+)(?P<kind>:log)?", text)
    try:
        low, high = (
            (float(match[end]) for end in ("low", "high")) if match else (math.nan, math.nan)
        )
    except ValueError:
        low = high = math.nan
    require(
        math.isfinite(low) and math.isfinite(high), f"{where} cannot be read. {FORM}, got {text!r}."
    )
    assert match is not None
    require(
        not isinstance(default, str | bool),
        f"{where} is not a number and cannot have a range. List its values, such as [{default}].",
    )
    require(low < high, f"{where} must go from the lower to the higher number, got {text}.")
    log, whole = bool(match["kind"]), isinstance(default, int)
    require(
        low > 0 or not log,
        f"{where} must start above 0 to be searched on a logarithmic scale, got {text}. Omit :log,"
        " or raise the lower end.",
    )
    require(
        not whole or (low.is_integer() and high.is_integer()),
        f"{where} must be whole numbers, got {text}.",
    )
    return Range(int(low), int(high), log, whole) if whole else Range(low, high, log, whole)


# The plan of a search. Its length is not part of it, so a search can be continued with more trials.

TRIALS, BATCH = 64, 16
MARGIN = 1.0  # points of average accuracy that q-FFL gives away for evenness
SAMPLERS = {"grid": "every combination", "tpe": "tree-structured Parzen estimators"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """What is searched, the objectives, and the plan that all trials share. The number of trials is
    not part of it.
    """

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
        require(
            len(set(self.objectives)) == len(self.objectives),
            f"Objectives must differ, got {', '.join(self.objectives)}.",
        )
        require(bool(self.objectives), "At least one objective is needed, got none.")
        require(
            self.within is None or self.within >= 0,
            f"within must be at least 0 points, got {self.within}.",
        )
        require(self.batch >= 1, f"batch must be at least 1 trial, got {self.batch}.")

    @property
    def name(self) -> str:
        return self.shared.name

    @property
    def space(self) -> Space:
        return space_of(self.method)

    def check(self) -> None:
        """Build the methods at the corners of the space, so that mistakes are reported before
        anything is written.
        """
        baseline = dataclasses.replace(self.shared, methods=(self.baseline,)).variants()
        require(
            len(baseline) == 1,
            f"The baseline must be one method without a sweep, got {self.baseline!r}.",
        )
        trials = [
            variant
            for values in (self.space.grid() if self.sampler == "grid" else self.space.corners())
            for variant in dataclasses.replace(
                self.shared, methods=(self.space.method(values),)
            ).variants()
        ]
        for variant in (*baseline, *trials):
            refuse_several(variant.members)

    def trials_together(self, methods: Sequence[str]) -> Plan:
        """The plan of a batch: without test rows, and evaluated after the last round only."""
        data = {**self.shared.data, HIDE_TEST: True}
        return dataclasses.replace(
            self.shared, methods=tuple(methods), data=data, evaluate_every=self.shared.rounds
        )

    def final(self, chosen: str, privacy: Mapping[str, Any] | None = None) -> Plan:
        """The plan of the chosen method and the baseline, with all rows, and with what they
        promise where they are private for clients. `privacy` is that promise, where it is known.
        """
        shared = self.shared
        plan = dataclasses.replace(shared, methods=tuple(dict.fromkeys((self.baseline, chosen))))
        if privacy is not None:
            return dataclasses.replace(plan, privacy=dict(privacy))
        if not any(one.members[0].privacy for one in plan.variants()):
            return plan
        federation = load(shared.data, shared.seeds[0], shared.objects.data)
        return plan.calibrated(federation.clients)

    def to_json(self) -> str:
        fields = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "shared"
        }
        return json.dumps(
            {"schema": SCHEMA, **fields, "shared": json.loads(self.shared.to_json())},
            indent=2,
            sort_keys=True,
        )

    @staticmethod
    def from_json(text: str) -> "TuningPlan":
        fields = read_fields(text)
        try:
            shared = Plan.from_json(json.dumps(fields.pop("shared")))
            check_kinds(fields, kinds_of(TuningPlan))
            return TuningPlan(
                **{**fields, "objectives": tuple(fields["objectives"])}, shared=shared
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"This is not a search of evenly: {error}.") from None

    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


def plan_tuning(
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
    seeds: int | Sequence[int] = 3,
    **shared: Any,
) -> tuple[TuningPlan, int]:
    """The plan of a search and its number of trials. `shared` holds further fields of `Plan`:
    model, sampling, training, dropout.
    """
    numbers = seeds_of(seeds)
    space = space_of(method, searches)
    sampler, number = length_of(space, trials)
    plan = TuningPlan(
        shared=Plan(name="tune", data=data, methods=(), rounds=rounds, seeds=numbers, **shared),
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
    """The `data` of a plan from the name of a data set with its settings. The source of a table is
    returned unchanged.
    """
    if isinstance(data, dict):
        return data
    if is_table(data):
        raise ValueError(
            f"A table such as {data!r} needs its columns: give"
            " data=evenly.datasets.load.table_source(...)."
        )
    part = parse_one(data, "data set")
    return {"name": part.name, **part.settings}


def baseline_of(space: Space) -> str:
    """The default baseline: the method with q = 0 if q is searched, otherwise FedAvg."""
    head, *rest = space.composition
    if "q" not in space.dimensions:
        return "fedavg"
    fixed = {key: value for key, value in head.settings.items() if key not in space.dimensions}
    parts = (
        Part(
            part.name,
            {k: v for k, v in part.settings.items() if f"{part.name}.{k}" not in space.dimensions},
        )
        for part in rest
    )
    return show((Part(head.name, {"q": 0, **fixed}), *parts))


def length_of(space: Space, trials: int | None) -> tuple[str, int]:
    """The sampler and the number of trials: a grid if it has no more combinations than trials were
    asked for.
    """
    require(trials is None or trials >= 1, f"trials must be at least 1, got {trials}.")
    combinations = len(space.grid())
    if combinations and combinations <= (TRIALS if trials is None else trials):
        return "grid", combinations
    return "tpe", TRIALS if trials is None else trials


def margin_of(objectives: Sequence[str], within: float | None) -> float | None:
    """The margin: `within` if given (infinite: none), one point for one objective, none for
    several.
    """
    if within is None:
        return MARGIN if len(objectives) == 1 else None
    return None if within == float("inf") else within


def _check_metric(name: str) -> None:
    if name not in EVERY_METRIC:
        raise unknown("metric", name, EVERY_METRIC)
    if EVERY_METRIC[name].better == 0:
        hint = f" Use {name}_abs." if f"{name}_abs" in EVERY_METRIC else ""
        raise ValueError(
            f"{name} cannot be an objective, because neither a higher nor a lower value is"
            f" better.{hint}"
        )
