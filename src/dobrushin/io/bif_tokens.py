"""Words and marks of a BIF file, and where they stood."""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dobrushin.io.numbers import in_bulk, is_number, quote
from dobrushin.io.source import Source

# Blanks and comments are matched too, but without a group, so that nothing is skipped unseen. A comment without an end
# goes to the end of the file: to try again behind each start would take for ever.
_TOKEN = re.compile(r'\s+|//[^\n]*|/\*(?:[\s\S]*?\*/|[\s\S]*)|("[^"]*"|[{}()\[\];,|"]|[^\s{}()\[\];,|"]+)')
_MARKS = frozenset('{}()[];,|"')


class Tokens:
    """Tokens from left to right; their places are found again only for messages."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text()
        self.tokens = [token for token in _TOKEN.findall(self.text) if token]
        self.k = 0
        self._refuse_strays()

    def take(self, expected: str) -> str:
        """The next token."""
        if self.k >= len(self.tokens):
            raise self.source.error(expected, "the end of the file", len(self.source.data))
        self.k += 1
        return self.tokens[self.k - 1]

    def expect(self, token: str) -> None:
        """Pass a token that must come next."""
        if self.take(repr(token)) != token:
            self.fail(repr(token), self.k - 1)

    def name(self, expected: str) -> str:
        """The next token, which must be a name."""
        token = self.take(expected)
        if token in _MARKS:
            self.fail(expected, self.k - 1)
        return token.strip('"')

    def upto(self, mark: str, expected: str) -> list[str]:
        """Tokens up to a mark, which is passed."""
        try:
            end = self.tokens.index(mark, self.k)
        except ValueError:
            self.fail(f"{expected} and then {mark}", self.k, "none")
        start, self.k = self.k, end + 1
        return self.tokens[start:end]

    def names(self, mark: str, expected: str, bar: bool = False) -> list[str]:
        """Names up to a mark, with or without commas between them; there may be a bar after the first one."""
        start = self.k
        taken = self.upto(mark, expected)
        if bar and taken[1:2] == ["|"]:
            if len(taken) == 2:
                self.fail("parents after the bar", start + 1)
            items = [taken[0], *self._split(taken[2:], start + 2, expected)]
        else:
            items = self._split(taken, start, expected)
        if any(item in _MARKS for item in items):
            self.fail(expected, start + next(k for k, item in enumerate(taken) if item in _MARKS - {","}))
        return [item.strip('"') for item in items]

    def numbers(self, count: int) -> NDArray[np.float64]:
        """Probabilities up to a semicolon."""
        start = self.k
        taken = self.upto(";", "probabilities")
        words = self._split(taken, start, "probabilities")
        values = in_bulk(words)
        if values is None or (values < 0).any():
            for k, word in enumerate(taken):
                if word != "," and not (is_number(word.encode()) and float(word) >= 0):
                    self.fail("a probability, 0 or more", start + k)
            values = np.fromiter(map(float, words), np.float64, len(words))
        if len(words) != count:
            self.fail(f"{count} probabilities", start, f"{len(words)}")
        return values

    def _split(self, taken: list[str], start: int, expected: str) -> list[str]:
        """Items that have a comma between each two, or between none."""
        if "," not in taken:
            return taken
        for k, item in enumerate(taken):
            if (item == ",") != (k % 2 == 1) or (item == "," and k == len(taken) - 1):
                self.fail(f"{expected} with a comma between each two, or without commas", start + k)
        return taken[::2]

    # -- what is wrong ---------------------------------------------------------------------

    def _refuse_strays(self) -> None:
        """Comments and quotes must have an end, and comments must not be part of a word."""
        if "/*" in self.text or "//" in self.text or '"' in self.text:
            for k, token in enumerate(self.tokens):
                if token == '"' or (token[0] != '"' and ("/*" in token or "//" in token)):
                    self.fail("quotes and comments that are closed, with space around them", k)
            for match in _TOKEN.finditer(self.text):
                word = match.group()
                if word.startswith("/*") and (len(word) < 4 or not word.endswith("*/")):
                    raise self.source.error("comments that end", "one that does not", self._byte(match.start()))

    def at(self, k: int) -> int:
        """First byte of token k."""
        seen = -1
        for match in _TOKEN.finditer(self.text):
            seen += match.lastindex is not None
            if seen == k:
                return self._byte(match.start())
        return len(self.source.data)

    def _byte(self, place: int) -> int:
        return len(self.text[:place].encode())

    def fail(self, expected: str, k: int, got: str | None = None) -> NoReturn:
        """Say what is wrong at token k."""
        shown = got or (quote(self.tokens[k]) if k < len(self.tokens) else "the end of the file")
        raise self.source.error(expected, shown, self.at(k))
