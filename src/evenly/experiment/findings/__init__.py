"""What a study says about the thesis' claims: for each a plain answer, the numbers behind it, and what the thesis says.

Changes are taken seed by seed between methods that share data, cohorts and batches. "Clearly" means that the 95 % interval
over seeds leaves out 0; what an interval does not decide is called undecided. Every answer is given under both protocols.
"""

from collections.abc import Callable, Sequence

from evenly.experiment.findings.finding import Finding
from evenly.experiment.findings.outcomes import best, best_in_paper, choosing_on_test, lowest_gap, same_order, sign_of_accuracy
from evenly.experiment.findings.parts import near_iid, parity, reweighing
from evenly.experiment.findings.weights import equal_memories, few_clients, whom_weights_favour
from evenly.experiment.study import Study
from evenly.experiment.thesis import View, views

__all__ = ["QUESTIONS", "Finding", "best", "best_in_paper", "findings"]

QUESTIONS: tuple[Callable[[list[View]], Finding | None], ...] = (
    reweighing, lowest_gap, near_iid, parity, equal_memories, few_clients, sign_of_accuracy, whom_weights_favour, same_order,
    choosing_on_test,
)  # fmt: skip


def findings(studies: Sequence[Study]) -> list[Finding]:
    """All that these studies can answer; a question that needs what they do not have is left out.

    What the thesis says stands beside its own studies only, not beside somebody else's.
    """
    seen = views(studies)
    answers = [found for question in QUESTIONS if (found := question(seen))]
    its_own = any(study.plan.name.startswith("thesis/") for study in studies)
    return answers if its_own else [found._replace(thesis="") for found in answers]
