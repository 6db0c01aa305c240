"""`evenly flower egress` and `evenly flower node`: commands for the operator of a site.

Both are about what leaves the site. The first prints it; the second starts a SuperNode only with a
policy that can be read and with a list of those whose apps are trusted.
"""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from evenly.cli.terminal import plain_console


def egress(
    path: Annotated[
        Path,
        typer.Argument(help="An egress log, a policy.toml, or the folder of one.", metavar="PATH"),
    ] = Path(),
    refused: Annotated[
        bool, typer.Option("--refused", help="Print only requests that were refused.")
    ] = False,
) -> None:
    """Print what left a site, and what it refused."""
    from evenly.flower.clients.egress import LEFT, read_egress, sentences

    log = _log_of(path)
    entries = read_egress(log)
    console = plain_console()
    for entry in entries:
        if not refused or entry.decision != LEFT:
            console.print("\n".join(sentences(entry)), markup=False, soft_wrap=True)
    left = sum(entry.decision == LEFT for entry in entries)
    console.print(
        f"{len(entries):,} requests: {left:,} answered, {len(entries) - left:,} refused or failed."
        f" The log is unchanged since it was written: {log}",
        markup=False,
        soft_wrap=True,
    )


def _log_of(path: Path) -> Path:
    """The log that a path leads to."""
    from evenly.flower.clients.policy import read_policy

    if path.is_dir():
        sites = sorted(path.glob("sites/*/policy.toml")) or sorted(path.glob("*/policy.toml"))
        path = path / "policy.toml"
        listed = "".join(f"\n  evenly flower egress {shlex.quote(str(s.parent))}" for s in sites)
        _require(
            path.exists() or not sites,
            f"There are {len(sites)} sites, and each has a log of its own. Name one:{listed}",
        )
        _require(
            path.exists(),
            f"There is no policy.toml in {path.parent}, so it is not the folder of a site. Give the"
            " folder of one, such as ward/sites/NAME of an app, or the log itself.",
        )
    return Path(read_policy(path).log) if path.suffix == ".toml" else path


def node(
    *,
    superlink: Annotated[
        str, typer.Option(help="Address of the SuperLink, such as fl.example.org:9092.")
    ],
    ca: Annotated[Path, typer.Option(help="Certificate of the authority that the server uses.")],
    key: Annotated[Path, typer.Option(help="Private key of this site.")],
    policy: Annotated[Path, typer.Option(help="Policy of this site.")],
    trusted_entities: Annotated[
        Path,
        typer.Option(help="YAML file with the public keys of those who may sign apps. Required."),
    ],
    config: Annotated[
        str, typer.Option(help="What the app is told of this site, such as 'client=\"north\"'.")
    ] = "",
    port: Annotated[
        int | None, typer.Option(help="Local port of the SuperNode; by default Flower's own.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the command for a unit, and start nothing.")
    ] = False,
) -> None:
    """Start the SuperNode of a site. It runs only apps that somebody trusted has signed, and
    answers within the site's policy.
    """
    from evenly.flower import versions
    from evenly.flower.deploy.loopback import program

    files = {"--ca": ca, "--key": key, "--trusted-entities": trusted_entities}
    for option, path in files.items():
        _require(path.is_file(), f"{option} must be a file, and {path} is none.")
    _check_trusted(trusted_entities)
    command = [
        program("flower-supernode"),
        "--superlink",
        superlink,
        "--root-certificates",
        str(ca.resolve()),
        "--auth-supernode-private-key",
        str(key.resolve()),
        "--trusted-entities",
        str(trusted_entities.resolve()),
        "--node-config",
        _node_config(config, policy),
        *([] if port is None else versions.node_address(None, port, versions.installed())),
    ]
    if show:
        plain_console().print(shlex.join(command), markup=False, soft_wrap=True)
        return
    os.execv(command[0], command)


def _node_config(config: str, policy: Path) -> str:
    """What the app is told, with the path of a policy that can be read."""
    from evenly.flower import versions
    from evenly.flower.clients.policy import read_policy

    read_policy(policy)
    _require(
        "policy" not in config,
        "Give the policy as --policy, and not in --config, so that it is checked.",
    )
    return f"{config} {versions.config_text({'policy': str(policy.resolve())})}".strip()


def _check_trusted(path: Path) -> None:
    """Refuse a list that trusts nobody: Flower would then run every app."""
    import yaml  # as Flower reads the list

    line = "It needs a line for each person who may sign apps: fpk_...: 'ssh-ed25519 AAAA...'."
    try:
        keys = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        words = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read as YAML: {words}. {line}") from None
    named = isinstance(keys, dict) and bool(keys)
    _require(named, f"{path} names nobody, and Flower runs every app then. {line}")


def _require(holds: bool, words: str) -> None:
    if not holds:  # evenly.records has the same, and imports JAX
        raise ValueError(words)
