"""What the figures of `synthetic.py` say: medians, ratios, a table and a few sentences. Nothing is timed here."""

from typing import Any, NamedTuple

import machine
import numpy as np

# The parameters are compared after each of these rounds. Only the middle one is judged: in round 13 a difference of 1e-9
# grows a thousandfold even in float64 (see README.md), so that later ones say nothing about the programs.
COMPARED_ROUNDS, JUDGED_ROUND = (5, 10, 20), 10
TOLERANCE = 1e-4
TARGET_RATIO, TARGET_TOGETHER = 20.0, 8.0


class Timed(NamedTuple):
    """One repetition: its time, and the share of the machine that others used meanwhile."""

    seconds: float
    others: float


def summary(rounds: int, timed: list[Timed]) -> dict[str, Any]:
    """Median and range in ms per round, and the most that others used of the machine in any repetition."""
    ms = sorted(1e3 * t.seconds / rounds for t in timed)
    return {
        "ms_per_round": round(float(np.median(ms)), 3),
        "range": [round(ms[0], 3), round(ms[-1], 3)],
        "others": round(max(t.others for t in timed), 2),
    }


def conclusions(found: dict[str, Any]) -> dict[str, Any]:
    """The two ratios, and whether they reach their targets."""
    one = found["evenly"]["ms_per_round"]
    together = round(found["evenly25"]["ms_per_round"] / one, 2)
    ratios: dict[str, Any] = {"together": together, "together_reached": together <= TARGET_TOGETHER}
    if "torch" in found:
        faster = round(found["torch"]["ms_per_round"] / one, 1)
        ratios |= {"faster": faster, "faster_reached": faster >= TARGET_RATIO}
        judged = found["differences"].get(str(JUDGED_ROUND))
        ratios["agreement_reached"] = None if judged is None else judged < TOLERANCE
    return ratios


def table(found: dict[str, Any]) -> str:
    """The results as a Markdown table."""
    titles = {"evenly": "evenly, one run", "torch": "PyTorch loop", "evenly25": "evenly, 25 runs together"}
    lines = ["| contender | ms per round | range | first call, s | peak memory, MB |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, title in titles.items():
        if name in found:
            row = found[name]
            first = "" if row["first_seconds"] is None else f"{row['first_seconds']:.1f}"
            low, high = row["range"]
            lines.append(f"| {title} | {row['ms_per_round']:.2f} | {low:.2f} to {high:.2f} | {first} | {row['megabytes']} |")
    return "\n".join(lines)


def sentences(found: dict[str, Any]) -> str:
    """What the table says, in words."""
    ratios = found["ratios"]
    lines = [f"25 runs together take {ratios['together']:.1f} times as long as one run (target: at most {TARGET_TOGETHER:g})."]
    if "faster" in ratios:
        lines.insert(0, f"evenly is {ratios['faster']:.1f} times as fast as the PyTorch loop (target: at least {TARGET_RATIO:g}).")
        lines += comparison(found)
    busiest = max(found[name]["others"] for name in ("evenly", "torch", "evenly25") if name in found)
    quiet = "the machine was quiet" if busiest < machine.QUIET else "the machine was NOT quiet, and the figures are provisional"
    lines.append(f"Other processes used up to {100 * busiest:.0f} % of the machine during a repetition: {quiet}.")
    return "\n".join(lines)


def comparison(found: dict[str, Any]) -> list[str]:
    """That both learnt the same."""
    ours, theirs = found["accuracy"]["evenly"], found["accuracy"]["torch"]
    trial = ", ".join(f"{threads}: {ms:.1f} ms" for threads, ms in found["torch_threads"]["trial_ms_per_round"].items())
    apart = ", ".join(f"{value:.0e} after {rounds}" for rounds, value in found["differences"].items())
    return [
        f"PyTorch ran with {found['torch_threads']['threads']} thread(s), the better in a short trial ({trial}).",
        f"The largest difference between the two models' parameters was {apart} rounds (judged after {JUDGED_ROUND}: below {TOLERANCE:g}).",
        f"Mean test accuracy of the clients at the end: {ours['clients']:.1f} % (evenly), {theirs['clients']:.1f} % (PyTorch).",
    ]
