"""Long native calls in pieces, so that Ctrl-C, the limit on planning and progress act between two of them.

A kernel that can take long has `at` and `allowance` as its first arguments. It works from the place `at`, counts
elementary operations, and returns when it has spent the allowance, with `at` where it must go on. What it computes does
not depend on where it stops.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from dobrushin._shared.call import bar
from dobrushin._shared.compile import FEW_OPERATIONS, code_for
from dobrushin._shared.deadline import current

# Elementary operations in one native call, and about how long one takes: less in a cache, several times as long where
# each waits for memory. A call stays below about 0.2 s.
PIECE = 2 * 10**7
_SECONDS = 2.5e-9
# More numbers than any kernel needs to say where it is.
_PLACES = 6


def in_pieces(
    kernel: Any, count: int, *arguments: Any, at_once: float = 0.0, what: str = "", unit: str = "steps"
) -> None:
    """Call a kernel until it has gone through `count` items: at[0] is the number of those that are done.

    `at_once` says how many operations it may do before it looks at the allowance, where these can be many. Where there
    are several pieces, `what` is done stands beside a bar.
    """
    at = np.zeros(_PLACES, dtype=np.int64)
    code, allowance = first_piece(kernel, at_once)
    report = None
    with ExitStack() as shown:
        while at[0] < count:
            if at.any() and code is kernel:
                charge_piece()
                report = report or shown.enter_context(bar(count, what, unit))
                if report:
                    report(int(at[0]))
            code(at, allowance, *arguments)
            code, allowance = kernel, PIECE


def first_piece(kernel: Any, at_once: float = 0.0) -> tuple[Any, int]:
    """What to call first, and with which allowance: what a small one leaves is worth compiling the kernel for."""
    code = code_for(kernel, max(FEW_OPERATIONS, at_once))
    return code, PIECE if code is kernel else FEW_OPERATIONS


def charge_piece(stage: str = "") -> None:
    """Count one piece as work of planning; `LateError` where there is no time for it."""
    current().charge(PIECE * _SECONDS, stage)
