"""The tables and the picture of docs/speed.md, from the results that benchmarks/peers.py kept."""

import json
import sys
from pathlib import Path
from typing import Any

import altair as alt

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))  # scripts, not a package

import judging

from evenly.report.charts.theme import colour_of, finish, shape_of, values

RESULTS = Path(judging.__file__).parent / "results"
SHORT = {"synthetic": "Synthetic", "adult": "Adult", "lenet": "LeNet"}  # as the page lists what is trained
Kept = dict[str, dict[str, Any]]


def kept() -> Kept:
    """The results of every workload that was measured."""
    paths = {name: RESULTS / f"{name}.json" for name in judging.WORDS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def page(found: Kept) -> str:
    """The targets first, then every workload with its table."""
    return "\n\n".join([targets(found), *(part(one) for one in found.values())])


def targets(found: Kept) -> str:
    lines = ["| workload | evenly is or takes | target | found | reached |", "| --- | --- | ---: | ---: | --- |"]
    for name, one in found.items():
        for target in judging.reached(one):
            answer = "yes" if target.reached else "**no**"
            lines.append(f"| {judging.WORDS[name]} | {target.text} | {target.wanted:g} | {target.found:.3g} | {answer} |")
    return "\n".join(lines)


def part(found: dict[str, Any]) -> str:
    """One workload: when and where it was measured, the table, and what else there is to know."""
    where = found["machine"]
    used = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    taken = f"Taken {found['date']} on {where['cpu']}, {where['cores']} cores, {where['system']}, with {used}:\n\n    {found['command']}"
    facts = "\n".join(f"- {line}" for line in judging.facts(found))
    return f"## {judging.WORDS[found['workload']]}\n\n{taken}\n\n{judging.table(found)}\n\n{facts}"


def chart(found: Kept) -> alt.LayerChart:
    """How many times as long as one run of evenly each contender takes, on every workload."""
    rows = []
    for name, workload in found.items():
        others = dict(workload["contenders"])
        ours = others.pop("evenly")["ms_per_round"]
        rows += [{"method": SHORT[name], "contender": one["title"], "times": one["ms_per_round"] / ours} for one in others.values()]
    names = [SHORT[name] for name in found]
    order = sorted({row["contender"] for row in rows}, key=lambda who: min(row["times"] for row in rows if row["contender"] == who))
    x = alt.X("times:Q", scale=alt.Scale(type="log"), axis=alt.Axis(title="Time of a round, in rounds of evenly", format="~g", tickCount=6))
    y = alt.Y("contender:N", sort=order, axis=alt.Axis(title=None, labelLimit=260, grid=True))
    base = alt.Chart(values(rows)).encode(x=x, y=y)
    layers = [
        alt.Chart(values([{"times": 1.0}])).mark_rule(style="guide-line").encode(x="times:Q"),
        base.mark_point(filled=True, size=70, opacity=0.9).encode(color=colour_of(names), shape=shape_of(names)),
    ]
    words = "How long a round takes beside one run of evenly"
    return finish(layers, title=words, description=f"{words}: one line per contender, on a logarithmic scale.", height=24 * len(order) + 20)
