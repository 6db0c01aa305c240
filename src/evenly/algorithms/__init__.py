"""The registry of methods, and `variants`, which turns the notation of methods into algorithms.
Each method has a module of its own.

>>> from evenly.algorithms import variants
>>> [variant.label for variant in variants("q-fedavg(q=[0, 1])+uniform(clients=10)")]
['q-fedavg(q=0)+uniform(clients=10)', 'q-fedavg(q=1)+uniform(clients=10)']
"""

from typing import Any, NamedTuple, TypeVar

from evenly.algorithms import (
    afl,
    ditto,
    e2fl,
    fairfed,
    fedavg,
    fedcvg,
    fedcvg_ratio,
    fedfb,
    fedmgda,
    fedprox,
    fedsgd,
    frl,
    ifca,
    local,
    multi_q,
    p_fedavg,
    propfair,
    q_fedavg,
    q_fedsgd,
    term,
)  # fmt: skip
from evenly.algorithms.fedavg import FedAvg
from evenly.algorithms.fedsgd import FedSGD
from evenly.algorithms.method import Method, Setting, settings_of
from evenly.algorithms.q_fedavg import QFedAvg
from evenly.notation import Composition, Part, expand, parse, parse_list, show, unknown
from evenly.parts.optimisers import OptimisedServer, Optimiser, optimiser_parts
from evenly.parts.ranking_work import EdgePopup
from evenly.parts.sampling import SAMPLINGS
from evenly.parts.work import PREPARES, LocalTraining, PersonalTraining, TrainingAlone
from evenly.privacy.request import PRIVACIES
from evenly.privacy.row_account import with_privacy
from evenly.records import is_number, replace
from evenly.registry import add
from evenly.types import Algorithm, Select
from evenly.validation import check_kinds, check_size, kinds_of, shortened

__all__ = [
    "METHODS", "FedAvg", "FedSGD", "Method", "QFedAvg", "Setting", "Variant", "algorithm",
    "register", "settings_of", "variants",
]  # fmt: skip

T = TypeVar("T")

METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        fedavg.METHOD,
        fedsgd.METHOD,
        fedprox.METHOD,
        q_fedavg.METHOD,
        q_fedsgd.METHOD,
        multi_q.METHOD,
        afl.METHOD,
        term.METHOD,
        propfair.METHOD,
        p_fedavg.METHOD,
        fairfed.METHOD,
        fedcvg.METHOD,
        fedcvg_ratio.METHOD,
        fedfb.METHOD,
        ditto.METHOD,
        fedmgda.METHOD,
        local.METHOD,
        ifca.METHOD,
        frl.METHOD,
        e2fl.METHOD,
    )
}


class Variant(NamedTuple):
    """One row of a comparison: a method with every setting fixed."""

    label: str  # notation
    method: Method
    settings: dict[str, Any]
    # the algorithms to run: one, unless the method combines several runs
    members: tuple[Algorithm, ...]


def register(method: Method, *, replace: bool = False) -> None:
    """Add a method to the registry; `evenly.register` is the public function.

    Raises:
        ValueError: If the name is taken, or the method cannot be built with its defaults.
    """
    method.build_first()
    add(
        "method",
        METHODS,
        method,
        taken={**METHODS, **SAMPLINGS, **PREPARES, **PRIVACIES},
        replace=replace,
    )


def algorithm(text: str, **common: Any) -> Algorithm:
    """Build one algorithm from its notation.

    Args:
        text: Notation of a method without sweeps, such as ``"q-fedavg(q=1)+uniform(clients=10)"``.
        **common: Settings that apply if the method has them and the notation does not name them,
            such as ``learning_rate=0.1``.

    Returns:
        The algorithm.

    Raises:
        TypeError: If `text` is not text.
        ValueError: If the notation is wrong, or stands for several runs.

    Example:
        >>> import evenly
        >>> evenly.algorithm("q-fedavg(q=1)", learning_rate=0.5).work.learning_rate
        0.5
    """
    if not isinstance(text, str):
        raise TypeError(
            f"A method is written as text, such as 'q-fedavg(q=1)', got {type(text).__name__}."
        )
    members = [member for variant in variants(text, common) for member in variant.members]
    if len(members) != 1:
        raise ValueError(
            f"{text!r} stands for {len(members)} runs, but one is needed. evenly.variants({text!r})"
            " has one entry for each, and evenly.train takes those or the text itself."
        )
    return members[0]


