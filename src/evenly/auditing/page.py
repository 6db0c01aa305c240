"""The audit as one self-contained HTML page, with the look of the report of a comparison."""

from collections.abc import Iterator
from typing import NamedTuple

from evenly.auditing.estimates import SCORES
from evenly.auditing.findings import interval_words, protection_words, whom_of
from evenly.auditing.page_sections import PagePart, client_section, group_section
from evenly.auditing.result import Audit
from evenly.auditing.score_section import score_section
from evenly.auditing.significance import RATE_OF, GroupGap, group_gaps, of_column
from evenly.auditing.views import AGAINST, GroupView
from evenly.metrics import GROUP_METRICS, METRICS
from evenly.metrics.clients import tenth
from evenly.report.html import (
    Column,
    Html,
    command_html,
    contents,
    definitions,
    details,
    document,
    element,
    fill,
    grid,
    join,
    nonbreaking,
    section,
    sentence_case,
)
from evenly.report.opening import lead_of
from evenly.report.worst_served import sentences, whom_table

CONTENTS = {
    "clients": "Clients",
    "groups": "Groups",
    "scores": "Scores",
    "about": "About this audit",
}
ROWS = "The page holds counts and rates only, no rows of the table."


class Tile(NamedTuple):
    """One number at the top of the page."""

    title: str
    number: str
    about: str


def render(audit: Audit) -> str:
    """Render the page. The same audit always gives the same page."""
    parts = {
        "clients": client_section(audit) if audit.clients is not None else None,
        "groups": group_section(audit) if audit.groups else None,
        "scores": score_section(audit) if "auc" in audit.whole else None,
        "about": PagePart(_about(audit), {}),
    }
    present = {key: part for key, part in parts.items() if part is not None}
    specs = {key: spec for part in present.values() for key, spec in part.specs.items()}
    body = [
        _opening(audit),
        contents({key: CONTENTS[key] for key in present}),
        *(part.html for part in present.values()),
    ]
    return document(title_of_audit(audit), join(body), specs, assets=("audit.css",))


def title_of_audit(audit: Audit) -> str:
    """The title of the page: the table and the question."""
    return f"{audit.about.source}: whom does the model serve worst?"


def _opening(audit: Audit) -> Html:
    whom = whom_of(audit)
    lead = sentences(whom)
    return fill(
        "audit_opening.html",
        title=title_of_audit(audit),
        lead=lead_of(lead),
        table=whom_table(whom),
        findings=audit.sentences[len(lead) :],
        tiles=list(_tiles(audit)),
        warnings=audit.warnings,
        checks=audit.check(),
    )


def _tiles(audit: Audit) -> Iterator[Tile]:
    clients, favourable = audit.clients, audit.about.favourable
    if clients is not None and clients.summary["worst10"].has_value:
        worst = f"{clients.summary['worst10'].value:.1f} %"
        yield Tile(
            "Worst-served tenth of clients",
            worst,
            f"{tenth(clients.clients_in_summary):,} of {clients.clients_in_summary:,} clients,"
            f" column {clients.column}",
        )
    gaps = group_gaps(audit)
    for view in audit.groups:
        metric = "acc_diff" if favourable is None else "spd"
        named = view.unprivileged or 0
        asked = GroupGap(view.title, named, metric, view.against[metric][named])
        gap = next(iter(of_column(gaps, view)), None) if view.by_default else asked
        if gap is not None and gap.estimate.has_value:
            yield _gap_tile(view, gap, favourable)


def _gap_tile(view: GroupView, gap: GroupGap, favourable: str | None) -> Tile:
    """The difference between one group and all others."""
    selected = gap.metric == "spd"
    title = f"Predicted “{favourable}”" if selected else sentence_case(RATE_OF[gap.metric])
    value = f"{100 * gap.estimate.value:+.1f} points".replace("-", "−")
    doubt = ", not statistically significant" if view.by_default and not gap.significant else ""
    return Tile(title, value, f"{view.title} “{view.names[gap.group]}” minus all others{doubt}")


def _about(audit: Audit) -> Html:
    about = audit.about
    hidden = f"figures on fewer than {about.min_cell} people" if about.min_cell > 1 else "nothing"
    pairs = [
        ("Table", about.source),
        ("Rows", f"{about.rows:,}, one per person"),
        *(
            (f"{role} column" if role != "Sensitive" else "Sensitive columns", name)
            for role, name in about.columns.items()
        ),
        ("Labels", _labels(about.labels)),
        ("Favourable label", about.favourable or "none named"),
        ("Hidden", hidden),
        *(
            [("Names of clients", "replaced by numbers, the largest client first")]
            if about.anonymous
            else []
        ),
    ]
    texts = f"{interval_words(audit)} {ROWS}", protection_words(about.min_cell)
    parts = [definitions(pairs), *(element("p", None, nonbreaking(text)) for text in texts)]
    parts += command_html("Command", about.command)
    return section(
        "about",
        "About this audit",
        *parts,
        details("How the figures are computed", _formulas(audit)),
    )


def _labels(labels: tuple[str, ...], most: int = 12) -> str:
    more = f" and {len(labels) - most:,} more" if len(labels) > most else ""
    return f"{len(labels):,}: {', '.join(labels[:most])}{more}"


def _formulas(audit: Audit) -> Html:
    """Formula and range of every metric on the page, from the registries."""
    metrics = METRICS | GROUP_METRICS | AGAINST
    used = dict.fromkeys(figure.metric for figure in audit.figures if figure.metric in metrics)
    rows = [
        (sentence_case(metrics[name].title), metrics[name].formula, metrics[name].range)
        for name in used
    ]
    if "auc" in audit.whole:
        rows += [
            (
                SCORES["auc"],
                (
                    "probability that a person with the favourable label has a higher score than a"
                    " person without"
                ),
                "0 to 1",
            ),
            (
                SCORES["ece"],
                "Σ share of bin · |mean score − share labelled favourable|, ten bins",
                "0 to 1",
            ),
            (SCORES["bias"], "mean score − share labelled favourable", "−1 to 1"),
        ]
    columns = [Column("Metric"), Column("Formula", words=True), Column("Range", words=True)]
    return grid(
        "₀ is the group in question, ₁ all others, g a single group, k a client.", columns, rows
    )
