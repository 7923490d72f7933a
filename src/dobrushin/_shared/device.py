"""The GPU: finding it, compiling for it, and what to say where there is none. CuPy is imported when it is needed."""

from __future__ import annotations

import functools
import threading
from importlib import resources
from typing import Any

from dobrushin._shared.extras import require

# One thread compiles, the others wait for it.
_LOCK = threading.Lock()


def cupy() -> Any:
    """CuPy, with a GPU that answers."""
    cp = require("cupy", "cuda")
    try:
        count = cp.cuda.runtime.getDeviceCount()
    except Exception as error:  # whatever a broken or missing driver makes of it
        raise _no_device(str(error)) from error
    if not count:
        raise _no_device("none was found")
    return cp


def _no_device(reason: str) -> RuntimeError:
    return RuntimeError(
        "backend='cuda' needs an NVIDIA GPU with its driver, and a CuPy that fits them "
        f"(extra 'cuda': pip install 'dobrushin[cuda]'): {reason}."
    )


@functools.cache
def is_available() -> bool:
    """Whether there is a GPU that can be used."""
    try:
        cupy()
    except (ImportError, RuntimeError):
        return False
    return True


def function(package: str, sources: tuple[str, ...], name: str, *options: str) -> Any:
    """A kernel of some source files of a package, compiled for the current device; CuPy keeps compiled code on disk."""
    cp = cupy()
    with _LOCK:
        return _module(cp, cp.cuda.runtime.getDevice(), package, sources, options).get_function(name)


@functools.cache
def _module(cp: Any, device: int, package: str, sources: tuple[str, ...], options: tuple[str, ...]) -> Any:
    del device  # part of the name of what is kept
    folder = resources.files(package)
    code = "\n".join((folder / source).read_text() for source in sources)
    return cp.RawModule(code=code, options=("-std=c++17", *options))


def launch(kernel: Any, threads: int, block: int, arguments: tuple[Any, ...], rows: int = 1) -> None:
    """Run a kernel on at least so many threads, for each of some rows; nothing happens without threads or rows."""
    if not threads or not rows:
        return
    kernel((-(-threads // block), rows), (block, 1, 1), arguments)


def free_memory() -> int:
    """Bytes of the device that can be had."""
    cp = cupy()
    pool = cp.get_default_memory_pool()
    return int(cp.cuda.runtime.memGetInfo()[0] + pool.total_bytes() - pool.used_bytes())
