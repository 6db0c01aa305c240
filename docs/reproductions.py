"""Pages of kept reproductions: the paper's figures beside ours, from docs/results/*.json."""

from typing import Any

from evenly.experiment.reproduce import Line, as_rows
from evenly.metrics import Spread
from evenly.report.beside import WHO, figures, title

Kept = dict[str, Any]


def page(kept: Kept) -> str:
    """The generated part of one reproduction's page."""
    versions = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
    taken = f"Taken {kept['date']} on {kept['device']} with {versions}: {kept['rounds']:,} rounds, {kept['seeds']} seeds"
    return f"{kept['notes']}\n\n    {kept['command']}\n\n{taken}, mean ± standard deviation over seeds.\n\n{table(kept)}"


def table(kept: Kept, metrics: tuple[str, ...] = (), splits: tuple[str, ...] = (), labels: tuple[str, ...] = ()) -> str:
    """Paper and ours, method by method; only some metrics, splits or methods if asked."""
    lines = [
        line
        for line in map(_line, kept["lines"])
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


def _line(kept: Kept) -> Line:
    ours = Spread(kept["ours"], kept["deviation"], float("nan"), 2 if kept["deviation"] == kept["deviation"] else 1)
    return Line(kept["table"], kept["split"], kept["label"], kept["metric"], kept["paper"], kept["paper_deviation"], ours)
