"""Findings: what the thesis reports and whether our results agree, about outcomes, reweighing and
parity sampling.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from evenly.experiment.study import PROTOCOLS, Outcome, Study
from evenly.metrics import Spread, spread
from evenly.papers.influence import equal_memories, few_clients, whom_weights_favour
from evenly.papers.thesis import (
    COLUMNS,
    SCORES,
    Finding,
    Pair,
    StudyView,
    Tally,
    ThesisMethod,
    aggregation_pairs,
    gap,
    mean_change,
    opening_words,
    pairs,
    points,
    rank_correlation,
    ranks,
    study_views,
    tally,
)

# Outcomes: order of methods, agreement with the paper, and the effect of choosing on the test set.

RATIO = "FEDCVG-RATIO"
FEW = 5  # as many as the thesis' lists of best methods have
NAMES = {
    "accuracy": "accuracy", "eod_abs": "|EOD|", "spd_abs": "|SPD|", "aod_abs": "|AOD|",
    "acc_diff": "accuracy difference", "precision": "precision", "fas_thesis": "FAS (thesis)",
    "fas_abs": "FAS",
}  # fmt: skip


def lowest_gap(views: list[StudyView]) -> Finding | None:
    """Ranks of FedCvg-Ratio with reweighing by |EOD| among all methods of a partition."""
    found = {
        view.place: {p: _ranked(view, p) for p in PROTOCOLS} for view in views if _variants(view)
    }
    if not found:
        return None
    methods = len(views[0].outcomes["honest"])
    close = {
        p: sum(lowest <= FEW for lowest, *_ in (own[p] for own in found.values()))
        for p in PROTOCOLS
    }
    middle = mean_change([own["honest"][2] for own in found.values()])
    answer = (
        f"In {close['honest']} of {len(found)} partitions one of its variants with reweighing is"
        f" among the {FEW} lowest of {methods} (honest protocol; {close['study']} under the"
        f" study's); its middle variant ranks {_rank(middle)} on average."
    )
    columns = (
        "partition",
        *(f"{name}, {p}" for p in PROTOCOLS for name in ("ranks", "middle rank", "lowest")),
        "ranks, paper",
    )
    rows = [_rank_row(view, found[view.place]) for view in views if view.place in found]
    thesis = (
        "FedCvg or FedCvg-Ratio with local debiasing is recommended wherever fairness comes first:"
        " the lowest EOD and AOD."
    )
    return Finding(
        "lowest",
        "Is FedCvg-Ratio with reweighing among the lowest |EOD|?",
        answer,
        thesis,
        columns,
        tuple(rows),
    )


def _rank_row(view: StudyView, ranks: Mapping[str, Any]) -> tuple[str, ...]:
    """Ranks and lowest variant under every protocol, and the ranks in the thesis."""
    cells = [
        cell
        for low, high, middle, lowest in (ranks[protocol] for protocol in PROTOCOLS)
        for cell in (_span(low, high), _rank(spread(middle)), lowest)
    ]
    return (str(view.place), *cells, _paper_ranks(view))


def _variants(view: StudyView) -> list[ThesisMethod]:
    return [
        method for method in view.outcomes["honest"] if method.algorithm == RATIO and method.debias
    ]


def _ranked(view: StudyView, protocol: str) -> tuple[float, float, np.ndarray, str]:
    """Best and worst rank by means over seeds, the rank of the middle variant in each seed, and the
    lowest method.
    """
    methods = view.outcomes[protocol]
    means = [spread(o.values["eod_abs"]).mean for o in methods.values()]
    own = [i for i, method in enumerate(methods) if method in _variants(view)]
    overall = ranks(means)[own]
    by_seed = np.stack([o.values["eod_abs"] for o in methods.values()])
    middle = np.array([np.median(ranks(column)[own]) for column in by_seed.T])
    return (
        float(overall.min()),
        float(overall.max()),
        middle,
        str(list(methods)[int(np.nanargmin(means))]),
    )


def _paper_ranks(view: StudyView) -> str:
    own = [i for i, method in enumerate(view.paper) if method in _variants(view)]
    if not own:
        return ""
    found = ranks([figures["eod_abs"] for figures in view.paper.values()])[own]
    return _span(float(found.min()), float(found.max()))


def sign_of_accuracy(views: list[StudyView]) -> Finding | None:
    """The sign of the accuracy difference, unprivileged minus privileged."""
    if not views:
        return None
    counts = {p: [tally(_accuracy_gaps(view, p)) for view in views] for p in PROTOCOLS}
    by_data = _tally_by_data(views, counts["honest"])
    sides = "; ".join(
        f"on {name} clearly for the privileged in {own.lower}, for the unprivileged in"
        f" {own.higher}, undecided in {own.undecided}"
        for name, own in by_data.items()
    )
    answer = (
        f"Counted over methods and partitions, models are more accurate {sides} (honest protocol)."
    )
    columns = (
        "partition",
        *(
            f"{name}, {p}"
            for p in PROTOCOLS
            for name in ("below 0 / undecided / above 0", "mean difference")
        ),
    )
    rows = []
    for i, view in enumerate(views):
        cells = [(str(counts[p][i]), gap(mean_change(_accuracy_gaps(view, p)))) for p in PROTOCOLS]
        rows.append((str(view.place), *itertools.chain(*cells)))
    thesis = (
        "On COMPAS the accuracy difference is consistently negative: women, the privileged"
        " minority, are served more accurately than men."
    )
    return Finding(
        "accuracy", "Whom are the models more accurate for?", answer, thesis, columns, tuple(rows)
    )


def _accuracy_gaps(view: StudyView, protocol: str) -> list[np.ndarray]:
    return [outcome.values["acc_diff"] for outcome in view.outcomes[protocol].values()]


def _tally_by_data(views: list[StudyView], tallies: list[Tally]) -> dict[str, Tally]:
    """The tallies of partitions, added up for each data set."""
    by_data: dict[str, list[Tally]] = {}
    for view, one in zip(views, tallies, strict=True):
        by_data.setdefault(view.place.dataset, []).append(one)
    return {name: Tally(*map(sum, zip(*own, strict=True))) for name, own in by_data.items()}


def same_order(views: list[StudyView]) -> Finding | None:
    """Spearman's correlation of the order of methods in our results and in the paper, for each
    table and metric.
    """
    known = [view for view in views if len(view.paper) > 2]
    if not known:
        return None
    metrics = [*COLUMNS.values(), SCORES["fas_thesis"]]
    found = {
        (view.place, p): [_agreement(view, p, m) for m in metrics]
        for view in known
        for p in PROTOCOLS
    }
    study = np.array([found[view.place, "study"] for view in known])
    low, high, middle = (
        float(f(study[:, metrics.index("eod_abs")])) for f in (np.nanmin, np.nanmax, np.nanmedian)
    )
    where = (
        f"lies between {low:.2f} and {high:.2f} over {len(known)} tables (median {middle:.2f})"
        if len(known) > 1
        else f"is {middle:.2f}"
    )
    accuracy = float(np.nanmedian(study[:, metrics.index("accuracy")]))
    answer = (
        f"By |EOD|, Spearman's correlation of our order of the methods with the paper's {where}"
        f" under the study's protocol; by accuracy {'its median' if len(known) > 1 else 'it'} is"
        f" {accuracy:.2f}."
    )
    columns = ("table", "protocol", *(NAMES[m] for m in metrics))
    rows = [
        (
            f"{place.table} ({place})",
            p,
            *(f"{r:.2f}" if np.isfinite(r) else "n/a" for r in found[place, p]),
        )
        for place, p in found
    ]
    thesis = "The tables themselves: means over five seeds, without deviations."
    return Finding(
        "order", "Do the methods come in the paper's order?", answer, thesis, columns, tuple(rows)
    )


def _agreement(view: StudyView, protocol: str, metric: str) -> float:
    common = [method for method in view.paper if method in view.outcomes[protocol]]
    ours = [spread(view.outcomes[protocol][method].values[metric]).mean for method in common]
    return rank_correlation(ours, [view.paper[method][metric] for method in common])


def choosing_on_test(views: list[StudyView]) -> Finding | None:
    """The gain on the test set from choosing on the test set."""
    if not views:
        return None
    columns = (
        "partition",
        "same value chosen",
        "|EOD|, study − honest",
        "accuracy (points), study − honest",
    )
    gains = {metric: [_gains(view, metric) for view in views] for metric in ("eod_abs", "accuracy")}
    same = [sum(a.chosen == b.chosen for a, b in _both(view)) for view in views]
    rows = [
        (
            str(view.place),
            f"{n} of {len(_both(view))}",
            gap(mean_change(eod)),
            points(mean_change(accuracy)),
        )
        for view, n, eod, accuracy in zip(
            views, same, gains["eod_abs"], gains["accuracy"], strict=True
        )
    ]
    eod, accuracy = (
        mean_change([change for own in found for change in own]) for found in gains.values()
    )
    answer = (
        f"Against the honest protocol |EOD| changes by {gap(eod)} and accuracy by"
        f" {points(accuracy)} points, on average over all methods and partitions; the same value is"
        f" chosen for {sum(same)} of {sum(len(_both(view)) for view in views)} of them."
    )
    thesis = (
        "The learning rate with the best EOD on the test set is reported, as FairFed's authors do."
    )
    return Finding(
        "choice", "What does choosing on the test set buy?", answer, thesis, columns, tuple(rows)
    )


def _both(view: StudyView) -> list[tuple[Outcome, Outcome]]:
    return [
        (view.outcomes["study"][method], view.outcomes["honest"][method])
        for method in view.outcomes["honest"]
    ]


def _gains(view: StudyView, metric: str) -> list[np.ndarray]:
    return [a.values[metric] - b.values[metric] for a, b in _both(view)]


def _rank(value: Spread) -> str:
    return f"{value.mean:.1f}" + (
        f" ± {value.half_width:.1f}" if np.isfinite(value.half_width) else ""
    )


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def best_methods(
    views: list[StudyView], protocol: str, metric: str
) -> list[tuple[ThesisMethod, Spread]]:
    """Methods by a score, the highest first: means over partitions with intervals over seeds."""
    found = [
        (method, mean_change([view.outcomes[protocol][method].values[metric] for view in views]))
        for method in _everywhere(views)
    ]
    return sorted(found, key=lambda pair: -pair[1].mean)


def best_in_paper(views: list[StudyView], metric: str) -> list[tuple[ThesisMethod, float]]:
    """Methods by a score from the paper's figures, or an empty list if figures are missing."""
    methods = [
        method for method in _everywhere(views) if all(method in view.paper for view in views)
    ]
    found = [
        (method, float(np.mean([view.paper[method][metric] for view in views])))
        for method in methods
    ]
    return sorted(found, key=lambda pair: -pair[1])


