"""What becomes of a call that needs more memory than there is, and of numbers that are too small for a float."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dobrushin._shared.memory import free_memory
from dobrushin.errors import BudgetError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_REMEDY = "Ask for less at a time, or give the process more memory."


def guard_memory(function: Callable[_Arguments, _Result], called: str = "") -> Callable[_Arguments, _Result]:
    """Make a public function, or the part of one that is `called` so, raise `BudgetError` where memory runs out.

    Underflow is no error here, also where people made it one: bounds count with it.
    """

    @wraps(function)
    def guarded(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            with np.errstate(under="ignore"):
                return _unwrapped(function, *args, **kwargs)
        except MemoryError as error:
            what, required, free = f"dobrushin.{called or function.__name__}", _size_of(error), free_memory()
            raise BudgetError(what, max(required, free), free, "bytes or more", _REMEDY) from None

    return guarded


def _unwrapped(function: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
    """Call a function; what reaches compiled code while it is entered or left comes as a `SystemError` around it."""
    try:
        return function(*args, **kwargs)
    except SystemError as error:
        reason: BaseException | None = error
        while reason is not None and not isinstance(reason, KeyboardInterrupt | MemoryError):
            reason = reason.__cause__ or reason.__context__
        raise reason or error from None


def _size_of(error: Any) -> float:
    """Bytes of the array that could not be made; 0 where the error does not say."""
    shape, dtype = getattr(error, "shape", ()), getattr(error, "dtype", None)
    return float(math.prod(shape)) * dtype.itemsize if dtype is not None else 0.0


def require_memory(what: str, needed: float, remedy: str) -> None:
    """`BudgetError` for something that would not fit in the memory that is free."""
    if needed > (free := free_memory()):
        raise BudgetError(what, needed, free, "bytes", remedy)
