"""The way to a Ray cluster: one that is there, or one on this machine that lives as long as it is needed."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

# Ray listens on the network and calls home unless it is told not to. The strange name is Ray's own: it decides whether
# a new cluster may have several machines, and where it may not, everything stays on the loopback address.
ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
ALWAYS = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # how Ray will behave by default; until it does, it warns at every start
SHORT = Path("/tmp")  # Ray's sockets lie under its folder, and their paths may have about a hundred characters


@contextmanager
def connected(address: str | None, cores: int | None = None) -> Iterator[Any]:
    """The module `ray`, connected: as this process is already, to an address (or RAY_ADDRESS), or to a cluster of its own."""
    alone = address is None and "RAY_ADDRESS" not in os.environ
    with _environment({**ALWAYS, **(ALONE | {"RAY_AUTH_TOKEN": _token()} if alone else {})}):
        ray = _import()
        if ray.is_initialized():
            yield ray
        elif alone:
            with _temporary() as folder:
                ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir=folder)
                try:
                    yield ray
                finally:
                    ray.shutdown()
        else:
            try:
                ray.init(address, log_to_driver=False, logging_level="error")
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ValueError(
                    f"There is no Ray cluster at {address or os.environ['RAY_ADDRESS']!r} ({str(error).splitlines()[0]}). Start one "
                    "with `ray start --head`, or leave --address out to use this machine."
                ) from None
            try:
                yield ray
            finally:
                ray.shutdown()


def _import() -> Any:
    try:
        import ray
        import ray.exceptions
        import ray.util
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ValueError("--on ray needs the package ray, which is not installed. Install it with: pip install 'evenly[ray]'") from None
    return ray


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


@contextmanager
def _temporary() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="evenly-", dir=SHORT if SHORT.is_dir() else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # Ray's last processes may still be writing their logs
