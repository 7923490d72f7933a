"""Limits on memory: free bytes of this machine, and sizes such as "2GiB"."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError, BudgetError

# Share of the free memory that a call without a limit may take, and free bytes that are assumed where none are known.
_FREE_SHARE, _UNKNOWN_FREE_BYTES = 0.8, 2.0**31
# Address space of a thread: its stack and a heap of its own. Python waits forever for a thread that has less.
_THREAD_BYTES = 2.0**26
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {unit + "I": 2 ** (10 * k) for k, unit in enumerate("KMGT", start=1)}


def memory_limit(value: Any, argument: str = "memory_limit") -> float:
    """Return a memory limit in bytes, given as a number, a text such as "2GiB", or None (most of the free memory)."""
    if value is None:
        return _FREE_SHARE * free_memory()
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([KMGT]?I?)B?\s*", value.upper())
        try:
            number = float(match[1]) * _UNITS[match[2]] if match else math.nan
        except (ValueError, KeyError):
            number = math.nan
        if not number > 0:
            raise ArgumentError(argument, "a number of bytes, such as 500MB or 2GiB", value)
        return number
    return check.positive(value, argument)


def bytes_text(number: float) -> str:
    """Write a number of bytes with three digits and a unit."""
    if not number < 2.0**80:
        return f"{number:.3g} bytes"
    power = max(0, min(4, int(math.log2(max(number, 1.0)) // 10)))
    return f"{number / 2 ** (10 * power):.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def free_memory() -> float:
    """Return the free bytes under the limits of the machine, the control groups and the process."""
    return max(1.0, min([*_machine(), *_groups(), *_process()], default=_UNKNOWN_FREE_BYTES))


def has_room_for_threads(count: int) -> bool:
    """Return whether the process may allocate the address space of `count` more threads."""
    return all(room >= count * _THREAD_BYTES for room in _process())


def _machine() -> Iterator[float]:
    available = _entries(Path("/proc/meminfo")).get("MemAvailable:")
    if available is not None:
        yield 1024.0 * available
    else:
        with suppress(AttributeError, OSError, ValueError):
            yield float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / 2


def _entries(file: Path) -> dict[str, float]:
    """Read a system file of lines with a name and a number; return no entries if it cannot be read."""
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return {line[0]: float(line[1]) for line in lines if len(line) > 1}
    except (OSError, ValueError):
        return {}


def _groups(root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> Iterator[float]:
    """Yield the free bytes of each control group (version 1 or 2) of this process, and of those that contain it."""
    try:
        lines = process.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        top = root if controllers == "" else root / "memory"
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        folder = top / place.lstrip("/")
        for group in (folder, *folder.parents):
            if group == top or top in group.parents:
                try:
                    limit, used = (float((group / name).read_text()) for name in names)
                except (OSError, ValueError):  # there is no limit here, or it reads "max"
                    continue
                # Files in memory are given up when memory is needed.
                stat = _entries(group / "memory.stat")
                yield limit - used + stat.get("inactive_file", stat.get("total_inactive_file", 0.0))


def _process() -> Iterator[float]:
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = float(Path("/proc/self/statm").read_text().split()[0])
            yield float(limit) - pages * resource.getpagesize()


def can_have_more(required: float) -> bool:
    """Return whether a larger memory limit could help: only if so many bytes are free."""
    return required <= free_memory()


def require_memory(what: str, needed: float, remedy: str) -> None:
    """Raise `BudgetError` if something needs more bytes than are free."""
    if needed > (free := free_memory()):
        raise BudgetError(what, needed, free, "bytes", remedy)
