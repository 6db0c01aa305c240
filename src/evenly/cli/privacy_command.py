"""`evenly privacy`: the noise that a promise needs, and what it means, before anyone trains."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from evenly.types import Algorithm


def privacy(
    *,
    method: Annotated[
        str,
        typer.Option(help="Method with its sampling, such as q-fedavg(q=1)+poisson(rate=0.05)."),
    ],
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")],
    clients: Annotated[
        int | None, typer.Option(min=1, help="Number of clients; needed with --unit client.")
    ] = None,
    unit: Annotated[
        str, typer.Option(help="What is protected: a client or a training row.")
    ] = "client",
    epsilon: Annotated[
        float | None, typer.Option(help="The most that all rounds together may reveal.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise, in place of epsilon: prints the epsilon it gives.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Slack beyond epsilon. By default at most 1e-5.")
    ] = None,
) -> None:
    """Print what privacy costs, before training.

    Prints the noise that differential privacy needs, and what may be claimed.
    """
    from rich.console import Console

    from evenly.algorithms import variants
    from evenly.parts.sampling import Full
    from evenly.privacy.claims import CLIENT
    from evenly.privacy.row_account import ROW
    from evenly.records import require

    require(
        (epsilon is None) != (noise_multiplier is None),
        "Give either --epsilon or --noise-multiplier.",
    )
    require(unit in (CLIENT, ROW), f"--unit must be {CLIENT} or {ROW}, got {unit!r}.")
    settings = {"epsilon": epsilon, "noise_multiplier": noise_multiplier, "delta": delta}
    given = ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
    # a deployment without a sampling has this one
    usual = Full() if unit == ROW else None
    found = variants(f"{method}+dp(unit={unit}, {given})", select=usual)
    require(len(found) == 1, f"Give one method without a sweep, got {len(found)} with {method!r}.")
    made = found[0]
    console = Console(highlight=False)
    if unit == ROW:
        _print_rows(console, made.members, rounds)
        return
    require(clients is not None, "Give --clients, the number of clients that are registered.")
    _print_clients(console, made.members, int(clients or 0), rounds)


def _print_clients(
    console: "Console", members: Sequence["Algorithm"], clients: int, rounds: int
) -> None:
    from evenly.privacy.claims import RELATIONS, claim_words, price, refuse_several

    refuse_several(members)
    known = price(members[0], clients, rounds)
    console.print(f"Promise: {claim_words(known)}, over {rounds:,} rounds of one run.")
    console.print(f"Neighbours: {RELATIONS[known['relation']]}.")
    console.print(f"Noise multiplier of a round: {known['noise_multiplier']:g}.")
    share = known["noise_of_mean"]
    console.print(
        f"The noise of the mean update has a standard deviation of {share:.2g} times the longest"
        f" update, in every parameter, with about {known['expected_clients']:g} clients in a round."
    )
    console.print(f"It assumes that: {known['assumes'] or 'nothing'}.")
    console.print(
        "A claim holds against clients and outsiders who see the models, not against the server,"
        " which adds the noise. A simulation protects nobody, because its noise follows from its"
        " seed."
    )


def _print_rows(console: "Console", members: Sequence["Algorithm"], rounds: int) -> None:
    from evenly.privacy.claims import claim_words
    from evenly.privacy.row_account import reads_census, row_facts

    census = reads_census(members[0])
    known = row_facts(members, rounds, census=census)
    console.print(f"Promise: {claim_words(known)}, over {rounds:,} rounds of one run.")
    console.print("Neighbours: one training row of a client more or less.")
    console.print(
        f"Noise multiplier of a step: {known['noise_multiplier']:g}, in {known['steps']:,} steps,"
        f" each on a batch that a row is in with probability {known['rate']:g}."
    )
    if known["signals"]:
        console.print(
            f"Noise in a count of rows: {known['signal_noise']:g} rows, in {known['signals']:,}"
            " releases."
        )
    if census:
        console.print(
            "One of the releases is the census of a deployment, which counts rows by group and"
            " label. A simulation takes none and promises without it."
        )
    console.print(
        "A claim holds against everybody who reads what a deployed client sends, the server"
        " included. A simulation protects nobody, because its noise follows from its seed."
    )
