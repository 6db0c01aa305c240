"""`evenly privacy`: the noise that a promise needs, and what it means, before anyone trains."""

from typing import Annotated

import typer


def privacy(
    *,
    method: Annotated[
        str,
        typer.Option(help="Method with its sampling, such as q-fedavg(q=1)+poisson(rate=0.05)."),
    ],
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")],
    clients: Annotated[int, typer.Option(min=1, help="Number of clients that are registered.")],
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
    """Print what privacy for clients costs, before training.

    Prints the noise that differential privacy needs, and what may be claimed.
    """
    from rich.console import Console

    from evenly.algorithms import algorithm
    from evenly.privacy.claims import RELATIONS, claim_words, price
    from evenly.records import require

    require(
        (epsilon is None) != (noise_multiplier is None),
        "Give either --epsilon or --noise-multiplier.",
    )
    settings = {"epsilon": epsilon, "noise_multiplier": noise_multiplier, "delta": delta}
    given = ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
    known = price(algorithm(f"{method}+dp({given})"), clients, rounds)
    console = Console(highlight=False)
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
