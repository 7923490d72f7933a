"""Evidence of the UAI competitions: ``.evid``.

Two layouts are in use: ``k v1 x1 ... vk xk``, and the older ``1`` (the number of samples) before that. The first has
an odd number of numbers and the second an even one, so no file is both.
"""

from __future__ import annotations

import numpy as np

from dobrushin.io.numbers import Numbers
from dobrushin.io.source import LIMIT, Path, load


def read_evidence(path: Path, *, limit: int = LIMIT) -> dict[int, int]:
    """Observed values, from a UAI evidence file.

    Parameters
    ----------
    path : str or path
        The file; one whose name ends in ``.gz`` is unpacked.
    limit : int
        Bytes that the file may unpack to.

    Returns
    -------
    dict from variable to state
        What `Model.condition` takes, for a model from a UAI file. Empty if nothing is observed.

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
    source = load(path, limit, "read_evidence")
    numbers = Numbers(source, source.data)
    values = numbers.whole(len(numbers), "whole numbers, 0 or more")
    _refuse_samples(numbers)
    older = 1 - len(values) % 2
    if older and values[0] != 1:
        raise numbers.error("k and then k variables with their states, or 1 before that", 0)
    pairs = values[1 + older :]
    count = int(values[older])
    if len(pairs) != 2 * count:
        got = f"{len(pairs)} numbers after it"
        raise source.error(f"{count} variables with their states after their number", got, numbers.offset(older))
    evidence: dict[int, int] = {}
    for k, (variable, state) in enumerate(pairs.reshape(-1, 2).tolist()):
        if variable in evidence:
            raise numbers.error("each variable once", 1 + older + 2 * k)
        evidence[variable] = state
    return evidence


def _refuse_samples(numbers: Numbers) -> None:
    """Several samples can look like one: 2 / 0 / 1 5 1 is two samples, or two values. Its lines tell."""
    lines = numbers.lines()
    _, first, sizes = np.unique(lines, return_index=True, return_counts=True)
    samples = numbers.values[0]
    if samples >= 2 and sizes[0] == 1 and len(sizes) == samples + 1:
        counts = numbers.values[first[1:]]
        if (sizes[1:] == 1 + 2 * counts).all():
            raise numbers.error("one sample of evidence, rather than a first line that says how many there are", 0)
