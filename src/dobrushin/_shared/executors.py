"""Run pieces of work on an executor, sending the value that all pieces need only once.

Any `concurrent.futures.Executor` will do. Threads get the shared value itself. Processes on this machine read a large
value from a file. Dask gets it as a task of its own, so that it is sent once to each worker, and again if workers that
had it are lost.
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
    """The executor ended before the work was done."""


class TimeUp(Exception):
    """The time limit was reached before the work was done."""


# Events that end a run early.
Trouble = KeyboardInterrupt | Lost | TimeUp
_RESUME = "With RunOptions(checkpoint=...) the same call could resume from there, with a new executor."
_RESUME_SAVED = "The checkpoint has these results: the same call with a new executor resumes from there."


def raise_trouble(
    trouble: Trouble | None, result: Any, done: int, wanted: int, what: str, *, is_saved: bool = False, hint: str = ""
) -> None:
    """Raise the error for a run that ended early, with its partial result; return if the time limit ended it.

    `done` of `wanted` items, called `what` ("chains"), had finished. The `hint` says how to resume without a
    checkpoint.
    """
    if isinstance(trouble, KeyboardInterrupt):
        raise Interrupted(f"{done} of {wanted} {what} had finished", hint, result=result)
    if isinstance(trouble, Lost):
        hint = hint or (_RESUME_SAVED if is_saved else _RESUME)
        raise WorkerError(str(trouble), done, wanted, what, hint, result=result)


@dataclass(frozen=True)
class Within:
    """The larger work of which a thread or process runs one piece, while other cores run other pieces.

    Attributes
    ----------
    cores : int
        Number of cores that plans assume, the same in whichever process the piece runs.
    stopped : threading.Event, optional
        Set when the work has to stop, if the piece shares memory with the larger work.
    """

    cores: int
    stopped: threading.Event | None = None

    @property
    def is_stopped(self) -> bool:
        return self.stopped is not None and self.stopped.is_set()


def own_executor() -> Executor | None:
    """Return the executor of a call to which none was given; None stands for threads, one per core."""
    whole = current().within
    return None if whole is None else Inline(whole)


class Inline(Executor):
    """Executor that runs each piece at once, in the thread that submits it."""

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
    """Return an executor with threads of its own for one call.

    Without enough memory for them, it runs everything in this thread: a thread without memory would never begin.
    """
    return ThreadPoolExecutor(count) if has_room_for_threads(count) else Inline(Within(cores()))


def read_executor(executor: Any) -> Executor | None:
    """Return the executor of a call; fail if the value is no executor.

    If this thread belongs to the pool that is given, the work runs in this thread alone: waiting for other threads of
    the pool could take forever, since they may wait for this one.
    """
    if executor is None:
        return None
    if hasattr(executor, "get_executor"):
        requirement = "a concurrent.futures.Executor; of a Dask client that is client.get_executor()"
        raise ArgumentError("executor", requirement, executor)
    if isinstance(executor, type) or not hasattr(executor, "submit"):
        raise ArgumentError("executor", "a concurrent.futures.Executor", executor)
    prefix = getattr(
        executor, "_thread_name_prefix", None
    )  # not `_threads`, to which a thread is added only after it has started
    if prefix and threading.current_thread().name.startswith(f"{prefix}_"):
        return Inline(Within(cores()))
    return executor


def cores() -> int:
    """Return the number of cores that plans assume."""
    whole = current().within
    return os.cpu_count() or 1 if whole is None else whole.cores


def workers_of(executor: Executor | None) -> int:
    """Return how many pieces an executor runs at once, as far as it tells."""
    client = _dask_client(executor)
    if client is not None:
        with suppress(Exception):  # a client that is closed says so when it is given work
            return max(1, sum(client.nthreads().values()))
    return int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)


def shares_memory(executor: Executor | None) -> bool:
    """Return whether an executor runs pieces in this process."""
    return executor is None or isinstance(executor, ThreadPoolExecutor | Inline)


class _File(NamedTuple):
    path: str


@contextmanager
def share(value: Any, executor: Executor | None) -> Iterator[Any]:
    """Send a value that all pieces need to the workers; yield its stand-in, which `receive` turns back there."""
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
        log.warning(
            "temporary files cannot be written (%s): the data that workers share are sent with each piece of work",
            error,
        )
    del data
    try:
        yield shared
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def receive(value: Any) -> Any:
    """Return the value that a stand-in from `share` represents; called by workers."""
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
    """Container that takes the result of each piece by its number, like a dict."""

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
    """Run numbered pieces of work, and store their results in `finished`, even if the run ends early.

    Parameters
    ----------
    submit : function
        Submits one piece to the executor.
    numbers : iterable
        Numbers of the pieces; the next one is taken only when the executor has room for it.
    look : function
        Called a few times a second. It may raise `TimeUp`.
    stop : function
        Called when running pieces have to stop.

    Returns
    -------
    KeyboardInterrupt, Lost, TimeUp or None
        Why the run ended early, if it did. Errors of the pieces themselves are raised.
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
    """Keep the executor busy with pieces; yield whenever one has ended or 0.2 s have passed."""
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
                raise Lost(f"it accepts no more work: {error}") from None
            if not isinstance(future, Future):
                raise ArgumentError("executor", "one whose submit returns a Future", future)
            begun = True
            pending[future] = following
            following = next(waiting, None)
            if future.done():  # done already, in this thread: look before the next one
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
    """Cancel pieces that have not begun, and wait at most `patience` seconds for the others."""
    stop()
    for future in pending:
        future.cancel()
    with suppress(KeyboardInterrupt):
        end, pressed = time.monotonic() + patience, presses.count
        while (left := [future for future in pending if not future.done()]) and time.monotonic() < end:
            wait(left, timeout=0.2)
            if presses.count > pressed:  # pressed again: do not wait any longer
                break
    for future, number in pending.items():
        if future.done() and not future.cancelled() and future.exception() is None:
            finished[number] = future.result()


def _unsendable(error: Exception) -> ArgumentError:
    requirement = "one whose workers can be sent the work; functions have to be importable, not lambdas"
    return ArgumentError("executor", requirement, got=f"a process pool ({error})")


def _refusal(error: Exception) -> ArgumentError:
    return ArgumentError("executor", "one that accepts work", got=f"an executor that refused it ({error})")


def _dask_client(executor: Any) -> Any:
    """Return the Dask client behind an executor; None for executors of other libraries."""
    if type(executor).__module__.startswith("distributed."):
        return getattr(executor, "_client", None)
    return None


def _itself(value: Any) -> Any:
    return value
