"""The page of a search in a real browser: drawn, pointed at, and readable on a phone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_report_in_browser import DESK, PHONE, Visit, browser  # noqa: F401
from tests.tunings import searched

from evenly.report.tuning_page import write_tuning_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        method = "q-fedavg(q=0.01..100:log, learning_rate=0.01..1:log, epochs=1..3)"
        found, _ = searched(patch, method, objectives=("average", "variance"), trials=32)
    return write_tuning_report(
        found, tmp_path_factory.mktemp("tuning") / "report.html", "chosen/report.html"
    )


@pytest.mark.further
def test_every_chart_is_drawn_without_a_complaint_and_a_mark_tells_its_settings(browser, report):  # noqa: F811
    with Visit(browser, report, viewport=DESK) as visit:
        visit.page.locator(
            "#chart-front-average-variance path[aria-roledescription=point]"
        ).last.hover(force=True)
        tip = visit.page.locator("#vg-tooltip-element.visible")
        tip.wait_for(timeout=5000)
        assert "q-fedavg(q=" in tip.inner_text()
        assert "On the front" in tip.inner_text()
        visit.page.evaluate(
            "document.querySelectorAll('figure').forEach(figure => figure.scrollIntoView())"
        )
        visit.page.wait_for_function("document.querySelectorAll('.chart svg').length === 7")
        assert visit.complaints == []


@pytest.mark.parametrize(
    "viewport",
    [{"width": 320, "height": 640}, DESK, pytest.param(PHONE, marks=pytest.mark.further)],
)
def test_nothing_overflows_sideways(browser, report, viewport):  # noqa: F811
    with Visit(browser, report, viewport=viewport) as visit:
        visit.page.evaluate(
            "document.querySelectorAll('details').forEach(part => part.open = true)"
        )
        assert visit.overflow() == 0


def test_the_first_printed_page_holds_more_than_the_opening(browser, report):  # noqa: F811
    with Visit(browser, report, viewport=DESK) as visit:
        visit.page.emulate_media(media="print")
        header = visit.page.locator("header")
        assert "Worst-served client" in header.inner_text()
        assert header.evaluate("found => getComputedStyle(found).breakAfter") == "auto"
