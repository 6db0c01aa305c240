"""What an audit found, in the few sentences that an auditor needs, and what to bear in mind with them."""

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
CLEARLY_OFF = 0.02  # of a mean score, from which on it is worth a sentence
SAME = 5e-4  # differences below are shown as 0.0 points


def findings(audit: Audit) -> list[str]:
    """Whom the model serves worst, its clients, every sensitive column, the intersections and the scores."""
    found = sentences(whom_of(audit))
    if audit.clients is not None:
        found += _clients(audit.clients)
    for view in audit.groups:
        found += _column(view, audit.about.favourable)
    if audit.crossed is not None:
        found += _intersections(audit.crossed, audit.about.favourable)
    return [*found, *_scores(audit)]


def cautions(audit: Audit) -> list[str]:
    """Small samples, how intervals were found, what was chosen and what is hidden."""
    found = _few_clients(audit.clients) if audit.clients is not None else []
    found += filter(None, [_few_rates(audit), _chosen(audit), _hidden(audit)])
    return found


def protection_words(least: int) -> str:
    """What hiding protects, and what it does not."""
    if least <= 1:
        return "Nothing is hidden: a figure may rest on one person."
    return (
        f"Protected are numbers from 1 to {least - 1}: of people by client, by group, by intersection, by label within a group, and of "
        "groups within a client. None of them is shown, and none follows exactly from the figures together; where there are few enough "
        "cells, integer programming made sure of that. Not protected are bounds, which always follow: a hidden group has at most as many "
        "people as its total leaves. Nor is a share of enough people hidden because it is small: 2 % of 100 people are two of them. "
        "Somebody who knows more, from elsewhere or from a second audit of nearly the same table, can work out more. "
        "If that is too much, raise --min-cell."
    )


def interval_words(audit: Audit) -> str:
    """How the intervals of groups were found."""
    if audit.clients is not None and audit.clients.clients >= LEAST_CLIENTS:
        wider = "and for rates and their differences also what chance allows with so many people (Wilson, Newcombe), whichever is wider"
        return f"Intervals are 95 %: from resampling clients, {wider}."
    why = "there are no clients to resample" if audit.clients is None else f"fewer than {LEAST_CLIENTS} clients are too few to resample"
    of = "of rates Wilson's, of differences also Newcombe's"
    return f"Intervals are 95 %: from resampling people, since {why}; {of}. They say nothing of how other clients would fare."


def percent(found: Estimate, of: str = "") -> str:
    """A rate, what it is of, and its interval."""
    ends = f" (95 % interval {found.low:.1f} to {found.high:.1f})" if found.ranged else ""
    return f"{found.value:.1f} %{of}{ends}"


def points(found: Estimate) -> str:
    """The interval of a difference, in points."""
    return f"95 % interval {_signed(found.low)} to {_signed(found.high)}" if found.ranged else "no interval"


def _signed(value: float) -> str:
    text = f"{100 * value:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


def whom_of(audit: Audit) -> Whom:
    """What the page opens with, as that of a comparison does."""
    about, whole = audit.about, audit.whole
    singles = [(f"{view.title} “{name}”", view, g) for view in audit.groups for g, name in enumerate(view.names)]
    crossed = [] if audit.crossed is None else [(f"“{name}”", audit.crossed, g) for g, name in enumerate(audit.crossed.names)]
    average = whole["accuracy"].value
    return Whom(
        model="The model",
        whole=_part("", whole["accuracy"], whole["accuracy"].value, *(whole[rate].value for rate in ("tpr", "fpr") if rate in whole)),
        trivial=audit.trivial,
        client=None if audit.clients is None else _client(audit.clients, average),
        group=_group(singles, average),
        intersection=_group(crossed, average),
        unit="people",
        favourable=about.favourable or "",
        measured=f"All {about.rows:,} rows of {about.source}.",
    )


def _part(name: str, found: Estimate, average: float, tpr: float = np.nan, fpr: float = np.nan, *, among: str = "") -> ServedPart:
    return ServedPart(name, found.rows, found.value, found.low, found.high, tpr, fpr, average, among=among)


