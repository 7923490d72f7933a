"""What a trial of the soak test does to a call: signals, kills, limits of memory and disk, damaged files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin._shared import state_file
from soak_calls import MAKERS, RESUMABLE, TIMED, Work, carried, is_same, make_exact_sample, make_sample
from soak_cli import make_cli
from soak_models import Case, random_case, small_case

# Errors that a caller is told to expect, whatever the arguments and the machine.
_TOLD = (
    db.BudgetError, db.CertificateError, db.ToleranceError, db.CoalescenceError, db.WorkerError, db.FormatError,
)  # fmt: skip
# Seconds beyond time_limit= that a call may take.
GRACE = 2.0
# Seconds that calls of trials with a signal may take at most, should the signal come too late for them.
_LONGEST = 5.0
# Calls of trials that make them several times are shorter.
_SHORT = 2.0
_NEW_NAMESPACE, _PRIVATE, _READ_ONLY = 0x00020000, (1 << 18) | (1 << 14), 1


@dataclass
class Trial:
    """What a trial was about, and what was found."""

    about: str = ""
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, faults: list[str]) -> None:
        """Note faults; each begins with its kind."""
        self.faults += faults


@dataclass
class Outcome:
    """What became of a call."""

    value: Any
    error: BaseException | None
    seconds: float


def observe(trial: Trial, work: Work, *, refusable: bool = False, signalled: bool = False, **how: Any) -> Outcome:
    """Make a call and judge what it returns, or how it ends."""
    value: Any = None
    error: BaseException | None = None
    begin = time.perf_counter()
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler if signalled else signal.SIG_IGN)
            value = work.run(**how)
        except BaseException as raised:  # whatever it is, it is looked at
            error = raised
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt as late:  # on the way out of the call
        value, error = None, late
    seconds = time.perf_counter() - begin
    judge(trial, work, value, error, refusable or work.may_refuse, signalled)
    return Outcome(value, error, seconds)


def judge(trial: Trial, work: Work, value: Any, error: BaseException | None, refusable: bool, signalled: bool) -> None:
    """Note what is wrong with how a call ended."""
    if error is None:
        trial.add(work.judge(value))
        return
    expected = isinstance(error, _TOLD) or (refusable and isinstance(error, db.ArgumentError))
    if signalled and isinstance(error, KeyboardInterrupt):
        expected = True
        trial.notes.append("interrupted" if carried(error) is not None else "interrupted with nothing to show")
    if not expected:
        trial.add([f"bare: {work.name}: " + "".join(traceback.format_exception(error))])
    if carried(error) is not None and work.carries_parts:
        # The error itself says that the tolerance was not reached.
        trial.add([fault for fault in work.judge(carried(error)) if not fault.startswith("promise: within")])
    elif isinstance(error, db.CertificateError | db.BudgetError) and work.name.startswith("estimate ("):
        trial.add([f"promise: {type(error).__name__} of {work.name} without an estimate: {error}"])


# -- what is done to calls --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def interruption(rng: np.random.Generator, longest: float) -> Iterator[None]:
    """Another process sends this one Ctrl-C at a random time, sometimes twice, sometimes to all its workers too."""
    delay, twice, everywhere = longest * rng.random() ** 2, rng.random() < 0.2, rng.random() < 0.5
    pause, target = rng.random() ** 2, os.getpid()
    sender = os.fork()
    if sender == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for wait in (delay, pause)[: 2 if twice else 1]:
            time.sleep(wait)
            (os.killpg if everywhere else os.kill)(os.getpgrp() if everywhere else target, signal.SIGINT)
        os._exit(0)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(sender, signal.SIGKILL)
        os.waitpid(sender, 0)


def kill_a_worker(pool: Executor, delay: float) -> None:
    """Kill one worker of a process pool, after a while."""

    def kill() -> None:
        pids = list(getattr(pool, "_processes", None) or ())
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[0], signal.SIGKILL)

    timer = threading.Timer(delay, kill)
    timer.daemon = True
    timer.start()


def run_and_kill(call: Callable[[], Any], delay: float) -> None:
    """Make a call in another process, which is killed after a while."""
    victim = os.fork()
    if victim == 0:
        with contextlib.suppress(BaseException):
            call()
        os._exit(0)
    time.sleep(delay)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)


def damage(rng: np.random.Generator, file: Path) -> None:
    """Cut a file at a random byte, or change some."""
    data = bytearray(file.read_bytes())
    if rng.random() < 0.6:
        data = data[: int(rng.integers(len(data)))]
    else:
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
    file.write_bytes(bytes(data))


def mount(folder: Path, size: int, read_only: bool) -> bool:
    """Put a small file system of its own on a folder; it ends with this process. False where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NAMESPACE) or libc.mount(b"none", b"/", None, _PRIVATE, None):
        return False
    flags = _READ_ONLY if read_only else 0
    return not libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, f"size={size}".encode())


