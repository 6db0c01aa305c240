import io
import re
import time

from rich.console import Console

from evenly.api.progress import progress_bar


def shown(console: Console) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())  # type: ignore[attr-defined]


def test_only_a_remaining_time_is_called_left():
    """While programs compile, only the time that has passed is known."""
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with progress_bar("training 3 methods on 2 seeds", console) as report:
        time.sleep(0.2)
        assert re.search(r"0/\? rounds \d:\d\d:\d\d so far", shown(console))
        assert "left" not in shown(console)
        for done in (10, 20, 30):
            report(done, 100)
            time.sleep(0.2)
    assert re.search(r"(20|30)/100 rounds \d:\d\d:\d\d left", shown(console))


def test_a_log_gets_no_empty_line():
    console = Console(file=io.StringIO(), width=80)
    with progress_bar("training 3 methods on 2 seeds", console) as report:
        report(10, 100)
    assert shown(console) == ""
