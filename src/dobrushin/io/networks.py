"""Bayesian networks in files: the parts that all readers share, and the formats Hugin and XMLBIF.

Published tables are rounded: rows that miss 1 by at most 1e-5 are divided by their sum, so that the model is a Bayesian
network, and what does not matter to the targets can be left out. Rows that miss it by more, up to 0.01 or 0.005 for
each state, are taken as they are: plain weights, of which nothing is left out.

Hugin (``.net``)
    Blocks ``net``, ``node`` (its states by name) and ``potential ( child | parents )`` with ``data``: nested
    parentheses in which the states of the child are fastest and those of the first parent slowest. Other fields are
    skipped; comments begin with ``%``. Continuous nodes, decisions and utilities are refused.
XMLBIF 0.3 (``.xmlbif``, ``.bifxml``, ``.xml``)
    ``VARIABLE`` has a ``NAME`` and an ``OUTCOME`` for each state; ``DEFINITION`` says ``FOR`` which variable, ``GIVEN``
    which parents, and has a ``TABLE`` in which the states of the variable are fastest and those of the first parent
    slowest. Other elements are skipped. A file that declares entities is refused: they can make a small file a very
    large one, or name other files.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._models import FactorGraph
from dobrushin._models.derived import sums_to_one
from dobrushin._models.forms import log_table
from dobrushin.errors import FormatError
from dobrushin.io.source import Source, quote, read_weights, word_starts

# Rows that miss 1 by more than this are not rounded but wrong, and by less than this for each state they do not.
_SLIGHT, _ROUNDING = 1e-5, 1e-15
# Memory for an entry of a table while it is read: the entry, the row that sums to 1, logarithms, and two copies.
_ENTRY_BYTES = 40.0
# Memory for a word of a text, and for an element or an attribute of XML, while they are read.
_WORD_BYTES, _ELEMENT_BYTES = 100.0, 200.0


def sums_of(values: NDArray[np.float64], first: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sums of consecutive values, each from an index in `first` up to the next; inf on overflow."""
    with np.errstate(over="ignore"):
        return np.add.reduceat(values, first)


def normalise(table: NDArray[np.float64], sums: NDArray[np.float64], states: Any) -> NDArray[np.float64]:
    """Divide each row of a flat table by its sum, if that is not 1 but off by at most `_SLIGHT`."""
    off = np.abs(sums - 1)
    divisor = np.where((off > _ROUNDING * np.asarray(states)) & (off <= _SLIGHT), sums, 1.0)
    return table / np.repeat(divisor, states)


def in_a_cycle(children: NDArray[Any], parents: NDArray[Any], n: int) -> int | None:
    """Return a variable that is its own ancestor, or None; edge k goes from parents[k] to children[k]."""
    graph = sparse.csr_array((np.ones(len(children), dtype=np.int8), (parents, children)), shape=(n, n))
    count, group = csgraph.connected_components(graph, directed=True, connection="strong")
    return None if count == n else int(np.argmax(np.bincount(group)[group] > 1))


def graph_of_tables(
    states: Mapping[Any, Sequence[Hashable]], tables: Iterable[tuple[Sequence[Any], NDArray[np.float64]]]
) -> FactorGraph | None:
    """Return a factor graph made of tables of weights; None if no variable has two states.

    Parameters
    ----------
    states : dict from variable to names of states
        Variables with one state are left out.
    tables : pairs of variables and weights
        The weights have an axis for each of the variables.
    """
    random = [variable for variable, names in states.items() if len(names) > 1]
    if not random:
        return None
    position = {variable: i for i, variable in enumerate(random)}
    factors, error = [], 0.0
    for variables, weights in tables:
        scope = [position[variable] for variable in variables if variable in position]
        # Decimals are rounded once when they are read, and a few times more when rows are made to sum to 1.
        logs, rounding = log_table(weights.reshape([len(states[random[i]]) for i in scope]), 3.0 + max(weights.shape))
        factors.append((scope, logs))
        error += rounding
    names = [tuple(states[variable]) for variable in random]
    return FactorGraph([len(own) for own in names], factors, random, state_names=names)._off_by(error)


