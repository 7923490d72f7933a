"""The current public call: its name, where it shows progress, and how long its planning may take.

A function decorated with `public` is the current call while it runs. Errors about arguments take its name from here,
progress bars their display, and planning its time limit.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from functools import singledispatch, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from dobrushin._shared.clock import seconds as working_clock
from dobrushin._shared.progress import Stage, Watch, display_for, is_notebook
from dobrushin.errors import ArgumentError, BudgetError

if TYPE_CHECKING:
    from dobrushin._shared.device import Waiting
    from dobrushin._shared.executors import Within

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Item = TypeVar("_Item")
# Seconds that planning may take in a call without a time limit, and the share of the time limit in other calls.
PLANNING, PLANNING_SHARE = 30.0, 0.25
# Most seconds that planning may take, however long the time limit is.
_MAX_PLANNING_SECONDS = 900.0
# Seconds by the clock that planning has in any case.
_MIN_PLANNING_SECONDS = 1.0
# Shares of the limit on planning: by the clock (the rest is for the work after the last look at it), and for expected
# work.
_CLOCK_SHARE, _WORK_SHARE = 0.85, 0.5
# Items of a loop between looks at the limit.
_ITEMS_PER_LOOK = 1024
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LESS_WORK = "Ask for fewer targets or a larger tolerance, or for one method by name."
_OR_MORE = "seconds or more"
_LESS_MEMORY = "Ask for less at a time, or give the process more memory."


class Call(NamedTuple):
    """The public function that is running.

    Attributes
    ----------
    name : str
        The innermost public function, as errors about its arguments name it ("Ising.grid").
    outermost : str
        The public function that the user called.
    shown : Watch or None
        Where progress is shown; None if it is not shown.
    is_decided : bool
        Whether this call, or one that called it, has decided whether progress is shown.
    deadline : Deadline or None
        The limit on planning; None if there is none.
    within : Within or None
        The larger work, if this thread or process runs a piece of it.
    launches : dict or None
        Launches on the GPU that are collected, to be made together.
    """

    name: str = ""
    outermost: str = ""
    shown: Watch | None = None
    is_decided: bool = False
    deadline: Deadline | None = None
    within: Within | None = None
    launches: Waiting | None = None


_CURRENT: ContextVar[Call] = ContextVar("dobrushin_call", default=Call())  # noqa: B039  a tuple does not change
current, enter, leave = _CURRENT.get, _CURRENT.set, _CURRENT.reset


@contextmanager
def entered(**changes: Any) -> Iterator[None]:
    """Change some attributes of the current call inside a `with` block."""
    token = enter(current()._replace(**changes))
    try:
        yield
    finally:
        leave(token)


# A forked process lacks the thread that draws progress, so it shows none.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: enter(current()._replace(shown=None)))


# The versions of public functions by the class of their first argument.
_VERSIONS: dict[Callable[..., Any], Any] = {}


def public(
    what: str = "", *, name: str = "", read: Callable[[Any], Any] | None = None
) -> Callable[[_Function], _Function]:
    """Decorate a public function, so that errors, progress displays and time limits know that it is running.

    `MemoryError` becomes `BudgetError`, and an `ArgumentError` without a function's name gets this one.

    Parameters
    ----------
    what : str, optional
        What the function is doing, such as "sampling": shown as progress until a stage of the function shows its own.
        The argument `progress` of the function is read here and not passed on. Floating-point underflow is then no
        error, even if the user has made it one, because the bounds include it. Empty for functions that end at once.
    name : str, optional
        How errors call the function; default: its own name, after that of its class.
    read : function, optional
        Reads the first argument. By the class of what it returns, another version of the function may run
        (`version_for`).
    """
    import numpy as np  # not at the top: the command line shows progress before NumPy is loaded

    def decorate(function: _Function) -> _Function:
        parameters = list(inspect.signature(function).parameters)
        of_class = not name and parameters[:1] in (["self"], ["cls"])
        method = "" if function.__name__ in ("__init__", "__post_init__", "__getitem__") else f".{function.__name__}"
        own_name = name or function.__name__
        versions = None if read is None else singledispatch(function)

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            outer, called_name = current(), own_name
            version: Callable[..., Any] = function
            if of_class:
                owner = args[0]
                called_name = (owner if isinstance(owner, type) else type(owner)).__name__ + method
            token = enter(outer._replace(name=called_name, outermost=outer.outermost or called_name))
            try:
                if not what:
                    return version(*args, **kwargs)
                with watch(_take_progress(kwargs), what), np.errstate(under="ignore"):
                    if read is not None and versions is not None and (args or parameters[0] in kwargs):
                        args = (read(args[0] if args else kwargs.pop(parameters[0])), *args[1:])
                        version = versions.dispatch(type(args[0]))
                    return version(*args, **kwargs)
            except BaseException as error:
                if isinstance(error, MemoryError | SystemError):
                    raise translated(error) from None
                if isinstance(error, ArgumentError):
                    error.name_function(called_name)
                # A bare `raise` adds no frame: tracebacks go from the user's line to the function itself.
                error.__traceback__ = _without_wrappers(error.__traceback__)
                raise
            finally:
                leave(token)

        if versions is not None:
            _VERSIONS[called] = versions
        return cast("_Function", called)

    return decorate


def version_for(function: Callable[..., Any], kind: type) -> Callable[[_Function], _Function]:
    """Register a function as the version of a public function for first arguments of the class `kind`."""
    register: Callable[[_Function], _Function] = _VERSIONS[function].register(kind)
    return register


def _take_progress(arguments: dict[str, Any]) -> bool | None:
    """Remove the argument `progress` from a call's arguments and return it; default: that of its run options."""
    progress: bool | None = arguments.pop("progress", None)
    if progress is not None or arguments.get("run") is None:
        return progress
    from dobrushin._shared.running import read_options

    return read_options(arguments["run"]).progress


