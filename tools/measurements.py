"""Parts of pages and pictures that show what the benchmarks measured, from
benchmarks/results/*.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

import altair as alt

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # scripts, not a package

import growth_chart
import growth_summary
import judging
import memory_table
import thesis_summary
import where_time_table

from evenly.report.charts.theme import colour_of, finish, shape_of, values
from tools.markdown import folded, numbers, table, versions
from tools.torch_modules import speed_section

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# workloads, as the picture names them
SHORT = {"synthetic": "Synthetic", "adult": "Adult", "lenet": "LeNet"}
LIES = {
    "rows": "1,000,000 rows",
    "huge loss": "a loss of 100,000",
    "tiny loss": "a loss of 0.00000001",
    "update": "no lie; sends an update 50 times as long, in the opposite direction",
}
NOTHING = "Nothing is measured yet."
Measured = dict[str, Any]


def stored(name: str) -> Measured | None:
    """Return the results of a benchmark, if it was run."""
    return required(name) if (BENCHMARKS / "results" / f"{name}.json").exists() else None


def required(name: str) -> Measured:
    """Return the results of a benchmark that every version of the documentation shows."""
    return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())


def before(result: Measured) -> str:
    """Return a paragraph about figures that are older than the present code of a round."""
    if result["versions"]["evenly"] != "0.1.0":
        return ""
    return (
        "The figures of version 0.1.0 are older than the present code of a round. They have not"
        " been measured again.\n\n"
    )


def pictures() -> dict[str, alt.LayerChart]:
    """Return the charts of benchmarks by the names of their files."""
    growth = stored("growth")
    return {**(growth_chart.pictures(growth) if growth else {}), "speed": speed_chart(workloads())}


def growth_part() -> str:
    """Return the requirements and the tables of docs/growth.md."""
    growth = stored("growth")
    return folded(before(growth) + growth_summary.document(growth)) if growth else NOTHING


def where_part() -> str:
    """Return the table of docs/where-the-time-goes.md."""
    measured = stored("where_time_goes")
    return folded(before(measured) + where_time_table.document(measured)) if measured else NOTHING


def memory_part() -> str:
    """Return the table of memory in benchmarks/README.md."""
    measured = stored("memory")
    return memory_table.table(measured) if measured else NOTHING


def privacy_part() -> str:
    """Return how long a private round and a private step take, for docs/privacy.md."""
    result = stored("privacy")
    if not result:
        return NOTHING
    clients = [
        [
            judging.WORDS[name],
            _milliseconds(one["plain"]["median"]),
            _milliseconds(one["private"]["median"]),
            f"{one['ratio']:.2f}",
            _range(one["ratios"]),
        ]
        for name, one in result["client"].items()
    ]
    rows = [
        [
            judging.WORDS[name],
            _milliseconds(one["evenly"]["median"]),
            _milliseconds(one["opacus"]["median"]),
            f"{one['ratio']:.2f}",
            _range(one["ratios"]),
        ]
        for name, one in result["row"].items()
    ]
    right = ["---", *["---:"] * 4]
    first = ["a round, CPU time", "ms without", "ms with", "ratio", "range"]
    second = ["a step of DP-SGD, clock", "ms in evenly", "ms in Opacus", "Opacus / evenly", "range"]
    used = versions(result["versions"])
    tables = [table(first, clients, right), *([table(second, rows, right)] if rows else [])]
    opacus = ", and a local step with `+dp(unit=row)` beside Opacus on the same model"
    return folded(
        "A round with `+dp(unit=client)` beside the same round without it"
        f"{opacus if rows else ''}, in turns."
        f" {_taken(result).replace('Measured', 'The rounds were measured')}, with {used}:\n\n   "
        f" {result['command']}\n\n"
        + "\n\n".join(tables)
        + "\n\nA ratio below 1 in the first table means that the difference is smaller than the"
        " variation of the measurement."
        + "".join(_row_words(name, one) for name, one in result["row"].items())
    )


def _row_words(name: str, one: Measured) -> str:
    taken = _taken(one).replace("Measured", "were measured")
    return f" The steps of {judging.WORDS[name]} {taken}, with {versions(one['versions'])}."


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def workloads() -> dict[str, Measured]:
    """Return the results of every workload on which evenly was compared with its peers."""
    results = {name: stored(name) for name in judging.WORDS}
    return {name: result for name, result in results.items() if result}


def speed_part() -> str:
    """Return the generated part of docs/speed.md: targets, one table per workload, a PyTorch
    module, a whole study, and one GPU.
    """
    results = workloads()
    old = "".join({before(result): None for result in results.values()})
    parts = [old + targets_part(results), *map(workload_part, results.values())]
    parts += [speed_section(torch_results()), study_part(), gpu_part()]
    return folded("\n\n".join(filter(None, parts)))


def torch_results() -> list[Measured]:
    """Return what was measured of translated PyTorch modules, on a CPU and on a GPU."""
    return [result for name in ("from_torch", "from_torch_gpu") if (result := stored(name))]


def targets_part(results: dict[str, Measured]) -> str:
    rows = [
        [
            judging.WORDS[name],
            target.text,
            f"{target.wanted:g}",
            f"{target.found:.3g}",
            "yes" if target.reached else "**no**",
        ]
        for name, result in results.items()
        for target in judging.targets(result)
    ]
    head = ["workload", "quantity", "target", "measured", "reached"]
    return table(head, rows, ["---", "---", "---:", "---:", "---"])


def workload_part(result: Measured) -> str:
    """Return when and where a workload was measured, its table, and further facts."""
    facts = "\n".join(f"- {line}" for line in judging.facts(result))
    taken = f"{_taken(result)}, with {versions(result['versions'])}:\n\n    {result['command']}"
    return (
        f"## {judging.WORDS[result['workload']]}\n\n{taken}\n\n{judging.table(result)}\n\n{facts}"
    )


def study_part() -> str:
    """Return how long a whole study takes, beside one of its trainings in Flower."""
    result = required("thesis")
    sentences = thesis_summary.sentences(result).splitlines()
    facts = "\n".join(f"- {line}" for line in sentences)
    return (
        f"## A complete study, and one of its trainings in Flower\n\n{_taken(result)}:\n\n   "
        f" {result['command']}\n\n{facts}"
    )


def _taken(result: Measured) -> str:
    machine = result["machine"]
    cpu = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}"
    return f"Measured on {result['date']} on {cpu}"


def gpu_part() -> str:
    """Return the times that benchmarks/gpu.py measured on one GPU."""
    result = required("gpu")
    machine, used = result["machine"], versions(result["versions"])
    where = (
        f"one {result['study']['device']} with {machine['cores']} cores of an {machine['cpu']},"
        f" {used}"
    )
    taken = f"Measured on {result['date']} on {where}. Every part is a new process without cache:"
    head = ["", "measured", "range", "target, below", "reached", "earlier target"]
    rows = table(head, _gpu_rows(result), numbers(1, len(head)))
    return f"## One GPU\n\n{taken}\n\n    {result['command']}\n\n{rows}"


def _gpu_rows(result: Measured) -> list[list[str]]:
    rows = [
        *_study_rows(result["study"], result["cell"]),
        *_rotate_rows(result["rotate"]),
        *_difference_rows(result),
    ]
    return [
        [words, str(value), spread, *_goal(result["targets"].get(name))]
        for words, value, spread, name in rows
    ]


def _goal(target: Measured | None) -> tuple[str, str, str]:
    """Return a target, whether it was reached, and the target before it."""
    if target is None:
        return "", "", ""
    earlier = f"{target['earlier']:g}" if "earlier" in target else ""
    return f"{target['target']:g}", "yes" if target["reached"] else "**no**", earlier


def _study_rows(study: Measured, cell: Measured) -> list[tuple[str, str, str, str]]:
    trainings = (
        "3,600 trainings of thesis/adult-dirichlet, from start to end of the process, seconds"
    )
    megabytes = f"{study['megabytes']:,} and {study['device_megabytes']:,}"
    return [
        (trainings, f"{study['process_seconds']:.1f}", "", "study"),
        ("their peak memory, host and device, MB", megabytes, "", ""),
        (
            "the 720 trainings of one partition, compiled, seconds",
            f"{cell['median_seconds']:.2f}",
            _range(cell["all"]),
            "cell",
        ),
        (
            "the same for the first time, with compilation, seconds",
            f"{cell['first_seconds']:.1f}",
            "",
            "",
        ),
    ]


def _rotate_rows(rotate: Measured) -> list[tuple[str, str, str, str]]:
    plain, momentum = (
        rotate[name]
        for name in ("fedavg(learning_rate=0.01)", "fedavg(learning_rate=0.01)+local-momentum")
    )
    lenets = "FedAvg with 25 LeNets on FairMNISTRotate, ms per round"
    return [
        (lenets, f"{plain['ms_per_round']:.2f}", _range(plain["all"]), "rotate"),
        (
            "the same with momentum 0.9, ms per round",
            f"{momentum['ms_per_round']:.2f}",
            _range(momentum["all"]),
            "",
        ),
    ]


def _difference_rows(result: Measured) -> list[tuple[str, Any, str, str]]:
    same, taken = result["same"], result["same-rotate"].get("taken")
    elsewhere = f" ({taken})" if taken else ""
    adult = (
        f"largest difference in accuracy from a CPU, {same['runs']} trainings of 20 rounds, points"
    )
    rotate = (
        "the same for FairMNISTRotate, 3 seeds and 10 rounds, relative to the range over"
        f" seeds{elsewhere}"
    )
    return [
        (adult, same["points_apart"], "", "same"),
        (rotate, result["targets"]["same-rotate"]["found"], "", "same-rotate"),
    ]


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def speed_chart(results: dict[str, Measured]) -> alt.LayerChart:
    """Return a chart of how many times as long as evenly each contender takes for a round, on every
    workload.
    """
    rows = []
    for name, workload in results.items():
        others = dict(workload["contenders"])
        ours = others.pop("evenly")["ms_per_round"]
        rows += [
            {"method": SHORT[name], "contender": one["title"], "times": one["ms_per_round"] / ours}
            for one in others.values()
        ]
    names = [SHORT[name] for name in results]
    order = sorted(
        {row["contender"] for row in rows},
        key=lambda who: min(row["times"] for row in rows if row["contender"] == who),
    )
    x = alt.X(
        "times:Q",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(title="Time of a round, in rounds of evenly", format="~g", tickCount=6),
    )
    y = alt.Y("contender:N", sort=order, axis=alt.Axis(title=None, labelLimit=260, grid=True))
    base = alt.Chart(values(rows)).encode(x=x, y=y)
    layers = [
        alt.Chart(values([{"times": 1.0}])).mark_rule(style="guide-line").encode(x="times:Q"),
        base.mark_point(filled=True, size=70, opacity=0.9).encode(
            color=colour_of(names), shape=shape_of(names)
        ),
    ]
    words = "How long a round takes beside one run of evenly"
    return finish(
        layers,
        title=words,
        description=f"{words}: one line per contender, on a logarithmic scale.",
        height=24 * len(order) + 20,
    )


def lying_client_part() -> str:
    """Return the generated part of docs/flower-trust.md: how it was measured, the table, and its
    summary in words.
    """
    result = required("lying_client")
    caps = ", ".join(f'{name}="{value}"' for name, value in result["caps"].items())
    taken = (
        f"Measured on {result['date']} with {versions(result['versions'])}, {result['clients']}"
        f" clients, {result['rounds']} rounds and {result['seeds']} seeds. The caps are"
        f" `Caps({caps})`:\n\n    {result['command']}"
    )
    found = "\n".join(f"- {line}" for line in lying_client_sentences(result))
    return folded(f"{before(result)}{taken}\n\n{_lies_table(result['rows'])}\n\n{found}")


def _lies_table(rows: list[Measured]) -> str:
    """Return weights and accuracies in percent: honest, lying, lying with caps; and the cost of
    caps when nobody lies.
    """
    head = [
        "method",
        "what client 0 reports",
        "its share of all weight",
        "accuracy of the others",
        "accuracy with caps if nobody lies",
    ]
    cells = [
        [
            row["method"],
            LIES[row["lie"]],
            _three(row, "weight"),
            _three(row, "average"),
            f"{row['honest, capped']['average']:.1f}",
        ]
        for row in rows
    ]
    return table(head, cells, numbers(4, 5))


def _three(row: Measured, name: str) -> str:
    honest, lying, capped = (f"{row[how][name]:.1f}" for how in ("honest", "lying", "capped"))
    return f"{honest} → **{lying}** → {capped}".replace(" ", "\u00a0")  # on one line


def lying_client_sentences(result: Measured) -> list[str]:
    """Return the largest effects of lies, without caps and with them, as sentences."""
    clients, lies = result["clients"], [row for row in result["rows"] if row["lie"] != "update"]
    taken = [row for row in lies if row["lying"]["weight"] > 50]
    most = max(lies, key=lambda row: row["capped"]["weight"])
    loss = max(lies, key=lambda row: row["honest"]["average"] - row["lying"]["average"])
    left = max(lies, key=lambda row: row["honest"]["average"] - row["capped"]["average"])
    return [
        (
            f"Without caps, one client of {clients} gets more than half of all weight in"
            f" {len(taken)} of {len(lies)} cases. The others lose most under {loss['method']}: from"
            f" {loss['honest']['average']:.1f} % to {loss['lying']['average']:.1f} %."
        ),
        (
            f"With caps, it gets at most {most['capped']['weight']:.1f} % ({most['method']}); an"
            f" equal share is {100 / clients:.0f} %. The others lose at most"
            f" {left['honest']['average'] - left['capped']['average']:.1f} points"
            f" ({left['method']})."
        ),
        *_poisoned(result["rows"]),
    ]


def _poisoned(rows: list[Measured]) -> list[str]:
    return [
        f"An update in the opposite direction ({row['method']}) lowers the others from"
        f" {row['honest']['average']:.1f} % to {row['lying']['average']:.1f} %, and with a cap on"
        f" its norm to {row['capped']['average']:.1f} %. No cap can check its direction."
        for row in rows
        if row["lie"] == "update"
    ]
