"""The sections of the page that are words and tables."""

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.metrics import METRICS
from evenly.report.choice import MethodChoice
from evenly.report.disclosure import client_groups
from evenly.report.html import Column, Entry, Html, element, grid, section, unbroken
from evenly.report.tables import folded, key_of, method_table, title_of
from evenly.report.trust import Revealed, deployed_words, revealed
from evenly.report.values import (
    MAIN_METRICS,
    NAMED,
    SPLIT_WORDS,
    UNDEFINED,
    Client,
    ClientRates,
    Values,
    client_rates,
    headline,
    known_of,
    served,
    table_of,
    worst_clients,
)
from evenly.report.words import against, noise_note
from evenly.report.worst_served import labels_known, rate_entry

# Every client under every method in one table, where there are few enough of them to look through.

MOST = 200
FILTER = {"type": "search", "id": "filter-clients", "placeholder": "part of a name", "autocomplete": "off"}


def client_table(comparison: Comparison, choice: MethodChoice) -> list[Html]:
    """The clients in their own order, means over seeds; nothing with very many of them, or where one is all there is."""
    found = {label: served(comparison, label, choice.split) for label in choice.coloured}
    first = found[choice.baseline]
    shown = [k for k in np.flatnonzero(np.isfinite(first.accuracy)).tolist() if k not in choice.hidden]
    if not 1 < len(shown) <= MOST:
        return []
    groups, word = client_groups(comparison, choice.least), SPLIT_WORDS[choice.split]
    columns = [Column("Client"), Column("Training rows"), Column(f"{word.capitalize()} rows"), *(Column(label, "%") for label in found)]
    columns += [Column("Groups", words=True)] if groups else []
    rows = [
        [
            comparison.federation.names[k],
            f"{first.train[k]:,.0f}",
            f"{first.rows[k]:,.0f}",
            *(_percent(own.accuracy[k]) for own in found.values()),
            *([unbroken(groups[k])] if groups else []),
        ]
        for k in shown
    ]
    name = element("label", {"for": "filter-clients"}, "Filter the clients")
    status = element("output", {"id": "filter-clients-status", "class": "soft", "for": "filter-clients", "aria-live": "polite"})
    search = element("div", {"class": "controls", "role": "search"}, name, element("input", FILTER), status)
    table = grid(f"The {word} accuracy of every client under each method, means over seeds.", columns, rows, kind="compact", clients=True)
    if len(shown) < NAMED:
        return [table]
    # On paper it would be pages long, and cannot be searched.
    return [element("details", {"class": "screen"}, element("summary", None, f"Every client ({len(shown)})"), search, table)]


