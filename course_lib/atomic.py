"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> bool:
    """Replace the file's content in one step; False, and no write, where it is the same already. Makes its folder.

    Text is UTF-8. An interruption at any moment leaves the old file or the new one, never half of one.
    """
    if isinstance(content, str):
        content = content.encode("utf-8")
    if path.exists() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mode = path.stat().st_mode if path.exists() else new_file_mode()
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def new_file_mode() -> int:
    """The permissions that a new file gets by the user's umask. Files made under a temporary name have fewer."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
