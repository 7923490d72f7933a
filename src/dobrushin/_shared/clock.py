"""A clock that stops during compilation, and Ctrl-C as a count instead of an exception.

Time limits are about the work, not about its first compilation. The clock also stops while a kernel is interpreted to
avoid compiling it.

Python raises `KeyboardInterrupt` between any two instructions of the main thread: also right after a lock was taken,
before any code can release it. Threads that wait for such a lock wait forever, and so does whoever joins them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _Pauses:
    """The time during which the clock was stopped; overlapping pauses of several threads count once."""

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
        """End all pauses in a forked process, since the threads that began them do not exist there."""
        self._lock = threading.Lock()
        if self._open:
            self._total += time.monotonic() - self._since
            self._open = 0

    @property
    def current(self) -> float | None:
        """Seconds since the current pause began; None if the clock is running."""
        with self._lock:
            return time.monotonic() - self._since if self._open else None

    def clock(self) -> float:
        """Return `time.monotonic()` minus the time of all pauses."""
        with self._lock:
            now = time.monotonic()
            return now - (self._total + (now - self._since if self._open else 0.0))


# All pauses of the clock, and those for compilation, which progress displays mention.
PAUSES, COMPILATION = _Pauses(), _Pauses()
if hasattr(os, "register_at_fork"):
    for _pauses in (PAUSES, COMPILATION):
        os.register_at_fork(after_in_child=_pauses.forget_threads)


# The clock of limits in time: `time.monotonic` less the time in which code was compiled.
seconds = PAUSES.clock


# -- Ctrl-C ------------------------------------------------------------------------------------

# Presses of Ctrl-C that are noted; the next one raises even if the code has not looked yet.
_MAX_PRESSES = 2


class Presses:
    """A count of how often Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.count = 0
        self._process = os.getpid()

    def look(self) -> None:
        if self.count:
            raise KeyboardInterrupt

    def note(self, number: int, frame: FrameType | None) -> None:
        """Count a press of Ctrl-C; raise `KeyboardInterrupt` in forked workers, and after too many presses."""
        if os.getpid() != self._process or self.count == _MAX_PRESSES:
            signal.default_int_handler(number, frame)
        self.count += 1


@contextmanager
def noted_interrupts() -> Iterator[Presses]:
    """Count presses of Ctrl-C inside a `with` block, instead of raising `KeyboardInterrupt`."""
    presses = Presses()
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not raises or threading.current_thread() is not threading.main_thread():
        yield presses
        return
    signal.signal(signal.SIGINT, presses.note)
    try:
        yield presses
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
