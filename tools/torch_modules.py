"""The part of docs/speed.md that shows what benchmarks/from_torch.py measured."""

from statistics import median
from typing import Any

from tools.markdown import numbers, table, versions

Measured = dict[str, Any]


def speed_section(found: list[Measured]) -> str:
    """Return the table of a translated LeNet, a column for each machine."""
    measured = [one["speed"] for one in found if "speed" in one]
    if not measured:
        return ""
    columns = [_speed_cells(one) for one in measured]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    head = ["ten clients, 60 pictures each", *(_device(one) for one in measured)]
    taken = "\n".join(_taken(one) for one in measured)
    return (
        "## A PyTorch module in the simulator\n\nFedAvg with the LeNet of the table above, written"
        " in PyTorch and [translated](models.md#how-to-pass-a-model), in batches of ten. The"
        " targets are at most 1.5 times the built-in LeNet's round, and a round of the PyTorch loop"
        " that takes at least as long on a CPU and at least 5 times as long on a GPU. The three"
        " take turns; of five turns the best counts, because other programs only make a round"
        " longer.\n\n"
        f"{table(head, rows, numbers(1, len(head)))}\n\n{taken}"
    )


def _speed_cells(one: Measured) -> dict[str, str]:
    times, first = one["milliseconds"], one["first_round_seconds"]
    best = {name: min(values) for name, values in times.items()}
    return {
        "ms per round, translated": _spread(times["from_torch"]),
        "ms per round, built-in LeNet": _spread(times["built-in"]),
        "ms per round, loop in PyTorch": _spread(times["PyTorch"]),
        "translated, relative to built-in": f"{best['from_torch'] / best['built-in']:.2f}",
        "loop in PyTorch, relative to translated": f"{best['PyTorch'] / best['from_torch']:.2f}",
        "translation, s": f"{one['translation_seconds']:.1f}",
        "first round with compilation, translated, s": f"{first['from_torch']:.1f}",
        "first round with compilation, built-in, s": f"{first['built-in']:.1f}",
    }


def _spread(values: list[float]) -> str:
    digits = 0 if min(values) >= 100 else 2
    return f"{min(values):,.{digits}f} (median {median(values):,.{digits}f})"


def _device(one: Measured) -> str:
    machine = one["machine"]
    if one["device"] == "cpu":
        return f"{machine['cpu']}, {machine['cores']} cores"
    return one["device"]


def _taken(one: Measured) -> str:
    where = f"{_device(one)}, {one['date']}, {versions(one['versions'])}"
    others = f"{100 * one['others']:.0f} % of the machine"
    return f"- {where}: `{one['command']}`; other processes used {others}."
