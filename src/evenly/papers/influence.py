"""Findings from the coefficients of the server: effect of memory, effective number of clients, and
favoured groups.

They do not depend on a test set.
"""

import jax
import numpy as np

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Run
from evenly.metrics import Spread, ratio, sides, slots_of_evaluated, spread
from evenly.metrics.runs import effective_clients
from evenly.metrics.statistics import is_clear
from evenly.papers.thesis import Finding, StudyView, ThesisMethod, gap
from evenly.types import Trace

RATIO, COVERAGE, PLAIN = "FEDCVG-RATIO", "FEDCVG", "FEDAVG"
FEW_CLIENTS = 1.5  # an effective number below this means that one client decides


def equal_memories(views: list[StudyView]) -> Finding | None:
    """Compare different memories of FedCvg-Ratio under full participation. In theory they are
    equal.
    """
    rows, equal, total = [], 0, 0
    models: float | None = 0.0
    for view in views:
        found = [(a, b) for one, other in _memories(view) for a, b in _same_rate(view, one, other)]
        if not found:
            continue
        same = [_alike(a.trace, b.trace) for a, b in found]
        apart = max(
            (d for a, b in found if (d := _distance(a.trace, b.trace)) is not None), default=None
        )
        equal, total = equal + sum(same), total + len(same)
        models = None if apart is None or models is None else max(models, apart)
        difference = "not kept" if apart is None else f"{apart:.2g}"
        rows.append((str(view.place), f"{sum(same)} of {len(same)}", difference))
    if not rows:
        return None
    lead = "Yes" if equal == total and not models else "Not to the bit"
    known = (
        "the models were not kept"
        if models is None
        else f"no parameter of the models differs by more than {models:.2g}"
    )
    answer = (
        f"{lead}: in {equal} of {total} pairs of runs every prediction count is the same, and"
        f" {known}."
    )
    thesis = (
        "The two values give results that cannot be told apart; the smoothing is credited with"
        " stability."
    )
    columns = ("partition", "pairs of runs with equal counts", "largest difference of a parameter")
    return Finding(
        "memory", "Are the memories (λ) 0.5 and 0.9 exactly equal when everyone takes part?",
        answer, thesis, columns, tuple(rows)
    )  # fmt: skip


def _memories(view: StudyView) -> list[tuple[ThesisMethod, ThesisMethod]]:
    """Variants of FedCvg-Ratio with full participation that differ in memory only."""
    own = [
        method
        for method in view.runs
        if method.algorithm == RATIO and not method.parity and not method.other
    ]
    return [
        (a, b)
        for i, a in enumerate(own)
        for b in own[i + 1 :]
        if a._replace(parameter="") == b._replace(parameter="")
    ]


def _same_rate(view: StudyView, one: ThesisMethod, other: ThesisMethod) -> list[tuple[Run, Run]]:
    """Runs of two methods with the same chosen settings and the same seed."""
    runs = [[run for own in view.runs[method].values() for run in own] for method in (one, other)]
    return [(a, b) for a, b in zip(*runs, strict=True) if a.seed == b.seed]


def _alike(a: Trace, b: Trace) -> bool:
    return bool(np.array_equal(a.central, b.central) and np.array_equal(a.tables, b.tables))


def _distance(a: Trace, b: Trace) -> float | None:
    """The largest difference of a parameter, or None if models were not stored."""
    leaves = zip(jax.tree.leaves(a.model), jax.tree.leaves(b.model), strict=True)
    return max(
        (
            float(np.abs(np.asarray(x, np.float64) - np.asarray(y)).max())
            for x, y in leaves
            if np.size(x)
        ),
        default=None,
    )


def few_clients(views: list[StudyView]) -> Finding | None:
    """FedCvg's effective number of clients, 1 / Σ a², under full participation."""
    found = {view.place: _effective(view) for view in views}
    strong = {
        place: own[max(coverage, key=lambda m: float(m.parameter))]
        for place, own in found.items()
        if (coverage := [m for m in own if m.algorithm == COVERAGE])
    }
    if not strong:
        return None
    one = sum(spread(numbers).mean < FEW_CLIENTS for numbers in strong.values())
    lowest = min(strong, key=lambda place: spread(strong[place]).mean)
    answer = (
        f"With the larger α, FedCvg's weights come down to fewer than {FEW_CLIENTS:g} clients on"
        f" average in {one} of {len(strong)} partitions; the least is {_range(strong[lowest])}"
        f" ({lowest})."
    )
    methods = list(dict.fromkeys(m for own in found.values() for m in own))
    rows = [
        (
            str(view.place),
            str(view.comparison.federation.clients),
            *(_range(own[m]) if m in own else "" for m in methods),
        )
        for view in views
        if (own := found[view.place])
    ]
    thesis = (
        "A larger α strengthens the correction by coverage; that one client can take all the weight"
        " is not discussed."
    )
    columns = ("partition", "clients", *map(str, methods))
    return Finding(
        "clients", "How many clients does FedCvg really use?", answer, thesis, columns, tuple(rows)
    )


