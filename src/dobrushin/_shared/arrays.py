"""Read-only arrays: what passes between stages cannot change, and kernels see one type only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array, contiguous and read-only.

    Numba compiles a kernel anew for writable arrays, so inputs of kernels are always passed through here.
    """
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array
