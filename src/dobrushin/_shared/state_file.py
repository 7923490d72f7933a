"""Checkpoints, from which a run resumes as if it had never stopped, and hashes of all that a run depends on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import time
import types
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._shared import validate as check
from dobrushin._shared.call import warn
from dobrushin._shared.clock import noted_interrupts
from dobrushin._shared.environment import log, replacing
from dobrushin.errors import ArgumentError, CheckpointWarning

fcntl: Any
msvcrt: Any
try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

    fcntl = None

SECONDS = 5.0
_ENDING = ".npy"
# Words of a SeedSequence; to mix very many would take forever.
_LARGEST_POOL = 1024
# Errors of NumPy on damaged files.
UNREADABLE = (
    ValueError,
    KeyError,
    EOFError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_checkpoint(path: Any) -> Path | None:
    """Return the path of a checkpoint; fail if no file can be written there."""
    if path is None:
        return None
    file = Path(check.path(path, "checkpoint"))
    if file.is_dir() or not file.parent.is_dir():
        why = "it is a folder" if file.is_dir() else f"there is no folder {os.fspath(file.parent)!r}"
        raise ArgumentError("checkpoint", f"a file that can be written ({why})", os.fspath(path))
    if not file.exists() and os.path.exists(second := numbered_file(file, 1)):
        requirement = f"one without files of another run beside it: {os.fspath(second)!r}"
        raise ArgumentError("checkpoint", requirement, os.fspath(path))
    return file


def numbered_file(path: Path, number: int) -> Path:
    """Return the file for run `number` of a call that makes several runs, one after the other."""
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def stored_seed(path: Path) -> np.random.SeedSequence | None:
    """Return the seed in a checkpoint, so that a call without a seed can resume; None if it cannot be read."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as packed:
            _require_sizes(packed)
            entropy, spawn_key, pool_size = json.loads(str(_read_array(packed, "seed")))
            if not pool_size <= _LARGEST_POOL:
                return None
            return np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size)
    except (OSError, *UNREADABLE):
        return None


def _require_sizes(packed: zipfile.ZipFile) -> None:
    """Fail if the arrays in a file claim more bytes than it has, so that reading needs no more memory.

    `numpy.savez` does not compress arrays, so a compressed one was written by another program.
    """
    members, file = packed.infolist(), cast(Any, packed.fp)
    if any(info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size for info in members):
        raise ValueError("compressed")
    if sum(info.file_size for info in members) > file.seek(0, os.SEEK_END):
        raise ValueError("too large")


