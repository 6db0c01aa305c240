"""The page of an audit in a real browser: drawn, quiet, alone, and readable on a phone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_report_in_browser import DESK, PHONE, Visit, browser  # noqa: F401
from tests.auditing.invented import WHO, predictions

import evenly

pytestmark = pytest.mark.browser

HOSTILE = (
    '"><img src=x onerror="window.hacked=1"> a name that is rather long for a column beside a chart'
)


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    frame = predictions(2000, clients=25)
    frame["hospital"] = frame["hospital"].replace("hospital 03", HOSTILE)
    frame["race"] = frame["race"].replace("C", HOSTILE)
    return evenly.audit(frame, **WHO, score="s", name=HOSTILE).report(
        tmp_path_factory.mktemp("audit") / "report.html"
    )


def test_it_is_drawn_without_a_complaint_or_a_request_and_says_more_on_hovering(browser, report):  # noqa: F811
    with Visit(browser, report, viewport=DESK) as visit:
        charts = visit.page.locator(".chart").count()
        # of clients, of three groupings, and of scores by two columns
        assert charts == 2 + 3 * 3 + 2 * 2
        assert visit.page.locator(".chart svg").count() == charts
        visit.page.locator("#chart-clients-each .mark-symbol path").first.hover()
        tooltip = visit.page.locator("#vg-tooltip-element")
        tooltip.wait_for(state="visible")
        assert "hospital 00" in tooltip.inner_text()
        assert "95 % interval" in tooltip.inner_text()
        visit.page.locator("summary", has_text="All 25 clients").click()
        assert visit.page.get_by_role("rowheader", name="hospital 24").first.is_visible()
        assert visit.page.evaluate("window.hacked") is None
        assert visit.complaints == []
        assert [
            url for url in visit.requests if not url.startswith(("file:", "data:", "blob:"))
        ] == []


@pytest.mark.parametrize(
    "options",
    [{"viewport": PHONE}, {"viewport": {"width": 320, "height": 700}, "color_scheme": "dark"}],
)
def test_nothing_overflows_on_a_phone(browser, report, options):  # noqa: F811
    with Visit(browser, report, **options) as visit:
        visit.page.evaluate(
            "document.querySelectorAll('details').forEach(part => part.open = true)"
        )
        assert visit.overflow() == 0
        assert visit.complaints == []
