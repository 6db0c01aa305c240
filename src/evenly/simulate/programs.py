"""Compiled programs: kept on disk between processes, and how long compiling took."""

import hashlib
import os
import platform
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from evenly.datasets.files import cache_folder

# Compiled programs are kept in the user's cache folder: the same simulation, or one of the same shape, compiles only once.
#
# JAX's own cache does it. What the user chose for it stays (JAX_COMPILATION_CACHE_DIR, jax.config), and EVENLY_COMPILED=off does
# without. A folder that cannot be written is done without, too.

SWITCH = "EVENLY_COMPILED"
LEAST_SECONDS = 0.5  # that a program took to compile; smaller ones are made anew as quickly as they are read
MOST_BYTES = 2**29  # of all programs; the oldest go first
CHOSEN = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def folder() -> Path:
    """For this kind of machine: compiled code uses what its processor can do, and a home folder may be shared with others."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    features = next((line for line in lines if line.startswith(("flags", "Features"))), lines[0] if lines else "")
    kind = f"{platform.system()} {platform.machine()} {features} {metadata.version('jaxlib')}"
    return cache_folder() / "compiled" / hashlib.blake2b(kind.encode(), digest_size=6).hexdigest()


@cache
def keep() -> None:
    """From here on JAX keeps what it compiles, unless somebody decided otherwise."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false") or jax.config.values["jax_compilation_cache_dir"]:
        return
    try:
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # not ours to write, or nobody's home
        return
    if not os.access(place, os.W_OK | os.X_OK):
        return
    tidy(place.parent, MOST_BYTES)
    jax.config.update("jax_compilation_cache_dir", str(place))
    if CHOSEN not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    compilation_cache.reset_cache()  # JAX looks once, at its first program, whether there is a folder


def tidy(place: Path, most: int) -> None:
    """Remove the oldest files under a folder until the others are not more than so many bytes."""
    with suppress(OSError):  # others may tidy at the same time
        files = sorted(((path.stat().st_mtime, path.stat().st_size, path) for path in place.rglob("*") if path.is_file()), reverse=True)
        total = 0
        for _, size, path in files:
            total += size
            if total > most:
                path.unlink(missing_ok=True)


# How long something was being compiled, as JAX tells it: tracing, lowering and XLA's own work.

_spans: list[tuple[float, float]] = []  # from and until when, by time.monotonic


@cache
def listen() -> None:
    """From here on JAX tells what it compiles."""
    jax.monitoring.register_event_duration_secs_listener(_note)


def _note(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event.startswith("/jax/core/compile/"):
        now = time.monotonic()
        _spans.append((now - duration_secs, now))


def spent(since: float) -> float:
    """Seconds since then in which something was compiled; what was compiled side by side, or inside another, counts once."""
    total, reached = 0.0, since
    for start, end in sorted(_spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
