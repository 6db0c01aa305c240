"""Files that only their owner may read, and that never replace another."""

import os
from pathlib import Path

ONLY_OWNER = 0o600


def write_secret(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read: it never exists with more rights, and nothing is overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_existing(path)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, ONLY_OWNER), "wb") as file:
        file.write(content)
    return path


def refuse_existing(*paths: Path) -> None:
    """Raise where one of these files is there already."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise ValueError(
                f"{path} must not exist yet: keys and certificates are never overwritten. Move it away, or choose another place."
            )
