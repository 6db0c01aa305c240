"""What the registry holds of a method: its parts, its settings and its story."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from evenly.notation import unknown
from evenly.outside import fits, kind_words, kinds_of, shortened
from evenly.parts.optimisers import AveragingServer
from evenly.parts.ranking import Frozen
from evenly.parts.sampling import Weighted
from evenly.parts.work import LocalTraining, NashBargaining
from evenly.records import is_number, replace, require
from evenly.types import Algorithm, Prepare, Rule, Select, Server, Trace, Work


class Setting(NamedTuple):
    """A hyper-parameter: a TOML key, a command-line option and a row of the docs, all from one field."""

    name: str
    default: Any
    doc: str
    part: str  # "rule", "work", "shape", "network" or "select"
    swept: bool  # whether a new value needs no compilation
    kind: Any = Any  # what its value must be, as an annotation says it


def settings_of(part: type, kind: str) -> list[Setting]:
    """The documented fields of a part."""
    kinds = kinds_of(part)
    return [
        Setting(f.name, f.default, f.metadata["doc"], kind, not f.metadata.get("static"), kinds[f.name])
        for f in dataclasses.fields(part)  # pyright: ignore[reportArgumentType]
        if f.metadata.get("doc")
    ]


def never(settings: dict[str, Any]) -> bool:
    return False


def no_server(settings: dict[str, Any]) -> Server | None:
    return None


def resolved_nothing(settings: dict[str, Any], select: Select) -> dict[str, Any]:
    return settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A named method. `resolve` fills in settings that follow from others; `combine` makes one result of several runs."""

    name: str
    title: str
    reference: str
    formula: str
    rule: type[Rule]
    work: type[Work] | tuple[type[Work], ...] = LocalTraining
    work_of: Callable[[dict[str, Any]], type[Work]] | None = None  # which of several kinds of work the settings ask for
    shape: type[NashBargaining] | None = None  # a transformation of the batch loss, for local training
    network: type[Frozen] | None = None  # what is made of the task before training
    server_of: Callable[[dict[str, Any]], Server | None] = no_server  # the method's own server with these settings, if any
    fixed_server: bool = False  # whether no optimiser can take the server's place although the method has no server of its own
    averaged: Callable[[dict[str, Any]], bool] = never  # whether the mean of the iterates is served
    select: Select = Weighted()
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    resolve: Callable[[dict[str, Any], Select], dict[str, Any]] = resolved_nothing
    combine: Callable[[Sequence[Trace]], Trace] | None = None
    example: str = ""  # how it is written where nothing is known of the data; "": by its name

    @property
    def settings(self) -> dict[str, Setting]:
        kinds = self.work if isinstance(self.work, tuple) else (self.work,)
        found = [s for kind in reversed(kinds) for s in settings_of(kind, "work")]  # of a name in several, the first kind's
        found += settings_of(self.shape, "shape") if self.shape else []
        found += settings_of(self.network, "network") if self.network else []
        found = settings_of(self.rule, "rule") + found
        return {s.name: s._replace(default=self.defaults.get(s.name, s.default)) for s in found}

    def build(
        self, given: dict[str, Any], *, common: dict[str, Any] | None = None, select: Select | None = None,
        server: Server | None = None, prepare: Prepare | None = None, label: str = "",
    ) -> Algorithm:  # fmt: skip
        """The algorithm with these settings; others are the common ones, where they have a use, or have their default."""
        select = self.select if select is None else select
        known = self.settings
        for name, value in {**(common or {}), **given}.items():
            if name not in known:
                raise _unknown_setting(self.name, name, known)
            _check_setting(self.name, known[name], value)
        try:
            defaults = {name: s.default for name, s in known.items()}
            chosen = self.resolve({**defaults, **(common or {}), **given}, select)
            rule = self.rule(**{n: chosen[n] for n in chosen if known[n].part == "rule"})
            work = self._work(chosen, set(given))
            network = self.network and self.network(**{n: chosen[n] for n in chosen if known[n].part == "network"})
            own = self.server_of(chosen)
            free = own is None and not self.fixed_server
            require(free or server is None, "the server moves in its own way; leave the server's optimiser out.")
            server = server if own is None else own
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        server = AveragingServer(inner=server) if self.averaged(chosen) else server
        return Algorithm(work=work, rule=rule, select=select, server=server, prepare=prepare, network=network, label=label or self.name)

    def _work(self, chosen: dict[str, Any], given: set[str]) -> Work:
        kind = self.work_of(chosen) if self.work_of else self.work
        assert isinstance(kind, type)  # several kinds of work come with work_of
        own = {s.name for s in settings_of(kind, "work")}
        for name in sorted(given - own):
            if self.settings[name].part == "work":
                raise ValueError(f"{name} has no use with these settings; leave it out.")
        work = kind(**{n: chosen[n] for n in own})
        if self.shape is None:
            return work
        return replace(work, shape=self.shape(**{s.name: chosen[s.name] for s in settings_of(self.shape, "shape")}))


def _check_setting(method: str, setting: Setting, value: Any) -> None:
    """Refuse text, lists and the like where a number is expected; arrays may take the place of numbers that are swept.

    A fraction in the place of a whole number is left to the part itself, whose message also states the smallest value.
    """
    if setting.swept:
        if not (is_number(value) or value is None or hasattr(value, "dtype")):
            raise ValueError(f"{method}: {setting.name} must be a number, got {shortened(value)}.")
    elif value != setting.default and not fits(value, float if setting.kind is int else setting.kind):
        raise ValueError(f"{method}: {setting.name} must be {kind_words(setting.kind)}, got {shortened(value)}.")


def _unknown_setting(method: str, name: str, known: dict[str, Setting]) -> ValueError:
    error = unknown("setting", name, known)
    return ValueError(f"{method}: {error}")
