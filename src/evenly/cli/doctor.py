"""`evenly doctor`: check the installation: versions, devices, folders, data sets, and that a small
training gives the right result.
"""

import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import evenly
from evenly.cli.terminal import plain_console, styled_console, titled_table

if TYPE_CHECKING:
    from rich.table import Table


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check the installation: versions, devices, folders, data sets. Trains a small model; the exit
    code is 1 if something is wrong.
    """
    facts = examine()
    if as_json:
        print(json.dumps({"schema": 1, **facts}))
    else:
        _show(facts)
    if facts["problems"]:
        raise typer.Exit(1)


def _show(facts: dict[str, Any]) -> None:
    console, plain = styled_console(), plain_console()
    for title, lines in {
        **_packages(facts),
        **(_machine(facts) if "system" in facts else {}),
    }.items():
        console.print(f"[bold]{title}[/bold]")
        for line in lines:
            plain.print(f"  {line}")
    if "data" in facts:
        console.print(_data_table(facts["data"]))
    for warning in facts["warnings"]:
        plain.print(f"warning: {warning}", style="yellow")
    for problem in facts["problems"]:
        plain.print(f"problem: {problem}", style="red")
    if not facts["problems"]:
        console.print("Everything that training needs is here.")


def _packages(facts: dict[str, Any]) -> dict[str, list[str]]:
    installed = [
        f"{one['name']} {one['version']}: {one['enables']}"
        for one in facts["optional"]
        if one["version"]
    ]
    missing = [
        f"{one['name']} is not here: {one['install']} for {one['enables']}"
        for one in facts["optional"]
        if not one["version"]
    ]
    required = ", ".join(
        f"{name} {version or 'not installed'}" for name, version in facts["versions"].items()
    )
    tested = ", ".join(f"{name} {_range(versions)}" for name, versions in facts["tested"].items())
    return {
        "versions": [required],
        f"versions that evenly {evenly.__version__} was tested with": [tested],
        "optional packages": installed + missing,
    }


def _machine(facts: dict[str, Any]) -> dict[str, list[str]]:
    system, cache, check = facts["system"], facts["compile_cache"], facts["self_check"]
    folder = (
        f"{cache['folder']} ({_size(cache['bytes'])})"
        if cache["folder"]
        else "none (EVENLY_COMPILED is off, or there is no folder)"
    )
    length = (
        check["error"]
        or f"length of the model {check['found']:.6f}, expected {check['expected']:.6f}"
    )
    return {
        "machine": [f"{system['platform']}, {system['cores']} cores, {_size(system['memory'])}"],
        "devices": [
            f"{one['platform']}: {one['kind']}, {_size(one['memory'])}" for one in facts["devices"]
        ],
        "compiled programs kept between runs": [folder],
        "self-check, five rounds of q-FedAvg": [
            f"{'passed' if check['passed'] else 'FAILED'}: {length}"
        ],
    }


def _data_table(data: dict[str, Any]) -> "Table":
    missing = "" if data["exists"] else " (not there yet)"
    table = titled_table(
        f"data sets; files are looked for in {data['folder']}{missing}",
        "name",
        "files",
        "to get them",
    )
    for one in data["sets"]:
        table.add_row(one["name"], one["files"], one["get"] or "")
    return table


def _size(number: int | None) -> str:
    """Return a number of bytes in words. Some devices do not report their memory."""
    if number is None:
        return "memory not known"
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.1f} MiB"


# The facts that `evenly doctor` collects, and how it judges them

# Minor versions that this version of evenly was tested with, from the oldest to the newest: those
# of constraints.txt, every version of Python that the tests install, JAX 0.11 on GPUs and with
# PyTorch 2.11 on CPUs, and the versions of Flower that `make versions` runs.
TESTED: dict[str, tuple[str, ...]] = {
    "python": ("3.11", "3.12", "3.13"),
    "jax": ("0.10", "0.11"), "jaxlib": ("0.10", "0.11"), "numpy": ("2.4",), "scipy": ("1.17",),
    "optax": ("0.2",), "equinox": ("0.13",), "pandas": ("3.1",), "pyarrow": ("26.0",),
    "altair": ("6.3",), "vl-convert-python": ("1.9",), "jinja2": ("3.1",), "markupsafe": ("3.0",),
    "typer": ("0.20",), "rich": ("14.3",), "pydantic": ("2.14",), "optuna": ("5.0",),
    "flwr": ("1.26", "1.29", "1.34", "1.36", "1.37", "1.39", "1.41"),
    "torch": ("2.11", "2.13"), "ray": ("2.55",), "tensorboardX": ("2.6",),
    "mlflow-skinny": ("3.17",), "wandb": ("0.31",), "zensical": ("0.0",),
}  # fmt: skip
OPTIONAL = {  # distribution: what it enables, and how to install it
    "flwr": ("federations of real clients with Flower", "pip install 'evenly[flower]'"),
    "torch": ("PyTorch modules in the simulator and in clients", "pip install 'evenly[torch]'"),
    "ray": ("spreading an experiment over machines", "pip install 'evenly[ray]'"),
    "tensorboardX": ("logging to TensorBoard", "pip install 'evenly[logging]'"),
    "mlflow-skinny": ("logging to MLflow", "pip install 'evenly[logging]'"),
    "wandb": ("logging to Weights & Biases", "pip install 'evenly[logging]'"),
    "zensical": ("building the documentation", "pip install 'evenly[docs]'"),
}
REQUIRED = tuple(name for name in TESTED if name != "python" and name not in OPTIONAL)

# Euclidean norm of the model after five rounds of q-FedAvg, computed by a NumPy implementation in
# float64 (a test repeats it).
KNOWN_LENGTH = 0.1943368831644106
TOLERANCE = 1e-3  # GPUs multiply with 10 bits by default
SELF_CHECK = "q-fedavg(q=1, learning_rate=0.03)+weighted(clients=4)"


class Checkup(NamedTuple):
    """Problems, which prevent training, and warnings."""

    problems: list[str]
    warnings: list[str]


def version_of(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    from importlib import metadata  # takes a tenth of the time of `evenly --help`

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    return {
        "evenly": evenly.__version__,
        "python": platform.python_version(),
        **{name: version_of(name) for name in REQUIRED},
    }


def optional_packages() -> list[dict[str, Any]]:
    return [
        {"name": name, "version": version_of(name), "enables": enables, "install": install}
        for name, (enables, install) in OPTIONAL.items()
    ]


def devices() -> list[dict[str, Any]]:
    """Return JAX's devices, with their memory if they report it."""
    import jax

    def memory(device: Any) -> int | None:
        return (
            _host_memory()
            if device.platform == "cpu"
            else (device.memory_stats() or {}).get("bytes_limit")
        )

    return [
        {"platform": device.platform, "kind": device.device_kind, "memory": memory(device)}
        for device in jax.devices()
    ]


