"""The section on differential privacy: what is promised, against whom, and what the bounds cut."""

from collections.abc import Mapping
from typing import Any

from evenly.experiment.comparison import Comparison
from evenly.experiment.promises import histogram_figures, histogram_of, what_was_cut
from evenly.privacy.claims import CLIENT, RELATIONS, claim_words
from evenly.privacy.row_account import ROW
from evenly.report.html import Column, Html, bullets, grid, paragraph, section

PROMISE = (
    "Each client of these methods can change what a round releases only within bounds, and noise is"
    " added to everything that a round releases. Whoever sees all models and released sums learns"
    " about one client at most what epsilon and delta state, for neighbours as in the table."
)
PROMISE_HOLDS = (
    "A claim holds against clients and outsiders who see the models, under the stated assumption."
    " It does not hold against the server, which sees every update before it adds the noise.",
    "Figures of clients and groups are computed from their data without noise, and epsilon does"
    " not cover them. They are left out of this page unless a method has publish=true, for which"
    " nothing is claimed.",
    "Taken as public: the number of clients, their mean number of training rows, sums over all"
    " clients from which a method starts, how columns became numbers, and all settings. Every"
    " further run on the same clients, also of another seed or method on this page or of a search"
    " for settings, adds to what is revealed. Models of methods that are not in the table reveal"
    " without limit.",
)
PROMISE_SHARE = (
    "Share: how much of the budget of a round, measured by 1 / noise², the sum of the updates has."
    " The other sums share the rest equally."
)
PROMISE_SIMULATED = (
    "This is a simulation. Its noise and cohorts follow from the seed, so that whoever knows the"
    " seed can remove the noise. It measures what privacy costs and protects nobody."
)
PROMISE_DEPLOYED = (
    "Noise and cohorts were random numbers of the server, which must be trusted to have added the"
    " noise. Epsilon is that of all rounds for which the noise was calibrated, also if fewer were"
    " made."
)
PROMISE_CUT = (
    "What the bounds cut: clipping tends to hit the clients that the model serves worst. Exact"
    " figures of the simulation, which epsilon does not cover."
)
PROMISE_CLIP = "The longest update that counted. It follows from released sums alone."
RELEASED = (
    "Accuracy of clients in percent, from one noised histogram for each method (first seed), which"
    " epsilon covers. Known to the width of a bin, 5 points, and no better than the noise allows:"
    " negative counts are read as 0, so that with few clients the noise decides."
)
RELEASED_BINS = "Clients in each bin, from 0 to 5 % up to 95 to 100 %, with noise:"


def promise_section(comparison: Comparison) -> Html:
    """The section on what private methods promise; empty if there are none."""
    if not comparison.privacy:
        return Html("")
    clients, rows = (
        {label: known for label, known in comparison.privacy.items() if known["unit"] == unit}
        for unit in (CLIENT, ROW)
    )
    parts = [
        *(_client_promises(comparison, clients) if clients else []),
        *(_row_promises(comparison, rows) if rows else []),
    ]
    return section("promise", "What privacy is promised", *parts)


def _client_promises(comparison: Comparison, promises: Mapping[str, Any]) -> list[Html]:
    words = ("Promise", "Sampling", "Neighbours", "Assumes that")
    titles = ("Method", "Promise", "Noise", "Share", "Rounds", *words[1:])
    columns = [Column(title, words=title in words) for title in titles]
    rows = [_promise_row(label, known) for label, known in promises.items()]
    parts = [
        paragraph(PROMISE),
        grid("For one run of each method, with one seed.", columns, rows),
        bullets(
            (
                *PROMISE_HOLDS,
                PROMISE_SHARE,
                PROMISE_DEPLOYED if comparison.deployed else PROMISE_SIMULATED,
            )
        ),
    ]
    cut = [row for label in promises if (row := _what_was_cut(comparison, label))]
    titles = (
        "Method", "Longest update, first and last round", "Updates cut, worst tenth",
        "Updates cut, others", "Weights cut",
    )  # fmt: skip
    words, shown = (PROMISE_CLIP, 2) if comparison.deployed else (PROMISE_CUT, len(titles))
    if cut:
        columns = [Column(title) for title in titles[:shown]]
        parts.append(grid(words, columns, [row[:shown] for row in cut]))
    return parts + _histograms(comparison)


