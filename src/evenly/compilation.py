"""How XLA is asked to compile: flags that it reads only once, and loops of small steps that become one function.

On a CPU XLA runs a program as a list of small pieces of work. Where a loop's step takes a microsecond, starting its dozen pieces takes
longer than doing them. XLA can compile a loop as one function instead, but only does so for tiny ones unless told otherwise, and not
where the loop calls a library. JAX is imported inside functions: the command line must start quickly.
"""

import os

LOOPS = "xla_cpu_small_while_loop_byte_threshold"
MOST_BYTES = 10**9  # that a step of such a loop may touch, by XLA's count, in which reading a few rows is reading the table


def set_flags() -> None:
    """Add to XLA_FLAGS that loops become functions, unless the user chose such options. Of no effect once JAX has used a device."""
    given = os.environ.get("XLA_FLAGS", "").strip()
    names_a_file = bool(given) and not given.startswith("-")  # which XLA reads instead
    if "xla_backend_extra_options" not in given and not names_a_file:
        os.environ["XLA_FLAGS"] = f"{given} --xla_backend_extra_options={LOOPS}={MOST_BYTES}".strip()
