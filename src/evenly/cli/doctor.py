"""`evenly doctor`: check the installation: versions, devices, folders, data sets, and whether a small training works."""

import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

import evenly
from evenly.cli.running import sentences

# `evenly doctor`: whether everything is here that training needs, and what to do where it is not.

Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON on stdout.")]


def doctor(as_json: Json = False) -> None:
    """Check the installation: versions, devices, folders, data sets. Trains a small model; the exit code is 1 if something is wrong."""
    with sentences():
        facts = look()
        if as_json:
            print(json.dumps({"schema": 1, **facts}))
        else:
            _show(facts, Console())
    if facts["problems"]:
        raise typer.Exit(1)


def _show(facts: dict[str, Any], console: Console) -> None:
    for title, lines in {**_packages(facts), **(_machine(facts) if "system" in facts else {})}.items():
        console.print(f"[bold]{title}[/bold]")
        for line in lines:
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    if "data" in facts:
        console.print(_data_table(facts["data"]))
    for warning in facts["warnings"]:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for problem in facts["problems"]:
        console.print(f"problem: {problem}", style="red", highlight=False, markup=False, soft_wrap=True)
    if not facts["problems"]:
        console.print("Everything that training needs is here.")


def _packages(facts: dict[str, Any]) -> dict[str, list[str]]:
    here = [f"{one['name']} {one['version']}: {one['enables']}" for one in facts["optional"] if one["version"]]
    missing = [f"{one['name']} is not here: {one['install']} for {one['enables']}" for one in facts["optional"] if not one["version"]]
    required = ", ".join(f"{name} {version or 'not installed'}" for name, version in facts["versions"].items())
    return {"versions": [required], "optional packages": here + missing}


def _machine(facts: dict[str, Any]) -> dict[str, list[str]]:
    system, cache, check = facts["system"], facts["compile_cache"], facts["self_check"]
    kept = f"{cache['folder']} ({_size(cache['bytes'])})" if cache["folder"] else "none (EVENLY_COMPILED is off, or there is no folder)"
    length = check["error"] or f"length of the model {check['found']:.6f}, expected {check['expected']:.6f}"
    return {
        "machine": [f"{system['platform']}, {system['cores']} cores, {_size(system['memory'])}"],
        "devices": [f"{one['platform']}: {one['kind']}, {_size(one['memory'])}" for one in facts["devices"]],
        "compiled programs kept between runs": [kept],
        "self-check, five rounds of q-FedAvg": [f"{'passed' if check['passed'] else 'FAILED'}: {length}"],
    }


def _data_table(data: dict[str, Any]) -> Table:
    missing = "" if data["exists"] else " (not there yet)"
    table = Table(title=f"data sets; files are looked for in {data['folder']}{missing}", title_justify="left")
    for column in ("name", "files", "to get them"):
        table.add_column(column, overflow="fold")
    for one in data["sets"]:
        table.add_row(one["name"], one["files"], one["get"] or "")
    return table


def _size(number: int | None) -> str:
    """Bytes in words; devices that do not say have none."""
    if number is None:
        return "memory not known"
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.1f} MiB"


# What `evenly doctor` looks at: versions, devices, folders, data, and whether a small training ends where it should.

REQUIRED = (
    "jax",
    "jaxlib",
    "numpy",
    "optax",
    "equinox",
    "pandas",
    "pyarrow",
    "altair",
    "vl-convert-python",
    "typer",
    "rich",
    "pydantic",
    "optuna",
)
OPTIONAL = {  # distribution -> what it enables, and how to get it
    "flwr": ("federations of real clients with Flower", "pip install 'evenly[flower]'"),
    "torch": ("clients that train with PyTorch", "pip install 'evenly[torch]'"),
    "ray": ("spreading an experiment over machines", "pip install 'evenly[ray]'"),
    "tensorboardX": ("logging to TensorBoard", "pip install 'evenly[logging]'"),
    "mlflow-skinny": ("logging to MLflow", "pip install 'evenly[logging]'"),
    "wandb": ("logging to Weights & Biases", "pip install 'evenly[logging]'"),
    "mkdocs-material": ("building the documentation", "pip install 'evenly[docs]'"),
}
SUPPORTED = ("0.10", "0.11")  # the minors of JAX that the tests run on

# The length of the model after five rounds of q-FedAvg, from a transcription of the paper in NumPy float64 (a test repeats it).
KNOWN_LENGTH = 0.1943368831644106
TOLERANCE = 1e-3  # GPUs multiply with 10 bits by default
SELF_CHECK = "q-fedavg(q=1, learning_rate=0.03)+weighted(clients=4)"


class Checkup(NamedTuple):
    """What does not work, and what may surprise."""

    problems: list[str]
    warnings: list[str]


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution, if it is there."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    return {"evenly": evenly.__version__, "python": platform.python_version(), **{name: version_of(name) for name in REQUIRED}}


def optional_packages() -> list[dict[str, Any]]:
    found = [(name, version_of(name), *rest) for name, rest in OPTIONAL.items()]
    return [{"name": name, "version": version, "enables": enables, "install": how} for name, version, enables, how in found]


