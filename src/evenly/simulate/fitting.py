"""Fit an algorithm to a federation: complete its settings from the data, or say why the two do not
fit.
"""

import numpy as np

from evenly.data.federation import Federation
from evenly.parts.groups import membership
from evenly.parts.ranking import MOST_BALLOTS
from evenly.records import replace
from evenly.types import Algorithm, Several


def fit_to_data(algorithm: Algorithm, federation: Federation) -> Algorithm:
    """The algorithm with its number of models, where the federation decides it.

    Raises:
        ValueError: If algorithm and federation do not fit, for example because groups of clients
            are not known.
    """
    if algorithm.network is not None:
        _check_ballots(algorithm, federation)
    rule = algorithm.rule
    if not isinstance(rule, Several):
        return algorithm
    client_group = federation.client_group
    known = rule.inference == "known" or rule.known_votes
    if known and client_group is None:
        raise ValueError(
            f"{algorithm.label}: the data do not say which group each client belongs to"
            " (client_group). Give it, or let groups be inferred, such as"
            " e2fl(inference=lowest-loss, groups=2)."
        )
    groups = rule.groups or (0 if client_group is None else int(client_group.max()) + 1)
    if not groups:
        raise ValueError(
            f"{algorithm.label}: set the number of groups, such as groups=2; the data do not"
            " define it."
        )
    if groups > federation.clients:
        raise ValueError(
            f"{algorithm.label}: {groups} groups need at least as many clients, but there are"
            f" {federation.clients}."
        )
    if known:
        _check_membership(algorithm.label, client_group, groups)
    if rule.groups:
        return algorithm
    server = algorithm.server
    return replace(
        algorithm,
        rule=replace(rule, groups=groups),
        server=server and replace(server, groups=groups),
    )


def refuse_without_validation(algorithm: Algorithm, federation: Federation) -> None:
    """Raise if the rule needs measurements on validation rows and no client has any."""
    if "valid_table" in algorithm.rule.needs and not len(federation.valid.rows):
        raise ValueError(
            f"{algorithm.label}: clients measure on validation rows, but"
            f" {federation.name or 'the data'} hold none out. Hold some out, or leave measured_on"
            " out to measure on training rows."
        )


def _check_membership(label: str, client_group: np.ndarray | None, groups: int) -> None:
    try:
        membership(client_group, groups)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None


def _check_ballots(algorithm: Algorithm, federation: Federation) -> None:
    rule = algorithm.rule
    everyone = isinstance(rule, Several) and rule.final_pass
    slots = federation.clients if everyone else algorithm.select.slots(federation.census())
    if slots > MOST_BALLOTS:
        raise ValueError(
            f"{algorithm.label}: at most {MOST_BALLOTS} clients can vote in a round, got {slots}."
            " Sample fewer."
        )