class Network:
    """The Bayesian network in a file, checked while it is read.

    Parameters
    ----------
    source : Source
    place : function
        Returns the first byte of token `k`, for error messages.
    """

    def __init__(self, source: Source, place: Callable[[int], int | None] = lambda _: None) -> None:
        self.source, self._place = source, place
        self.states: dict[str, tuple[str, ...]] = {}
        self.parents: dict[str, tuple[str, ...]] = {}
        # A row for each state of the parents, the last parent fastest; a column for each state of the variable.
        self.tables: dict[str, NDArray[np.float64]] = {}
        self._start: dict[str, int] = {}
        self._entries = 0

    def add_variable(self, name: str, states: Sequence[str], k: int = 0) -> None:
        if name in self.states:
            self._fail("each variable once", f"{quote(name)} twice", k)
        repeated = _find_repeated(states)
        if not name or not states or repeated is not None:
            found = "none" if repeated is None or not name else f"{quote(repeated)} twice"
            self._fail(f"one or more different states of {quote(name)}", found, k)
        self.states[name] = tuple(states)

    def begin_table(self, child: str, parents: Sequence[str], k: int = 0) -> list[int]:
        """Check a table's variables and memory; return their numbers of states, that of the child last."""
        for name in (child, *parents):
            if name not in self.states:
                self._fail("a variable that was declared before", quote(name), k)
        if (repeated := _find_repeated([child, *parents])) is not None:
            self._fail("different variables", f"{quote(repeated)} twice", k)
        if child in self.parents:
            self._fail("one table for each variable", f"another one of {quote(child)}", k)
        sizes = [len(self.states[name]) for name in (*parents, child)]
        self._entries += min(math.prod(sizes), 2**60)
        if _ENTRY_BYTES * self._entries > self.source.limit:  # to find the place takes a while
            self.source.require_memory(_ENTRY_BYTES * self._entries, "tables", self._place(k))
        self.parents[child], self._start[child] = tuple(parents), k
        return sizes

    def set_table(self, child: str, rows: NDArray[np.float64]) -> None:
        """Store the rows of a table; each must sum to 1, up to the rounding of published tables."""
        states = rows.shape[-1]
        sums = sums_of(rows.ravel(), np.arange(0, rows.size, states))
        if (bad := ~sums_to_one(sums, states)).any():
            sentence = f"the sum {sums[int(np.argmax(bad))]:.6g}"
            self._fail(f"probabilities of {quote(child)} that sum to 1", sentence, self._start[child])
        self.tables[child] = normalise(rows.ravel(), sums, states).reshape(rows.shape)

    def add_words(self, child: str, parents: Sequence[str], words: Sequence[str], k: int = 0) -> None:
        """Add a table given as words; the child's state changes fastest, that of its first parent slowest."""
        sizes = self.begin_table(child, parents, k)
        if len(words) != math.prod(sizes):
            self._fail(f"{math.prod(sizes)} probabilities of {quote(child)}", str(len(words)), k)

        def refuse(word: int) -> NoReturn:
            self._fail(f"probabilities of {quote(child)}, 0 or more", quote(words[word]), k)

        self.set_table(child, read_weights(words, refuse).reshape(-1, sizes[-1]))

    def check(self, end: int = 0) -> Network:
        """Fail if a variable has no table or is its own ancestor; `end` is the number of the last token."""
        for name in self.states:
            if name not in self.tables:
                self._fail(f"a table of {quote(name)}", "none", end)
        position = {name: i for i, name in enumerate(self.states)}
        pairs = [(position[child], position[p]) for child, parents in self.parents.items() for p in parents]
        children, above = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        if (loop := in_a_cycle(children, above, len(position))) is not None:
            name = list(position)[loop]
            self._fail("a network without a cycle", f"{quote(name)} among its own ancestors", self._start[name])
        return self

    def to_model(self) -> FactorGraph:
        """Return the network as a factor graph."""
        scopes = {name: (*self.parents[name], name) for name in self.tables}
        shapes = {name: [len(self.states[v]) for v in scope] for name, scope in scopes.items()}
        tables = ((scopes[name], table.reshape(shapes[name])) for name, table in self.tables.items())
        model = graph_of_tables(self.states, tables)
        if model is None:
            self._fail("a variable with two or more states", "none", 0)
        return model

    def _fail(self, expected: str, found: str, k: int) -> NoReturn:
        raise self.source.error(expected, found, self._place(k))