def _percent(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else UNDEFINED


# The sections of the page that are words and tables.

MOST_CLIENTS = 10
MOST_TOGETHER = 2  # names in one entry
MANY = 6  # methods from which on a filter helps


def results(comparison: Comparison, values: Values, choice: MethodChoice) -> Html:
    """The table; with many methods the coloured ones first and all of them behind a click."""
    shown = {label: values[label] for label in choice.coloured}
    everything = table_of(values, metrics=_columns(values))
    rows = tuple(row for row in everything.rows if row.label in shown)
    parts = [
        *_filter(values),
        method_table(everything._replace(rows=rows), f"After {comparison.rounds:,} rounds, {_where(values, choice)}."),
    ]
    parts.append(key_of(everything, "Accuracies in percent, variances in percent squared. "))
    note = noise_note(values, choice, _median_rows(comparison, choice))
    if note:
        parts.append(element("aside", None, element("strong", None, f"Small {SPLIT_WORDS[choice.split]} sets. "), unbroken(note)))
    parts += _each(comparison, values, choice)
    if len(rows) < len(values):
        parts.append(folded(f"All {len(values)} methods", method_table(everything, "Every method, the same columns.")))
    if not known_of(values, MAIN_METRICS):
        return section("results", "Results", *parts)
    others = table_of(values if len(values) <= 40 else shown, metrics=[name for name in METRICS if name not in _columns(values)])
    parts.append(
        folded("More metrics", method_table(others, "Further measures of how evenly the clients are served.", kind="wide"), _formulas())
    )
    return section("results", "Results", *parts)


def _filter(values: Values) -> list[Html]:
    """A field that filters the methods of every table and of the front, where there are many."""
    if len(values) < MANY:
        return []
    tip = {"type": "search", "id": "filter-methods", "placeholder": "e.g. q-fedavg -q=5", "autocomplete": "off"}
    words = element("label", {"for": "filter-methods"}, f"Filter the {len(values)} methods by name")
    status = element("output", {"id": "filter-methods-status", "class": "soft", "for": "filter-methods", "aria-live": "polite"})
    return [element("div", {"class": "controls", "role": "search"}, words, element("input", tip), status)]


def _columns(values: Values) -> tuple[str, ...]:
    """The accuracy on the central test set where only that is held out, and what is known of the clients."""
    if headline(values) != CENTRAL:
        return MAIN_METRICS
    # There is room for one column less of the clients: the average of clients is kept among the other metrics.
    return (CENTRAL, *(name for name in MAIN_METRICS if name != "average_devices" and known_of(values, (name,))))


def _where(values: Values, choice: MethodChoice) -> str:
    own = f"on the clients' own {SPLIT_WORDS[choice.split]} rows"
    if headline(values) != CENTRAL:
        return own
    return "on the central test set" + (f" (first column) and {own}" if known_of(values, MAIN_METRICS) else "")


def _each(comparison: Comparison, values: Values, choice: MethodChoice) -> list[Html]:
    """The other methods in words; the leading one has the opening."""
    others = [label for label in choice.coloured if label not in (choice.baseline, choice.lead)]
    if not others:
        return []
    items = [element("li", None, unbroken(against(values, choice.baseline, label, choice.split))) for label in others]
    words = [element("h3", None, "The other methods"), element("ul", {"class": "words"}, *items)]
    if len(comparison.seeds) > 1:
        link = element("a", {"href": "#chance"}, "what stays clear")
        words.append(
            element("p", {"class": "soft"}, "Each is judged on its own. Of many comparisons some look clear by chance: see ", link, ".")
        )
    return words


def _median_rows(comparison: Comparison, choice: MethodChoice) -> float:
    rows = served(comparison, choice.baseline, choice.split).rows
    return float(np.median(rows[rows > 0])) if (rows > 0).any() else 0.0


def _formulas() -> Html:
    rows = [(title_of(m.title), m.name, m.formula, m.range) for m in METRICS.values()]
    columns = [Column("Metric"), Column("In results.csv", words=True), Column("Formula", words=True), Column("Range", words=True)]
    return grid("How they are computed: aₖ is a client's accuracy, nₖ its rows, m the number of clients.", columns, rows)


def worst_served(comparison: Comparison, choice: MethodChoice) -> Html:
    """The clients that each method fails, by name; the leading method's list is open."""
    word = SPLIT_WORDS[choice.split]
    intro = (
        f"The clients with the lowest {word} accuracy, means over seeds. The range behind an accuracy is what chance alone allows "
        f"with that many {word} rows (Wilson's 95 % interval): where it is wide, the client may be served better than it looks."
    )
    if choice.hidden:
        intro += f" {len(choice.hidden):,} of {comparison.federation.clients:,} clients are not named: too few people."
    order = [choice.lead, *(label for label in choice.coloured if label != choice.lead)]
    parts = [_clients(comparison, label, choice) for label in order]
    return section("clients", "Worst-served clients", element("p", None, intro), *parts, *client_table(comparison, choice))


def _clients(comparison: Comparison, label: str, choice: MethodChoice) -> Html:
    other = choice.baseline if label != choice.baseline else choice.lead
    few = comparison.federation.clients - len(choice.hidden) < NAMED
    limit = NAMED if few else MOST_CLIENTS
    found = worst_clients(comparison, label, other, limit=limit, split=choice.split, hidden=choice.hidden)
    groups = [] if few else client_groups(comparison, choice.least)  # of few clients the table of all has them
    rates = _rates(comparison, label, choice)
    tested = Column(f"{SPLIT_WORDS[choice.split].capitalize()} rows")
    columns = [Column("Client"), Column("Training rows"), tested, Column("Accuracy", "%"), Column("Chance allows", "%")]
    columns += [Column("True positive rate", "%"), Column("False positive rate", "%")] if rates else []
    columns += [Column(f"With {other}", "%")] if other != label else []
    columns += [Column("Groups", words=True)] if groups else []
    rows = [[*_client(client, other != label, rates), *([unbroken(groups[client.number])] if groups else [])] for client in found]
    nobody = "No client has test rows." if not choice.hidden else "Every client with test rows is hidden: too few people."
    table = grid(f"Worst served by {label}.", columns, rows, kind="compact") if rows else element("p", None, nobody)
    open_ = {"open": ""} if label == choice.lead else {}
    return element("details", open_, element("summary", None, f"Under {label}"), table)


def _rates(comparison: Comparison, label: str, choice: MethodChoice) -> ClientRates | None:
    """With two labels, the clients' true and false positive rates."""
    if len(comparison.federation.labels) != 2 or not labels_known(comparison):
        return None
    return client_rates(comparison, label, choice.split, choice.hidden, choice.least)


def _client(client: Client, compared: bool, rates: ClientRates | None) -> list[str | Entry]:
    cells: list[str | Entry] = [client.name, _count(client.train), _count(client.rows), f"{client.accuracy:.1f}"]
    cells.append(f"{client.low:.0f} to {client.high:.0f}")
    cells += [rate_entry(float(rate[client.number])) for rate in rates] if rates else []
    return cells + ([f"{client.elsewhere:.1f}" if np.isfinite(client.elsewhere) else UNDEFINED] if compared else [])


def _count(rows: float) -> str:
    return f"{rows:,.0f}" if rows == round(rows) else f"{rows:,.1f}"


def privacy(comparison: Comparison) -> Html:
    """What each method makes clients reveal."""
    intro = (
        "Besides its update, a client that takes part in a round tells the server the following: what its weight depends on and, where "
        "clients are not drawn blindly, what the choice of clients depends on. The latter is told once: a few bytes, which are not counted "
        "in what it sends."
    )
    columns = [Column("Method"), Column("It reveals", words=True), Column("It sends"), Column("It receives")]
    rows = [_reveals(own, name) for name, own in _alike(comparison).items()]
    more = [element("li", None, text) for text in deployed_words(comparison)]
    also = [element("p", None, "This is a deployment, so that the server is also told:"), element("ul", {"class": "words"}, *more)]
    table = grid("Per client and round.", columns, rows)
    return section("privacy", "What clients reveal", element("p", None, intro), table, *(also if more else ()))


def _alike(comparison: Comparison) -> dict[str, Revealed]:
    """What is revealed, by method; settings of one method that reveal the same are one entry."""
    found: dict[tuple[object, ...], list[Revealed]] = {}
    for label in comparison.labels:
        own = revealed(comparison, label)
        found.setdefault((comparison.of(label)[0].algorithm, own.needs, own.upload, own.download), []).append(own)
    return {_together([own.label for own in alike]): alike[0] for alike in found.values()}


def _together(labels: list[str]) -> str:
    return ", ".join(labels) if len(labels) <= MOST_TOGETHER else f"{labels[0]} and {len(labels) - 1} more settings of it"


def _reveals(found: Revealed, name: str) -> list[str]:
    if found.needs is None:
        words = element("span", None, "not known: the method is not in the registry")
    elif not found.needs:
        words = element("span", None, "nothing more")
    else:
        words = element("ul", None, *(element("li", None, text) for text in found.words))
    return [name, words, size_text(found.upload), size_text(found.download)]


def size_text(size: float) -> str:
    """Bytes in words; "n/a" where nothing was recorded."""
    if not np.isfinite(size):
        return UNDEFINED
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} bytes"
