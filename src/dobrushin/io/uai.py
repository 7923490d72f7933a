"""Models in the format of the UAI competitions: ``.uai``.

A preamble (MARKOV or BAYES, the number of variables, their numbers of states, the number of tables, the scope of
each), then the tables, each after its size: weights, the last variable of the scope fastest. Rows of probabilities
(BAYES) that miss 1 by at most 1e-5 are divided by their sum; those that miss it by more are taken as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._models import FactorGraph, Model
from dobrushin._models.derived import sums_to_one
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import log_table
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import prefix_sums
from dobrushin._shared.call import public
from dobrushin._shared.text import counted
from dobrushin.errors import ArgumentError
from dobrushin.io import deepdive
from dobrushin.io.networks import in_a_cycle, normalise, sums_of
from dobrushin.io.source import LIMIT, Numbers, Path, Source, inverse, load, quote, save

# The logarithms of weights that a double can hold without losing digits.
_LARGEST_LOG, _SMALLEST_LOG = 709.0, -708.0


class _Blocks(NamedTuple):
    """Blocks of numbers in one flat array: the scopes, or the tables."""

    start: NDArray[np.int64]  # of each block, and the end of the last one
    values: NDArray[Any]
    at: NDArray[np.int64]  # which of the numbers of the file each value is


def read(source: Source) -> FactorGraph:
    """Read a UAI file as a factor graph; variables with one state are left out, the others are labelled by number."""
    kind, numbers = _open(source)
    sizes = _read_sizes(numbers)
    source.require_memory(8.0 * sizes.sum(dtype=np.float64), "states", numbers.offset(0))
    scopes = _read_scopes(numbers, len(sizes))
    tables = _read_tables(numbers, scopes.start, sizes[scopes.values])
    weights = tables.values if kind == b"MARKOV" else _read_network(numbers, sizes, scopes, tables)
    # Numbers are rounded once when they are read, and those of a network a few times more when they are normalised.
    logs, error = log_table(weights, 1.0 if kind == b"MARKOV" else 3.0 + float(sizes.max()), tables.start)
    # A variable with one state is not random. Its axis in each table has length 1.
    random = sizes > 1
    if not random.any():
        raise source.error("a variable with two or more states", "none", numbers.offset(0))
    kept = random[scopes.values]
    scope = (np.cumsum(random) - 1)[scopes.values[kept]]
    form = FactorTables(sizes[random], prefix_sums(kept)[scopes.start], scope, tables.start, logs)
    return FactorGraph._from_form(form.off_by(error), None if random.all() else np.flatnonzero(random).tolist())


def read_sizes(path: Path, *, memory_limit: float | str = LIMIT) -> NDArray[np.int64]:
    """Return the number of states of each variable of a UAI file, including variables with one state.

    Parameters
    ----------
    path : str or path
        The file; one whose name ends in ``.gz`` is unpacked.
    memory_limit : number or str, optional
        Bytes that the file may unpack to.

    Examples
    --------
    >>> import os, tempfile
    >>> from dobrushin.io import read, read_sizes
    >>> path = os.path.join(tempfile.mkdtemp(), "coin.uai")
    >>> with open(path, "w") as file:
    ...     _ = file.write("MARKOV 2 1 2 1 2 0 1 2 0.25 0.75")
    >>> read_sizes(path), read(path).labels
    (array([1, 2]), (1,))
    """
    return _read_sizes(_open(load(path, memory_limit))[1])


def write(model: Model) -> bytes:
    """Write a model as a UAI file; spins -1/+1 become states 0/1, and variables are numbered by position."""
    graph = model.to_factor_graph()
    logs = graph._form.table
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        weights = inverse(np.log, logs, np.exp(logs))
        lost = ((logs < _SMALLEST_LOG) | (logs > _LARGEST_LOG)) & (np.log(weights) != logs)
    if lost.any():
        requirement = f"of log-potentials from {_SMALLEST_LOG:g} to {_LARGEST_LOG:g} or -inf, since UAI holds weights"
        raise ArgumentError("model", requirement, logs[int(np.argmax(lost))])
    scope, scope_start = graph._form.scope.tolist(), graph._form.scope_start.tolist()
    table_start = graph._form.table_start.tolist()
    lines = ["MARKOV", str(graph.n_variables), " ".join(map(str, graph.cardinalities.tolist())), str(graph.n_factors)]
    for first, last in pairwise(scope_start):
        lines.append(" ".join(map(str, [last - first, *scope[first:last]])))
    for first, last in pairwise(table_start):
        lines += ["", str(last - first), " ".join(map(repr, weights[first:last].tolist()))]
    return "\n".join([*lines, ""]).encode()


def _open(source: Source) -> tuple[bytes, Numbers]:
    # Blanked out rather than cut off, so that offsets stay what they are in the file. pyAgrum writes comments.
    data = (
        re.sub(rb"#[^\n]*", lambda comment: b" " * len(comment[0]), source.data) if b"#" in source.data else source.data
    )
    kind = next(iter(data.split(None, 1)), b"")
    if kind not in (b"MARKOV", b"BAYES"):
        raise source.error("MARKOV or BAYES", quote(kind), data.index(kind))
    return kind, Numbers(source, data.replace(kind, b" " * len(kind), 1))


def _read_sizes(numbers: Numbers) -> NDArray[np.int64]:
    n = numbers.count("the number of variables, 1 or more", least=1)
    return numbers.whole(n, f"the numbers of states of {n} variables, each 1 or more", least=1)


def _read_scopes(numbers: Numbers, n: int) -> _Blocks:
    tables = numbers.count("the number of tables")
    first = numbers.position
    heads, at = numbers.blocks(tables, "the number of variables of table {}")
    numbers.position = first
    numbers.whole(len(heads) + len(at), "a whole number")
    scope = numbers.values[at].astype(np.int64)
    start = prefix_sums(numbers.values[heads]).astype(np.int64)
    numbers.first_error(scope >= n, at, f"a variable from 0 to {n - 1}")
    table = np.repeat(np.arange(tables), np.diff(start))
    order = np.lexsort((scope, table))
    again = (np.diff(scope[order]) == 0) & (np.diff(table[order]) == 0)
    if again.any():
        raise numbers.error("different variables in a scope", int(at[order[1:][again]].min()))
    return _Blocks(start, scope, at)


def _read_tables(numbers: Numbers, start: NDArray[np.int64], sizes: NDArray[np.int64]) -> _Blocks:
    """Read the tables, of which table k has the variables from `start[k]` on; `sizes` has their numbers of states."""
    # Sizes that doubles cannot hold exactly are larger than any file.
    size = np.ones(len(start) - 1)
    with np.errstate(over="ignore"):
        np.multiply.at(size, np.repeat(np.arange(len(size)), np.diff(start)), sizes.astype(np.float64))
        head = numbers.position + np.concatenate([[0.0], np.cumsum(size + 1)])
    end = len(numbers)
    there = head[:-1] < end
    place = head[:-1][there].astype(np.int64)
    said = numbers.values[place]
    if (wrong := (said != size[: len(said)]) | ~numbers.are_whole(place)).any() or not there.all():
        k = int(np.argmax(wrong)) if wrong.any() else len(said)
        expected = f"{size[k]:.0f}, the number of entries of table {k}"
        raise numbers.error(expected, int(head[k]) if k < len(said) else end)
    if head[-1] > end:
        k = int(np.searchsorted(head, end, side="right")) - 1
        numbers.position = int(head[k]) + 1
        numbers.take(int(min(size[k], 2.0**62)), f"{size[k]:.0f} entries of table {k}")
    entry = np.ones(end - numbers.position, dtype=bool)
    entry[head[:-1].astype(np.int64) - numbers.position] = False
    entry[int(head[-1]) - numbers.position :] = False
    at = numbers.position + np.flatnonzero(entry)
    numbers.position = int(head[-1])
    numbers.require_end("the last table")
    table = numbers.values[at]
    numbers.first_error(table < 0, at, "a weight, 0 or more")
    table_start = prefix_sums(size).astype(np.int64)
    if len(size) and (empty := np.maximum.reduceat(table, table_start[:-1]) == 0).any():
        k = int(np.argmax(empty))
        offset = numbers.offset(int(at[table_start[k]]))
        raise numbers.source.error("a weight above 0 in each table", f"zeros only in table {k}", offset)
    return _Blocks(table_start, table, at)


def _read_network(numbers: Numbers, sizes: NDArray[np.int64], scopes: _Blocks, tables: _Blocks) -> NDArray[np.float64]:
    """Return the tables of a Bayesian network, with rows of rounded probabilities divided by their sums.

    A BAYES file must have a table for each variable: its conditional probabilities, with the variable last in the
    scope.
    """
    n, source = len(sizes), numbers.source
    if len(scopes.start) - 1 != n or (np.diff(scopes.start) == 0).any():
        found = counted(len(scopes.start) - 1, "table")
        raise source.error(f"BAYES to have a table for each of {n} variables", found, 0)
    last = scopes.start[1:] - 1
    child = scopes.values[last]
    if (missing := np.bincount(child, minlength=n) != 1).any():
        i = int(np.argmax(missing))
        times = int(np.count_nonzero(child == i))
        raise source.error("each variable to be the last one of one scope (BAYES)", f"variable {i} {times} times", 0)
    children, is_parent = np.repeat(child, np.diff(scopes.start)), np.ones(len(scopes.values), dtype=bool)
    is_parent[last] = False
    loop = in_a_cycle(children[is_parent], scopes.values[is_parent], n)
    if loop is not None:
        place = numbers.offset(int(scopes.at[last[child == loop][0]]))
        raise source.error("BAYES to have no cycle", f"variable {loop} among its own ancestors", place)
    # The child comes last, so its states are neighbours in the table: one distribution for each state of the others.
    width = np.repeat(sizes[child], np.diff(tables.start) // sizes[child])
    first = np.cumsum(width) - width
    sums = sums_of(tables.values, first)
    if (bad := ~sums_to_one(sums, width)).any():
        k = int(np.argmax(bad))
        place = numbers.offset(int(tables.at[first[k]]))
        raise source.error("probabilities that sum to 1 (BAYES)", f"the sum {sums[k]:.6g}", place)
    return normalise(tables.values, sums, width)


# -- evidence and marginals ----------------------------------------------------------------------

# Largest distance of sums of probabilities from 1, in marginals that are written.
_SLACK = 1e-6


@public()
def read_evidence(path: Path, *, memory_limit: float | str = LIMIT) -> dict[int, int]:
    """Read observed values from a UAI evidence file or a graph of DeepDive.

    Parameters
    ----------
    path : str or path
        The file; one whose name ends in ``.gz`` is unpacked. Of a graph of DeepDive, its ``.meta`` file.
    memory_limit : number or str, optional
        Bytes that the file may unpack to.

    Returns
    -------
    dict from variable to state
        What `Model.condition` takes, for the model of the UAI file or of the graph. Empty if nothing is observed.

    Raises
    ------
    FormatError
        If the file is in neither layout, names a variable twice, or has several samples of evidence (a first line
        N of 2 or more, and then N lines of evidence).

    Examples
    --------
    >>> import os, tempfile
    >>> from dobrushin.io import read_evidence
    >>> path = os.path.join(tempfile.mkdtemp(), "grid.uai.evid")
    >>> with open(path, "w") as file:
    ...     _ = file.write("2 10 0 13 1")
    >>> read_evidence(path)
    {10: 0, 13: 1}
    """
    source = load(path, memory_limit)
    if source.path.removesuffix(".gz").endswith(".meta"):
        return deepdive.read_evidence(source)
    numbers = Numbers(source, source.data)
    values = numbers.whole(len(numbers), "whole numbers, 0 or more")
    # 2 / 0 / 1 5 1 can be two samples or two values: the lines tell which.
    _, first, sizes = np.unique(numbers.lines(), return_index=True, return_counts=True)
    are_samples = values[0] >= 2 and sizes[0] == 1 and len(sizes) == values[0] + 1
    if are_samples and (sizes[1:] == 1 + 2 * values[first[1:]]).all():
        raise numbers.error("one sample of evidence, rather than a first line that says how many there are", 0)
    older = 1 - len(values) % 2
    if older and values[0] != 1:
        raise numbers.error("a number k, then k pairs of a variable and its state (older files have a 1 first)", 0)
    pairs = values[1 + older :]
    count = int(values[older])
    if len(pairs) != 2 * count:
        got = f"{len(pairs)} numbers after it"
        raise source.error(
            f"{count} pairs of a variable and its state after the number of pairs", got, numbers.offset(older)
        )
    evidence: dict[int, int] = {}
    for k, (variable, state) in enumerate(pairs.reshape(-1, 2).tolist()):
        if variable in evidence:
            raise numbers.error("each variable once", 1 + older + 2 * k)
        evidence[variable] = state
    return evidence


@public()
def read_marginals(path: Path, *, memory_limit: float | str = LIMIT) -> list[NDArray[np.float64]]:
    """Read the probabilities of the states of each variable from a UAI result file.

    Parameters
    ----------
    path : str or path
        The file; one whose name ends in ``.gz`` is unpacked.
    memory_limit : number or str, optional
        Bytes that the file may unpack to.

    Returns
    -------
    list of arrays
        One per variable, by its number.

    Examples
    --------
    >>> import os, tempfile
    >>> from dobrushin.io import read_marginals, write_marginals
    >>> path = os.path.join(tempfile.mkdtemp(), "grid.MAR")
    >>> write_marginals([[0.25, 0.75], [0.1, 0.2, 0.7]], path)
    >>> read_marginals(path)
    [array([0.25, 0.75]), array([0.1, 0.2, 0.7])]
    """
    source = load(path, memory_limit)
    word = source.data.split(None, 1)[0]
    if word != b"MAR":
        raise source.error("MAR", quote(word), source.data.index(word))
    numbers = Numbers(source, source.data.replace(word, b"   ", 1))
    # With one variable, its states fill the file; with one sample, more than their number comes after it.
    if len(numbers) > 1 and numbers.values[0] == 1 and len(numbers) != 2 + numbers.values[1]:
        numbers.count("the number of samples")
    n = numbers.count("the number of variables, 1 or more", least=1)
    heads, at = numbers.blocks(n, "the number of states of variable {}")
    numbers.require_end("the last variable")
    sizes = numbers.values[heads].astype(np.int64)
    numbers.first_error(numbers.values < 0, 0, "a probability, 0 or more")
    if not sizes.all():
        raise numbers.error("1 or more states", int(heads[np.argmin(sizes)]))
    start = prefix_sums(sizes)
    sums = sums_of(numbers.values[at], start[:-1])
    if (bad := ~sums_to_one(sums, sizes)).any():
        i = int(np.argmax(bad))
        raise source.error(
            f"probabilities of variable {i} that sum to 1", f"the sum {sums[i]:.6g}", numbers.offset(at[start[i]])
        )
    return [row.copy() for row in np.split(numbers.values[at], start[1:-1])]


@public()
def write_marginals(
    marginals: Sequence[ArrayLike] | Mapping[int, ArrayLike],
    path: Path,
    *,
    evidence: Mapping[int, int] | None = None,
    sizes: ArrayLike | None = None,
) -> None:
    """Write probabilities of the states of each variable as a UAI result file.

    Parameters
    ----------
    marginals : sequence of arrays, or dict from variable to array
        Probabilities of the states of each variable of the UAI model. A dict may leave out variables that are
        observed or have one state; it then needs `sizes`.
    path : str or path
        The file; one whose name ends in ``.gz`` is packed. Numbers are written in full, so that they are read back
        exactly.
    evidence : dict from variable to state, optional
        Observed variables: their state has probability 1.
    sizes : array of int, optional
        Number of states of every variable of the UAI model, as `read_sizes` gives.

    Examples
    --------
    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from dobrushin.io import write_marginals
    >>> path = os.path.join(tempfile.mkdtemp(), "grid.MAR")
    >>> write_marginals({1: [0.5, 0.5]}, path, evidence={0: 2}, sizes=[3, 2, 1])
    >>> print(Path(path).read_text())
    MAR
    3 3 0.0 0.0 1.0 2 0.5 0.5 1 1.0
    """
    rows = _complete(marginals, dict(evidence or {}), sizes)
    tokens = ["MAR\n" + str(len(rows))]
    for i, row in enumerate(rows):
        # Written as "not ... <=", so that NaN fails too.
        if not (row >= 0).all() or not abs(row.sum() - 1) <= _SLACK:
            raise ArgumentError("marginals", "probabilities that sum to 1 for each variable", row, f"variable {i}")
        tokens += [str(len(row)), *map(repr, row.tolist())]
    save(path, (" ".join(tokens) + "\n").encode())


def _complete(marginals: Any, evidence: dict[int, int], sizes: ArrayLike | None) -> list[NDArray[np.float64]]:
    """Return the probabilities of every variable of the file, also of observed ones and those with one state."""
    items = marginals.items() if isinstance(marginals, Mapping) else enumerate(marginals)
    given = {i: check.real_array(row, "marginals") for i, row in items}
    if sizes is None and evidence:
        raise ArgumentError("sizes", "given along with evidence", None)
    counts = np.array([row.size for row in given.values()]) if sizes is None else np.asarray(sizes)
    if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "iu" or (counts < 1).any():
        raise ArgumentError("sizes", "the number of states of each of one or more variables", counts)
    n = len(counts)
    for i in given:
        if i not in range(n):
            raise ArgumentError("marginals", f"for variables from 0 to {n - 1}", i)
    for i, state in evidence.items():
        if i in given or i not in range(n) or state not in range(counts[i]):
            raise ArgumentError("evidence", "a state of a variable that has no marginal", {i: state})
        given[i] = (np.arange(counts[i]) == state).astype(np.float64)
    for i, states in enumerate(counts.tolist()):
        if states == 1:
            given.setdefault(i, np.ones(1))
        if i not in given or given[i].shape != (states if sizes is not None else given[i].size,):
            raise ArgumentError("marginals", f"{states} probabilities for variable {i}", given.get(i))
    return [given[i] for i in range(n)]
