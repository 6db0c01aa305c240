"""What the server of a deployment was told, for those who audit it; each with the name that it is given by."""

from collections.abc import Callable

from evenly.experiment.deployment import InForce
from evenly.experiment.results import Comparison


def server_options(comparison: Comparison) -> list[tuple[str, str]]:
    """Terms and values; nothing of a simulation. Of a folder that does not keep the options, the caps alone."""
    deployed = comparison.deployed
    if deployed is None:
        return []
    caps = ", ".join(f"{name} = {bound}" for name, bound in sorted(deployed.caps.items())) or "none"
    return [("Caps on what a client may claim (caps)", caps)] + [
        (term, _over_rounds(deployed.options, told)) for term, told in TERMS.items() if deployed.options
    ]


def phases(options: InForce) -> str:
    if not options.two_phase:
        return "no"
    return "yes, with a given function that makes the sum" if options.given_sum else "yes, updates in the clear"


def _share(options: InForce) -> str:
    return "not given: the sampling decides" if options.fraction_train is None else f"{options.fraction_train:g}"


TERMS: dict[str, Callable[[InForce], str]] = {
    "Share of clients that train in a round (fraction_train)": _share,
    "Replies without which a round stops the run (min_train_nodes)": lambda options: f"{options.min_train_nodes:,}",
    "Nodes needed to begin (min_available_nodes)": lambda options: f"{options.min_available_nodes:,}",
    "Share of connected clients that evaluate (fraction_evaluate)": lambda options: f"{options.fraction_evaluate:g}",
    "Clients that evaluate at least (min_evaluate_nodes)": lambda options: f"{options.min_evaluate_nodes:,}",
    "Rounds in two phases (two_phase)": phases,
}


def _over_rounds(options: tuple[InForce, ...], told: Callable[[InForce], str]) -> str:
    """A value, and what it was changed to when another server went on."""
    text = last = told(options[0])
    if options[0].since > 1:  # an older evenly began
        text = f"not kept; from round {options[0].since:,} on {text}"
    for one in options[1:]:
        if (now := told(one)) != last:
            text, last = f"{text}; from round {one.since:,} on {now}", now
    return text
