"""How long something was being compiled, as JAX tells it: tracing, lowering and XLA's own work."""

import time
from functools import cache

import jax

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
