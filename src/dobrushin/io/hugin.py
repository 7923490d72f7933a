"""Bayesian networks of Hugin: ``.net``.

Blocks ``net``, ``node`` (its states by name) and ``potential ( child | parents )`` with ``data``: nested parentheses in
which the states of the child are fastest and those of the first parent slowest. Other fields are skipped; comments
begin with ``%``. Continuous nodes, decisions and utilities are refused.
"""

from __future__ import annotations

import re

from dobrushin._models import FactorGraph
from dobrushin.io.networks import Network, Tokens
from dobrushin.io.source import Source, quote

_TOKEN = re.compile(r'\s+|%[^\n]*|("[^"]*"|[{}()=;|]|[^\s{}()=;|"%]+|.)')
_MARKS = frozenset("{}()=;|")
_REST = "the rest of a block"


def read(source: Source) -> FactorGraph:
    """Read a factor graph of the tables; variables with one state are left out."""
    return _Parser(source, _TOKEN, _MARKS).model()


class _Parser(Tokens):
    """Reads blocks from left to right."""

    def model(self) -> FactorGraph:
        """Read all blocks."""
        network = Network(self.source, self.place)
        while self.k < len(self.tokens):
            if (kind := self.take(_REST)) == "discrete":
                kind = self.take(_REST)
            start = self.k - 1
            if kind in ("net", "class"):
                if self.tokens[self.k : self.k + 1] != ["{"]:
                    self.take(_REST)
                self.fields()
            elif kind == "node":
                name, fields = self.name("a name"), self.fields()
                states = [word.strip('"') for word in fields.get("states", ()) if word not in _MARKS]
                network.add_variable(name, states, start)
            elif kind == "potential":
                self.potential(network, start)
            else:
                self.fail("net, node or potential", start)
        return network.to_model(self.k)

    def potential(self, network: Network, start: int) -> None:
        """Read the table of one variable."""
        self.expect("(")
        words = self.upto(")", "variables")
        child, parents = words[:1], [word for word in words[1:] if word != "|"]
        if not child or words[1:].count("|") > 1 or (parents and words[1] != "|") or _MARKS & {*child, *parents}:
            self.fail("( child | parents )", start, quote(" ".join(words)))
        fields = self.fields()
        if "data" not in fields or "model_nodes" in fields:
            self.fail(f"data of {quote(child[0])}", start, "none, or a model of it")
        network.add_words(child[0], parents, [word for word in fields["data"] if word not in "()"], start)

    def fields(self) -> dict[str, list[str]]:
        """Read what is between braces: names with the words up to a semicolon."""
        self.expect("{")
        fields: dict[str, list[str]] = {}
        while (name := self.take(_REST)) != "}":
            start = self.k - 1
            self.expect("=")
            words = self.upto(";", "a value")
            if "{" in words or "}" in words:
                self.fail("a semicolon after the value", start, "none")
            if name in fields:
                self.fail("each field once", start)
            fields[name] = words
        return fields
