"""Kernels as the Python that they are, for work so small that compiling them would take longer.

The source of a kernel is Python. Run by the interpreter it gives the same numbers, bit by bit, some hundred times as
slowly: what an answer says does not depend on who ran it. Nothing here knows the compiler.
"""

from __future__ import annotations

import functools
import math
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from dobrushin._shared.clock import PAUSES
from dobrushin._shared.interrupts import noted_interrupts

# In older versions a number of 64 bits without sign and a whole number of Python add up to a float.
CAN_INTERPRET = int(np.__version__.split(".")[0]) >= 2


class Interpreted:
    """A kernel that the interpreter runs, and how long it has done so.

    Ctrl-C waits until a call is through, as for compiled code, and limits in time stand still, as they do while code
    is compiled: this takes the place of that.
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
    """The function of a kernel, in which other kernels are plain functions too."""
    function = kernel.py_func
    names = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
    for name, value in names.items():
        if hasattr(value, "py_func"):
            names[name] = _plain(value)
        elif value is math or value is np:
            names[name] = _AsCompiled(value)
    return types.FunctionType(function.__code__, {**names, "__builtins__": __builtins__}, function.__name__)


class _AsCompiled:
    """`math` or `numpy`, where functions of one number give what compiled code gives.

    That is the system's mathematical library, as in `math`; and infinity or NaN where `math` raises an error.
    """

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(math, name, None) if name in _FUNCTIONS else None
        value = getattr(self._module, name) if function is None else _without_errors(function, getattr(np, name))
        setattr(self, name, value)
        return value


_FUNCTIONS = ("exp", "expm1", "log", "log1p", "ldexp")


def _without_errors(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            return np.float64(function(*arguments))
        except (OverflowError, ValueError):
            return other(*arguments)

    return call
