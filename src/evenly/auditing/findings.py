"""The findings of an audit in a few sentences, and their limitations."""

from collections.abc import Iterable

import numpy as np

from evenly.auditing.estimates import Estimate
from evenly.auditing.people import NO_VALUE
from evenly.auditing.result import Audit
from evenly.auditing.significance import RATE_OF, GroupGap, group_gaps, of_column
from evenly.auditing.views import MOST_LISTED, ClientView, GroupView
from evenly.data.sensitive import FEW
from evenly.metrics.clients import tenth
from evenly.metrics.statistics import LEAST_CLIENTS
from evenly.report.disclosure import Hidden, hidden_words
from evenly.report.opening import NOTABLE_NOISE
from evenly.report.worst_served import (
    CHANCE,
    SHOWN,
    ServedPart,
    Whom,
    least_accurate,
    sentences,
)

FOUR_FIFTHS = 0.8
CLEARLY_OFF = 0.02  # smallest bias of scores that is reported in a sentence
SAME = 5e-4  # differences below are shown as 0.0 points


def findings(audit: Audit) -> list[str]:
    """Describe whom the model serves worst, its clients, every sensitive column, the intersections
    and the scores.
    """
    texts = sentences(whom_of(audit))
    if audit.clients is not None:
        texts += _clients(audit.clients)
    gaps = group_gaps(audit)
    for view in audit.groups:
        texts += (
            _largest(view, gaps, audit.about.favourable)
            if view.by_default
            else _column(view, audit.about.favourable)
        )
    if audit.intersections is not None:
        texts += _intersections(audit.intersections, audit.about.favourable)
    return [*texts, *_scores(audit)]


def cautions(audit: Audit) -> list[str]:
    """List small samples, how many comparisons were made, and what is hidden."""
    texts = _few_clients(audit.clients) if audit.clients is not None else []
    texts += filter(None, [_few_rates(audit), _comparisons(audit), _hidden(audit)])
    return texts


def protection_words(min_cell: int) -> str:
    """Explain what hiding protects, and what it does not protect."""
    if min_cell <= 1:
        return "Nothing is hidden: a figure may rest on one person."
    return (
        f"Numbers of people from 1 to {min_cell - 1} are protected: by client, by group, by"
        " intersection, by label within a group, and of groups within a client. None of them is"
        " shown, and none follows exactly from the visible figures; where there are few enough"
        " cells, integer programming verified this. Bounds are not protected, because they always"
        " follow: a hidden group has at most as many people as its total leaves. A share of enough"
        " people is not hidden because it is small: 2 % of 100 people are two of them. A reader"
        " with additional knowledge, for example from a second audit of nearly the same table, can"
        " work out more. To hide more, raise --min-cell."
    )


def interval_words(audit: Audit) -> str:
    """Explain how the intervals of groups were computed."""
    if audit.clients is not None and audit.clients.clients >= LEAST_CLIENTS:
        wider = (
            "For rates and their differences they are widened to Wilson's and Newcombe's intervals"
        )
        return (
            f"95 % intervals are computed by resampling clients. {wider}, which also cover chance"
            " with few people."
        )
    why = (
        "there are no clients to resample"
        if audit.clients is None
        else f"fewer than {LEAST_CLIENTS} clients are too few to resample"
    )
    of = "Rates have Wilson's intervals, and differences of rates are widened to Newcombe's"
    return (
        f"95 % intervals are computed by resampling people, because {why}. {of}. They do not cover"
        " the variation between clients."
    )


def percent(estimate: Estimate, of: str = "") -> str:
    """A rate with its interval in words; `of` names the people."""
    ends = (
        f" (95 % interval {estimate.low:.1f} to {estimate.high:.1f})"
        if estimate.has_interval
        else ""
    )
    return f"{estimate.value:.1f} %{of}{ends}"


def points(estimate: Estimate) -> str:
    """The interval of a difference in words, in points."""
    return (
        f"95 % interval {_signed(estimate.low)} to {_signed(estimate.high)}"
        if estimate.has_interval
        else "no interval"
    )


def _signed(value: float) -> str:
    text = f"{100 * value:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


def whom_of(audit: Audit) -> Whom:
    """Who is served worst, for the opening of the page."""
    about, whole = audit.about, audit.whole
    singles = [
        (f"{view.title} “{name}”", view, g)
        for view in audit.groups
        for g, name in enumerate(view.names)
    ]
    crossed = (
        []
        if audit.intersections is None
        else [
            (f"“{name}”", audit.intersections, g)
            for g, name in enumerate(audit.intersections.names)
        ]
    )
    average = whole["accuracy"].value
    return Whom(
        model="The model",
        whole=_part(
            "",
            whole["accuracy"],
            whole["accuracy"].value,
            *(whole[rate].value for rate in ("tpr", "fpr") if rate in whole),
        ),
        trivial=audit.trivial,
        client=None if audit.clients is None else _client(audit.clients, average),
        group=_group(singles, average),
        intersection=_group(crossed, average),
        unit="people",
        favourable=about.favourable or "",
        measured=f"All {about.rows:,} rows of {about.source}.",
    )


