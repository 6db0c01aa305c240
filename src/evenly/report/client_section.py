"""The section on the worst-served clients of each method, and the table of all clients."""

from collections.abc import Mapping, Sequence

import numpy as np

from evenly.experiment.comparison import Comparison
from evenly.report.charts.focus import Focus
from evenly.report.disclosure import client_groups
from evenly.report.html import (
    Column,
    Entry,
    Html,
    details,
    element,
    grid,
    nonbreaking,
    paragraph,
    search_field,
    section,
)
from evenly.report.values import (
    NAMED,
    SPLIT_WORDS,
    UNDEFINED,
    ClientMeans,
    ClientRates,
    WorstClient,
    client_means,
    client_rates,
    count_text,
    means_words,
    worst_clients,
)
from evenly.report.worst_served import has_labels, rate_entry

MOST_CLIENTS = 10
MOST = 200


def client_table(comparison: Comparison, focus: Focus) -> list[Html]:
    """Every client under every method, means over seeds; nothing where there are more than 200
    clients, or only one.
    """
    means = {label: client_means(comparison, label, focus.split) for label in focus.series}
    defined = np.flatnonzero(np.isfinite(means[focus.baseline].accuracy)).tolist()
    clients = [k for k in defined if k not in focus.hidden]
    if not 1 < len(clients) <= MOST:
        return []
    table = _client_grid(comparison, focus, means, clients)
    if len(clients) < NAMED:
        return [table]
    search = search_field("filter-clients", "Filter the clients", "part of a name")
    # On paper it would be pages long, and cannot be searched.
    return [
        element(
            "details",
            {"class": "screen"},
            element("summary", None, f"Every client ({len(clients)})"),
            search,
            table,
        )
    ]


def _client_grid(
    comparison: Comparison, focus: Focus, means: Mapping[str, ClientMeans], clients: Sequence[int]
) -> Html:
    groups, word, first = (
        client_groups(comparison, focus.least),
        SPLIT_WORDS[focus.split],
        means[focus.baseline],
    )
    columns = [
        Column("Client"),
        Column("Training rows"),
        Column(f"{word.capitalize()} rows"),
        *(Column(label, "%") for label in means),
    ]
    columns += [Column("Groups", words=True)] if groups else []
    rows = []
    for k in clients:
        accuracies = [_percent(method.accuracy[k]) for method in means.values()]
        group = [nonbreaking(groups[k])] if groups else []
        rows.append(
            [
                comparison.federation.names[k],
                count_text(first.train[k]),
                count_text(first.rows[k]),
                *accuracies,
                *group,
            ]
        )
    seeds = means_words(len(comparison.seeds))
    caption = f"The {word} accuracy of every client under each method{seeds}."
    return grid(caption, columns, rows, kind="compact", clients=True)


def _percent(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else UNDEFINED


def client_section(comparison: Comparison, focus: Focus) -> Html:
    """The clients with the lowest accuracy under each method; the list of the leading method is
    open.
    """
    word = SPLIT_WORDS[focus.split]
    seeds = means_words(len(comparison.seeds))
    intro = (
        f"The clients with the lowest {word} accuracy{seeds}. “Chance allows” is Wilson's 95 %"
        f" interval for that many {word} rows: where it is wide, the client may be served better"
        " than it looks."
    )
    if focus.hidden:
        intro += (
            f" {len(focus.hidden):,} of {comparison.federation.clients:,} clients are not named,"
            " because they have too few people or would reveal a client that does."
        )
    order = [focus.lead, *(label for label in focus.series if label != focus.lead)]
    parts = [_clients(comparison, label, focus) for label in order]
    return section(
        "clients",
        "Worst-served clients",
        element("p", None, intro),
        *parts,
        *client_table(comparison, focus),
    )


def _clients(comparison: Comparison, label: str, focus: Focus) -> Html:
    """The worst-served clients of one method, with their accuracy under the baseline or, for the
    baseline, under the leading method.
    """
    other = focus.baseline if label != focus.baseline else focus.lead
    few = comparison.federation.clients - len(focus.hidden) < NAMED
    limit = NAMED if few else MOST_CLIENTS
    worst = worst_clients(
        comparison, label, other, limit=limit, split=focus.split, hidden=focus.hidden
    )
    if not worst:
        nobody = (
            "Every client with test rows is hidden." if focus.hidden else "No client has test rows."
        )
        return details(f"Under {label}", paragraph(nobody), opened=label == focus.lead)
    # of few clients the table of all has them
    groups = [] if few else client_groups(comparison, focus.least)
    rates = _rates(comparison, label, focus)
    columns = [
        Column("Client"),
        Column("Training rows"),
        Column(f"{SPLIT_WORDS[focus.split].capitalize()} rows"),
    ]
    columns += [Column("Accuracy", "%"), Column("Chance allows", "%")]
    columns += (
        [Column("True positive rate", "%"), Column("False positive rate", "%")] if rates else []
    )
    columns += [Column(f"With {other}", "%")] if other != label else []
    columns += [Column("Groups", words=True)] if groups else []
    group = [[nonbreaking(groups[client.number])] if groups else [] for client in worst]
    rows = [
        [*_client(client, other != label, rates), *words]
        for client, words in zip(worst, group, strict=True)
    ]
    return details(
        f"Under {label}",
        grid(f"Worst served by {label}.", columns, rows, kind="compact"),
        opened=label == focus.lead,
    )


def _rates(comparison: Comparison, label: str, focus: Focus) -> ClientRates | None:
    """With two labels, the clients' true and false positive rates."""
    if len(comparison.federation.labels) != 2 or not has_labels(comparison):
        return None
    return client_rates(comparison, label, focus.split, focus.hidden, focus.least)


def _client(client: WorstClient, compared: bool, rates: ClientRates | None) -> list[str | Entry]:
    cells: list[str | Entry] = [
        client.name,
        count_text(client.train),
        count_text(client.rows),
        f"{client.accuracy:.1f}",
    ]
    cells.append(f"{client.low:.0f} to {client.high:.0f}")
    cells += [rate_entry(float(rate[client.number])) for rate in rates] if rates else []
    return cells + ([_percent(client.other_accuracy)] if compared else [])
