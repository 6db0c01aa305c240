"""Run one federation with several versions of Flower, and compare their models.

    python -m tools.versions [VERSION ...] [--write]

Each version has an environment in `.versions`, because versions pin each other's dependencies: the
package with its core dependencies and Flower's, without PyTorch. `--write` stores what was found in
benchmarks/results/flower_versions.json, which docs/flower.md shows. The exit status is 1 if a model
is further than 1e-6 from the simulator's, or from that of another version.
"""

import argparse
import datetime
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # scripts, not a package

import machine

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".versions"
RESULT = ROOT / "benchmarks" / "results" / "flower_versions.json"
# One version for each way in which Flower's processes are started (`evenly.flower.versions`).
VERSIONS = ("1.26.1", "1.29.0", "1.34.0", "1.36.0", "1.37.0", "1.39.0", "1.41.0")
LARGEST = 1e-6  # difference between two models
ENDING = 600.0  # seconds that a federation may take


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.versions", description="Run one federation with versions of Flower."
    )
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    found = [run(version) for version in options.versions]
    pairs = itertools.combinations([one.pop("model") for one in found], 2)
    apart = max((distance(*pair) for pair in pairs), default=0.0)
    print(f"largest difference between versions: {apart:.1e}")
    if options.write:
        told = {"command": "make versions", "date": datetime.date.today().isoformat()}
        told |= {"machine": machine.description(), "between": apart, "versions": found}
        RESULT.write_text(json.dumps(told, indent=1) + "\n")
    return int(max(apart, *(one["away"] for one in found)) > LARGEST)


def distance(one: list[float], other: list[float]) -> float:
    """The largest difference between two numbers of two models."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def run(version: str) -> dict[str, Any]:
    """What the federation prints with a version of Flower."""
    python = environment(version) / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="flwr-") as folder:
        command = [str(python), "-m", "tests.flower.one_federation", folder]
        own = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            command, cwd=ROOT, env=own, stdout=subprocess.PIPE, text=True, timeout=ENDING
        )
    if done.returncode:
        raise SystemExit(f"The federation with flwr {version} failed.")
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"flwr {version}: {found['away']:.1e} from the simulator, {found['seconds']:g} s")
    return found


def environment(version: str) -> Path:
    """The environment of a version, made if it is not there or if what it needs has changed. That
    of constraints.txt is installed already.
    """
    if version == metadata.version("flwr"):
        return Path(sys.prefix)
    folder, needs = ENVIRONMENTS / f"flwr-{version}", pinned()
    stamp = folder / "constraints.txt"
    if stamp.exists() and stamp.read_text() == needs:
        return folder
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    install(folder, f"flwr=={version}")
    own = {line.partition("==")[0].lower() for line in installed(folder)}
    rest = [line for line in needs.splitlines() if line.partition("==")[0].lower() not in own]
    constraints = folder / "rest.txt"
    constraints.write_text("\n".join(rest) + "\n")
    install(folder, "--constraint", str(constraints), "--editable", ".[flower]", f"flwr=={version}")
    stamp.write_text(needs)
    return folder


def pinned() -> str:
    """Pinned versions of all packages but Flower's own."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("flwr")) + "\n"


def installed(folder: Path) -> list[str]:
    """The packages of an environment, each with its version."""
    command = [*pip(folder), "list", "--format=freeze"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def install(folder: Path, *words: str) -> None:
    command = [*pip(folder), "install", "--quiet", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stderr}\n{shlex.join(command)} failed.")


def pip(folder: Path) -> list[str]:
    return [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]


if __name__ == "__main__":
    sys.exit(main())
