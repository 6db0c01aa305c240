"""Audits that are put together by hand, so that every word about them is known beforehand."""

from collections.abc import Mapping, Sequence

import numpy as np

from evenly.auditing.estimates import NOTHING, Estimate
from evenly.auditing.hiding import Veil
from evenly.auditing.result import Audit, AuditFacts
from evenly.auditing.views import ClientView, GroupView
from evenly.metrics import METRICS
from evenly.report.disclosure import Hidden

GAPS = ("spd", "eod", "aod", "acc_diff", "odds_diff", "impact_ratio", "fpr_diff")


def hidden(cells: Sequence[object], small: Sequence[object] | None = None) -> Hidden:
    return Hidden(np.array(cells, bool), np.array(cells if small is None else small, bool), {})


def rate(value: float, rows: int = 100, half: float = 5.0) -> Estimate:
    """A rate in percent with its interval."""
    return Estimate(value, value - half, value + half, rows)


def group_view(
    names: Sequence[str] = ("f", "m"),
    *,
    title: str = "sex",
    accuracy: Sequence[Estimate] = (),
    gaps: Mapping[str, Estimate] | None = None,
    gone: Sequence[int] = (),
    partly: Sequence[int] = (),
    has_favourable: bool = True,
    **more,
) -> GroupView:
    """A column whose groups are all right for 80 % of 100 people; `gaps` are those of the
    unprivileged group.
    """
    of = range(len(names))
    found = tuple(accuracy) or tuple(NOTHING if g in gone else rate(80.0) for g in of)
    names_of_rates = (
        ("accuracy", "selection_rate", "tpr", "fpr", "base_rate")
        if has_favourable
        else ("accuracy",)
    )
    unprivileged = more.setdefault("unprivileged", 0)
    known = gaps or {}
    against = {
        name: tuple(known.get(name, NOTHING) if g == unprivileged else NOTHING for g in of)
        for name in GAPS
    }
    more.setdefault("against", against if has_favourable else {"acc_diff": against["acc_diff"]})
    return GroupView(
        title=title,
        names=tuple(names),
        rows=more.pop("rows", np.array([each.rows for each in found])),
        veil=Veil(
            hidden([g in gone for g in of]),
            hidden([[g in gone, g in gone or g in partly] for g in of]),
        ),
        rates=more.pop("rates", dict.fromkeys(names_of_rates, found)),
        ranges=more.pop("ranges", {}),
        **more,
    )


def client_view(
    accuracies: Sequence[Estimate],
    *,
    gone: Sequence[int] = (),
    summary: Mapping[str, Estimate] | None = None,
    **more,
) -> ClientView:
    """Clients a, b, c and so on, or with numbers where there are many."""
    names = tuple(
        "abcdefghij"[k] if len(accuracies) <= 10 else f"k{k:05}" for k in range(len(accuracies))
    )
    return ClientView(
        column="site",
        names=more.pop("names", names),
        rows=np.array([0 if k in gone else each.rows for k, each in enumerate(accuracies)]),
        accuracy=tuple(NOTHING if k in gone else each for k, each in enumerate(accuracies)),
        hidden=hidden([k in gone for k in range(len(accuracies))]),
        summary={name: (summary or {}).get(name, NOTHING) for name in METRICS},
        clients_in_summary=more.pop("clients_in_summary", len(accuracies)),
        few=more.pop("few", 0),
        **more,
    )


def audit(*groups: GroupView, favourable: str | None = "1", **more) -> Audit:
    """An audit of 1,000 people of whom 80 % are predicted right."""
    rates = (
        ("accuracy", "selection_rate", "tpr", "fpr", "base_rate") if favourable else ("accuracy",)
    )
    about = AuditFacts(
        "people.csv", 1000, {"Label": "y", "Prediction": "p"}, ("0", "1"), favourable, 10, False
    )
    return Audit(
        about=about._replace(**more.pop("about", {})),
        whole=more.pop("whole", dict.fromkeys(rates, rate(80.0, 1000, 2.5))),
        clients=more.pop("clients", None),
        groups=groups,
        intersections=more.pop("intersections", None),
        notes=more.pop("notes", ()),
        **more,
    )