def _effective(view: StudyView) -> dict[ThesisMethod, np.ndarray]:
    """The effective number of clients by seed, for methods with constant coefficients."""
    fixed = [
        m
        for m in view.runs
        if m.algorithm in (PLAIN, COVERAGE, RATIO) and not (m.debias or m.parity or m.other)
    ]
    return {m: np.array([effective_clients(run.trace) for run in _first(view, m)]) for m in fixed}


def whom_weights_favour(views: list[StudyView]) -> Finding | None:
    """How the share of unprivileged people behind the coefficients differs from that
    under FedAvg.
    """
    rows: list[tuple[str, ...]] = []
    # for each clear change: whether it is towards the side with fewer rows
    decided: list[bool] = []
    for view in views:
        data, (share, changes) = view.comparison.federation, _share_changes(view)
        decided += [
            (change.mean > 0) == (share < 0.5) for change in changes.values() if is_clear(change)
        ]
        rows += [
            (str(view.place), str(m), f"{100 * share:.1f} %", _percent(c), _towards(c, data))
            for m, c in changes.items()
        ]
    if not rows:
        return None
    lead = "The minority, whichever side it is: of" if decided and all(decided) else "Of"
    answer = (
        f"{lead} {len(rows)} (method, partition) pairs {len(decided)} clearly move the weights,"
        f" {sum(decided)} of them towards the side with fewer rows and"
        f" {len(decided) - sum(decided)} towards the other."
    )
    columns = ("partition", "method", "unprivileged under FEDAVG", "change (points)", "favours")
    thesis = (
        "On COMPAS clients with more men (unprivileged, but the majority) are said to be favoured;"
        " its formulas favour the minority, women."
    )
    return Finding(
        "favoured",
        "Whom do FedCvg-Ratio and parity sampling favour?",
        answer,
        thesis,
        columns,
        tuple(rows),
    )


def _share_changes(view: StudyView) -> tuple[float, dict[ThesisMethod, Spread]]:
    """The share of unprivileged people under FedAvg, and how FedCvg-Ratio and parity sampling
    change it; no changes without FedAvg.
    """
    plain = next((m for m in view.runs if str(m) == PLAIN), None)
    others = [
        m for m in view.runs if not m.debias and not m.other and (_is_ratio(m) or _is_parity(m))
    ]
    if plain is None or not others:
        return float("nan"), {}
    data = view.comparison.federation
    base = _shares(view, plain, data)
    return spread(base).mean, {m: spread(_shares(view, m, data) - base) for m in others}


def unprivileged_share(trace: Trace, data: Federation) -> float:
    """The share of unprivileged people among training rows, weighted by the clients' coefficients
    and averaged over rounds.
    """
    counts = sides(trace.tables[-1, SPLITS.index("train")], data.unprivileged).sum((-2, -1))
    share = ratio(counts[:, 0], counts.sum(1))
    cohort, weights = slots_of_evaluated(trace)
    weights = weights.astype(np.float64)
    each = ratio((weights * share[cohort]).sum(1), weights.sum(1))
    each = each[np.isfinite(each)]
    return float(each.mean()) if len(each) else float("nan")


def _first(view: StudyView, method: ThesisMethod) -> list[Run]:
    """The runs with the first value of the chosen settings. These coefficients do not
    depend on it.
    """
    return next(iter(view.runs[method].values()))


def _shares(view: StudyView, method: ThesisMethod, data: Federation) -> np.ndarray:
    return np.array([unprivileged_share(run.trace, data) for run in _first(view, method)])


def _is_ratio(method: ThesisMethod) -> bool:
    return method.algorithm == RATIO and not method.parity


def _is_parity(method: ThesisMethod) -> bool:
    return method.algorithm == PLAIN and bool(method.parity)


def _towards(change: Spread, data: Federation) -> str:
    if not is_clear(change):
        return "undecided"
    own = [
        name for g, name in enumerate(data.groups) if (g in data.unprivileged) == (change.mean > 0)
    ]
    return "; ".join(own) if any("," in name for name in own) else ", ".join(own)


def _range(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"


def _percent(value: Spread) -> str:
    return gap(Spread(100 * value.mean, 100 * value.deviation, 100 * value.half_width, value.seeds))
