"""One quantity has one name, one unit and one meaning of ± wherever a person reads it; names in
results.csv stay as they are.
"""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from tests.auditing.invented import WHO, predictions
from tests.report.invented import comparison, federation, with_groups

import evenly
from evenly.cli import experiment_runs, result_commands, tuning_command
from evenly.cli.terminal_tables import main_table, results_table
from evenly.data.sides import unprivileged_words
from evenly.experiment.paper import PaperLine
from evenly.metrics import EVERY_METRIC, Spread, spread
from evenly.papers import study_charts, study_page
from evenly.records import replace
from evenly.report import setup_sections
from evenly.report.charts.convergence import convergence
from evenly.report.charts.focus import choose_focus
from evenly.report.charts.tradeoff import CLIENT_MEASURES, GROUP_MEASURES, front_chart
from evenly.report.disclosure import client_groups
from evenly.report.group_section import group_section
from evenly.report.group_values import with_groups as with_group_values
from evenly.report.method_table import latex
from evenly.report.page import render
from evenly.report.results_section import results_section
from evenly.report.values import COLUMNS, final_values, format_spread, spread_words

FOUND = comparison(data=federation(6), seeds=2)
GROUPED = with_groups(FOUND)
NAMED = [pytest.param(FOUND, id="clients"), pytest.param(GROUPED, id="groups")]


@pytest.mark.parametrize("found", NAMED)
def test_terminal_and_latex_use_the_registrys_titles(found):
    table, names = main_table(found)
    assert names == {metric.name: metric.title for metric in table.metrics}
    assert [str(column.header) for column in results_table(found).columns][1:] == list(
        names.values()
    )
    assert all(
        title.replace("%", r"\%").replace("|", r"\textbar{}") in latex(table, names, "")
        for title in names.values()
    )


def test_charts_and_papers_use_the_registrys_titles():
    values = with_group_values(GROUPED, final_values(GROUPED))
    for metric in (*CLIENT_MEASURES, *GROUP_MEASURES):
        assert (
            str(front_chart(values, metric, GROUPED.labels).title)
            == f"Accuracy and {EVERY_METRIC[metric].title}"
        )
    assert {m: setup_sections.metric_title(m) for m in EVERY_METRIC} == {
        m: EVERY_METRIC[m].title for m in EVERY_METRIC
    }
    for metric in ("average", "worst10", "variance"):
        title = str(convergence(FOUND, metric, FOUND.labels).title)
        assert title.lower().startswith(EVERY_METRIC[metric].title)


def test_the_page_says_what_each_metric_is_called_in_results_csv():
    values = final_values(FOUND)
    page = results_section(FOUND, values, choose_focus(FOUND, values))
    assert "In results.csv" in page
    assert "<span>variance_noise</span>" in page


def test_no_two_metrics_share_a_title():
    titles = [metric.title for metric in COLUMNS.values()]
    assert len(titles) == len(set(titles))


def test_plus_or_minus_is_half_of_the_interval_wherever_seeds_are_summed_up():
    seen = spread(np.array([70.0, 71.0, 75.0]))
    half = f"72.0 ± {seen.half_width:.1f}"
    assert format_spread(seen, EVERY_METRIC["average"]) == half
    line = PaperLine("1", "test", "fedavg", "average", 70.0, 2.0, seen)
    # a paper's deviation is not written with ±
    assert setup_sections.paper_figures(line) == ("70.0 (sd 2.0)", half, "+2.0")
    assert (
        setup_sections.paper_figures(line._replace(ours=Spread(72.0, np.nan, np.nan, 1)))[1]
        == "72.0"
    )
    assert spread_words(3) == "mean ± half of the 95 % interval over 3 seeds"


def test_no_page_and_no_command_calls_plus_or_minus_anything_else():
    said = [
        inspect.getsource(module)
        for module in (
            setup_sections,
            study_charts,
            study_page,
            result_commands,
            experiment_runs,
            tuning_command,
        )
    ]
    pages = [path.read_text() for path in Path(evenly.__file__).parent.rglob("*.py")]
    assert not [
        text
        for text in (*said, *pages)
        if re.search(r"± (a |the )?(standard deviation|95 % interval)", text)
    ]


def test_differences_between_groups_are_fractions_in_reports_and_in_audits(tmp_path):
    """EOD is a number from −1 to 1 in results.csv, in audit.csv, on both pages, in the terminal and
    in LaTeX.
    """
    values = final_values(GROUPED)
    section = group_section(GROUPED, choose_focus(GROUPED, values)).sections["groups"]
    assert "differences between groups as fractions" in section
    found = evenly.audit(predictions(), **WHO, score="s")
    page = re.sub(
        r"<[^>]+>", " ", found.report(tmp_path / "page.html").read_text().partition("</main>")[0]
    )
    gap = found.groups[0].against["eod"][0].value
    assert f"−{-gap:.3f}" in page
    assert "in points" not in page
    assert f"calibration error {found.whole['ece'].value:.3f}" in " ".join(found.sentences)


def test_names_with_commas_are_separated_by_semicolons():
    found = with_groups(comparison(("fedavg",), seeds=1))
    page = render(found)
    assert "6: sex=Female, race=Black; sex=Female, race=White; sex=Female, race=Other;" in page
    alone = replace(found.federation, attributes=(), unprivileged=(0, 1))
    assert unprivileged_words(alone) == "sex=Female, race=Black; sex=Female, race=White"
    first, *_ = client_groups(found._replace(federation=alone))
    assert re.fullmatch(r"(sex=\w+, race=\w+ \d+ %; ){3}\d more", first)


def test_one_seed_has_no_means_over_seeds():
    for data in (federation(8), federation(30)):
        for labels in (("fedavg",), ("fedavg", "afl")):
            found = with_groups(comparison(labels, seeds=1, data=data))
            text = re.sub(r"<script.*?</script>", "", render(found), flags=re.S)
            assert not re.search(r"[Mm]eans? over seeds", text)
    several = render(comparison(seeds=2, data=federation(8)))
    assert "a mark for each method, means over seeds." in several
