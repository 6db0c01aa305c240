"""Pages of kept results, from docs/results/*.json: the paper's figures beside ours or, without a paper, ours alone."""

from typing import Any

import kept_inference

from evenly.experiment.paper import PaperLine, as_rows
from evenly.metrics import Spread, half_width
from evenly.report.facts import SPREADS, WHO, figures, title
from evenly.report.values import COLUMNS, format_spread, is_clear

Kept = dict[str, Any]


def page(kept: Kept) -> str:
    """The generated part of one reproduction's page."""
    versions = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
    taken = f"Taken {kept['date']} on {kept['device']} with {versions}: {kept['rounds']:,} rounds, {kept['seeds']} seeds"
    head = f"{kept['notes']}\n\n    {kept['command']}\n\n{taken}"
    if "measured" in kept:
        return f"{head}, test rows, mean ± half of the 95 % interval over seeds.\n\n{own_table(kept)}"
    if "course" in kept:
        said = "Clients that choose their group after so many rounds, in percent, mean ± half of the 95 % interval over seeds."
        return f"{head}. {said}\n\n{kept_inference.table(kept)}"
    return f"{head}. {SPREADS}\n\n{table(kept)}"


def own_table(kept: Kept) -> str:
    """Each method's values and, below them, their changes from the first method, paired by seed; bold where the interval leaves out 0."""
    rows: dict[str, list[Kept]] = {}
    for one in kept["measured"]:
        rows.setdefault(one["label"], []).append(one)
    first, *_ = rows
    titles = [COLUMNS[one["metric"]].title.replace("|", "\\|") for one in rows[first]]
    text = [f"| method | {' | '.join(titles)} |", "| --- |" + " ---: |" * len(titles)]
    for label, own in rows.items():
        text.append(f"| `{label}` | {' | '.join(_shown(one['metric'], one['mean'], one['half_width']) for one in own)} |")
        if label != first:
            text.append(f"| change | {' | '.join(map(_change, own))} |")
    return "\n".join(text)


def _shown(metric: str, mean: float, half_width: float) -> str:
    return format_spread(Spread(mean, float("nan"), half_width, 2), COLUMNS[metric]).replace("-", "−")


def _change(one: Kept) -> str:
    shown = _shown(one["metric"], one["change"], one["change_half_width"])
    shown = f"+{shown}" if one["change"] > 0 and float(shown.split()[0]) else shown
    return f"**{shown}**" if is_clear(Spread(one["change"], float("nan"), one["change_half_width"], 2)) else shown


def table(kept: Kept, metrics: tuple[str, ...] = (), splits: tuple[str, ...] = (), labels: tuple[str, ...] = ()) -> str:
    """Paper and ours, method by method; only some metrics, splits or methods if asked."""
    lines = [
        line
        for line in (_line(one, kept["seeds"]) for one in kept["lines"])
        if _wanted(line.metric, metrics) and _wanted(line.split, splits) and _wanted(line.label, labels)
    ]
    names, rows = as_rows(lines)
    titles = [title(n) for n in names]
    text = [f"| method | split | | {' | '.join(titles)} |", "| --- | --- | --- |" + " ---: |" * len(names)]
    for row in rows:
        cells = [figures(line) for line in row.lines]
        for i, who in enumerate(WHO):
            head = f"`{row.label}` | {row.split}" if i == 0 else " | "
            text.append(f"| {head} | {who} | {' | '.join(cell[i] for cell in cells)} |")
    return "\n".join(text)


def _wanted(name: str, chosen: tuple[str, ...]) -> bool:
    return not chosen or name in chosen


def _line(kept: Kept, seeds: int) -> PaperLine:
    ours = Spread(kept["ours"], kept["deviation"], half_width(kept["deviation"], seeds), seeds)
    return PaperLine(kept["table"], kept["split"], kept["label"], kept["metric"], kept["paper"], kept["paper_deviation"], ours)