def compile_cache() -> dict[str, Any]:
    """Return the folder in which JAX stores compiled programs between runs, if any, and
    its size.
    """
    import jax

    from evenly.simulate.program_cache import enable_cache

    enable_cache()
    folder = jax.config.values["jax_compilation_cache_dir"]
    files = [path for path in Path(folder).glob("*") if path.is_file()] if folder else []
    return {"folder": folder or None, "bytes": sum(path.stat().st_size for path in files)}


def data_sets() -> dict[str, Any]:
    """Return the data folder and, for every data set, whether its files are here or how to get
    them.
    """
    from evenly.datasets import DATASETS, data_folder

    commands = {"fetch": "evenly data fetch", "by hand": "evenly data describe"}
    states = {name: card.state for name, card in DATASETS.items()}
    sets = [
        {"name": n, "files": state, "get": f"{commands[state]} {n}" if state in commands else None}
        for n, state in states.items()
    ]
    return {"folder": str(data_folder()), "exists": data_folder().is_dir(), "sets": sets}


def self_check() -> dict[str, Any]:
    """Train five rounds on a small federation and compare the norm of the model with the
    known one.
    """
    import jax
    import numpy as np

    try:
        task = evenly.models.Softmax(features=60, classes=10)
        (trace,) = evenly.train(
            task, evenly.synthetic(clients=8), [evenly.algorithm(SELF_CHECK)], rounds=5
        )
    except Exception as error:  # a broken installation may raise anything
        return {
            "expected": KNOWN_LENGTH,
            "found": None,
            "passed": False,
            "error": f"{type(error).__name__}: {error}".splitlines()[0],
        }
    length = float(
        np.sqrt(
            sum(
                np.sum(np.square(np.asarray(leaf, np.float64)))
                for leaf in jax.tree.leaves(trace.model)
            )
        )
    )
    return {
        "expected": KNOWN_LENGTH,
        "found": length,
        "passed": abs(length / KNOWN_LENGTH - 1) < TOLERANCE,
        "error": None,
    }


