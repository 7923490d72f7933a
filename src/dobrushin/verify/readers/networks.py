"""Read files of Bayesian networks: BIF, Hugin and XMLBIF."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile
from typing import Any
from xml.parsers import expat

import numpy as np

from dobrushin.verify.document import Array, Budget
from dobrushin.verify.readers.tables import PER_SCOPE, ModelFile, of_weights, read_numbers

BIF_TOKEN = re.compile(r'\s+|//[^\n]*|/\*[\s\S]*?\*/|("[^"]*"|[{}()\[\];,|]|[^\s{}()\[\];,|"]+)')
HUGIN_TOKEN = re.compile(r'\s+|%[^\n]*|("[^"]*"|[{}()=;|]|[^\s{}()=;|"%]+)')
MAX_DEPTH, MAX_ATTRIBUTES = 100, 100  # depth of nested elements; attributes declared in a file
PER_CHANCE = 3e-8  # seconds for an entry of a table


class NetworkFile:
    """A Bayesian network: states and parents of its variables, and rows of probabilities."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.states = dict[str, list[str]]()
        self.tables = dict[str, tuple[list[str], Array]]()

    def sizes(self, names: list[str]) -> list[int]:
        """Return numbers of states, and charge the budget for a table over these variables."""
        sizes = [len(self.states[name]) for name in names]
        cells = math.prod(sizes)
        what = "a table of the model file"
        self.budget.charge(what, PER_CHANCE * cells, held=24.0 * cells, briefly=64.0 * cells)
        return sizes

    def add_table(self, child: str, parents: list[str], numbers: list[str]) -> None:
        """Store the probabilities of a variable: a row for each joint state of its parents."""
        sizes = self.sizes([*parents, child])
        rows = np.array(read_numbers(float, numbers)).reshape(math.prod(sizes[:-1]), sizes[-1])
        self.tables[child] = [*parents, child], rows

    def model(self, inside: Array) -> ModelFile:
        """Return the model, without variables of one state."""
        if self.states.keys() != self.tables.keys():
            raise ValueError("a variable has no probabilities")
        self.budget.charge("the tables of the model file", PER_SCOPE * len(self.tables))
        number = {name: k for k, name in enumerate(self.states)}
        tables = (([number[name] for name in scope], rows) for scope, rows in self.tables.values())
        sizes = np.array([len(own) for own in self.states.values()])
        names = [name for name, own in self.states.items() if len(own) > 1]
        state_names = [self.states[name] for name in names]
        model = of_weights(sizes, tables, True, inside)
        return model._replace(names=names, state_names=state_names)


# -- BIF -------------------------------------------------------------------------------------------


