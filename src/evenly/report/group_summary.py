"""What happens to groups, in plain words, and no more than the numbers allow."""

import numpy as np

from evenly.data.splits import CENTRAL
from evenly.report.choice import Choice
from evenly.report.summary import Summary, accuracy_change, change_in, joined, seeds_caution, value_text
from evenly.report.table import SPLIT_WORDS, Values, over_seeds, table_of

METRIC = "eod_abs"
WHAT = "|EOD|, the gap between the true positive rates of the unprivileged and of the privileged,"
MOST_NAMED = 3


def summarise_groups(values: Values, choice: Choice, split: str) -> Summary:
    """The leading method and the one with the least |EOD| against the baseline; nothing without groups.

    `values` are of clients and groups; `split` are the rows that groups are measured on.
    """
    if not choice.alike:
        return Summary("", "")
    baseline, lead, alike = choice.baseline, choice.lead, choice.alike
    if not np.isfinite(over_seeds(values, baseline, METRIC).mean):
        return Summary(f"For the groups, {alike} has the least {WHAT} {value_text(values, alike, METRIC)}.", _rows(split))
    sentences = [f"For the groups, {WHAT} is {value_text(values, baseline, METRIC)} under {baseline}."]
    if lead not in (baseline, alike):
        sentences.append(f"{_sentence(values, baseline, lead)}.")
    if alike != baseline:
        sentences.append(f"{_sentence(values, baseline, alike)}{_rank(values)}; {accuracy_change(values, baseline, alike)}.")
    elif len(values) > 1:
        sentences.append("No other method has a smaller one.")
    return Summary(joined(*sentences), joined(_rows(split), _chosen(values, choice), _seeds(values, choice)))


def _sentence(values: Values, baseline: str, label: str) -> str:
    return f"{label} {change_in(values, baseline, label, METRIC, 'it')}"


def _rank(values: Values) -> str:
    return ", the least of all methods" if len(values) > 2 else ""


def _rows(split: str) -> str:
    rows = "the central test set" if split == CENTRAL else f"the {SPLIT_WORDS[split]} rows of all clients together"
    return f"Groups are compared on {rows}."


def _chosen(values: Values, choice: Choice) -> str:
    """How much it means that a method has the least |EOD|: it was chosen on these rows, and others may be as good."""
    if len(values) < 3:
        return ""
    near = [row.label for row in table_of(values, metrics=(METRIC,)).rows if row.cells[METRIC].near]
    flattered = "" if choice.alike == choice.baseline else f"They also picked {choice.alike}, which flatters it."
    if not near:
        return flattered
    named = ", ".join(near) if len(near) <= MOST_NAMED else f"{len(near)} of the {len(values) - 1} others"
    return joined(flattered, f"Over these seeds not clearly worse than {choice.alike}: {named}.")


def _seeds(values: Values, choice: Choice) -> str:
    """Only where the words about clients, which warn of few seeds, have nothing to compare."""
    silent = choice.alike == choice.baseline or np.isfinite(over_seeds(values, choice.baseline, "average").mean)
    return "" if silent else seeds_caution(values, choice.baseline, choice.alike, METRIC)
