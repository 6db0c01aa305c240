"""What the figures of `thesis.py` say: ratios and a few sentences. Nothing is timed here."""

from typing import Any

import machine

AGREEMENT = 1.0  # points of accuracy on the central test set
NAMES = {
    "study": "evenly, the study",
    "one": "evenly, one training",
    "flower": "Flower, one training",
}


def conclusions(found: dict[str, Any]) -> dict[str, Any]:
    """How many times as fast, and whether both learnt the same; only what was measured."""
    ratios: dict[str, Any] = {}
    if "flower" not in found:
        return ratios
    theirs, seen = found["flower"]["ms_per_round"], found["flower"]["accuracy"]
    ratios["agreement_reached"] = abs(seen["evenly"] - seen["flower"]) <= AGREEMENT
    for name in ("study", "one"):
        if name in found:
            ratios[f"faster_{name}"] = round(theirs / found[name]["ms_per_round"], 1)
    if "study" in found:
        ratios["flower_hours"] = round(theirs * found["study"]["training_rounds"] / 3.6e6, 2)
    return ratios


def sentences(found: dict[str, Any]) -> str:
    """The results in words."""
    lines = [*_study(found), *_one(found), *_flower(found)]
    shares = [found[name]["others"] for name in ("study", "one") if name in found]
    if shares:
        quiet = (
            "the machine was quiet"
            if max(shares) < machine.QUIET
            else "the machine was NOT quiet, and the figures are provisional"
        )
        lines.append(
            f"Other processes used up to {100 * max(shares):.0f} % of the machine while evenly was"
            f" timed: {quiet}."
        )
    return "\n".join(lines)


def _study(found: dict[str, Any]) -> list[str]:
    if "study" not in found:
        return []
    study = found["study"]
    size = (
        f"{study['trainings']:,} trainings ({study['cells']} cells, {study['seeds']} seeds),"
        f" {study['training_rounds']:,} rounds in all"
    )
    return [
        (
            f"{NAMES['study']}: {size}, in {study['seconds']:.1f} s, compilation included:"
            f" {study['ms_per_round']:.3f} ms per round and training."
        ),
        (
            f"About {study['compile_seconds']:.1f} s of this are compilation (first minus second"
            f" run of one cell and seed). The peak memory is {study['megabytes']} MB."
        ),
    ]


def _one(found: dict[str, Any]) -> list[str]:
    if "one" not in found:
        return []
    one, (low, high) = found["one"], found["one"]["range"]
    return [
        f"{NAMES['one']} of {one['rounds']} rounds, compiled: {one['ms_per_round']:.2f} ms per"
        f" round ({low:.2f} to {high:.2f})."
    ]


def _flower(found: dict[str, Any]) -> list[str]:
    if "flower" not in found:
        return ["Flower was not measured."]
    flower, ratios, (low, high) = found["flower"], found["ratios"], found["flower"]["range"]
    seen = flower["accuracy"]
    verdict = "the same" if ratios["agreement_reached"] else "NOT the same"
    lines = [
        (
            f"{NAMES['flower']} of {flower['rounds']} rounds: {flower['ms_per_round']:.0f} ms per"
            f" round ({low:.0f} to {high:.0f}), {flower['first_seconds']:.1f} s until the end of"
            f" the first round, peak memory of all its processes {flower['megabytes']} MB."
        ),
        (
            "Flower polls for replies every 0.1 s. If it polls every 2 ms, it takes"
            f" {flower['impatient_ms_per_round']:.0f} ms per round."
        ),
        (
            f"Both learned {verdict}: {seen['evenly']:.2f} % (evenly) and {seen['flower']:.2f} %"
            f" (Flower) accuracy on the central test set after {flower['rounds']} rounds."
            f" Parameters differ by at most {flower['difference']:.0e}."
        ),
    ]
    if "faster_one" in ratios:
        lines.append(
            f"One training is {ratios['faster_one']:.0f} times as fast in evenly, without"
            " compilation and start-up."
        )
    if "faster_study" in ratios:
        lines.append(
            f"Per round and training, the study is {ratios['faster_study']:.0f} times as fast. At"
            f" Flower's time per round it would take {ratios['flower_hours']:.1f} hours without"
            " start-up (computed, not run)."
        )
    return lines
