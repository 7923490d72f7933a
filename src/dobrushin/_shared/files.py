"""Writing files."""

from __future__ import annotations

import contextlib
import os


def replace_file(name: str, data: bytes) -> None:
    """Replace a file as a whole, or leave what was there; a device or pipe is written to."""
    if os.path.exists(name) and not os.path.isfile(name):  # also a directory, and Python's error for it
        with open(name, "wb") as file:
            file.write(data)
        return
    temporary = f"{name}.{os.urandom(4).hex()}.part"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, name)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
