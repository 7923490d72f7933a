"""Read the library's own files: arrays in a zip file (.npz), or in a folder."""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dobrushin.verify.document import Array, Budget, read_array, read_zip
from dobrushin.verify.model import cut
from dobrushin.verify.readers.tables import Logs, ModelFile, Scope, spin_table

FAMILIES = ("Ising", "Potts", "SpinMRF", "PairwiseMRF", "FactorGraph", "GaussianField")
TERMS = ("diagonal", "linear", "exposure", "trials", "lower", "upper")  # of a variable of a field
NUMERIC = ("<f8", "<i8", "<i4", "|i1", "<i2", "|u1")


def read_npz(data: bytes, inside: Array, budget: Budget) -> ModelFile:
    """Read a model from the arrays of an .npz file."""
    members = read_zip(data, budget).items()
    arrays = {name.removesuffix(".npy"): read_array(own, NUMERIC) for name, own in members}
    family = arrays["format"].tobytes().decode().removeprefix("dobrushin model 1 ")
    if family not in FAMILIES:
        raise ValueError("its model is of an unknown family")
    scopes: list[Scope]
    near = np.ones(len(arrays.get("i", ())), dtype=bool)
    if family in ("Ising", "Potts", "GaussianField"):  # leave out pairs without variables inside
        near = np.isin(arrays["i"], inside) | np.isin(arrays["j"], inside)
    if "i" in arrays:
        scopes = list(zip(arrays["i"][near].tolist(), arrays["j"][near].tolist(), strict=True))
    else:
        ends = [0, *np.cumsum(arrays["arity"]).astype(int).tolist()]
        scopes = [tuple(arrays["scope"][a:b].tolist()) for a, b in pairwise(ends)]
    if family in ("Ising", "SpinMRF", "Potts", "GaussianField"):
        strengths = arrays["strengths"] if family == "SpinMRF" else arrays["couplings"][near]
        pairs = zip(scopes, strengths, strict=True)
        if family == "GaussianField":
            return _field_of(arrays, inside, pairs)
        n, states = arrays["size"].tolist() if family == "Potts" else (len(arrays["fields"]), 0)
        own = arrays.get("unaries", np.empty(0)).reshape(-1, states) if states else arrays["fields"]
        return _lower(n, states, own, inside, pairs)
    sizes, tables = arrays["cardinalities"], arrays["tables"]
    if family == "PairwiseMRF":
        scopes += [(i,) for i in range(len(sizes))]
        tables = np.concatenate([tables.ravel(), arrays["unaries"].ravel()])
    own_tables = zip(scopes, cut(tables, scopes, sizes), strict=True)
    return ModelFile(sizes, ((scope, table, 0.0) for scope, table in own_tables))


def _field_of(
    arrays: Mapping[str, Array], inside: Array, pairs: Iterable[tuple[Scope, float]]
) -> ModelFile:
    """Return a field: parameters of single variables, and negated couplings of pairs."""
    values = np.split(arrays["values"], arrays["value_start"][1:-1])
    singles = {
        i: np.array([*(arrays[name][i] for name in TERMS), *values[i]]) for i in inside.tolist()
    }
    ones = np.array([[0.0, 0.0], [0.0, 1.0]])
    sizes = np.broadcast_to(np.int64(2), len(values))
    field = singles, arrays["lower"], arrays["upper"]
    return ModelFile(sizes, ((scope, -q * ones, 0.0) for scope, q in pairs), field=field)


def read_folder(path: Path, inside: Array, budget: Budget) -> ModelFile:
    """Read the factors at some variables of a model that is stored as a folder of arrays."""
    about = json.loads((path / "manifest.json").read_text())
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in path.glob("*.npy")}

    def row(start: str, k: int, of: str) -> list[Any]:
        first, last = (int(end) for end in arrays[start][k : k + 2])
        size = max(0, last - first)
        budget.charge("the rows of the model folder", 1e-5 + 1e-6 * size, held=200.0 * size)
        return arrays[of][first:last].tolist()

    if "table" in arrays:
        numbers = {k for i in inside.tolist() for k in row("factor_start", i, "factor_of")}
        sizes, factors = arrays["cardinalities"], list[Logs]()
        for k in sorted(numbers):
            scope, table = row("scope_start", k, "scope"), row("table_start", k, "table")
            factors.append((tuple(scope), np.reshape(table, sizes[scope]), 0.0))
        return ModelFile(sizes, factors)
    edges = dict[Scope, float]()
    for i in inside.tolist():
        near = zip(row("start", i, "neighbor"), row("start", i, "coupling"), strict=True)
        edges |= {(min(i, j), max(i, j)): value for j, value in near}
    n, own = len(arrays["start"]) - 1, arrays.get("potential", np.empty(0))
    return _lower(n, int(about["states"]), own, inside, edges.items())


def _lower(
    n: int, states: int, own: Any, inside: Array, pairs: Iterable[tuple[Scope, float]]
) -> ModelFile:
    """Return the log-tables of a model of pairs, from numbers of single variables and of pairs.

    Without `states` the variables are spins, and the numbers fields and couplings. Else the number
    of a pair is added where both labels are equal.
    """
    factors = list[Logs]()
    for i in inside.tolist() if len(own) else ():
        factors.append(((i,), np.array(own[i]) if states else spin_table(own[i], 1), 0.0))
    for scope, value in pairs:
        table = float(value) * np.eye(states) if states else spin_table(value, len(scope))
        factors.append((scope, table, 0.0))
    return ModelFile(np.broadcast_to(np.int64(states or 2), n), factors)
