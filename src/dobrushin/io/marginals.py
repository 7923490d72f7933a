"""Marginals of the UAI competitions: ``.MAR``.

The word MAR, the number of variables, and for each one its number of states and their probabilities. The older layout
has ``1`` (the number of samples) before that; a file that is both would need variables without states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._shared import validate as check
from dobrushin._shared.arrays import prefix_sums
from dobrushin.errors import ArgumentError
from dobrushin.io.networks import sums_of, sums_to_one
from dobrushin.io.numbers import Numbers, quote
from dobrushin.io.source import LIMIT, Path, load, save

# What sums of probabilities may be off by, in what is written here.
_SLACK = 1e-6
_NAME = "write_marginals"


def read_marginals(path: Path, *, limit: int = LIMIT) -> list[NDArray[np.float64]]:
    """Probabilities of the states of each variable, from a UAI result file.

    Parameters
    ----------
    path : str or path
        The file; one whose name ends in ``.gz`` is unpacked.
    limit : int
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
    source = load(path, limit, "read_marginals")
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
        # Written so that what is not a number fails too.
        if not (row >= 0).all() or not abs(row.sum() - 1) <= _SLACK:
            raise ArgumentError(
                _NAME, "marginals", "probabilities that sum to 1 for each variable", row, f"variable {i}"
            )
        tokens += [str(len(row)), *map(repr, row.tolist())]
    save(path, (" ".join(tokens) + "\n").encode(), _NAME)


def _complete(marginals: Any, evidence: dict[int, int], sizes: ArrayLike | None) -> list[NDArray[np.float64]]:
    """One row for each variable of the file."""
    items = marginals.items() if isinstance(marginals, Mapping) else enumerate(marginals)
    given = {i: check.real_array(row, _NAME, "marginals") for i, row in items}
    if sizes is None and evidence:
        raise ArgumentError(_NAME, "sizes", "given along with evidence", None)
    counts = np.array([row.size for row in given.values()]) if sizes is None else np.asarray(sizes)
    if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "iu" or (counts < 1).any():
        raise ArgumentError(_NAME, "sizes", "the number of states of each of one or more variables", counts)
    n = len(counts)
    for i in given:
        if i not in range(n):
            raise ArgumentError(_NAME, "marginals", f"for variables from 0 to {n - 1}", i)
    for i, state in evidence.items():
        if i in given or i not in range(n) or state not in range(counts[i]):
            raise ArgumentError(_NAME, "evidence", "a state of a variable that has no marginal", {i: state})
        given[i] = (np.arange(counts[i]) == state).astype(np.float64)
    for i, states in enumerate(counts.tolist()):
        if states == 1:
            given.setdefault(i, np.ones(1))
        if i not in given or given[i].shape != (states if sizes is not None else given[i].size,):
            raise ArgumentError(_NAME, "marginals", f"{states} probabilities for variable {i}", given.get(i))
    return [given[i] for i in range(n)]
