"""The page of a study: findings first, every method on every partition, the paper only where its
figures are known.
"""

import re

import pytest
from tests.report.invented import specs
from tests.studies import METHODS, study

from evenly.papers.study_page import render_study, write_study_report

MIB = 2**20


@pytest.fixture(scope="module")
def page() -> str:
    return render_study([study()], "Adult by <sex>", "What to know.")


def test_findings_come_before_charts_and_tables(page):
    places = [
        page.index(f'<section id="{name}"')
        for name in ("findings", "top", "trend", "debias", "parity", "paper", "methods", "settings")
    ]
    assert places == sorted(places)
    assert "Adult by &lt;sex&gt;" in page
    assert "<sex>" not in page


def test_every_method_stands_in_every_partitions_table(page):
    tables = re.findall(r'<table class="methods" data-methods="">.*?</table>', page, re.DOTALL)
    assert len(tables) == 2
    for table in tables:
        assert table.count("<tr>") == 1 + len(METHODS)
        assert (
            table.count('class="line paper"')
            == table.count('class="line honest"')
            == len(METHODS) * 10
        )
    assert "0.104" in tables[0]  # FEDAVG's |EOD| in Table A.1
    assert "nan" not in "".join(tables)


def test_every_chart_takes_its_containers_width_and_is_described(page):
    found = specs(page)
    assert len(found) == 6 + 2 + 2 + 6  # metrics, reweighing, parity sampling, the paper
    assert all(
        spec["width"] == "container" and spec["description"] and spec["title"]
        for spec in found.values()
    )


def test_without_the_papers_figures_nothing_is_said_of_them():
    page = render_study([study(data="compas", name="thesis/compas-dirichlet")], "COMPAS")
    assert '<section id="paper"' not in page
    assert 'class="line paper"' not in page
    assert 'data-whose="paper"' not in page


def test_several_studies_share_their_findings_and_leave_the_tables_to_their_own_reports():
    page = render_study([study(), study(data="compas", name="thesis/compas-dirichlet")], "Together")
    assert "in 12 of 12 pairs" in page
    assert '<section id="methods"' not in page
    assert specs(page) == {}


def test_one_seed_and_one_partition_are_enough_and_the_page_stays_small(tmp_path):
    path = write_study_report([study(seeds=(1,), alphas=(0.1,))], tmp_path / "report.html", "Small")
    assert path.stat().st_size < 8 * MIB
    assert "nan" not in re.sub(
        r"<script.*?</script>|<style.*?</style>", "", path.read_text(), flags=re.DOTALL
    )


def test_the_same_study_gives_the_same_page(page):
    assert render_study([study()], "Adult by <sex>", "What to know.") == page
