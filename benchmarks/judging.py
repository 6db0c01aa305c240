"""What the figures say: medians, ratios, whether contenders learnt the same, targets, and what
became slower. Nothing is timed here.
"""

from typing import Any, NamedTuple

import machine
import numpy as np

TOLERANCE = 1e-4  # of parameters
NOISE = 1.3  # a ratio that is worse by more than this, in the median and at best, counts as slower
COMPILING = 20.0  # seconds
FASTER = {"synthetic": 7.0, "adult": 8.0, "lenet": 1.2}  # than the best peer, at least
BOUND = {"synthetic": 5.0, "adult": 2.5}  # times as long as C, at most
MILLISECONDS = {"synthetic": {"evenly": 0.55, "evenly144": 0.1}}  # of a round, at most
TOGETHER = "evenly144"
WORDS = {
    "synthetic": "q-FedAvg on the synthetic federation",
    "adult": "FedAvg on Adult",
    "lenet": "FedAvg with LeNet",
}
HEAD = (
    "| contender | ms per round | range | relative to evenly | first call, s | compilation, s |"
    " memory, MB | threads | repetitions × rounds |"
)
Found = dict[str, Any]


class Target(NamedTuple):
    """One thing that was set out to be reached."""

    text: str
    wanted: float
    found: float
    reached: bool


def summary(ms: list[float]) -> Found:
    """Median and range of the repetitions."""
    low, middle, high = (_rounded(float(m)) for m in np.quantile(ms, (0, 0.5, 1)))
    return {"ms_per_round": middle, "range": [low, high], "all": [_rounded(m) for m in ms]}


def agreement(check: str, difference: float | None, apart: float | None, band: float) -> bool:
    """Whether a contender learnt the same: by parameters where batches were the same, else by
    accuracy at the end.
    """
    return (
        apart is not None and abs(apart) <= band
        if check == "accuracy"
        else difference is not None and difference <= TOLERANCE
    )


def best_peer(found: Found) -> str | None:
    """The fastest of those that evenly is compared with, by the median; one that learnt something
    else does not count.
    """
    peers = {
        name: one["ms_per_round"]
        for name, one in found["contenders"].items()
        if one["peer"] and one["agrees"]
    }
    return min(peers, key=lambda name: peers[name]) if peers else None


def targets(found: Found) -> list[Target]:
    """Every target of a workload that the figures say something about."""
    there, name, judged = found["contenders"], found["workload"], []
    ours = there["evenly"]["ms_per_round"]
    if peer := best_peer(found):
        text = f"speed relative to the best peer ({there[peer]['title']}), at least"
        judged.append(_at_least(text, FASTER[name], there[peer]["ms_per_round"] / ours))
    if "c" in there and name in BOUND:
        judged.append(
            _at_most(
                "time relative to C, one run, at most",
                BOUND[name],
                ours / there["c"]["ms_per_round"],
            )
        )
    if "c" in there and TOGETHER in there:
        text = f"time relative to C, each of {there[TOGETHER]['runs']} joint runs, less than"
        judged.append(
            _at_most(text, 1.0, there[TOGETHER]["ms_per_round"] / there["c"]["ms_per_round"])
        )
    for own, wanted in MILLISECONDS.get(name, {}).items():
        if own in there:
            runs = "one run" if own == "evenly" else f"each of {there[own]['runs']} joint runs"
            text = f"ms per round, {runs}, at most"
            judged.append(_at_most(text, wanted, there[own]["ms_per_round"]))
    slowest = max(
        one["compile_seconds"] for one in there.values() if one.get("compile_seconds") is not None
    )
    judged.append(_at_most("compilation time in seconds, at most", COMPILING, slowest))
    return judged


