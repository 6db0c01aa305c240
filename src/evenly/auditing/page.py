"""The audit as one HTML page that needs nothing else: the same look as the report of a comparison."""

from typing import Any

from evenly.auditing.estimates import SCORES
from evenly.auditing.result import Audit
from evenly.auditing.sections import PagePart, client_section, group_section, score_section
from evenly.auditing.views import AGAINST, GroupView
from evenly.auditing.words import interval_words, protection_words, whom_of
from evenly.metrics import GROUP_METRICS, METRICS
from evenly.report.html import (
    Column,
    Html,
    contents,
    definitions,
    details,
    document,
    element,
    grid,
    join,
    nonbreaking,
    section,
    sentence_case,
)
from evenly.report.opening import lead_of
from evenly.report.worst_served import sentences, whom_table

KICKER = "evenly · how evenly a model serves clients and groups of people"
CONTENTS = {"clients": "Clients", "groups": "Groups", "scores": "Scores", "about": "About this audit"}
ROWS = "The page holds counts and rates only, never rows."


def render(audit: Audit) -> str:
    """The page as text. The same audit gives the same page."""
    parts = {
        "clients": client_section(audit) if audit.clients is not None else None,
        "groups": group_section(audit) if audit.groups else None,
        "scores": score_section(audit) if "auc" in audit.whole else None,
        "about": PagePart(_about(audit), {}),
    }
    shown = {key: part for key, part in parts.items() if part is not None}
    specs: dict[str, Any] = {}
    for part in shown.values():
        specs |= part.specs
    body = [_opening(audit), contents({key: CONTENTS[key] for key in shown}), *(part.html for part in shown.values())]
    return document(title_of_audit(audit), join(body), specs, assets=("audit.css",))


def _opening(audit: Audit) -> Html:
    whom = whom_of(audit)
    said = sentences(whom)
    rest = audit.sentences[len(said) :]
    return element(
        "header",
        None,
        element("p", {"class": "kicker"}, KICKER),
        element("h1", None, title_of_audit(audit)),
        lead_of(said),
        whom_table(whom),
        *([element("ul", {"class": "words"}, *(element("li", None, nonbreaking(text)) for text in rest))] if rest else []),
        *_tiles(audit),
        *_cautions(audit),
    )


def title_of_audit(audit: Audit) -> str:
    """The data and the question."""
    return f"{audit.about.source}: whom does the model serve worst?"


def _cautions(audit: Audit) -> list[Html]:
    if not audit.warnings:
        return []
    return [
        element("aside", None, element("strong", None, "Read with care"), *(element("p", None, nonbreaking(w)) for w in audit.warnings))
    ]


def _tiles(audit: Audit) -> list[Html]:
    tiles = [tile for view in audit.groups for tile in _gap_tile(view, audit.about.favourable)]
    if audit.clients is not None and audit.clients.summary["worst10"].known:
        worst = f"{audit.clients.summary['worst10'].value:.1f} %"
        tiles.insert(0, _tile("Worst-served tenth of clients", worst, f"of {audit.clients.counted:,} by {audit.clients.column}"))
    return [element("div", {"class": "tiles"}, *tiles)] if tiles else []


def _gap_tile(view: GroupView, favourable: str | None) -> list[Html]:
    gap = view.against["acc_diff" if favourable is None else "spd"][view.unprivileged or 0]
    if not gap.known:
        return []
    what = "Right" if favourable is None else f"Predicted “{favourable}”"
    value = f"{100 * gap.value:+.1f} points".replace("-", "−")
    return [_tile(what, value, f"{view.title} “{view.names[view.unprivileged or 0]}” less all others")]


def _tile(title: str, number: str, about: str) -> Html:
    parts = element("h2", None, title), element("p", {"class": "number"}, nonbreaking(number)), element("p", {"class": "soft"}, about)
    return element("div", {"class": "tile"}, *parts)


def _about(audit: Audit) -> Html:
    about = audit.about
    least = f"fewer than {about.least} people" if about.least > 1 else "nobody is hidden"
    pairs = [
        ("Table", about.source),
        ("Rows", f"{about.rows:,}, one per person"),
        *((f"{role} column" if role != "Sensitive" else "Sensitive columns", name) for role, name in about.columns.items()),
        ("Labels", _labels(about.labels)),
        ("Favourable label", about.favourable or "none named"),
        ("Not shown are figures on", least),
        *([("Names of clients", "replaced by numbers, the largest client first")] if about.anonymous else []),
    ]
    texts = f"{interval_words(audit)} {ROWS}", protection_words(about.least)
    parts = [definitions(pairs), *(element("p", None, nonbreaking(text)) for text in texts)]
    if about.command:
        parts += [element("h3", None, "The command"), element("pre", {"tabindex": "0"}, element("code", None, about.command))]
    return section("about", "About this audit", *parts, details("How the figures are computed", _formulas(audit)))


def _labels(labels: tuple[str, ...], most: int = 12) -> str:
    more = f" and {len(labels) - most:,} more" if len(labels) > most else ""
    return f"{len(labels):,}: {', '.join(labels[:most])}{more}"


def _formulas(audit: Audit) -> Html:
    """Formula and range of every metric on the page, from the registries of the package."""
    known = METRICS | GROUP_METRICS | AGAINST
    used = dict.fromkeys(figure.metric for figure in audit.figures if figure.metric in known)
    rows = [(sentence_case(known[name].title), known[name].formula, known[name].range) for name in used]
    if "auc" in audit.whole:
        rows += [
            (SCORES["auc"], "chance that somebody labelled favourable is scored higher than somebody who is not", "0 to 1"),
            (SCORES["ece"], "Σ share of bin · |mean score − share labelled favourable|, ten bins", "0 to 1"),
            (SCORES["bias"], "mean score − share labelled favourable", "−1 to 1"),
        ]
    columns = [Column("Metric"), Column("Formula", words=True), Column("Range", words=True)]
    return grid("₀ is the group that is looked at, ₁ all others, g a single group, k a client.", columns, rows)
