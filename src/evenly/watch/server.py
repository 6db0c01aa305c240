"""The server of `evenly watch`: a local web page that follows an experiment."""

import base64
import functools
import hashlib
import json
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from evenly.report.charts.theme import SHAPES, page_config
from evenly.report.html import Html, asset, bundle, colours, data_block, element, script, section
from evenly.watch.state import WatchState, open_inside

# The page.


class Page(NamedTuple):
    """HTML and its content security policy."""

    text: str
    policy: str


@functools.cache
def page() -> Page:
    """The page without data. Its script requests the state and fills it in."""
    programs = [bundle(), _asset("watch.js")]
    style = colours() + asset("page.css") + _asset("watch.css")
    head = [
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("link", {"rel": "icon", "href": "data:,"}),
        element("title", None, "evenly watch"),
        element("style", None, Html(style)),
    ]
    block = data_block("figure", {"spec": chart(), "config": page_config(), "shapes": SHAPES})
    body = [element("main", None, *_places()), block, *(script(program) for program in programs)]
    root = element(
        "html", {"lang": "en"}, element("head", None, *head), element("body", None, *body)
    )
    return Page(f"<!doctype html>\n{root}\n", _policy(programs))


def _places() -> list[Html]:
    """The elements that the script fills, in reading order."""
    status = element(
        "p", {"id": "status", "role": "status", "class": "lead"}, "Loading the state …"
    )
    bar = element("progress", {"id": "bar", "max": "1", "aria-labelledby": "far", "hidden": ""})
    far = element("p", {"id": "far", "class": "soft"})
    report = element(
        "p",
        {"id": "report", "hidden": ""},
        element("a", {"href": "report", "class": "go"}, "Open the report"),
    )
    part = _choice("part", "Partition")
    counts = element("dl", {"id": "runs", "class": "counts"})
    needed = element("p", None, "This page needs JavaScript to show an experiment.")
    return [
        element("noscript", None, needed),
        element("p", {"id": "kicker", "class": "kicker"}, "evenly watch"),
        element("h1", {"id": "name"}, "An experiment"),
        status,
        report,
        bar,
        far,
        part,
        counts,
        element("div", {"id": "details", "hidden": ""}, *_details()),
    ]


def _details() -> list[Html]:
    """The sections that appear once there are evaluations: the chart and the table of methods."""
    tools = element("div", {"class": "tools"}, _choice("metric", "Metric"))
    figure = element(
        "figure",
        None,
        element("div", {"id": "chart", "class": "chart"}),
        element("figcaption", {"id": "about"}),
    )
    head, rows = element("thead", {"id": "head"}), element("tbody", {"id": "rows"})
    table = element(
        "table", {"class": "methods"}, element("caption", {"id": "caption"}), head, rows
    )
    return [
        section("rounds", "Rounds", tools, figure),
        section("methods", "Methods so far", table),
    ]


def _choice(name: str, title: str) -> Html:
    label = element("label", {"for": name}, title)
    return element(
        "p",
        {"class": "choice", "id": f"choose-{name}", "hidden": ""},
        label,
        element("select", {"id": name}),
    )


TOOLTIP = [
    {"field": "method", "type": "nominal", "title": "Method"},
    {"field": "round", "type": "quantitative", "title": "Round", "format": ",d"},
    {"field": "mean", "type": "quantitative", "title": "Mean", "format": ".4g"},
    {"field": "span", "type": "nominal", "title": "Seeds"},
]


def chart() -> dict[str, Any]:
    """The Vega-Lite chart: mean over seeds by round, and a band from the lowest to the highest
    seed. The script adds the data.
    """
    y = {
        "field": "mean",
        "type": "quantitative",
        "scale": {"zero": False},
        "axis": {"tickCount": 5, "title": None},
    }
    x = {
        "field": "round", "type": "quantitative", "scale": {"nice": False, "zero": True},
        "axis": {"title": "Rounds of training", "tickMinStep": 1, "tickCount": 5, "format": ",d"},
    }  # fmt: skip
    hit = {"name": "hit", "select": {"type": "point", "on": "pointerover", "clear": "pointerout"}}
    seen = {"condition": {"param": "hit", "empty": False, "value": 0.35}, "value": 0}
    shape = {"field": "method", "type": "nominal"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": "The metric by round, one line per method.",
        "width": "container",
        "height": 300,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"name": "lines"},
        "encoding": {"x": x, "color": {"field": "method", "type": "nominal"}},
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.16},
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 2, "clip": True}, "encoding": {"y": y}},
            {
                "transform": [{"filter": "datum.shaped"}],
                "mark": {"type": "point", "filled": True, "size": 42, "opacity": 0.9},
                "encoding": {"y": y, "shape": shape},
            },
            {
                "params": [hit],
                "mark": {"type": "circle", "size": 260},
                "encoding": {"y": y, "opacity": seen, "tooltip": TOOLTIP},
            },
        ],
    }


