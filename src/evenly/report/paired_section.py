"""The section on chance: every method against the baseline, seed by seed, corrected for how many
comparisons there are.
"""

import math
from typing import NamedTuple

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.comparison import Comparison
from evenly.metrics import Metric, Paired, holm, paired, t_quantile
from evenly.metrics.statistics import LEVEL
from evenly.report.charts.focus import Focus
from evenly.report.html import (
    Column,
    Html,
    bullets,
    details,
    element,
    grid,
    join,
    nonbreaking,
    paragraph,
    section,
    sentence_case,
)
from evenly.report.values import (
    COLUMNS,
    UNDEFINED,
    Values,
    defined_metrics,
    format_value,
    headline,
    signed,
)

COMPARED = ("worst10", "variance", "gini", "eod_abs", "spd_abs")
SHORT = 8  # methods up to which the first table is open
MOST_NAMED = 5
FEW = 5
SAME_DATA = (
    "All seeds use the same data and draw the split, the initial model, the cohorts and the batches"
    " anew. A small p value therefore says that a difference would reappear when training again on"
    " these data, not that it would on other data."
)


class PairedLine(NamedTuple):
    """One method's difference from the baseline in one metric."""

    label: str
    change: Paired
    corrected: float  # p after Holm's correction over all lines


def paired_section(comparison: Comparison, values: Values, focus: Focus) -> Html:
    """The section on chance; empty without a second method. `values` holds metrics of clients and,
    if there are groups, of groups.
    """
    if len(values) < 2:
        return Html("")
    metrics = defined_metrics(values, (headline(values), *COMPARED))
    found = compare_all(values, focus.baseline, metrics)
    seeds = max((line.change.seeds for lines in found.values() for line in lines), default=0)
    title = "Is it more than chance?"
    if seeds < 2:
        text = (
            "There is one seed, so there are no intervals and no p values. A difference may vanish"
            " or change its sign with another seed. Use at least five seeds to compare methods."
        )
        return section("chance", title, element("p", None, text))
    count = sum(math.isfinite(line.change.p) for lines in found.values() for line in lines)
    words = [
        power_words(seeds, len(comparison.seeds)),
        f"{SAME_DATA} {_method_words(focus.baseline, count)}",
    ]
    tables = [
        _table(metric, lines, focus.baseline, i == 0 and len(lines) <= SHORT)
        for i, (metric, lines) in enumerate(found.items())
    ]
    return section("chance", title, *map(paragraph, words), _clear(found), *tables)


def compare_all(
    values: Values, baseline: str, metrics: tuple[str, ...]
) -> dict[str, list[PairedLine]]:
    """For each metric, every method against the baseline. p values are corrected over all methods
    and metrics together.
    """
    changes = {
        (m, label): paired(_differences(values, label, baseline, m))
        for m in metrics
        for label in values
        if label != baseline
    }
    corrected = dict(zip(changes, holm([change.p for change in changes.values()]), strict=True))
    return {
        m: [
            PairedLine(label, changes[m, label], float(corrected[m, label]))
            for label in values
            if label != baseline
        ]
        for m in metrics
    }


def _differences(values: Values, label: str, baseline: str, metric: str) -> list[float]:
    return [
        own[metric] - values[baseline][seed][metric]
        for seed, own in values[label].items()
        if seed in values[baseline]
    ]


def power_words(seeds: int, planned: int) -> str:
    """How large a difference must be to be detected with this many seeds."""
    least = t_quantile(seeds - 1) / math.sqrt(seeds)
    of = f"{seeds} seeds" if seeds == planned else f"at most {seeds} of {planned} seeds"
    reach = (
        f"a mean difference must exceed {least:.1f} of its own standard deviations to be"
        " distinguished from 0, before any correction"
    )
    if seeds < FEW:
        return (
            f"With {of} these tests are weak: {reach}. What is not clear here may still be real;"
            " what is clear is large or very regular."
        )
    return f"With {of}, {reach}."


