"""Parts of pages that show what `make versions` and `make chaos` found."""

from collections import Counter

from tools.markdown import folded, numbers, table
from tools.measurements import NOTHING, Measured, stored


def versions_part() -> str:
    """Return the table of docs/flower-versions.md."""
    found = stored("flower_versions")
    if found is None:
        return NOTHING
    rows = [
        [
            one["version"],
            str(one["ports"]),
            _yes(one["secret"]),
            _yes(one["tls"]),
            _yes(one["keys"]),
            _yes(one["signed apps"]),
            f"{one['away']:.0e}" if one["away"] else "0",
        ]
        for one in found["versions"]
    ]
    head = [
        "Flower", "ports of a SuperLink", "secret for ServerApps", "TLS for ServerApps",
        "keys of nodes at the server", "signed apps", "difference from the simulator",
    ]  # fmt: skip
    apart = f"{found['between']:.0e}" if found["between"] else "0"
    said = (
        f"`make versions` on {found['date']}. The last column is the largest difference of a number"
        f" of the model; between two versions it is {apart}."
    )
    return folded(f"{table(head, rows, numbers(6, 7))}\n\n{said}")


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def chaos_part() -> str:
    """Return the table of kills in docs/flower-deploy.md."""
    found = stored("chaos")
    if found is None:
        return NOTHING
    kills = found["kills"]
    roles = list(dict.fromkeys(one["role"] for one in kills))
    rows = [_row(role, [one for one in kills if one["role"] == role]) for role in roles]
    head = [
        "killed", "kills", "went on alone", "needed `flwr run` again", "a client left out",
        "same model", "rounds lost",
    ]  # fmt: skip
    wrong = [one for one in kills if one["problem"]]
    stages = ", ".join(dict.fromkeys(one["stage"] for one in kills))
    said = (
        f"`make chaos` on {found['date']} with Flower {found['versions']['flwr']}: {len(kills)}"
        f" processes killed with SIGKILL, one per run, at these stages: {stages}."
        ' "Same model" means at most 1e-6 from the simulator\'s; it differs only where a client was'
        " left out of a round."
        f" Problems: {len(wrong)}."
    )
    return folded(f"{table(head, rows, numbers(1, 7))}\n\n{said}")


def _row(role: str, kills: list[Measured]) -> list[str]:
    seen = Counter(
        again=sum(one.get("runs", 0) > 1 for one in kills),
        out=sum(bool(one.get("left out")) for one in kills),
        same=sum(one.get("away", 1.0) <= 1e-6 for one in kills),
        lost=sum("lost" in one["problem"] for one in kills),
    )
    alone = sum(one.get("runs") == 1 for one in kills)
    counts = (len(kills), alone, seen["again"], seen["out"], seen["same"], seen["lost"])
    return [role, *map(str, counts)]
