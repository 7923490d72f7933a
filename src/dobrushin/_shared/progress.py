"""Displays of the progress of long calls, in terminals, notebooks and logs.

A call consists of stages (`_shared/call`); a stage of known length has a bar. A call that takes longer than half a
second shows its stage: in a terminal as a line that is removed at the end, in a notebook as output that remains, in a
log as lines at growing intervals. With ``progress=False`` nothing is shown, with None progress is shown in terminals
and notebooks, with True also in logs.

A separate thread draws, so that drawing does not delay the work. This file needs only the standard library.
"""

from __future__ import annotations

import contextvars
import math
import os
import shutil
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

from dobrushin._shared.clock import COMPILATION

if TYPE_CHECKING:
    from dobrushin._shared.call import Deadline

# Seconds until something is shown, between two pictures, and at most between two lines of a log.
_FIRST_PICTURE_SECONDS, _PICTURE_SECONDS, _LOG_SECONDS = 0.5, 0.25, 60.0
# Shorter calls leave no output in a notebook.
_BRIEF_SECONDS = 1.5
# Characters of a bar in a terminal.
_BAR_CHARACTERS = 24


class Stage:
    """A stage of a call: its name and, if its length is known, how much of it is done."""

    def __init__(self, what: str, total: int | None, unit: str, deadline: Deadline | None = None) -> None:
        self.what, self.total, self._unit, self._deadline = what, total, unit, deadline
        self.done = 0
        self._begin = time.monotonic()
        self._first = (0, self._begin)  # a run that resumes begins with the steps of the earlier run

    def report(self, done: int) -> None:
        if not self.done:
            self._first = (done, time.monotonic())
        self.done = done

    @property
    def share(self) -> float | None:
        """Share of the stage that is done, from 0 to 1; None if its length is not known."""
        return None if not self.total else min(1.0, self.done / self.total)

    def text(self) -> str:
        """Describe how far the stage is, as in "sampling 34 %, 12 s left", or how long until the time limit."""
        now = time.monotonic()
        if self.share is None:
            return f"{self.what}, {_duration(now - self._begin)}"
        text = f"{self.what} {100 * self.share:.0f} %"
        known, since = self._first
        if self.total is None or self.done <= known or now <= since:
            return text
        rate = (self.done - known) / (now - since)
        left = (self.total - self.done) / rate
        limit = math.inf if self._deadline is None else self._deadline.left
        how_long = f"{_duration(left)} left" if left <= limit else f"{_duration(limit)} left until the time limit"
        return f"{text}, {how_long}, {rate:.2g} {self._unit}/s"


def _duration(seconds: float) -> str:
    """Write a duration in seconds, minutes or hours.

    Examples
    --------
    >>> _duration(12.3), _duration(200), _duration(10_000)
    ('12 s', '3 min 20 s', '2 h 46 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


# -- where it is shown -------------------------------------------------------------------------


class Display(ABC):
    """A display of progress."""

    @abstractmethod
    def draw(self, stage: str, text: str, share: float | None) -> None:
        """Show a stage: its name, a text about it, and the share that is done (None: unknown)."""

    def rest(self) -> None:  # noqa: B027  what was drawn may stay
        """Make room for other output while no stage is running."""

    @abstractmethod
    def end(self, name: str, text: str, is_done: bool) -> None:
        """Show that the call has ended, and whether it finished; short calls have no text."""


class Terminal(Display):
    """Display in a terminal: a line that is overwritten, and removed at the end."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        can_draw = "utf" in (getattr(stream, "encoding", None) or "").lower()
        self._full, self._empty = ("━", "─") if can_draw else ("#", "-")

    def draw(self, stage: str, text: str, share: float | None) -> None:
        if share is not None:
            full = round(_BAR_CHARACTERS * share)
            text = f"{self._full * full}{self._empty * (_BAR_CHARACTERS - full)} {text}"
        _write(self._stream, f"\r\x1b[2K{text[: shutil.get_terminal_size().columns - 1]}")

    def rest(self) -> None:
        _write(self._stream, "\r\x1b[2K")

    def end(self, name: str, text: str, is_done: bool) -> None:
        self.rest()


