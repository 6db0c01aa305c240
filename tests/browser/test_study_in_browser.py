"""A study's report in a real browser: drawn, sorted, filtered, and readable on a phone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_report_in_browser import DESK, PHONE, Visit, browser  # noqa: F401
from tests.studies import METHODS, study

from evenly.papers.study_page import write_study_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    return write_study_report(
        [study()], tmp_path_factory.mktemp("study") / "report.html", "Adult by sex"
    )


def test_every_chart_is_drawn_without_a_complaint(browser, report):  # noqa: F811
    with Visit(browser, report, viewport=DESK) as visit:
        charts = visit.page.locator(".chart").count()
        assert charts == 16
        assert (
            visit.page.locator(".chart > svg, .chart > div > svg, .chart canvas").count() == charts
        )
        assert visit.complaints == []


@pytest.mark.parametrize(
    "width", [320, 1040, *(pytest.param(n, marks=pytest.mark.further) for n in (390, 768, 1280))]
)
def test_nothing_overflows_sideways(browser, report, width):  # noqa: F811
    with Visit(browser, report, viewport={"width": width, "height": 844}) as visit:
        visit.page.evaluate(
            "document.querySelectorAll('details').forEach(part => part.open = true)"
        )
        assert visit.overflow() == 0


def names(page) -> list[str]:
    return page.evaluate(
        "[...document.querySelector('table.methods').tBodies[0].rows].filter(r => !r.hidden).map(r"
        " => r.cells[0].textContent)"
    )


def test_a_click_sorts_and_another_turns_the_order(browser, report):  # noqa: F811
    with Visit(browser, report, viewport=DESK) as visit:
        before, head = (
            names(visit.page),
            visit.page.locator("table.methods th button.sort", has_text="|EOD|").first,
        )
        head.click()
        rising = names(visit.page)
        assert "+LD" in rising[0]  # reweighing has the lower gap here
        assert "+LD" not in rising[-1]
        head.click()
        assert "+LD" in names(visit.page)[-1]
        assert sorted(before) == sorted(rising)


def test_words_filter_the_methods_and_boxes_hide_lines(browser, report):  # noqa: F811
    with Visit(browser, report, viewport=PHONE) as visit:
        assert len(names(visit.page)) == len(METHODS)
        visit.page.fill("#filter-methods", "ratio -ld")
        assert names(visit.page) == ["FEDCVG-RATIO(0.5)", "FEDCVG-RATIO(0.9)"]
        assert not visit.page.locator("table.methods tr[hidden]").first.is_visible()
        shown = visit.page.locator("table.methods tr:not([hidden]) .line.paper").first
        assert shown.is_visible()
        visit.page.uncheck("input[data-whose=paper]")
        assert not shown.is_visible()
