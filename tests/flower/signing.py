"""A hub of signed apps: what a SuperLink asks Flower's own, answered in this process."""

import base64
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

SIGNER = "fpk_approver"


class Hub(BaseHTTPRequestHandler):
    """Flower's hub as far as a SuperLink asks it: an app and its signatures."""

    fab = b""
    verifications: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        url = f"http://{self.headers['host']}/app.fab"
        self._answer(json.dumps({"fab_url": url, "verifications": self.verifications}).encode())

    def do_GET(self) -> None:
        self._answer(self.fab)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def signed(fab: bytes, key: ed25519.Ed25519PrivateKey) -> dict[str, Any]:
    """What the hub keeps of a review: a signature of the time and the app's digest."""
    at = int(time.time())
    signature = key.sign(at.to_bytes(8, "big") + hashlib.sha256(fab).digest())
    text = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    return {"public_key_id": SIGNER, "signature": text, "signed_at": at}


@contextmanager
def serving() -> Iterator[str]:
    """The hub's address, while it answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def bundle(folder: Path) -> bytes:
    flwr = Path(sys.executable).with_name("flwr")
    subprocess.run([flwr, "build", "--app", folder], cwd=folder.parent, check=True, timeout=120)
    (path,) = folder.parent.glob("*.fab")
    return path.read_bytes()


def trust(key: ed25519.Ed25519PrivateKey, path: Path) -> Path:
    """Write the list of those whom a SuperNode trusts: the owner of this key."""
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.write_text(f"{SIGNER}: '{public.decode()} approver'\n")
    return path
