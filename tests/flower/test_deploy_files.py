"""Certificates, keys and processes of a deployment, without Flower."""

import os
import re
import ssl
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from evenly.flower.deploy import loopback
from evenly.flower.deploy.security import key_at, make_certificates, make_key


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def shake_hands(ca: Path, certificate: Path, key: Path, host: str) -> None:
    """A TLS handshake in memory; raises unless the client trusts the server under this name."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cafile=str(ca))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].version() is not None


def test_a_client_trusts_the_server_because_of_the_authority(tmp_path: Path):
    made = make_certificates(tmp_path, ["fl.example.org", "127.0.0.1"])
    for host in ("fl.example.org", "127.0.0.1"):
        shake_hands(*made, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(*made, "other.example.org")
    stranger = make_certificates(tmp_path / "other", ["fl.example.org"])
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(stranger.ca, made.certificate, made.key, "fl.example.org")


def test_private_keys_are_for_their_owner_only(tmp_path: Path):
    before = os.umask(0)
    try:
        made = make_certificates(tmp_path / "certificates")
        key = make_key(tmp_path / "keys" / "north")
    finally:
        os.umask(before)
    assert (
        mode(made.key) == mode(tmp_path / "certificates" / "ca.key") == mode(key.private) == 0o600
    )


def test_an_authority_whose_key_is_not_kept_cannot_sign_again(tmp_path: Path):
    made = make_certificates(tmp_path, keep_authority=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ca.pem", "server.key", "server.pem"]
    made.certificate.unlink()
    made.key.unlink()
    with pytest.raises(ValueError, match=r"ca\.key is not, so nothing can be signed"):
        make_certificates(tmp_path)


def test_a_certificate_is_renewed_by_the_same_authority(tmp_path: Path):
    made = make_certificates(tmp_path, ["fl.example.org"])
    authority, first = (
        made.ca.read_bytes(),
        x509.load_pem_x509_certificate(made.certificate.read_bytes()),
    )
    with pytest.raises(ValueError, match="never overwritten"):
        make_certificates(tmp_path, ["fl.example.org"])
    made.certificate.unlink()
    made.key.unlink()
    again = make_certificates(tmp_path, ["fl.example.org"], days=30)
    second = x509.load_pem_x509_certificate(again.certificate.read_bytes())
    assert again.ca.read_bytes() == authority
    assert first.serial_number != second.serial_number
    assert (
        29 < (second.not_valid_after_utc - second.not_valid_before_utc).total_seconds() / 86400 < 31
    )
    shake_hands(*again, "fl.example.org")


@pytest.mark.parametrize("host", ["https://fl.example.org", "fl.example.org:8000", "", "a b"])
def test_a_host_is_a_name_or_an_address(tmp_path: Path, host: str):
    with pytest.raises(ValueError, match="without port or https"):
        make_certificates(tmp_path, [host])


def test_a_key_is_what_flower_reads(tmp_path: Path):
    key = make_key(tmp_path / "north")
    private = serialization.load_ssh_private_key(key.private.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    public = serialization.load_ssh_public_key(key.public.read_bytes())
    assert public == private.public_key()
    with pytest.raises(ValueError, match="never overwritten"):
        make_key(tmp_path / "north")


def bash(tmp_path: Path, script: str, name: str = "test") -> loopback.Process:
    return loopback.start(name, ["bash", "-c", script], tmp_path / f"{name}.log", os.environ)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody asked for its exit code yet has."""
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()[:1] in ("", "Z")


def test_what_a_process_started_is_stopped_with_it_even_if_it_does_not_listen(tmp_path: Path):
    stubborn = bash(
        tmp_path, "trap '' TERM; (while true; do sleep 0.1; done) & echo pid $!; wait; sleep 60"
    )
    told = re.compile(r"^pid (\d+)$", re.MULTILINE)
    loopback.wait_until(lambda: told.search(stubborn.text()) is not None, stubborn, 10, "a child")
    (child,) = map(int, told.findall(stubborn.text()))
    assert not gone(child)
    began = time.monotonic()
    loopback.stop([stubborn], grace=0.5)
    assert time.monotonic() - began < 5
    assert not stubborn.running
    end = time.monotonic() + 5
    while not gone(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert gone(child)


def test_stopping_what_has_ended_is_no_mistake(tmp_path: Path):
    ended = bash(tmp_path, "exit 3")
    ended.popen.wait(10)
    loopback.stop([ended])
    assert ended.popen.returncode == 3


def test_a_process_that_ends_too_early_says_which_log_to_read(tmp_path: Path):
    early = bash(tmp_path, "echo -e '\\e[91mno such port\\e[0m'; exit 7", "superlink")
    with pytest.raises(
        ValueError,
        match=(
            r"(?s)The superlink ended \(exit code 7\) before answering\. Read .*superlink\.log.*no"
            r" such port"
        ),
    ) as caught:
        loopback.wait_until(lambda: False, early, 10, "answering")
    assert "\x1b" not in str(caught.value)


def test_waiting_has_a_bound(tmp_path: Path):
    slow = bash(tmp_path, "sleep 60")
    try:
        with pytest.raises(ValueError, match=r"within 0\.2 seconds: answering"):
            loopback.wait_until(lambda: False, slow, 0.2, "answering")
    finally:
        loopback.stop([slow])
    assert not slow.running


def test_ports_are_free_and_different():
    ports = loopback.free_ports(20)
    assert len(set(ports)) == 20


def test_a_missing_program_names_the_extra():
    with pytest.raises(ValueError, match=r"evenly\[flower\]"):
        loopback.program("flower-nothing")


def test_a_log_is_read_while_it_is_written(tmp_path: Path):
    writing = bash(tmp_path, "for i in 1 2 3; do echo line $i; sleep 0.1; done")
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.append(writing.text()))
    reader.start()
    reader.join(5)
    writing.popen.wait(10)
    assert writing.text().endswith("line 3\n")
    assert seen


def test_a_log_goes_on_but_only_what_a_process_says_itself_is_its(tmp_path: Path):
    for word in ("first", "second"):
        said = bash(tmp_path, f"echo I am the {word}")
        said.popen.wait(10)
    assert "first" in said.log.read_text()
    assert "first" not in said.text()
    assert said.text().endswith("I am the second\n")


def test_a_client_keeps_its_key_and_half_a_key_is_replaced(tmp_path: Path):
    first = key_at(tmp_path / "keys" / "north")
    public = first.public.read_bytes()
    assert key_at(tmp_path / "keys" / "north") == first
    assert first.public.read_bytes() == public
    first.public.unlink()  # killed while it was made
    assert key_at(tmp_path / "keys" / "north").public.read_bytes() != public
