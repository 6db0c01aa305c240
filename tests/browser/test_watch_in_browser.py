"""`evenly watch` in a real browser, while a real experiment runs in another process and
is killed.
"""

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_report_in_browser import DESK, PHONE, browser  # noqa: F401

from evenly.experiment.observe import Live
from evenly.watch import Watch

pytestmark = pytest.mark.browser

COMMAND = [
    "compare",
    "--data",
    "synthetic(clients=5)",
    "--algorithms",
    "fedavg,q-fedavg(q=1)",
    "--rounds",
    "400000",
    "--seeds",
    "1",
]
MORE = ["--sampling", "uniform(clients=2)", "--evaluate-every", "500"]
DONE = (
    "Number(document.getElementById('far').textContent.match(/^[0-9,]+/)?.[0].replaceAll(',', ''))"
)


# Tests that run in the background pass on that Ctrl-C is ignored; a user's terminal does not.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from evenly.cli"
    " import main; main()"
)


def evenly(*arguments: str, folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


@pytest.fixture
def processes():
    """Processes that a test starts; whatever happens, they end, each by its own id."""
    started: list[subprocess.Popen] = []
    yield started
    for one in started:
        one.kill()
        one.wait(10)
        one.stdout.close()


class Visitor:
    """A page that keeps what it complains about and which hosts it asks."""

    def __init__(self, browser, url: str, **options: object):  # noqa: F811
        self.context = browser.new_context(**options)
        self.page, self.complaints, self.asked = self.context.new_page(), [], set()
        self.page.set_default_timeout(30_000)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "request",
            lambda request: self.asked.add(
                request.url.split("/")[2] if "//" in request.url else "data"
            ),
        )
        self.page.goto(url)

    def status(self, wanted: str) -> str:
        self.page.wait_for_function(f"document.documentElement.dataset.status === '{wanted}'")
        return self.page.text_content("#status")


@pytest.mark.slow
def test_the_page_follows_an_experiment_until_it_is_killed(browser, processes, tmp_path: Path):  # noqa: F811
    watch = evenly("watch", "out", "--no-open", folder=tmp_path)
    processes.append(watch)
    training = evenly(*COMMAND, *MORE, "--out", "out", folder=tmp_path)
    processes.append(training)
    url = re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", watch.stdout.readline())[0]
    visit = Visitor(browser, url, viewport=DESK, color_scheme="dark")
    page = visit.page
    visit.status("running")
    page.wait_for_function("Number(document.documentElement.dataset.drawn) > 3")
    before, drawn = (
        page.evaluate(DONE),
        page.evaluate("Number(document.documentElement.dataset.drawn)"),
    )
    page.wait_for_function(
        f"{DONE} > {before} && Number(document.documentElement.dataset.drawn) > {drawn}"
    )
    assert page.locator("#chart svg path").count() > 4, "lines and bands are drawn"
    assert re.search(r"^[\d,]+ of 400,000 rounds \(\d+ %\) · .* so far", page.text_content("#far"))
    assert page.locator("#rows tr").count() == 2
    assert 5 < float(page.text_content("#rows tr:first-child td:nth-child(3)")) < 100, (
        "an accuracy in percent"
    )
    page.select_option("#metric", "test:variance")
    page.wait_for_function("document.querySelector('#chart svg').textContent.includes('variance')")
    page.uncheck("input[value='fedavg']")
    page.wait_for_function("!document.querySelector('#rows tr:first-child svg path')")
    training.kill()
    assert "the process has ended" in visit.status("gone")
    assert "evenly resume out" in page.text_content("#status")
    assert page.text_content("#runs [data-stage=stopped] dd") == "2"
    assert visit.complaints == []
    assert visit.asked <= {url.split("/")[2], "data"}, "no request leaves the page's own address"
    watch.send_signal(signal.SIGINT)
    assert watch.wait(30) == 0, "Ctrl-C ends it cleanly"
    visit.context.close()


@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.further)])
def test_a_finished_experiment_leads_to_its_report_and_many_methods_fit(
    browser,  # noqa: F811
    tmp_path: Path,
    width: int,
):
    labels = [
        f"<b>method</b> number {i} with a long name(learning_rate=0.001, q={i})" for i in range(12)
    ]
    about = {"name": "test", "data": "tiny", "rounds": 20, "every": 10, "splits": ["test"]}
    live = Live(tmp_path, about, [(label, 0) for label in labels])
    live.progress(0, 240)
    watch = Watch(tmp_path)
    thread = threading.Thread(target=watch.serve)
    thread.start()
    try:
        visit = Visitor(browser, watch.url, viewport={**PHONE, "width": width})
        visit.status("running")
        for i, label in enumerate(labels):
            for done in (0, 10, 20):
                live.point(
                    label,
                    0,
                    done,
                    {"test": {"average": 50.0 + i + done, "worst10": 10.0, "variance": 100.0}},
                )
        live.progress(240, 240)
        live.end("finished")
        (tmp_path / "report.html").write_text(
            "<!doctype html><title>report</title><h1>The report</h1>"
        )
        assert visit.status("finished") == "This experiment is finished."
        page = visit.page
        # eight of them
        page.wait_for_function("Number(document.documentElement.dataset.drawn) === 24")
        assert page.text_content("#rows tr:first-child th").startswith("<b>method</b>")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
        page.check("#rows tr:last-child input")
        # the ninth takes the place of the first
        page.wait_for_function("!document.querySelector('#rows input').checked")
        assert page.locator("#rows input:checked").count() == 8
        page.click("#report a")
        page.wait_for_selector("h1:text('The report')")
        assert visit.complaints == []
        visit.context.close()
    finally:
        watch.stop()
        thread.join(5)
        watch.close()
