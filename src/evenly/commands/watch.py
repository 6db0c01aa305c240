"""`evenly watch`: follow a running experiment in the browser."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from evenly.mistakes import sentences


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of an experiment that runs, has run or will run.")],
    port: Annotated[int, typer.Option(help="Port on this machine; 0: any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Follow a running experiment on a page of this machine. It shows progress, time left and every method's figures so far."""
    with sentences():
        from evenly.watch import Watch

        try:
            server = Watch(folder, port)
        except OSError as error:
            raise ValueError(f"Port {port} cannot be used: {error.strerror}. Choose another --port, or 0 for any that is free.") from None
        console = Console(soft_wrap=True)
        console.print(f"Following {folder} at {server.url}\nCtrl-C ends it; the experiment goes on.", highlight=False, markup=False)
        try:
            if browser:
                import webbrowser

                webbrowser.open(server.url)
            server.serve()
        except KeyboardInterrupt:
            console.print("\nEnded.")
        finally:
            server.close()
