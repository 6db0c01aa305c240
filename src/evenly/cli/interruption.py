"""Ctrl-C and full disks: results stay in the folder, and the last line says how to resume."""

import errno
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from evenly.cli.terminal import plain_console

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
ECHO_SECONDS = 0.5  # a parent process may forward the Ctrl-C that this process has already received


@contextmanager
def working_in(folder: Path, same_command_out: Path | None = None) -> Iterator[None]:
    """Lock a folder, remove leftovers of a killed process, and print how to resume if this one is
    interrupted.

    `evenly resume` continues the folder. Where a command has more to do than this folder's run,
    `same_command_out` is the `--out` with which the same command continues.
    """
    from evenly.experiment.folder import folder_lock, sweep

    remedy = (
        f"the same command with --out {same_command_out}"
        if same_command_out
        else f"`evenly resume {shlex.quote(str(folder))}`"
    )
    with folder_lock(folder), prompt_stop():
        sweep(folder)
        try:
            yield
        except KeyboardInterrupt:
            plain_console(stderr=True).print(
                f"Stopped. Finished parts are stored in {folder}; {remedy} resumes."
            )
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno not in FULL:
                raise
            stored = (
                f"Finished parts are stored in {folder}; free some space, and {remedy} resumes."
            )
            raise OSError(f"{error.strerror}: {error.filename}. {stored}") from None


@contextmanager
def prompt_stop() -> Iterator[None]:
    """Answer the first Ctrl-C at once, although training stops later. A second one ends the process
    without waiting.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return

    first = 0.0

    def end(number: int, frame: Any) -> None:
        if time.monotonic() - first < ECHO_SECONDS:
            return
        if sys.stderr.isatty():
            # a progress bar hides the cursor
            print("\033[?25h", end="", file=sys.stderr, flush=True)
        # sys.exit would wait for the training threads; files are complete, and the lock ends with
        # the process
        os._exit(130)

    def stop(number: int, frame: Any) -> None:
        nonlocal first
        first = time.monotonic()
        signal.signal(signal.SIGINT, end)
        with suppress(RuntimeError):  # the signal came in the middle of another print
            print("Stopping as soon as the training so far is stored.", file=sys.stderr)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