def read_bif(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read a BIF file: blocks of variables and of conditional probabilities."""
    tokens = iter([token for token in BIF_TOKEN.findall(data.decode()) if token])
    network = NetworkFile(budget)
    for kind in tokens:
        head = [token.strip('"') for token in takewhile("{".__ne__, tokens)]
        body = list(_statements(tokens))
        if kind == "variable":
            (own,) = (words for words in body if words[0] == "type")
            states = [token for token in own[own.index("{") + 1 :] if token not in ",}"]
            network.states[head[0]] = states
        elif kind == "probability":
            child, *parents = [token for token in head if token not in "(|),"]
            scope = [*parents, child]
            network.tables[child] = scope, _chances(network, scope, body)
    return network.model(inside)


def _statements(tokens: Iterator[str]) -> Iterator[list[str]]:
    """Split the rest of a block into statements that end with a semicolon."""
    words, depth = list[str](), 1
    for token in tokens:
        depth += (token == "{") - (token == "}")
        if depth == 0:
            return
        if token != ";":
            words.append(token.strip('"'))
        elif depth == 1:
            yield words
            words = []


def _chances(network: NetworkFile, scope: list[str], body: list[list[str]]) -> Array:
    """Return the probabilities of a variable: a row for each joint state of its parents."""
    *shape, own = network.sizes(scope)
    numbers = [{name: k for k, name in enumerate(network.states[v])} for v in scope[:-1]]
    rows, default = np.full((math.prod(shape), own), np.nan), [math.nan] * own
    for statement in body:
        kind, *words = [word for word in statement if word != ","]
        if kind == "table":
            rows[...] = np.array(read_numbers(float, words)).reshape(own, -1).T
        elif kind == "default":
            default = read_numbers(float, words)
        elif kind == "(":
            end = words.index(")")
            digits = [names[word] for names, word in zip(numbers, words[:end], strict=True)]
            row = np.ravel_multi_index(tuple(digits), shape)
            rows[row] = read_numbers(float, words[end + 1 :])
    rows = np.where(np.isnan(rows[:, :1]), default, rows)
    if np.isnan(rows).any():
        raise ValueError("a row of probabilities is missing")
    return rows


# -- Hugin -----------------------------------------------------------------------------------------


def read_hugin(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read a Hugin file: nodes with their states, and potentials with their data."""
    tokens = iter([token for token in HUGIN_TOKEN.findall(data.decode()) if token])
    network = NetworkFile(budget)
    for kind in tokens:
        if kind == "discrete":
            continue
        head, fields = list(takewhile("{".__ne__, tokens)), dict[str, list[str]]()
        for name in takewhile("}".__ne__, tokens):
            fields[name] = [word for word in takewhile(";".__ne__, tokens) if word not in "=()"]
        if kind == "node":
            network.states[head[0]] = [word.strip('"') for word in fields["states"]]
        elif kind == "potential":
            child, *parents = [word for word in head if word not in "(|)"]
            network.add_table(child, parents, fields["data"])
    return network.model(inside)


# -- XMLBIF ----------------------------------------------------------------------------------------


def read_xmlbif(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read an XMLBIF file: variables with their outcomes, and definitions with a table."""
    budget.charge("the elements of the model file", 1e-6 * data.count(b"<"))
    network, path, texts = NetworkFile(budget), list[str](), list[str]()
    fields = defaultdict[str, list[str]](list)

    def begin(tag: str, attributes: dict[str, str]) -> None:
        path.append(tag)
        if len(path) > MAX_DEPTH or attributes.get("TYPE", "nature") != "nature":
            raise ValueError("elements are nested too deeply, or a variable is not of type nature")
        if path[-2:-1] == ["NETWORK"]:
            fields.clear()
        if path[-3:-2] == ["NETWORK"]:
            texts.clear()

    def end(tag: str) -> None:
        if path[-3:-2] == ["NETWORK"]:
            fields[tag].append("".join(texts))
        if path[-2:] == ["NETWORK", "VARIABLE"]:
            (name,) = _in_one_line(fields["NAME"])
            network.states[name] = _in_one_line(fields["OUTCOME"] + fields["VALUE"])
        elif path[-2:] == ["NETWORK", "DEFINITION"]:
            (name,), (table,) = _in_one_line(fields["FOR"]), fields["TABLE"]
            network.add_table(name, _in_one_line(fields["GIVEN"]), table.split())
        path.pop()

    parser = expat.ParserCreate()
    parser.buffer_text = parser.specified_attributes = True
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler = texts.append
    _refuse_declarations(parser)
    parser.Parse(data, True)
    return network.model(inside)


def _in_one_line(texts: list[str]) -> list[str]:
    return [" ".join(text.split()) for text in texts]


def _refuse_declarations(parser: Any) -> None:
    """Make an XML parser refuse entities, which could expand without limit or name other files."""
    count = 0

    def refuse(*_: Any) -> None:
        raise ValueError("it declares an entity, or uses one that it does not declare")

    def declare(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > MAX_ATTRIBUTES:
            raise ValueError("it declares too many attributes")

    parser.EntityDeclHandler = parser.SkippedEntityHandler = refuse
    parser.AttlistDeclHandler = declare