def _everywhere(views: list[StudyView]) -> list[ThesisMethod]:
    return (
        [
            method
            for method in views[0].outcomes["honest"]
            if all(method in view.outcomes["honest"] for view in views)
        ]
        if views
        else []
    )


# Effects of parts of a method: reweighing, parity sampling, and FedCvg-Ratio near IID.

PLAIN = "FEDAVG"
NEAR_IID = "5000"
CHANGE_COLUMNS = ("change of |EOD|", "change of accuracy (points)")
BY_CHANCE = 0.025  # of intervals around no change at all, on either side


def reweighing(views: list[StudyView]) -> Finding | None:
    """The effect of local reweighing."""
    return _part(
        views,
        "debias",
        "Does local reweighing lower |EOD| for every method and partition, and what does it cost?",
        "Local debiasing is essential for all families of algorithms: a 37 to 50 % lower EOD at"
        " minimal cost in accuracy.",
    )


def parity(views: list[StudyView]) -> Finding | None:
    """The effect of parity sampling."""
    return _part(
        views,
        "parity",
        "Does parity sampling lower |EOD|?",
        "Its effect is limited and depends on the setting: it helps mostly near IID, and FedAvg"
        " more than FedCvg.",
    )


def _part(views: list[StudyView], part: str, question: str, thesis: str) -> Finding | None:
    found = {protocol: pairs(views, protocol, part) for protocol in PROTOCOLS}
    if not found["honest"]:
        return None
    gaps = {
        protocol: tally([pair.change("eod_abs") for pair in own]) for protocol, own in found.items()
    }
    cost = mean_change([pair.change("accuracy") for pair in found["honest"]])
    change = mean_change([pair.change("eod_abs") for pair in found["honest"]])
    answer = (
        f"{opening_words(gaps['honest'])}: |EOD| is clearly lower in {gaps['honest'].lower} of"
        f" {gaps['honest'].total} pairs, undecided in {gaps['honest'].undecided} and clearly higher"
        f" in {gaps['honest'].higher} (honest protocol; {gaps['study']} under the study's; about"
        f" {BY_CHANCE * gaps['honest'].total:.0f} on either side would come by chance alone); on"
        f" average it changes by {gap(change)} and accuracy by {points(cost)} points."
    )
    columns = (
        "aggregation",
        *(
            f"{name}, {protocol}"
            for protocol in PROTOCOLS
            for name in ("lower / undecided / higher", *CHANGE_COLUMNS)
        ),
    )
    names = list(dict.fromkeys(pair.method.aggregation for pair in found["honest"]))
    rows = [
        (
            name,
            *_changes(
                {p: [q for q in own if q.method.aggregation == name] for p, own in found.items()}
            ),
        )
        for name in names
    ]
    return Finding(part, question, answer, thesis, columns, (*rows, ("all", *_changes(found))))


