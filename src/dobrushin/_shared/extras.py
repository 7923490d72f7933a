"""Optional libraries: imported where they are used, missed by name."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str) -> Any:
    """Import a module of an extra, or say what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs {module.split('.')[0]}, which is not installed: pip install 'dobrushin[{extra}]'"
        ) from error
