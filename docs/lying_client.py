"""The table of docs/flower-trust.md, from the results that benchmarks/lying_client.py kept."""

from typing import Any

LIES = {
    "rows": "1,000,000 rows",
    "huge loss": "a loss of 100,000",
    "tiny loss": "a loss of 0.00000001",
    "update": "no lie: an update 50 times as long, the other way",
}


def page(kept: dict[str, Any]) -> str:
    """When and how it was measured, the table, and what it shows in a few sentences."""
    used = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
    caps = ", ".join(f'{name}="{value}"' for name, value in kept["caps"].items())
    taken = (
        f"Taken {kept['date']} with {used}, {kept['clients']} clients, {kept['rounds']} rounds and {kept['seeds']} seeds; with caps means "
        f"`Caps({caps})`:\n\n    {kept['command']}"
    )
    return f"{taken}\n\n{table(kept['rows'])}\n\n" + "\n".join(f"- {line}" for line in sentences(kept))


def table(rows: list[dict[str, Any]]) -> str:
    """Weights and accuracies in percent: honest, lying, lying with caps; and what the caps cost when nobody lies."""
    head = ["method", "what client 0 says", "its weight", "the others' accuracy", "with caps, when nobody lies"]
    lines = [head, ["---"] * 4 + ["---:"]]
    for row in rows:
        cost = f"{row['honest, capped']['average']:.1f}"
        lines.append([row["method"], LIES[row["lie"]], _three(row, "weight"), _three(row, "average"), cost])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _three(row: dict[str, Any], name: str) -> str:
    honest, lying, capped = (f"{row[how][name]:.1f}" for how in ("honest", "lying", "capped"))
    return f"{honest} → **{lying}** → {capped}".replace(" ", "\u00a0")  # on one line


def sentences(kept: dict[str, Any]) -> list[str]:
    """What the figures say, whatever they are."""
    lies = [row for row in kept["rows"] if row["lie"] != "update"]
    taken = [row for row in lies if row["lying"]["weight"] > 50]
    most = max(lies, key=lambda row: row["capped"]["weight"])
    loss = max(lies, key=lambda row: row["honest"]["average"] - row["lying"]["average"])
    left = max(lies, key=lambda row: row["honest"]["average"] - row["capped"]["average"])
    return [
        f"Without caps one client of {kept['clients']} takes more than half of all weight in {len(taken)} of {len(lies)} cases. The others "
        f"lose most under {loss['method']}: {loss['honest']['average']:.1f} % become {loss['lying']['average']:.1f} %.",
        f"With caps it never gets more than {most['capped']['weight']:.1f} % ({most['method']}), where an equal share is "
        f"{100 / kept['clients']:.0f} %. The others then lose at most {left['honest']['average'] - left['capped']['average']:.1f} points "
        f"({left['method']}).",
        *_poisoned(kept["rows"]),
    ]


def _poisoned(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"An update that is sent the wrong way ({row['method']}) takes the others from {row['honest']['average']:.1f} % to "
        f"{row['lying']['average']:.1f} %; with a cap on its length to {row['capped']['average']:.1f} %. Its direction no cap can judge."
        for row in rows
        if row["lie"] == "update"
    ]
