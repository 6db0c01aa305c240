"""What every test shares: a quiet JAX, one tiny federation, and simulations that are made once and
read often.

Compiling is what tests pay for. Programs are compiled without most optimisations and kept in a
cache that the workers share and that outlives the test run (`.jax_cache`, or wherever
JAX_COMPILATION_CACHE_DIR points), and `simulated` remembers every run it made.
"""

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# the workers use all cores: threads of PyTorch would only wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
# whatever a test does to JAX's settings, nothing is written into the user's home
os.environ["EVENLY_COMPILED"] = "off"
# thousands of tests compute with a few hundred small programs
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# XLA ends a process that names a flag it does not know
if metadata.version("jaxlib").startswith("0.10."):
    # Programs compile in half the time without the newer emitters.
    os.environ["XLA_FLAGS"] = (
        f"--xla_cpu_use_fusion_emitters=false {os.environ.get('XLA_FLAGS', '')}"
    )

import jax
import pytest
from hypothesis import HealthCheck, Phase, settings

from evenly.data.federation import Federation
from evenly.models import Softmax
from evenly.types import Trace
from evenly.xla_flags import set_flags
from tests import federations
from tests.simulations import Simulated

# tracing makes millions of short-lived objects: looking for cycles took a tenth of the time
gc.set_threshold(200_000, 20, 50)
set_flags()  # before anything is computed: tests train as everybody does

quiet = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("local", max_examples=40, **quiet)
settings.register_profile("ci", max_examples=40, derandomize=True, **quiet)
# pytest --hypothesis-profile thorough
# tools/mutate.py: a failure is enough, the smallest example is not needed
settings.register_profile(
    "mutants", max_examples=40, phases=(Phase.explicit, Phase.generate), database=None, **quiet
)
settings.register_profile("thorough", max_examples=600, **quiet)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "local")
)


MOST_MAPS = 40_000
MOST_BYTES = 2 * 2**30
LONG = (
    "flower/test_deploy", "test_cluster", "test_methods", "test_commands_in_docs", "test_networks",
    "flower/test_every", "test_killed", "test_hostile", "test_cli", "test_frl_and",
    "test_streaming", "test_tutorials", "test_tuning", "flower/", "browser/", "simulate/",
    "test_ballots",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long begin first, so that at the end no worker is left alone with one. The
    tests of a mutant keep their order: the closest come first.
    """
    if os.environ.get("HYPOTHESIS_PROFILE") == "mutants":
        return
    items.sort(
        key=lambda item: next(
            (i for i, name in enumerate(LONG) if name in item.nodeid.partition("::")[0]), len(LONG)
        )
    )


@pytest.fixture(scope="module", autouse=True)
def few_programs() -> Iterator[None]:
    """Let go of compiled programs before the process reaches the kernel's limit on memory maps
    (65,530 on most machines) or takes the memory of the other workers.
    """
    yield
    maps, memory = Path("/proc/self/maps"), Path("/proc/self/statm")
    if maps.exists() and (
        maps.read_bytes().count(b"\n") > MOST_MAPS
        or int(memory.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > MOST_BYTES
    ):
        jax.clear_caches()
        with suppress(AttributeError):  # not every C library has it
            ctypes.CDLL(None).malloc_trim(0)  # else what is freed stays with the process


@pytest.fixture(scope="session")
def tiny() -> Federation:
    """Six clients of 4 to 40 rows, three classes, two groups; the smallest has no
    validation rows.
    """
    return federations.tiny()


@pytest.fixture(scope="session")
def task(tiny: Federation) -> Softmax:
    return Softmax(features=tiny.x.shape[1], classes=len(tiny.labels))


@pytest.fixture(scope="session")
def simulated(tiny: Federation, task: Softmax) -> Simulated:
    """Runs of softmax regression on the tiny federation, each made only once."""
    return Simulated(task, tiny)


@pytest.fixture(scope="session")
def some_trace(simulated: Simulated) -> Trace:
    return simulated("q-fedavg(q=1)", rounds=12)


@pytest.fixture
def registries() -> Iterator[None]:
    """What a test registers is forgotten afterwards."""
    from evenly import metrics, plugins, registry
    from evenly.algorithms import METHODS
    from evenly.datasets import DATASETS

    known = (
        METHODS,
        DATASETS,
        metrics.METRICS,
        metrics.GROUP_METRICS,
        metrics.EQUITY_METRICS,
        metrics.RUN_METRICS,
    )
    before, own, loaded = (
        [dict(entries) for entries in known],
        set(registry._own),
        dict(plugins._loaded),
    )
    yield
    plugins._loaded.clear()
    plugins._loaded.update(loaded)
    for entries, kept in zip(known, before, strict=True):
        entries.clear()
        entries.update(kept)  # type: ignore[arg-type]
    registry._own.clear()
    registry._own.update(own)