def findings(facts: dict[str, Any], environment: Mapping[str, str] = os.environ) -> Checkup:
    """Judge the facts, one sentence each."""
    versions, check = facts["versions"], facts["self_check"]
    problems = [
        f"{name} is not installed. Run `pip install --upgrade evenly`."
        for name in REQUIRED
        if versions[name] is None
    ]
    warnings: list[str] = []
    problems += _jax_problems(versions["jax"], versions["jaxlib"])
    optional = {one["name"]: one["version"] for one in facts["optional"]}
    warnings += _untested({**versions, **optional})
    if facts["nvidia"] and all(device["platform"] == "cpu" for device in facts["devices"]):
        warnings.append(
            "There is an NVIDIA GPU, but JAX uses the CPU only. Run `pip install 'jax[cuda13]'` to"
            " use it."
        )
    if environment.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "0").lower() not in ("", "0", "false"):
        warnings.append(
            "JAX_DISABLE_MOST_OPTIMIZATIONS is set: programs compile quickly and run slowly. Unset"
            " it to train."
        )
    if environment.get("EVENLY_DATA") and not facts["data"]["exists"]:
        warnings.append(f"EVENLY_DATA is {environment['EVENLY_DATA']}, which is not a folder.")
    if not check["passed"]:
        result = check["error"] or f"its length was {check['found']:.6g}"
        problems.append(
            f"The self-check failed: the model's length must be {check['expected']:.6g}, but"
            f" {result}. Please report it."
        )
    return Checkup(problems, warnings)


def _jax_problems(jax: str | None, jaxlib: str | None) -> list[str]:
    """Return what is wrong with JAX: too old for evenly, or not of the same version as its
    library.
    """
    problems = []
    if jax and _minor(jax) < _minor(TESTED["jax"][0]):
        problems.append(
            f"jax {jax} is too old: evenly needs {' or '.join(TESTED['jax'])}. Run `pip install"
            " --upgrade jax`."
        )
    if jax and jaxlib and _minor(jax) != _minor(jaxlib):
        problems.append(
            f"jax {jax} and jaxlib {jaxlib} do not belong together. Run `pip install --upgrade jax"
            " jaxlib`."
        )
    return problems


def _untested(versions: Mapping[str, str | None]) -> list[str]:
    """Return one warning about packages that are newer than the tested versions, and one about
    older ones. A JAX that is too old is a problem, not a warning.
    """
    newer, older = [], []
    for name, tested in TESTED.items():
        version = versions.get(name)
        words = f"{name} {version} (tested: {_range(tested)})"
        if version and _minor(version) > _minor(tested[-1]):
            newer.append(words)
        elif version and _minor(version) < _minor(tested[0]) and "jax" not in name:
            older.append(words)
    advice = "If something fails, install the tested versions."
    return [
        f"{kind} than evenly {evenly.__version__} was tested with: {', '.join(found)}. {advice}"
        for kind, found in (("Newer", newer), ("Older", older))
        if found
    ]


def _range(tested: tuple[str, ...]) -> str:
    return tested[0] if len(tested) == 1 else f"{tested[0]} to {tested[-1]}"


def _minor(version: str) -> tuple[int, ...]:
    """Return major and minor version as numbers."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def jax_failure() -> str | None:
    """Return why JAX does not start, if so. Then nothing else can be examined."""
    try:
        import jax

        jax.devices()
    except Exception as error:  # a broken installation may raise anything
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def examine() -> dict[str, Any]:
    """Return all facts, problems and warnings, as --json prints them."""
    reason = jax_failure()
    if reason:
        problem = (
            f"JAX does not work ({reason}). Run `pip install --upgrade --force-reinstall jax"
            " jaxlib`."
        )
        return {
            "versions": versions(),
            "tested": TESTED,
            "optional": optional_packages(),
            "problems": [problem],
            "warnings": [],
        }
    facts: dict[str, Any] = {
        "versions": versions(),
        "tested": TESTED,
        "optional": optional_packages(),
        "system": {
            "platform": platform.platform(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "memory": _host_memory(),
        },
        "devices": devices(),
        "nvidia": sys.platform == "linux" and Path("/dev/nvidia0").exists(),
        "compile_cache": compile_cache(),
        "data": data_sets(),
        "self_check": self_check(),
    }
    return {**facts, **findings(facts)._asdict()}


def _host_memory() -> int | None:
    """Return the bytes of memory, if the system reports them (Linux and macOS do)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