def _part(
    name: str,
    estimate: Estimate,
    average: float,
    tpr: float = np.nan,
    fpr: float = np.nan,
    *,
    among: str = "",
) -> ServedPart:
    return ServedPart(
        name,
        estimate.rows,
        estimate.value,
        estimate.low,
        estimate.high,
        tpr,
        fpr,
        average,
        among=among,
    )


def _client(view: ClientView, average: float) -> ServedPart | None:
    order = view.worst_first()
    if not view.can_list or len(order) < 2:
        return None
    rates = view.worst_rates
    among = SHOWN if view.hidden.any else ""
    name = f"{view.column} “{view.names[order[0]]}”"
    return _part(
        name,
        view.accuracy[order[0]],
        average,
        rates.get("tpr", np.nan),
        rates.get("fpr", np.nan),
        among=among,
    )


def _group(groups: list[tuple[str, GroupView, int]], average: float) -> ServedPart | None:
    """The worst served of these groups (name, view, number)."""
    visible = [
        (name, view, g)
        for name, view, g in groups
        if view.rates["accuracy"][g].has_value and NO_VALUE not in view.names[g]
    ]
    if len(visible) < 2:
        return None
    accuracies = [view.rates["accuracy"][g] for _, view, g in visible]
    worst = least_accurate([(accuracy.rows, accuracy.value) for accuracy in accuracies])
    name, view, g = visible[worst.number]
    rates = (view.rates[rate][g].value for rate in ("tpr", "fpr") if rate in view.rates)
    return _part(
        name,
        view.rates["accuracy"][g],
        average,
        *rates,
        among=worst.among + (SHOWN if any(_is_hidden(v, i) for _, v, i in groups) else ""),
    )


def _is_hidden(view: GroupView, g: int) -> bool:
    """Whether a group's accuracy is hidden, because the group or one of its labels is small."""
    shown = view.rates["accuracy"][g].has_value
    return not shown and bool(view.veil.groups.cells[g] or not view.veil.both_labels[g])


def _clients(view: ClientView) -> list[str]:
    """Compare the best- and the worst-served tenth of clients, if a tenth is more than
    one client.
    """
    worst, best, number = (
        view.summary["worst10"],
        view.summary["best10"],
        tenth(view.clients_in_summary),
    )
    if not (worst.has_value and best.has_value and number > 1):
        return []
    who = (
        f"the tenth of clients that it serves worst ({number:,} of {view.clients_in_summary:,},"
        f" column {view.column})"
    )
    return [
        f"For {who} it is right for {percent(worst)} on average; for the tenth that it serves best,"
        f" for {best.value:.1f} %."
    ]


def _column(view: GroupView, favourable: str | None) -> list[str]:
    """Compare the value that the user named with all others."""
    g = view.unprivileged
    if g is None:
        return []
    main = view.against["acc_diff" if favourable is None else "spd"][g]
    if not main.has_value:
        return [_silent(view)]
    if favourable is None:
        return [f"{_sentence(view, GroupGap(view.title, g, 'acc_diff', main), favourable)}."]
    texts = [
        f"{_sentence(view, GroupGap(view.title, g, 'spd', main), favourable)}{_ratio(view, g)}.",
        *_within(view, favourable),
    ]
    eod = GroupGap(view.title, g, "eod", view.against["eod"][g])
    return [*texts, f"{_sentence(view, eod, favourable)}."] if eod.estimate.has_value else texts


def _largest(view: GroupView, gaps: tuple[GroupGap, ...], favourable: str | None) -> list[str]:
    """Name the largest statistically significant difference of a column and those of its other
    rates, or say that there is none.
    """
    own = of_column(gaps, view)
    if not own:
        return [_silent(view)]
    corrected = f"after Holm's correction for {_number(len(gaps), 'comparison')}"
    significant: dict[str, GroupGap] = {}  # the largest of each rate, the largest of all first
    for gap in own:
        if gap.significant:
            significant.setdefault(gap.metric, gap)
    texts = [
        f"{_sentence(view, gap, favourable)}{_ratio(view, gap.group) if metric == 'spd' else ''}"
        for metric, gap in significant.items()
    ]
    if texts:
        texts[0] += (
            f". This is the largest difference by {view.title} that is statistically significant"
            f" {corrected}."
        )
        texts[1:] = [f"{text}. This is also statistically significant." for text in texts[1:]]
    else:
        rates = _listed([RATE_OF[m] for m in RATE_OF if m in {gap.metric for gap in own}])
        text = _sentence(view, own[0], favourable, doubt=False)
        texts = [
            f"No value of {view.title} differs significantly from all others in {rates}"
            f" {corrected}. The largest difference: {text[0].lower()}{text[1:]}."
        ]
    ratio = [] if "spd" in significant else _lowest_ratio(view)
    return [*texts, *ratio, *_within(view, favourable)]


