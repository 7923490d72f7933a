"""Bayesian networks in the interchange format: ``.bif``.

Blocks ``network``, ``variable`` (its states by name) and ``probability``: a ``table`` in which the states of the
variable come first and those of the last parent are fastest, or a row for each state of the parents, or a ``default``
row. Properties and comments are skipped. Commas may be left out.

Published tables are rounded: rows that miss 1 by at most 1e-5 are divided by their sum, so that the model is a Bayesian
network, and what does not matter to the targets can be left out. Rows that miss it by more, up to 0.01 or 0.005 for
each state, are taken as they are: plain weights, of which nothing is left out.
"""

from __future__ import annotations

import math
import re
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import FactorGraph, Model
from dobrushin._models.directed import find_parents
from dobrushin.errors import ArgumentError
from dobrushin.io.bif_tokens import Tokens
from dobrushin.io.inverse import inverse
from dobrushin.io.networks import Network, in_a_cycle, normalise, sums_of, sums_to_one
from dobrushin.io.numbers import quote
from dobrushin.io.source import LIMIT, Path, Source, load

# Names that need no quotes, and those that would be read as something else.
_PLAIN = re.compile(r"[\w.+<>=-]+")
_WORDS = frozenset({"table", "default", "property", "type", "network", "variable", "probability"})


def read(source: Source) -> FactorGraph:
    """A factor graph of the tables; variables with one state are left out."""
    return _Parser(source).network().to_model(source)


def write(model: Model) -> bytes:
    """A Bayesian network as a file: a block for each table, with a row for each state of the parents."""
    graph = model.to_factor_graph()
    pairs = find_parents(graph)
    if pairs is None:
        requirement = "a Bayesian network (one table for each variable, which sums to 1), for a .bif file"
        raise ArgumentError("write", "model", requirement, model)
    labels = [_word(label) for label in model.labels]
    if len(set(labels)) < len(labels):
        raise ArgumentError("write", "model", "labelled by different texts", model)
    states = [[_word(name) for name in model._called(i)] for i in range(model.n_variables)]
    lines = ["network unknown { }"]
    for label, own in zip(labels, states, strict=True):
        lines.append(f"variable {label} {{ type discrete [ {len(own)} ] {{ {', '.join(own)} }}; }}")
    for i, k in sorted(pairs, key=lambda pair: pair[1]):
        lines += _probabilities(graph, i, k, labels, states)
    return "\n".join([*lines, ""]).encode()


def _probabilities(graph: FactorGraph, i: int, k: int, labels: list[str], states: list[list[str]]) -> list[str]:
    """The block of factor `k`, which has the probabilities of variable `i`."""
    scope, table = graph.factor(k)
    parents = [v for v in scope if v != i]
    logs = np.moveaxis(table, scope.index(i), -1).reshape(-1, len(states[i]))
    with np.errstate(divide="ignore", under="ignore"):
        rows = inverse(np.log, logs.ravel(), np.exp(logs.ravel())).reshape(logs.shape)
    numbers = [", ".join(map(repr, row.tolist())) for row in rows]
    if not parents:
        return [f"probability ( {labels[i]} ) {{", f"  table {numbers[0]};", "}"]
    given = [", ".join(names) for names in product(*(states[v] for v in parents))]
    head = f"probability ( {labels[i]} | {', '.join(labels[v] for v in parents)} ) {{"
    return [head, *(f"  ({names}) {row};" for names, row in zip(given, numbers, strict=True)), "}"]


def _word(name: Any) -> str:
    """A name as the format can hold it: in quotes, where it has blanks or marks."""
    text = str(name)
    if not text or '"' in text or any(ord(character) < 32 for character in text):
        raise ArgumentError("write", "model", "of names that are not empty and have no quotes, for a .bif file", name)
    return text if _PLAIN.fullmatch(text) and text not in _WORDS else f'"{text}"'


