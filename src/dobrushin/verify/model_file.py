"""Model files: UAI, and the library's own .npz and folders; compared with the factors of a proof."""

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dobrushin.verify.checks import Proof
from dobrushin.verify.document import Array, require
from dobrushin.verify.factors import cut

Factor = tuple[tuple[int, ...], Array]  # positions and log-table
Known = tuple[Array, Iterable[Factor]]  # numbers of states, and the factors that touch some positions
# Logarithms of the same weight differ by this much at most.
SAME = 1e-14


def compare(proof: Proof, path: str) -> str:
    """Reject unless the factors of a proof are those of the file; what is then still to be assumed."""
    inside = np.array(sorted(int(proof.positions[v]) for v in proof.closed))
    touched = set(inside.tolist())
    reader = _read_folder if Path(path).is_dir() else _read_npz if path.endswith(".npz") else _read_uai
    states, factors = reader(path, inside)
    there = _merge(factors, touched)
    require(len(states) == proof.plan["variables"], f"{path} has another number of variables.")
    require(np.array_equal(np.asarray(states)[proof.positions], proof.states), f"{path} has other states.")
    scopes = (tuple(proof.positions[list(scope)].tolist()) for scope in proof.stated.scopes)
    here = _merge(zip(scopes, proof.stated.tables, strict=True), touched)
    require(here.keys() == there.keys(), f"{path} has other factors at the variables of the proof.")
    for scope, table in here.items():
        with np.errstate(invalid="ignore"):
            near = np.abs(table - there[scope]) <= SAME * (1.0 + np.abs(there[scope]))
        same = np.all((table == there[scope]) | near & np.isfinite(there[scope]))
        require(same, f"{path} has another factor over the variables {scope}.")
    proof.checked.append(f"the factors at {len(inside)} variables are those of {path}")
    return f"the model is that of {path}"


def _merge(factors: Iterable[Factor], touched: set[int]) -> dict[tuple[int, ...], Array]:
    """Factors that touch some variables, those over the same ones added up, in increasing order; without zeros."""
    parts: dict[tuple[int, ...], list[Array]] = {}
    for scope, table in (factor for factor in factors if touched & set(factor[0])):
        order = sorted(range(len(scope)), key=scope.__getitem__)
        parts.setdefault(tuple(scope[k] for k in order), []).append(np.transpose(table, order))
    # Sums are rounded once: what a large number hides would be in the law, and not in the comparison.
    sums = {k: t[0] if len(t) == 1 else np.apply_along_axis(math.fsum, 0, np.stack(t)) for k, t in parts.items()}
    return {scope: table for scope, table in sums.items() if table.any()}


def _read_uai(path: str, inside: Array) -> Known:
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path, encoding="ascii") as file:
        words = iter(file.read().split())
    kind = next(words)
    require(kind in ("MARKOV", "BAYES"), f"{path} is no UAI file.")
    states = np.array([int(next(words)) for _ in range(int(next(words)))])
    scopes = [[int(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))]
    position = np.cumsum(states > 1) - 1  # variables with one state are left out
    touched, factors = set(inside.tolist()), []
    for scope in scopes:
        table = np.array([float(next(words)) for _ in range(int(next(words)))]).reshape([states[v] for v in scope])
        if kind == "BAYES":  # the chances of the last variable given the others may be rounded
            sums = table.sum(axis=-1, keepdims=True)
            table = table / sums if np.all(np.abs(sums - 1.0) <= 1e-5) else table
        free = tuple(int(position[v]) for v in scope if states[v] > 1)
        if touched & set(free):
            with np.errstate(divide="ignore"):
                factors.append((free, np.log(table).reshape([states[v] for v in scope if states[v] > 1])))
    return states[states > 1], factors


def _read_npz(path: str, inside: Array) -> Known:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    family = arrays["format"].tobytes().decode().removeprefix("dobrushin model 1 ")
    require(family in ("Ising", "Potts", "SpinMRF", "PairwiseMRF", "FactorGraph"), f"{path} holds no known family.")
    ends = np.cumsum(arrays.get("arity", ())).astype(int).tolist()
    scopes = [tuple(arrays["scope"][a:b].tolist()) for a, b in zip([0, *ends], ends, strict=False)]
    if "i" in arrays:
        is_near = np.isin(arrays["i"], inside) | np.isin(arrays["j"], inside) | (family == "PairwiseMRF")
        scopes = list(zip(arrays["i"][is_near].tolist(), arrays["j"][is_near].tolist(), strict=True))
    if family in ("Ising", "SpinMRF"):
        strengths = arrays["couplings"][is_near] if family == "Ising" else arrays["strengths"]
        return np.full(len(arrays["fields"]), 2), _lower(inside, arrays["fields"], scopes, strengths, 0)
    if family == "Potts":
        n, states = arrays["size"].tolist()
        own = arrays.get("unaries", np.empty(0)).reshape(-1, states)
        return np.full(n, states), _lower(inside, own, scopes, arrays["couplings"][is_near], states)
    sizes, tables = arrays["cardinalities"], arrays["tables"]
    if family == "PairwiseMRF":
        scopes += [(i,) for i in range(len(sizes))]
        tables = np.concatenate([tables.ravel(), arrays["unaries"].ravel()])
    return sizes, zip(scopes, cut(tables, scopes, sizes), strict=True)


def _read_folder(path: str, inside: Array) -> Known:
    states = int(json.loads((Path(path) / "manifest.json").read_text())["states"])
    load = {name: Path(path) / f"{name}.npy" for name in ("start", "neighbor", "coupling", "potential")}
    arrays = {name: np.load(file, mmap_mode="r") for name, file in load.items() if file.exists()}
    edges = {}
    for i in inside.tolist():
        own = slice(int(arrays["start"][i]), int(arrays["start"][i + 1]))
        for j, value in zip(arrays["neighbor"][own].tolist(), arrays["coupling"][own].tolist(), strict=True):
            edges[min(i, j), max(i, j)] = value
    factors = _lower(inside, arrays.get("potential", np.empty(0)), edges, edges.values(), states)
    return np.broadcast_to(np.int64(states or 2), len(arrays["start"]) - 1), factors


def _lower(inside: Array, own: Any, scopes: Iterable[Any], strengths: Iterable[Any], states: int) -> Iterator[Factor]:
    """Own log-weights, and strengths times the product of spins, -1 and +1 (no states); or where labels are equal."""
    for i in inside.tolist() if len(own) else ():
        yield (i,), np.array(own[i]) if states else np.array([-own[i], own[i]])
    for scope, value in zip(scopes, strengths, strict=True):
        spins = 2.0 * np.indices((2,) * len(scope)) - 1.0
        yield scope, float(value) * (np.eye(states) if states else np.prod(spins, axis=0))
