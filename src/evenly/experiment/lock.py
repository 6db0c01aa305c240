"""One process at a time works in a folder of results."""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evenly.experiment.store import LOCK

WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}  # some file systems of clusters have none: nobody can be refused there


@contextmanager
def held(folder: Path, other: str = "--out") -> Iterator[None]:
    """Keep the folder for this process; whoever else wants it is refused with a sentence, and told to choose an `other`.

    The kernel lets go of the lock when the process ends, however it ends, so a lock file that a killed process left behind
    is no obstacle. A folder that was made only for the lock does not stay.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    file = _taken(folder, other)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # while it is held: nobody can be waiting for a file that is gone
        os.close(file)
        with suppress(OSError):  # from the first that is not empty on
            for path in made:
                path.rmdir()


def _taken(folder: Path, other: str) -> int:
    path = folder / LOCK
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # whoever made an empty parent has just removed it
            continue
        except FileExistsError:
            raise ValueError(f"The output {str(folder)!r} must be a folder, but it is a file. Choose another {other}.") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                holder = os.read(file, 200).decode(errors="replace").strip() or "another process"
                os.close(file)
                if not isinstance(error, BlockingIOError):
                    raise
                raise ValueError(
                    f"{holder} is working in the folder {str(folder)!r}. Wait until it is done, or choose another {other}."
                ) from None
        if _same_file(file, path):
            break
        os.close(file)  # its holder removed it between our opening and locking it
    os.ftruncate(file, 0)
    os.write(file, f"Process {os.getpid()} on {socket.gethostname()}".encode())
    return file


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
