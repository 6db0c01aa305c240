"""Whether the sizes of clients count in a plan.

Sampling by size lets larger clients count more by drawing them more often, and weighs those that
are drawn equally. Where all clients are drawn in every round, sizes do not count at all. The
terminal says so before training, and the report says so among its settings.
"""

import dataclasses
from collections.abc import Sequence

from evenly.algorithms import Variant
from evenly.data.columns import Fact
from evenly.data.federation import Census, Federation
from evenly.experiment.plan import Plan
from evenly.parts.sampling import Weighted

MOST_NAMED = 3


def sampling_facts(plan: Plan, federation: Federation) -> list[Fact]:
    """A line that says that sizes do not count, if all clients are sampled by size in every round;
    empty if they count, are all equal, or if equal weights were asked for.
    """
    census = federation.census()
    clients = len(census.examples)
    every = plan.variants()
    drawn = [v for v in every if _all_drawn(v, census) and "weights=" not in v.label]
    if not drawn or len(set(census.examples.tolist())) < 2:
        return []
    full = {v.label: v for v in dataclasses.replace(plan, sampling="full").variants()}
    weighed = [v.label for v in drawn if full[v.label].members[0].rule.counts_sizes]
    words = f"All {clients} clients take part in every round, and larger ones do not count more."
    if not weighed:
        fewer = f"weighted(clients={clients // 2})"
        return [
            Fact("sampling", f"{words} To let size count, sample fewer, such as {fewer}.", True)
        ]
    under = "" if len(weighed) == len(every) else f" under {_listed(weighed)}"
    return [
        Fact(
            "sampling",
            f"{words} Add --sampling full (in a file: sampling = 'full') to weigh them by"
            f" size{under}.",
            True,
        )
    ]


def _all_drawn(variant: Variant, census: Census) -> bool:
    select = variant.members[0].select
    return (
        isinstance(select, Weighted)
        and not select.replace
        and select.slots(census) == len(census.examples)
    )


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= MOST_NAMED else f"{len(labels)} of the methods"
