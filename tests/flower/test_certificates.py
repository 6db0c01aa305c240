"""What certificates say, and files that are never replaced."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from evenly.flower.deploy.security import make_certificates, refuse_existing, write_secret

HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_certificate_of_one_day_is_valid_from_an_hour_ago_until_tomorrow(tmp_path: Path):
    now, minute = datetime.datetime.now(datetime.UTC), datetime.timedelta(minutes=1)
    made = make_certificates(tmp_path, days=1)
    for path, days in ((made.certificate, 1), (made.ca, 3650)):
        found = read(path)
        assert abs(found.not_valid_before_utc - (now - HOUR)) < minute
        assert abs(found.not_valid_after_utc - (now + days * DAY)) < minute
    names = (
        read(made.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    )
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_the_authority_signs_servers_and_no_other_authorities(tmp_path: Path):
    made = make_certificates(tmp_path / "new" / "folder")
    of_ca, of_server = (
        read(path).extensions.get_extension_for_class(x509.BasicConstraints).value
        for path in (made.ca, made.certificate)
    )
    assert (of_ca.ca, of_ca.path_length) == (True, 0)
    assert (of_server.ca, of_server.path_length) == (False, None)
    read(made.certificate).verify_directly_issued_by(read(made.ca))
    assert sorted(path.name for path in made.ca.parent.iterdir()) == [
        "ca.key",
        "ca.pem",
        "server.key",
        "server.pem",
    ]


@pytest.mark.parametrize("days", [0, -1])
def test_a_certificate_is_valid_for_a_day_at_least(tmp_path: Path, days: int):
    with pytest.raises(ValueError, match=f"at least 1 day, got {days}"):
        make_certificates(tmp_path, days=days)


def test_a_certificate_does_not_outlive_its_authority(tmp_path: Path):
    with pytest.raises(ValueError, match="at most 3,650 days, as its authority is"):
        make_certificates(tmp_path / "tls", days=99_999_999_999)
    assert not (tmp_path / "tls").exists()


def test_hosts_are_named_and_plain(tmp_path: Path):
    with pytest.raises(ValueError, match="at least one host"):
        make_certificates(tmp_path, [])
    for host in ("fl_example", "bücher.example", "fl..example"):
        with pytest.raises(ValueError, match="without port or https"):
            make_certificates(tmp_path, [host])
    assert not list(tmp_path.iterdir())
    make_certificates(tmp_path, ["fl-2.example.org"])


def test_an_authority_with_a_key_of_another_kind_is_refused(tmp_path: Path):
    made = make_certificates(tmp_path)
    made.certificate.unlink()
    made.key.unlink()
    other = ed25519.Ed25519PrivateKey.generate()
    pem = other.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "ca.key").write_bytes(pem)
    with pytest.raises(ValueError, match="must hold an elliptic-curve key, got a"):
        make_certificates(tmp_path)


def test_a_secret_is_written_once_and_not_through_a_link_to_nothing(tmp_path: Path):
    path = write_secret(tmp_path / "keys" / "one", b"secret")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"secret", 0o600)
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for taken in (path, tmp_path / "link"):
        with pytest.raises(ValueError, match="never overwritten"):
            write_secret(taken, b"other")
    assert path.read_bytes() == b"secret"
    assert not (tmp_path / "nothing").exists()
    refuse_existing(tmp_path / "free")