def slower(kept: Found, new: Found) -> list[str]:
    """What became slower since the kept results: evenly's ratio to C and to the best peer of then,
    which no machine changes much.
    """
    said = []
    for name in dict.fromkeys(["c", best_peer(kept)]):
        if name is None or name not in kept["contenders"] or name not in new["contenders"]:
            continue
        for ours in ("evenly", TOGETHER):
            if ours in kept["contenders"] and ours in new["contenders"]:
                before, now = (_ratios(one, ours, name) for one in (kept, new))
                if all(b > NOISE * a for a, b in zip(before, now, strict=True)):
                    titles = kept["contenders"][ours]["title"], kept["contenders"][name]["title"]
                    said.append(
                        f"{new['workload']}: {titles[0]} takes {now[0]:.3g} times as long as"
                        f" {titles[1]}; it was {before[0]:.3g}."
                    )
    return said


def table(found: Found) -> str:
    """The results as a Markdown table, the fastest first."""
    lines = [HEAD, "| --- |" + " ---: |" * (HEAD.count("|") - 2)]
    ours = found["contenders"]["evenly"]["ms_per_round"]
    for one in sorted(found["contenders"].values(), key=lambda one: one["ms_per_round"]):
        low, high = one["range"]
        compiling = "" if one.get("compile_seconds") is None else f"{one['compile_seconds']:.1f}"
        cells = [
            one["title"] + ("" if one["agrees"] else " (**did not learn the same**)"),
            _shown(one["ms_per_round"]), f"{_shown(low)} to {_shown(high)}",
            f"{one['ms_per_round'] / ours:.3g}", f"{one['first_seconds']:.1f}", compiling,
            f"{one['megabytes']}", str(one["threads"]), f"{len(one['all'])} × {one['rounds']}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sentences(found: Found) -> str:
    """What the table says, in words."""
    judged = [
        f"{'Reached' if t.reached else 'MISSED'}: {t.found:.3g} {t.text} {t.wanted:g}."
        for t in reached(found)
    ]
    return "\n".join([*judged, *facts(found)])


def facts(found: Found) -> list[str]:
    """Who was left out, whether all learnt the same, and how quiet it was."""
    there = found["contenders"].values()
    lines = [f"{name} was left out: {why}" for name, why in found["left_out"].items()]
    if "with_evaluations" in found["contenders"]["evenly"]:
        whole = float(np.median(found["contenders"]["evenly"]["with_evaluations"]))
        lines.append(
            "With the evaluations before the first round and after the last, evenly takes"
            f" {_shown(whole)} ms per round."
        )
    same = [one["difference"] for one in there if one["difference"] is not None]
    if same:
        lines.append(
            f"After {found['judged_round']} round(s) on the same batches, parameters differ from"
            f" evenly's by at most {max(same):.0e} ({len(same)} contenders; limit:"
            f" {TOLERANCE:g})."
        )
    accuracy, band = found["accuracy"], f"limit: {found['band']:g} points from evenly's"
    lines.append(
        f"Accuracy of evenly's model after {accuracy['rounds']} rounds: {accuracy['evenly']:.1f} %."
    )
    lines += [
        f"{one['title']} draws its own batches and ends at {one['accuracy']:.1f} % ({band})."
        for one in there
        if one["check"] == "accuracy"
    ]
    busiest = max(
        (share for one in there for share in one["others"] if share is not None), default=0.0
    )
    quiet = (
        "the machine was quiet"
        if busiest < machine.QUIET
        else "the machine was NOT quiet, and the figures are provisional"
    )
    return [
        *lines,
        (
            f"Other processes used up to {100 * busiest:.0f} % of the machine during a repetition:"
            f" {quiet}."
        ),
    ]


def reached(found: Found) -> list[Target]:
    """The targets as they were kept."""
    return [Target(**kept) for kept in found["targets"]]


def _at_least(text: str, wanted: float, found: float) -> Target:
    return Target(text, wanted, round(found, 3), found >= wanted)


def _at_most(text: str, wanted: float, found: float) -> Target:
    return Target(text, wanted, round(found, 3), found <= wanted)


def _ratios(found: Found, ours: str, theirs: str) -> tuple[float, float]:
    """By medians, and by the best repetitions."""
    a, b = found["contenders"][ours], found["contenders"][theirs]
    return a["ms_per_round"] / b["ms_per_round"], min(a["all"]) / min(b["all"])


def _rounded(ms: float) -> float:
    return float(f"{ms:.4g}")


def _shown(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"