def _find_repeated(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


class Tokens:
    """The words and punctuation marks of a file, taken from left to right.

    Positions of tokens in the file are looked up only for error messages.

    Parameters
    ----------
    source : Source
    pattern : pattern
        Matches a token as its group 1, and blanks and comments without a group.
    marks : str
        Punctuation marks: tokens that are not names.
    """

    def __init__(self, source: Source, pattern: re.Pattern[str], marks: str) -> None:
        # Marks are tokens, and words end at them.
        count = np.count_nonzero(word_starts(source.data)) + 2 * sum(source.data.count(ord(mark)) for mark in marks)
        source.require_memory(len(source.data) + _WORD_BYTES * count, "words")
        self.source, self.text = source, source.text()
        self._pattern, self._marks = pattern, frozenset(marks)
        self.tokens = [token for token in pattern.findall(self.text) if token]
        self.k = 0

    def take(self, expected: str) -> str:
        """Return the next token."""
        if self.k >= len(self.tokens):
            raise self.source.error(expected, "the end of the file", len(self.source.data))
        self.k += 1
        return self.tokens[self.k - 1]

    def expect(self, *tokens: str) -> None:
        """Skip the next tokens, which must be these."""
        for token in tokens:
            if self.take(repr(token)) != token:
                self.fail(repr(token), self.k - 1)

    def name(self, expected: str) -> str:
        """Return the next token, which must be a name."""
        if (token := self.take(expected)) in self._marks:
            self.fail(expected, self.k - 1)
        return token

    def upto(self, mark: str, expected: str) -> list[str]:
        """Return the tokens before the next `mark`, and skip the mark."""
        try:
            end = self.tokens.index(mark, self.k)
        except ValueError:
            self.fail(f"{expected} and then {mark}", self.k, "none")
        start, self.k = self.k, end + 1
        return self.tokens[start:end]

    def place(self, k: int) -> int:
        """Return the index of the first byte of token k."""
        for seen, match in enumerate(m for m in self._pattern.finditer(self.text) if m.group(1)):
            if seen == k:
                return len(self.text[: match.start(1)].encode())
        return len(self.source.data)

    def fail(self, expected: str, k: int, got: str | None = None) -> NoReturn:
        """Raise the `FormatError` about token k."""
        shown = got or (quote(self.tokens[k]) if k < len(self.tokens) else "the end of the file")
        raise self.source.error(expected, shown, self.place(k))


# -- Hugin -------------------------------------------------------------------------------------------

_HUGIN_TOKEN = re.compile(r'\s+|%[^\n]*|("[^"]*"|[{}()=;|]|[^\s{}()=;|"%]+|.)')
_HUGIN_MARKS = "{}()=;|"
_REST = "the rest of a block"


def read_hugin(source: Source) -> FactorGraph:
    """Read a Hugin file as a factor graph; variables with one state are left out."""
    tokens = Tokens(source, _HUGIN_TOKEN, _HUGIN_MARKS)
    network = Network(source, tokens.place)
    while tokens.k < len(tokens.tokens):
        if (kind := tokens.take(_REST)) == "discrete":
            kind = tokens.take(_REST)
        start = tokens.k - 1
        if kind in ("net", "class"):
            if tokens.tokens[tokens.k : tokens.k + 1] != ["{"]:
                tokens.take(_REST)
            _read_fields(tokens)
        elif kind == "node":
            name, fields = tokens.name("a name"), _read_fields(tokens)
            states = [word.strip('"') for word in fields.get("states", ()) if word not in _HUGIN_MARKS]
            network.add_variable(name, states, start)
        elif kind == "potential":
            tokens.expect("(")
            words = tokens.upto(")", "variables")
            child, parents = words[:1], [word for word in words[1:] if word != "|"]
            has_bars = words[1:].count("|") > 1 or (parents and words[1] != "|")
            if not child or has_bars or any(word in _HUGIN_MARKS for word in (*child, *parents)):
                tokens.fail("( child | parents )", start, quote(" ".join(words)))
            fields = _read_fields(tokens)
            if "data" not in fields or "model_nodes" in fields:
                tokens.fail(f"data of {quote(child[0])}", start, "none, or a formula (model_nodes)")
            numbers = [word for word in fields["data"] if word not in "()"]
            network.add_words(child[0], parents, numbers, start)
        else:
            tokens.fail("net, node or potential", start)
    return network.check(tokens.k).to_model()


def _read_fields(tokens: Tokens) -> dict[str, list[str]]:
    """Read the fields between braces: a dict from name to the words before its semicolon."""
    tokens.expect("{")
    fields: dict[str, list[str]] = {}
    while (name := tokens.take(_REST)) != "}":
        start = tokens.k - 1
        tokens.expect("=")
        words = tokens.upto(";", "a value")
        if "{" in words or "}" in words:
            tokens.fail("a semicolon after the value", start, "none")
        if name in fields:
            tokens.fail("each field once", start)
        fields[name] = words
    return fields


# -- XMLBIF ------------------------------------------------------------------------------------------


def read_xmlbif(source: Source) -> FactorGraph:
    """Read an XMLBIF file as a factor graph; variables with one state are left out."""
    root = _parse_xml(source)
    body = root if root.tag == "NETWORK" else root.find("NETWORK")
    if body is None or root.tag not in ("BIF", "NETWORK"):
        raise source.error("an element BIF with a NETWORK", quote(root.tag))
    network = Network(source)
    for element in body.findall("VARIABLE"):
        names = _texts(element, "NAME")
        if len(names) != 1 or element.get("TYPE", "nature") != "nature":
            found = quote(str(element.get("TYPE", len(names))))
            raise source.error("variables of TYPE nature, each with one NAME", found)
        network.add_variable(names[0], [*_texts(element, "OUTCOME"), *_texts(element, "VALUE")])
    for element in body.findall("DEFINITION"):
        names, table = _texts(element, "FOR"), element.findall("TABLE")
        if len(names) != 1 or len(table) != 1:
            raise source.error("definitions FOR one variable, with one TABLE", f"{len(names)} and {len(table)}")
        network.add_words(names[0], _texts(element, "GIVEN"), " ".join(table[0].itertext()).split())
    return network.check().to_model()


def _parse_xml(source: Source) -> ElementTree.Element:
    """Parse XML, refusing entities in the parser itself, so that none can be hidden by encoding or place."""
    data = source.data
    source.require_memory(len(data) + _ELEMENT_BYTES * (data.count(b"<") + data.count(b"=")), "XML elements")
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate(None, "}")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.data

    def refuse(*_: Any) -> NoReturn:
        line = parser.CurrentLineNumber
        raise FormatError(source.path, "XML without entities of its own", "an entity", line)

    parser.EntityDeclHandler = parser.SkippedEntityHandler = refuse
    try:
        parser.Parse(data, True)
        return builder.close()
    except FormatError:
        raise
    except (expat.ExpatError, ValueError, LookupError, AssertionError) as error:
        raise source.error("XML", f"something else ({quote(str(error))})") from None


def _texts(element: ElementTree.Element, tag: str) -> list[str]:
    """Return the texts of an element's children with a tag; runs of blanks become one blank."""
    return [" ".join("".join(child.itertext()).split()) for child in element.findall(tag)]
