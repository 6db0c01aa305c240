"""The part of an audit's page on where a gap comes from: within clients or between them."""

import numpy as np

from evenly.auditing.estimates import Estimate
from evenly.auditing.views import AGAINST, ClientView, GroupView
from evenly.auditing.within import GapOrigin
from evenly.metrics.statistics import LEAST_CLIENTS
from evenly.report.html import (
    Column,
    Entry,
    Html,
    details,
    element,
    grid,
    join,
    nonbreaking,
    sentence_case,
)

MOST_PARTS = 100  # clients in the table of parts, the largest first
HOW = (
    "Within: the gaps of the clients, weighted by the mean share of both sides' people there."
    " Between: what remains if every client treated both sides alike, because people of the group"
    " are at other clients than all others (Kitagawa's decomposition). The two parts sum to the"
    " gap."
)


def origin_parts(view: GroupView, clients: ClientView | None) -> list[Html]:
    """Where the gaps of the unprivileged group come from; empty if that is not known."""
    if not view.origins or clients is None:
        return []
    columns = [
        Column("Gap"),
        Column("Over all people", "fraction"),
        Column("Within clients", "fraction"),
        Column("Between clients", "fraction"),
    ]
    rows = [
        [
            sentence_case(AGAINST[metric].title),
            _number(origin.gap),
            _cell(origin.within),
            _cell(origin.between),
        ]
        for metric, origin in view.origins.items()
    ]
    assert view.unprivileged is not None  # its gap was split
    name = view.names[view.unprivileged]
    caption = f"“{name}” minus all others. {HOW} {_limits(next(iter(view.origins.values())))}"
    table = grid(nonbreaking(caption.strip()), columns, rows, kind="compact")
    title = "Where the gap comes from"
    first = next(iter(view.origins.values()))
    return [
        element("h4", {"class": "later"}, title),
        table,
        details(f"The parts of each client ({len(first.clients):,})", _each(view, clients)),
    ]


def _limits(origin: GapOrigin) -> str:
    """Which clients have no part of their own, and why there are no intervals."""
    texts = []
    if origin.joined:
        who = "1 client counts" if origin.joined == 1 else f"{origin.joined:,} clients count"
        texts.append(
            f"{who} as one, because too few people of one side are there: gaps between them are"
            " not told apart."
        )
    if origin.one_sided:
        texts.append(
            f"{origin.one_sided:,} people are at clients with people of one side only; their part"
            " is between clients."
        )
    if not origin.within.has_interval:
        texts.append(
            f"There are no intervals: fewer than {LEAST_CLIENTS} clients are too few to resample."
        )
    return " ".join(texts)


def _each(view: GroupView, clients: ClientView) -> Html:
    """The parts of each client, the largest first."""
    metric, origin = next(iter(view.origins.items()))
    parts = origin.parts
    size = np.abs(parts.within) + np.abs(parts.between)
    names = [clients.names[k] for k in origin.clients]
    names += ["all others together"] if origin.joined else []
    order = np.argsort(-size, kind="stable")[:MOST_PARTS].tolist()
    columns = [Column("Client"), Column("Within", "fraction"), Column("Between", "fraction")]
    rows = [
        [names[i], _number(float(parts.within[i])), _number(float(parts.between[i]))] for i in order
    ]
    caption = (
        f"Parts of the {AGAINST[metric].title}. A part between clients below 0: the group is more"
        " often than all others where everybody's rate is low, or less often where it is high."
    )
    return grid(nonbreaking(caption), columns, rows, kind="compact")


def _cell(estimate: Estimate) -> Entry:
    ends = (
        [
            element(
                "small",
                {"class": "interval"},
                f"{_number(estimate.low)} to {_number(estimate.high)}",
            )
        ]
        if estimate.has_interval
        else []
    )
    value = element("span", {"class": "nowrap"}, _number(estimate.value))
    return Entry(join([value, *ends]), "")


def _number(value: float) -> str:
    text = f"{value:.3f}"
    return text.lstrip("-") if not text.strip("-0.") else text.replace("-", "−")