def _sentence(view: GroupView, gap: GroupGap, favourable: str | None, *, doubt: bool = True) -> str:
    """A difference between a group and all others in words, without the full stop."""
    who = f"eople with {view.title} “{view.names[gap.group]}”"
    often = _often(gap.estimate, doubt=doubt)
    return {
        "acc_diff": f"The model is right for p{who} {often}",
        "spd": f"P{who} are predicted “{favourable}” {often}",
        "eod": f"Of those labelled “{favourable}”, p{who} are predicted so {often}",
        "fpr_diff": f"Of those labelled otherwise, p{who} are predicted “{favourable}” {often}",
    }[gap.metric]


def _ratio(view: GroupView, g: int) -> str:
    impact = view.against["impact_ratio"][g]
    return (
        f"; that is {impact.value:.2f} of their rate, below four fifths"
        if impact.has_value and impact.value < FOUR_FIFTHS
        else ""
    )


def _lowest_ratio(view: GroupView) -> list[str]:
    """The lowest ratio of selection rates, if it is below four fifths."""
    ratios = [
        (impact.value, g)
        for g, impact in enumerate(view.against.get("impact_ratio", ()))
        if impact.has_value
    ]
    if not ratios or min(ratios)[0] >= FOUR_FIFTHS:
        return []
    g = min(ratios)[1]
    impact = view.against["impact_ratio"][g]
    ends = f" (95 % interval {impact.low:.2f} to {impact.high:.2f})" if impact.has_interval else ""
    return [
        f"The selection rate of people with {view.title} “{view.names[g]}” is {impact.value:.2f} of"
        f" that of all others{ends}, below four fifths."
    ]


def _within(view: GroupView, favourable: str | None) -> list[str]:
    """Describe whether the gap also occurs within clients."""
    if view.client_gaps is None or view.client_gaps.clients < 2:
        return []
    assert view.unprivileged is not None  # its gaps are those of the clients
    who = f"people with {view.title} “{view.names[view.unprivileged]}”"
    where = f"the {view.client_gaps.clients:,} clients with enough people of both kinds"
    worse = sum(each.has_interval and each.high < 0 for each in view.client_gaps.spd)
    many = f"; in {worse:,} of them the whole interval lies below 0" if worse else ""
    often = _often(view.client_gaps.mean, than=" on average", doubt=False)
    return [f"Within {where}, {who} are predicted “{favourable}” {often}{many}.", *_origin(view)]


def _origin(view: GroupView) -> list[str]:
    """Split the gap in selection rates into the parts within and between clients."""
    origin = view.origins.get("spd")
    if origin is None or abs(origin.gap) < SAME:
        return []
    within, between = (_signed(part.value) for part in (origin.within, origin.between))
    return [
        f"Over all people this gap is {_signed(origin.gap)} points: {within} come from within"
        f" clients, and {between} from the clients at which these people are."
    ]


def _silent(view: GroupView) -> str:
    return f"No comparison by {view.title} is possible, because one side has too few people."


def _often(gap: Estimate, *, than: str = " than all others", doubt: bool = True) -> str:
    """A difference between people and all others in words; with `doubt`, with a note if its
    interval contains 0.
    """
    if abs(gap.value) < SAME:
        return f"as often as all others ({points(gap)})"
    chance = CHANCE if doubt and gap.has_interval and gap.low <= 0 <= gap.high else ""
    return (
        f"{abs(100 * gap.value):.1f} points {'less' if gap.value < 0 else 'more'} often{than}"
        f" ({points(gap)}){chance}"
    )


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _listed(names: Iterable[str], last: str = "or") -> str:
    *first, final = names
    return f"{', '.join(first)} {last} {final}" if first else final


def _intersections(view: GroupView, favourable: str | None) -> list[str]:
    rate, words = (
        ("accuracy", "The model is right for")
        if favourable is None
        else ("selection_rate", f"“{favourable}” is predicted for")
    )
    visible = [
        (estimate.value, g)
        for g, estimate in enumerate(view.rates[rate])
        if estimate.has_value and NO_VALUE not in view.names[g]
    ]
    if len(visible) < 2:
        return []
    (low, worst), (high, best) = min(visible), max(visible)
    ends = f"{low:.1f} % of “{view.names[worst]}” and for {high:.1f} % of “{view.names[best]}”"
    hidden = sum(not estimate.has_value for estimate in view.rates[rate])
    shown = (
        f"{len(visible)} intersections"
        if not hidden
        else f"the {len(visible)} intersections that are shown"
    )
    return [f"{words} {ends}, the extremes of {shown}."]


