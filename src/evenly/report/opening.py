"""The top of the page: whom the model serves worst, what the compared methods change, and the three numbers that matter most."""

from collections.abc import Sequence

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.experiment.results import Comparison
from evenly.report.by_group import rows_shown, with_groups
from evenly.report.choice import Choice
from evenly.report.facts import divergence
from evenly.report.group_summary import summarise_groups
from evenly.report.hiding import MANY
from evenly.report.markup import Html, element, join, unbroken
from evenly.report.method_table import title_of as title_of_metric
from evenly.report.summary import summarise
from evenly.report.table import COLUMNS, UNDEFINED, Values, difference, format_value, headline, known_of, over_seeds
from evenly.report.whom import sentences, whom_table
from evenly.report.worst_served import whom_of

KICKER = "how evenly a federated model serves its clients"
NOTES = "As planned; how this page's results were made is under Settings and Data."
WHOSE = {"worst10": " of clients", "variance": " between clients"}  # after a metric's title


def opening(comparison: Comparison, values: Values, choice: Choice) -> Html:
    """Title, whom the first method serves worst, what the others change, and what the experiment's file says about it."""
    whom = whom_of(comparison, values, choice)
    lead = [] if whom is None else [*lead_of(sentences(whom)), whom_table(whom)]
    header = element(
        "header",
        None,
        element("p", {"class": "kicker"}, f"evenly · {comparison.name if comparison.title else KICKER}"),
        element("h1", None, title_of(comparison)),
        *lead[:-1],
        *_diverged(comparison),
        *lead[-1:],
        *_without_some(comparison.federation.clients, len(choice.hidden)),
        *_changes(comparison, values, choice, single=whom is not None),
    )
    return join([header, *_notes(comparison.notes)])  # the header is a page of its own on paper


def title_of(comparison: Comparison) -> str:
    """The experiment's own title or, where it has none, the data and the question."""
    methods, data = comparison.labels, comparison.federation.name
    question = (
        f"which of {len(methods)} methods serves clients most evenly?" if len(methods) > 1 else f"whom does {methods[0]} serve worst?"
    )
    return comparison.title or f"{data[:1].upper()}{data[1:]}: {question}"


def lead_of(said: Sequence[str]) -> list[Html]:
    """The first sentence stands out; whom the model serves worst follows in the same breath."""
    first, *rest = said
    return [
        element("p", {"class": "lead"}, unbroken(first)),
        *([element("p", {"class": "next"}, unbroken(" ".join(rest)))] if rest else []),
    ]


def _diverged(comparison: Comparison) -> list[Html]:
    found = divergence(comparison)
    return [element("aside", None, *(element("p", None, unbroken(text)) for text in found))] if found else []


def _changes(comparison: Comparison, values: Values, choice: Choice, *, single: bool) -> list[Html]:
    """What the compared methods change, for clients and for groups, in words and in numbers."""
    summary = summarise(values, choice)
    known = known_of({choice.baseline: values[choice.baseline]}, (headline(values), "worst10", "variance"))
    tiles = [element("div", {"class": "tiles"}, *(_tile(values, choice, metric) for metric in known))] if known else []
    groups = summarise_groups(with_groups(comparison, values, choice.least), choice, rows_shown(comparison))
    words = {"next": summary.finding, "soft": summary.cautions}, {"next": groups.finding, "soft": groups.cautions}
    head = "What the methods change" if len(values) > 1 else "How evenly it serves them"
    said = [element("p", {"class": kind}, unbroken(text)) for pair in words for kind, text in pair.items() if text]
    return [*([element("h2", None, head)] if single else []), *said, *tiles]


def _without_some(clients: int, hidden: int) -> list[Html]:
    """Small clients are often those that are served worst, so a page without them may look better than the results are."""
    if not 0 < hidden <= MANY:
        return []
    link = element("a", {"href": "#hidden"}, "not shown")
    text = f": figures and charts over clients are of the other {clients - hidden:,}, and can differ much from those over all."
    return [element("aside", None, element("strong", None, f"{hidden:,} of {clients:,} clients"), " are ", link, text)]


def _notes(notes: str) -> list[Html]:
    paragraphs = [element("p", None, unbroken(text)) for text in map(str.strip, notes.split("\n\n")) if text]
    head = element("summary", None, "About the experiment"), element("p", {"class": "soft"}, NOTES)
    return [element("details", {"class": "later"}, *head, *paragraphs)] if paragraphs else []


def _tile(values: Values, choice: Choice, name: str) -> Html:
    metric = COLUMNS[name]
    unit = "" if name == "variance" else " %"
    before, after = (
        _with_unit(format_value(over_seeds(values, label, name).mean, metric), unit) for label in (choice.baseline, choice.lead)
    )
    rows = "" if choice.split == "test" or name == CENTRAL else ", validation rows"
    parts = [element("h2", None, f"{title_of_metric(metric.title)}{WHOSE.get(name, '')}{rows}")]
    if choice.lead == choice.baseline:
        return element("div", {"class": "tile"}, *parts, element("p", {"class": "number"}, after))
    arrow = element("span", {"class": "soft"}, f"{before} ", element("span", {"aria-label": "to"}, "→"), " ")
    change = difference(values, choice.lead, choice.baseline, name)
    low, high = (_signed(format_value(change.mean + side * change.half_width, metric)) for side in (-1, 1))
    interval = (
        f"change: {low} to {high} (95 % interval)"
        if np.isfinite(change.half_width)
        else f"change: {_signed(format_value(change.mean, metric))}"
    )
    return element(
        "div",
        {"class": "tile"},
        *parts,
        element("p", {"class": "number"}, arrow, element("strong", None, after)),
        element("p", {"class": "soft"}, f"{choice.baseline} to {choice.lead}"),
        element("p", {"class": "soft"}, interval),
    )


def _with_unit(text: str, unit: str) -> str:
    return text if text == UNDEFINED else f"{text}{unit}"


def _signed(text: str) -> str:
    unsigned = text == UNDEFINED or not text.strip("0.")
    return text.replace("-", "−") if unsigned or text.startswith("-") else f"+{text}"