def _policy(programs: list[str]) -> str:
    """A policy that allows our scripts and requests to our address only. Vega compiles expressions
    and sets styles.
    """
    hashes = [
        base64.b64encode(hashlib.sha256(program.encode()).digest()).decode() for program in programs
    ]
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline';"
        " img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )


def _asset(name: str) -> str:
    return (resources.files("evenly.watch") / name).read_text(encoding="utf-8")


# The server: read-only, on the loopback address, with a secret in the address. It has three
# addresses and serves no other files. A web page that resolves a name to this machine is refused by
# the Host header, one that guesses the port lacks the secret.

ADDRESS = "127.0.0.1"
ALWAYS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address holds the secret
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# The report has the same policy itself. The server sends it again, so that a report cannot ask for
# more.
REPORT = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline';"
    " img-src data: blob:; base-uri 'none'"
)
NOTHING = "default-src 'none'"


class WatchServer(ThreadingHTTPServer):
    """An HTTP server that ignores connections closed by the browser."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Watch:
    """A server that follows one folder, which may not exist yet. `serve` runs until `stop` or an
    interrupt.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(
                f"{str(folder)!r} must be the folder of an experiment, but it is a file."
            )
        self._state, self._lock, self._secret = (
            WatchState(folder),
            Lock(),
            secrets.token_urlsafe(16),
        )
        self._server = WatchServer((ADDRESS, port), self._handler())

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self._server.server_port}/{self._secret}/"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        self._server.server_close()

    def stop(self) -> None:
        """End `serve` from another thread."""
        self._server.shutdown()

    def answer(self, target: str, host: str, site: str) -> tuple[HTTPStatus, str, str, bytes]:
        """Status, content type, policy and content for a request.

        Args:
            target: Path with query.
            host: The Host header.
            site: The Sec-Fetch-Site header.
        """
        port = self._server.server_port
        if host not in (f"{ADDRESS}:{port}", f"localhost:{port}") or site not in (
            "",
            "none",
            "same-origin",
        ):
            return _refusal(HTTPStatus.FORBIDDEN)
        path, _, query = target.partition("?")
        _, secret, *rest = [*path.split("/", 2), ""][:3]
        if not secrets.compare_digest(secret.encode(), self._secret.encode()):
            return _refusal(HTTPStatus.NOT_FOUND)
        match rest[0] if path.count("/") == 2 else None:
            case "":
                return (
                    HTTPStatus.OK,
                    "text/html; charset=utf-8",
                    page().policy,
                    page().text.encode(),
                )
            case "state":
                return HTTPStatus.OK, "application/json", NOTHING, self._told(query)
            case "report":
                return self._report()
        return _refusal(HTTPStatus.NOT_FOUND)

    def _told(self, query: str) -> bytes:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(f"?{query}").query).items()}
        with self._lock:
            told = self._state.look(*(asked.get(name, "") for name in ("part", "metric", "seen")))
        return json.dumps(told, allow_nan=False).encode()

    def _report(self) -> tuple[HTTPStatus, str, str, bytes]:
        try:
            with open_inside(self._state.folder, self._state.folder / "report.html") as file:
                text = file.read()
        except OSError:
            return _refusal(HTTPStatus.NOT_FOUND)
        return HTTPStatus.OK, "text/html; charset=utf-8", REPORT, text

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version, protocol_version, timeout = "evenly", "", "HTTP/1.1", 30

            def do_GET(self) -> None:
                status, kind, policy, content = answer(
                    self.path, self.headers.get("Host", ""), self.headers.get("Sec-Fetch-Site", "")
                )
                self.send_response(status)
                for name, value in {
                    **ALWAYS,
                    "Content-Security-Policy": policy,
                    "Content-Type": kind,
                }.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Requests are not worth a line each."""

        return Handler


def _refusal(status: HTTPStatus) -> tuple[HTTPStatus, str, str, bytes]:
    return status, "text/plain; charset=utf-8", NOTHING, f"{status.phrase}\n".encode()
