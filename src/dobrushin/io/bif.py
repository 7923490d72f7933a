"""Bayesian networks in the Bayesian Interchange Format: ``.bif``.

Blocks ``network``, ``variable`` (its states by name) and ``probability``: a ``table`` in which the states of the
variable come first and those of the last parent are fastest, or a row for each state of the parents, or a ``default``
row. Properties and comments are skipped. Commas may be left out.
"""

from __future__ import annotations

import math
import re
from itertools import product
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import FactorGraph, Model
from dobrushin._models.derived import find_parents
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError
from dobrushin.io.networks import Network, Tokens
from dobrushin.io.source import LIMIT, Path, Source, inverse, load, quote, read_weights

# Blanks and comments are matched too, but without a group, so that nothing is skipped unseen. A comment without an end
# goes to the end of the file: to try again behind each start would take for ever.
_TOKEN = re.compile(r'\s+|//[^\n]*|/\*(?:[\s\S]*?\*/|[\s\S]*)|("[^"]*"|[{}()\[\];,|"]|[^\s{}()\[\];,|"]+)')
_MARKS = '{}()[];,|"'
# Names that need no quotes, and those that would be read as something else.
_PLAIN = re.compile(r"[\w.+<>=-]+")
_WORDS = frozenset({"table", "default", "property", "type", "network", "variable", "probability"})


def read(source: Source) -> FactorGraph:
    """Read a BIF file as a factor graph; variables with one state are left out."""
    return _Bif(source).network().to_model()


def write(model: Model) -> bytes:
    """Write a Bayesian network as a BIF file: a block for each variable, with a row for each state of its parents."""
    graph = model.to_factor_graph()
    pairs = find_parents(graph)
    if pairs is None:
        requirement = "a Bayesian network (one table for each variable, which sums to 1), for a .bif file"
        raise ArgumentError("model", requirement, model)
    labels = [_word(label) for label in model.labels]
    if len(set(labels)) < len(labels):
        raise ArgumentError("model", "one whose labels differ as text", model)
    states = [[_word(name) for name in model._called(i)] for i in range(model.n_variables)]
    lines = ["network unknown { }"]
    for label, own in zip(labels, states, strict=True):
        lines.append(f"variable {label} {{ type discrete [ {len(own)} ] {{ {', '.join(own)} }}; }}")
    for i, k in sorted(pairs, key=lambda pair: pair[1]):
        scope, table = graph.factor(k)
        parents = [v for v in scope if v != i]
        logs = np.moveaxis(table, scope.index(i), -1).reshape(-1, len(states[i]))
        with np.errstate(divide="ignore", under="ignore"):
            rows = inverse(np.log, logs.ravel(), np.exp(logs.ravel())).reshape(logs.shape)
        numbers = [", ".join(map(repr, row.tolist())) for row in rows]
        if parents:
            given = [f"  ({', '.join(names)})" for names in product(*(states[v] for v in parents))]
            head = f"probability ( {labels[i]} | {', '.join(labels[v] for v in parents)} ) {{"
        else:
            given, head = ["  table"], f"probability ( {labels[i]} ) {{"
        lines += [head, *(f"{names} {row};" for names, row in zip(given, numbers, strict=True)), "}"]
    return "\n".join([*lines, ""]).encode()


def _word(name: Any) -> str:
    """Write a name for a BIF file: in quotes if it has blanks or punctuation."""
    text = str(name)
    if not text or '"' in text or any(ord(character) < 32 for character in text):
        raise ArgumentError("model", "of names that are not empty and have no quotes, for a .bif file", name)
    return text if _PLAIN.fullmatch(text) and text not in _WORDS else f'"{text}"'


@public()
def state_names(path: Path, *, memory_limit: float | str = LIMIT) -> dict[str, tuple[str, ...]]:
    """Return the names of the states of each variable of a BIF file.

    A model that is read has the same names (`Model.state_names`), but for variables with one state, which are left out.

    Parameters
    ----------
    path : str or path
        The file; one whose name ends in ``.gz`` is unpacked.
    memory_limit : number or str, optional
        Bytes that the file may unpack to, and that its tables may take.

    Returns
    -------
    dict from variable to a tuple of names
        Of all variables, those with one state too, in the order of the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import dobrushin as db
    >>> from dobrushin.io import read, state_names
    >>> path = os.path.join(tempfile.mkdtemp(), "rain.bif")
    >>> with open(path, "w") as file:
    ...     _ = file.write(
    ...         "network rain { } variable rain { type discrete [ 2 ] { yes, no }; } "
    ...         "probability ( rain ) { table 0.25, 0.75; }"
    ...     )
    >>> model = read(path)
    >>> model.state_names["rain"], model.conditional(0, [0])
    (('yes', 'no'), array([0.25, 0.75]))
    >>> state_names(path)
    {'rain': ('yes', 'no')}
    """
    return _Bif(load(path, memory_limit)).network().states