def _method_words(baseline: str, count: int) -> str:
    return (
        f"Every method is compared with {baseline} seed by seed (Student's t test of the"
        " differences, two-sided, or a test of their signs where all are alike; the former takes"
        " them to be roughly normal, which so few numbers cannot show). The p values are corrected"
        f" by Holm's method for all {count:,} comparisons of this section: if no method differed at"
        " all, the probability that anything here were called clear would be at most 5 %."
    )


def _clear(found: dict[str, list[PairedLine]]) -> Html:
    """The differences that are clear after the correction, in words."""
    items = []
    for metric, lines in found.items():
        clear = [
            f"{line.label} ({verdict(COLUMNS[metric], line)})"
            for line in lines
            if line.corrected < LEVEL
        ]
        more = [f"and {len(clear) - MOST_NAMED} more"] if len(clear) > MOST_NAMED else []
        items += [f"{_name(metric)}: {', '.join([*clear[:MOST_NAMED], *more])}."] if clear else []
    if not items:
        return element(
            "p", None, element("strong", None, "No difference is clear after the correction.")
        )
    return join(
        [element("p", None, element("strong", None, "Clear after the correction:")), bullets(items)]
    )


def _name(metric: str) -> str:
    return (
        "Accuracy on the central test set"
        if metric == CENTRAL
        else sentence_case(COLUMNS[metric].title)
    )


def _table(key: str, lines: list[PairedLine], baseline: str, opened: bool) -> Html:
    columns = [
        Column("Method"),
        Column("Difference", f"from {baseline}"),
        Column("95 % interval", "this comparison alone"),
        Column("p", "this comparison alone"),
        Column("p, corrected", "Holm"),
        Column("Effect", "in deviations"),
        Column("Seeds"),
        Column("In words", words=True),
    ]
    name, metric = _name(key), COLUMNS[key]
    clear = sum(line.corrected < LEVEL for line in lines)
    summary = f"{name}: {clear} of {len(lines)} clearly different"
    table = grid(
        f"{name}, each method less {baseline}.",
        columns,
        [_row(metric, line) for line in lines],
        kind="compact",
        methods=True,
    )
    return details(nonbreaking(summary), table, opened=opened)


def _row(metric: Metric, line: PairedLine) -> list[str]:
    change = line.change
    ends = [
        signed(format_value(change.difference + side * change.half_width, metric))
        for side in (-1, 1)
    ]
    return [
        line.label,
        signed(format_value(change.difference, metric)),
        _whole(" to ".join(ends)) if math.isfinite(change.half_width) else _alike(change.effect),
        _whole(p_text(change.p)),
        _whole(p_text(line.corrected)),
        _effect(change.effect),
        str(change.seeds),
        verdict(metric, line),
    ]


def _whole(text: str) -> Html:
    return element("span", {"class": "nowrap"}, text)


def verdict(metric: Metric, line: PairedLine) -> str:
    """The conclusion of a line in words."""
    change = line.change
    if not np.isfinite([change.p, line.corrected]).all():
        return "not known"
    if change.p >= LEVEL:
        return "may be chance"
    if line.corrected >= LEVEL:
        return "may be chance, among so many comparisons"
    good = change.difference * metric.better > 0
    return f"clearly {'higher' if change.difference > 0 else 'lower'}" + (
        "" if not metric.better else ": better" if good else ": worse"
    )


def p_text(p: float) -> str:
    """A p value as text, with two to four decimals.

    >>> p_text(0.03141), p_text(0.5), p_text(1e-9)
    ('0.031', '0.50', '< 0.0001')
    """
    if not math.isfinite(p):
        return UNDEFINED
    if p < 1e-4:
        return "< 0.0001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.3f}" if p >= 0.001 else f"{p:.4f}"


def _effect(effect: float) -> str:
    return signed(f"{effect:.1f}") if math.isfinite(effect) else _alike(effect)


def _alike(effect: float) -> str:
    """The text where there is no number: all seeds differ by the same amount, or there is
    one seed.
    """
    return "all alike" if math.isinf(effect) else UNDEFINED
