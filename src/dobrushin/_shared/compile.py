"""The one place that spells Numba options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel: serial, without the interpreter lock, cached on disk, with IEEE arithmetic.

    No `fastmath`: certificates rely on the order of roundings and on infinities.
    """
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)
