"""The section on differential privacy: what is promised, against whom, and what the bounds cut."""

from typing import Any

import numpy as np

from evenly.experiment.comparison import Comparison
from evenly.metrics.outcomes import accuracy
from evenly.privacy.claims import RELATIONS, claim_words
from evenly.report.html import Column, Html, bullets, grid, paragraph, section

INTRO = (
    "Each client of these methods can change what a round releases only within bounds, and noise is"
    " added to everything that is released. Whoever sees all models learns about the presence of"
    " one client at most what epsilon and delta state, for neighbours as in the table."
)
HOLDS = (
    "It holds against clients and outsiders who see the models, under the stated assumption. It"
    " does not hold against the server, which sees every update before it adds the noise.",
    "It does not cover this page: figures of clients and groups are computed from their data"
    " without noise (no claim: evaluations of clients are published). Share the model, not the"
    " page, where clients must be protected.",
    "In a simulation the noise follows from the seed, so that whoever knows the seed can remove it."
    " A simulation measures what privacy costs; it protects nobody.",
    "Taken as public: the number of clients, their mean number of training rows, sums over all"
    " clients from which a method starts, and all settings. Every further run on the same clients,"
    " also of a search for settings, adds to what is revealed.",
)
CUT = (
    "What the bounds cut: clipping tends to hit the clients that the model serves worst. Exact"
    " figures of the simulation, which epsilon does not cover."
)


def promise_section(comparison: Comparison) -> Html:
    """The section on what private methods promise; empty if there are none."""
    if not comparison.privacy:
        return Html("")
    words = ("Promise", "Neighbours", "Assumes that")
    titles = ("Method", "Promise", "Noise", "Rounds", "Neighbours", "Assumes that")
    columns = [Column(title, words=title in words) for title in titles]
    rows = [_row(label, known) for label, known in comparison.privacy.items()]
    parts = [paragraph(INTRO), grid("For one run of each method.", columns, rows), bullets(HOLDS)]
    cut = [row for label in comparison.privacy if (row := _cut(comparison, label))]
    titles = (
        "Method", "Longest update, first and last round", "Updates cut, worst tenth",
        "Updates cut, others", "Weights cut",
    )  # fmt: skip
    if cut:
        parts.append(grid(CUT, [Column(title) for title in titles], cut))
    return section("promise", "What privacy is promised", *parts)


def _row(label: str, known: dict[str, Any]) -> list[str]:
    return [
        label,
        claim_words(known),
        f"{known['noise_multiplier']:.4g}",
        f"{known['rounds']:,}",
        RELATIONS[known["relation"]],
        known["assumes"] or "\u2013",
    ]


def _cut(comparison: Comparison, label: str) -> list[str] | None:
    """Clips of a method and shares of cut updates, over all seeds; None without a record."""
    worst, others, weights, clips = [], [], [], []
    for trace in (run.trace for run in comparison.of(label)):
        if trace.cut is None or trace.clip is None:
            return None
        own = np.asarray(accuracy(trace.tables[-1, -1]))
        served = np.flatnonzero(np.isfinite(own))
        clients = np.arange(len(own)) if trace.panel is None else trace.panel
        lowest = clients[served[np.argsort(own[served])[: max(1, len(served) // 10)]]]
        back, badly = trace.weights != 0, np.isin(trace.cohort, lowest)
        worst.append(trace.cut[back & badly] & 1)
        others.append(trace.cut[back & ~badly] & 1)
        weights.append(trace.cut[back] // 2)
        clips.append(trace.clip)
    clip = np.mean(clips, axis=0)
    shares = [_share(np.concatenate(parts)) for parts in (worst, others, weights)]
    return [label, f"{clip[0]:.3g}, {clip[-1]:.3g}", *shares]


def _share(flags: np.ndarray) -> str:
    return f"{flags.mean():.0%}" if len(flags) else "\u2013"
