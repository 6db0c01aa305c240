"""Virtual environments of peers: pinned packages in a folder of their own, so that none of them
meets evenly's.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / ".envs"


class NotInstalledError(Exception):
    """An environment could not be made; the message says why."""


def python_with(name: str, pins: Sequence[str], folder: Path = FOLDER) -> Path:
    """The interpreter of an environment that holds exactly these packages; made on first use, and
    again when the pins change.
    """
    home = folder / name
    python, stamp, wanted = home / "bin" / "python", home / "pins.txt", "\n".join(pins)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {', '.join(pins)} into {home}", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(home)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins])
    stamp.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
    except (subprocess.SubprocessError, OSError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise NotInstalledError(said[-1] if said else "no message") from None
