"""Optional libraries: imported where they are used, missed by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

# Readers of what can stand for a model, by the library that its class comes from in small letters; and of paths. The
# packages that read models put their readers here when `dobrushin` is imported.
READERS: dict[str, Callable[[Any], Any]] = {}
PATHS = "a path"


def require(module: str, extra: str) -> Any:
    """Import a module of an extra, or say what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This needs {module.split('.')[0]}, which is not installed: pip install 'dobrushin[{extra}]'"
        ) from error
