"""Rounds that are private for clients: what the server released, and the noise that it adds.

The arithmetic is that of `evenly.round` with a guard, as in a simulation. Noise and cohorts do not
follow from the seeds of the deployment, which may be public, but from random numbers of the
operating system that are kept nowhere.

A release is counted in a file before it is made. A server that is killed in between has counted a
release that nobody saw, and never the other way round. It repeats the round with another cohort and
other noise, and ends when as many releases were counted as the noise was calibrated for.
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenly.data.federation import Census
from evenly.experiment.deployment import RELEASES, read_releases
from evenly.flower.roster import DeploymentSetting, Options
from evenly.privacy import gate
from evenly.privacy.claims import CLIENT, calibrated, facts, gate_of, sampling_claim, with_facts
from evenly.privacy.gate import ClientGate, Guard
from evenly.privacy.request import refuse_both
from evenly.records import replace, require
from evenly.types import Algorithm, Seeds, Tree
from evenly.writing import write_whole

FORMAT = 1
SPENT = "All releases for which the noise was calibrated were made."


def is_private(algorithm: Algorithm) -> bool:
    """Whether the server adds noise that protects clients."""
    return algorithm.privacy is not None and algorithm.privacy.unit == CLIENT


def refuse_unbounded(algorithm: Algorithm, options: Options, folder: Path | None) -> None:
    """Raise if an option of the strategy would void a promise to clients."""
    if not is_private(algorithm):
        return
    refuse_both(algorithm)
    why = ""
    if options.caps is not None:
        why = (
            "caps follow from the median of all clients, so that one client moves what others"
            " count. Remove caps: weight and clip bound every client"
        )
    elif options.two_phase is not None:
        why = "in two phases clients send their updates uncut. Remove two_phase"
    elif folder is None:
        why = (
            "a server that is started again must know what it released. Give a folder, where it"
            " counts releases"
        )
    elif algorithm.privacy.histogram is not None:
        why = "deployments do not release the histogram of accuracies. Leave histogram out"
    require(not why, f"{algorithm.label}: {why}.")


def first_gate(algorithm: Algorithm, census: Census, public: Tree) -> Tree:
    """The state of the gate before the first round; () without privacy for clients."""
    if not is_private(algorithm):
        return ()
    # the state does not depend on the noise, which is not calibrated yet
    some = replace(algorithm, privacy=replace(algorithm.privacy, noise_multiplier=1.0))
    own = gate_of(some, census, 1)
    assert own is not None
    return jax.tree.map(np.asarray, gate.begin(own, algorithm.rule, public))


class ReleaseCount:
    """The promise of a deployment, and how many of its releases were made.

    The first start settles noise, number of rounds and number of clients; later ones read them.
    """

    def __init__(self, algorithm: Algorithm, census: Census, folder: Path, rounds: int) -> None:
        self._path, clients = folder / RELEASES, len(census.examples)
        known = read_releases(folder)
        if known is None:
            made = calibrated(algorithm, clients, rounds)
            known = {"format": FORMAT, "clients": clients, "used": 0,
                     "promise": facts([made], clients, rounds)}  # fmt: skip
            self._write(known)
        require(
            known["clients"] == clients,
            f"{str(folder)!r} promised privacy among {known['clients']} clients, and {clients} are"
            " registered now. Start with the same clients, or choose another folder.",
        )
        claim = sampling_claim(algorithm, clients)
        settled = known["promise"]["relation"], known["promise"]["expected_clients"]
        require(
            settled == (claim.releases.relation, claim.expected),
            f"{str(folder)!r} promised privacy for rounds of about {settled[1]:g} clients, and now"
            f" {claim.expected:g} would take part. Start with the same fraction_train and"
            " min_train_nodes, or choose another folder.",
        )
        self._known: dict[str, Any] = known
        own = gate_of(with_facts(algorithm, self.promise), census, rounds)
        assert own is not None
        self._gate: ClientGate = own

    @property
    def promise(self) -> Mapping[str, Any]:
        """What is promised; see `evenly.privacy.claims.facts`."""
        return self._known["promise"]

    @property
    def spent(self) -> bool:
        """Whether all releases were made."""
        return self._known["used"] >= self.promise["rounds"]

    def guard(self, state: Tree) -> Guard:
        """Count the release of a round, and return the gate with its noise."""
        require(
            not self.spent,
            f"{SPENT} Another one would break the promise to clients.",
        )
        self.count()
        bits = jnp.asarray(np.frombuffer(secrets.token_bytes(8), np.uint32))
        return Guard(self._gate, state, jax.random.wrap_key_data(bits, impl="threefry2x32"))

    def count(self) -> None:
        """Count a release: one that follows, or a round that ended because too few replied, which
        shows who did not.
        """
        self._known = {**self._known, "used": self._known["used"] + 1}
        self._write(self._known)

    def _write(self, known: Mapping[str, Any]) -> None:
        write_whole(self._path, lambda file: file.write(json.dumps(known, indent=1).encode()))
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # else a power cut could bring the former count back
        finally:
            os.close(folder)


def open_release_count(
    setting: DeploymentSetting, folder: Path | None, rounds: int, *, done: int
) -> ReleaseCount | None:
    """The count of a deployment's releases, of which `done` rounds are stored; None without privacy
    for clients, or if nothing is trained.

    Raises:
        ValueError: If there are stored rounds and no count.
    """
    if folder is None or not rounds or not is_private(setting.algorithm):
        return None
    require(
        not done or read_releases(folder) is not None,
        f"{str(folder)!r} holds {done} rounds and no {RELEASES}, so that nobody knows what was"
        " released. Restore it from a backup. Without one, this deployment must not continue.",
    )
    return ReleaseCount(setting.algorithm, setting.census, folder, rounds)


def cohort_seeds(algorithm: Algorithm, seeds: Seeds) -> Seeds:
    """The seeds of cohorts. With privacy for clients they are new ones that nobody can know, or who
    takes part would be no secret.
    """
    return replace(seeds, cohort=secrets.randbits(62)) if is_private(algorithm) else seeds
