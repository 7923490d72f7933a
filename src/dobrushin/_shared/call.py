"""The call under way: its name, where it shows progress, and how long its planning may take.

Every public function is `public`: it becomes the current call while it runs. Errors that leave it take its name, stages
and bars find here where they are shown, and planning finds here the limit that it has to keep.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dobrushin._shared.progress import Stage, Watch, begin_watch, end_watch, is_notebook
from dobrushin.errors import ArgumentError, BudgetError

if TYPE_CHECKING:
    from dobrushin._shared.deadline import Deadline

_Function = TypeVar("_Function", bound=Callable[..., Any])
_REMEDY = "Ask for less at a time, or give the process more memory."


class Call:
    """A public function that runs.

    Attributes
    ----------
    name : str
        The innermost public function, as errors about its arguments name it ("Ising.grid").
    outermost : str
        The public function that the user called.
    shown : Watch or None
        Where progress is shown; None for nowhere.
    is_decided : bool
        Whether this call or one around it has decided whether progress is shown.
    deadline : Deadline or None
        The limit on planning; None if there is none.
    """

    __slots__ = ("deadline", "is_decided", "name", "outermost", "shown")

    def __init__(
        self,
        name: str = "",
        outermost: str = "",
        shown: Watch | None = None,
        is_decided: bool = False,
        deadline: Deadline | None = None,
    ) -> None:
        self.name, self.outermost, self.deadline = name, outermost, deadline
        self.shown, self.is_decided = shown, is_decided

    def with_deadline(self, deadline: Deadline) -> Call:
        """Return the same call with another limit on planning."""
        return Call(self.name, self.outermost, self.shown, self.is_decided, deadline)


_OUTSIDE = Call()
_CURRENT: ContextVar[Call] = ContextVar("dobrushin_call", default=_OUTSIDE)
current, enter, leave = _CURRENT.get, _CURRENT.set, _CURRENT.reset


def _forget_display() -> None:
    """In a process that was forked, show nothing: the thread that draws did not come along."""
    call = current()
    if call.is_decided:
        enter(Call(call.name, call.outermost, None, True, call.deadline))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_display)


def public(what: str = "", *, name: str = "") -> Callable[[_Function], _Function]:
    """Make a function, method or constructor of the public interface the current call while it runs.

    `MemoryError` becomes `BudgetError`, and an `ArgumentError` without a function's name gets this one.

    Parameters
    ----------
    what : str, optional
        What the function is doing, which is shown while no other stage is, as its argument `progress` says; the
        argument goes no further than here. Underflow is then no error, also where users made it one: bounds count
        with it. Functions that end in a moment have none.
    name : str, optional
        How errors call the function; default: its own name, after that of its class.
    """
    import numpy as np  # not at the top: the command line shows progress before NumPy is loaded

    def decorate(function: _Function) -> _Function:
        parameters = list(inspect.signature(function).parameters)
        of_class = not name and parameters[:1] in (["self"], ["cls"])
        method = "" if function.__name__ in ("__init__", "__post_init__", "__getitem__") else f".{function.__name__}"
        own_name = name or function.__name__

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            outer, called_name = current(), own_name
            if of_class:
                owner = args[0]
                called_name = (owner if isinstance(owner, type) else type(owner)).__name__ + method
            call = Call(called_name, outer.outermost or called_name, outer.shown, outer.is_decided, outer.deadline)
            token = enter(call)
            try:
                if not what:
                    return guarded(function, *args, **kwargs)
                with watch(kwargs.pop("progress", None), what), np.errstate(under="ignore"):
                    return guarded(function, *args, **kwargs)
            except ArgumentError as error:
                error.name_function(called_name)
                raise
            finally:
                leave(token)

        return cast("_Function", called)

    return decorate


def guarded(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function; where memory runs out, raise `BudgetError`."""
    try:
        try:
            return function(*args, **kwargs)
        except SystemError as error:
            # What reaches compiled code while it is entered or left comes as a SystemError around it.
            reason: BaseException | None = error
            while reason is not None and not isinstance(reason, KeyboardInterrupt | MemoryError):
                reason = reason.__cause__ or reason.__context__
            raise reason or error from None
    except MemoryError as error:
        from dobrushin._shared.memory import free_memory

        free, what = free_memory(), f"dobrushin.{current().outermost}"
        raise BudgetError(what, max(_size_of(error), free), free, "bytes or more", _REMEDY) from None


def _size_of(error: Any) -> float:
    """Bytes of the array that could not be made; 0 where the error does not say."""
    shape, dtype = getattr(error, "shape", ()), getattr(error, "dtype", None)
    return float(math.prod(shape)) * dtype.itemsize if dtype is not None else 0.0


# -- what it shows -----------------------------------------------------------------------------


@contextmanager
def watch(progress: bool | None, what: str = "") -> Iterator[None]:
    """Show what is done inside, as `progress` says; inside of another one, the outer one decides."""
    call = current()
    if call.is_decided:
        with stage(what):
            yield
        return
    shown = begin_watch(progress)
    token = enter(Call(call.name, call.outermost, shown, True, call.deadline))
    is_done = False
    try:
        with stage(what):
            yield
        is_done = True
    finally:
        leave(token)
        if shown is not None:
            end_watch(shown, call.name or "dobrushin", is_done)


def loading() -> AbstractContextManager[None]:
    """Show that the package is loaded: in a terminal only, as outputs of a notebook stay."""
    return watch(False if is_notebook() else None, "loading")


def stage(what: str) -> AbstractContextManager[Stage | None]:
    """Say what is done inside."""
    return _entered(Stage(what, None, ""))


@contextmanager
def bar(
    total: int, what: str, unit: str = "updates", deadline: Deadline | None = None
) -> Iterator[Callable[[int], None] | None]:
    """A function to be told how many of all are done, or None where there is nobody to see it.

    A `deadline` may end the work before all are done.
    """
    with _entered(Stage(what, total, unit, deadline)) as entered:
        yield None if entered is None else entered.report


@contextmanager
def _entered(stage: Stage) -> Iterator[Stage | None]:
    shown = current().shown
    if shown is None or not stage.what:
        yield None
        return
    shown.enter(stage)
    try:
        yield stage
    finally:
        shown.leave(stage)
