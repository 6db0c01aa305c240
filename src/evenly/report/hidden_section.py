"""The section on what is not shown, and why."""

from evenly.experiment.results import Comparison
from evenly.report.by_group import groupings, rows_shown
from evenly.report.choice import Choice
from evenly.report.disclosure import Hidden, hidden_words
from evenly.report.hiding import MANY, hidden_clients, hidden_groups, withheld_client_metrics
from evenly.report.markup import Html, element, section, unbroken

WHY = (
    "What rests on fewer than {least} people is hidden, so that nobody's outcome can be read off a small number. Where a total would "
    "give a hidden number away, the smallest other one is hidden too, and metrics made of hidden ones are withheld. Figures over clients "
    "leave hidden clients out"
)
KEPT = f", unless more than {MANY} are hidden, as here: so many cannot be solved for."


def hidden_section(comparison: Comparison, choice: Choice) -> Html:
    """Nothing where nothing was asked to be hidden."""
    if choice.least < 2:
        return Html("")
    items = [hidden_words([hidden_clients(comparison, choice.split, choice.least)], choice.least, what="client", whom="rows")]
    if withheld := withheld_client_metrics(comparison, choice.split, choice.hidden, choice.least):
        items.append(f"Withheld, because a hidden client could be read off: {', '.join(sorted(withheld))}.")
    for grouping in groupings(comparison.federation):
        found = hidden_groups(comparison, rows_shown(comparison), choice.least, grouping.attribute)
        cells = Hidden(found.cells[:, 1:], found.small[:, 1:], {})
        items.append(_of(grouping.title, hidden_words([Hidden(found.cells[:, 0], found.small[:, 0], {})], choice.least, what="group")))
        items.append(_of(grouping.title, hidden_words([cells], choice.least, what="rate of a group by label")))
        if found.withheld:
            items.append(_of(grouping.title, f"withheld: {', '.join(sorted(found.withheld))}."))
    told = [element("li", None, unbroken(text)) for text in items if text] or [element("li", None, "Nothing had to be hidden.")]
    intro = element("p", None, WHY.format(least=choice.least) + (KEPT if len(choice.hidden) > MANY else "."))
    return section("hidden", "What is not shown", intro, element("ul", {"class": "words"}, *told))


def _of(title: str, words: str) -> str:
    return f"By {title}: {words}" if words else ""
