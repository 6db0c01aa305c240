"""The tables and the picture of docs/speed.md, from the results that benchmarks/peers.py kept."""

import json
import sys
from pathlib import Path
from typing import Any

import altair as alt

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))  # scripts, not a package

import judging
import thesis_summary

from evenly.report.charts.theme import colour_of, finish, shape_of, values

RESULTS = Path(judging.__file__).parent / "results"
SHORT = {"synthetic": "Synthetic", "adult": "Adult", "lenet": "LeNet"}  # as the page lists what is trained
Kept = dict[str, dict[str, Any]]


def kept() -> Kept:
    """The results of every workload that was measured."""
    paths = {name: RESULTS / f"{name}.json" for name in judging.WORDS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def page(found: Kept) -> str:
    """The targets first, then every workload with its table, a whole study, and what a GPU makes of it."""
    return "\n\n".join([targets(found), *(part(one) for one in found.values()), study(), gpu()])


def study() -> str:
    """The group-fairness study beside one of its trainings in Flower."""
    found = json.loads((RESULTS / "thesis.json").read_text())
    where, lines = found["machine"], "\n".join(f"- {line}" for line in thesis_summary.sentences(found).splitlines())
    taken = f"Taken {found['date']} on {where['cpu']}, {where['cores']} cores, {where['system']}:\n\n    {found['command']}"
    return f"## A whole study, and one of its trainings in Flower\n\n{taken}\n\n{lines}"


def gpu() -> str:
    """What benchmarks/gpu.py found."""
    found = json.loads((RESULTS / "gpu.json").read_text())
    whole, cell, rotate, same = (found[part] for part in ("study", "cell", "rotate", "same"))
    plain, momentum = (rotate[name] for name in ("fedavg(learning_rate=0.01)", "fedavg(learning_rate=0.01)+local-momentum"))
    wanted = {name: f"{target['target']:g}" for name, target in found["targets"].items()}
    beside, taken = found["targets"]["same-rotate"]["found"], found["same-rotate"].get("taken")
    elsewhere = f" ({taken})" if taken else ""
    seconds, partition = whole["process_seconds"], cell["median_seconds"]
    rows = [
        ("3,600 trainings of thesis/adult-dirichlet, from the start of the process to its end, seconds", f"{seconds:.1f}", "", "study"),
        ("its peak of memory, host and device, MB", f"{whole['megabytes']:,} and {whole['device_megabytes']:,}", "", ""),
        ("the 720 of one partition, compiled, seconds", f"{partition:.2f}", _range(cell["all"]), "cell"),
        ("the same the first time, compiling included, seconds", f"{cell['first_seconds']:.1f}", "", ""),
        ("FedAvg with 25 LeNets on FairMNISTRotate, ms per round", f"{plain['ms_per_round']:.2f}", _range(plain["all"]), "rotate"),
        ("the same with momentum 0.9, ms per round", f"{momentum['ms_per_round']:.2f}", _range(momentum["all"]), ""),
        (f"largest difference from the CPU's accuracy, {same['runs']} trainings of 20 rounds, points", same["points_apart"], "", "same"),
        (f"the same of FairMNISTRotate, 3 seeds and 10 rounds, over the range of the seeds{elsewhere}", beside, "", "same-rotate"),
    ]
    table = ["| | found | range | target, below |", "| --- | ---: | ---: | ---: |"]
    table += [f"| {what} | {value} | {spread} | {wanted.get(name, '')} |" for what, value, spread, name in rows]
    used = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    where = f"one {whole['device']} with {found['machine']['cores']} cores of an {found['machine']['cpu']}, {used}"
    taken = f"Taken {found['date']} on {where}; every part is a process without compiled programs:"
    return f"## One GPU\n\n{taken}\n\n    {found['command']}\n\n" + "\n".join(table)


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


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
