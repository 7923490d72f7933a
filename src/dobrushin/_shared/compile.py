"""The one place that spells Numba options, and that says where compiled code is kept."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, event, types
from numba.extending import intrinsic
from numba.misc.appdirs import AppDirs

from dobrushin._shared.clock import COMPILATION, PAUSES
from dobrushin._shared.interpret import CAN_INTERPRET, Interpreted
from dobrushin._shared.interrupts import noted_interrupts
from dobrushin._shared.log import log
from dobrushin.errors import CacheWarning


class _Compilation(event.Listener):
    """Stops the clock of limits in time while code is compiled, or read from the cache."""

    def on_start(self, event: Any) -> None:
        del event
        PAUSES.begin()
        COMPILATION.begin()

    def on_end(self, event: Any) -> None:
        del event
        COMPILATION.end()
        PAUSES.end()


event.register("numba:compiler_lock", _Compilation())
# Numba makes its attributes when it reads the environment.
_config: Any = numba.config
if _config.DISABLE_JIT:
    raise ImportError("dobrushin needs compiled code, and NUMBA_DISABLE_JIT=1 switches compilation off: unset it.")
# A call of at most so many elementary operations, a tenth of a second or so, may be interpreted; and a kernel for so
# many seconds in all, some part of what compiling it takes.
FEW_OPERATIONS = 2**18
INTERPRETED_SECONDS = 1.0


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel: serial, without the interpreter lock, cached on disk, with IEEE arithmetic.

    No `fastmath`: certificates rely on the order of roundings and on infinities.
    """
    return _compiled(function, inline=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small function into each kernel that calls it: a call that passes arrays can cost more than that."""
    return _compiled(function, inline=True)


def _compiled(function: Callable[..., Any], inline: bool) -> Any:
    compiled = functools.partial(numba.njit, nogil=True, error_model="numpy", forceinline=inline)
    if _has_place(os.path.dirname(function.__code__.co_filename)):
        return _interruptible(compiled(cache=True)(function))
    if (folder := _temporary_folder()) is None:
        return _interruptible(compiled()(function))
    with _cache_in(folder):
        return _interruptible(compiled(cache=True)(function))


def code_for(compiled: Any, operations: float) -> Any:
    """What to call in the place of a kernel: itself, or its Python where that is sooner done than compiled.

    That is so as long as there is little work, and code is neither loaded nor kept on disk. The results are the same.
    """
    if _is_loaded(compiled) or operations > FEW_OPERATIONS:
        return compiled
    interpreted = _interpreted(compiled)
    return compiled if interpreted is None or interpreted.seconds >= INTERPRETED_SECONDS else interpreted


def compile_always() -> None:
    """Interpret nothing from now on: for those who measure or test compiled code, or want it on disk."""
    global INTERPRETED_SECONDS
    INTERPRETED_SECONDS = 0.0


def _is_loaded(compiled: Any) -> bool:
    return bool(compiled.overloads)


@functools.cache
def _interpreted(compiled: Any) -> Interpreted | None:
    """The interpreted kernel; None where a compiled one is on disk."""
    kept = getattr(compiled._cache, "_cache_file", None)
    return Interpreted(compiled) if CAN_INTERPRET and not (kept and kept._load_index()) else None


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Inside a kernel: let the processor fetch array[index] (its first axis) ahead. It computes nothing."""
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

    return types.void(array, types.int64), generate


def _fetch_nothing(array: Any, index: Any) -> None:
    """What `prefetch` is for the interpreter."""
    del array, index


setattr(prefetch, "py_func", _fetch_nothing)  # noqa: B010  where the interpreter looks for it


def _interruptible(dispatcher: Any) -> Any:
    """Let Ctrl-C wait until code is compiled: raised inside LLVM's callbacks it is lost, and something else breaks."""
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
def _has_place(source: str) -> bool:
    """Whether Numba finds a folder for what it compiles from this one: those that it tries, in its order."""
    if _config.CACHE_DIR and _is_writable(_config.CACHE_DIR):
        return True
    users = AppDirs(appname="numba", appauthor=False).user_cache_dir
    return _is_writable(os.path.join(source, "__pycache__")) or _is_writable(users)


def _is_writable(folder: str) -> bool:
    """Whether files can be made here; modes alone do not say."""
    try:
        os.makedirs(folder, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


@functools.cache
def _temporary_folder() -> str | None:
    """A folder that only this user can read, for as long as this process lives; None if there can be none."""
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
    warnings.warn(message, CacheWarning, stacklevel=3)
    return folder


def _remove(folder: str, owner: int) -> None:
    """Remove a folder with all that is in it, in the process that made it and not in its forks."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Let Numba keep what is decorated meanwhile in this folder; the caches of other packages stay where they are."""
    before = _config.CACHE_DIR
    _config.CACHE_DIR = folder
    try:
        yield
    finally:
        _config.CACHE_DIR = before
