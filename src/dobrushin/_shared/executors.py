"""Runs pieces of work on an executor; the value that they share is sent only once.

Any `concurrent.futures.Executor` will do. Threads get the shared value itself. Processes of this machine read a large
one from a file that is written once. Dask is given it as a task of its own, so that it goes once to each worker, and is
made again if the workers that had it are lost.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dobrushin._shared.call import current
from dobrushin._shared.clock import Presses, noted_interrupts
from dobrushin._shared.environment import log
from dobrushin._shared.memory import has_room_for_threads
from dobrushin.errors import ArgumentError, Interrupted, WorkerError

# Pieces that are handed to the executor before the first of them is done.
AT_ONCE = 64
# Shared values of more bytes travel once, smaller ones with each piece.
_LARGE_BYTES = 2**18
# Seconds to wait for pieces that were told to stop; fewer where a limit in time was promised.
_STOP_SECONDS, _HURRIED_STOP_SECONDS = 5.0, 1.0
# The last shared value that this process read: path and value.
_read: tuple[str, Any] = ("", None)


class Lost(Exception):
    """The executor ended before the work did."""


class TimeUp(Exception):
    """The time of the work ended before the work did."""


# Events that end a run early.
Trouble = KeyboardInterrupt | Lost | TimeUp
_RESUME = "With RunOptions(checkpoint=) the same call could go on from there, with a new executor."
_RESUME_SAVED = "It is in the checkpoint: the same call with a new executor goes on from there."


def raise_trouble(
    trouble: Trouble | None, result: Any, done: int, wanted: int, what: str, *, is_saved: bool = False, hint: str = ""
) -> None:
    """Raise what ended a run before its time, with the partial result; return where that was the limit in time.

    `done` of `wanted` `what` ("chains") had finished. The `hint` says how to resume, if not with a checkpoint.
    """
    if isinstance(trouble, KeyboardInterrupt):
        raise Interrupted(f"{done} of {wanted} {what} had finished", hint, result=result)
    if isinstance(trouble, Lost):
        hint = hint or (_RESUME_SAVED if is_saved else _RESUME)
        raise WorkerError(str(trouble), done, wanted, what, hint, result=result)


@dataclass(frozen=True)
class Within:
    """The larger work of which a thread or process runs a piece, while other cores run other pieces.

    Attributes
    ----------
    cores : int
        Number of cores that plans are made for, the same wherever the piece is done.
    stopped : threading.Event, optional
        Set when the work is to stop, where the piece shares memory with it.
    """

    cores: int
    stopped: threading.Event | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether the work is to stop."""
        return self.stopped is not None and self.stopped.is_set()


def own_executor() -> Executor | None:
    """Return the executor of a call that is given none: None stands for threads, one per core."""
    whole = current().within
    return None if whole is None else Inline(whole)


class Inline(Executor):
    """Runs each piece at once, in the thread that submits it."""

    def __init__(self, whole: Within) -> None:
        self._whole = whole

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._whole.is_stopped:
            raise BrokenExecutor("told to stop")
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def own_threads(count: int) -> Executor:
    """Return threads for one call, or this thread alone where memory is short: a thread without memory never begins."""
    return ThreadPoolExecutor(count) if has_room_for_threads(count) else Inline(Within(cores()))


def read_executor(executor: Any) -> Executor | None:
    """Return the executor; fail if the value is not one.

    A piece that runs in a thread of the pool that it is given runs there alone: to wait for the other threads of a pool
    that waits for this one would take forever.
    """
    if executor is None:
        return None
    if hasattr(executor, "get_executor"):
        requirement = "a concurrent.futures.Executor; of a Dask client that is client.get_executor()"
        raise ArgumentError("executor", requirement, executor)
    if isinstance(executor, type) or not hasattr(executor, "submit"):
        raise ArgumentError("executor", "a concurrent.futures.Executor", executor)
    prefix = getattr(executor, "_thread_name_prefix", None)  # not `_threads`, which knows a thread too late
    if prefix and threading.current_thread().name.startswith(f"{prefix}_"):
        return Inline(Within(cores()))
    return executor


def cores() -> int:
    """Return the number of cores that plans are made for."""
    whole = current().within
    return os.cpu_count() or 1 if whole is None else whole.cores


def workers_of(executor: Executor | None) -> int:
    """Return how many pieces run at once, as far as the executor tells."""
    client = _dask_client(executor)
    if client is not None:
        with suppress(Exception):  # a client that is closed says so when it is given work
            return max(1, sum(client.nthreads().values()))
    return int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)


def shares_memory(executor: Executor | None) -> bool:
    """Return whether the pieces run in this process."""
    return executor is None or isinstance(executor, ThreadPoolExecutor | Inline)


class _File(NamedTuple):
    """A file that holds a shared value."""

    path: str


