"""The section with the results table: the methods, what is best, and how far chance explains the
variance.
"""

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.metrics import METRICS
from evenly.report.charts.focus import Focus
from evenly.report.html import (
    Column,
    Html,
    bullets,
    details,
    element,
    grid,
    nonbreaking,
    search_field,
    section,
    sentence_case,
)
from evenly.report.method_table import key_of, method_table
from evenly.report.opening import against, noise_note
from evenly.report.values import (
    MAIN_METRICS,
    SPLIT_WORDS,
    Values,
    client_means,
    defined_metrics,
    headline,
    table_of,
)

MOST_METHODS = 40  # in the table of further metrics
MANY = 6  # methods from which on a filter helps


def results_section(comparison: Comparison, values: Values, focus: Focus) -> Html:
    """The results table. With many methods, the coloured ones come first, and a second table has
    all.
    """
    shown = {label: values[label] for label in focus.series}
    everything = table_of(values, metrics=_columns(values))
    rows = tuple(row for row in everything.rows if row.label in shown)
    main = method_table(
        everything._replace(rows=rows),
        f"After {comparison.rounds:,} rounds, {_where(values, focus)}.",
    )
    parts = [
        *_filter(values),
        main,
        key_of(everything, "Accuracies in percent, variances in percent squared. "),
    ]
    if note := noise_note(values, focus, _median_rows(comparison, focus)):
        parts.append(
            element(
                "aside",
                None,
                element("strong", None, f"Small {SPLIT_WORDS[focus.split]} sets. "),
                nonbreaking(note),
            )
        )
    parts += _each(comparison, values, focus)
    if len(rows) < len(values):
        parts.append(
            details(
                f"All {len(values)} methods",
                method_table(everything, "Every method, the same columns."),
            )
        )
    if defined_metrics(values, MAIN_METRICS):
        others = table_of(
            values if len(values) <= MOST_METHODS else shown,
            metrics=[m for m in METRICS if m not in _columns(values)],
        )
        further = method_table(
            others, "Further measures of how evenly the clients are served.", kind="wide"
        )
        parts.append(details("More metrics", further, _formulas()))
    return section("results", "Results", *parts)


def _filter(values: Values) -> list[Html]:
    """A search field for methods, if there are many."""
    if len(values) < MANY:
        return []
    return [
        search_field(
            "filter-methods", f"Filter the {len(values)} methods by name", "e.g. q-fedavg -q=5"
        )
    ]


def _columns(values: Values) -> tuple[str, ...]:
    """The metrics of the table: with the accuracy on the central test set, if only that is held
    out.
    """
    if headline(values) != CENTRAL:
        return MAIN_METRICS
    # There is room for one column less of the clients: the average of clients is kept among the
    # other metrics.
    return (
        CENTRAL,
        *(
            name
            for name in MAIN_METRICS
            if name != "average_devices" and defined_metrics(values, (name,))
        ),
    )


def _where(values: Values, focus: Focus) -> str:
    own = f"on the clients' own {SPLIT_WORDS[focus.split]} rows"
    if headline(values) != CENTRAL:
        return own
    return "on the central test set" + (
        f" (first column) and {own}" if defined_metrics(values, MAIN_METRICS) else ""
    )


def _each(comparison: Comparison, values: Values, focus: Focus) -> list[Html]:
    """The methods other than the leading one, in words."""
    others = [label for label in focus.series if label not in (focus.baseline, focus.lead)]
    if not others:
        return []
    items = [against(values, focus.baseline, label, focus.split) for label in others]
    words = [element("h3", None, "The other methods"), bullets(items)]
    if len(comparison.seeds) > 1:
        link = element("a", {"href": "#chance"}, "what stays clear")
        words.append(
            element(
                "p",
                {"class": "soft"},
                "Each is judged on its own. Of many comparisons some look clear by chance: see ",
                link,
                ".",
            )
        )
    return words


def _median_rows(comparison: Comparison, focus: Focus) -> float:
    rows = client_means(comparison, focus.baseline, focus.split).rows
    return float(np.median(rows[rows > 0])) if (rows > 0).any() else 0.0


def _formulas() -> Html:
    rows = [(sentence_case(m.title), m.name, m.formula, m.range) for m in METRICS.values()]
    columns = [
        Column("Metric"),
        Column("In results.csv", words=True),
        Column("Formula", words=True),
        Column("Range", words=True),
    ]
    return grid(
        "How they are computed: aₖ is a client's accuracy, nₖ its rows, m the number of clients.",
        columns,
        rows,
    )
