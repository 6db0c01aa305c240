"""The commands that start Flower's processes have the options that its versions know."""

from pathlib import Path

import pytest
from flwr.common.config import parse_config_args
from hypothesis import given
from hypothesis import strategies as st

from evenly.flower import versions
from evenly.flower.versions import config_text

ODD_NAMES = (
    'St. "Mary"',
    "St. Mary's",
    "Zürich",
    "ward 🏥",
    "a\\b",
    "two\nlines",
    "a=b c",
    "",
    "#1",
)
CA, CERTIFICATE, KEY, SECRET = (Path(name) for name in ("ca", "server", "key", "secret"))


def options_of(command: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in command[1:]}


def commands(version: tuple[int, int]) -> tuple[list[str], list[str]]:
    ports = [7001, 7002, 7003][: versions.ports_needed(version)]
    own = versions.addresses("127.0.0.1", ports, version)
    link = versions.superlink(own, CA, CERTIFICATE, KEY, SECRET, version=version)
    return link, versions.superexec(own, CA, SECRET, version=version)


@pytest.mark.parametrize(
    ("version", "ports"), [((1, 26), 3), ((1, 36), 3), ((1, 37), 2), ((1, 39), 2), ((1, 40), 1)]
)
def test_newer_versions_need_fewer_ports(version: tuple[int, int], ports: int):
    assert versions.ports_needed(version) == ports


def test_the_oldest_has_no_tls_and_no_secret_between_link_and_server_app():
    link, server = commands((1, 26))
    assert "--insecure" in server
    assert "--appio-api-address=127.0.0.1:7003" in server
    assert "--plugin-type=serverapp" in server
    assert "--serverappio-api-address=127.0.0.1:7003" in link
    assert {"--control-api-address", "--fleet-api-address", "--ssl-certfile"} <= options_of(link)
    assert not any("secret" in word or "appio-ssl" in word for word in [*link, *server])


@pytest.mark.parametrize("version", [(1, 30), (1, 34), (1, 35), (1, 36)])
def test_the_runtime_has_a_certificate_of_its_own_until_1_36(version: tuple[int, int]):
    link, server = commands(version)
    assert "--appio-ssl-certfile=server" in link
    assert "--root-certificates=ca" in server
    assert ("--port=7003" in link) == (version >= (1, 35))


def test_the_newest_listens_on_one_port():
    link, server = commands((1, 42))
    assert options_of(link) == {
        "--ssl-ca-certfile", "--ssl-certfile", "--ssl-keyfile", "--superexec-auth-secret-file",
        "--host", "--port", "--isolation", "--enable-supernode-auth",
    }  # fmt: skip
    assert "--runtime-api-address=127.0.0.1:7001" in server


def test_a_node_listens_for_its_own_apps():
    assert versions.node_address("127.0.0.1", 7, (1, 34)) == [
        "--clientappio-api-address=127.0.0.1:7"
    ]
    assert versions.node_address("127.0.0.1", 7, (1, 35)) == ["--host=127.0.0.1", "--port=7"]
    assert versions.node_address(None, 7, (1, 42)) == ["--port=7"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_flower_reads_what_a_node_and_a_run_are_told(name: str):
    told = {
        "partition-id": 3,
        "client": name,
        "share": 0.5,
        "fast": True,
        "table": f"/{name}/x.csv",
    }
    assert parse_config_args([config_text(told)]) == told
    assert parse_config_args([config_text({k: v}) for k, v in told.items()]) == told


@given(st.text() | st.text(alphabet="\"'\\ =\n\ta#🏥\x7f"))
def test_flower_reads_any_text_or_it_is_refused_with_its_name(text: str):
    try:
        told = config_text({"client": text, "partition-id": 0})
    except ValueError as error:
        refused = f"cannot read other text, got {text!r}. Rename it."
        if refused not in str(error) or (text.isprintable() and not {"'", '"'} <= set(text)):
            raise
        return
    assert parse_config_args([told]) == {"client": text, "partition-id": 0}
