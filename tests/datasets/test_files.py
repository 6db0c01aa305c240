"""Files are located, verified and downloaded, and every failure has its message."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenly.datasets import files
from evenly.datasets.files import (
    Content,
    DataError,
    DataFile,
    MissingData,
    check,
    checked_files,
    data_folder,
    fetch,
    locate,
)

GOOD = b"age,income\n39,<=50K\n" * 100


def sha(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def data_file(*urls: str, content: bytes = GOOD, **settings) -> DataFile:
    return DataFile(
        path="toy/toy.csv",
        what="toy rows",
        contents=(Content(sha(content), len(content)),),
        urls=urls,
        **settings,
    )


def put(folder: Path, content: bytes, name: str = "toy/toy.csv") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A web server on this machine that serves one folder; /cut.csv promises more than it sends."""
    root = tmp_path_factory.mktemp("served")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(root), **kwargs)

        def do_GET(self) -> None:
            if self.path != "/cut.csv":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Length", str(len(GOOD)))
            self.end_headers()
            self.wfile.write(GOOD[:500])
            return None

        def log_message(self, format: str, *args) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}", root
        finally:
            running.shutdown()
            thread.join(timeout=10)


def test_the_folder_is_the_users_choice(monkeypatch):
    monkeypatch.setenv("EVENLY_DATA", "~/mine")
    assert data_folder() == Path.home() / "mine"


@pytest.mark.parametrize(
    "platform, variables, expected",
    [
        ("linux", {}, ".cache/evenly"),
        ("linux", {"XDG_CACHE_HOME": "/elsewhere"}, "/elsewhere/evenly"),
        ("darwin", {"XDG_CACHE_HOME": "/elsewhere"}, "Library/Caches/evenly"),
        ("win32", {}, "AppData/Local/evenly/Cache"),
    ],
)
def test_without_a_choice_it_is_the_cache_of_the_platform(
    monkeypatch, platform, variables, expected
):
    for name in ("EVENLY_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(files.sys, "platform", platform)
    assert data_folder() == Path.home() / expected


def test_a_missing_file_says_which_what_to_run_from_where_and_where_to(folder):
    with pytest.raises(MissingData) as error:
        locate(data_file("https://example.org/toy.csv"))
    assert (
        str(error.value)
        == f"toy/toy.csv (toy rows) is not in {folder}. Run `evenly data fetch toy`, or download"
        f" https://example.org/toy.csv yourself and save it as {folder / 'toy' / 'toy.csv'}."
    )


def test_a_missing_file_that_cannot_be_fetched_says_how_to_make_it(folder):
    with pytest.raises(
        MissingData,
        match=r"It cannot be fetched: run the script\. Save it as .*toy.csv, or set EVENLY_DATA",
    ):
        locate(data_file(by_hand="run the script."))


def test_a_good_file_passes(folder):
    path = put(folder, GOOD)
    assert check(data_file()) == path


def test_a_file_that_is_cut_off_names_both_sizes(folder):
    put(folder, GOOD[:-7])
    with pytest.raises(
        DataError,
        match=r"expected 2000 bytes, found 1993\. It may be cut off, changed or another version",
    ):
        check(data_file())


def test_a_changed_file_names_both_checksums(folder):
    bad = GOOD.replace(b"39", b"38", 1)
    put(folder, bad)
    with pytest.raises(DataError, match=f"expected checksum {sha(GOOD)}, found {sha(bad)}"):
        check(data_file())


def test_original_and_repacked_contents_are_both_valid(folder):
    repacked = GOOD[:100]
    file = DataFile(
        path="toy/toy.csv",
        what="toy rows",
        contents=(Content(sha(GOOD), len(GOOD)), Content(sha(repacked), len(repacked))),
    )
    for content in (GOOD, repacked):
        put(folder, content)
        check(file)
    put(folder, GOOD[:101])
    with pytest.raises(DataError, match="expected 100 or 2000 bytes, found 101"):
        check(file)


def test_md5_where_the_publisher_gives_only_that(folder):
    put(folder, GOOD)
    check(
        DataFile(
            path="toy/toy.csv",
            what="toy",
            contents=(Content(f"md5:{hashlib.md5(GOOD).hexdigest()}"),),
        )
    )
    with pytest.raises(DataError, match="expected checksum md5:00, found md5:"):
        check(DataFile(path="toy/toy.csv", what="toy", contents=(Content("md5:00"),)))


def test_the_first_complete_layout_is_used(folder):
    a, b, c = (DataFile(path=f"toy/{name}", what=name) for name in "abc")
    put(folder, GOOD, "toy/a")
    put(folder, GOOD, "toy/c")
    layout, paths = checked_files(((a, b), (c,)))
    assert layout == (c,)
    assert paths == [folder / "toy/c"]


def test_without_a_complete_layout_the_one_to_fetch_is_named(folder):
    unpacked = DataFile(path="toy/a.bin", what="unpacked", by_hand="unpack it.")
    with pytest.raises(MissingData, match=r"toy/toy.csv .* Run `evenly data fetch toy`"):
        checked_files(((unpacked,), (data_file("https://example.org/toy.csv"),)))


def test_fetch_from_a_file_address(folder, tmp_path):
    source = put(tmp_path / "source", GOOD)
    steps: list[tuple[int, int | None]] = []
    path = fetch(data_file(source.as_uri()), lambda done, total: steps.append((done, total)))
    assert path.read_bytes() == GOOD
    assert steps == [(2000, 2000)]
    assert sorted(p.name for p in (folder / "toy").iterdir()) == ["toy.csv"]


def test_fetch_over_http_and_by_the_second_address(folder, server):
    base, root = server
    (root / "toy.csv").write_bytes(GOOD)
    assert fetch(data_file(f"{base}/gone.csv", f"{base}/toy.csv")).read_bytes() == GOOD


def test_what_is_there_already_is_checked_and_not_fetched(folder):
    put(folder, GOOD)
    fetch(data_file("http://127.0.0.1:9/never"))
    put(folder, GOOD[:-1])
    with pytest.raises(DataError, match="delete it and get it again"):
        fetch(data_file("http://127.0.0.1:9/never"))


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("gone.csv", "HTTP Error 404"),
        ("cut.csv", "expected 2000 bytes, found 500"),
        ("long.csv", "longer than the expected 2000 bytes"),
        ("bad.csv", "expected checksum"),
    ],
)
def test_a_failed_fetch_says_why_and_leaves_nothing(folder, server, name, sentence):
    base, root = server
    (root / "long.csv").write_bytes(GOOD + b"x")
    (root / "bad.csv").write_bytes(GOOD.replace(b"39", b"38"))
    with pytest.raises(DataError) as error:
        fetch(data_file(f"{base}/{name}"))
    assert sentence in str(error.value)
    assert f"{base}/{name}: " in str(error.value)
    assert f"save it as {folder / 'toy' / 'toy.csv'}" in str(error.value)
    assert [p for p in folder.rglob("*") if p.is_file()] == []


def test_an_unreachable_server_is_a_sentence(folder):
    with pytest.raises(
        DataError, match=r"toy/toy.csv could not be fetched\. http://127.0.0.1:9/toy.csv: .*refused"
    ):
        fetch(data_file("http://127.0.0.1:9/toy.csv"))


def test_what_has_no_checksum_is_not_fetched(folder):
    with pytest.raises(MissingData):
        fetch(DataFile(path="toy/toy.csv", what="toy", by_hand="make it."))