def _without_wrappers(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the user's line, however deep inside the package it arises."""
    frame, level, outermost = sys._getframe(1), 2, 2
    while frame.f_back is not None:
        level += 1
        if frame.f_code.co_filename.startswith(_PACKAGE):
            outermost = level
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=outermost)


def translated(error: BaseException) -> BaseException:
    """Return the error to raise instead: a `BudgetError` for a `MemoryError`; other errors as they are."""
    if isinstance(error, SystemError):
        # An interrupt while compiled code is entered or left arrives inside a SystemError.
        reason: BaseException | None = error
        while reason is not None and not isinstance(reason, KeyboardInterrupt | MemoryError):
            reason = reason.__cause__ or reason.__context__
        error = reason or error
    if not isinstance(error, MemoryError):
        return error
    from dobrushin._shared.memory import free_memory

    what = f"dobrushin.{current().outermost}"
    try:
        free = free_memory()
    except MemoryError:  # not even enough to read what is free
        free = 1.0
    # NumPy says which array could not be made, Python does not.
    shape, dtype = getattr(error, "shape", ()), getattr(error, "dtype", None)
    size = float(math.prod(shape)) * dtype.itemsize if dtype is not None else 0.0
    return BudgetError(what, max(size, free), free, "bytes or more", _LESS_MEMORY)


@contextmanager
def guarded() -> Iterator[None]:
    """Turn a `MemoryError` inside the block into a `BudgetError`."""
    try:
        yield
    except (MemoryError, SystemError) as error:
        raise translated(error) from None


# -- what it shows -----------------------------------------------------------------------------


@contextmanager
def watch(progress: bool | None, what: str = "") -> Iterator[None]:
    """Show progress inside a `with` block as `progress` says, unless an outer call has decided this already."""
    call = current()
    if call.is_decided:
        with stage(what):
            yield
        return
    place = display_for(progress)
    shown = None if place is None else Watch(place)
    is_done = False
    try:
        with entered(shown=shown, is_decided=True), stage(what):
            yield
        is_done = True
    finally:
        if shown is not None:
            shown.end(call.name or "dobrushin", is_done)


def loading() -> AbstractContextManager[None]:
    """Show that the package is being loaded, but not in a notebook, where the output would stay."""
    return watch(False if is_notebook() else None, "loading")


@contextmanager
def stage(
    what: str, total: int | None = None, unit: str = "updates", deadline: Deadline | None = None
) -> Iterator[Callable[[int], None] | None]:
    """Show progress of one stage of the call inside a `with` block, as a bar if `total` is known.

    Yields a function to be called with the number of units done; None if nothing is shown. The `deadline`, if any, is
    the one that may end the stage early.
    """
    shown = current().shown
    if shown is None or not what:
        yield None
        return
    stage = Stage(what, total, unit, deadline)
    shown.enter(stage)
    try:
        yield stage.report
    finally:
        shown.leave(stage)


def bar(
    total: int, what: str, unit: str = "updates", deadline: Deadline | None = None
) -> AbstractContextManager[Callable[[int], None] | None]:
    return stage(what, total, unit, deadline)


# -- how long it may take ----------------------------------------------------------------------


