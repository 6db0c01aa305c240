"""The page's section on groups: every sensitive column, then the intersections."""

import numpy as np

from evenly.auditing.by_client import ClientView
from evenly.auditing.by_group import AGAINST, RATES, GroupView
from evenly.auditing.charts import Dot, dots
from evenly.auditing.estimates import Estimate
from evenly.auditing.page_parts import Part, apart, figures, identifier, plain, rate, specs
from evenly.auditing.people import NO_VALUE
from evenly.auditing.result import Audit
from evenly.data.sensitive import FEW
from evenly.metrics import GROUP_METRICS
from evenly.report.html import Column, Entry, Figure, Html, element, grid, section, unbroken
from evenly.report.tables import folded, title_of

TITLES = {"accuracy": "Accuracy by group", "selection_rate": "Selection by group", "tpr": "TPR by group"}
MOST_DRAWN, MOST_LISTED = 20, 60  # groups: the largest
MOST_CLIENTS = 500
RANGES = ("acc_range", "spd_range", "eod_range", "odds_range")
WORST = ("worst_accuracy", "worst_tpr")
HINTS = {"selection_rate": "predicted favourable", "tpr": "of those labelled so", "fpr": "of those labelled otherwise"}


def group_section(audit: Audit) -> Part:
    views = [*audit.groups, *([audit.crossed] if audit.crossed is not None else [])]
    parts, found = [_key(audit)], []
    for number, view in enumerate(views):
        drawn = _figures(view, audit, number)
        parts += _view(view, drawn, audit)
        found += drawn
    return Part(section("groups", "How are groups of people served?", *parts), specs(found))


def _key(audit: Audit) -> Html:
    wanted = audit.about.favourable
    what = f"“Predicted favourable” means predicted “{wanted}”. " if wanted else ""
    text = (
        f"{what}Rates in percent with their 95 % intervals; * marks fewer than {FEW} people, where chance alone can move a rate far; "
        "– stands where there is nothing to divide by, or too few people to be shown."
    )
    return element("p", {"class": "soft"}, unbroken(text))


def _view(view: GroupView, drawn: list[Figure], audit: Audit) -> list[Html]:
    crossed = view is audit.crossed
    title = f"Intersections of {view.title}" if crossed else f"By {view.title}"
    parts = [element("h3", {"class": "later"}, title)]
    if not crossed:
        parts.append(_who(view))
    parts += [figures(drawn)] if drawn else []
    parts += [apart(_rates(view)), *([_against(view)] if view.against else []), _ranges(view), *_within(view, audit.clients)]
    return parts


def _who(view: GroupView) -> Html:
    g = view.unprivileged or 0
    why = "chosen because it is favoured least" if view.chosen else "as asked for"
    return element("p", {"class": "soft"}, f"Set against all others: “{view.names[g]}”, {why}. Below, every other value is as well.")


def _order(view: GroupView, most: int) -> list[int]:
    """The groups to show, in their own order: the largest of those with people that may be shown, then what is hidden."""
    largest = np.argsort(-view.rows, kind="stable")[:most]
    return sorted(largest.tolist())


def _figures(view: GroupView, audit: Audit, number: int) -> list[Figure]:
    order = [g for g in _order(view, MOST_DRAWN) if view.rows[g]]
    marked = "" if view.unprivileged is None else view.names[view.unprivileged]
    found = []
    for name, title in TITLES.items():
        rates = view.rates.get(name)
        if rates is None or sum(rates[g].known for g in order) < 2:
            continue
        chosen = [Dot(view.names[g], rates[g], marked=g == view.unprivileged) for g in order]
        chart = dots(chosen, title=title, unit=f"{RATES[name]} (%)", middle=audit.whole[name].value, what="Group", marked=marked)
        more = f" The {MOST_DRAWN} largest groups." if len(view.names) > MOST_DRAWN else ""
        caption = f"{_caption(name, audit.about.favourable)} The dashed line is everybody.{more}"
        found.append(Figure(identifier("groups", str(number), name.replace("_", "-")), chart, caption))
    return found