def devices() -> list[dict[str, Any]]:
    """What JAX computes on, with the memory it may use where the device says."""
    import jax

    found = []
    for device in jax.devices():
        memory = (device.memory_stats() or {}).get("bytes_limit") if device.platform != "cpu" else _host_memory()
        found.append({"platform": device.platform, "kind": device.device_kind, "memory": memory})
    return found


def compile_cache() -> dict[str, Any]:
    """Where JAX keeps compiled programs between runs, if it does."""
    import jax

    from evenly.simulate import program

    program.keep()
    folder = jax.config.values["jax_compilation_cache_dir"]
    files = [path for path in Path(folder).glob("*") if path.is_file()] if folder else []
    return {"folder": folder or None, "bytes": sum(path.stat().st_size for path in files)}


def data_sets() -> dict[str, Any]:
    """The data folder, and for every data set whether its files are here or how to get them."""
    from evenly.cli.data import state_of
    from evenly.datasets import DATASETS, data_folder

    ways = {"fetch": "evenly data fetch {}", "by hand": "evenly data describe {}"}
    states = {name: state_of(card) for name, card in DATASETS.items()}
    sets = [{"name": name, "files": state, "get": ways[state].format(name) if state in ways else None} for name, state in states.items()]
    return {"folder": str(data_folder()), "exists": data_folder().is_dir(), "sets": sets}


def self_check() -> dict[str, Any]:
    """Train five rounds on a small federation; the length of the model must be the known one."""
    import jax
    import numpy as np

    try:
        task = evenly.models.Softmax(features=60, classes=10)
        (trace,) = evenly.train(task, evenly.synthetic(clients=8), [evenly.algorithm(SELF_CHECK)], rounds=5)
    except Exception as error:  # whatever a broken installation raises is the finding
        return {"expected": KNOWN_LENGTH, "found": None, "passed": False, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
    found = float(np.sqrt(sum(np.sum(np.square(np.asarray(leaf, np.float64))) for leaf in jax.tree.leaves(trace.model))))
    return {"expected": KNOWN_LENGTH, "found": found, "passed": abs(found / KNOWN_LENGTH - 1) < TOLERANCE, "error": None}


def findings(facts: dict[str, Any], environment: dict[str, str] | None = None) -> Checkup:
    """Judge the facts, one sentence each; pure, so that every combination can be tried."""
    environment = dict(os.environ) if environment is None else environment
    problems, warnings = [], []
    found = facts["versions"]
    for name in REQUIRED:
        if found[name] is None:
            problems.append(f"{name} is not installed. Run `pip install --upgrade evenly`.")
    jax, jaxlib = minor(found["jax"]), minor(found["jaxlib"])
    if jax and _as_numbers(jax) < _as_numbers(SUPPORTED[0]):
        problems.append(f"jax {found['jax']} is too old: evenly needs {' or '.join(SUPPORTED)}. Run `pip install --upgrade jax`.")
    elif jax and jax not in SUPPORTED:
        warnings.append(f"jax {found['jax']} is newer than evenly was tested with ({' and '.join(SUPPORTED)}).")
    if jax and jaxlib and jax != jaxlib:
        problems.append(f"jax {found['jax']} and jaxlib {found['jaxlib']} do not belong together. Run `pip install --upgrade jax jaxlib`.")
    if facts["nvidia"] and all(device["platform"] == "cpu" for device in facts["devices"]):
        warnings.append("There is an NVIDIA GPU, but JAX uses the CPU only. Run `pip install 'jax[cuda13]'` to use it.")
    if environment.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "0").lower() not in ("", "0", "false"):
        warnings.append("JAX_DISABLE_MOST_OPTIMIZATIONS is set: programs compile quickly and run slowly. Unset it to train.")
    if environment.get("EVENLY_DATA") and not facts["data"]["exists"]:
        warnings.append(f"EVENLY_DATA is {environment['EVENLY_DATA']}, which is not a folder.")
    check = facts["self_check"]
    if not check["passed"]:
        seen = check["error"] or f"its length was {check['found']:.6g}"
        problems.append(f"The self-check failed: the model's length must be {check['expected']:.6g}, but {seen}. Please report it.")
    return Checkup(problems, warnings)


def minor(version: str | None) -> str | None:
    return ".".join(version.split(".")[:2]) if version else None


def broken() -> str | None:
    """Why JAX cannot be used at all, if so: then nothing else can be looked at."""
    try:
        import jax

        jax.devices()
    except Exception as error:  # whatever a broken installation raises is the finding
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def look() -> dict[str, Any]:
    """All facts, as they are printed with --json."""
    reason = broken()
    if reason:
        problem = f"JAX does not work ({reason}). Run `pip install --upgrade --force-reinstall jax jaxlib`."
        return {"versions": versions(), "optional": optional_packages(), "problems": [problem], "warnings": []}
    facts: dict[str, Any] = {
        "versions": versions(),
        "optional": optional_packages(),
        "system": {"platform": platform.platform(), "machine": platform.machine(), "cores": os.cpu_count(), "memory": _host_memory()},
        "devices": devices(),
        "nvidia": sys.platform == "linux" and Path("/dev/nvidia0").exists(),
        "compile_cache": compile_cache(),
        "data": data_sets(),
        "self_check": self_check(),
    }
    return {**facts, **findings(facts)._asdict()}


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _host_memory() -> int | None:
    """Bytes of memory, where the system says (Linux and macOS do)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
