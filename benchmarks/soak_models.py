"""Random models of the soak test, and the exact answers that intervals are held against."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dobrushin as db

# The random models are those of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

# Largest number of joint states that are enumerated in a trial.
_MOST_STATES = 2**12
_STRENGTHS = (0.0, 0.05, 0.2, 0.5, 1.0, 3.0, 40.0)


@dataclass
class Case:
    """A model, and the same one as a whole where the model is never made as a whole."""

    name: str
    model: db.Model
    whole: db.Model

    @property
    def labels(self) -> list[Any]:
        """Names of the variables."""
        return list(self.model.labels)

    @cached_property
    def is_small(self) -> bool:
        """Whether all joint states are enumerated."""
        return float(np.log(self.whole.cardinalities).sum()) <= np.log(_MOST_STATES) + 1e-9

    @cached_property
    def joint(self) -> NDArray[np.float64]:
        """Probabilities of all joint states."""
        return db.exact.distribution(self.whole)

    @cached_property
    def states(self) -> NDArray[np.int64]:
        """All joint states, one in a row."""
        return all_states(self.whole)

    def given(self, evidence: dict[Any, Any] | None) -> NDArray[np.float64]:
        """Probabilities of the joint states, one for each row of `states`, given some evidence."""
        weights = self.joint.ravel().copy()
        for label, state in (evidence or {}).items():
            weights[self.states[:, self.whole.index(label)] != state] = 0.0
        return weights / weights.sum()

    def truth(self, target: Any, state: Any, evidence: dict[Any, Any] | None) -> float | None:
        """The exact value of one row of an estimate; None where it is not known."""
        if not self.is_small:
            return self._large_truth(target, state, evidence)
        weights = self.given(evidence)
        if isinstance(target, db.Statistic):
            order = sorted(self.whole.index(label) for label, weight in target.weights.items() if weight > 0)
            return float(weights @ target.values(self.states[:, order]))
        if isinstance(target, db.Joint):
            columns = [self.whole.index(label) for label in target.labels]
            return float(weights[(self.states[:, columns] == np.array(state)).all(axis=1)].sum())
        return float(weights[self.states[:, self.whole.index(target)] == state].sum())

    def _large_truth(self, target: Any, state: Any, evidence: dict[Any, Any] | None) -> float | None:
        """From a clique tree, where there is a small one."""
        if isinstance(target, db.Statistic | db.Joint) or evidence:
            return None
        if self._marginals is None:
            return None
        position = self.whole.index(target)
        return float(self._marginals[position][list(self.whole.states(position)).index(state)])

    @cached_property
    def _marginals(self) -> list[NDArray[np.float64]] | None:
        try:
            return db.exact.marginals(self.whole, memory_limit=2**24)
        except db.BudgetError:
            return None

    def allowed_state(self, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """A joint state of positive probability; None where they are not enumerated."""
        return self.states[rng.choice(self.joint.size, p=self.joint.ravel())] if self.is_small else None


@dataclass(frozen=True)
class Numbers:
    """Potentials by number, as a grid that is never made asks for them; it can be sent to other processes."""

    seed: int
    strength: float
    columns: int = 0

    def __call__(self, numbers: Any) -> NDArray[np.float64]:
        index = np.asarray(numbers, dtype=np.float64)
        if self.columns:
            index = index[..., None] * self.columns + np.arange(self.columns)
        return self.strength * np.sin(12.9898 * index + self.seed)


def random_case(rng: np.random.Generator) -> Case:
    """A model of any family and shape."""
    kinds = [_small, _small, _small, _with_zeros, _with_zeros, _shape, _shape, _local, _large, _constraints]
    return kinds[rng.integers(len(kinds))](rng)


def small_case(rng: np.random.Generator) -> Case:
    """A model whose joint states are enumerated."""
    case = random_case(rng)
    return case if case.is_small and case.model._is_whole else small_case(rng)


def _strength(rng: np.random.Generator) -> float:
    return float(rng.choice(_STRENGTHS, p=[0.05, 0.2, 0.3, 0.2, 0.15, 0.05, 0.05]))


def _small(rng: np.random.Generator) -> Case:
    family = str(rng.choice(FAMILIES))
    named = bool(rng.random() < 0.3)
    model = random_model(rng, family, strength=_strength(rng), max_states=int(rng.integers(2, 5)), labels=named)
    return Case(family, model, model)


def _with_zeros(rng: np.random.Generator) -> Case:
    family = str(rng.choice(FAMILIES_WITH_ZEROS))
    model = random_model(rng, family, zeros=True, strength=_strength(rng))
    return Case(f"{family} with zeros", model, model)


def _edges(shape: str, n: int) -> list[tuple[int, int]]:
    if shape == "star":
        return [(0, k) for k in range(1, n)]
    if shape == "clique":
        return [(j, k) for j in range(n) for k in range(j + 1, n)]
    if shape == "ring":
        return [(k, (k + 1) % n) for k in range(n if n > 2 else n - 1)]
    return [(k, k + 1) for k in range(n - 1)] if shape == "chain" else []


def _pairs(rng: np.random.Generator, shape: str, n: int, strength: float) -> db.Model:
    """Pairs of a shape, of spins, labels or tables."""
    edges = _edges(shape, n)
    values = strength * rng.normal(size=len(edges))
    fields = strength * rng.normal(size=n)
    family = rng.choice(["ising", "potts", "pairwise"])
    if family == "ising":
        return db.Ising(dict(zip(edges, values.tolist(), strict=True)), fields)
    unaries = np.outer(fields, [0.0, 1.0, -1.0])
    if family == "potts":
        return db.Potts(dict(zip(edges, values.tolist(), strict=True)), 3, unaries)
    tables = [value * rng.normal(size=(3, 3)) for value in values]
    return db.PairwiseMRF(list(unaries), edges, tables)


def _shape(rng: np.random.Generator) -> Case:
    shape, n = str(rng.choice(["star", "clique", "ring", "chain", "isolated"])), int(rng.integers(1, 8))
    model = _pairs(rng, shape, n, _strength(rng))
    return Case(f"{shape} of {n}", model, model)


def _large(rng: np.random.Generator) -> Case:
    """Too large to enumerate: intervals are held against clique trees where there are small ones."""
    kind = rng.integers(5)
    if kind == 0:
        n, strength = int(rng.integers(10, 31)), float(rng.choice([0.1, 0.3, 0.6]))
        model = db.Ising.grid(n, n, couplings=strength * rng.uniform(0.5, 1.0), periodic=bool(rng.random() < 0.5))
        return Case(f"grid {n} x {n}", model, model)
    if kind == 1:
        n = int(rng.integers(50, 101))
        model = _pairs(rng, "clique", n, 0.3 / n)
        return Case(f"clique of {n}", model, model)
    if kind == 2:
        states = int(rng.integers(20, 60))
        tables = [float(rng.choice([0.1, 1.0])) * rng.normal(size=(states, states))]
        model = db.PairwiseMRF([np.zeros(states), np.zeros(states)], [(0, 1)], tables)
        return Case(f"two variables of {states} states", model, model)
    shape, n = str(rng.choice(["star", "chain", "isolated"])), int(10 ** rng.uniform(2, 4))
    model = _pairs(rng, shape, n, float(rng.choice([0.1, 0.5])))
    return Case(f"{shape} of {n}", model, model)


def _constraints(rng: np.random.Generator) -> Case:
    """Satisfiability near its threshold, proper colourings, exact covers: most joint states are forbidden.

    Each instance has a planted solution, so that some joint state is allowed. One in four is too large to enumerate.
    """
    kind = str(rng.choice(["3-SAT", "colouring", "exact cover"]))
    is_large = rng.random() < 0.25
    if kind == "colouring":
        n = int(rng.integers(20, 60) if is_large else rng.integers(3, 8))
        states, scopes = 3, [(j, k) for j in range(n) for k in range(j + 1, n) if rng.random() < 4.0 / n]
    else:
        n = int(rng.integers(100, 250) if is_large else rng.integers(4, 11))
        clauses = int((4.2 if kind == "3-SAT" else 0.6) * n)
        states, scopes = 2, [tuple(sorted(rng.choice(n, 3, replace=False).tolist())) for _ in range(clauses)]
    planted = rng.integers(states, size=n)
    factors: list[tuple[tuple[int, ...], NDArray[np.float64]]] = []
    for scope in scopes:
        digits = np.indices((states,) * len(scope))
        if kind == "3-SAT":
            forbidden = np.zeros((2, 2, 2), dtype=bool)
            others = [where for where in np.ndindex(2, 2, 2) if where != tuple(planted[list(scope)])]
            forbidden[others[rng.integers(len(others))]] = True
        elif kind == "colouring":
            forbidden = digits[0] == digits[1]
        else:
            forbidden = digits.sum(axis=0) != 1
        # Constraints of other kinds hold for the planted state only by chance: those that it violates are left out.
        if not forbidden[tuple(planted[list(scope)])]:
            factors.append((scope, np.where(forbidden, -np.inf, 0.0)))
    unaries = [((i,), 0.3 * rng.normal(size=states)) for i in range(n)]
    model = db.FactorGraph([states] * n, [*unaries, *factors])
    return Case(f"{kind} of {n} variables", model, model)


def _local(rng: np.random.Generator) -> Case:
    """A grid that is never made, beside the same one as a whole."""
    rows, columns = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    periodic = bool(rng.random() < 0.3) and rows > 2 and columns > 2
    strength = min(1.0, _strength(rng))
    couplings = Numbers(int(rng.integers(1000)), strength)
    n = rows * columns
    edges = 2 * n if periodic else rows * (columns - 1) + (rows - 1) * columns
    given = np.asarray(couplings(np.arange(edges)))
    if rng.random() < 0.5:
        fields = Numbers(int(rng.integers(1000)), strength)
        model = db.Ising.grid(rows, columns, couplings, fields, periodic)
        whole = db.Ising.grid(rows, columns, given, fields(np.arange(n)).reshape(rows, columns), periodic)
    else:
        unaries = Numbers(int(rng.integers(1000)), strength, columns=3)
        model = db.Potts.grid(rows, columns, 3, couplings, unaries, periodic)
        shape = (rows, columns, 3)
        whole = db.Potts.grid(rows, columns, 3, given, unaries(np.arange(n)).reshape(shape), periodic)
    return Case(f"local grid {rows} x {columns}", model, whole)