class _Bif(Tokens):
    """Parser of a BIF file."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, _TOKEN, _MARKS)
        # Comments and quotes without an end, and comments that are part of a word.
        if "/*" in self.text or "//" in self.text or '"' in self.text:
            for k, token in enumerate(self.tokens):
                if token == '"' or (token[0] != '"' and ("/*" in token or "//" in token)):
                    self.fail("quotes and comments that are closed, with space around them", k)
            for match in _TOKEN.finditer(self.text):
                word = match.group()
                if word.startswith("/*") and (len(word) < 4 or not word.endswith("*/")):
                    offset = len(self.text[: match.start()].encode())
                    raise source.error("comments that end", "one that does not", offset)

    def network(self) -> Network:
        """Read all blocks, and return the network after checking that it is complete."""
        network = Network(self.source, self.place)
        while self.k < len(self.tokens):
            kind = self.take("network, variable or probability")
            if kind == "network":
                self.name("the name of the network")
                self.expect("{")
                while self.take("a property or }") != "}":
                    self._property()
            elif kind == "variable":
                self._variable(network)
            elif kind == "probability":
                self._probability(network)
            else:
                self.fail("network, variable or probability", self.k - 1)
        return network.check(self.k)

    def _variable(self, network: Network) -> None:
        start = self.k
        name = self.name("the name of a variable").strip('"')
        if name in network.states:
            self.fail("each variable once", start)
        self.expect("{")
        states: list[str] | None = None
        while (word := self.take("type, property or }")) != "}":
            if word == "property":
                self._property()
                continue
            if word != "type" or states is not None:
                self.fail("one type, properties and then }", self.k - 1)
            self.expect("discrete", "[")
            count = self.take("the number of states")
            if not (count.isascii() and count.isdigit()):
                self.fail("the number of states", self.k - 1)
            self.expect("]", "{")
            states = self._names("}", "names of states")
            self.expect(";")
            if str(len(states)) != count.lstrip("0") or not states:
                self.fail(f"{count} states, one or more", self.k - 2, f"{len(states)}")
        if states is None:
            self.fail("the type of the variable", self.k - 1)
        network.add_variable(name, states, start)

    def _probability(self, network: Network) -> None:
        self.expect("(")
        start = self.k
        child, *parents = self._names(")", "variables", bar=True) or [""]
        *shape, states = network.begin_table(child, parents, start)
        rows = np.full((math.prod(shape), states), np.nan)
        codes = [{state: k for k, state in enumerate(network.states[name])} for name in parents]
        default: NDArray[np.float64] | None = None
        self.expect("{")
        while (word := self.take("table, default, a row or }")) != "}":
            at = self.k - 1
            if word == "property":
                self._property()
            elif word == "table":
                if not np.isnan(rows).all():
                    self.fail("one table, or rows", at)
                rows[...] = self._numbers(rows.size).reshape(states, -1).T
            elif word == "default":
                if default is not None:
                    self.fail("one default", at)
                default = self._numbers(states)
            elif word == "(" and parents:
                names = self._names(")", "states of the parents")
                if len(names) != len(codes):
                    self.fail(f"the states of {len(codes)} parents", at, f"{len(names)}")
                row = 0
                for code, name, size in zip(codes, names, shape, strict=True):
                    if name not in code:
                        self.fail("a state of the parent", at, quote(name))
                    row = row * size + code[name]
                if not np.isnan(rows[row, 0]):
                    self.fail("each row once", at)
                rows[row] = self._numbers(states)
            else:
                self.fail("table, default, a row or }", at)
        missing = np.isnan(rows[:, 0])
        if default is not None:
            rows[missing] = default
        elif missing.any():
            digits = np.unravel_index(int(np.argmax(missing)), shape) if parents else ()
            names = [network.states[name][int(digit)] for name, digit in zip(parents, digits, strict=True)]
            expected = "a row for each state of the parents" if parents else "a table"
            self.fail(expected, self.k - 1, f"none for {quote(', '.join(names))}" if parents else "none")
        network.set_table(child, rows)

    def _property(self) -> None:
        """Skip a property, which ends with a semicolon."""
        if self.tokens[self.k - 1] != "property":
            self.fail("a property or }", self.k - 1)
        self.upto(";", "a property")

    def _names(self, mark: str, expected: str, bar: bool = False) -> list[str]:
        """Read names up to a mark, with or without commas between them; with `bar`, "|" may follow the first name."""
        start = self.k
        taken = self.upto(mark, expected)
        if bar and taken[1:2] == ["|"]:
            if len(taken) == 2:
                self.fail("parents after the bar", start + 1)
            items = [taken[0], *self._split(taken[2:], start + 2, expected)]
        else:
            items = self._split(taken, start, expected)
        if any(item in _MARKS for item in items):
            self.fail(expected, start + next(k for k, item in enumerate(taken) if item != "," and item in _MARKS))
        return [item.strip('"') for item in items]

    def _numbers(self, count: int) -> NDArray[np.float64]:
        start = self.k
        taken = self.upto(";", "probabilities")
        words = self._split(taken, start, "probabilities")

        def refuse(word: int) -> NoReturn:
            self.fail("a probability, 0 or more", start + word * (2 if "," in taken else 1))

        values = read_weights(words, refuse)
        if len(words) != count:
            self.fail(f"{count} probabilities", start, f"{len(words)}")
        return values

    def _split(self, taken: list[str], start: int, expected: str) -> list[str]:
        """Return the items of a list that has commas between all items, or between none."""
        if "," not in taken:
            return taken
        for k, item in enumerate(taken):
            if (item == ",") != (k % 2 == 1) or (item == "," and k == len(taken) - 1):
                self.fail(f"{expected} with a comma between each two, or without commas", start + k)
        return taken[::2]
