"""The notation of methods: `q-fedavg(q=1)`, `fedavg(learning_rate=[0.1, 0.3])+uniform(clients=10)`.

A list where a number is expected is a sweep. Text in quotes may hold anything,
`acs-income(sensitive='sex,race')`; a quote inside it is written twice. The same notation serves the
command line, experiment files and labels.
"""

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from evenly.validation import MOST_SHOWN, shortened

Value = Any  # number, bool, str or a list of these
# brackets within brackets, and methods that one sweep may stand for
MOST_NESTED, MOST_VARIANTS = 10, 10_000
QUOTES = "'\""


class Part(NamedTuple):
    """One name and its settings."""

    name: str
    settings: dict[str, Value]

    def __str__(self) -> str:
        inner = ", ".join(f"{k}={_show(v)}" for k, v in self.settings.items())
        return f"{self.name}({inner})" if inner else self.name


Composition = tuple[Part, ...]


def parse(text: str) -> Composition:
    """The parts of one method, in order: `a(x=1)+b` -> (a, b)."""
    pieces = _cut(text, "+")
    if not all(p.strip() for p in pieces):
        raise ValueError(
            f"A method is written like q-fedavg(q=1)+uniform(clients=10), got {shortened(text)}."
        )
    return tuple(_part(piece.strip(), text) for piece in pieces)


def parse_one(text: str, kind: str) -> Part:
    """A single part, for data sets, models and samplings, to which nothing can be added."""
    part, *more = parse(text)
    if more:
        extra = shortened("+" + show(tuple(more)))
        raise ValueError(
            f"A {kind} is written like name(setting=value), a single one, got {shortened(text)}."
            f" Leave {extra} out."
        )
    return part


def parse_list(text: str) -> list[Composition]:
    """Several methods separated by commas."""
    return [parse(piece) for piece in _cut(text, ",") if piece.strip()]


def show(composition: Composition) -> str:
    return "+".join(str(part) for part in composition)


def expand(composition: Composition) -> Iterator[Composition]:
    """Every combination of a composition's list values."""
    _check_sweep(composition)
    choices = [
        [(part.name, key, value) for value in _as_list(values)]
        for part in composition
        for key, values in part.settings.items()
    ]
    for chosen in itertools.product(*choices):
        flat = iter(chosen)
        yield tuple(
            Part(part.name, {key: next(flat)[2] for key in part.settings}) for part in composition
        )


def _check_sweep(composition: Composition) -> None:
    """Refuse sweeps over no values, over lists, and over too many values."""
    count = 1
    for part in composition:
        for key, values in part.settings.items():
            if values == []:
                raise ValueError(
                    f"{part.name}: the sweep over {shortened(key)} must have at least one value,"
                    " got an empty list."
                )
            if any(isinstance(value, list) for value in _as_list(values)):
                raise ValueError(
                    f"{part.name}: a sweep must be a list of single values, got a list within the"
                    f" list of {shortened(key)}."
                )
            count *= len(_as_list(values))
    if count > MOST_VARIANTS:
        raise ValueError(
            f"{composition[0].name}: its sweeps may stand for at most {MOST_VARIANTS:,} methods,"
            f" got {count:,}. Use fewer values, or search for good ones with `evenly tune`."
        )


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> ValueError:
    """The error for an unknown name, with the nearest legal name and all legal names."""
    names = sorted(known)
    close = [one for one in names if one.startswith(f"{name}(")]  # a method without its settings
    near = close[0] if close else nearest(name, names)
    hint = f" Did you mean {near!r}?" if near else ""
    return ValueError(
        f"There is no {kind} {shortened(name)}{where}.{hint} Known: {', '.join(names)}."
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """The legal name that is most like an unknown one; empty if none is.

    >>> nearest("Hospital", ["age", "hospital"])
    'hospital'
    """
    if len(name) > MOST_SHOWN:
        return ""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), "")


def _as_list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else [value]


def _part(text: str, whole: str) -> Part:
    match = re.fullmatch(r"([A-Za-z][\w-]*)\s*(?:\((.*)\))?", text, re.DOTALL)
    if not match:
        raise ValueError(
            f"A method is written like q-fedavg(q=1)+uniform(clients=10), got {shortened(whole)}."
        )
    name, inner = match.groups()
    settings: dict[str, Value] = {}
    for piece in _cut(inner or "", ","):
        if not piece.strip():
            continue
        key, equals, value = piece.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ValueError(
                f"Settings are written name=value, got {shortened(piece.strip())} in"
                f" {shortened(whole)}."
            )
        if key.strip() in settings:
            raise ValueError(
                f"Setting {shortened(key.strip())} is given twice in {shortened(whole)}."
            )
        settings[key.strip()] = _value(value.strip(), whole)
    return Part(name, settings)


def _value(text: str, whole: str) -> Value:
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError(
                f"A list must end with ']', got {shortened(text)} in {shortened(whole)}."
            )
        return [_value(v.strip(), whole) for v in _cut(text[1:-1], ",") if v.strip()]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _unquoted(text, whole) if text.startswith(tuple(QUOTES)) else text


def _unquoted(text: str, whole: str) -> str:
    quote, inner = text[0], text[1:-1]
    if len(text) < 2 or text[-1] != quote or quote in inner.replace(quote * 2, ""):
        wrong = f"got {text[:MOST_SHOWN]} in {shortened(whole)}"
        raise ValueError(
            f"Text in quotes must end with the quote it begins with, {wrong}. A quote inside it is"
            " written twice."
        )
    return inner.replace(quote * 2, quote)


def _cut(text: str, separator: str) -> list[str]:
    """Split at separators that are outside all brackets and quotes."""
    pieces, depth, start, quote = [], 0, 0, ""
    for i, char in enumerate(text):
        # one that is written twice closes and opens again
        if char in QUOTES and quote in ("", char):
            quote = "" if quote else char
        if quote:
            continue
        depth += (char in "([") - (char in ")]")
        # A plus inside a number such as 1e+3 only occurs within brackets, so it is never a cut.
        if char == separator and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
        if depth < 0:
            raise ValueError(f"Brackets do not match in {shortened(text)}.")
        if depth > MOST_NESTED:
            raise ValueError(
                f"Brackets may be nested {MOST_NESTED} deep, but are deeper in {shortened(text)}."
            )
    if quote:
        raise ValueError(
            f"A quote is not closed in {shortened(text)}. Text that holds one kind of quote is put"
            ' in the other: "it\'s".'
        )
    if depth:
        raise ValueError(f"Brackets do not match in {shortened(text)}.")
    return [*pieces, text[start:]]


def _show(value: Value) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_show, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    # Six digits where they are enough; else all of them, so that two values never share a label.
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _quoted(text: str) -> str:
    """The text itself if the notation reads it back unchanged, else in quotes."""
    if (
        text == text.strip()
        and not set(text) & set(",()[]" + QUOTES)
        and text
        and _value(text, text) == text
    ):
        return text
    quote = next((quote for quote in QUOTES if quote not in text), QUOTES[0])
    return quote + text.replace(quote, quote * 2) + quote


def same(first: str, second: str) -> bool:
    """Whether two notations mean the same.

    >>> same("q-fedavg(q=1)", "q-fedavg(q=1.0)"), same("fedavg", "fedprox")
    (True, False)
    """
    try:
        return parse(first) == parse(second)
    except ValueError:  # the label of an algorithm from Python
        return False