def _caption(name: str, favourable: str | None) -> str:
    return {
        "accuracy": "Predicted right, of all people of the group.",
        "selection_rate": f"Predicted “{favourable}”, of all people of the group.",
        "tpr": f"Predicted “{favourable}”, of the group's people with that label.",
    }[name]


def _rates(view: GroupView) -> Html:
    columns = [Column("Group"), Column("People"), *(Column(RATES[name], HINTS.get(name, "")) for name in view.rates)]
    rows = []
    for g in _order(view, MOST_LISTED):
        hidden = bool(view.veil.groups.cells[g])
        partly = hidden or bool(view.veil.labels.cells[g].any())
        people = Entry("hidden", "") if hidden else f"{view.rows[g]:,}"
        rows.append([_name(view, g), people, *(rate(found[g], hidden=partly) for found in view.rates.values())])
    more = f" The {MOST_LISTED} largest of {len(view.names):,} groups; audit.csv has all." if len(view.names) > MOST_LISTED else ""
    return grid(f"How every group is served.{more}", columns, rows, kind="compact")


def _name(view: GroupView, g: int) -> str:
    return f"{view.names[g]} ←" if g == view.unprivileged and len(view.names) > 2 else view.names[g]


def _against(view: GroupView) -> Html:
    """Every group against all others."""
    columns = [Column("Group"), *(Column(title_of(AGAINST[name].title), _hint(name)) for name in view.against)]
    shown = [g for g in _order(view, MOST_LISTED) if any(found[g].known for found in view.against.values())]
    rows = [[_name(view, g), *(_gap(name, found[g]) for name, found in view.against.items())] for g in shown]
    if not rows:
        return element("p", {"class": "soft"}, "No group can be compared with all others: there are too few people on one side.")
    return grid("Every group less all others, as fractions; below 0 is to the group's disadvantage.", columns, rows, kind="compact")


def _gap(name: str, found: Estimate) -> Entry:
    return plain(found, hidden=True, digits=2 if name == "impact_ratio" else 3)


def _hint(name: str) -> str:
    return "ratio; 1 is even" if name == "impact_ratio" else AGAINST[name].direction


def _ranges(view: GroupView) -> Html:
    """The best group against the worst."""
    ranged = [(GROUP_METRICS[name].title, view.ranges[name]) for name in RANGES if _known(view, name)]
    if not ranged:
        return element("p", {"class": "soft"}, "There are not two groups whose rates may be shown.")
    columns = [Column("The best less the worst"), *(Column(title_of(words), "lower is fairer") for words, _ in ranged)]
    worst = (f"{GROUP_METRICS[name].title} {view.ranges[name].value:.1f} %" for name in WORST if _known(view, name))
    shown = sum(bool(rows) and NO_VALUE not in name for rows, name in zip(view.rows, view.names, strict=True))
    caption = f"Among the groups that are shown, as fractions; {', '.join(worst)}."
    return grid(unbroken(caption), columns, [[f"{shown} groups", *(plain(found) for _, found in ranged)]])


def _within(view: GroupView, clients: ClientView | None) -> list[Html]:
    """The gap in each client, the largest disadvantage first."""
    if view.within is None or clients is None or not view.within.clients:
        return []
    spd, eod, g = view.within.spd, view.within.eod, view.unprivileged or 0
    order = sorted((k for k in range(len(spd)) if spd[k].known), key=lambda k: spd[k].value)[:MOST_CLIENTS]
    columns = [Column("Client"), Column("People", "both sides"), Column("SPD", "fraction"), Column("EOD", "fraction")]
    rows = [[clients.names[k], f"{spd[k].rows:,}", plain(spd[k]), plain(eod[k], hidden=True)] for k in order]
    caption = (
        f"“{view.names[g]}” less all others of the same client, with Newcombe's 95 % intervals; clients with too few people are left out."
    )
    return [folded(f"The gap within each client ({len(order):,})", grid(unbroken(caption), columns, rows, kind="compact"))]


def _known(view: GroupView, name: str) -> bool:
    return name in view.ranges and view.ranges[name].known
