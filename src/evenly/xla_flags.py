"""XLA flags, which must be set before JAX is imported.

By default XLA compiles only tiny loops as one function on a CPU (see `evenly.simulate.program`).
This module imports nothing, because the command line must start quickly.
"""

import os

LOOPS = "xla_cpu_small_while_loop_byte_threshold"
# that a step of a fused loop may touch. XLA counts the whole table if a step reads a few of its
# rows
MOST_BYTES = 10**9


def set_flags() -> None:
    """Let XLA fuse larger loops by adding to XLA_FLAGS, unless the user set these options. Has no
    effect once JAX has used a device.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    names_a_file = bool(flags) and not flags.startswith("-")  # which XLA reads instead
    if "xla_backend_extra_options" not in flags and not names_a_file:
        os.environ["XLA_FLAGS"] = (
            f"{flags} --xla_backend_extra_options={LOOPS}={MOST_BYTES}".strip()
        )
