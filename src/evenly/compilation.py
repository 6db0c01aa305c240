"""How XLA is asked to compile: flags that it reads only once, and loops of small steps that become one function.

On a CPU XLA runs a program as a list of small pieces of work. Where a loop's step takes a microsecond, starting its dozen pieces takes
longer than doing them. XLA can compile a loop as one function instead, but only does so for tiny ones unless told otherwise, and not
where the loop calls a library. JAX is imported inside functions: the command line must start quickly.
"""

import os
from functools import cache
from typing import Any

LOOPS = "xla_cpu_small_while_loop_byte_threshold"
MOST_BYTES = 10**9  # that a step of such a loop may touch, by XLA's count, in which reading a few rows is reading the table
WITHOUT_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}  # for one program: products and sums are compiled, not calls


def set_flags() -> None:
    """Add to XLA_FLAGS that loops become functions, unless the user chose such options. Of no effect once JAX has used a device."""
    given = os.environ.get("XLA_FLAGS", "").strip()
    names_a_file = bool(given) and not given.startswith("-")  # which XLA reads instead
    if "xla_backend_extra_options" not in given and not names_a_file:
        os.environ["XLA_FLAGS"] = f"{given} --xla_backend_extra_options={LOOPS}={MOST_BYTES}".strip()


@cache
def whole_loops() -> bool:
    """Whether XLA compiles loops whole here: on a CPU, where it knows the options and read the flags in time. It is asked."""
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "cpu":
        return False

    def loop(x: jax.Array, times: int) -> jax.Array:
        return jax.lax.fori_loop(0, times, lambda i, y: (y[:, None] * y).sum(1), x)

    try:
        text = jax.jit(loop, compiler_options=WITHOUT_LIBRARY).lower(jnp.ones(512), 2).compile().as_text()
    except jax.errors.JaxRuntimeError:  # an option that this version does not have
        return False
    return "xla_cpu_small_call" in (text or "")


@cache
def graphs() -> dict[str, Any]:
    """The option by which a GPU starts steps of two kernels or more as one graph, and not only those of five; nothing elsewhere, where
    the user chose, or where XLA does not know it."""
    import jax

    name = "xla_gpu_graph_min_graph_size"
    if jax.default_backend() == "cpu" or name in os.environ.get("XLA_FLAGS", ""):
        return {}
    try:
        jax.jit(lambda: 0, compiler_options={name: 2}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return {name: 2}
