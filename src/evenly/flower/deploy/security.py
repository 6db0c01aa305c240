"""Certificates, keys and private files of a federation."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from evenly.records import require
from evenly.validation import shortened

# Files that only their owner may read, and that never replace another.

ONLY_OWNER = 0o600


def write_secret(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read. An existing file is never overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_existing(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, ONLY_OWNER), "wb") as file:
        file.write(content)
    return path


def refuse_existing(*paths: Path) -> None:
    """Raise if one of these files exists."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise ValueError(
                f"{path} must not exist yet: keys and certificates are never overwritten. Move it,"
                " or choose another path."
            )


# TLS: a certificate authority of one's own and a certificate for the SuperLink, signed by it.
#
# The authority's certificate (`ca.pem`) goes to every client, which trusts the SuperLink because of
# it. `server.pem` and `server.key` stay with the SuperLink; `ca.key` is needed only to sign the
# next server certificate and is best kept away from the network.

LOOPBACK = ("localhost", "127.0.0.1", "::1")
AUTHORITY_DAYS = 3650
SERVER_DAYS = 397  # what browsers and other clients accept at most
SLACK = datetime.timedelta(hours=1)  # clocks of clients may be behind


class Certificates(NamedTuple):
    """Paths of the files that a SuperLink is started with."""

    ca: Path
    certificate: Path
    key: Path


class _Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(
    folder: Path,
    hosts: Sequence[str] = LOOPBACK,
    *,
    days: int = SERVER_DAYS,
    keep_authority: bool = True,
) -> Certificates:
    """Write a certificate for a SuperLink that is reached under these names and addresses.

    An authority that is in the folder already signs it; else a new one is made, and its key kept
    unless `keep_authority` is False.
    """
    require(
        bool(hosts),
        "A certificate must name at least one host: the name or address under which clients reach"
        " the SuperLink.",
    )
    require(days >= 1, f"A certificate must be valid for at least 1 day, got {days}.")
    require(
        days <= AUTHORITY_DAYS,
        f"A certificate must be valid for at most {AUTHORITY_DAYS:,} days, as its authority is, got"
        f" {shortened(days)}.",
    )
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    refuse_existing(made.certificate, made.key)
    names = [_name(host) for host in hosts]
    authority = _authority(folder, made.ca, keep_authority)
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _builder(_subject("evenly SuperLink"), authority.certificate.subject, key, days)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA384())
    )
    write_secret(made.key, _private(key))
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _authority(folder: Path, ca: Path, keep: bool) -> _Authority:
    """The authority in this folder, or a new one."""
    path = folder / "ca.key"
    if ca.exists():
        require(
            path.exists(),
            f"{ca} is there but {path} is not, so nothing can be signed with it. Bring the key, or"
            " use another folder.",
        )
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(
                f"{path} must hold an elliptic-curve key, got a {type(key).__name__}. Use another"
                " folder."
            )
        return _Authority(x509.load_pem_x509_certificate(ca.read_bytes()), key)
    refuse_existing(path)
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _subject("evenly certificate authority")
    signs = {"key_cert_sign": True, "crl_sign": True}
    others = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
    )
    usage = x509.KeyUsage(
        **signs, **dict.fromkeys(others, False), encipher_only=False, decipher_only=False
    )
    certificate = (
        _builder(subject, subject, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    if keep:
        write_secret(path, _private(key))
    folder.mkdir(parents=True, exist_ok=True)
    ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return _Authority(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(host: str) -> x509.GeneralName:
    """An address or a DNS name; neither has a port or a scheme."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        plain = host.isascii() and all(part.replace("-", "").isalnum() for part in host.split("."))
        require(
            plain,
            "A host is a name such as fl.example.org or an address such as 192.0.2.7, without port"
            f" or https://, got {host!r}.",
        )
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


# Keys by which the SuperLink knows its SuperNodes: elliptic curve P-384, in the format of OpenSSH,
# as Flower reads them.


class NodeKey(NamedTuple):
    """The private half stays with the client; the public half is registered with the SuperLink."""

    private: Path
    public: Path


def key_at(path: Path) -> NodeKey:
    """The key at `path`, or a new one if it is not there whole."""
    found = NodeKey(path, path.with_name(f"{path.name}.pub"))
    if all(part.exists() for part in found):
        return found
    for part in found:
        part.unlink(missing_ok=True)
    return make_key(path)


def make_key(path: Path) -> NodeKey:
    """Write a new key to `path` (only its owner can read it) and its public half to `path`.pub."""
    made = NodeKey(path, path.with_name(f"{path.name}.pub"))
    refuse_existing(*made)
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    write_secret(made.private, secret)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    made.public.write_bytes(public + b"\n")
    return made
