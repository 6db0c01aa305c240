"""Keys by which the SuperLink knows its SuperNodes: elliptic curve P-384, in the format of OpenSSH, as Flower reads them."""

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from evenly.flower.deploy.private_files import refuse_existing, write_secret


class NodeKey(NamedTuple):
    """The private half stays with the client; the public half is registered with the SuperLink."""

    private: Path
    public: Path


def make_key(path: Path) -> NodeKey:
    """Write a new key to `path` (only its owner can read it) and its public half to `path`.pub."""
    made = NodeKey(path, path.with_name(f"{path.name}.pub"))
    refuse_existing(*made)
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    write_secret(made.private, secret)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    made.public.write_bytes(public + b"\n")
    return made
