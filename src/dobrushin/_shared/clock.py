"""Seconds that stand still while code is compiled: limits in time are about the work, not its first compilation.

What is interpreted in the place of being compiled stands still too.
"""

from __future__ import annotations

import os
import threading
import time


class _Pauses:
    """How long the clock has stood still; pauses of several threads that overlap count once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._since = 0.0
        self._total = 0.0

    def begin(self) -> None:
        with self._lock:
            if self._open == 0:
                self._since = time.monotonic()
            self._open += 1

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._total += time.monotonic() - self._since

    def forget_threads(self) -> None:
        """In a process that was forked: the threads that were in a pause, or held the lock, are not there."""
        self._lock = threading.Lock()
        if self._open:
            self._total += time.monotonic() - self._since
            self._open = 0

    @property
    def current(self) -> float | None:
        """For how long the pause of just now has lasted; None where there is none."""
        with self._lock:
            return time.monotonic() - self._since if self._open else None

    def seconds(self, now: float) -> float:
        with self._lock:
            return self._total + (now - self._since if self._open else 0.0)


# When the clock stands still, and when it does so because code is compiled: people are told about that.
PAUSES, COMPILATION = _Pauses(), _Pauses()
if hasattr(os, "register_at_fork"):
    for _pauses in (PAUSES, COMPILATION):
        os.register_at_fork(after_in_child=_pauses.forget_threads)


def seconds() -> float:
    """Like `time.monotonic`, without the time in which code was compiled."""
    now = time.monotonic()
    return now - PAUSES.seconds(now)
