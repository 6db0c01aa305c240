"""The short form of a report, for terminals and notebooks: the main figures, whom a model serves
worst, and warnings.
"""

from collections.abc import Sequence
from html import escape

from evenly.data.sides import unprivileged_words
from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.metrics import METRICS
from evenly.notation import unknown
from evenly.report.charts.focus import choose_focus
from evenly.report.group_values import group_split, with_groups
from evenly.report.setup_sections import divergence
from evenly.report.trust_sections import absence
from evenly.report.values import (
    COLUMNS,
    SPLIT_WORDS,
    Table,
    client_split,
    defined_metrics,
    final_values,
    headline,
    idle_words,
    spread_words,
    table_of,
)
from evenly.report.worst_served import sentences, whom_of

# Few columns: the table must fit into eighty characters.
SHOWN = ("average", "worst10", "variance", "variance_noise")
WITH_GROUPS = ("average", "worst10", "eod_abs", "spd_abs")
# Where only a central test set is held out, the accuracy on it takes the place of the column that
# is missed least.
WITH_CENTRAL = (CENTRAL, "average", "worst10", "variance")
WITH_BOTH = (CENTRAL, "worst10", "eod_abs", "spd_abs")


def main_table(comparison: Comparison, metrics: Sequence[str] = ()) -> tuple[Table, dict[str, str]]:
    """Return the main figures, or those of the given metrics, and the titles of their columns.

    For data with groups, two columns are differences between unprivileged and privileged people.
    """
    split = client_split(comparison)
    values = final_values(comparison, split)
    central, has_test_rows = (
        headline(values) == CENTRAL,
        bool(defined_metrics(values, SHOWN)),
    )
    shown = WITH_CENTRAL if central else SHOWN
    if len(comparison.federation.groups) > 1:
        values, shown = with_groups(comparison, values), WITH_BOTH if central else WITH_GROUPS
    if central and not has_test_rows:  # there are no figures of clients
        shown = tuple(name for name in shown if name not in METRICS)
    if metrics:
        present = set.intersection(
            *(set(seed) for seeds in values.values() for seed in seeds.values())
        ) & set(COLUMNS)
        for name in metrics:
            if name not in present:
                raise unknown("metric", name, present)
        shown = tuple(metrics)
    return table_of(values, metrics=shown, split=split), {
        name: COLUMNS[name].title for name in shown
    }


def table_title(comparison: Comparison, figures: Table, interval: str) -> str:
    """Return the title of a table: data, rows, rounds, and the groups that are compared."""
    federation = comparison.federation
    clients = (
        f"{SPLIT_WORDS[figures.split]} accuracy in percent of {_client_count(comparison)} clients"
    )
    clients += " (they have no test rows)" if figures.split == "valid" else ""
    if CENTRAL in figures.rows[0].cells:
        with_clients = any(name in SHOWN for name in figures.rows[0].cells)
        clients = "accuracy in percent on the central test set" + (
            f", and {clients}" if with_clients else ""
        )
    words = f"{clients} after {comparison.rounds:,} rounds; {interval}"
    if len(federation.groups) < 2:
        return f"{federation.name}: {words}"
    whose = "these" if comparison.registered else "all"
    rows = (
        "the central test set"
        if group_split(comparison) == CENTRAL
        else f"{whose} clients' {SPLIT_WORDS[figures.split]} rows"
    )
    label = federation.labels[federation.favourable]
    return (
        f"{federation.name}: {words}; groups on {rows}, unprivileged:"
        f" {unprivileged_words(federation)}, favourable: {label}"
    )


def _client_count(comparison: Comparison) -> str:
    evaluated, everyone = comparison.federation.clients, comparison.everyone.clients
    return f"{evaluated:,}" if evaluated == everyone else f"{evaluated:,} of {everyone:,}"


def whom_sentences(comparison: Comparison) -> list[str]:
    """The sentences that open the report: which clients and groups are served worst by the method
    that a search chose or, without a search, by the first method.
    """
    values = final_values(comparison, client_split(comparison))
    whom = whom_of(comparison, values, choose_focus(comparison, values))
    return [] if whom is None else sentences(whom)


def warning_sentences(comparison: Comparison) -> list[str]:
    """Warnings about the figures: clients that are missing in them, training that diverged, and
    rounds in which no client counted.
    """
    return [
        *absence(comparison),
        *divergence(comparison),
        *idle_words(comparison, comparison.labels),
    ]


# The short form as text and as HTML.

MOST = 20  # methods that are printed


def summary_text(comparison: Comparison) -> str:
    """The main figures as a table of text."""
    table, titles = main_table(comparison)
    rows = [["method", *titles.values()]]
    rows += [[row.label, *(cell.text for cell in row.cells.values())] for row in table.rows[:MOST]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    more = len(table.rows) - MOST
    lines += [f"... and {more} more methods"] if more > 0 else []
    data = f"{comparison.federation.name} ({comparison.everyone.clients:,} clients)"
    seeds = "1 seed" if len(comparison.seeds) == 1 else f"{len(comparison.seeds)} seeds"
    title = f"Results on {data}: {comparison.rounds:,} rounds, {seeds}"
    return "\n".join([title, "", *lines])


def summary_html(comparison: Comparison) -> str:
    """The main figures as an HTML table, and whom the first method serves worst."""
    table, titles = main_table(comparison)
    head = [
        _cell("th", title, first=i == 0) for i, title in enumerate(["method", *titles.values()])
    ]
    body = [
        [
            _cell("td", row.label, first=True),
            *(
                _cell("td", one.text, mark=BEST if one.best else NEAR if one.near else "")
                for one in row.cells.values()
            ),
        ]
        for row in table.rows
    ]
    marks = "Bold: best in its column." if len(table.rows) > 1 else ""
    marks += " Dotted: not clearly worse." if marks and table.seeds > 1 else ""
    notes = [" ".join(whom_sentences(comparison)), *warning_sentences(comparison), marks]
    rows = "".join(f"<tr>{''.join(cells)}</tr>" for cells in (head, *body))
    return (
        f"<div><p>{escape(table_title(comparison, table, spread_words(table.seeds)))}</p>"
        f'<table style="border-collapse:collapse">{rows}</table>'
        f"{''.join(f'<p>{escape(text)}</p>' for text in notes if text)}</div>"
    )


BEST, NEAR = "font-weight:bold", "text-decoration:underline dotted"


def _cell(kind: str, text: str, *, first: bool = False, mark: str = "") -> str:
    style = f"padding:2px 12px;text-align:{'left' if first else 'right'};{mark}"
    return f'<{kind} style="{style}">{escape(text)}</{kind}>'
