"""`Method`: an entry of the registry of methods, with its parts, its settings and its reference."""

import dataclasses
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple, cast

from evenly.notation import unknown
from evenly.parts.optimisers import AveragingServer
from evenly.parts.ranking import Frozen
from evenly.parts.sampling import Weighted
from evenly.parts.work import LocalTraining, NashBargaining
from evenly.records import is_number, replace, require
from evenly.types import Algorithm, Own, Prepare, Rule, Select, Server, Signals, Trace, Work
from evenly.validation import check_size, fits, kind_words, kinds_of, shortened


class Setting(NamedTuple):
    """A hyper-parameter of a method, derived from a field of one of its parts."""

    name: str
    default: Any
    doc: str
    part: str  # "rule", "work", "shape", "network" or "select"
    swept: bool  # whether another value needs no compilation
    kind: Any = Any  # annotation of the field


def settings_of(part: type, kind: str) -> list[Setting]:
    """Settings of a part: its fields that have a `doc`."""
    kinds = kinds_of(part)
    return [
        Setting(
            f.name, f.default, f.metadata["doc"], kind, not f.metadata.get("static"), kinds[f.name]
        )
        for f in dataclasses.fields(part)  # pyright: ignore[reportArgumentType]
        if f.metadata.get("doc")
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A method with a name: how its algorithm is assembled from settings.

    Args:
        name: Name in the notation.
        title: Name in texts and charts.
        reference: Publication, in one line.
        formula: The method in one line.
        rule: Kind of rule.
        work: Kind of local training, or several kinds, of which `work_of` chooses one.
        work_of: Kind of local training for given settings.
        shape: Transformation of the batch loss, for local training.
        network: Transformation of the task before training.
        server_of: The method's own server for given settings, if it has one.
        fixed_server: Whether the notation may not add a server optimiser although the method has no
            server of its own.
        averaged: Whether clients use the mean of the iterates, for given settings.
        select: Sampling if the notation names none.
        defaults: Defaults of settings that differ from those of the parts.
        resolve: Completes settings that follow from other settings or from the sampling.
        combine: Combines the traces of several runs into one.
        example: Notation that works for any data. By default the name.
        bibtex: The publication in BibTeX, or several publications. `evenly cite` prints it.

    Example:
        >>> import evenly
        >>> from evenly.types import Rule, Weighed, record
        >>> @record
        ... class ByLoss(Rule):
        ...     needs = frozenset({"loss"})
        ...     def weigh(self, public, own, sums):
        ...         return Weighed(own.loss)
        >>> method = evenly.Method(
        ...     name="by-loss", title="By loss", reference="", formula="F", rule=ByLoss
        ... )
        >>> method.build({"epochs": 2}).work.epochs
        2
    """

    name: str
    title: str
    reference: str
    formula: str
    rule: type[Rule]
    work: type[Work] | tuple[type[Work], ...] = LocalTraining
    work_of: Callable[[dict[str, Any]], type[Work]] | None = None
    shape: type[NashBargaining] | None = None
    network: type[Frozen] | None = None
    server_of: Callable[[dict[str, Any]], Server | None] = lambda settings: None
    fixed_server: bool = False
    averaged: Callable[[dict[str, Any]], bool] = lambda settings: False
    select: Select = Weighted()
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    resolve: Callable[[dict[str, Any], Select], dict[str, Any]] = lambda settings, select: settings
    combine: Callable[[Sequence[Trace]], Trace] | None = None
    example: str = ""
    bibtex: str = ""

    def __post_init__(self) -> None:
        if not dataclasses.is_dataclass(self.rule):
            raise TypeError(
                f"{self.name}: the rule must be a class decorated with evenly.types.record, got"
                f" {getattr(self.rule, '__name__', self.rule)}."
            )

    @property
    def settings(self) -> dict[str, Setting]:
        """Settings by name, from the fields of all parts."""
        kinds = self.work if isinstance(self.work, tuple) else (self.work,)
        settings = settings_of(self.rule, "rule")
        # a name in several kinds: the first kind counts
        settings += [s for kind in reversed(kinds) for s in settings_of(kind, "work")]
        settings += settings_of(self.shape, "shape") if self.shape else []
        settings += settings_of(self.network, "network") if self.network else []
        return {s.name: s._replace(default=self.defaults.get(s.name, s.default)) for s in settings}

    def build_first(self, select: Select | None = None) -> Algorithm:
        """The algorithm with the defaults. Of a default that is a sweep, the first value counts."""
        first = {name: own[0] for name, own in self.defaults.items() if isinstance(own, list)}
        return self.build(first, select=select)

    def build(
        self, given: dict[str, Any], *, common: dict[str, Any] | None = None,
        select: Select | None = None, server: Server | None = None, prepare: Prepare | None = None,
        label: str = "",
    ) -> Algorithm:  # fmt: skip
        """Assemble the algorithm: settings are those in `given`, else in `common`, else the
        defaults.
        """
        select = self.select if select is None else select
        settings = self.settings
        for name, value in {**(common or {}), **given}.items():
            if name not in settings:
                raise ValueError(f"{self.name}: {self._not_a_setting(name)}")
            _check_setting(self.name, settings[name], value)
        try:
            defaults = {name: s.default for name, s in settings.items()}
            chosen = self.resolve({**defaults, **(common or {}), **given}, select)
            rule = self.rule(**{n: chosen[n] for n in chosen if settings[n].part == "rule"})
            work = self._work(chosen, set(given))
            network = self.network and self.network(
                **{n: chosen[n] for n in chosen if settings[n].part == "network"}
            )
            own_server = self.server_of(chosen)
            free = own_server is None and not self.fixed_server
            require(
                free or server is None,
                "the method has a server step of its own; leave the server's optimiser out.",
            )
            server = server if own_server is None else own_server
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        _check_needs(self.name, rule.needs)
        server = AveragingServer(inner=server) if self.averaged(chosen) else server
        return Algorithm(
            work=work,
            rule=rule,
            select=select,
            server=server,
            prepare=prepare,
            network=network,
            label=label or self.name,
        )

    def _not_a_setting(self, name: str) -> str:
        if name not in {field.name for field in dataclasses.fields(cast(Any, self.rule))}:
            optimiser = name in ("optimiser", "optimizer", "momentum")
            hint = f" Optimisers are parts: {self.name}+local-momentum or {self.name}+server-adam."
            return str(unknown("setting", name, self.settings)) + hint * optimiser
        return (
            f"{name} is a field of {self.rule.__name__} but not a setting. Declare it with"
            f" {name}: float = leaf(default=..., doc=...)."
        )

    def _work(self, chosen: dict[str, Any], given: set[str]) -> Work:
        kind = self.work_of(chosen) if self.work_of else self.work
        assert isinstance(kind, type)  # several kinds of work come with work_of
        names = {s.name for s in settings_of(kind, "work")}
        for name in sorted(given - names):
            if self.settings[name].part == "work":
                raise ValueError(f"{name} has no effect with these settings; leave it out.")
        work = kind(**{n: chosen[n] for n in names})
        if self.shape is None:
            return work
        return replace(
            work,
            shape=self.shape(**{s.name: chosen[s.name] for s in settings_of(self.shape, "shape")}),
        )


def _check_needs(name: str, needs: Any) -> None:
    if not isinstance(needs, Set):
        raise TypeError(
            f"{name}: needs must be a set of names, such as frozenset({{'loss'}}), got {needs!r}."
        )
    if other := sorted(needs - set(Signals._fields)):
        known = ", ".join(name for name in Own._fields if name != "memory")
        raise ValueError(f"{name}: needs may name {known}; got {', '.join(other)}.")


def _check_setting(method: str, setting: Setting, value: Any) -> None:
    """Refuse values of a wrong kind, such as text for a number. Arrays may take the place of swept
    numbers.

    A fraction in place of a whole number is refused by the part itself, whose message also states
    the smallest legal value.
    """
    try:
        check_size(setting.name, value, setting.kind)
    except ValueError as error:
        raise ValueError(f"{method}: {error}") from None
    if setting.swept:
        if not (is_number(value) or value is None or hasattr(value, "dtype")):
            search = ".." in value if isinstance(value, str) else False
            raise ValueError(
                f"{method}: {setting.name} must be a number, got {shortened(value)}."
                + " Ranges are for `evenly tune`; a sweep is a list, such as [0, 1, 5]." * search
            )
    elif value != setting.default and not fits(
        value, float if setting.kind is int else setting.kind
    ):
        raise ValueError(
            f"{method}: {setting.name} must be {kind_words(setting.kind)}, got {shortened(value)}."
        )
