"""Write the golden traces anew: `python -m tests.golden.regenerate [method ...]`. Review the
difference before keeping it.
"""

import json
import sys

import tests.conftest  # noqa: F401
from evenly.algorithms import METHODS
from evenly.models import Softmax
from tests import federations
from tests.golden import traces


def main(names: list[str]) -> None:
    federation = federations.tiny()
    task = Softmax(features=federation.x.shape[1], classes=len(federation.labels))
    traces.FOLDER.mkdir(exist_ok=True)
    for name in names or METHODS:
        content = json.dumps(traces.digest(name, task, federation), indent=1)
        # Innermost lists on one line: a diff then shows a round, not a number.
        traces.path(name).write_text(one_line_lists(content) + "\n")
        print(f"wrote {traces.path(name).name}")


def one_line_lists(text: str) -> str:
    import re

    return re.sub(
        r"\[([^\[\]{}]*)\]", lambda m: "[" + ", ".join(m[1].split()).replace(",,", ",") + "]", text
    )


if __name__ == "__main__":
    main(sys.argv[1:])
