"""The user's mistakes and the machine's limits, in one sentence and with exit code 2."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console


@contextmanager
def sentences() -> Iterator[None]:
    """Around the body of a command: ValueError and OSError become one line on stderr."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        _stop(f"A folder is needed at {str(error.filename)!r}, but there is a file. Choose another place.")
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _stop(f"{error.strerror}{where}. Nothing already written was lost." if error.strerror else str(error))
    except ValueError as error:
        _stop(str(error))
    except MemoryError:
        _stop("There is not enough memory for this. Choose fewer clients, rows, seeds or methods, or a smaller model.")


def _stop(sentence: str) -> None:
    Console(stderr=True).print(f"error: {sentence}", style="red", soft_wrap=True, highlight=False, markup=False)
    raise typer.Exit(2) from None
