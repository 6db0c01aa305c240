"""Which algorithm is meant, and how it is told to clients: in its notation, every setting that matters written out."""

from typing import Any

from evenly.algorithms import METHODS, Method, settings_of, variants
from evenly.notation import Composition, Part, parse, show
from evenly.parts.optimisers import AveragingServer, OptimisedServer
from evenly.parts.sampling import SAMPLINGS, Full, Uniform
from evenly.parts.work import PREPARES, LocalTraining
from evenly.records import replace, require
from evenly.types import Algorithm, Rule, Select, Server

EVERYBODY = 2**31 - 1


def algorithm_of(given: Algorithm | Rule | str, *, uniform: bool = False) -> Algorithm:
    """An algorithm, from its notation or from a rule. Where no sampling is named everybody takes part, as in Flower's own strategies.

    `uniform` says that clients will be drawn uniformly instead, as many as are not known yet.
    """
    select: Select = Uniform(clients=EVERYBODY) if uniform else Full()
    if isinstance(given, str):
        return _from_notation(parse(given), given, select, uniform)
    if isinstance(given, Algorithm):
        return replace(given, select=select) if uniform else given
    if not isinstance(given, Rule):
        raise TypeError(f"A strategy is made of a notation such as 'q-fedavg(q=1)', an Algorithm or a rule, got {type(given).__name__}.")
    return _from_rule(given, select)


def _from_notation(composition: Composition, text: str, select: Select, uniform: bool) -> Algorithm:
    named = [part.name for part in composition[1:] if part.name in SAMPLINGS]
    if uniform and named:
        raise ValueError(f"{text!r} names a sampling, +{named[0]}, and fraction_train is another. Leave one of them out.")
    found = [member for variant in variants(composition, select=select) for member in variant.members]
    if len(found) != 1:
        members = ", ".join(repr(member.label) for member in found)
        raise ValueError(f"{text!r} stands for {len(found)} runs, and a strategy is one. Make a strategy for each: {members}.")
    return found[0]


def _from_rule(rule: Rule, select: Select) -> Algorithm:
    method = next((m for m in METHODS.values() if m.rule is type(rule)), None)
    if method is None:  # somebody's own: clients train as they please
        return Algorithm(work=LocalTraining(), rule=rule, select=select, label=type(rule).__name__)
    given = {s.name: getattr(rule, s.name) for s in settings_of(type(rule), "rule")}
    built = replace(method.build(given, select=select), rule=rule)
    return replace(built, label=show((Part(method.name, _settings(method, built)),)))


def notation_of(algorithm: Algorithm) -> str:
    """The notation that builds this algorithm anywhere; of one that is not registered only its label."""
    name = parse(algorithm.label)[0].name if algorithm.label else ""
    if name not in METHODS:
        return algorithm.label or type(algorithm.rule).__name__
    method = METHODS[name]
    head = Part(name, _settings(method, algorithm))
    rest = [_local(algorithm), _server(algorithm.server), _prepare(algorithm), _sampling(algorithm.select)]
    return show((head, *(part for part in rest if part is not None)))


def _settings(method: Method, algorithm: Algorithm) -> dict[str, Any]:
    """What differs from the method's defaults."""
    work = algorithm.work
    parts = {"rule": algorithm.rule, "work": work, "shape": getattr(work, "shape", None), "network": algorithm.network}
    owned = {(kind, s.name) for kind, part in parts.items() if part is not None for s in settings_of(type(part), kind)}
    chosen = {s.name: getattr(parts[s.part], s.name) for s in method.settings.values() if (s.part, s.name) in owned}
    return {name: value for name, value in chosen.items() if value is not None and value != method.settings[name].default}


def _local(algorithm: Algorithm) -> Part | None:
    kind = getattr(algorithm.work, "optimiser", "sgd")
    require(isinstance(kind, str), f"{algorithm.label}: a local optimiser that is a function cannot be told to clients; name one.")
    options = dict(getattr(algorithm.work, "options", {}))
    return None if kind == "sgd" and not options else Part(f"local-{kind}", options)


def _server(server: Server | None) -> Part | None:
    if isinstance(server, AveragingServer):
        return _server(server.inner)
    if not isinstance(server, OptimisedServer) or not isinstance(server.optimiser.kind, str):
        return None
    own = server.optimiser
    return Part(f"server-{own.kind}", {"learning_rate": own.learning_rate, **own.options})


def _prepare(algorithm: Algorithm) -> Part | None:
    own = algorithm.prepare
    name = next((name for name, kind in PREPARES.items() if kind is type(own)), None)
    return None if own is None or name is None else Part(name, _fields(own))


def _sampling(select: Select) -> Part:
    name = next((name for name, kind in SAMPLINGS.items() if kind is type(select)), "weighted" if select.by_size else "full")
    return Part(name, _fields(select) if name in SAMPLINGS and type(select) is SAMPLINGS[name] else {})


def _fields(part: Any) -> dict[str, Any]:
    return {s.name: getattr(part, s.name) for s in settings_of(type(part), "part") if getattr(part, s.name) != s.default}
