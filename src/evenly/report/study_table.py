"""The methods of one partition: paper, ours as the study chooses, ours chosen honestly, one under the other in each cell.

The table can be sorted and filtered where scripts run, and is complete where they do not.
"""

import numpy as np

from evenly.experiment.study import Outcome
from evenly.experiment.thesis import FRACTIONS, Method, View
from evenly.metrics import spread
from evenly.report.html import Html, element

COLUMNS = {
    "accuracy": "Accuracy", "eod_abs": "|EOD|", "spd_abs": "|SPD|", "aod_abs": "|AOD|", "acc_diff": "Acc. diff.", "precision": "Precision",
    "fas_abs": "FAS", "fas_thesis": "FAS (thesis)",
}  # fmt: skip
WHO = ("paper", "study", "honest")
MEANS = "Mean ± half of the 95 % interval over seeds, as fractions"


def study_table(view: View) -> Html:
    """One row per method. Columns are sorted by the honest figure."""
    whose = [who for who in WHO if who != "paper" or view.paper]
    heads = ["Method", "Whose", "Rate", *COLUMNS.values()]
    cells = [element("th", {"scope": "col"}, _head(name)) for name in heads]
    rows = [_row(view, method, whose) for method in view.outcomes["honest"]]
    caption = f"{MEANS}; the paper gives means alone." if view.paper else f"{MEANS}."
    table = element(
        "table",
        {"class": "methods", "data-methods": ""},
        element("caption", None, caption),
        element("thead", None, element("tr", None, *cells)),
        element("tbody", None, *rows),
    )
    return element("div", {"class": "scroll", "tabindex": "0", "role": "group", "aria-label": f"Methods on {view.place}"}, table)


def _head(name: str) -> Html:
    return element("span", None, name) if name == "Whose" else element("button", {"type": "button", "class": "sort"}, name)


def _row(view: View, method: Method, whose: list[str]) -> Html:
    outcomes = {who: view.outcomes[who][method] for who in whose if who != "paper"}
    rates = {who: ", ".join(f"{v:g}" for v in outcome.chosen.values()) for who, outcome in outcomes.items()}
    cells = [
        element("th", {"scope": "row"}, *_breakable(str(method))),
        _stack({who: who for who in whose}, ""),
        _stack({"paper": "", **rates} if "paper" in whose else rates, rates["honest"]),
    ]
    for metric in COLUMNS:
        texts = {who: _ours(outcome, metric) for who, outcome in outcomes.items()}
        if "paper" in whose:
            texts = {"paper": _paper(view, method, metric), **texts}
        cells.append(_stack(texts, f"{_mean(outcomes['honest'], metric):.6f}"))
    return element("tr", None, *cells)


def _breakable(name: str) -> list[str]:
    """A name that may break before a plus, and nowhere else."""
    first, *rest = name.split("+")
    return [first, *(piece for part in rest for piece in (element("wbr"), f"+{part}"))]


def _stack(lines: dict[str, str], key: str) -> Html:
    return element("td", {"data-sort": key}, *(element("span", {"class": f"line {who}"}, text or "\u00a0") for who, text in lines.items()))


def _ours(outcome: Outcome, metric: str) -> str:
    found = spread(outcome.values[metric] / _unit(metric))
    if not np.isfinite(found.mean):
        return "n/a"
    return f"{found.mean:.3f}" + (f" ± {found.half_width:.3f}" if np.isfinite(found.half_width) else "")


def _mean(outcome: Outcome, metric: str) -> float:
    mean = spread(outcome.values[metric] / _unit(metric)).mean
    return mean if np.isfinite(mean) else -1.0


def _paper(view: View, method: Method, metric: str) -> str:
    return f"{view.paper[method][metric] / _unit(metric):.3f}" if method in view.paper else ""


def _unit(metric: str) -> float:
    return 100.0 if metric in FRACTIONS else 1.0