def _changes(found: dict[str, list[Pair]]) -> list[str]:
    cells = []
    for own in found.values():
        gaps, accuracies = (
            [pair.change(metric) for pair in own] for metric in ("eod_abs", "accuracy")
        )
        cells += [str(tally(gaps)), gap(mean_change(gaps)), points(mean_change(accuracies))]
    return cells


def near_iid(views: list[StudyView]) -> Finding | None:
    """FedCvg-Ratio compared with FedAvg near IID, with the same sampling and local work."""
    alike = [
        view
        for view in views
        if view.place.partition == "dirichlet" and view.place.value == NEAR_IID
    ]
    found = {protocol: aggregation_pairs(alike, protocol, RATIO, PLAIN) for protocol in PROTOCOLS}
    if not found["honest"]:
        return None
    counts = {
        m: tally([pair.change(m) for pair in found["honest"]]) for m in ("accuracy", "eod_abs")
    }
    means = {
        m: mean_change([pair.change(m) for pair in found["honest"]])
        for m in ("accuracy", "eod_abs")
    }
    total = counts["accuracy"].total
    answer = (
        f"Of {total} comparisons at alpha {NEAR_IID} FedCvg-Ratio is clearly more accurate than"
        f" FedAvg in {counts['accuracy'].higher} and clearly less in {counts['accuracy'].lower},"
        f" its |EOD| clearly lower in {counts['eod_abs'].lower} and clearly higher in"
        f" {counts['eod_abs'].higher}; on average accuracy changes by {points(means['accuracy'])}"
        f" points and |EOD| by {gap(means['eod_abs'])} (honest protocol)."
    )
    columns = (
        "data and method",
        *(f"{name}, {p}" for p in PROTOCOLS for name in ("accuracy (points)", "|EOD|")),
        "accuracy, paper",
        "|EOD|, paper",
    )
    rows = [
        _near_iid_row(study, honest)
        for study, honest in zip(found["study"], found["honest"], strict=True)
    ]
    thesis = (
        "Near IID, FedCvg-Ratio with local debiasing and parity sampling is said to be best in"
        " accuracy and fairness at once."
    )
    return Finding(
        "near-iid", "Do FedCvg-Ratio's gains near IID exist?", answer, thesis, columns, tuple(rows)
    )