@contextmanager
def share(value: Any, executor: Executor | None) -> Iterator[Any]:
    """Yield a stand-in for a value that all pieces need, to be passed to them; `receive` turns it back."""
    if (client := _dask_client(executor)) is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")  # once, and not again with each piece
            try:
                future = client.submit(_itself, value, pure=False)
            except Exception as error:
                raise _refusal(error) from None
        yield future
        return
    data = b""
    if isinstance(executor, ProcessPoolExecutor):
        try:
            data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _unsendable(error) from None
    if len(data) <= _LARGE_BYTES:
        yield value
        return
    shared, folder = value, ""
    try:
        folder = tempfile.mkdtemp(prefix="dobrushin-")
        with open(path := os.path.join(folder, "shared"), "wb") as file:
            file.write(data)
        shared = _File(path)
    except OSError as error:
        log.warning("temporary files cannot be written (%s): what workers share is sent with each piece", error)
    del data
    try:
        yield shared
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def receive(value: Any) -> Any:
    """Return the shared value, in a worker."""
    global _read
    if not isinstance(value, _File):
        return value
    path, known = _read
    if path != value.path:
        with open(value.path, "rb") as file:
            known = pickle.load(file)
        _read = (value.path, known)
    return known


class Finished(Protocol):
    """Takes results by number, like a dict."""

    def __setitem__(self, number: int, result: Any, /) -> None: ...


def run_pieces(
    executor: Executor,
    submit: Callable[[Executor, int], Future[Any]],
    numbers: Iterable[int],
    finished: Finished,
    *,
    look: Callable[[], None],
    stop: Callable[[], None],
) -> Trouble | None:
    """Run pieces by number; `finished` gets what they return, also when not all of them come to an end.

    Parameters
    ----------
    submit : function
        Hands one piece to the executor.
    numbers : iterable
        Asked for the next one only when there is room for it.
    look : function
        Called a few times a second. It may raise `TimeUp`.
    stop : function
        Called when the pieces under way should stop.

    Returns
    -------
    KeyboardInterrupt, Lost, TimeUp or None
        What ended the run before its time. Errors of the pieces themselves are raised.
    """
    # A piece that runs in this thread holds no locks, and is to be interrupted.
    with nullcontext(Presses()) if isinstance(executor, Inline) else noted_interrupts() as presses:
        pending: dict[Future[Any], int] = {}
        trouble: Trouble | None = None
        patience = _STOP_SECONDS
        try:
            for _ in _rounds(executor, submit, numbers, pending):
                # Not what `wait` returns: it overlooks what another thread has cancelled.
                for future in [future for future in pending if future.done()]:
                    number = pending[future]
                    finished[number] = _result(future)
                    del pending[future]
                look()
                presses.look()
        except (KeyboardInterrupt, Lost) as ending:
            trouble = ending
        except TimeUp as ending:
            trouble, patience = ending, _HURRIED_STOP_SECONDS
        finally:
            if pending:
                _leave(pending, finished, stop, patience, presses)
    return KeyboardInterrupt() if trouble is None and presses.count else trouble  # pressed after the last look


def _rounds(
    executor: Executor,
    submit: Callable[[Executor, int], Future[Any]],
    numbers: Iterable[int],
    pending: dict[Future[Any], int],
) -> Iterator[None]:
    """Keep the executor busy; yield whenever a piece has ended or 0.2 s have passed."""
    waiting = iter(numbers)
    following = next(waiting, None)
    most = max(AT_ONCE, 2 * workers_of(executor))
    begun = False
    while pending or following is not None:
        while following is not None and len(pending) < most:
            try:
                future = submit(executor, following)
            except BrokenExecutor as error:
                raise Lost(str(error)) from None
            except ArgumentError:
                raise
            except Exception as error:
                if not begun:
                    raise _refusal(error) from None
                raise Lost(f"it takes no more work: {error}") from None
            if not isinstance(future, Future):
                raise ArgumentError("executor", "one whose submit returns a Future", future)
            begun = True
            pending[future] = following
            following = next(waiting, None)
            if future.done():  # at once, in this thread: others would keep it from looking
                break
        wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        yield


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except pickle.PicklingError as error:
        raise _unsendable(error) from None
    except (BrokenExecutor, CancelledError) as error:
        raise Lost(str(error) or "pieces of the work were cancelled") from None
    except Exception as error:
        if type(error).__name__ == "KilledWorker":  # of Dask, when a piece has taken several workers with it
            raise Lost(str(error)) from None
        raise


def _leave(
    pending: dict[Future[Any], int], finished: Finished, stop: Callable[[], None], patience: float, presses: Presses
) -> None:
    """Cancel the pieces that have not begun, and wait for the others at most `patience` seconds."""
    stop()
    for future in pending:
        future.cancel()
    with suppress(KeyboardInterrupt):
        end, pressed = time.monotonic() + patience, presses.count
        while (left := [future for future in pending if not future.done()]) and time.monotonic() < end:
            wait(left, timeout=0.2)
            if presses.count > pressed:  # again: waited long enough
                break
    for future, number in pending.items():
        if future.done() and not future.cancelled() and future.exception() is None:
            finished[number] = future.result()


def _unsendable(error: Exception) -> ArgumentError:
    requirement = "one whose workers can be sent the work; functions have to be importable, not lambdas"
    return ArgumentError("executor", requirement, got=f"a process pool ({error})")


def _refusal(error: Exception) -> ArgumentError:
    return ArgumentError("executor", "one that takes work", got=f"an executor that refused it ({error})")


def _dask_client(executor: Any) -> Any:
    """Return the client behind an executor of Dask's, which is not imported for this."""
    if type(executor).__module__.startswith("distributed."):
        return getattr(executor, "_client", None)
    return None


def _itself(value: Any) -> Any:
    return value
