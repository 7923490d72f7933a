"""Read files as bytes, numbers or JSON, within a memory limit; replace files completely or not at all."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.state_names import Names
from dobrushin._shared import validate as check
from dobrushin._shared.environment import replace_file
from dobrushin._shared.memory import memory_limit
from dobrushin.errors import ArgumentError, FormatError

# Bytes that a file may unpack to, and that the arrays it promises may take.
LIMIT = 2**30
# Files are read and words are cut in pieces: reading `limit` bytes at once would allocate them all, and a list of words
# takes ten times the memory of their numbers.
_PIECE_BYTES = 2**20
_PACKED = b"\x1f\x8b"  # how gzip files begin
ALLOW_MORE = "Allow more with memory_limit=."
SAVE_AS_UTF8 = "Save the file as UTF-8: iconv -f latin1 -t utf-8 converts Western European text."

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """The unpacked content of a file."""

    path: str
    data: bytes
    limit: int

    def error(self, expected: str, found: str, offset: int | None = None, hint: str = "") -> FormatError:
        """Return a `FormatError` about the content, with the line of the byte `offset` if that is given."""
        line = None if offset is None else self.data.count(b"\n", 0, offset) + 1
        return FormatError(self.path, expected, found, line, hint)

    def require_memory(self, size: float, what: str, offset: int | None = None) -> None:
        """Fail if `size` bytes are above the limit; called before allocating them."""
        if not size <= self.limit:
            raise self.error(f"{what} of at most {self.limit} bytes", f"{size:.4g} bytes", offset, ALLOW_MORE)

    def text(self) -> str:
        """Return the content, decoded as UTF-8."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"byte 0x{self.data[error.start]:02x} at offset {error.start}"
            raise self.error("UTF-8 text", found, error.start, SAVE_AS_UTF8) from None


def load(path: Path, limit: float | str) -> Source:
    """Read a regular file, unpacking it if its name ends in .gz."""
    name = check.path(path)
    limit = int(memory_limit(limit))
    kind = os.stat(name).st_mode
    # A pipe without a writer would wait for ever.
    if not stat.S_ISREG(kind):
        raise FormatError(name, "a file", "a directory" if stat.S_ISDIR(kind) else "a device or pipe")
    is_packed, pieces, size = name.lower().endswith(".gz"), [], 0
    with open(name, "rb") as plain, gzip.GzipFile(fileobj=plain, mode="rb") as packed:
        try:
            while piece := (packed if is_packed else plain).read(_PIECE_BYTES):
                size += len(piece)
                if size > limit:
                    raise FormatError(name, f"at most {limit} bytes when unpacked", "more", hint=ALLOW_MORE)
                pieces.append(piece)
        except EOFError:
            raise FormatError(name, "a whole gzip file", "one that ends early") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise FormatError(name, "a gzip file", f"a damaged one ({error})") from None
    data = b"".join(pieces)
    if not is_packed and data.startswith(_PACKED):
        raise FormatError(name, "a file that is not packed, or a name that ends in .gz", "a gzip file")
    if not data.strip():
        raise FormatError(name, "content", "an empty file")
    return Source(name, data, limit)


def save(path: Path, data: bytes) -> None:
    """Replace a file in one step, packing it if its name ends in .gz."""
    name = os.path.realpath(check.path(path))
    if os.fsdecode(path).lower().endswith(".gz"):
        # Without the time of day, so that the same model gives the same file.
        data = gzip.compress(data, mtime=0)
    try:
        replace_file(name, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fsdecode(path)) from None


def quote(word: bytes | str) -> str:
    """Quote a word of a file for an error message, shortened if it is long."""
    text = ascii(word.decode("utf-8", "replace") if isinstance(word, bytes) else word)
    return text if len(text) <= 40 else text[:36] + "...'"


# -- numbers -------------------------------------------------------------------------------------

