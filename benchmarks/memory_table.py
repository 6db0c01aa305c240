"""What the figures of `memory.py` say, as a table. Nothing is measured here, and nothing but Python
is needed.
"""

from typing import Any


def table(found: dict[str, Any]) -> str:
    """One row for each case, and the machine they are of."""
    of = found["machine"]
    lines = [
        (
            "| data | clients | rows of a client | a round | lanes | program, MB | peak, MB |"
            " compiling, s |"
        ),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(row(case) for case in found["cases"]),
    ]
    taken = (
        f"Taken {found['date']} on {of['cpu']}, {of['cores']} cores, JAX"
        f" {found['versions']['jax']}."
    )
    return "\n".join(lines) + f"\n\n{taken}"


def row(case: dict[str, Any]) -> str:
    data = case["data"] if case["found"] == case["data"] else f"{case['data']} ({case['found']})"
    least, most = case["smallest_client"], case["largest_client"]
    cells = [
        data,
        f"{case['clients']:,}",
        f"{least:,}" if least == most else f"{least:,} to {most:,}",
        f"{case['cohort']:,}",
        str(case["lanes"]),
        f"{case['program_megabytes']:,.1f}",
        f"{case['peak_megabytes']:,}",
        f"{case['compile_seconds']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"
