"""The policy of a site: what its client may answer, in a file that the site's operator owns.

    methods = ["q-fedavg(q=1)"]
    least_cell = 5

The server never sees the file and cannot change it. A SuperNode is told where it is:
`--node-config 'policy="/etc/evenly/policy.toml"'`. `evenly.flower.clients.guard` holds every
request and every reply against it. A file that cannot be read, or that has a key which is not known
here, allows nothing.
"""

import dataclasses
import json
import math
import stat
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from evenly.data.splits import SPLITS
from evenly.flower import wire
from evenly.flower.roster import algorithm_of, notation_of
from evenly.notation import Part, parse, show, unknown
from evenly.parts.sampling import Full
from evenly.privacy.request import PRIVACIES
from evenly.records import replace
from evenly.types import Algorithm
from evenly.validation import check_kinds, kinds_of

ANSWERS = ("census", "measure", "train", "evaluate", "audit")
LARGEST_FILE = 2**20  # bytes
LEAST_CELL = 5  # rows, unless the operator says otherwise
WRITABLE_BY_ALL = stat.S_IWOTH
NOISES = ("noise_multiplier", "signal_noise")
ANY_MODEL = (
    "It is true in this trial, because the model is none of these: the server can read single rows."
    "\n# A real site sets it only if it trusts the server."
)


