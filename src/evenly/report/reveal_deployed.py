"""What clients of a deployment tell the server besides what the method needs: a census, evaluations, and updates one by one."""

from evenly.experiment.deployment import InForce
from evenly.experiment.results import Comparison, Deployed
from evenly.report.table import SPLIT_WORDS

CENSUS = (
    "Census: before the first round, once, how many training rows a client has of each group and label and, where it says so, its name, "
    "its number, the group that it belongs to as a whole, and what its labels and groups are called."
)
NO_CENSUS = "Census: none was asked for."
ONE_PHASE = "Updates: what each client trained reaches the server one by one."
IN_THE_CLEAR = (
    "Updates: rounds have two phases, but without a function for a masked sum each client's update, times a coefficient that the server "
    "knows, still reaches the server one by one."
)
GIVEN_SUM = (
    "Updates: rounds have two phases, and a function that the server was given makes the sum of what clients send. Whether that hides "
    "single updates depends on this function and on the clients' masks, which are not checked here."
)
NOT_KEPT = "Updates: of some rounds it was not kept whether a function for a masked sum was given; without one they come one by one."


def deployed_words(comparison: Comparison) -> list[str]:
    """One sentence each; nothing of a simulation."""
    deployed = comparison.deployed
    if deployed is None:
        return []
    grouped = len(comparison.federation.groups) > 1
    return [CENSUS if deployed.census else NO_CENSUS, _evaluations(deployed, grouped=grouped), _updates(deployed.options)]


def _evaluations(deployed: Deployed, *, grouped: bool) -> str:
    counts = f"counts by {'group, ' if grouped else ''}label and prediction"
    if deployed.tables:
        found = counts + (", or from some clients an accuracy only" if deployed.accuracies else "")
    else:
        found = "its accuracy (counts by label and prediction, and by group, where a client sends them instead)"
    *most, last = [SPLIT_WORDS[split] for split in deployed.evaluated] or ["test"]
    rows = f"{', '.join(most)} and {last}" if most else last
    return f"Evaluations: after each round in which a client evaluates, of its {rows} rows how many there are, its mean loss, and {found}."


def _updates(options: tuple[InForce, ...]) -> str:
    """By the least that was hidden in any round."""
    if not options or options[0].since > 1:
        return NOT_KEPT
    least = min(options, key=lambda one: (one.two_phase, one.given_sum))
    words = GIVEN_SUM if least.given_sum else IN_THE_CLEAR if least.two_phase else ONE_PHASE
    changed = len({(one.two_phase, one.given_sum) for one in options}) > 1
    return words + (" That holds for some of the rounds: see two_phase under Settings." if changed else "")
