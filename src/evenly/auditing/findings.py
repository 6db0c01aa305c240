"""The findings of an audit in a few sentences, and their limitations."""

import numpy as np

from evenly.auditing.estimates import Estimate
from evenly.auditing.people import NO_VALUE
from evenly.auditing.result import Audit
from evenly.auditing.views import MOST_LISTED, ClientView, GroupView
from evenly.data.sensitive import FEW
from evenly.metrics.clients import tenth
from evenly.metrics.statistics import LEAST_CLIENTS
from evenly.report.disclosure import Hidden, hidden_words
from evenly.report.opening import NOTABLE_NOISE
from evenly.report.worst_served import CHANCE, SHOWN, ServedPart, Whom, sentences

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
    for view in audit.groups:
        texts += _column(view, audit.about.favourable)
    if audit.intersections is not None:
        texts += _intersections(audit.intersections, audit.about.favourable)
    return [*texts, *_scores(audit)]


def cautions(audit: Audit) -> list[str]:
    """List small samples, values that were chosen by default, and what is hidden."""
    texts = _few_clients(audit.clients) if audit.clients is not None else []
    texts += filter(None, [_few_rates(audit), _default_groups(audit), _hidden(audit)])
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
    """The worst served of these groups (name, view, number). Groups of few people rank last,
    because chance makes them extreme.
    """
    visible = [
        (name, view, g)
        for name, view, g in groups
        if view.rates["accuracy"][g].has_value and NO_VALUE not in view.names[g]
    ]
    if len(visible) < 2:
        return None
    worst = min(
        visible,
        key=lambda one: (
            one[1].rates["accuracy"][one[2]].rows < FEW,
            one[1].rates["accuracy"][one[2]].value,
        ),
    )
    name, view, g = worst
    rates = (view.rates[rate][g].value for rate in ("tpr", "fpr") if rate in view.rates)
    return _part(
        name,
        view.rates["accuracy"][g],
        average,
        *rates,
        among=SHOWN if any(_is_hidden(v, i) for _, v, i in groups) else "",
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
    """Compare the unprivileged value with all others."""
    g = view.unprivileged
    if g is None:
        return []
    who = f"eople with {view.title} “{view.names[g]}”"
    if favourable is None:
        gap = view.against["acc_diff"][g]
        return (
            [f"The model is right for p{who} {_often(gap)}."] if gap.has_value else [_silent(view)]
        )
    spd, eod, impact = (view.against[name][g] for name in ("spd", "eod", "impact_ratio"))
    if not spd.has_value:
        return [_silent(view)]
    ratio = (
        f"; that is {impact.value:.2f} of their rate, below four fifths"
        if impact.has_value and impact.value < FOUR_FIFTHS
        else ""
    )
    texts = [f"P{who} are predicted “{favourable}” {_often(spd)}{ratio}.", *_within(view)]
    return (
        [*texts, f"Of those labelled “{favourable}”, p{who} are predicted so {_often(eod)}."]
        if eod.has_value
        else texts
    )


def _within(view: GroupView) -> list[str]:
    """Describe whether the gap also occurs within clients."""
    if view.client_gaps is None or view.client_gaps.clients < 2:
        return []
    gap, who = (
        view.client_gaps.mean,
        f"the {view.client_gaps.clients:,} clients with enough people of both kinds",
    )
    worse = sum(each.has_interval and each.high < 0 for each in view.client_gaps.spd)
    many = f"; in {worse:,} of them the whole interval lies below 0" if worse else ""
    return [
        f"Within {who}, the difference is {_signed(gap.value)} points on average"
        f" ({points(gap)}){many}."
    ]


def _silent(view: GroupView) -> str:
    return f"No comparison by {view.title} is possible, because one side has too few people."


def _often(gap: Estimate) -> str:
    """A difference between people and all others in words, with a note if its interval
    contains 0.
    """
    if abs(gap.value) < SAME:
        return f"as often as all others ({points(gap)})"
    doubt = CHANCE if gap.has_interval and gap.low <= 0 <= gap.high else ""
    return (
        f"{abs(100 * gap.value):.1f} points {'less' if gap.value < 0 else 'more'} often than all"
        f" others ({points(gap)}){doubt}"
    )


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
    texts = (
        [f"The score's AUC is {auc.value:.3f}{ends}, its calibration error {ece.value:.3f}."]
        if auc.has_value
        else []
    )
    for view in audit.groups:
        off = [(abs(bias.value), g) for g, bias in enumerate(view.scores["bias"]) if bias.has_value]
        if off and max(off)[0] >= CLEARLY_OFF:
            bias = view.scores["bias"][max(off)[1]]
            off_by = f"{abs(100 * bias.value):.1f} points too {'high' if bias.value > 0 else 'low'}"
            texts.append(
                f"For {view.title} “{view.names[max(off)[1]]}” scores are {off_by} on average"
                f" ({points(bias)})."
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
        texts.append(
            f"With only {view.clients_in_summary} clients, the worst and the best tenth are one"
            " client each."
        )
    if view.few:
        have = f"{view.few:,} of {view.clients:,} clients {'has' if view.few == 1 else 'have'}"
        texts.append(f"{have} fewer than {FEW} rows, so their accuracies vary strongly by chance.")
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


def _default_groups(audit: Audit) -> str:
    """Which groups are compared with all others because they have the lowest rate."""
    default = [view for view in audit.groups if view.by_default and view.unprivileged is not None]
    names = [f"{view.title} “{view.names[view.unprivileged or 0]}”" for view in default]
    if not names:
        return ""
    what = "is right" if audit.about.favourable is None else f"predicts “{audit.about.favourable}”"
    return (
        f"The model {what} least often for {' and '.join(names)}, so"
        f" {'this group is' if len(names) == 1 else 'these groups are'} compared with all others."
        " To test a hypothesis, name the value with --unprivileged before you look at the results."
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
    return " ".join(filter(None, [clients, groups, rates]))


def _partly(groups: Hidden, labels: Hidden) -> int:
    return int((labels.cells.any(-1) & ~groups.cells).sum())
