"""What differs between versions of Flower, from 1.26 on.

Flower moved its interfaces from gRPC to HTTP one after the other. Until 1.34 a SuperLink listens on
three ports: for commands (control), for SuperNodes (fleet) and for ServerApps (runtime). From 1.35
ServerApps use HTTP, from 1.37 commands, and from 1.40 everything is on one port.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

Version = tuple[int, int]
SECRET: Version = (1, 29)  # a secret between the SuperLink and the process that starts ServerApps
RUNTIME_TLS: Version = (1, 30)  # TLS between them
RUNTIME_HTTP: Version = (1, 35)
CONTROL_HTTP: Version = (1, 37)  # the certificate of the SuperLink serves the runtime, too
NO_PLUGIN_TYPE: Version = (1, 38)
FLEET_HTTP: Version = (1, 40)


def installed() -> Version:
    """The version of Flower in this environment."""
    major, minor = metadata.version("flwr").split(".")[:2]
    return int(major), int(minor)


class Addresses(NamedTuple):
    """Where a SuperLink listens. Newer versions of Flower need fewer ports."""

    host: str
    control: int
    fleet: int
    runtime: int

    def of(self, port: int) -> str:
        return f"{self.host}:{port}"


def ports_needed(version: Version) -> int:
    """The number of ports of a SuperLink."""
    if version >= FLEET_HTTP:
        return 1
    return 2 if version >= CONTROL_HTTP else 3


def addresses(host: str, ports: Iterable[int], version: Version) -> Addresses:
    """The ports of a SuperLink, by their use."""
    first, *rest = ports
    if version >= FLEET_HTTP:
        return Addresses(host, first, first, first)
    if version >= CONTROL_HTTP:
        return Addresses(host, first, rest[0], first)
    return Addresses(host, first, rest[0], rest[1])


def superlink(
    own: Addresses, ca: Path, certificate: Path, key: Path, secret: Path, *, version: Version
) -> list[str]:
    """The command of a SuperLink with TLS that admits registered SuperNodes only."""
    files = {"ca-certfile": ca, "certfile": certificate, "keyfile": key}
    command = ["flower-superlink", *(f"--ssl-{what}={path}" for what, path in files.items())]
    if RUNTIME_TLS <= version < CONTROL_HTTP:
        command += [f"--appio-ssl-{what}={path}" for what, path in files.items()]
    command += _secret(secret, version)
    if version < CONTROL_HTTP:
        command.append(f"--control-api-address={own.of(own.control)}")
    if version < FLEET_HTTP:
        command.append(f"--fleet-api-address={own.of(own.fleet)}")
    if version < RUNTIME_HTTP:
        command.append(f"--serverappio-api-address={own.of(own.runtime)}")
    else:
        command += [f"--host={own.host}", f"--port={own.runtime}"]
    return [*command, "--isolation=process", "--enable-supernode-auth"]


def superexec(own: Addresses, ca: Path, secret: Path, *, version: Version) -> list[str]:
    """The command of the process that starts ServerApps.

    Before 1.30 Flower has no TLS between this process and its SuperLink, so both must run on one
    machine.
    """
    trusted = f"--root-certificates={ca}" if version >= RUNTIME_TLS else "--insecure"
    option = "runtime" if version >= CONTROL_HTTP else "appio"
    command = ["flower-superexec", trusted, f"--{option}-api-address={own.of(own.runtime)}"]
    if version < NO_PLUGIN_TYPE:
        command.append("--plugin-type=serverapp")
    return [*command, *_secret(secret, version)]


def node_address(host: str | None, port: int, version: Version) -> list[str]:
    """Where a SuperNode listens for its own ClientApps; without a host, where Flower likes."""
    if version >= RUNTIME_HTTP:
        return [*([] if host is None else [f"--host={host}"]), f"--port={port}"]
    return [f"--clientappio-api-address={host or '127.0.0.1'}:{port}"]


# what Flower takes for a string on a command line, before it reads it as TOML
STRING = re.compile(r"'[^']*'|\"[^\"]*\"")


def config_text(config: Mapping[str, Any]) -> str:
    """A node config or a run config as Flower reads it from a command line. Raises a ValueError for
    text that no string of Flower can hold.

    >>> print(config_text({"partition-id": 0, "client": 'St. "Mary"', "table": "/Zürich/a.csv"}))
    partition-id=0 client='St. "Mary"' table="/Zürich/a.csv"
    """
    return " ".join(f"{name}={_config_value(name, value)}" for name, value in config.items())


def _config_value(name: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return text
    if '"' in value:  # TOML's literal strings: Flower knows no escaped quotation marks
        text = f"'{value}'"
    if not _reads_back(text, value):
        raise ValueError(
            f"{name} must be text without control characters and with only one kind of quotation"
            f" marks, because Flower cannot read other text, got {value!r}. Rename it."
        )
    return text


def _reads_back(text: str, value: str) -> bool:
    try:
        text.encode()
        return bool(STRING.fullmatch(text)) and tomllib.loads(f"value = {text}")["value"] == value
    except ValueError:  # of TOML, or of half a character
        return False


def answers_http(version: Version) -> bool:
    """Whether a SuperLink answers `/health` on the port of the runtime."""
    return version >= RUNTIME_HTTP


class Registered(NamedTuple):
    """What a SuperLink knows of a SuperNode by its registered key."""

    key: str  # digest of the public key
    name: str  # "" if it was registered without one


def registered(grid: Any) -> dict[int, Registered]:
    """What the SuperLink knows of connected nodes, by node id; older versions tell nothing."""
    ask = getattr(grid, "get_nodes", None)
    return {
        int(node.node_id): Registered(hashlib.sha256(key).hexdigest(), getattr(node, "name", ""))
        for node in (ask() if ask else ())
        if (key := getattr(node, "public_key", b""))
    }


def _secret(path: Path, version: Version) -> list[str]:
    return [f"--superexec-auth-secret-file={path}"] if version >= SECRET else []
