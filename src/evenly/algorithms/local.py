"""Local training: every client trains alone, and nothing is shared.

The baseline without federation of Mozaffari and Houmansadr (E2FL, 2022) and others: what a client's
own rows are worth to it. From the common first model, a client trains whenever the sampling chooses
it, for the same local epochs that a federated method would give it, on the same batches; its model
is its own and nothing is sent. Coefficients are 0, so that no client influences another.
"""

from evenly.algorithms.e2fl import METHOD as E2FL
from evenly.algorithms.method import Method
from evenly.parts.work import TrainingAlone
from evenly.records import record
from evenly.types import Own, Rule, Tree, Weighed


@record
class LocalRule(Rule):
    """Coefficients of 0: the shared model does not change."""

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        return Weighed(0.0)


METHOD = Method(
    name="local",
    title="local training",
    reference=(
        "Mozaffari and Houmansadr, E2FL: Equal and Equitable Federated Learning, 2022, as a"
        " baseline"
    ),
    bibtex=E2FL.bibtex,
    formula="wₖ ← wₖ − η∇Fₖ(wₖ);  nothing is shared",
    rule=LocalRule,
    work=TrainingAlone,
    fixed_server=True,
)
