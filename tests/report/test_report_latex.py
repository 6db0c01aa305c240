"""The LaTeX table: escaped names, intervals over seeds, what is clearly best in bold; checked
against numbers made by hand.
"""

import re

import pytest

from evenly.report.method_table import ESCAPES, escape_latex, latex
from evenly.report.values import table_of

VALUES = {
    "fedavg": {0: {"average": 80.0, "gini": 0.2}, 1: {"average": 82.0, "gini": 0.2}},
    "q-fedavg(q=1)+local_sgd": {
        0: {"average": 90.0, "gini": float("nan")},
        1: {"average": 90.0, "gini": float("nan")},
    },
}
NAMES = {"average": "average", "gini": "Gini & co, 10 %"}


def lines(values=VALUES):
    return latex(table_of(values, metrics=tuple(NAMES)), NAMES, "About\nit ±").splitlines()


def test_every_row_is_there_with_mean_and_half_of_the_interval():
    found = lines()
    assert found[0] == "% About it ±"
    assert r"method & average & Gini \& co, 10 \% \\" in found
    # 12.706 deviations of √2, over √2
    assert r"fedavg & $81.0 \pm 12.7$ & $0.200 \pm 0.000$ \\" in found
    assert r"q-fedavg(q=1)+local\_sgd & $90.0 \pm 0.0$ & n/a \\" in found
    assert found[2] == r"\begin{tabular}{lrr}"
    assert found[-1] == r"\end{tabular}"


def test_only_what_is_clearly_best_is_bold():
    """As the report has it: the seed-by-seed difference of every other method from the best leaves
    out 0.
    """
    values = {
        "a": {s: {"average": 80.1 + 0.9 * s, "gini": 0.3} for s in range(3)},
        "b": {s: {"average": 85.0 + s, "gini": 0.2 + 0.1 * s} for s in range(3)},
        "c": {s: {"average": 70.1 + 0.9 * s, "gini": 0.9} for s in range(3)},
    }
    text = "\n".join(lines(values))
    assert text.count("mathbf") == 1
    assert r"b & $\mathbf{86.0} \pm 2.5$" in text  # about 5 points above a with every seed
    values["a"][0]["average"] = 86.0  # now a is better with one seed
    assert "mathbf" not in "\n".join(lines(values))


def test_the_same_difference_in_few_seeds_is_not_bold():
    values = {
        "a": {s: {"average": 80.0 + s, "gini": 0.3} for s in range(2)},
        "b": {s: {"average": 86.25 + s, "gini": 0.3} for s in range(2)},
    }
    assert "mathbf" not in "\n".join(lines(values))


def test_a_single_seed_has_no_interval_and_nothing_is_clear():
    assert r"fedavg & $80.0$ & $0.200$ \\" in lines(
        {label: {0: seeds[0]} for label, seeds in VALUES.items()}
    )


@pytest.mark.parametrize("char", ESCAPES)
def test_special_characters_are_escaped(char):
    text = escape_latex(f"a{char}b")
    assert text == f"a{ESCAPES[char]}b"
    left = re.sub(r"\\[A-Za-z]+\{\d?\}|\\[&%$#_{}]|\$\\pm\$|\$-\$", "", text)
    assert left == "ab", "nothing is left that LaTeX would take for something else"