def _read_array(packed: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read an array; fail if its header does not agree with its number of bytes."""
    info = packed.getinfo(f"{name}{_ENDING}")
    with packed.open(info) as member:
        if npy.read_magic(member) != (1, 0):
            raise ValueError("version")
        shape, _, kind = npy.read_array_header_1_0(member)
        if kind.hasobject or min(shape, default=0) < 0:
            raise ValueError("no plain array")
        if member.tell() + math.prod(shape) * kind.itemsize != info.file_size:
            raise ValueError("size")
    with packed.open(info) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
        return array


class StateFile:
    """A checkpoint file: arrays by name, which are replaced together, so that the file is never incomplete.

    Parameters
    ----------
    path : Path
    kind, what : str
        The format of the file, and a noun for the call that writes it.
    seed : SeedSequence
    parts
        All values that the run depends on.
    same : str
        The names of these values, for error messages.
    """

    def __init__(self, path: Path, kind: str, what: str, seed: np.random.SeedSequence, parts: Any, same: str) -> None:
        self.path, self._what, self._same = path, what, same
        key = [seed.entropy, list(seed.spawn_key), seed.pool_size]
        self._about = {"format": kind, "run": fingerprint(key, parts), "seed": json.dumps(key, default=int)}
        self._written = time.monotonic()
        self._fails = False
        self._lock: _Lock | None = None

    def close(self) -> None:
        """Release the file, so that other runs can use it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _refused(self, requirement: str) -> ArgumentError:
        return ArgumentError("checkpoint", requirement, os.fspath(self.path))

    def read(self) -> dict[str, Any] | None:
        """Return the stored arrays, None if there is no file; reserve the file for this run until `close`."""
        try:
            self._lock = _Lock(self.path)
        except BlockingIOError:
            raise self._refused("a file that no other run is writing") from None
        except OSError:  # no file can be made here: `begin` says why
            pass
        try:
            return self._read() if self.path.exists() else None
        except BaseException:  # also Ctrl-C: the same process may resume from the file
            self.close()
            raise

    def _read(self) -> dict[str, Any]:
        """Return the arrays of the file; fail unless the same run wrote it."""
        try:
            with open(self.path, "rb") as file, zipfile.ZipFile(file) as packed:
                _require_sizes(packed)
                about = {name: str(_read_array(packed, name)) for name in self._about}
                if about["format"] == self._about["format"]:
                    if about["run"] != self._about["run"]:  # before the rest is read
                        raise self._refused(f"written by the same {self._what} ({self._same})")
                    names = [name.removesuffix(_ENDING) for name in packed.namelist()]
                    arrays = {name: _read_array(packed, name) for name in names if name not in self._about}
                    if str(arrays.pop("whole")) == fingerprint(self._about, arrays):
                        return arrays
        except ArgumentError:
            raise
        except (OSError, *UNREADABLE):
            pass
        raise self._refused(f"a file that an earlier {self._what} wrote, or none")

    def is_due(self) -> bool:
        """Return whether it is time to save again."""
        return time.monotonic() - self._written > SECONDS

    def begin(self, arrays: dict[str, Any]) -> None:
        """Save for the first time; fail now rather than after hours of work if that is impossible."""
        try:
            self._write(arrays)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._refused(f"a file that can be written ({error.strerror or error})") from None
            raise

    def save(self, arrays: dict[str, Any]) -> None:
        """Save again; if the file can no longer be written, warn once and let the run continue."""
        if self._fails:
            return
        try:
            self._write(arrays)
        except OSError as error:
            self._fails = True
            reason = error.strerror or error
            file = os.fspath(self.path)
            message = f"The checkpoint {file!r} can no longer be written ({reason}). The run continues without it."
            log.warning(message)
            warn(message, CheckpointWarning)

    def _write(self, arrays: dict[str, Any]) -> None:
        arrays = {name: np.asarray(value) for name, value in arrays.items()}
        about = {name: np.array(value) for name, value in self._about.items()}
        whole = np.array(fingerprint(self._about, arrays))
        # Ctrl-C waits until the zip file is written: in the middle of it, its module would raise an error of its own.
        with noted_interrupts() as presses, replacing(os.fspath(self.path)) as file:
            np.savez(file, whole=whole, **about, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        self._written = time.monotonic()
        presses.look()


class _Lock:
    """The exclusive right of one run to write a file, which ends with the process.

    It is a lock on a second file beside the first. `BlockingIOError` if another run, of this or another process, holds
    it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._is_held = path.with_name(f"{path.name}.lock"), False
        while not self._is_held:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _lock(self._descriptor)
                # Its last owner may have removed the file meanwhile.
                self._is_held = os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
            except FileNotFoundError:
                pass
            finally:
                if not self._is_held:
                    os.close(self._descriptor)

    def close(self) -> None:
        """Remove the lock file and release the lock, also that of processes forked meanwhile."""
        with contextlib.suppress(OSError):
            if fcntl is not None:
                self._path.unlink()
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            else:
                msvcrt.locking(self._descriptor, msvcrt.LK_UNLCK, 1)
        os.close(self._descriptor)
        if fcntl is None:  # not before: an open file cannot be removed there
            with contextlib.suppress(OSError):
                self._path.unlink()


def _lock(descriptor: int) -> None:
    if fcntl is None:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(str(error)) from None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        pass


# -- fingerprints: equal only for equal values --------------------------------------------------

# Bytes to hash, and values to hash after them.
Content = tuple[Sequence[Any], Iterable[Any]]


def fingerprint(*parts: Any) -> str:
    """Return a hash of values with everything in them: bytes of arrays, code and closures of functions."""
    digest = hashlib.blake2b(digest_size=32)
    inside: list[int] = []

    def add(part: Any) -> None:
        digest.update(f"\n{type(part).__module__}.{type(part).__qualname__} ".encode())
        if id(part) in inside:  # a value that contains itself: only its type is hashed
            return
        inside.append(id(part))
        raw, values = _content(part)
        for piece in raw:
            digest.update(piece)
        for value in values:
            add(value)
        inside.pop()

    for value in parts:
        add(value)
    return digest.hexdigest()


@functools.singledispatch
def _content(part: Any) -> Content:
    if not hasattr(part, "__dict__") or (isinstance(part, type) and not dataclasses.is_dataclass(part)):
        return [repr(part).encode()], ()
    # Results that an object caches are not part of its value.
    kept = {f.name for f in dataclasses.fields(part) if not f.compare} if dataclasses.is_dataclass(part) else ()
    return (), [
        {
            k: v
            for k, v in vars(part).items()
            if k not in kept and not isinstance(getattr(type(part), k, None), functools.cached_property)
        }
    ]


@_content.register
def _(part: np.ndarray) -> Content:
    if part.dtype == object:
        return [f"{len(part)} ".encode()], part
    return [f"{part.dtype} {part.shape} ".encode(), np.ascontiguousarray(part).data if part.size else b""], ()


@_content.register
def _(part: types.FunctionType) -> Content:
    held = [cell.cell_contents for cell in part.__closure__ or () if _is_filled(cell)]
    constants = [value for value in part.__code__.co_consts if not isinstance(value, types.CodeType)]
    name = f"{part.__module__}.{part.__qualname__} "
    return [name.encode(), part.__code__.co_code], [[constants, held, part.__defaults__, part.__kwdefaults__]]


def _sparse_content(part: Any) -> Content:
    rows = part.tocsr()
    return (), [[part.shape, rows.indptr, rows.indices, rows.data]]


_content.register(sparse.sparray, _sparse_content)
_content.register(sparse.spmatrix, _sparse_content)
_content.register(list, lambda part: ([f"{len(part)} ".encode()], part))
_content.register(tuple, lambda part: ([f"{len(part)} ".encode()], part))
_content.register(Mapping, lambda part: ((), [x for name in sorted(part, key=repr) for x in (name, part[name])]))
_content.register(Set, lambda part: ((), sorted(part, key=repr)))
_content.register(types.MethodType, lambda part: ((), [[part.__func__, part.__self__]]))
_content.register(functools.partial, lambda part: ((), [[part.func, part.args, part.keywords]]))


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - empty ones raise
    except ValueError:
        return False
    return True
