"""What the figures of `where_time_goes.py` say, as a table. Nothing is timed here, and nothing but
Python is needed.
"""

from typing import Any

PARTS = {
    "products": "local steps: matrix products, loss and update",
    "gathering": "local steps: gathering rows",
    "loop": "local steps: overhead of the loop",
    "measuring": "evaluating the received model before training",
    "rest of a round": "rest of a round: coefficients, sums, server step",
    "evaluating": "two evaluations",
    "drawing": "sampling clients and batches, on the host",
    "moving": "moving the data to the device",
    "around": "other work done once, on the host",
}


def table(found: dict[str, Any]) -> str:
    """One column for each case, one row for each part; milliseconds of CPU time per round."""
    cases = found["cases"]
    lines = [f"| ms per round | {' | '.join(cases)} |", f"| --- |{' ---: |' * len(cases)}"]
    for name, title in PARTS.items():
        lines.append(
            f"| {title} | {' | '.join(short(case['parts_ms'][name]) for case in cases.values())} |"
        )
    for name, title in {
        "cpu_ms": "**total, CPU time**",
        "clock_ms": "total, elapsed time",
    }.items():
        lines.append(f"| {title} | {' | '.join(short(case[name]) for case in cases.values())} |")
    lines.append(
        "| per run, CPU time |"
        f" {' | '.join(short(case['cpu_ms'] / case['runs']) for case in cases.values())} |"
    )
    lines.append(
        "| compilation, seconds in total |"
        f" {' | '.join(str(case['compile_seconds']) for case in cases.values())} |"
    )
    return "\n".join(lines)


def document(found: dict[str, Any]) -> str:
    """The table, and the machine it is of."""
    of = found["machine"]
    rounds = ", ".join(f"{case['rounds']:,} ({title})" for title, case in found["cases"].items())
    where = (
        f"{of['cores']} cores of an {of['cpu']}, JAX {found['versions']['jax']}, {found['date']}"
    )
    return f"{table(found)}\n\nMeasured on {where}.\n\nRounds per run: {rounds}."


def short(ms: float) -> str:
    """Three digits, or so."""
    return (
        f"{ms:,.0f}"
        if ms >= 100
        else f"{ms:.1f}"
        if ms >= 10
        else f"{ms:.2f}"
        if ms >= 0.1
        else f"{ms:.3f}"
    )
