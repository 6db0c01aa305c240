"""What a part of a method changes: reweighing, parity sampling, and FedCvg-Ratio's weights where clients are alike."""

from evenly.experiment.findings.finding import Finding, gap, lead, points
from evenly.experiment.findings.pairs import Pair, against, on_average, pairs, tally
from evenly.experiment.study import PROTOCOLS
from evenly.experiment.thesis import View
from evenly.metrics import spread

RATIO, PLAIN = "FEDCVG-RATIO", "FEDAVG"
NEAR_IID = "5000"
CHANGED = ("change of |EOD|", "change of accuracy (points)")
BY_CHANCE = 0.025  # of intervals around no change at all, on either side


def reweighing(seen: list[View]) -> Finding | None:
    return _part(
        seen,
        "debias",
        "Does local reweighing lower |EOD| for every method and partition, and what does it cost?",
        "Local debiasing is essential for all families of algorithms: a 37 to 50 % lower EOD at minimal cost in accuracy.",
    )


def parity(seen: list[View]) -> Finding | None:
    return _part(
        seen,
        "parity",
        "Does parity sampling lower |EOD|?",
        "Its effect is limited and depends on the setting: it helps mostly near IID, and FedAvg more than FedCvg.",
    )


def _part(seen: list[View], part: str, question: str, thesis: str) -> Finding | None:
    found = {protocol: pairs(seen, protocol, part) for protocol in PROTOCOLS}
    if not found["honest"]:
        return None
    gaps = {protocol: tally([pair.change("eod_abs") for pair in own]) for protocol, own in found.items()}
    cost = on_average([pair.change("accuracy") for pair in found["honest"]])
    change = on_average([pair.change("eod_abs") for pair in found["honest"]])
    answer = (
        f"{lead(gaps['honest'])}: |EOD| is clearly lower in {gaps['honest'].lower} of {gaps['honest'].total} pairs, undecided in "
        f"{gaps['honest'].undecided} and clearly higher in {gaps['honest'].higher} (honest protocol; {gaps['study']} under the study's; "
        f"about {BY_CHANCE * gaps['honest'].total:.0f} on either side would come by chance alone); "
        f"on average it changes by {gap(change)} and accuracy by {points(cost)} points."
    )
    columns = ("aggregation", *(f"{name}, {protocol}" for protocol in PROTOCOLS for name in ("lower / undecided / higher", *CHANGED)))
    names = list(dict.fromkeys(pair.method.aggregation for pair in found["honest"]))
    rows = [(name, *_changes({p: [q for q in own if q.method.aggregation == name] for p, own in found.items()})) for name in names]
    return Finding(part, question, answer, thesis, columns, (*rows, ("all", *_changes(found))))


def _changes(found: dict[str, list[Pair]]) -> list[str]:
    cells = []
    for own in found.values():
        gaps, accuracies = ([pair.change(metric) for pair in own] for metric in ("eod_abs", "accuracy"))
        cells += [str(tally(gaps)), gap(on_average(gaps)), points(on_average(accuracies))]
    return cells


def near_iid(seen: list[View]) -> Finding | None:
    """FedCvg-Ratio against FedAvg where clients are alike, with the same sampling and local work."""
    alike = [view for view in seen if view.place.partition == "dirichlet" and view.place.value == NEAR_IID]
    found = {protocol: against(alike, protocol, RATIO, PLAIN) for protocol in PROTOCOLS}
    if not found["honest"]:
        return None
    counts = {m: tally([pair.change(m) for pair in found["honest"]]) for m in ("accuracy", "eod_abs")}
    means = {m: on_average([pair.change(m) for pair in found["honest"]]) for m in ("accuracy", "eod_abs")}
    total = counts["accuracy"].total
    answer = (
        f"Of {total} comparisons at alpha {NEAR_IID} FedCvg-Ratio is clearly more accurate than FedAvg in {counts['accuracy'].higher} and "
        f"clearly less in {counts['accuracy'].lower}, its |EOD| clearly lower in {counts['eod_abs'].lower} and clearly higher in "
        f"{counts['eod_abs'].higher}; on average accuracy changes by {points(means['accuracy'])} points and |EOD| by "
        f"{gap(means['eod_abs'])} (honest protocol)."
    )
    columns = (
        "data and method",
        *(f"{name}, {p}" for p in PROTOCOLS for name in ("accuracy (points)", "|EOD|")),
        "accuracy, paper",
        "|EOD|, paper",
    )
    rows = []
    for study, honest in zip(found["study"], found["honest"], strict=True):
        ours = [show(spread(pair.change(m))) for pair in (study, honest) for m, show in (("accuracy", points), ("eod_abs", gap))]
        rows.append((f"{honest.view.place.dataset}, {honest.method}", *ours, *_paper_change(honest)))
    thesis = "Near IID, FedCvg-Ratio with local debiasing and parity sampling is said to be best in accuracy and fairness at once."
    return Finding("near-iid", "Do FedCvg-Ratio's gains near IID exist?", answer, thesis, columns, tuple(rows))


def _paper_change(pair: Pair) -> tuple[str, str]:
    plain, paper = pair.method._replace(algorithm=PLAIN, parameter=""), pair.view.paper
    if pair.method not in paper or plain not in paper:
        return "", ""
    accuracy, eod = (paper[pair.method][metric] - paper[plain][metric] for metric in ("accuracy", "eod_abs"))
    return f"{accuracy:+.1f}", f"{eod:+.3f}"
