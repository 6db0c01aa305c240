"""What is searched, in the notation of methods: `q-fedavg(q=0.001..10:log, learning_rate=[0.1, 0.3])+parity(p=0.1..0.9)`.

`LOW..HIGH` is a range, `LOW..HIGH:log` one whose orders of magnitude are tried alike, and a list in brackets a choice. Settings that
count something, such as epochs, take whole numbers. Everything else stays as it is written. A setting of the method goes by its name,
one of another part by both: `parity.p`.
"""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from evenly.algorithms import METHODS, settings_of
from evenly.notation import Composition, Part, Value, parse, parse_list, show, unknown
from evenly.parts.sampling import SAMPLINGS
from evenly.parts.work import PREPARES
from evenly.records import require

FORM = "A range is written LOW..HIGH or LOW..HIGH:log, such as 0.001..10:log"
DIGITS = 3  # of a number that is tried: labels stay readable


class Range(NamedTuple):
    """Every number from the lower to the higher end."""

    low: float
    high: float
    log: bool
    whole: bool

    def near(self, value: float) -> float:
        """The number with few digits that stands for a proposed one."""
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


class Choices(NamedTuple):
    """One of these values."""

    values: tuple[Value, ...]


class Space(NamedTuple):
    """A method, some of whose settings are searched."""

    composition: Composition
    searched: dict[str, Range | Choices]

    def method(self, values: Mapping[str, Value]) -> str:
        """The method with these values, as it is written down."""
        return show(
            tuple(
                Part(part.name, {key: values.get(_name(at, part, key), value) for key, value in part.settings.items()})
                for at, part in enumerate(self.composition)
            )
        )

    def corners(self) -> Iterator[dict[str, Value]]:
        """Values that between them try every end of a range and every choice: what is wrong with one is wrong with the space."""
        ends = [(s.low, s.high) if isinstance(s, Range) else s.values for s in self.searched.values()]
        for at in range(max(map(len, ends))):
            yield {name: own[min(at, len(own) - 1)] for name, own in zip(self.searched, ends, strict=True)}

    def grid(self) -> list[dict[str, Value]]:
        """Every combination, where all settings are choices; else none."""
        lists = [s.values for s in self.searched.values() if isinstance(s, Choices)]
        if len(lists) < len(self.searched):
            return []
        return [dict(zip(self.searched, chosen, strict=True)) for chosen in itertools.product(*lists)]


def space_of(method: str, searches: Sequence[str] = ()) -> Space:
    """The space that a method's notation describes, and settings given apart from it as `q=0.1..10` or `parity.p=0.1,0.5`."""
    wanted = parse_list(method)
    require(len(wanted) == 1, f"One method is tuned at a time, got {len(wanted)} in {method!r}.")
    composition = wanted[0]
    for text in searches:
        composition = _with(composition, text)
    searched = {
        _name(at, part, key): found
        for at, part in enumerate(composition)
        for key, value in part.settings.items()
        if (found := _search(at, part, key, value)) is not None
    }
    require(bool(searched), f"{show(composition)} has nothing to search. {FORM}; several values are a list, such as q=[0, 1, 5].")
    return Space(composition, searched)


def _name(at: int, part: Part, key: str) -> str:
    return key if at == 0 else f"{part.name}.{key}"


def _with(composition: Composition, text: str) -> Composition:
    """A composition with one more setting to search, or another search of one it has."""
    name, equals, value = (piece.strip() for piece in text.partition("="))
    require(bool(name and equals and value), f"--search is written NAME=VALUES, such as q=0.001..10:log or q=0,1,5, got {text!r}.")
    where, dot, key = name.rpartition(".")
    names = [part.name for part in composition]
    if dot and where not in names[1:]:
        raise unknown("part", where, names[1:]) if names[1:] else ValueError(f"{names[0]} has no part {where!r}; write +{where} after it.")
    at = names.index(where, 1) if dot else 0
    listed = f"[{value}]" if "," in value and not value.startswith("[") else value
    (read,) = parse(f"search(value={listed})")
    part = composition[at]
    return (*composition[:at], Part(part.name, {**part.settings, key: read.settings["value"]}), *composition[at + 1 :])


def _search(at: int, part: Part, key: str, value: Value) -> Range | Choices | None:
    where = f"{part.name}: {key}"
    ranged = [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str) and ".." in v]
    if isinstance(value, list) and not _own_list(at, part, key):
        require(not ranged, f"{where} must be a range or a list of values, got both in {value}.")
        require(bool(value), f"{where} has no values to choose from.")
        return Choices(tuple(dict.fromkeys(value)))
    return _range(where, str(value), _default(at, part, key)) if ranged else None


def _own_list(at: int, part: Part, key: str) -> bool:
    """Whether a list is the setting's own value and no choice, as multi-q's is."""
    method = METHODS.get(part.name) if at == 0 else None
    return bool(method and method.combine and key in method.settings and isinstance(method.settings[key].default, list))


def _default(at: int, part: Part, key: str) -> Any:
    """The setting's default; a number where it is not known here, and building the method says what is wrong."""
    if at == 0:
        known = METHODS[part.name].settings if part.name in METHODS else {}
    else:
        kind = {**SAMPLINGS, **PREPARES}.get(part.name)
        known = {s.name: s for s in settings_of(kind, "part")} if kind else {}
    if known and key not in known:
        raise ValueError(f"{part.name}: {unknown('setting', key, known)}")
    found = known.get(key)
    return 0.0 if found is None or found.swept else found.default


def _range(where: str, text: str, default: Any) -> Range:
    match = re.fullmatch(r"(?P<low>[^:]+?)\.\.(?P<high>[^:]+)(?P<kind>:log)?", text)
    try:
        low, high = (float(match[end]) for end in ("low", "high")) if match else (math.nan, math.nan)
    except ValueError:
        low = high = math.nan
    require(math.isfinite(low) and math.isfinite(high), f"{where} cannot be read. {FORM}, got {text!r}.")
    assert match is not None
    require(not isinstance(default, str | bool), f"{where} is no number, so it has no range; list its values, such as [{default}].")
    require(low < high, f"{where} must go from the lower to the higher number, got {text}.")
    log, whole = bool(match["kind"]), isinstance(default, int)
    require(
        low > 0 or not log,
        f"{where} must begin above 0 to be searched by orders of magnitude, got {text}. Leave :log out, or begin higher.",
    )
    require(not whole or (low.is_integer() and high.is_integer()), f"{where} must be whole numbers, got {text}.")
    return Range(int(low), int(high), log, whole) if whole else Range(low, high, log, whole)