ROW_PROMISE = (
    "Clients add noise to what they send about their training rows. Whoever reads it, the server"
    " included, learns about one training row at most what epsilon and delta state. Neighbours are"
    " two sets of training rows of which one has one row more."
)
ROW_PROMISE_DEPLOYED = (
    "A client with a ledger adds noise to what it sends about its training rows. Whoever reads it,"
    " the server included, learns about one of these rows at most what the epsilon and delta of the"
    " ledger state. Neighbours are two sets of training rows of which one has one row more. Nothing"
    " is promised for a client without a ledger, and the server cannot tell one from the other."
)
ROW_PROMISE_HOLDS = (
    "Batches and noise must be secret.",
    "Not covered: figures of validation and test rows, numbers of rows, and counts of groups and"
    " labels, all of which this page shows, how columns became numbers, and a person who has"
    " several rows. Every further run on the same rows adds to what is revealed. Models of methods"
    " that are not in the table reveal without limit.",
)
ROW_PROMISE_COUNTED = (
    "The noise is that of a client that takes part in all rounds. Each step sees each row with the"
    " probability in the table.",
    "Share: how much of the budget counts and other signals have, measured by 1 / noise² of a"
    " Gaussian release that would spend all of it. Training has the rest.",
    "This is a simulation. Its batches and noise follow from the seed, so that whoever knows the"
    " seed can remove the noise. It measures what privacy costs and protects nobody.",
)


def _row_promises(comparison: Comparison, promises: Mapping[str, Any]) -> list[Html]:
    if comparison.deployed:
        titles, row_of = ("Method", "Promise", "Noise of a step", "Batch rate"), _asked_row
        opening, more = ROW_PROMISE_DEPLOYED, ()
    else:
        titles = (
            "Method", "Promise", "Noise of a step", "Batch rate", "Steps", "Noise of a count",
            "Counts", "Share",
        )  # fmt: skip
        opening, more, row_of = ROW_PROMISE, ROW_PROMISE_COUNTED, _counted_row
    columns = [Column(title, words=title == "Promise") for title in titles]
    return [
        paragraph(opening),
        grid(
            "For one run of each method, with one seed.",
            columns,
            [row_of(label, known) for label, known in promises.items()],
        ),
        bullets((*ROW_PROMISE_HOLDS, *more)),
    ]


def _asked_row(label: str, known: dict[str, Any]) -> list[str]:
    noise = known["noise_multiplier"]
    words = "\u2013" if noise is None else f"{noise:.4g}"
    return [label, claim_words(known), words, f"{known['rate']:g}"]


def _counted_row(label: str, known: dict[str, Any]) -> list[str]:
    return [
        *_asked_row(label, known),
        f"{known['steps']:,}",
        f"{known['signal_noise']:.4g}" if known["signals"] else "\u2013",
        f"{known['signals']:,}",
        _percent(known["signal_share"]),
    ]


def _promise_row(label: str, known: dict[str, Any]) -> list[str]:
    return [
        label,
        claim_words(known),
        "\u2013" if known["noise_multiplier"] is None else f"{known['noise_multiplier']:.4g}",
        _percent(known["update_share"]),
        f"{known['rounds']:,}",
        _sampling_words(known),
        RELATIONS[known["relation"]],
        known["assumes"] or "\u2013",
    ]


def _sampling_words(known: dict[str, Any]) -> str:
    expected, clients = known["expected_clients"], known["clients"]
    if not expected or not clients:
        return known["sampling"] or "\u2013"
    rate = expected / clients
    return f"{known['sampling']}, about {expected:g} of {clients:,} clients (rate {rate:.3g})"


def _what_was_cut(comparison: Comparison, label: str) -> list[str] | None:
    """Clips of a method and shares of cut updates, over all seeds; None without a record."""
    found = what_was_cut(comparison, label)
    if found is None:
        return None
    shares = (found["worst_tenth"], found["others"], found["weights"])
    clips = f"{found['clip'][0]:.3g}, {found['clip'][-1]:.3g}"
    return [label, clips, *map(_percent, shares)]


def _percent(share: float | None) -> str:
    return "\u2013" if share is None else f"{100 * share:.0f} %"


def _histograms(comparison: Comparison) -> list[Html]:
    """The released histograms of client accuracies, with the figures that follow from them."""
    found = {label: histogram_of(comparison, label) for label in comparison.privacy}
    rows = [
        [label, *(f"{value:.1f}" for value in histogram_figures(counts))]
        for label, counts in found.items()
        if counts
    ]
    if not rows:
        return []
    columns = [Column(title) for title in ("Method", "Mean", "Worst tenth", "Variance")]
    bins = [
        f"{label}: {', '.join(f'{count:.1f}' for count in counts)}"
        for label, counts in found.items()
        if counts
    ]
    return [grid(RELEASED, columns, rows), paragraph(RELEASED_BINS), bullets(bins)]