def _client(view: ClientView, average: float) -> ServedPart | None:
    order = view.ordered()
    if not view.listed or len(order) < 2:
        return None
    found = view.worst_rates
    among = SHOWN if view.hidden.any else ""
    name = f"{view.column} “{view.names[order[0]]}”"
    return _part(name, view.accuracy[order[0]], average, found.get("tpr", np.nan), found.get("fpr", np.nan), among=among)


def _group(groups: list[tuple[str, GroupView, int]], average: float) -> ServedPart | None:
    """The worst served of these groups: name, view and number. Groups of few people come last, since chance makes them extreme."""
    known = [(name, view, g) for name, view, g in groups if view.rates["accuracy"][g].known and NO_VALUE not in view.names[g]]
    if len(known) < 2:
        return None
    worst = min(known, key=lambda one: (one[1].rates["accuracy"][one[2]].rows < FEW, one[1].rates["accuracy"][one[2]].value))
    name, view, g = worst
    rates = (view.rates[rate][g].value for rate in ("tpr", "fpr") if rate in view.rates)
    return _part(name, view.rates["accuracy"][g], average, *rates, among=SHOWN if any(v.veil.groups.any for _, v, _ in groups) else "")


def _clients(view: ClientView) -> list[str]:
    """How far the best and the worst-served tenth lie apart, where a tenth is more than the one client that is named already."""
    worst, best, number = view.summary["worst10"], view.summary["best10"], tenth(view.counted)
    if not (worst.known and best.known and number > 1):
        return []
    who = f"the tenth of clients that it serves worst ({number:,} of {view.counted:,} by {view.column})"
    return [f"For {who} it is right for {percent(worst)} on average; for the tenth that it serves best, for {best.value:.1f} %."]


def _column(view: GroupView, favourable: str | None) -> list[str]:
    """The unprivileged value against all others."""
    g = view.unprivileged
    if g is None:
        return []
    who = f"eople with {view.title} “{view.names[g]}”"
    if favourable is None:
        gap = view.against["acc_diff"][g]
        return [f"The model is right for p{who} {_often(gap)}."] if gap.known else [_silent(view)]
    spd, eod, impact = (view.against[name][g] for name in ("spd", "eod", "impact_ratio"))
    if not spd.known:
        return [_silent(view)]
    ratio = f"; that is {impact.value:.2f} of their rate, below four fifths" if impact.known and impact.value < FOUR_FIFTHS else ""
    found = [f"P{who} are predicted “{favourable}” {_often(spd)}{ratio}.", *_within(view)]
    return [*found, f"Of those labelled “{favourable}”, p{who} are predicted so {_often(eod)}."] if eod.known else found


def _within(view: GroupView) -> list[str]:
    """Whether the gap is there in clients, too."""
    if view.within is None or view.within.clients < 2:
        return []
    gap, who = view.within.mean, f"the {view.within.clients:,} clients with enough people of both kinds"
    worse = sum(each.ranged and each.high < 0 for each in view.within.spd)
    many = f"; in {worse:,} of them the whole interval lies below 0" if worse else ""
    return [f"Within {who}, the difference is {_signed(gap.value)} points on average ({points(gap)}){many}."]


def _silent(view: GroupView) -> str:
    return f"Nothing can be said of {view.title}: one of the sides that would be compared has too few people."


def _often(gap: Estimate) -> str:
    """A difference between people and all others, in words that go no further than its interval."""
    if abs(gap.value) < SAME:
        return f"as often as all others ({points(gap)})"
    doubt = CHANCE if gap.ranged and gap.low <= 0 <= gap.high else ""
    return f"{abs(100 * gap.value):.1f} points {'less' if gap.value < 0 else 'more'} often than all others ({points(gap)}){doubt}"


def _intersections(view: GroupView, favourable: str | None) -> list[str]:
    rate, words = ("accuracy", "The model is right for") if favourable is None else ("selection_rate", f"“{favourable}” is predicted for")
    known = [(found.value, g) for g, found in enumerate(view.rates[rate]) if found.known and NO_VALUE not in view.names[g]]
    if len(known) < 2:
        return []
    (low, worst), (high, best) = min(known), max(known)
    ends = f"{low:.1f} % of {view.names[worst]} and for {high:.1f} % of {view.names[best]}"
    hidden = sum(not found.known for found in view.rates[rate])
    shown = f"{len(known)} intersections" if not hidden else f"the {len(known)} intersections that are shown"
    return [f"{words} {ends}, the extremes of {shown}."]


