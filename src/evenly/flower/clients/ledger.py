"""The ledger of a client: what it has released about its rows, on its own disk.

A release is written into the ledger *before* it is made. A client that is killed in between has
counted a release that nobody received, and never the other way round. Every release gets secret
random numbers of its own, which are kept nowhere. Instead, the client keeps the last answer of each
kind in a file beside the ledger before it sends it. A message that is asked again, because the
client or the server was restarted, gets the answer that was kept: it reveals nothing more, even if
the client's code changed meanwhile, and is not counted again. Any other message is a new release.
Numbers that are released once, such as noised counts, are kept in the ledger itself.

The file is replaced as a whole, and it is locked while it is changed, so that two processes of a
client cannot spend the same budget. It belongs to the rows, not to a deployment: a second
deployment goes on counting where the first ended. Only its owner may read it and the answers.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenly.archives import Archive, read_archive
from evenly.records import require
from evenly.validation import check_kinds
from evenly.writing import write_whole

FORMAT = 2
ENTRIES = {
    "format": int, "epsilon": float, "delta": float, "spent": list[list[float]],
    "kept": dict[str, Any],
}  # fmt: skip
SEED_BITS = 63
LOG = logging.getLogger("flwr")


class Spent(NamedTuple):
    """Releases of one kind: each row is in each with probability `rate`."""

    rate: float
    noise: float  # multiplier
    times: int


class Budget(NamedTuple):
    """The most that a client may reveal about a row."""

    epsilon: float
    delta: float


Account = Callable[[Sequence[Spent], float], float]  # epsilon of releases, at a delta


class ToldError(ValueError):
    """A refusal that the server may read: its words do not depend on rows."""


class SpentError(ToldError):
    """A release would reveal more than the client allows."""


class RowLedger:
    """The ledger in a file.

    Args:
        path: The file. It is created by the first release.
        account: Computes the epsilon of releases.
        limit: The most that this client may spend, where its owner says so. Otherwise the budget of
            the first method that it took part in.
    """

    def __init__(self, path: Path, account: Account, limit: Budget | None = None) -> None:
        self._path, self._account, self._limit = path, account, limit

    def spend(self, releases: Sequence[Spent], offered: Budget | None) -> int:
        """Count releases, and return a secret seed for their random numbers.

        Args:
            releases: What is about to be revealed.
            offered: The budget of the method, for a ledger that has none yet.

        Raises:
            SpentError: If the budget does not suffice. Nothing is counted then.
            ValueError: If the ledger is damaged, or nobody said what may be spent.
        """
        with self._locked():
            entries = self._read()
            budget = self._budget(entries, offered)
            spent = merged([*map(_spent, entries["spent"]), *releases])
            self._refuse_beyond(entries, budget, spent)
            seed = secrets.randbits(SEED_BITS)
            entries |= {"epsilon": budget.epsilon, "delta": budget.delta}
            entries["spent"] = [list(one) for one in spent]
            self._write(entries)
            return seed

    def keep(self, name: str, value: Mapping[str, Any]) -> None:
        """Keep what was released, so that it can be sent again without another release."""
        with self._locked():
            entries = self._read()
            entries["kept"][name] = dict(value)
            self._write(entries)

    def kept(self, name: str) -> dict[str, Any]:
        """What was kept under a name; empty if nothing was."""
        return self._read()["kept"].get(name, {})

    def keep_answer(
        self, kind: str, digest: str, arrays: Mapping[str, np.ndarray], entries: Mapping[str, Any]
    ) -> None:
        """Keep the answer to a message in place of the last one of its kind."""
        header = np.array(json.dumps({"digest": digest, **entries}))
        save: Callable[..., None] = np.savez

        def write(file: Any) -> None:
            os.fchmod(file.fileno(), 0o600)
            save(file, header=header, **arrays)

        with self._locked():
            write_whole(self._answer_path(kind), write)

    def answer(self, kind: str, digest: str) -> Archive | None:
        """The answer that was kept, if the last message of this kind had this digest and this
        ledger has counted anything.
        """
        path = self._answer_path(kind)
        if not (self._read()["spent"] and path.exists()):
            return None
        try:
            found = read_archive(path, lambda archive: archive)
        except ValueError as error:
            LOG.warning("%s is damaged (%s), so that the answer is a new release.", path, error)
            return None
        return found if found.header.get("digest") == digest else None

    def _answer_path(self, kind: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{kind}.npz")

    def epsilon(self) -> float:
        """What was spent so far."""
        entries = self._read()
        spent = list(map(_spent, entries["spent"]))
        return self._account(spent, entries["delta"]) if spent else 0.0

    def _budget(self, entries: dict[str, Any], offered: Budget | None) -> Budget:
        """The owner's limit, or else what was agreed first: a server cannot raise it."""
        if self._limit is not None:
            return self._limit
        if entries["epsilon"]:
            return Budget(entries["epsilon"], entries["delta"])
        if offered is None:
            raise ToldError(
                "Nobody said how much this client may reveal about a row. Name epsilon in the"
                " method, such as +dp(unit=row, epsilon=8), or in the node's config:"
                " --node-config 'ledger=\"/path/ledger.json\" epsilon=8.0 delta=1e-5'."
            )
        return offered

    def _refuse_beyond(
        self, entries: dict[str, Any], budget: Budget, spent: Sequence[Spent]
    ) -> None:
        after = self._account(spent, budget.delta)
        if after <= budget.epsilon:
            return
        before = list(map(_spent, entries["spent"]))
        now = self._account(before, budget.delta) if before else 0.0
        words = "without noise it would be unlimited" if math.isinf(after) else f"{after:.3f}"
        raise SpentError(
            f"The privacy budget of this client is spent: epsilon {now:.3f} of {budget.epsilon:g}"
            f" at delta {budget.delta:g}, and another round would make it {words}. The client takes"
            " part no more. Its owner can raise epsilon in the node's config."
        )

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {"format": FORMAT, "epsilon": 0.0, "delta": 0.0, "spent": [], "kept": {}}
        try:
            entries = json.loads(self._path.read_text())
            require(isinstance(entries, dict), "not an object")
            check_kinds(entries, ENTRIES, complete=True)
            spent = list(map(_spent, entries["spent"]))
            require(all(0 < s.rate <= 1 and s.times > 0 and s.noise >= 0 for s in spent), "range")
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"The ledger {str(self._path)!r} cannot be read ({error}), so that nobody knows"
                " what was spent. Restore it from a backup. Without one, its rows must not be used"
                " with differential privacy again."
            ) from None
        require(
            entries["format"] <= FORMAT,
            f"The ledger {str(self._path)!r} has format {entries['format']}, and this version of"
            f" evenly reads up to format {FORMAT}. Update evenly.",
        )
        entries.pop("answers", None)  # seeds of format 1
        return entries | {"format": FORMAT}

    def _write(self, entries: dict[str, Any]) -> None:
        def write(file: Any) -> None:
            os.fchmod(file.fileno(), 0o600)
            file.write(json.dumps(entries, indent=1).encode())

        write_whole(self._path, write)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # else a power cut could bring the former ledger back
        finally:
            os.close(folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path.with_name(f".{self._path.name}.lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def merged(releases: Sequence[Spent]) -> list[Spent]:
    """The same releases, those of equal rate and noise together."""
    times: dict[tuple[float, float], int] = {}
    for rate, noise, count in releases:
        times[rate, noise] = times.get((rate, noise), 0) + count
    return [Spent(rate, noise, count) for (rate, noise), count in times.items()]


def digest_of(*parts: Any) -> str:
    """A digest of texts, numbers and arrays."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.shape} {part.dtype}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _spent(entry: Sequence[float]) -> Spent:
    rate, noise, times = entry
    return Spent(float(rate), float(noise), int(times))