# Python's float() also takes underscores, names such as nan, and digits of other scripts: no file has those.
_CHARACTERS = b"0123456789+-.eE \t\r\n"
# Patterns have one way to match only, or a long word that does not match would take the square of its length.
_NUMBER = re.compile(rb"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_WORD = re.compile(rb"[^ \t\r\n]+")
_SPACE = re.compile(rb"[ \t\r\n]")
# A number can be too small for a double only with such an exponent, or with at least `_LONG` digits. Two patterns,
# since a search for one that starts with a fixed letter is ten times as fast.
_TINY = (re.compile(rb"e-\d{3}"), re.compile(rb"E-\d{3}"))
_LONG = 300
# Memory for a number while it is read: its value, its place, and a copy.
_NUMBER_BYTES = 24.0
# Whole numbers up to here are exact as floats, and no others become them.
_LARGEST_WHOLE = 2**53 - 1


def word_starts(text: bytes) -> NDArray[np.bool_]:
    """Return, for each byte, whether a word separated by blanks begins there."""
    solid = np.frombuffer(text, dtype=np.uint8) > 32
    return solid & ~np.concatenate([[False], solid[:-1]])


class Numbers:
    """The numbers in a text, which are taken in order.

    Parameters
    ----------
    source : Source
    text : bytes
        The content of the source with everything that is not a number replaced by blanks, so that offsets agree.
    """

    def __init__(self, source: Source, text: bytes) -> None:
        self.source, self._text, self.position = source, text, 0
        begins = word_starts(text)
        source.require_memory(_NUMBER_BYTES * np.count_nonzero(begins), "numbers")
        self.starts = np.flatnonzero(begins)
        self.values = np.empty(len(self.starts))
        done = first = 0
        try:
            if text.translate(None, _CHARACTERS):
                raise ValueError
            while first < len(text):  # in pieces that end between words
                gap = _SPACE.search(text, first + _PIECE_BYTES)
                last = gap.start() if gap else len(text)
                words, first = text[first:last].split(), last
                self.values[done : done + len(words)] = np.fromiter(map(float, words), np.float64, len(words))
                done += len(words)
        except ValueError:
            words_read = _WORD.finditer(text)
            wrong = next(match for match in words_read if not _NUMBER.fullmatch(match.group()))
            raise source.error("a number", quote(wrong.group()), wrong.start()) from None
        # Numbers must not overflow; nor underflow, because a weight of 0 forbids a state.
        self.first_error(np.isinf(self.values), 0, "a number that a double can hold")
        marks = [match.start() for pattern in _TINY for match in pattern.finditer(text)]
        marked = np.searchsorted(self.starts, np.array(marks, dtype=np.int64), side="right") - 1
        long = np.flatnonzero(np.diff(self.starts, append=len(text)) > _LONG)
        for k in np.union1d(marked, long).tolist():
            if _vanishes(self.word(k)):
                raise self.error("a number that a double can hold", k)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, count: int, what: str) -> NDArray[np.float64]:
        """Return the next `count` numbers; `what` describes them in an error message."""
        left = len(self) - self.position
        if count > left:
            got = "the end of the file" if not left else f"{left} numbers to the end of the file"
            raise self.source.error(what, got, len(self._text))
        taken = self.values[self.position : self.position + count]
        self.position += count
        return taken

    def whole(self, count: int, what: str, least: int = 0) -> NDArray[np.int64]:
        """Return the next `count` numbers, which must be whole and at least `least`."""
        first = self.position
        taken = self.take(count, what)
        fine = self.are_whole(np.arange(first, first + count)) & (taken >= least)
        self.first_error(~fine, first, what)
        return taken.astype(np.int64)

    def count(self, what: str, least: int = 0) -> int:
        """Return the next number, which must be whole and at least `least`."""
        return int(self.whole(1, what, least)[0])

    def are_whole(self, which: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which numbers are whole and written without point or exponent, as counts and labels must be."""
        return ~self._marked[which] & (np.abs(self.values[which]) <= _LARGEST_WHOLE)

    @cached_property
    def _marked(self) -> NDArray[np.bool_]:
        """For each number, whether it is written with a point or an exponent."""
        letters = np.frombuffer(self._text, dtype=np.uint8)
        marks = np.flatnonzero((letters == ord(".")) | (letters == ord("e")) | (letters == ord("E")))
        marked = np.zeros(len(self), dtype=bool)
        marked[np.searchsorted(self.starts, marks, side="right") - 1] = True
        return marked

    def blocks(self, count: int, what: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Skip blocks of numbers, each preceded by its size; return the indices of sizes and of their numbers."""
        values, end = self.values, len(self)
        first = k = self.position
        sizes = []
        for block in range(count):
            if k >= end or not 0 <= (size := values[k]) < end - k or size != int(size):
                raise self.error(f"{what.format(block)}, and then as many numbers", k)
            sizes.append(k)
            k += 1 + int(size)
        self.position = k
        at = np.array(sizes, dtype=np.int64)
        if (odd := ~self.are_whole(at)).any():
            raise self.error(what.format(int(np.argmax(odd))), int(at[np.argmax(odd)]))
        inside = np.ones(k - first, dtype=bool)
        inside[at - first] = False
        return at, first + np.flatnonzero(inside)

    def rows(self, count: int, width: int, what: str) -> NDArray[np.float64]:
        """Return the next numbers as rows, each of which must be on its own line."""
        first = self.position
        taken = self.take(count * width, what).reshape(count, width)
        lines = self.lines()
        line = lines[first : self.position].reshape(count, width)
        torn = (line[:, 0] != line[:, -1]) | (np.diff(line[:, 0], prepend=lines[first - 1] if first else -1) == 0)
        self.first_error(np.repeat(torn, width), first, what)
        return taken

    def require_end(self, what: str) -> None:
        """Fail if any number is left."""
        if self.position < len(self):
            raise self.error(f"the end of the file after {what}", self.position)

    def lines(self) -> NDArray[np.int64]:
        """Return the line of each number, counted from 0."""
        ends = np.flatnonzero(np.frombuffer(self._text, dtype=np.uint8) == ord("\n"))
        return np.searchsorted(ends, self.starts)

    def offset(self, k: int) -> int:
        """Return the index of the first byte of number k, or the length of the text after the last number."""
        return int(self.starts[k]) if k < len(self) else len(self._text)

    def word(self, k: int) -> bytes:
        """Return number k as it stands in the text."""
        return match.group() if (match := _WORD.match(self._text, self.offset(k))) else b""

    def error(self, expected: str, k: int) -> FormatError:
        """Return a `FormatError` about number k."""
        got = quote(self.word(k)) if k < len(self) else "the end of the file"
        return self.source.error(expected, got, self.offset(k))

    def first_error(self, bad: NDArray[np.bool_], which: int | NDArray[Any], expected: str) -> None:
        """Raise a `FormatError` at the first number marked in `bad`; `which` has the indices of these numbers."""
        if bad.any():
            k = int(np.argmax(bad))
            raise self.error(expected, which + k if isinstance(which, int) else int(which.flat[k]))


def is_number(word: bytes) -> bool:
    """Return whether a word is a decimal number that a double can represent."""
    return _NUMBER.fullmatch(word) is not None and np.isfinite(float(word)) and not _vanishes(word)


def read_weights(words: Sequence[str], refuse: Callable[[int], NoReturn]) -> NDArray[np.float64]:
    """Read non-negative numbers; call `refuse` with the index of the first word that is none."""
    text = " ".join(words).encode()
    is_plain = not text.translate(None, _CHARACTERS) and max(map(len, words), default=0) <= _LONG
    if is_plain and not any(pattern.search(text) for pattern in _TINY):
        try:
            values = np.fromiter(map(float, words), np.float64, len(words))
        except ValueError:
            values = np.array([np.inf])
        if ((values >= 0) & (values < np.inf)).all():
            return values
    for k, word in enumerate(words):
        if not is_number(word.encode()) or float(word) < 0:
            refuse(k)
    return np.fromiter(map(float, words), np.float64, len(words))


def _vanishes(word: bytes) -> bool:
    """Return whether a word is a non-zero number that becomes 0 as a double."""
    return float(word) == 0 and re.search(rb"[1-9]", re.split(rb"[eE]", word)[0]) is not None


def inverse(
    forward: Callable[[Any], Any], wanted: NDArray[np.float64], guess: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return numbers near `guess` that `forward` maps exactly to `wanted`; where there is none, `guess`.

    Files hold weights or energies, and models their logarithms. The rounded inverse of a rounded function may be off by
    one unit in the last place; among its neighbours is the number that was read.
    """
    best = guess.copy()
    with np.errstate(all="ignore"):
        missed = np.flatnonzero((forward(guess) != wanted) & np.isfinite(guess))
        for direction in (np.inf, -np.inf):
            near = guess[missed]
            for _ in range(2):
                near = np.nextafter(near, direction)
                hit = forward(near) == wanted[missed]
                best[missed[hit]] = near[hit]
    return best


# -- labels and names as JSON: what a label may be, a file can hold, and no code can hide in -------------------------

_KINDS = "strings, finite numbers, booleans, None, or tuples of these"


def to_json(labels: Any) -> bytes:
    """Write labels, or lists of names, as JSON; tuples become lists."""
    return json.dumps(_plain(labels)).encode()


def _plain(label: Any) -> Any:
    if label is None or isinstance(label, str | bool):
        return label
    if isinstance(label, Integral):
        return int(label)
    if isinstance(label, Real) and math.isfinite(label):
        return float(label)
    if isinstance(label, tuple | list | range):
        return [_plain(part) for part in label]
    if isinstance(label, dict):
        return {key: _plain(part) for key, part in label.items()}
    raise ArgumentError("model", f"labelled by {_KINDS}", label)


def from_json(source: Source, data: bytes) -> Any:
    """Read JSON, and refuse NaN and infinities."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(word)

    try:
        return json.loads(data.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise source.error("JSON", quote(data[:40])) from None


def read_labels(source: Source, labels: Any, n: int) -> tuple[Hashable, ...]:
    """Return the labels of n variables from JSON, with lists as tuples."""
    if not isinstance(labels, list) or len(labels) != n:
        got = f"{len(labels)} of them" if isinstance(labels, list) else shown(labels)
        raise source.error(f"labels of {n} variables", got)
    return _distinct(source, labels, "labels")


def read_names(source: Source, data: bytes, several: str) -> tuple[bool, list[Names | None]]:
    """Read names of states: {"all": names} for all variables, or lists of names under the key `several`.

    Under "each" an entry may also be null. Returns whether all variables have the same names, and the lists of names.
    """
    content = from_json(source, data)
    is_common = isinstance(content, dict) and "all" in content
    lists = None
    if isinstance(content, dict) and len(content) == 1:
        lists = [content["all"]] if is_common else content.get(several)
    may_be_none = several == "each" and not is_common
    if not isinstance(lists, list):
        raise source.error("names of states", shown(content))
    if not all((isinstance(own, list) and own) or (own is None and may_be_none) for own in lists):
        raise source.error("names of states", shown(content))
    names = [None if own is None else _distinct(source, own, "names for different states") for own in lists]
    return is_common, names


def shown(value: Any) -> str:
    """Describe a JSON value for an error message, without printing lists, which may be nested deeply."""
    if value is None:
        return "none"
    return quote(str(value)) if isinstance(value, str | int | float) else f"a {type(value).__name__}"


def _distinct(source: Source, values: list[Any], what: str) -> tuple[Hashable, ...]:
    found = tuple(_hashable(source, value) for value in values)
    if len(set(found)) < len(found):
        twice = next(value for value, count in Counter(found).items() if count > 1)
        raise source.error(f"different {what}", f"{quote(str(twice))} twice")
    return found


def _hashable(source: Source, value: Any, depth: int = 0) -> Hashable:
    if isinstance(value, list) and depth < 50:
        return tuple(_hashable(source, part, depth + 1) for part in value)
    if isinstance(value, list | dict) or (isinstance(value, float) and not math.isfinite(value)):
        raise source.error(f"labels that are {_KINDS}", shown(value))
    return value
