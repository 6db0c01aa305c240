"""The documentation as a site: it builds strictly, without the network, and every page is in it."""

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

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ELSEWHERE = {"benchmarks.html", "changelog.html"}  # read from outside the folder
# whoever asks is refused
NOWHERE = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "HTTP", "HTTPS")}
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*?"
    r"\b(?:src|href|srcset)=[\"']?(?:https?:)?//[^\"' >]+",
    re.IGNORECASE,
)
FETCHED = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(out),
    ]
    env = {**os.environ, **NOWHERE, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_built_and_in_the_list_of_pages(site: Path):
    pages = {
        path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")
    } | ELSEWHERE
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html"}
    assert built == pages
    start = (site / "index.html").read_text()
    listed = re.findall(r'<a href="([^"#:]+\.html)" class="md-nav__link', start)
    assert set(listed) >= pages - {"index.html"}
    assert len(listed) == len(set(listed)), "a page is listed twice"


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


@pytest.mark.browser
def test_the_site_in_a_browser_stays_on_its_machine_and_within_a_phone(address: str):
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
                request.url.startswith((address, "data:", "blob:")) or strangers.append(request.url)
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
        ):
            page.goto(address + name)
            wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide == 0, f"{name} is {wide} pixels wider than a phone"
        page.set_viewport_size({"width": 1280, "height": 900})
        page.click("input[name=query]")
        page.keyboard.type("reweighing")
        page.wait_for_selector(".md-search-result__item", timeout=10_000)
        browser.close()
    assert (strangers, mistakes) == ([], [])
