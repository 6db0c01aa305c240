"""Plans: everything that determines an experiment, as plain data, and the programs in which its
runs are trained.

A plan is stored in `plan.json`, so that a machine with only the core packages can execute it. Its
fingerprint identifies the settings of a folder of results: results are never mixed with those of
other settings.
"""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

from evenly.algorithms import Variant, build_part, variants
from evenly.data.columns import Fact
from evenly.data.federation import Census, Federation
from evenly.experiment.python_objects import NO_OBJECTS, PlanObjects, import_objects, variant_of
from evenly.models.named_models import parse_model
from evenly.notation import parse_list, parse_one, unknown
from evenly.parts.sampling import SAMPLINGS, Weighted
from evenly.plugins import Record
from evenly.privacy.claims import CLIENT, facts, with_facts
from evenly.privacy.request import refuse_both
from evenly.privacy.row_account import ROW, row_facts, with_row_facts
from evenly.simulate import companions
from evenly.types import Algorithm, Select, Task
from evenly.validation import check_kinds, fits, kinds_of, plain_json, shortened
from evenly.writing import write_whole

# Plans.

SCHEMA = 1
MOST_SEEDS, MOST_ROUNDS, LARGEST_SEED = 10_000, 10**9, 2**63 - 1


def write_fields(path: Path, fields: Mapping[str, Any], schema: int = SCHEMA) -> Path:
    """Write a JSON file with a schema number, atomically. `read_fields` reads it."""
    text = json.dumps({"schema": schema, **fields}, indent=1)
    return write_whole(path, lambda file: file.write(text.encode()))


