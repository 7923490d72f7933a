"""Kernels: compile them, interpret small ones, and split long calls into pieces.

This is the only file that sets Numba options and the folder of compiled code. A kernel is Python code: run by the
interpreter, it gives the same numbers bit for bit, some hundred times slower. So answers do not depend on whether
kernels were compiled.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import shutil
import tempfile
import time
import types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, event
from numba.core import types as numba_types
from numba.extending import intrinsic

from dobrushin._shared.call import bar, current_deadline, warn
from dobrushin._shared.clock import COMPILATION, PAUSES, noted_interrupts
from dobrushin._shared.environment import log
from dobrushin.errors import CacheWarning


class _Compilation(event.Listener):
    """Listener that stops the clock of time limits while Numba compiles code or reads it from the cache."""

    def on_start(self, event: Any) -> None:
        PAUSES.begin()
        COMPILATION.begin()

    def on_end(self, event: Any) -> None:
        COMPILATION.end()
        PAUSES.end()


class _Announcement(event.Listener):
    """Logs the first kernel that is compiled in a process, and what saves later processes from that."""

    is_made = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.is_made and function.__module__.startswith("dobrushin."):
            self.is_made = True
            log.info(
                "compiling %s: each kernel is compiled when it first has much to do, and kept; 'dobrushin warmup' "
                "compiles all of them beforehand",
                function.__name__,
            )

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compiler_lock", _Compilation())
event.register("numba:compile", _Announcement())
# Any, because Numba creates the attributes of its config at run time.
_config: Any = numba.config
if _config.DISABLE_JIT:
    raise ImportError("dobrushin needs compiled code, and NUMBA_DISABLE_JIT=1 switches compilation off: unset it.")
# Elementary operations of a call that may be interpreted (about 0.1 s), and seconds for which one kernel may be
# interpreted in all (a part of the time that compiling it takes).
FEW_OPERATIONS = 2**18
INTERPRETED_SECONDS = 1.0
# In NumPy 1 the sum of a uint64 and a Python int is a float.
CAN_INTERPRET = int(np.__version__.split(".")[0]) >= 2
# Elementary operations in one native call, and about how long one takes: less in a cache, several times as long where
# each waits for memory. A call stays below about 0.2 s.
PIECE = 2 * 10**7
_SECONDS_PER_OPERATION = 2.5e-9
# Length of the array `at`, in which a kernel stores how far it is: more than any kernel needs.
_PLACES = 6


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel: serial, without the interpreter lock, cached on disk, with IEEE arithmetic.

    No `fastmath`: certificates rely on the order of roundings and on infinities.
    """
    return _compiled(function, inline=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small function into each kernel that calls it, because a call that passes arrays costs more.

    Python cannot call the result: it has no wrapper for that.
    """
    return _compiled(function, inline=True)


def _compiled(function: Callable[..., Any], inline: bool) -> Any:
    # Wrappers take as long to compile as small functions themselves: Python calls no inlined function, C calls none.
    options = {"forceinline": inline, "no_cpython_wrapper": inline, "no_cfunc_wrapper": True}
    compiled = functools.partial(numba.njit, nogil=True, error_model="numpy", **options)
    try:
        return _interruptible(compiled(cache=True)(function))
    except RuntimeError:  # Numba finds no folder that can be written
        folder = _temporary_folder()
    if folder is None:
        return _interruptible(compiled()(function))
    before, _config.CACHE_DIR = _config.CACHE_DIR, folder  # caches of other packages stay where they are
    try:
        return _interruptible(compiled(cache=True)(function))
    finally:
        _config.CACHE_DIR = before


def code_for(compiled: Any, operations: float) -> Any:
    """Return a kernel, or its interpreted function if running this takes less time than compiling the kernel.

    The function is faster if there is little work and no compiled code in memory or on disk. Results are the same.
    """
    if _is_loaded(compiled) or operations > FEW_OPERATIONS:
        return compiled
    interpreted = _interpreted(compiled)
    return compiled if interpreted is None or interpreted.seconds >= INTERPRETED_SECONDS else interpreted


def compile_always() -> None:
    """Compile every kernel from now on, instead of interpreting small ones."""
    global INTERPRETED_SECONDS
    INTERPRETED_SECONDS = 0.0


def _is_loaded(compiled: Any) -> bool:
    return bool(compiled.overloads)


@functools.cache
def _interpreted(compiled: Any) -> Interpreted | None:
    """Return the interpreted version of a kernel; None if a compiled one is on disk."""
    kept = getattr(compiled._cache, "_cache_file", None)
    return Interpreted(compiled) if CAN_INTERPRET and not (kept and kept._load_index()) else None


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Make the processor fetch array[index] into its cache ahead of use; for kernels."""
    del typing_context, index

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word, size = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, view.strides)[0]
        address = builder.add(builder.ptrtoint(view.data, size), builder.mul(arguments[1], stride))
        hint = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0i8")
        # To read, to be kept in all caches, of data.
        builder.call(function, [builder.inttoptr(address, byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return numba_types.void(array, numba_types.int64), generate


# The interpreter takes this function in the place of `prefetch`.
setattr(prefetch, "py_func", lambda *_: None)  # noqa: B010


def _interruptible(dispatcher: Any) -> Any:
    """Delay Ctrl-C until code is compiled: a `KeyboardInterrupt` would be lost inside LLVM's callbacks."""
    compile_now = dispatcher.compile

    @functools.wraps(compile_now)
    def compile_and_look(signature: Any) -> Any:
        with noted_interrupts() as presses:
            entry = compile_now(signature)
        presses.look()
        return entry

    dispatcher.compile = compile_and_look
    return dispatcher


@functools.cache
def _temporary_folder() -> str | None:
    """Return a private folder that is removed when this process ends; None if none can be made."""
    folder: str | None = None
    with contextlib.suppress(OSError):
        folder = tempfile.mkdtemp(prefix="dobrushin-kernels-")
        atexit.register(_remove, folder, os.getpid())
    where = "is not kept on disk" if folder is None else f"is kept in {folder} until this process ends"
    message = (
        f"No folder for compiled code can be written: it {where}. Set NUMBA_CACHE_DIR to a folder that can be, and "
        "compilation happens once."
    )
    log.warning(message)
    warn(message, CacheWarning)
    return folder


def _remove(folder: str, owner: int) -> None:
    """Remove a folder with its content, but only in the process `owner`, which made it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


# -- kernels as the Python that they are --------------------------------------------------------


class Interpreted:
    """A kernel that the interpreter runs, and the seconds that it has run so far.

    As during compilation, Ctrl-C waits until a call ends, and the clock of time limits stops.
    """

    def __init__(self, kernel: Any) -> None:
        self._function = _plain(kernel)
        self.seconds = 0.0

    def __call__(self, *arguments: Any) -> Any:
        begin = time.perf_counter()
        PAUSES.begin()
        try:
            with noted_interrupts() as presses, np.errstate(all="ignore"):
                result = self._function(*arguments)
        finally:
            PAUSES.end()
            self.seconds += time.perf_counter() - begin
        presses.look()
        return result


@functools.cache
def _plain(kernel: Any) -> Callable[..., Any]:
    """Return the Python function of a kernel, in which calls of other kernels are plain functions too."""
    function = kernel.py_func
    names = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
    for name, value in names.items():
        if hasattr(value, "py_func"):
            names[name] = _plain(value)
        elif value is math or value is np:
            names[name] = _as_compiled(value)
    return types.FunctionType(function.__code__, {**names, "__builtins__": __builtins__}, function.__name__)


_FUNCTIONS = ("exp", "expm1", "log", "log1p", "ldexp")


@functools.cache
def _as_compiled(module: types.ModuleType) -> types.SimpleNamespace:
    """Return the module `math` or `numpy`, with functions of a number that agree with compiled code.

    Compiled code calls the system's mathematical library, as `math` does, and gives infinity or NaN instead of an
    error.
    """
    return types.SimpleNamespace(**vars(module) | {name: _without_errors(name) for name in _FUNCTIONS})


def _without_errors(name: str) -> Callable[..., Any]:
    function, other = getattr(math, name), getattr(np, name)

    def call(*arguments: Any) -> Any:
        try:
            return np.float64(function(*arguments))
        except (OverflowError, ValueError):
            return other(*arguments)

    return call


# -- long native calls in pieces: Ctrl-C, the limit on planning and progress act between two -----


def in_pieces(
    kernel: Any, count: int, *arguments: Any, at_once: float = 0.0, what: str = "", unit: str = "steps"
) -> None:
    """Call a kernel again and again until it has done `count` items; it counts them in at[0].

    `at_once` is the number of operations that the kernel does before it checks its allowance, if that number is large.
    From the second call on, a progress bar named `what` is shown.
    """
    at = np.zeros(_PLACES, dtype=np.int64)
    code, allowance = first_piece(kernel, at_once)
    report = None
    with contextlib.ExitStack() as shown:
        while at[0] < count:
            if at.any() and code is kernel:
                charge_piece()
                report = report or shown.enter_context(bar(count, what, unit))
                if report:
                    report(int(at[0]))
            code(at, allowance, *arguments)
            code, allowance = kernel, PIECE


def first_piece(kernel: Any, at_once: float = 0.0) -> tuple[Any, int]:
    """Return the code to run first and its allowance of operations: interpreted code gets a small one."""
    code = code_for(kernel, max(FEW_OPERATIONS, at_once))
    return code, PIECE if code is kernel else FEW_OPERATIONS


def charge_piece(stage: str = "") -> None:
    """Charge one piece of work to the time for planning; raise `LateError` if too little is left."""
    current_deadline().charge(PIECE * _SECONDS_PER_OPERATION, stage)
