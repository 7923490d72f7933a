"""Ctrl-C as something to look at.

Python raises it between any two instructions of the main thread: also right after a lock was taken, and before anybody
is there to give it back. Threads that wait for such a lock wait forever, and so does whoever joins them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Presses that are noted: if nobody has looked by then, the next one raises.
_MOST = 2


class Presses:
    """How often Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.count = 0
        self._process = os.getpid()

    def look(self) -> None:
        """`KeyboardInterrupt` if it was pressed."""
        if self.count:
            raise KeyboardInterrupt

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take note; workers that were forked meanwhile are interrupted as ever, and so is who does not listen."""
        if os.getpid() != self._process or self.count == _MOST:
            signal.default_int_handler(number, frame)
        self.count += 1


@contextmanager
def noted_interrupts() -> Iterator[Presses]:
    """Only take note of Ctrl-C for a while, where it would raise; elsewhere nothing is ever noted."""
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
