"""The shapes of work that samplers are compared on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

import dobrushin as db
from measure import random_ising

# Sweeps of a quick run: so much shorter, where a run is not short anyway.
_QUICK = 5


@dataclass(frozen=True)
class Workload:
    """Systematic sweeps of some chains, and how many times the updates per second of plain C are required."""

    name: str
    what: str
    model: db.Ising | db.Potts
    chains: int
    sweeps: int
    required: float
    record: Any = "counts"
    is_first: bool = False  # whether a model is to be one that was never used

    @property
    def updates(self) -> int:
        """Updates of all chains together."""
        return self.model.n_variables * self.sweeps * self.chains

    def longer(self, times: int) -> Workload:
        """The same with more sweeps."""
        return replace(self, sweeps=self.sweeps * times)

    def fresh(self) -> Workload:
        """The same on a copy of the model, where it is to be one that was never used."""
        return replace(self, model=db.Ising(self.model.couplings, fields=self.model.fields)) if self.is_first else self

    def run(self) -> db.Samples:
        """What is timed: from the built model to the result."""
        n = self.model.n_variables
        scan = db.Scan.systematic(n, n * self.sweeps)
        return db.sample(self.model, scan, chains=self.chains, seed=1, record=self.record)


def sweeping(quick: bool) -> Iterator[Workload]:
    """W1 to W5, W9 and W10, one after the other, so that only one model is held at a time."""
    less = _QUICK if quick else 1
    even = db.Ising.grid(40, 40, couplings=0.25)
    yield Workload("W1", "Ising 40x40, 1 chain", even, 1, 10_000 // less, 4.0)
    million = random_ising(1000, seed=0, with_fields=True)
    million = db.Ising(sparse.csr_array(million.couplings), fields=million.fields)
    yield Workload("W2", "Ising 1000x1000 from a sparse matrix, 1 chain", million, 1, 10, 4.0, record=None)
    yield Workload("W2f", "the same, first call on a model", million, 1, 10, 2.5, record=None, is_first=True)
    small = random_ising(10, seed=0)
    yield Workload("W3", "Ising 10x10, 4096 chains", small, 4096, 1000 // less, 100.0)
    yield Workload("W3m", "the same, 16384 chains", small, 16384, 250 // less, 100.0)
    labels = random_potts(20, 31, states=8)
    yield Workload("W4a", "Potts 20x31, 8 labels, 1 chain", labels, 1, 10_000 // less, 2.5)
    yield Workload("W4b", "Potts 20x31, 8 labels, 256 chains", labels, 256, 500 // less, 10.0)
    yield Workload("W5", "random graph, n = 10^5, 1 chain", random_graph(10**5, degree=6), 1, 50, 1.3, record=None)
    for letter, degree, any_required, equal_required in (("a", 8, 8.0, 50.0), ("b", 12, 6.5, 50.0)):
        for pattern, required in (("any couplings", any_required), ("equal couplings", equal_required)):
            what, model = many_neighbors(degree, pattern == "equal couplings")
            name = f"W9{letter}{'=' if pattern == 'equal couplings' else ''}"
            yield Workload(name, f"{what}, {pattern}, 4096 chains", model, 4096, 200 // less, required)
    for letter, what, make in (("a", "Sherrington-Kirkpatrick, n = 1000", glass), ("b", "RBM 784x500", machine)):
        model = make()
        yield Workload(f"W10{letter}", f"{what}, 1024 chains", model, 1024, 40 // less, 15.0)
        yield Workload(f"W10{letter}1", f"{what}, 1 chain", model, 1, 500 // less, 2.0, record=None)


def random_potts(rows: int, cols: int, states: int) -> db.Potts:
    """A grid that segments noisy pixels: equal couplings, normal unaries."""
    unaries = np.random.default_rng(0).normal(size=(rows, cols, states))
    return db.Potts.grid(rows, cols, states=states, couplings=0.48, unaries=unaries)


def random_graph(n: int, degree: float) -> db.Ising:
    """An Ising model on random pairs, with couplings N(0, 0.1^2)."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, n, (int(n * degree / 2), 2))
    pairs = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
    upper = sparse.coo_array((rng.normal(0, 0.1, len(pairs)), pairs.T), shape=(n, n))
    return db.Ising(sparse.csr_array(upper + upper.T))


def many_neighbors(degree: int, is_equal: bool) -> tuple[str, db.Ising]:
    """The image grid 20 x 20 with 8 neighbours, or a random regular graph of 400 variables."""
    rng = np.random.default_rng(0)
    if degree == 8:
        what = "Ising 20x20, 8 neighbours"
        row, col = np.divmod(np.arange(400), 20)
        near = np.maximum(np.abs(row[:, None] - row), np.abs(col[:, None] - col)) == 1
    else:
        what = f"random regular graph, degree {degree}"
        near = np.zeros((400, 400), dtype=bool)
        while near[0].sum() < degree:  # cycles through all variables that share no edge
            cycle = rng.permutation(400)
            before = np.roll(cycle, 1)
            if not near[cycle, before].any():
                near[cycle, before] = near[before, cycle] = True
    size = 0.4 / degree
    values = np.full((400, 400), size) if is_equal else rng.uniform(-size, size, (400, 400))
    upper = np.triu(near * values)
    return what, db.Ising(upper + upper.T)


def glass() -> db.Ising:
    """The Sherrington-Kirkpatrick model of 1000 spins at half of the critical coupling."""
    upper = np.triu(np.random.default_rng(0).normal(0, 0.5 / np.sqrt(1000), (1000, 1000)), 1)
    return db.Ising(upper + upper.T)


def machine() -> db.Ising:
    """A restricted Boltzmann machine of the size that handwritten digits are learned with."""
    rng = np.random.default_rng(0)
    weights = np.zeros((1284, 1284))
    weights[:784, 784:] = rng.normal(0, 0.02, (784, 500))
    return db.Ising(weights + weights.T, fields=rng.normal(0, 0.1, 1284))


class Corner:
    """W6: a million chains of a 16-step scan made for one corner of a grid of a million variables."""

    name = "W6"
    what = "16-step scan for a corner of 1000x1000, 10^6 chains"
    seconds = 0.1

    def __init__(self) -> None:
        self.model = random_ising(1000, seed=0)
        self.scan = db.greedy_scan(self.model, targets=[0], steps=16).scan
        self.chains = 10**6

    def run(self) -> db.Samples:
        """What is timed."""
        return db.sample(self.model, self.scan, chains=self.chains, seed=1, record=[0])