def unwritable(rng: np.random.Generator, folder: Path) -> str:
    """Make a folder full, or read-only."""
    read_only = bool(rng.random() < 0.4)
    size = 4096 * int(rng.integers(1, 12))
    if mount(folder, size, read_only):
        if not read_only:
            _fill(folder, int(rng.integers(0, 8192)))
        return "a read-only folder" if read_only else "a full disk"
    if read_only and os.getuid() != 0:
        folder.chmod(0o555)
        return "a read-only folder"
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(rng.integers(0, 8192)), resource.RLIM_INFINITY))
    return "files of a limited size"


def _fill(folder: Path, left: int) -> None:
    """Leave so many bytes."""
    space = os.statvfs(folder)
    with contextlib.suppress(OSError), open(folder / "filler", "wb") as file:
        file.write(bytes(max(0, space.f_bavail * space.f_frsize - left)))


@contextlib.contextmanager
def less_memory(rng: np.random.Generator) -> Iterator[str]:
    """Little more address space than there is now."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    more = int(rng.choice([16, 64, 256])) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
    try:
        yield f"{more >> 20} MiB of memory left"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def random_pool(rng: np.random.Generator) -> Executor | None:
    """Threads, processes, or what the call takes by itself."""
    kind = rng.integers(4)
    if kind == 0:
        return ProcessPoolExecutor(2)
    return ThreadPoolExecutor(2) if kind == 1 else None


# -- trials -----------------------------------------------------------------------------------------------------------


def _make(rng: np.random.Generator, makers: Any, is_heavy: bool, case: Case | None = None) -> tuple[Work, str]:
    case = case or random_case(rng)
    work = makers[rng.integers(len(makers))](rng, case, is_heavy)
    return work, f"{work.name} on {case.name}"


def plain(rng: np.random.Generator, trial: Trial, folder: Path) -> None:
    """Any call, nothing done to it."""
    if rng.random() < 0.2:
        work, about = make_cli(rng, False, folder, folder), "files"
    else:
        work, about = _make(rng, MAKERS, is_heavy=False)
    trial.about = f"{work.name}, {about}"
    observe(trial, work, **({"time_limit": _LONGEST} if "time_limit" in work.takes else {}))


def in_time(rng: np.random.Generator, trial: Trial, folder: Path) -> None:
    """A call that is too long for its time; one that takes too long is made again, when all is compiled."""
    seconds = float(rng.choice([1e-6, 0.05, 0.3, 1.0]))
    how: dict[str, Any] = {"time_limit": seconds}
    if rng.random() < 0.2:
        work = make_cli(rng, True, folder, folder)
        trial.about = f"{work.name} in {seconds} s"
    else:
        work, about = _make(rng, TIMED, is_heavy=True)
        trial.about = f"{about} in {seconds} s"
        if "checkpoint" in work.takes and rng.random() < 0.3:
            how["checkpoint"] = folder / "run"
        if "executor" in work.takes:
            how["executor"] = random_pool(rng)
    if "time_limit" not in work.takes:
        how = {}
    if observe(trial, work, **how).seconds > seconds + GRACE and how:
        again = observe(trial, work, **how)
        if again.seconds > seconds + GRACE:
            trial.add([f"overrun: {work.name} took {again.seconds:.1f} s instead of {seconds}"])


def interrupted(rng: np.random.Generator, trial: Trial, folder: Path) -> None:
    """A call that is ended by Ctrl-C."""
    if rng.random() < 0.2:
        work, about = make_cli(rng, True, folder, folder), "files"
    else:
        work, about = _make(rng, MAKERS, is_heavy=True)
    trial.about = f"Ctrl-C in {work.name}, {about}"
    how: dict[str, Any] = {"time_limit": _LONGEST} if "time_limit" in work.takes else {}
    if "executor" in work.takes:
        how["executor"] = random_pool(rng)
    with interruption(rng, 2.0):
        observe(trial, work, signalled=True, **how)


def resumed(rng: np.random.Generator, trial: Trial, folder: Path) -> None:
    """A run that is ended, sometimes loses a part of its file, and goes on: the result is that of one that was not."""
    work, about = _make(rng, RESUMABLE, is_heavy=False)
    end = str(rng.choice(["Ctrl-C", "kill -9", "the death of a worker", "its time"]))
    trial.about = f"{about}, ended by {end}"
    whole = _reference(trial, work)
    if whole is None:
        return
    if "checkpoint" in work.takes and rng.random() < 0.3:
        _resume_without_a_seed(rng, trial, work, folder, whole.seconds)
        return
    delay = 1.2 * min(whole.seconds, 3.0) * rng.random()
    where: dict[str, Any] = {"checkpoint": folder / "run"} if "checkpoint" in work.takes else {}
    where |= _end_early(rng, trial, work, whole, end, delay, where)
    files = [file for file in folder.glob("run*") if file.stat().st_size]
    damaged = bool(files) and rng.random() < 0.4
    if damaged:
        trial.about += ", with a damaged file"
        damage(rng, files[rng.integers(len(files))])
    again = observe(trial, work, refusable=damaged, **where)
    if not (end == "its time" and "finished" in where):  # with less time another method may have answered, as well
        _compare(trial, work, whole, again, damaged)


def _end_early(
    rng: np.random.Generator, trial: Trial, work: Work, whole: Outcome, end: str, delay: float, where: dict[str, Any]
) -> dict[str, Any]:
    """Make a call that does not come to its end, most of the time; what it goes on from."""
    if end == "kill -9":
        run_and_kill(lambda: work.run(**where), delay)
        return {}
    if end == "the death of a worker" and "executor" in work.takes:
        pool = ProcessPoolExecutor(2)
        kill_a_worker(pool, delay)
        first = observe(trial, work, executor=pool, **where)
        pool.shutdown(wait=False, cancel_futures=True)
    elif end == "its time":
        first = observe(trial, work, time_limit=max(delay, 1e-6), **where)
    else:
        with interruption(rng, max(delay, 1e-3)):
            first = observe(trial, work, signalled=True, **where)
    part = first.value if first.error is None else carried(first.error)
    if part is None:
        return {}
    if whole.error is None and not work.begins(part, whole.value):
        trial.add([f"lost: {work.name} had another beginning"])
    return {"finished": part} if "finished" in work.takes else {}


def _resume_without_a_seed(rng: np.random.Generator, trial: Trial, work: Work, folder: Path, seconds: float) -> None:
    """A run that goes on with the seed of its file, and a whole one with the seed that the result names."""
    trial.about += ", without a seed"
    how: dict[str, Any] = {"checkpoint": folder / "run", "seed": None}
    with interruption(rng, max(1.2 * seconds, 1e-3)):
        observe(trial, work, signalled=True, **how)
    again = observe(trial, work, **how)
    if again.error is None:
        whole = observe(trial, work, seed=again.value.seed)
        _compare(trial, work, whole, again, may_refuse=False)


def _reference(trial: Trial, work: Work) -> Outcome | None:
    """The result of a call that nothing is done to; None if it takes too long for a trial."""
    timed = observe(trial, work, time_limit=_LONGEST)
    if timed.seconds > _SHORT or timed.error is not None or not work.is_whole(timed.value):
        trial.notes.append("too long")
        return None
    return observe(trial, work)


def _compare(trial: Trial, work: Work, whole: Outcome, again: Outcome, may_refuse: bool) -> None:
    """Note work that was lost."""
    if may_refuse and isinstance(again.error, db.ArgumentError):
        return
    if type(whole.error) is not type(again.error):
        trial.add([f"lost: {work.name} ended in {again.error!r} instead of {whole.error!r}"])
    elif whole.error is None and not is_same(work.facts(whole.value), work.facts(again.value)):
        trial.add([f"lost: {work.name} went on to another result"])


def on_a_bad_disk(rng: np.random.Generator, trial: Trial, folder: Path) -> None:
    """Checkpoints and outputs in a folder that is full or read-only; temporary files too, sometimes."""
    bad = folder / "bad"
    bad.mkdir()
    if rng.random() < 0.4:
        work = make_cli(rng, False, folder, bad)
        trial.about = f"{work.name} on {unwritable(rng, bad)}"
        observe(trial, work, **({"checkpoint": bad / "run"} if "checkpoint" in work.takes else {}))
        return
    work, about = _make(rng, RESUMABLE, is_heavy=False)
    whole = _reference(trial, work)
    if whole is None:
        return
    trial.about = f"{about} on {unwritable(rng, bad)}"
    how: dict[str, Any] = {"checkpoint": bad / "run"} if "checkpoint" in work.takes and rng.random() < 0.7 else {}
    if "executor" in work.takes:
        how["executor"] = random_pool(rng)
    if rng.random() < 0.5:
        tempfile.tempdir = str(bad)
    again = observe(trial, work, refusable=True, **how)
    _compare(trial, work, whole, again, may_refuse=True)


def in_little_memory(rng: np.random.Generator, trial: Trial, folder: Path) -> None:
    """A large call in little memory, after a small one that loads what is compiled."""
    case, seed = small_case(rng), int(rng.integers(2**31))
    makers = (*MAKERS, make_sample, make_exact_sample)
    small, _ = _make(np.random.default_rng(seed), makers, False, case)
    del folder
    observe(trial, small)
    work, about = _make(np.random.default_rng(seed), makers, True, case)
    with less_memory(rng) as left:
        trial.about = f"{about}, {left}"
        observe(trial, work, **({"time_limit": 1.0} if "time_limit" in work.takes else {}))


SCENARIOS = (plain, plain, in_time, interrupted, interrupted, resumed, resumed, on_a_bad_disk, in_little_memory)


def run_trial(seed: int, number: int, folder: Path) -> Trial:
    """The trial with a number, in this process, which should do nothing else."""
    rng = np.random.default_rng([seed, number])
    scenario = SCENARIOS[rng.integers(len(SCENARIOS))]
    trial = Trial()
    state_file.SECONDS = 0.0  # written again as often as possible, so that there is something to go on from
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # NumPy's, of numbers that went wrong
        scenario(rng, trial, folder)
    trial.about = f"{scenario.__name__}: {trial.about}"
    return trial
