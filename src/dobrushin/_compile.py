"""The one place that spells Numba options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a kernel: serial, without the interpreter lock, cached on disk, with IEEE arithmetic.

    No `fastmath`: certificates rely on the order of roundings and on infinities.
    """
    compiled: F = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    return compiled
