"""A place in a run where a process waits until something was killed.

The first process that reaches the stage writes its id into the file `reached`, and waits until
there is a file `go`. Nobody waits twice, so that a run that is started again goes through.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

LONGEST = 300.0  # seconds
LOOK = 0.05


class Hold(NamedTuple):
    """Where to wait."""

    marks: Path
    stage: str
    round: int  # 0: any

    @staticmethod
    def of(config: Mapping[str, Any]) -> "Hold":
        return Hold(Path(str(config["marks"])), str(config["stage"]), int(config["round"]))

    def at(self, stage: str, number: int = 0) -> None:
        """This stage of this round is reached."""
        if stage != self.stage or self.round not in (0, number):
            return
        own = self.marks / f"reached-{os.getpid()}"
        own.write_text(str(os.getpid()))
        try:
            os.link(own, self.marks / "reached")  # with its content at once, and only for the first
        except FileExistsError:
            return
        end = time.monotonic() + LONGEST
        while not (self.marks / "go").exists() and time.monotonic() < end:
            time.sleep(LOOK)