class Notebook(Display):
    """Display in a notebook: an output of the cell that is updated, and remains."""

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, stage: str, text: str, share: float | None) -> None:
        bar = "" if share is None else f' <progress value="{share:.4f}" max="1">{share:.0%}</progress>'
        self._show(text, f"<label>{escape(stage)}{bar}</label> {escape(text.removeprefix(stage).lstrip(', '))}")

    def end(self, name: str, text: str, is_done: bool) -> None:
        if text:
            self.draw(name, text, 1.0 if is_done else None)
        else:
            self._show("", "")

    def _show(self, text: str, html: str) -> None:
        content = {"text/plain": text, "text/html": f"<div>{html}</div>"}
        if self._handle is None:
            from IPython.display import display

            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class Log(Display):
    """Display in a log: a line when the stage changes, and further lines at growing intervals."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._stage, self._next, self._pause = stream, "", 0.0, 1.0

    def draw(self, stage: str, text: str, share: float | None) -> None:
        now = time.monotonic()
        if stage == self._stage and now < self._next:
            return
        self._pause = 1.0 if stage != self._stage else min(2.0 * self._pause, _LOG_SECONDS)
        self._stage, self._next = stage, now + self._pause
        _write(self._stream, f"dobrushin: {text}\n")

    def end(self, name: str, text: str, is_done: bool) -> None:
        if text:
            _write(self._stream, f"dobrushin: {text}\n")


def _write(stream: Any, text: str) -> None:
    with suppress(OSError, ValueError):  # the stream may have been closed
        stream.write(text)
        stream.flush()


def display_for(wanted: bool | None) -> Callable[[], Display] | None:
    """Return the class of the display to use, for the argument `progress`; None if nothing is to be shown."""
    if wanted is not None and not wanted:
        return None
    if is_notebook():
        return Notebook
    stream = sys.stderr
    if stream is None:
        return None
    with suppress(ValueError, AttributeError):  # a stream that was closed, or that can only be written to
        if stream.isatty() and os.environ.get("TERM") != "dumb":
            return lambda: Terminal(stream)
    return None if wanted is None else lambda: Log(stream)


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    get = getattr(shell, "get_ipython", None)
    return get is not None and hasattr(get(), "kernel")


# -- what is under way -------------------------------------------------------------------------


# Only the first of several calls in threads is shown.
_SHOWN = threading.Lock()


class Watch:
    """The running stages of a call, the innermost last, and the display that shows them."""

    def __init__(self, make_display: Callable[[], Display]) -> None:
        self._make_display = make_display
        self._display: Display | None = None
        self._begin = time.monotonic()
        self._stages: list[Stage] = []
        # Notebooks know by the context which cell an output belongs to.
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        threading.Thread(target=self._run, name="dobrushin-progress", daemon=True).start()

    def _run(self) -> None:
        with _SHOWN:
            while not self._is_over.wait(_PICTURE_SECONDS):
                # Errors of a display must not break the work.
                with self._lock, suppress(Exception):
                    if self._stages and time.monotonic() - self._begin >= _FIRST_PICTURE_SECONDS:
                        self._show()

    def _show(self) -> None:
        """Show the outermost stage of known length, which is what users wait for; otherwise the innermost stage."""
        stage = next((stage for stage in self._stages if stage.total), self._stages[-1])
        what, text, share = stage.what, stage.text(), stage.share
        if not stage.done and (since := COMPILATION.current) is not None:
            text = f"compiling, once for this kind of model ('dobrushin warmup' does it beforehand), {_duration(since)}"
            what, share = "compiling", None
        if self._display is None:
            self._display = self._make_display()
        self._context.run(self._display.draw, what, text, share)

    def enter(self, stage: Stage) -> None:
        self._stages.append(stage)

    def leave(self, stage: Stage) -> None:
        with self._lock, suppress(Exception):
            self._stages.remove(stage)
            if not self._stages and self._display is not None:
                self._context.run(self._display.rest)

    def end(self, name: str, is_done: bool) -> None:
        """Show that the call has ended, and close the display."""
        self._is_over.set()
        with self._lock, suppress(Exception):
            if self._display is not None:
                words = "done in" if is_done else "stopped after"
                passed = time.monotonic() - self._begin
                text = f"{name}, {words} {_duration(passed)}" if passed > _BRIEF_SECONDS or not is_done else ""
                self._context.run(self._display.end, name, text, is_done)
