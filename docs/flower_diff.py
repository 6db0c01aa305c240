"""What changes when a Flower app goes from FedAvg to q-FedAvg, as a diff of the two versions in examples/flower_one_metric."""

import difflib
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "flower_one_metric"
FILES = ("server_app.py", "client_app.py")


def part() -> str:
    return f"```diff\n{''.join(of(name) for name in FILES)}```"


def of(name: str) -> str:
    """One file's diff, with two lines around every change."""
    before, after = ((FOLDER / version / name).read_text().splitlines(keepends=True) for version in ("fedavg", "q_fedavg"))
    lines = difflib.unified_diff(before, after, f"fedavg/{name}", f"q_fedavg/{name}", n=2)
    # Places in the file say nothing to a reader.
    return "".join("@@\n" if line.startswith("@@") else line for line in lines)
