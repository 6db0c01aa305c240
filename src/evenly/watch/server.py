"""The server of the page: on the loopback address only, read-only, and only for who knows the address with its secret.

There are three addresses and no files behind others, so no path leads anywhere else. A page elsewhere on the web that makes
a name point at this machine is refused by the name it asks for, and one that guesses the port lacks the secret.
"""

import json
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from evenly.watch.page import page
from evenly.watch.state import State
from evenly.watch.tail import opened

ADDRESS = "127.0.0.1"
ALWAYS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address holds the secret
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# The report says itself that it asks for nothing; it may say so, and no more is allowed here.
REPORT = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
NOTHING = "default-src 'none'"


class Server(ThreadingHTTPServer):
    """Without a word about pages that are closed or loaded again before their answer is through."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Watch:
    """A server that follows one folder, which need not be there yet. `serve` runs until `close` or an interrupt."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{str(folder)!r} must be the folder of an experiment, but it is a file.")
        self._state, self._lock, self._secret = State(folder), Lock(), secrets.token_urlsafe(16)
        self._server = Server((ADDRESS, port), self._handler())

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
        """Status, kind, policy and content for a path with its query, asked for under a host's name from a page's site."""
        port = self._server.server_port
        if host not in (f"{ADDRESS}:{port}", f"localhost:{port}") or site not in ("", "none", "same-origin"):
            return _refusal(HTTPStatus.FORBIDDEN)
        path, _, query = target.partition("?")
        _, secret, *rest = [*path.split("/", 2), ""][:3]
        if not secrets.compare_digest(secret.encode(), self._secret.encode()):
            return _refusal(HTTPStatus.NOT_FOUND)
        match rest[0] if path.count("/") == 2 else None:
            case "":
                return HTTPStatus.OK, "text/html; charset=utf-8", page().policy, page().text.encode()
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
            with opened(self._state.folder, self._state.folder / "report.html") as file:
                text = file.read()
        except OSError:
            return _refusal(HTTPStatus.NOT_FOUND)
        return HTTPStatus.OK, "text/html; charset=utf-8", REPORT, text

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version, protocol_version, timeout = "evenly", "", "HTTP/1.1", 30

            def do_GET(self) -> None:
                status, kind, policy, content = answer(self.path, self.headers.get("Host", ""), self.headers.get("Sec-Fetch-Site", ""))
                self.send_response(status)
                for name, value in {**ALWAYS, "Content-Security-Policy": policy, "Content-Type": kind}.items():
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
