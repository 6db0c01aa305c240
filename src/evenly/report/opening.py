"""The top of the page: what was found, and the three numbers that matter most."""

import numpy as np

from evenly.experiment.results import Comparison
from evenly.federation import CENTRAL
from evenly.report.by_group import rows_shown, with_groups
from evenly.report.choice import Choice
from evenly.report.group_summary import summarise_groups
from evenly.report.hiding import MANY
from evenly.report.markup import Html, element, unbroken
from evenly.report.summary import summarise
from evenly.report.table import COLUMNS, UNDEFINED, Values, difference, format_value, headline, known_of, over_seeds

KICKER = "how evenly a federated model serves its clients"
NOTES = "As planned; how this page's results were made is under Settings and Data."
TILES = {
    CENTRAL: "Accuracy on the central test set",
    "average": "Average accuracy",
    "worst10": "Worst-served 10 % of clients",
    "variance": "Variance between clients",
}


def opening(comparison: Comparison, values: Values, choice: Choice) -> Html:
    """Title, what was found, the three numbers that matter most, and what the experiment's file says about it."""
    summary = summarise(values, choice)
    known = known_of({choice.baseline: values[choice.baseline]}, (headline(values), "worst10", "variance"))
    tiles = [element("div", {"class": "tiles"}, *(_tile(values, choice, metric) for metric in known))] if known else []
    groups = summarise_groups(with_groups(comparison, values, choice.least), choice, rows_shown(comparison))
    words = {"lead": summary.finding, "soft": summary.cautions}, {"lead": groups.finding, "soft": groups.cautions}
    return element(
        "header",
        None,
        element("p", {"class": "kicker"}, f"evenly · {comparison.name if comparison.title else KICKER}"),
        element("h1", None, comparison.title or comparison.name),
        *(element("p", {"class": kind}, unbroken(text)) for said in words for kind, text in said.items() if text),
        *_without_some(comparison.federation.clients, len(choice.hidden)),
        *tiles,
        *_notes(comparison.notes),
    )


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
    parts = [element("h2", None, f"{TILES[name]}{rows}")]
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
