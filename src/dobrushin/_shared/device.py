"""Use of the GPU: finding it, compiling for it, and errors if there is none. CuPy is imported when first needed."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dobrushin._shared.call import current, entered
from dobrushin._shared.environment import require

# One thread compiles, the others wait for it.
_LOCK = threading.Lock()
# Largest third dimension of a grid, and blocks from which on launches of different size are made apart.
_MAX_SETS, _MAX_BLOCKS = 65535, 2**22


def cupy() -> Any:
    """Return the module CuPy after checking that a GPU responds."""
    cp = require("cupy", "cuda")
    try:
        count = cp.cuda.runtime.getDeviceCount()
    except Exception as error:  # whatever a broken or missing driver makes of it
        raise _no_device(str(error)) from error
    if not count:
        raise _no_device("none was found")
    return cp


def _no_device(reason: str) -> RuntimeError:
    if "cudaErrorInitializationError" in reason:
        return RuntimeError(
            "RunOptions(backend='cuda') cannot be used in a process forked from one that has used the GPU: make "
            f"the pool with mp_context=multiprocessing.get_context('spawn') ({reason})."
        )
    return RuntimeError(
        "RunOptions(backend='cuda') needs an NVIDIA GPU with its driver, and a CuPy that fits them "
        f"(extra 'cuda': pip install 'dobrushin[cuda]'): {reason}."
    )


def is_available() -> bool:
    """Return whether there is a GPU that can be used."""
    return _answers(os.getpid())


@functools.cache
def _answers(process: int) -> bool:
    """Return whether a GPU responds to this process, whose number makes a forked process ask again."""
    del process
    try:
        cupy()
    except (ImportError, RuntimeError):
        return False
    return True


def may_be_available() -> bool:
    """Return whether CuPy is installed; asking for the GPU itself would load CuPy and start the driver."""
    return "cupy" in sys.modules or _is_installed()


@functools.cache
def _is_installed() -> bool:
    return find_spec("cupy") is not None


class Function(NamedTuple):
    """A function in CUDA source files, compiled for a device when it is first launched there."""

    package: str
    sources: tuple[str, ...]
    name: str
    options: tuple[str, ...]

    def compiled(self, for_many: bool = False) -> Any:
        """Return the compiled function, for one set of arguments or for many (see generator.cuh).

        CuPy stores compiled code on disk.
        """
        name, options = (f"{self.name}_many", (*self.options, "-DMANY")) if for_many else (self.name, self.options)
        cp = cupy()
        with _LOCK:
            return _module(cp, cp.cuda.runtime.getDevice(), self.package, self.sources, options).get_function(name)


@functools.cache
def _module(cp: Any, device: int, package: str, sources: tuple[str, ...], options: tuple[str, ...]) -> Any:
    del device  # part of the key of the cache
    folder = resources.files(package)
    code = "\n".join((folder / source).read_text() for source in sources)
    return cp.RawModule(code=code, options=("-std=c++17", *options))


class _Launch(NamedTuple):
    """A launch that is delayed until others of the same function can run with it."""

    threads: int
    arguments: tuple[Any, ...]
    rows: int


Waiting = dict[tuple[Function, int], list[_Launch]]  # by function and threads of a block


def launch(function: Function, threads: int, block: int, arguments: tuple[Any, ...], rows: int = 1) -> None:
    """Run a function on at least `threads` threads for each of `rows` rows."""
    if not threads or not rows:
        return
    if (waiting := current().launches) is not None:
        waiting.setdefault((function, block), []).append(_Launch(threads, arguments, rows))
        return
    function.compiled()((-(-threads // block), rows), (block, 1, 1), arguments)


@contextmanager
def one_launch() -> Iterator[None]:
    """Delay launches until the end of a `with` block, and run those of one function as a single launch.

    None of these launches may need the result of another.
    """
    waiting: Waiting = {}
    with entered(launches=waiting):
        yield
    for (function, block), launches in waiting.items():
        for some in _alike(launches, block):
            # Each argument takes 64 bits: an address, or a whole number.
            values = ((x.data.ptr if hasattr(x, "get") else x for x in one.arguments) for one in some)
            slots = np.array([[int(x) % 2**64 for x in row] for row in values], dtype=np.uint64)
            function.compiled(for_many=True)(_grid(some, block), (block, 1, 1), (cupy().asarray(slots),))


def _grid(launches: list[_Launch], block: int) -> tuple[int, int, int]:
    """Return the grid of blocks for launches that are combined: that of the largest, once for each of them."""
    threads, rows = (max(column) for column in zip(*((one.threads, one.rows) for one in launches), strict=True))
    return -(-threads // block), rows, len(launches)


def _alike(launches: list[_Launch], block: int) -> Iterator[list[_Launch]]:
    """Yield groups of launches to combine: all, or those of similar size if blocks would otherwise be wasted."""
    groups: dict[Any, list[_Launch]] = {0: launches}
    if math.prod(_grid(launches, block)) > _MAX_BLOCKS:
        groups = {}
        for one in launches:
            groups.setdefault((one.threads.bit_length() // 3, one.rows.bit_length() // 3), []).append(one)
    for group in groups.values():
        for lo in range(0, len(group), _MAX_SETS):
            yield group[lo : lo + _MAX_SETS]


def free_memory() -> int:
    """Return the bytes of GPU memory that can be allocated."""
    cp = cupy()
    pool = cp.get_default_memory_pool()
    return int(cp.cuda.runtime.memGetInfo()[0] + pool.total_bytes() - pool.used_bytes())