class PolicyError(ValueError):
    """A policy that cannot be read, or that contradicts itself. It allows nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """What a site lets its client answer.

    Args:
        methods: Methods that the client trains with, with all settings that are not the default.
        answers: Kinds of requests that are answered.
        signals: Signals about the training rows that may leave; None: those that `methods` need.
        splits: Splits whose evaluation may leave.
        metrics: Further metrics that may leave: ``loss``, the mean loss of evaluated rows, and
            those of clients that are written by hand.
        config: Further entries that a request may have.
        least_cell: Smallest count but 0 that a table may hold, fewest rows behind any number, and
            fewest rows that differ from the others in a feature.
        least_change: Fewest rows by which two tables of the same rows may differ, but 0.
        least_batch: Fewest rows that a step of training may rest on.
        rounds_a_day: Most rounds that are answered on one day, of each kind of request.
        request_megabytes: Largest request.
        noise: Least noise multiplier of a step of training with ``+dp(unit=row)``.
        epsilon: Most that may be spent of row-level differential privacy. With `noise` or
            `epsilon`, only methods with ``+dp(unit=row)`` are answered.
        any_model: Whether requests about any model are answered, and not only about linear models
            with two classes. A malicious server then reads single rows.
        rows: Name of the state of the site's rows. Change it when many rows changed.
        log: File of the egress log, relative to the policy's folder.

    Raises:
        PolicyError: If a value is not legal or contradicts another.

    Example:
        >>> from evenly.flower.clients.policy import Policy
        >>> Policy(methods=("q-fedavg(q=1)",)).splits
        ('test',)
    """

    methods: tuple[str, ...]
    answers: tuple[str, ...] = ANSWERS
    signals: tuple[str, ...] | None = None
    splits: tuple[str, ...] = ("test",)
    metrics: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    least_cell: int = LEAST_CELL
    least_change: int = LEAST_CELL
    least_batch: int = LEAST_CELL
    rounds_a_day: int = 100
    request_megabytes: int = 256
    noise: float | None = None
    epsilon: float | None = None
    any_model: bool = False
    rows: str = "1"
    log: str = "egress.jsonl"

    def __post_init__(self) -> None:
        for name in ("least_cell", "least_change", "least_batch", "rounds_a_day"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1.")
        _require(self.request_megabytes >= 1, "request_megabytes must be at least 1.")
        for name, known in (("answers", ANSWERS), ("splits", SPLITS), ("signals", wire.SIGNALS)):
            for word in getattr(self, name) or ():
                if word not in known:
                    raise PolicyError(str(unknown(f"entry of {name}", word, known)))
        for name in ("noise", "epsilon"):
            value = getattr(self, name)
            _require(value is None or value > 0, f"{name} must be above 0.")
        _require(bool(self.methods), "methods must name at least one method.")
        for method in self.methods:
            self._check_method(method)

    def _check_method(self, text: str) -> None:
        """Refuse a method that the rest of the policy forbids."""
        try:
            known = _built(text)
        except ValueError as error:
            raise PolicyError(f"methods: {error}") from None
        forbidden = sorted((known.needs & wire.SIGNALS.keys()) - set(self.allowed_signals))
        _require(
            not forbidden,
            f"{text} needs the signals {', '.join(forbidden)}, which signals does not list. Add"
            " them there, or allow another method.",
        )
        self._check_privacy(text, known)
        size = getattr(known.work, "batch_size", self.least_batch)
        _require(
            size >= self.least_batch,
            f"{text} trains on batches of {size} rows, and least_batch is {self.least_batch}.",
        )

    def _check_privacy(self, text: str, known: Algorithm) -> None:
        noise = getattr(known.work, "noise_multiplier", None)  # infinite: it follows from epsilon
        _require(
            noise is not None or not self.private,
            f"{text} sends exact numbers, and noise or epsilon ask for private rows. Add"
            " +dp(unit=row, ...) to it, or remove both keys.",
        )
        _require(
            noise is None or noise >= (self.noise or 0),
            f"{text} adds noise of {noise}, and noise asks for at least {self.noise}.",
        )
        _require(
            noise is None or math.isfinite(noise) or self.private,
            f"{text} leaves the noise to the server. Set epsilon to the most that may be spent.",
        )

    @property
    def private(self) -> bool:
        """Whether the training rows are protected by noise."""
        return self.noise is not None or self.epsilon is not None

    @property
    def allowed_signals(self) -> tuple[str, ...]:
        """Signals that may leave."""
        if self.signals is not None:
            return self.signals
        needed = frozenset[str]().union(*(_built(method).needs for method in self.methods))
        return tuple(sorted(needed & wire.SIGNALS.keys()))

    def allows(self, method: str) -> bool:
        """Whether a method, in the notation that a server sends, is one of the policy's.

        How many clients are sampled, and what the server does with the sum, is not the client's
        business; everything else must be the same. Where a method of the policy names no noise, the
        server computes it from epsilon.
        """
        asked = canonical(method)
        return any(
            own == (asked if "noise_multiplier" in own else _without_noise(asked))
            for own in map(canonical, self.methods)
        )


@lru_cache(maxsize=64)
def _built(text: str) -> Algorithm:
    return algorithm_of(text)


@lru_cache(maxsize=256)
def canonical(text: str) -> str:
    """A method with the settings that matter at a client, always written in the same way.

    >>> canonical("q-fedavg(q=1.0)+uniform(clients=7)") == canonical("q-fedavg(q=1)")
    True
    """
    return notation_of(replace(_built(text), select=Full(), server=None))


def _without_noise(notation: str) -> str:
    """A method without the noise that was computed for its privacy."""
    return show(
        tuple(
            Part(part.name, {key: v for key, v in part.settings.items() if key not in NOISES})
            if part.name in PRIVACIES
            else part
            for part in parse(notation)
        )
    )


def read_policy(path: Path) -> Policy:
    """Read a policy.

    Args:
        path: A TOML file whose keys are the fields of :class:`Policy`.

    Returns:
        The policy, with the path of its log made absolute.

    Raises:
        PolicyError: If the file cannot be read, has an unknown key or a value that is not legal, or
            can be written by every user of the machine.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "policy.toml").write_text('methods = ["fedavg"]')
        >>> read_policy(folder / "policy.toml").least_cell
        5
    """
    try:
        _require(
            not path.stat().st_mode & WRITABLE_BY_ALL,
            "every user of this machine can change it. Run `chmod o-w` on it.",
        )
        _require(path.stat().st_size <= LARGEST_FILE, "it is larger than 1 MiB.")
        told = tomllib.loads(path.read_text())
        return _policy(told, path)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValueError) as error:
        raise PolicyError(f"The policy {path} allows nothing: {error}") from None


def _policy(told: Mapping[str, Any], path: Path) -> Policy:
    kinds = kinds_of(Policy)
    for key in told:
        if key not in kinds:
            raise unknown("key", key, kinds)
    check_kinds(told, kinds)
    _require("methods" in told, "methods is missing. Name those that you agreed to.")
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in told.items()
    }
    policy = Policy(**given)
    return dataclasses.replace(policy, log=str(path.parent.resolve() / policy.log))


def policy_text(
    methods: tuple[str, ...], *, least: int = LEAST_CELL, why: str = "", any_model: bool = False
) -> str:
    """Text of a commented policy file.

    Args:
        methods: Methods to allow.
        least: Value of `least_cell` and `least_change`.
        why: Why it is not the default; added as a comment.
        any_model: Value of `any_model`. If it is true, a comment says what the server can then do.

    Example:
        >>> print(policy_text(("fedavg",)).splitlines()[0])
        # What this site lets its client answer. The site's operator owns this file.
    """
    listed = ", ".join(map(json.dumps, methods))
    template = (files("evenly.flower") / "templates" / "policy.toml.txt").read_text()
    note = f"\n# {why}" if why else ""
    return Template(template).substitute(
        methods=listed,
        least=least,
        why=note,
        any_model=json.dumps(any_model),
        risk=f"\n# {ANY_MODEL}" if any_model else "",
    )


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise PolicyError(words)
