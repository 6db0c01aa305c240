"""The LaTeX table: escaped names, deviations over seeds, the best in bold; checked against numbers made by hand."""

import re

import pytest

from evenly.report.latex import ESCAPES, escaped, latex
from evenly.report.table import table_of

VALUES = {
    "fedavg": {0: {"average": 80.0, "gini": 0.2}, 1: {"average": 82.0, "gini": 0.2}},
    "q-fedavg(q=1)+local_sgd": {0: {"average": 90.0, "gini": float("nan")}, 1: {"average": 90.0, "gini": float("nan")}},
}
NAMES = {"average": "average", "gini": "Gini & co, 10 %"}


def lines(values=VALUES):
    return latex(table_of(values, metrics=tuple(NAMES)), NAMES, "About\nit ±").splitlines()


def test_every_row_is_there_with_mean_and_deviation():
    found = lines()
    assert found[0] == "% About it ±"
    assert r"method & average & Gini \& co, 10 \% \\" in found
    assert r"fedavg & $81.0 \pm 1.4$ & $\mathbf{0.200} \pm 0.000$ \\" in found  # deviation of 80 and 82: √2
    assert r"q-fedavg(q=1)+local\_sgd & $\mathbf{90.0} \pm 0.0$ & n/a \\" in found
    assert found[2] == r"\begin{tabular}{lrr}"
    assert found[-1] == r"\end{tabular}"


def test_a_single_seed_has_no_deviation():
    assert r"fedavg & $80.0$ & $\mathbf{0.200}$ \\" in lines({label: {0: seeds[0]} for label, seeds in VALUES.items()})


@pytest.mark.parametrize("char", ESCAPES)
def test_special_characters_are_escaped(char):
    text = escaped(f"a{char}b")
    assert text == f"a{ESCAPES[char]}b"
    left = re.sub(r"\\[A-Za-z]+\{\d?\}|\\[&%$#_{}]|\$\\pm\$|\$-\$", "", text)
    assert left == "ab", "nothing is left that LaTeX would take for something else"