def _scores(audit: Audit) -> list[str]:
    if "auc" not in audit.whole:
        return []
    auc, ece = audit.whole["auc"], audit.whole["ece"]
    ends = f" (95 % interval {auc.low:.3f} to {auc.high:.3f})" if auc.has_interval else ""
    error = f", its calibration error {ece.value:.3f}" if ece.has_value else ""
    texts = [f"The score's AUC is {auc.value:.3f}{ends}{error}."] if auc.has_value else []
    for view in audit.groups:
        off = [(abs(bias.value), g) for g, bias in enumerate(view.scores["bias"]) if bias.has_value]
        if off and max(off)[0] >= CLEARLY_OFF:
            bias = view.scores["bias"][max(off)[1]]
            off_by = f"{abs(100 * bias.value):.1f} points too {'high' if bias.value > 0 else 'low'}"
            chance = CHANCE if bias.has_interval and bias.low <= 0 <= bias.high else ""
            texts.append(
                f"For {view.title} “{view.names[max(off)[1]]}” scores are {off_by} on average"
                f" ({points(bias)}){chance}."
            )
    return texts


def _few_clients(view: ClientView) -> list[str]:
    texts = []
    if not view.can_list:
        texts.append(
            f"There are {view.clients:,} clients, more than {MOST_LISTED:,}. Figures cover all of"
            f" them, but single clients are not listed. If {view.column} identifies people or rows"
            " instead of clients, choose another column."
        )
    if 1 < view.clients_in_summary < LEAST_CLIENTS:
        shown = SHOWN if view.clients_in_summary < view.clients else ""
        texts.append(
            f"With only {view.clients_in_summary} clients{shown}, the worst and the best tenth are"
            " one client each."
        )
    if view.few:
        have, vary = (
            ("has", "its accuracy varies") if view.few == 1 else ("have", "their accuracies vary")
        )
        texts.append(
            f"{view.few:,} of {view.clients:,} clients {have} fewer than {FEW} rows, so {vary}"
            " strongly by chance."
        )
    total, noise = view.summary["variance"].value, view.summary["variance_noise"].value
    if (
        view.clients_in_summary > 1
        and np.isfinite([total, noise]).all()
        and total > 0
        and noise / total >= NOTABLE_NOISE
    ):
        part = "all" if noise >= total else f"about {100 * noise / total:.0f} %"
        texts.append(
            f"Of the variance between clients, {total:.1f} %², {part} would occur by chance with"
            " this number of rows even if all were served equally."
        )
    return texts


def _few_rates(audit: Audit) -> str:
    few = sum(
        view.few(FEW)
        for view in (*audit.groups, *([audit.intersections] if audit.intersections else []))
    )
    if not few:
        return ""
    rates = "1 rate of a group rests" if few == 1 else f"{few:,} rates of groups rest"
    return f"{rates} on fewer than {FEW} people and can vary strongly by chance."


def _comparisons(audit: Audit) -> str:
    """How many comparisons were made because the user named no unprivileged value."""
    gaps = group_gaps(audit)
    if not gaps:
        return ""
    columns = [view.title for view in audit.groups if of_column(gaps, view)]
    return (
        f"No unprivileged value is named for {_listed(columns, 'and')}, so every rate that is shown"
        " of every value was compared with that of all others:"
        f" {_number(len(gaps), 'comparison')}. A difference is called statistically significant if"
        " its p value is at most 0.05 after Holm's correction for all of them. To"
        " test a hypothesis, name the value with --unprivileged before you look at the results."
    )


def _hidden(audit: Audit) -> str:
    min_cell = audit.about.min_cell
    clients = (
        hidden_words([audit.clients.hidden], min_cell, what="client")
        if audit.clients is not None
        else ""
    )
    views = [*audit.groups, *([audit.intersections] if audit.intersections else [])]
    groups = hidden_words([view.veil.groups for view in views], min_cell, what="group")
    partly = sum(int(_partly(view.veil.groups, view.veil.labels)) for view in views)
    more = "1 more group" if partly == 1 else f"{partly:,} more groups"
    why = (
        f"rates that rest on fewer than {min_cell} people with one label are hidden, and so is"
        " accuracy, which could reveal their number"
    )
    rates = f"Of {more}, {why}." if partly else ""
    merge = "To see more, merge small groups into larger ones." if groups or rates else ""
    return " ".join(filter(None, [clients, groups, rates, merge]))


def _partly(groups: Hidden, labels: Hidden) -> int:
    return int((labels.cells.any(-1) & ~groups.cells).sum())