class LateError(BudgetError):
    """Work has taken longer than its time limit, or is expected to."""


class Deadline:
    """A time limit in seconds from now, by a clock that stops while code is compiled.

    The deadline of planning also limits the expected seconds of work, which stages charge before they do it (`charge`),
    to half of its time. On an ordinary machine this limit is reached first, so that the same call has the same plan;
    the clock is the last guard. Other deadlines go by the clock alone.

    Inside of a `with` statement the deadline is the current one (`current_deadline`).

    Attributes
    ----------
    limit : float
        Seconds by the clock; may be infinite.
    work : float
        Seconds of expected work; may be infinite.
    what : str
        The name, in errors, of the activity that is limited.
    """

    def __init__(
        self,
        limit: float,
        what: str = "Planning",
        *,
        work: float = math.inf,
        remedy: str = _LESS_WORK,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limit, self.work, self.what, self._remedy = limit, work, what, remedy
        self._clock = clock or working_clock
        self.expected = 0.0
        self._begin = self._clock()
        self._outer: Deadline | None = None
        self._tokens: list[Token[Call]] = []

    @property
    def spent(self) -> float:
        """Seconds since the deadline was created."""
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left by the clock; 0 if the limit is over."""
        return max(0.0, self.limit - self.spent)

    @property
    def work_left(self) -> float:
        """Seconds of expected work that are left; the same in every run of a call, unlike `left`."""
        return max(0.0, self.work - self.expected)

    @property
    def is_over(self) -> bool:
        return self.spent > self.limit

    def check(self, stage: str = "") -> None:
        """Raise `LateError`, which names the stage, if the time is over."""
        if self.spent > self.limit:
            raise self.error(self._at(stage))

    def charge(self, seconds: float, stage: str = "") -> None:
        """Charge seconds of expected work; raise `LateError` if fewer are left."""
        self.check(stage)
        if self.expected + seconds > self.work:
            raise LateError(self._at(stage), self.expected + seconds, self.work, _OR_MORE, self._remedy)
        limit: Deadline | None = self
        while limit is not None:
            limit.expected += seconds
            limit = limit._outer

    def error(self, what: str) -> LateError:
        """Return the error for work that needs more time than is left."""
        return LateError(what, self.spent, self.limit, _OR_MORE, self._remedy)

    def _at(self, stage: str) -> str:
        return f"{self.what} ({stage})" if stage else self.what

    def part(self, share: float, what: str = "A stage of planning") -> Deadline:
        """Return a limit for the next stage: a share of the expected work that is left.

        Its share of the time by the clock is larger, so that the expected work decides even on a busy machine.
        """
        limits = {"limit": self.left * math.sqrt(share), "work": self.work_left * share}
        part = Deadline(**limits, what=what, remedy=self._remedy, clock=self._clock)
        part._outer = self
        return part

    def __enter__(self) -> Deadline:
        self._tokens.append(enter(current()._replace(deadline=self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self._tokens.pop())


NO_DEADLINE = Deadline(math.inf)


def limited(deadline: Deadline) -> AbstractContextManager[Any]:
    """Make a deadline the current one inside a `with` block; `NO_DEADLINE` leaves the current one."""
    return nullcontext() if deadline is NO_DEADLINE else deadline


def current_deadline() -> Deadline:
    """Return the time limit of the current call; if there is none, a limit that never ends."""
    return current().deadline or NO_DEADLINE


def checked(items: Iterable[_Item], stage: str) -> Iterator[_Item]:
    """Yield the items; raise `LateError` once the time limit of the call is over."""
    for k, item in enumerate(items):
        if k % _ITEMS_PER_LOOK == 0:
            current_deadline().check(stage)
        yield item


def planning_deadline(seconds: float | None, is_saved: bool = False) -> Deadline:
    """Return the time limit for planning in a call whose own limit is `seconds` (None: no limit).

    A call with a checkpoint may resume later, with more time: it plans like a call without a limit.
    """
    if is_saved:
        return Deadline(
            max(PLANNING if seconds is None else seconds, _MIN_PLANNING_SECONDS), work=_WORK_SHARE * PLANNING
        )
    limit = PLANNING if seconds in (None, math.inf) else min(_MAX_PLANNING_SECONDS, PLANNING_SHARE * (seconds or 0.0))
    # A call with very little time may exceed it by a second, rather than end without a plan.
    return Deadline(max(_CLOCK_SHARE * limit, _MIN_PLANNING_SECONDS), work=_WORK_SHARE * limit)
