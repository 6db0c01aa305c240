"""The documentation as a site: it builds strictly, without the network, and every page is in it."""

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest

from tools import gallery
from tools.colours import with_dark_colours
from tools.gallery import EXHIBITS
from tools.site import OUTSIDE, expand, unbroken

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# whoever asks is refused
NOWHERE = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "HTTP", "HTTPS")}
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*?"
    r"\b(?:src|href|srcset)=[\"']?(?:https?:)?//[^\"' >]+",
    re.IGNORECASE,
)
FETCHED = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


REPORT = """<h1>Synthetic</h1><p class="lead">fedavg is right for <b>78 %</b> of rows.</p>"""
REFERENCED = re.compile(r"""\b(?:href|src)=["']?([^"' >]+)""")
IDENTIFIED = re.compile(r"""\bid=["']?([^"' >]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, with one report in its gallery."""
    folder = tmp_path_factory.mktemp("site")
    report = folder / "reports" / "synthetic"
    report.mkdir(parents=True)
    (report / "report.html").write_text(REPORT)
    (report / "chart.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (report / "built.json").write_text('{"seconds": 12.3}')
    command = [sys.executable, "-m", "tools.site", "--reports", str(folder / "reports")]
    command += ["--assemble", str(folder / "pages"), "--out", str(folder / "out")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **NOWHERE},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "out"


def built_pages(site: Path) -> dict[str, str]:
    """The built pages by name, without the one for missing pages and without reports."""
    return {
        path.relative_to(site).as_posix(): path.read_text()
        for path in site.rglob("*.html")
        if path.name != "404.html" and path.parent.parent != site / "gallery"
    }


def test_every_page_is_built_and_in_the_list_of_pages(site: Path):
    pages = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    pages |= {name.replace(".md", ".html") for name, path in OUTSIDE.items() if path.exists()}
    built = built_pages(site)
    assert set(built) == pages
    listed = re.findall(r'<a href="([^"#:]+\.html)" class="md-nav__link', built["index.html"])
    names = {name.removeprefix("./") for name in listed}
    assert names >= pages - {"index.html"}
    assert len(listed) == len(names), "a page is listed twice"


def test_every_link_and_picture_and_anchor_exists(site: Path):
    built = built_pages(site)
    anchors = {name: set(IDENTIFIED.findall(text)) for name, text in built.items()}
    for name, text in built.items():
        for target in map(html.unescape, REFERENCED.findall(text)):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            found = os.path.normpath(os.path.join(os.path.dirname(name), file)) if file else name
            assert (site / found).is_file(), f"{name} refers to {target}"
            assert not anchor or found not in anchors or unquote(anchor) in anchors[found], (
                f"{name} refers to {target}"
            )


def test_the_gallery_shows_reports_that_are_built_and_says_how_to_build_the_others(site: Path):
    page = (site / "gallery" / "index.html").read_text()
    assert "fedavg is right for 78\N{NO-BREAK SPACE}% of rows." in page
    assert "built in 12 seconds" in page
    assert (site / "gallery" / "synthetic" / "report.html").read_text() == REPORT
    assert page.count("was built without the report") == len(EXHIBITS) - 1


def test_the_first_page_shows_a_report_if_it_is_built(site: Path, tmp_path: Path):
    page = (site / "index.html").read_text()
    assert re.search(r'<iframe class="?report"? src="gallery/synthetic/report.html"', page)
    assert "run `make gallery`" in gallery.with_example(gallery.EXAMPLE, tmp_path)


def test_missing_data_are_named_with_the_command_that_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVENLY_DATA", str(tmp_path))
    text = gallery.with_reports("<!-- report: compas -->", tmp_path, tmp_path)
    assert "run `evenly data fetch compas` first" in text


def test_folders_of_the_navigation_become_their_pages_and_absent_pages_are_left_out(tmp_path: Path):
    (tmp_path / "some").mkdir()
    for name in ("b", "a", "index"):
        (tmp_path / "some" / f"{name}.md").write_text(f"# Page {name}\n")
    (tmp_path / "some" / "index.md").write_text("# Some\n\n[b](b.md) [a](a.md) [b](b.md)\n")
    (tmp_path / "one.md").write_text("# One\n")
    pages = ["some/index.md", {"Page b": "some/b.md"}, {"Page a": "some/a.md"}]
    nav = [{"One": "one.md"}, {"Two": "two.md"}, {"Some": "some/"}, {"None": "none/"}]
    assert expand(nav, tmp_path) == [{"One": "one.md"}, {"Some": pages}]
    for name in ("a", "b"):
        (tmp_path / "some" / f"{name}.md").write_text(f"# A heading of some length: page {name}\n")
    long = [{f"A heading of some length: page {name}": f"some/{name}.md"} for name in "ba"]
    assert expand([{"Some": "some/"}], tmp_path) == [{"Some": ["some/index.md", *long]}]
    for name in ("a", "b"):
        (tmp_path / "some" / f"{name}.md").write_text(f"# Page {name}\n")
    assert expand([{"All": ["one.md", "some/"]}], tmp_path) == [{"All": ["one.md", *pages]}]


def test_a_number_stays_with_its_sign_and_unit_but_not_in_code_or_headings():
    page = "# 10 %\n\n84 ±\n2 % with q = 1, `q = 1` and $q = 1$\n\n    echo 10 %\n"
    told = unbroken(page).replace("\N{NO-BREAK SPACE}", "_")
    assert told == "# 10 %\n\n84_±_2_% with q_=_1, `q = 1` and $q = 1$\n\n    echo 10 %\n"


def test_charts_of_reports_have_dark_colours_on_the_site(site: Path):
    for name in ("pictures/qffl-synthetic.svg", "tutorials/images/own_table-1.svg"):
        chart = (site / name).read_text()
        assert "prefers-color-scheme:dark" in chart
        assert not re.search(r'(fill|stroke)="#', chart)
        assert with_dark_colours(chart) == chart


def test_no_page_loads_anything_from_elsewhere(site: Path):
    assert LOADED.search('<link rel="stylesheet" href="https://fonts.example/css">')
    for path in site.rglob("*.html"):
        assert not LOADED.findall(path.read_text()), path.name
    for path in site.rglob("*.css"):
        assert not FETCHED.search(path.read_text()), path.name


def test_scripts_of_the_documentation_are_not_part_of_the_site(site: Path):
    assert not list(site.rglob("*.py"))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(timeout=10)


@pytest.mark.further
@pytest.mark.browser
def test_the_site_in_a_browser_stays_on_its_machine_and_within_a_phone(site: Path, address: str):
    path = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if path is None:
        assert os.environ.get("EVENLY_REQUIRE_BROWSER") != "1"
        pytest.skip("Chromium is not installed; `apt install chromium` provides it.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 390, "height": 844})
        strangers, mistakes = [], []
        page.on(
            "request",
            lambda request: (
                request.url.startswith((address, "data:", "blob:", "file:"))
                or strangers.append(request.url)
            ),
        )
        page.on(
            "console", lambda message: message.type == "error" and mistakes.append(message.text)
        )
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        for name in (
            "index.html",
            "choose.html",
            "algorithms/q-fedavg.html",
            "results/acs-income.html",
            "architecture.html",
            "gallery/index.html",
            "glossary.html",
            "reference/cli.html",
            "reference/evenly.html",
        ):
            page.goto(address + name)
            wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide <= 0, f"{name} is {wide} pixels wider than a phone"
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(address + "glossary.html")
        page.wait_for_selector(".katex", timeout=10_000)
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")
        page.keyboard.type("reweighing")
        page.wait_for_function(
            "[...document.querySelectorAll('*')].some(node => node.shadowRoot?.textContent"
            ".includes('Why reweighing'))",
            timeout=10_000,
        )
        browser.close()
    assert (strangers, mistakes) == ([], [])
