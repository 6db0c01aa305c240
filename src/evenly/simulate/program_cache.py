"""The cache of compiled programs in the user's cache folder, and the time that compiling takes.

A simulation of the same shape is compiled only once. The cache is JAX's own. The user's settings
for it take precedence (JAX_COMPILATION_CACHE_DIR, jax.config). EVENLY_COMPILED=off turns it off. A
folder that cannot be written is not used.
"""

import hashlib
import os
import platform
import time
import warnings
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from evenly.datasets.files import cache_folder

SWITCH = "EVENLY_COMPILED"
# of compilation, from which on a program is cached; smaller ones compile as quickly as they are
# read
LEAST_SECONDS = 0.5
MOST_BYTES = 2**29  # of all programs; the oldest are removed first
UNREADABLE = "Error reading persistent compilation cache entry"  # how a warning of JAX begins
LEAST_SETTING = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def cache_path() -> Path:
    """The cache folder for this kind of machine.

    Compiled code depends on the features of the processor, and several machines may share a home
    folder.
    """
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    features = next(
        (line for line in lines if line.startswith(("flags", "Features"))),
        lines[0] if lines else "",
    )
    kind = f"{platform.system()} {platform.machine()} {features} {metadata.version('jaxlib')}"
    return cache_folder() / "compiled" / hashlib.blake2b(kind.encode(), digest_size=6).hexdigest()


@cache
def enable_cache() -> None:
    """Cache compiled programs from now on, unless the user decided otherwise.

    JAX writes an entry in place. Another process that reads it at that moment finds a part of it,
    warns and compiles the program itself, which is what it should do: the warning is not shown.
    """
    warnings.filterwarnings("ignore", UNREADABLE, UserWarning)
    if (
        os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false")
        or jax.config.values["jax_compilation_cache_dir"]
    ):
        return
    try:
        path = cache_path()
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no permission, or no home folder
        return
    if not os.access(path, os.W_OK | os.X_OK):
        return
    shrink_cache(path.parent, MOST_BYTES)
    jax.config.update("jax_compilation_cache_dir", str(path))
    if LEAST_SETTING not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    compilation_cache.reset_cache()  # JAX looks for a folder only once, at its first program


def shrink_cache(folder: Path, most: int) -> None:
    """Remove the oldest files under a folder until the others have at most this many bytes."""
    with suppress(OSError):  # other processes may do the same at the same time
        files = sorted(
            (
                (path.stat().st_mtime, path.stat().st_size, path)
                for path in folder.rglob("*")
                if path.is_file()
            ),
            reverse=True,
        )
        total = 0
        for _, size, path in files:
            total += size
            if total > most:
                path.unlink(missing_ok=True)


# The time that compiling took, as JAX reports it: tracing, lowering and XLA.

_spans: list[tuple[float, float]] = []  # start and end, by time.monotonic


@cache
def record_compile_times() -> None:
    """Record from now on when JAX compiles."""
    jax.monitoring.register_event_duration_secs_listener(_note)


def _note(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event.startswith("/jax/core/compile/"):
        now = time.monotonic()
        _spans.append((now - duration_secs, now))


def compile_seconds(since: float) -> float:
    """Seconds since a time in which something was compiled. Compilations that overlap
    count once.
    """
    total, reached = 0.0, since
    for start, end in sorted(_spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