def _scores(audit: Audit) -> list[str]:
    if "auc" not in audit.whole:
        return []
    auc, ece = audit.whole["auc"], audit.whole["ece"]
    ends = f" (95 % interval {auc.low:.3f} to {auc.high:.3f})" if auc.ranged else ""
    found = [f"The score's AUC is {auc.value:.3f}{ends}, its calibration error {ece.value:.3f}."] if auc.known else []
    for view in audit.groups:
        off = [(abs(bias.value), g) for g, bias in enumerate(view.scores["bias"]) if bias.known]
        if off and max(off)[0] >= CLEARLY_OFF:
            bias = view.scores["bias"][max(off)[1]]
            off_by = f"{abs(100 * bias.value):.1f} points too {'high' if bias.value > 0 else 'low'}"
            found.append(f"For {view.title} “{view.names[max(off)[1]]}” scores are {off_by} on average ({points(bias)}).")
    return found


def _few_clients(view: ClientView) -> list[str]:
    found = []
    if not view.listed:
        found.append(
            f"There are {view.clients:,} clients, more than {MOST_LISTED:,}: figures are of all of them, but none is listed by itself. "
            f"If {view.column} names people or rows rather than clients, choose another column."
        )
    if 1 < view.counted < LEAST_CLIENTS:
        found.append(f"With only {view.counted} clients, the worst and the best tenth are one client each.")
    if view.few:
        have = f"{view.few:,} of {view.clients:,} clients {'has' if view.few == 1 else 'have'}"
        found.append(f"{have} fewer than {FEW} rows: such accuracies can be far from the truth by chance.")
    total, noise = view.summary["variance"].value, view.summary["variance_noise"].value
    if view.counted > 1 and np.isfinite([total, noise]).all() and total > 0 and noise / total >= NOTABLE_NOISE:
        part = "all" if noise >= total else f"about {100 * noise / total:.0f} %"
        found.append(
            f"Of the variance between clients, {total:.1f} %², {part} is what so few rows cause by chance even if all are served alike."
        )
    return found


def _few_rates(audit: Audit) -> str:
    few = sum(view.few(FEW) for view in (*audit.groups, *([audit.crossed] if audit.crossed else [])))
    if not few:
        return ""
    rates = "1 rate of a group rests" if few == 1 else f"{few:,} rates of groups rest"
    return f"{rates} on fewer than {FEW} people; chance alone can move such a rate far."


def _chosen(audit: Audit) -> str:
    picked = [f"{view.title} “{view.names[view.unprivileged]}”" for view in audit.groups if view.chosen and view.unprivileged is not None]
    if not picked:
        return ""
    what = "is right least often" if audit.about.favourable is None else f"predicts “{audit.about.favourable}” least often"
    are = "is" if len(picked) == 1 else "are"
    return (
        f"Set against all others {are} {' and '.join(picked)}, where the model {what}. To test a suspicion, name the value "
        "with --unprivileged before looking."
    )


def _hidden(audit: Audit) -> str:
    least = audit.about.least
    clients = hidden_words([audit.clients.hidden], least, what="client") if audit.clients is not None else ""
    views = [*audit.groups, *([audit.crossed] if audit.crossed else [])]
    groups = hidden_words([view.veil.groups for view in views], least, what="group")
    partly = sum(int(_partly(view.veil.groups, view.veil.labels)) for view in views)
    more = "1 more group" if partly == 1 else f"{partly:,} more groups"
    why = f"rates that rest on fewer than {least} people with one label are not shown, nor accuracy, which could tell how many these are"
    rates = f"Of {more}, {why}." if partly else ""
    return " ".join(filter(None, [clients, groups, rates]))


def _partly(groups: Hidden, labels: Hidden) -> int:
    return int((labels.cells.any(-1) & ~groups.cells).sum())
