"""A federated audit: how evenly a model serves the sites of a federation, without pooling rows.

The server sends a frozen model, or asks about the predictions that each site has already. Sites
answer with counts of their test rows by group, label and prediction, and with counts of scores
(`evenly.metrics.score_cells`), under their policy. Nothing is trained.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from evenly.auditing.requirements import parse_requirement
from evenly.auditing.result import Audit, refuse_replacing
from evenly.auditing.site_tables import SiteCounts, audit_tables
from evenly.data.sensitive import Attribute
from evenly.experiment.deployment import Exclusion
from evenly.flower import messages, wire
from evenly.flower.checks import (
    SIGNALS,
    ReplyError,
    ReplySpec,
    counts,
    read_or_exclude,
    replies_to,
)
from evenly.flower.final_model import (
    FinishedModel,
    final_arrays,
    finished_model,
    plan_of,
    questions,
)
from evenly.flower.joining import known_groups
from evenly.flower.replies import (
    COMMON,
    MOST_CLIENTS,
    CensusReply,
    consistent_censuses,
    content_of,
    no_answer,
)
from evenly.flower.roster import (
    Roll,
    algorithm_of,
    registered_censuses,
    roll_of,
    wait_for_nodes,
)
from evenly.metrics.score_cells import (
    BINS,
    CellCounts,
    cells_of_counts,
    refuse_wrong_cells,
)
from evenly.records import require
from evenly.types import Algorithm, Seeds

LOG = logging.getLogger("flwr")
TIMEOUT = 3600.0
AUDITING = "audit"  # the phase of exclusions


class SiteAnswers(NamedTuple):
    """What sites sent: their counts, and those who are left out with a reason."""

    sites: list[SiteCounts]
    left_out: list[str]


def audit(
    grid: Grid,
    arrays: ArrayRecord | str | Path | None = None,
    *,
    method: str | None = None,
    seeds: Seeds | None = None,
    favourable: Any = None,
    unprivileged: Any = None,
    min_cell: int = 10,
    anonymous: bool = False,
    name: str = "federation",
    min_available_nodes: int = 2,
    min_evaluate_nodes: int = 2,
    timeout: float = TIMEOUT,
) -> Audit:
    """Audit a model, or each site's own predictions, on the test rows of all connected sites.

    Args:
        grid: Flower's grid, in a ServerApp.
        arrays: The model, or the folder of the finished deployment that trained it. Without either,
            sites answer about predictions that they have already.
        method: The method that the model was trained with; by default that of the folder, or
            fedavg. Sites with a policy answer only for methods that it allows. Methods whose
            clients keep a model of their own audit that one and need the folder. Sites with a
            ledger do not take part.
        seeds: Seeds of the run that trained the model; by default those of the folder. Only methods
            that rank edges need them.
        favourable: The label that people want to get; by default the one that sites name.
        unprivileged: Value to compare with all others, as for :func:`evenly.audit`.
        min_cell: Hide figures that rest on fewer people than this.
        anonymous: Replace the names of sites by numbers.
        name: Name of the federation in the report.
        min_available_nodes: Number of connected sites to wait for.
        min_evaluate_nodes: Number of sites that must answer. Others are left out, with the reason
            in the report.
        timeout: Seconds to wait for answers.

    Returns:
        The audit, with sites as clients.

    Raises:
        ValueError: If sites have different labels or groups, too few answer, or there is no
            favourable label.

    Example:
        >>> from evenly.flower import audit
        >>> @app.main()  # doctest: +SKIP
        ... def main(grid, context):
        ...     audit(grid, "results").write("audit")
    """
    algorithm, seeds, model = _model(arrays, method, seeds)
    nodes = wait_for_nodes(grid, min_available_nodes)
    groups = known_groups(algorithm.rule)
    roll, silent = _introduced(grid, nodes, timeout, groups=groups)
    labels, attributes = _described(roll)
    asked = questions(wire.AUDIT, model, algorithm, roll, seeds=seeds)
    answers = _read(roll, labels, replies_to(grid, asked, timeout))
    left_out = [*silent, *answers.left_out]
    for words in left_out:
        LOG.warning("Left out of the audit: %s", words)
    require(
        len(answers.sites) >= max(min_evaluate_nodes, 1),
        f"An audit needs answers of at least {max(min_evaluate_nodes, 1)} sites"
        f" (min_evaluate_nodes, or `least` in an app), got {len(answers.sites)}."
        f" {' '.join(left_out)}",
    )
    named = labels[roll.census.favourable] if favourable is None else favourable
    same = str(named) == labels[roll.census.favourable]
    sites = [one if same else one._replace(cells=None) for one in answers.sites]
    found = audit_tables(
        sites, labels=labels, attributes=attributes, favourable=named, unprivileged=unprivileged,
        min_cell=min_cell, anonymous=anonymous, name=name,
    )  # fmt: skip
    return found._replace(notes=(*_absence(left_out, len(nodes), anonymous), *found.notes))


def run_audit(grid: Grid, config: Mapping[str, Any], *, name: str = "federation") -> Path:
    """Audit as the run config of an app says, and write the report into its `folder`.

    Args:
        grid: Flower's grid, in a ServerApp.
        config: Entries `folder`, `method`, `seed`, `clients`, `least` and `timeout`, as for
            training; `model`, the folder of the deployment whose final model is audited, or empty
            for the predictions that sites have already; and `favourable`, `unprivileged` and
            `require`, which may be empty. Several of the last two are separated by semicolons.
        name: Name of the federation in the report.

    Returns:
        The folder.

    Raises:
        ValueError: As :func:`audit`, if a requirement cannot be read, or if the folder holds
            anything but an earlier audit. After everything is written, if a requirement is not met,
            so that the run does not end as completed.
    """
    refuse_replacing(str(config["folder"]))  # before sites are asked
    given = {key: str(config.get(key, "")) for key in ("model", "favourable", "require")}
    required = tuple(filter(None, map(str.strip, given["require"].split(";"))))
    for text in required:
        parse_requirement(text)
    sides = [part for part in str(config.get("unprivileged", "")).split(";") if part]
    found = audit(
        grid,
        given["model"] or None,
        method=str(config["method"]),
        seeds=Seeds.all(int(config["seed"])),
        favourable=given["favourable"] or None,
        unprivileged=dict(part.split("=", 1) for part in sides) if sides else None,
        name=name,
        min_available_nodes=int(config["clients"]),
        min_evaluate_nodes=int(config["least"]),
        timeout=float(config["timeout"]),
    )
    found = found._replace(required=required)
    folder = found.write(str(config["folder"]))
    unmet = [check.sentence for check in found.check() if not check.met]
    require(not unmet, f"{' '.join(unmet)} The report is in {folder}.")
    return folder


def _model(
    arrays: ArrayRecord | str | Path | None, method: str | None, seeds: Seeds | None
) -> tuple[Algorithm, Seeds, FinishedModel | None]:
    """The method, the seeds and the model of an audit; no model for predictions that sites have."""
    if isinstance(arrays, str | Path):
        final_arrays(arrays)  # raises if the folder holds no model
        plan = plan_of(arrays)
        method, seeds = method or plan.notation, seeds or Seeds(**plan.seeds)
    algorithm = algorithm_of(method or "fedavg")
    model = None if arrays is None else finished_model(arrays, algorithm)
    return algorithm, seeds or Seeds(), model


def _introduced(
    grid: Grid, nodes: Sequence[int], timeout: float, *, groups: int
) -> tuple[Roll, list[str]]:
    """The sites that introduce themselves, and why others are left out. `groups` are those that
    whole clients may belong to; 0: any.
    """
    asking = [messages.message(wire.CENSUS, node, {}, ConfigRecord({})) for node in nodes]
    told, left_out = registered_censuses(
        grid, replies_to(grid, asking, timeout), nodes, most=messages.metrics_bytes(None)
    )
    _refuse_differences(told)
    told, wrong = consistent_censuses(told, groups or MOST_CLIENTS)
    silent = [f"Node {one.node} {one.reason}." for one in (*left_out, *wrong)]
    require(bool(told), f"No site introduced itself, so there is no audit. {' '.join(silent)}")
    require(
        bool(told[0].labels) and told[0].favourable is not None,
        "An audit needs the names of the labels and the favourable one, and no site told them."
        " Add labels and favourable to the census of the clients.",
    )
    return roll_of(told), silent


def _refuse_differences(told: Sequence[CensusReply]) -> None:
    """Raise if a site has other labels or groups: its table cannot be added to the others."""
    for first, one in pairwise(told):
        for what, value in COMMON.items():
            require(
                value(one) == value(first),
                f"All sites must agree on {what}, but {one.name or f'node {one.node}'!r} has"
                f" {_shown(value(one))} and {first.name or f'node {first.node}'!r}"
                f" {_shown(value(first))}. Nothing was audited.",
            )


def _described(roll: Roll) -> tuple[tuple[str, ...], list[Attribute]]:
    """Labels and attributes that all sites share."""
    attributes = list(roll.attributes)
    if not attributes and len(roll.groups) > 1:
        attributes = [Attribute("group", roll.groups, tuple(range(len(roll.groups))))]
    return roll.labels, attributes


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _read(roll: Roll, labels: Sequence[str], replies: Iterable[Message]) -> SiteAnswers:
    """The counts of sites in the order of their numbers, and why others are left out."""
    found: dict[int, SiteCounts | Exclusion] = {}
    for reply in replies:
        k = roll.number(reply.metadata.src_node_id)
        if k is None or k in found:
            continue
        spec = ReplySpec(
            roll.nodes[k], k, 0, phase=AUDITING, most_bytes=messages.metrics_bytes(None)
        )
        found[k] = read_or_exclude(spec, partial(_counts, reply, spec, roll, len(labels)))
    for k in set(range(roll.clients)) - found.keys():
        found[k] = no_answer(ReplySpec(roll.nodes[k], k, 0, phase=AUDITING))
    order = sorted(found.items())
    return SiteAnswers(
        [own for _, own in order if isinstance(own, SiteCounts)],
        [f"{roll.names[k]!r} {own.reason}." for k, own in order if isinstance(own, Exclusion)],
    )


def _counts(message: Message, spec: ReplySpec, roll: Roll, labels: int) -> SiteCounts:
    """The counts in a reply. Raises a ReplyError if they cannot be right."""
    records = content_of(message, spec.most_bytes).metric_records
    metrics: Mapping[str, Any] = records.get(wire.METRICS, {})
    groups = max(len(roll.groups), 1)
    if wire.TABLE not in metrics:
        raise ReplyError(f"sent no {wire.TABLE!r}", SIGNALS)
    table = counts(wire.TABLE, metrics, (groups, labels, labels)).astype(np.int64)
    if not {wire.SCORE_FIRST, wire.SCORE_LAST} <= metrics.keys():
        return SiteCounts(roll.names[spec.client], table)
    first, last = (
        counts(key, metrics, (groups, 2, BINS)).astype(np.int64)
        for key in (wire.SCORE_FIRST, wire.SCORE_LAST)
    )
    try:
        cells = cells_of_counts(CellCounts(first, last))
        favourable = table[:, roll.census.favourable].sum(-1)
        refuse_wrong_cells(cells, np.stack([table.sum((1, 2)) - favourable, favourable], axis=1))
    except ValueError as error:
        raise ReplyError(f"sent counts of scores that are wrong: {error}", SIGNALS) from None
    return SiteCounts(roll.names[spec.client], table, cells)


def _absence(left_out: Sequence[str], nodes: int, anonymous: bool) -> list[str]:
    if not left_out:
        return []
    who = "1 site is" if len(left_out) == 1 else f"{len(left_out)} sites are"
    reasons = "" if anonymous else f" {' '.join(left_out)}"
    return [f"{who} not in this audit, of {nodes} that were asked.{reasons}"]
