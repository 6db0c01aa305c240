"""The report in a real browser: drawn, quiet, alone, and readable on a phone."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # the invented comparisons are shared with tests/report

import itertools

from invented import HOSTILE, comparison, federation, with_groups

from evenly.report import write_report

pytestmark = pytest.mark.browser

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


def absent(reason: str):
    if os.environ.get("EVENLY_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason} (EVENLY_REQUIRE_BROWSER=1 forbids skipping)")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        absent("Chromium is not installed; `apt install chromium` provides it.")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("playwright is not installed; `pip install playwright` provides it.")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, Path]:
    """Five reports, written once."""
    folder = tmp_path_factory.mktemp("reports")
    names = [HOSTILE, '"><img src=x onerror="window.hacked=1">', *(f"a hospital with a long name, number {i} " * 3 for i in range(18))]
    long = "fedavg(learning_rate=0.001)+server-adam(learning_rate=0.0001, b1=0.9, b2=0.999, eps=0.00001)+uniform(clients=10)"
    made = {
        "usual": comparison(("fedavg", "q-fedavg(q=1)", "q-fedavg(q=5)")),
        "hostile": comparison(("fedavg", HOSTILE, long), data=federation(20, names=names), name=HOSTILE, command=HOSTILE),
        "many": comparison(["fedavg", *(f"q-fedavg(q={i}, learning_rate=0.1)" for i in range(40))], seeds=1),
        "one": comparison(("fedavg",), seeds=1, data=federation(1)),
        "groups": with_groups(comparison(("fedavg", "q-fedavg(q=1)", long), seeds=1, data=federation(20, rows=(40, 10, 40)))),
    }
    return {key: write_report(value, folder / f"{key}.html") for key, value in made.items()}


class Visit:
    """A page with everything it complained about and asked for."""

    def __init__(self, browser, path: Path, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]", timeout=30_000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def overflow(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.parametrize("name", ["usual", "hostile", "many", "one", "groups"])
def test_every_chart_is_drawn_without_a_complaint_or_a_request(browser, reports, name):
    with Visit(browser, reports[name], viewport=DESK) as visit:
        charts = visit.page.locator(".chart").count()
        assert charts == {"one": 5, "groups": 12}.get(name, 9)
        assert visit.page.locator(".chart > svg, .chart > div > svg, .chart canvas").count() == charts
        assert visit.complaints == []
        assert [url for url in visit.requests if not url.startswith("data:")] == [reports[name].as_uri()]


@pytest.mark.parametrize("name", ["usual", "hostile", "many", "groups"])
@pytest.mark.parametrize("width", [320, 390, 768, 1040])
def test_nothing_overflows_sideways(browser, reports, name, width):
    with Visit(browser, reports[name], viewport={"width": width, "height": 844}) as visit:
        visit.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert visit.overflow() == 0
        wide = visit.page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => !e.closest('.spoken, thead') "
            "&& e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 200))"
        )
        assert wide == []


def test_charts_follow_the_width_of_the_window(browser, reports):
    with Visit(browser, reports["usual"], viewport=DESK) as visit:
        before = visit.page.locator("#chart-influence svg").bounding_box()["width"]
        visit.page.set_viewport_size(PHONE)
        visit.page.wait_for_function("document.querySelector('#chart-influence svg').getBoundingClientRect().width <= 390")
        assert before > 800
        assert visit.overflow() == 0


@pytest.mark.parametrize(
    ("chart", "mark", "words"),
    [
        ("chart-front", "path[aria-roledescription=point]", "Accuracy"),
        ("chart-influence", "path[aria-roledescription=point]", "Share of all weight"),
        ("chart-distribution", "path[aria-roledescription=circle]", "Client"),
        ("chart-rounds-worst10", "path[aria-roledescription=circle]", "Round"),
    ],
)
def test_hovering_tells_what_a_mark_is(browser, reports, chart, mark, words):
    with Visit(browser, reports["usual"], viewport=DESK) as visit:
        visit.page.locator(f"#{chart} {mark}").last.hover(force=True)
        tip = visit.page.locator("#vg-tooltip-element.visible")
        tip.wait_for(timeout=5000)
        assert words in tip.inner_text()
        assert "fedavg" in tip.inner_text()
        assert "undefined" not in tip.inner_text()


def test_the_measure_of_fairness_can_be_chosen_with_the_keyboard(browser, reports):
    with Visit(browser, reports["groups"], viewport=DESK) as visit:
        choice = visit.page.get_by_label("Fairness measured by")
        assert choice.locator("option:checked").inner_text() == "Variance between clients"
        axis = visit.page.locator("#chart-front .role-axis-title")
        choice.focus()
        visit.page.keyboard.type("|SPD|")
        visit.page.wait_for_function("document.querySelector('#chart-front').textContent.includes('SPD')")
        assert any("lower is fairer" in text for text in axis.all_text_contents())
        assert visit.page.locator("#chart-front path[aria-roledescription=point]").count() == 3
        assert visit.complaints == []


def test_user_text_is_shown_and_never_executed(browser, reports):
    with Visit(browser, reports["hostile"], viewport=DESK) as visit:
        visit.page.locator("#chart-distribution path[aria-roledescription=circle]").first.hover(force=True)
        tip = visit.page.locator("#vg-tooltip-element.visible")
        tip.wait_for(timeout=5000)
        assert HOSTILE in tip.inner_text()
        assert visit.page.locator("h1").inner_text() == HOSTILE
        assert visit.page.evaluate("window.hacked") is None
        assert visit.page.locator("main img").count() == 0


def test_even_injected_scripts_would_not_run(browser, reports):
    with Visit(browser, reports["usual"], viewport=DESK) as visit:
        visit.page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s); }"
        )
        assert visit.page.evaluate("window.hacked") is None


def colours(visit: Visit) -> list[str]:
    read = "e => getComputedStyle(document.querySelector(e[0]))[e[1]]"
    label = "#chart-front .role-axis-label text"
    return [visit.page.evaluate(read, pair) for pair in (["body", "backgroundColor"], ["body", "color"], [label, "fill"])]


def brightness(colour: str) -> float:
    return sum(map(float, colour[colour.index("(") + 1 : -1].split(",")[:3])) / 3


def test_light_and_dark_follow_the_readers_choice_also_while_open(browser, reports):
    with Visit(browser, reports["usual"], viewport=DESK, color_scheme="dark") as visit:
        paper, ink, label = map(brightness, colours(visit))
        assert paper < 60 < 150 < min(ink, label)
        visit.page.emulate_media(color_scheme="light")
        paper, ink, label = map(brightness, colours(visit))
        assert paper > 200 > 120 > max(ink, label)


def test_paper_is_white_even_for_dark_readers(browser, reports):
    with Visit(browser, reports["usual"], viewport=DESK, color_scheme="dark") as visit:
        visit.page.emulate_media(media="print")
        paper, ink, label = map(brightness, colours(visit))
        assert paper > 200 > 120 > max(ink, label)
        assert not visit.page.locator("nav").is_visible()
        visit.page.emulate_media(media="screen")
        closed = visit.page.locator("details:not([open])").count()
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert visit.page.locator("details:not([open])").count() == 0
        visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert visit.page.locator("details:not([open])").count() == closed > 0


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_charts_can_be_saved_from_the_page(browser, reports, tmp_path, kind):
    with Visit(browser, reports["usual"], viewport=DESK, accept_downloads=True) as visit:
        with visit.page.expect_download() as download:
            visit.page.click(f"figure:has(#chart-rounds-average) button[data-save={kind}]")
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        assert path.name == f"rounds-average.{kind}"
        assert path.stat().st_size > 2000
        assert b"var(--" not in path.read_bytes()
        assert visit.complaints == []


def test_a_reader_of_the_structure_finds_tables_and_headings(browser, reports):
    with Visit(browser, reports["usual"], viewport=PHONE) as visit:
        page = visit.page
        assert page.get_attribute("html", "lang") == "en"
        assert page.locator("h1").count() == 1
        assert page.locator("table:not(:has(caption))").count() == 0
        assert page.get_by_role("row").count() > 5  # roles survive the card layout
        assert page.locator(".chart[role=graphics-document][aria-label]").count() == 9
        levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(e => +e.tagName[1])")
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