def variants(
    composition: Composition | str,
    common: dict[str, Any] | None = None,
    select: Select | None = None,
) -> list[Variant]:
    """Build every algorithm that a notation stands for. Lists of values are sweeps: each value is
    one variant.

    Args:
        composition: Notation of one or several methods, separated by commas, or parsed notation.
        common: Settings for all methods. They apply if the method has them and the notation does
            not name them.
        select: Sampling of clients, if the notation names none. By default the method's own.

    Returns:
        One variant for each method and combination of swept values, in the order of the notation.

    Raises:
        ValueError: If a method, part or setting does not exist, or a value is not legal.

    Example:
        >>> import evenly
        >>> [variant.settings["q"] for variant in evenly.variants("q-fedavg(q=[0, 1, 5])")]
        [0, 1, 5]
    """
    if isinstance(composition, str):
        return [
            variant
            for part in parse_list(composition) or [parse(composition)]
            for variant in variants(part, common, select)
        ]
    head, *rest = composition
    if head.name not in METHODS:
        raise unknown("method", head.name, METHODS)
    method = METHODS[head.name]
    shared = {
        k: v for k, v in (common or {}).items() if k in method.settings and k not in head.settings
    }
    if method.combine is not None:
        return [_combined(method, (head, *rest), shared, select)]
    return [
        Variant(
            show(one),
            method,
            {**shared, **one[0].settings},
            (_assemble(method, one, shared, select),),
        )
        for one in expand(composition)
    ]


def _combined(
    method: Method, composition: Composition, shared: dict[str, Any], select: Select | None
) -> Variant:
    """The variant of a method that combines several runs: its list-valued settings are its members,
    not a sweep.
    """
    head, *rest = composition
    lists = {s.name: s.default for s in method.settings.values() if isinstance(s.default, list)}
    for name, value in head.settings.items():
        wrong = (
            [one for one in value if not is_number(one)]
            if name in lists and isinstance(value, list)
            else []
        )
        if wrong:
            raise ValueError(
                f"{method.name}: {name} must be a list of numbers, got {shortened(wrong[0])} in it."
            )
    # Sorted: ties between members are resolved in favour of the first.
    ordered = {
        k: sorted(v) if k in lists and isinstance(v, list) else v
        for k, v in {**lists, **head.settings}.items()
    }
    inner = (Part(head.name, ordered), *rest)
    members = tuple(_assemble(method, one, shared, select) for one in expand(inner))
    return Variant(show(composition), method, {**shared, **inner[0].settings}, members)


def _assemble(
    method: Method, composition: Composition, shared: dict[str, Any], select: Select | None
) -> Algorithm:
    head, *rest = composition
    server, local, prepare, privacy = None, None, None, None
    for part in rest:
        kind, _, name = part.name.partition("-")
        if part.name in SAMPLINGS:
            select = build_part(SAMPLINGS[part.name], part)
        elif part.name in PREPARES:
            prepare = build_part(PREPARES[part.name], part)
        elif part.name in PRIVACIES:
            privacy = build_part(PRIVACIES[part.name], part)
        elif part.name not in optimiser_parts():
            known = [*SAMPLINGS, *PREPARES, *PRIVACIES, *optimiser_parts()]
            raise unknown("part", part.name, known)
        elif kind == "server":
            server = OptimisedServer(optimiser=_optimiser(name, part.settings))
        else:
            local = _optimiser(name, part.settings)
            shared = {**shared, **{k: v for k, v in part.settings.items() if k == "learning_rate"}}
    built = method.build(
        head.settings,
        common=shared,
        select=select,
        server=server,
        prepare=prepare,
        label=show(composition),
    )
    if local is None:
        return with_privacy(built, privacy)
    if not isinstance(built.work, LocalTraining | PersonalTraining | TrainingAlone):
        reason = (
            "rank edges" if isinstance(built.work, EdgePopup) else "take one full-gradient step"
        )
        raise ValueError(
            f"{method.name}: clients {reason} and have no local optimiser, got"
            f" 'local-{local.kind}'."
        )
    work = replace(built.work, optimiser=local.kind, options=local.options)
    return with_privacy(replace(built, work=work), privacy)


def build_part(kind: type[T], part: Part) -> T:
    """Build a sampling or a preparation from its part of the notation."""
    settings = [s.name for s in settings_of(kind, "part")]
    for name in part.settings:
        if name not in settings:
            error = (
                unknown("setting", name, settings)
                if settings
                else f"it has no settings, got {name!r}."
            )
            raise ValueError(f"{part.name}: {error}")
    try:
        return _checked(kind, part.settings)
    except ValueError as error:
        raise ValueError(f"{part.name}: {error}") from None


def _checked(kind: type[T], settings: dict[str, Any]) -> T:
    """Build a part. Its own checks come first, because their messages are more specific than those
    about kinds of values.
    """
    try:
        built = kind(**settings)
    except TypeError as error:
        check_kinds(settings, kinds_of(kind))
        raise ValueError(str(error)) from None
    check_kinds(settings, kinds_of(kind))
    for name, value in settings.items():
        check_size(name, value, kinds_of(kind)[name])
    return built


def _optimiser(name: str, settings: dict[str, Any]) -> Optimiser:
    for setting, value in settings.items():
        check_size(f"{name}: {setting}", value, float)
    options = {k: v for k, v in settings.items() if k != "learning_rate"}
    rate = {"learning_rate": settings["learning_rate"]} if "learning_rate" in settings else {}
    return Optimiser(kind=name, options=options, **rate)