def _near_iid_row(study: Pair, honest: Pair) -> tuple[str, ...]:
    ours = [
        show(spread(pair.change(m)))
        for pair in (study, honest)
        for m, show in (("accuracy", points), ("eod_abs", gap))
    ]
    return (f"{honest.view.place.dataset}, {honest.method}", *ours, *_paper_change(honest))


def _paper_change(pair: Pair) -> tuple[str, str]:
    plain, paper = pair.method._replace(algorithm=PLAIN, parameter=""), pair.view.paper
    if pair.method not in paper or plain not in paper:
        return "", ""
    accuracy, eod = (
        paper[pair.method][metric] - paper[plain][metric] for metric in ("accuracy", "eod_abs")
    )
    return f"{accuracy:+.1f}", f"{eod:+.3f}"


__all__ = ["QUESTIONS", "Finding", "best_in_paper", "best_methods", "findings"]

QUESTIONS: tuple[Callable[[list[StudyView]], Finding | None], ...] = (
    reweighing, lowest_gap, near_iid, parity, equal_memories, few_clients, sign_of_accuracy,
    whom_weights_favour, same_order, choosing_on_test,
)  # fmt: skip


def findings(studies: Sequence[Study]) -> list[Finding]:
    """Answers to all questions for which the studies have the data.

    The thesis' statements are included only for its own studies.
    """
    views = study_views(studies)
    answers = [found for question in QUESTIONS if (found := question(views))]
    its_own = any(study.plan.name.startswith("thesis") for study in studies)
    return answers if its_own else [found._replace(thesis="") for found in answers]
