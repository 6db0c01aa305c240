"""The way to a Ray cluster: one that is there, or one on this machine that lives as long as it is needed."""

import logging
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Ray listens on the network and calls home unless it is told not to. The strange name is Ray's own: it decides whether
# a new cluster may have several machines, and where it may not, everything stays on the loopback address.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
ALWAYS = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # how Ray will behave by default; until it does, it warns at every start
SHORT = Path("/tmp")  # Ray's sockets lie under its folder, and their paths may have about a hundred characters
REACHED_SECONDS = 5.0
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}

# A cluster is started by a process that has no threads of JAX yet, because starting it forks. It ends when its input does:
# also when this process is killed.
SERVE = """
import logging, os, shutil, sys
import ray
cores = {"num_cpus": int(sys.argv[2])} if sys.argv[2:] else {}
ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, _temp_dir=sys.argv[1], **cores)
print(ray.get_runtime_context().gcs_address, flush=True)
nowhere = os.open(os.devnull, os.O_WRONLY)
os.dup2(nowhere, 1), os.dup2(nowhere, 2)  # nobody reads on
sys.stdin.read()
ray.shutdown()
shutil.rmtree(sys.argv[1], ignore_errors=True)  # Ray's last processes may still be writing their logs
"""


def check_installed() -> None:
    """Without importing it, which would fix its settings."""
    if find_spec("ray") is None:
        raise ValueError("--on ray needs the package ray, which is not installed. Install it with: pip install 'evenly[ray]'")


def check_reachable(address: str | None) -> None:
    """Ray itself would try for minutes before it gives up."""
    given = address or os.environ.get("RAY_ADDRESS") or ""
    host, _, port = given.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # auto, local, or nothing: Ray knows at once
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_SECONDS).close()
    except OSError as error:
        raise ValueError(_unreachable(given, error.strerror or str(error))) from None


def _unreachable(address: str, why: str) -> str:
    return (
        f"There is no Ray cluster at {address} ({why}). Start one there with `ray start --head`, or leave --address out to use this "
        "machine alone."
    )


@contextmanager
def connected(address: str | None, cores: int | None = None) -> Iterator[Any]:
    """The module `ray`, connected: as this process is already, to an address (or RAY_ADDRESS), or to a cluster of its own."""
    alone = address is None and "RAY_ADDRESS" not in os.environ
    early = "ray" in sys.modules and not _token.cache_info().currsize
    with _environment({**ALWAYS, **(ALONE | {"RAY_AUTH_TOKEN": _token()} if alone else {})}):
        import ray
        import ray.exceptions
        import ray.util

        if ray.is_initialized():
            yield ray
        elif alone and early:  # its settings are fixed when it is imported, and without them its cluster would be open to others
            raise ValueError("Ray was imported before evenly could start a cluster of its own. Call ray.init() first; that one is used.")
        elif alone:
            with _cluster_here(cores) as own:
                yield from _joined(ray, own)
        else:
            yield from _joined(ray, address)


def _joined(ray: Any, address: str | None) -> Iterator[Any]:
    try:
        ray.init(address, **QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(_unreachable(address or os.environ["RAY_ADDRESS"], str(error).splitlines()[0])) from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _cluster_here(cores: int | None) -> Iterator[str]:
    """A cluster on this machine, and its address."""
    folder = tempfile.mkdtemp(prefix="evenly-", dir=SHORT if SHORT.is_dir() else None)
    command = [sys.executable, "-c", SERVE, folder, *([] if cores is None else [str(cores)])]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    try:
        # A session of its own: Ctrl-C is for us, and it must not lose the cluster while we still stop its jobs.
        with subprocess.Popen(command, start_new_session=True, **pipes) as server:
            assert server.stdout
            address = server.stdout.readline().strip()
            if not address:
                said = server.communicate()[1].strip().splitlines() or ["no reason was given"]
                raise ValueError(f"A Ray cluster could not be started on this machine: {said[-1]}")
            try:
                yield address
            finally:
                try:
                    server.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _token() -> str:
    """Without it nobody can give this process's clusters work, not even from this machine. Ray reads it only once."""
    return secrets.token_hex(32)


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Set what the user has not set, for as long as it is needed."""
    added = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
