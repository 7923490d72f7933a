"""Bayesian networks of Hugin: ``.net``.

Blocks ``net``, ``node`` (its states by name) and ``potential ( child | parents )`` with ``data``: nested parentheses in
which the states of the child are fastest and those of the first parent slowest. Other fields are skipped; comments
begin with ``%``. Continuous nodes, decisions and utilities are refused.
"""

from __future__ import annotations

import re

from dobrushin._models import FactorGraph
from dobrushin.io.networks import Network
from dobrushin.io.numbers import quote
from dobrushin.io.source import Source

_TOKEN = re.compile(r'\s+|%[^\n]*|("[^"]*"|[{}()=;|]|[^\s{}()=;|"%]+|.)')
_MARKS = frozenset("{}()=;|")


def read(source: Source) -> FactorGraph:
    """A factor graph of the tables; variables with one state are left out."""
    return _Parser(source).network()


class _Parser:
    """Reads blocks from left to right."""

    def __init__(self, source: Source) -> None:
        self.source = source
        text = source.text()
        places = [(m.group(1), m.start(1)) for m in _TOKEN.finditer(text) if m.group(1)]
        self.tokens, self.places = [token for token, _ in places], [place for _, place in places]
        self.text, self.k = text, 0

    def network(self) -> FactorGraph:
        """All blocks."""
        network = Network({}, {}, {})
        while self.k < len(self.tokens):
            kind = self.take()
            if kind == "discrete":
                kind = self.take()
            if kind in ("net", "class"):
                if self.peek() != "{":
                    self.take()
                self.fields()
            elif kind == "node":
                name, fields = self.name(), self.fields()
                states = [word.strip('"') for word in fields.get("states", ()) if word not in _MARKS]
                network.add_variable(self.source, name, states)
            elif kind == "potential":
                self.potential(network)
            else:
                raise self.error("net, node or potential", kind)
        return network.finish(self.source)

    def potential(self, network: Network) -> None:
        """The table of one variable."""
        self.expect("(")
        words: list[str] = []
        while (word := self.take()) != ")":
            words.append(word)
        child, parents = words[:1], [word for word in words[1:] if word != "|"]
        if not child or words[1:].count("|") > 1 or (parents and words[1] != "|") or _MARKS & {*child, *parents}:
            raise self.error("( child | parents )", " ".join(words)[:60])
        fields = self.fields()
        if "data" not in fields or "model_nodes" in fields:
            raise self.error(f"data of {quote(child[0])}", "none, or a model of it")
        numbers = [word for word in fields["data"] if word not in "()"]
        network.add_table(self.source, child[0], parents, numbers)

    def fields(self) -> dict[str, list[str]]:
        """What is between braces: names with the words up to a semicolon."""
        self.expect("{")
        fields: dict[str, list[str]] = {}
        while (name := self.take()) != "}":
            self.expect("=")
            words: list[str] = []
            while (word := self.take()) != ";":
                if word in "{}":
                    raise self.error("a semicolon", word)
                words.append(word)
            if name in fields:
                raise self.error("each field once", name)
            fields[name] = words
        return fields

    def name(self) -> str:
        """A word that is no mark."""
        word = self.take()
        if word in _MARKS:
            raise self.error("a name", word)
        return word

    def peek(self) -> str:
        """The next word, which stays there."""
        return self.tokens[self.k] if self.k < len(self.tokens) else ""

    def take(self) -> str:
        """The next word."""
        if self.k >= len(self.tokens):
            raise self.source.error("the rest of a block", "the end of the file", len(self.source.data))
        self.k += 1
        return self.tokens[self.k - 1]

    def expect(self, mark: str) -> None:
        """Pass a mark that must come next."""
        if (word := self.take()) != mark:
            raise self.error(repr(mark), word)

    def error(self, expected: str, found: str) -> Exception:
        """What to raise about the last word."""
        offset = len(self.text[: self.places[self.k - 1]].encode())
        return self.source.error(expected, quote(found), offset)