class NewerError(ValueError):
    """A file was written by a later version of evenly and is not changed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Data, methods, rounds, seeds and all other settings of an experiment."""

    name: str
    # "name" and the data set's settings; "path" or "frame" and the columns of a table; "federation"
    data: dict[str, Any]
    methods: tuple[str, ...]
    rounds: int
    seeds: tuple[int, ...]
    model: str = ""  # "": logistic for two classes, softmax for more
    sampling: str = "weighted(clients=10)"
    # settings for all methods that have them
    training: dict[str, Any] = dataclasses.field(default_factory=dict)
    evaluate_every: int = 0  # 0: about fifty times
    dropout: float = 0.0
    # files that register methods, metrics and data sets, with their hashes
    plugins: tuple[Record, ...] = ()
    # what is stored of the model and the algorithms that were passed from Python, and the objects
    own: dict[str, Any] = dataclasses.field(default_factory=dict)
    # what methods with differential privacy promise, and their noise, by label
    privacy: dict[str, Any] = dataclasses.field(default_factory=dict)
    objects: PlanObjects = dataclasses.field(default=NO_OBJECTS, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_kinds(vars(self), kinds_of(Plan))
        if self.rounds < 1:
            raise ValueError(f"rounds must be at least 1, got {shortened(self.rounds)}.")
        if self.rounds > MOST_ROUNDS:
            raise ValueError(
                f"rounds must be at most {MOST_ROUNDS:,}, got {shortened(self.rounds)}."
            )
        if not self.seeds:
            raise ValueError("At least one seed is needed, got none.")
        check_seeds(len(self.seeds))
        if (
            len(set(self.seeds)) < len(self.seeds)
            or min(self.seeds) < 0
            or max(self.seeds) > LARGEST_SEED
        ):
            raise ValueError(
                f"Seeds must be different whole numbers from 0 to {LARGEST_SEED}, got"
                f" {shortened(list(self.seeds))}."
            )
        if self.evaluate_every < 0:
            raise ValueError(
                f"evaluate_every must be at least 0 rounds, got {shortened(self.evaluate_every)}."
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}.")
        if self.model:
            parse_model(self.model)

    def with_objects(self) -> "Plan":
        """The plan with all of its objects, those that are missing imported.

        Raises:
            ValueError: If an object cannot be imported.
        """
        return dataclasses.replace(self, objects=import_objects(self.data, self.own, self.objects))

    @property
    def in_memory(self) -> bool:
        """Whether the data are a table or a federation that was passed from Python."""
        return "frame" in self.data or "federation" in self.data

    @property
    def has_files(self) -> bool:
        """Whether the plan names the user's files: a table or plugins."""
        return "path" in self.data or bool(self.plugins)

    @property
    def method_names(self) -> list[str]:
        """Names of the registered methods that the comparison needs."""
        own = self.own.get("methods", {})
        written = (part for text in self.methods if text not in own for part in parse_list(text))
        return [head.name for head, *_ in written]

    def variants(self) -> list[Variant]:
        """All rows of the comparison, with sweeps expanded.

        Raises:
            ValueError: If there is no method, or if two rows are the same.
        """
        return list(self._variants)

    @cached_property  # a study asks for its hundreds of rows again and again
    def _variants(self) -> list[Variant]:
        select, own = self._select(), self.own.get("methods", {})
        found = [
            v
            for text in self.methods
            for v in (
                [variant_of(text, self.objects.methods.get(text), own[text])]
                if text in own
                else [v for part in parse_list(text) for v in variants(part, self.training, select)]
            )
        ]
        for variant in found:
            refuse_both(variant.members[0])
        if not found:
            raise ValueError("At least one method is needed, got none. `evenly list` shows them.")
        twice = next(
            (label for label, times in Counter(v.label for v in found).items() if times > 1), None
        )
        if twice is not None:
            raise ValueError(
                f"Method {shortened(twice)} is listed twice. Every method of a comparison must be"
                " different."
            )
        return [self._with_noise(variant) for variant in found]

    def _with_noise(self, variant: Variant) -> Variant:
        known = self.privacy.get(variant.label)
        if known is None:
            return variant
        resolve = with_row_facts if known["unit"] == ROW else with_facts
        members = tuple(resolve(member, known) for member in variant.members)
        return variant._replace(members=members)

    def calibrated(self, clients: int) -> "Plan":
        """The plan with the noise of its private methods, so that a machine without dp-accounting
        can train it.

        Raises:
            ValueError: If a method cannot be private.
        """
        private = {
            variant.label: self.privacy.get(variant.label) or self._promise(variant, clients)
            for variant in self.variants()
            if variant.members[0].privacy
        }
        return dataclasses.replace(self, privacy={**self.privacy, **private}) if private else self

    def _promise(self, variant: Variant, clients: int) -> dict[str, Any]:
        if variant.members[0].privacy.unit == CLIENT:
            return facts(variant.members, clients, self.rounds)
        return row_facts(variant.members, self.rounds)

    def _select(self) -> Select:
        part = parse_one(self.sampling, "sampling")
        if part.name not in SAMPLINGS:
            raise unknown("sampling", part.name, SAMPLINGS)
        return build_part(SAMPLINGS[part.name], part)

    @property
    def evaluations(self) -> int:
        """Number of rounds between two evaluations."""
        return self.evaluate_every or max(1, self.rounds // 50)

    def to_json(self) -> str:
        """The plan as it is stored. Shared settings keep their order, which is that of `params` in
        results.csv.
        """
        fields = json.loads(self.canonical_json())
        fields["training"] = {name: fields["training"][name] for name in self.training}
        return json.dumps(fields, indent=2)

    def canonical_json(self) -> str:
        """The plan with all keys in alphabetical order, for its fingerprint."""
        # Fields that later versions added are stored only if they are used, so that results of
        # earlier plans are still found.
        fields = {
            name: value
            for name, value in ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
            if name != "objects" and (value or name not in ("plugins", "own", "privacy"))
        }
        return json.dumps({"schema": SCHEMA, **fields}, indent=2, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> "Plan":
        fields = read_fields(text)
        try:
            check_kinds(fields, kinds_of(Plan))
            plugins = tuple(
                {"path": str(one["path"]), "sha256": str(one["sha256"])}
                for one in fields.get("plugins", ())
            )
            return Plan(
                **{
                    **fields,
                    "methods": tuple(fields["methods"]),
                    "seeds": tuple(fields["seeds"]),
                    "plugins": plugins,
                }
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"This is not a plan of evenly: {shortened(str(error))}.") from None

    def fingerprint(self) -> str:
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]


def seeds_of(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds 0 to `seeds` - 1, or those that are listed.

    Raises:
        TypeError: If it is neither a whole number nor a list of whole numbers.
        ValueError: If there is no seed, or are too many.
    """
    try:
        if isinstance(seeds, Iterable):
            return tuple(map(index, seeds))
        seeds = index(seeds)
    except TypeError:
        raise TypeError(
            "seeds must be a whole number or a list of whole numbers, such as 5 or [0, 1, 2], got"
            f" {shortened(seeds)}."
        ) from None
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}.")
    check_seeds(seeds)
    return tuple(range(seeds))


def check_seeds(count: int) -> None:
    """Raise ValueError if there are more than `MOST_SEEDS` seeds. The check needs no list
    of them.
    """
    if count > MOST_SEEDS:
        raise ValueError(
            f"The number of seeds must be at most {MOST_SEEDS:,}, got {shortened(count)}. Five to"
            " thirty are usual."
        )


def read_fields(text: str, newest: int = SCHEMA) -> dict[str, Any]:
    """The fields of a JSON file of evenly, without its schema number.

    Raises:
        NewerError: If its schema number is higher than `newest`.
        ValueError: If it is not a JSON object with a schema number.
    """
    fields = plain_json(text)
    if not isinstance(fields, dict) or not fits(schema := fields.pop("schema", None), int):
        raise ValueError("A JSON object with a schema number is needed.")
    if schema > newest:
        there = shortened(schema)
        raise NewerError(
            f"was written by a newer version of evenly (format {there}; this version reads up to"
            f" {newest}). Upgrade evenly"
        )
    return fields


# Programs. A folder stores the grouping with which its training started. Other machines may group
# differently: a GPU joins samplings that a CPU separates. Without the stored grouping, they could
# not find finished programs.

GROUPING_FILE = "programs.json"


class Program(NamedTuple):
    """Members that are trained together for one seed. Their traces are stored in one file."""

    seed: int
    members: tuple[int, ...]  # places in the plan's list of members
    keys: tuple[str, ...]  # a name for each in the store


def members_of(plan: Plan) -> list[Algorithm]:
    """All algorithms that are trained for each seed. Most methods have one member, some have
    several.
    """
    return [member for variant in plan.variants() for member in variant.members]


def programs(plan: Plan, task: Task, folder: Path | None = None) -> Iterator[Program]:
    """The programs of a plan, seed by seed, in the order of training.

    A folder that holds a grouping keeps it. Otherwise members are grouped for the device of this
    machine.
    """
    members = members_of(plan)
    groups = _read_grouping(folder, len(members)) or companions(members, task)
    for seed in plan.seeds:
        for group in groups:
            yield Program(
                seed, tuple(group), tuple(f"{members[i].label}#{i}#{seed}" for i in group)
            )


def write_grouping(every: Sequence[Program], folder: Path) -> None:
    """Store which members form a program, before any of them is trained."""
    path = folder / GROUPING_FILE
    if not path.exists():
        groups = dict.fromkeys(program.members for program in every)
        write_whole(path, lambda file: file.write(json.dumps(list(groups)).encode()))


def _read_grouping(folder: Path | None, members: int) -> list[list[int]] | None:
    path = folder / GROUPING_FILE if folder else None
    if path is None or not path.exists():
        return None
    try:
        groups = plain_json(path.read_text())
        if fits(groups, list[list[int]]) and sorted(i for group in groups for i in group) == list(
            range(members)
        ):
            return groups
    except ValueError:
        pass
    raise ValueError(
        f"{str(path)!r} is damaged. Remove it; the programs are then grouped anew for this machine."
    )


# Whether the sizes of clients count.
#
# Sampling by size lets larger clients count more by drawing them more often, and weighs those that
# are drawn equally. Where all clients are drawn in every round, sizes do not count at all. The
# terminal says so before training, and the report says so among its settings.

MOST_NAMED = 3


def sampling_facts(plan: Plan, federation: Federation) -> list[Fact]:
    """A line that says that sizes do not count, if all clients are sampled by size in every round;
    empty if they count, are all equal, or if equal weights were asked for.
    """
    census = federation.census()
    clients = len(census.examples)
    every = plan.variants()
    drawn = [v for v in every if _all_drawn(v, census) and "weights=" not in v.label]
    if not drawn or len(set(census.examples.tolist())) < 2:
        return []
    full = {v.label: v for v in dataclasses.replace(plan, sampling="full").variants()}
    weighed = [v.label for v in drawn if full[v.label].members[0].rule.counts_sizes]
    words = f"All {clients} clients take part in every round, and larger ones do not count more."
    if not weighed:
        fewer = f"--sampling 'weighted(clients={clients // 2})'"
        return [
            Fact("sampling", f"{words} To let size count, sample fewer, as with {fewer}.", True)
        ]
    under = "" if len(weighed) == len(every) else f" under {_listed(weighed)}"
    return [
        Fact(
            "sampling",
            f"{words} Add --sampling full (in a file: sampling = 'full') to weigh them by"
            f" size{under}.",
            True,
        )
    ]


def _all_drawn(variant: Variant, census: Census) -> bool:
    select = variant.members[0].select
    return (
        isinstance(select, Weighted)
        and not select.replace
        and select.slots(census) == len(census.examples)
    )


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= MOST_NAMED else f"{len(labels)} of the methods"
