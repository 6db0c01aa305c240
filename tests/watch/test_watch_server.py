"""The server of `evenly watch`: three addresses for who knows the secret, nothing for
anybody else.
"""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evenly.cli import app
from evenly.watch import Watch
from evenly.watch.state import WatchState


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "report.html").write_text("<p>the report</p>")
    (folder / "plan.json").write_text("{}")
    found = Watch(folder)
    thread = threading.Thread(target=found.serve)
    thread.start()
    yield found
    found.stop()
    thread.join(5)
    found.close()


def ask(
    watch: Watch, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    host, port = watch.url.split("/")[2].split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def secret(watch: Watch) -> str:
    return watch.url.split("/")[3]


def test_the_page_allows_only_our_programs_and_our_address(watch: Watch):
    status, headers, content = ask(watch, f"/{secret(watch)}/")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert b"Methods so far" in content


def test_the_state_and_the_report_are_there(watch: Watch):
    status, headers, content = ask(watch, f"/{secret(watch)}/state?metric=test:average")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(content)["status"] == "finished"
    assert ask(watch, f"/{secret(watch)}/report")[2] == b"<p>the report</p>"
    assert ask(watch, f"/{secret(watch)}/report", "HEAD")[::2] == (200, b"")


@pytest.mark.parametrize(
    "path", ["/", "/state", "/report", "/wrong/", "/wrong/state", "/é/", "//", "*"]
)
def test_without_the_secret_there_is_nothing(watch: Watch, path: str):
    status, _, content = ask(
        watch, path.encode().decode("latin-1") if path.isascii() else "/%C3%A9/"
    )
    assert (status, content) == (404, b"Not Found\n")


@pytest.mark.parametrize(
    "path",
    [
        "plan.json",
        "../plan.json",
        "report/../plan.json",
        "%2e%2e/plan.json",
        "report/",
        "state/x",
        "/etc/passwd",
        "live.jsonl",
        "report%00",
    ],
)
def test_no_path_leads_to_other_files(watch: Watch, path: str):
    assert ask(watch, f"/{secret(watch)}/{path}")[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": ""},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_other_names_and_other_sites_are_refused(watch: Watch, headers: dict[str, str]):
    assert ask(watch, watch.url[watch.url.index("/", 8) :], **headers)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(watch: Watch, method: str):
    assert ask(watch, f"/{secret(watch)}/state", method)[0] == 501


def test_a_closed_page_is_no_error_and_others_are(watch: Watch, capsys: pytest.CaptureFixture[str]):
    for error, told in (
        (BrokenPipeError(), False),
        (ConnectionResetError(), False),
        (KeyError("time"), True),
    ):
        try:
            raise error
        except Exception:
            watch._server.handle_error(None, ("127.0.0.1", 1))
        assert bool(capsys.readouterr().err) == told


def test_only_this_machine_is_served(watch: Watch):
    assert watch._server.server_address[0] == "127.0.0.1"


def test_a_file_or_a_used_port_is_answered_with_a_sentence(watch: Watch, tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    found = CliRunner().invoke(app, ["watch", str(file), "--no-open"])
    assert found.exit_code == 2
    assert "must be the folder of an experiment" in found.output
    port = watch.url.split(":")[2].split("/")[0]
    found = CliRunner().invoke(app, ["watch", str(tmp_path), "--no-open", "--port", port])
    assert found.exit_code == 2
    assert f"Port {port} cannot be used" in found.output


def test_a_link_is_not_followed(tmp_path: Path):
    """report.html could be a link to any file of whoever watches a folder that somebody
    else made.
    """
    secrets, folder = tmp_path / "secret.html", tmp_path / "watched"
    secrets.write_text("a secret")
    folder.mkdir()
    for name in ("report.html", "live.jsonl", "plan.json", "run.json"):
        (folder / name).symlink_to(secrets)
    found = Watch(folder)
    try:
        target = f"/{secret(found)}/"
        host = found.url.split("/")[2]
        assert found.answer(f"{target}report", host, "")[0] == 404
        status, _, _, content = found.answer(f"{target}state", host, "")
        assert (status, json.loads(content)["report"]) == (200, False)
        (folder / "report.html").unlink()
        (folder / "report.html").symlink_to(folder / "other.html")  # inside, but still a link
        (folder / "other.html").write_text("another file")
        assert found.answer(f"{target}report", host, "")[0] == 404
    finally:
        found.close()


def test_a_folder_behind_a_link_is_not_followed(tmp_path: Path):
    """A study's partitions are read from folders inside its own."""
    away, folder = tmp_path / "away", tmp_path / "watched"
    (away / "part").mkdir(parents=True)
    folder.mkdir()
    head = {
        "live": 1,
        "time": 1.0,
        "pid": 1,
        "host": "h",
        "name": "n",
        "data": "d",
        "rounds": 1,
        "splits": [],
        "runs": [["fedavg", 0]],
    }
    (away / "part" / "live.jsonl").write_text(json.dumps(head) + "\n")
    assert WatchState(away).look()["status"] != "waiting"
    (folder / "part").symlink_to(away / "part")
    assert WatchState(folder).look()["status"] == "waiting"
