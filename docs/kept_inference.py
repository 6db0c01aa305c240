"""How well clients find their group in the course of training: what is kept of it, and its table."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from evenly.experiment.results import Comparison
from evenly.metrics import half_width, spread

Kept = dict[str, Any]
WHO = {"all": "all", "voted": "of the last round"}


def course(comparison: Comparison) -> Iterator[Kept]:
    """At every evaluation after the first round: the share of clients that choose the model of their own group, in percent.

    Of all clients, and of those that took part in the round just done, whose own votes are in the models. Models have the names
    of the groups that elected them, so that nothing must be matched; before the first round they are all the same.
    """
    group = np.asarray(comparison.federation.client_group)
    for label in comparison.labels:
        traces = [run.trace for run in comparison.of(label)]
        for i, done in enumerate(traces[0].rounds):
            if done == 0:
                continue
            right = [trace.choice[i] == group for trace in traces]
            voted = [own[trace.cohort[done - 1]] for own, trace in zip(right, traces, strict=True)]
            yield {"label": label, "round": int(done), "all": _share(right), "voted": _share(voted)}


def _share(right: list[np.ndarray]) -> list[float]:
    """Mean and standard deviation over seeds."""
    found = spread(np.array([100 * own.mean() for own in right]))
    return [found.mean, found.deviation]


def table(kept: Kept) -> str:
    """Methods below each other, rounds beside each other."""
    rows: dict[str, list[Kept]] = {}
    for one in kept["course"]:
        rows.setdefault(one["label"], []).append(one)
    first, *_ = rows.values()
    text = [f"| method | clients | {' | '.join(str(one['round']) for one in first)} |", "| --- | --- |" + " ---: |" * len(first)]
    for label, own in rows.items():
        for i, (who, words) in enumerate(WHO.items()):
            text.append(f"| {f'`{label}`' if i == 0 else ''} | {words} | {' | '.join(_shown(one[who], kept['seeds']) for one in own)} |")
    return "\n".join(text)


def _shown(value: list[float], seeds: int) -> str:
    mean, half = value[0], half_width(value[1], seeds)
    return f"{mean:.1f}" + (f" ± {half:.1f}" if half == half else "")