def state_names(path: Path, *, limit: int = LIMIT) -> dict[str, tuple[str, ...]]:
    """Names of the states of each variable of a BIF file.

    A model that is read has the same names (`Model.state_names`), but for variables with one state, which are left out.

    Parameters
    ----------
    path : str or path
        The file; one whose name ends in ``.gz`` is unpacked.
    limit : int
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
    return _Parser(load(path, limit, "state_names")).network().states


class _Parser(Tokens):
    """Reads blocks from left to right."""

    promised = 0

    def network(self) -> Network:
        """All blocks."""
        network = Network({}, {}, {})
        blocks: dict[str, int] = {}
        while self.k < len(self.tokens):
            start = self.k
            kind = self.take("network, variable or probability")
            if kind == "network":
                self.name("the name of the network")
                self.expect("{")
                while self.take("a property or }") != "}":
                    self.k -= 1
                    self._property()
            elif kind == "variable":
                self._variable(network)
            elif kind == "probability":
                name = self._probability(network)
                blocks[name] = start
            else:
                self.fail("network, variable or probability", start)
        for name in network.states:
            if name not in network.tables:
                raise self.source.error(
                    f"a probability block for {quote(name)}", "the end of the file", self.at(self.k)
                )
        self._refuse_cycles(network, blocks)
        return network

    # -- blocks ----------------------------------------------------------------------------

    def _variable(self, network: Network) -> None:
        name = self.name("the name of a variable")
        if name in network.states:
            self.fail("each variable once", self.k - 1)
        self.expect("{")
        states: list[str] | None = None
        while (word := self.take("type, property or }")) != "}":
            if word == "property":
                self.k -= 1
                self._property()
                continue
            if word != "type" or states is not None:
                self.fail("one type, properties and then }", self.k - 1)
            self.expect("discrete")
            self.expect("[")
            count = self.take("the number of states")
            if not (count.isascii() and count.isdigit()):
                self.fail("the number of states", self.k - 1)
            self.expect("]")
            self.expect("{")
            states = self.names("}", "names of states")
            self.expect(";")
            if str(len(states)) != count.lstrip("0") or not states:
                self.fail(f"{count} states, one or more", self.k - 2, f"{len(states)}")
            if (repeated := _find_repeated(states)) is not None:
                self.fail("different states", self.k - 2, f"{quote(repeated)} twice")
        if states is None:
            self.fail("the type of the variable", self.k - 1)
        network.states[name] = tuple(states)

    def _probability(self, network: Network) -> str:
        self.expect("(")
        first = self.k
        scope = self.names(")", "variables", bar=True)
        for name in scope:
            if name not in network.states:
                self.fail("a variable that was declared before", first, quote(name))
        if (repeated := _find_repeated(scope)) is not None:
            self.fail("different variables", first, f"{quote(repeated)} twice")
        if not scope or scope[0] in network.tables:
            self.fail("a variable without a probability block", first)
        child, *parents = scope
        shape = [len(network.states[name]) for name in (*parents, child)]
        self.promised += math.prod(shape)
        if 8 * self.promised > self.source.limit:
            self.source.require_memory(8.0 * min(self.promised, 2**60), "tables", self.at(first))
        network.parents[child] = tuple(parents)
        network.tables[child] = self._entries(network, child, shape, first)
        return child

    def _entries(self, network: Network, child: str, shape: list[int], first: int) -> NDArray[np.float64]:
        parents, states = network.parents[child], shape[-1]
        rows = np.full((math.prod(shape[:-1]), states), np.nan)
        codes = [{state: k for k, state in enumerate(network.states[name])} for name in parents]
        default: NDArray[np.float64] | None = None
        self.expect("{")
        while (word := self.take("table, default, a row or }")) != "}":
            start = self.k - 1
            if word == "property":
                self.k -= 1
                self._property()
            elif word == "table":
                if not np.isnan(rows).all():
                    self.fail("one table, or rows", start)
                rows[...] = self.numbers(rows.size).reshape(states, -1).T
            elif word == "default":
                if default is not None:
                    self.fail("one default", start)
                default = self.numbers(states)
            elif word == "(" and parents:
                names = self.names(")", "states of the parents")
                if len(names) != len(parents):
                    self.fail(f"the states of {len(parents)} parents", start, f"{len(names)}")
                row = 0
                for code, name, size in zip(codes, names, shape, strict=False):
                    if name not in code:
                        self.fail("a state of the parent", start, quote(name))
                    row = row * size + code[name]
                if not np.isnan(rows[row, 0]):
                    self.fail("each row once", start)
                rows[row] = self.numbers(states)
            else:
                self.fail("table, default, a row or }", start)
        missing = np.isnan(rows[:, 0])
        if default is not None:
            rows[missing] = default
        elif missing.any():
            row, names = int(np.argmax(missing)), []
            for name, size in zip(reversed(parents), reversed(shape[:-1]), strict=True):
                names.insert(0, network.states[name][row % size])
                row //= size
            expected = "a row for each state of the parents" if parents else "a table"
            self.fail(expected, self.k - 1, f"none for {quote(', '.join(names))}" if parents else "none")
        sums = sums_of(rows.ravel(), np.arange(0, rows.size, states))
        if (bad := ~sums_to_one(sums, states)).any():
            sentence = f"the sum {sums[int(np.argmax(bad))]:.6g}"
            self.fail(f"probabilities of {quote(child)} that sum to 1", first, sentence)
        return normalise(rows.ravel(), sums, states).reshape(rows.shape)

    def _property(self) -> None:
        """Skip a property: anything up to a semicolon."""
        start = self.k
        if self.take("a property or }") != "property":
            self.fail("a property or }", start)
        try:
            self.k = self.tokens.index(";", self.k) + 1
        except ValueError:
            self.fail("a semicolon after the property", start, "none")

    def _refuse_cycles(self, network: Network, blocks: dict[str, int]) -> None:
        position = {name: i for i, name in enumerate(network.states)}
        pairs = [(position[child], position[p]) for child, parents in network.parents.items() for p in parents]
        children, parents = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        loop = in_a_cycle(children, parents, len(position))
        if loop is not None:
            name = list(position)[loop]
            self.fail("a network without a cycle", blocks[name], f"{quote(name)} among its own ancestors")


def _find_repeated(names: list[str]) -> str | None:
    """The first name that is there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
