"""The part of a model that a proof contains: factors as tables, over variables numbered from 0."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.engine import surroundings
from dobrushin._models import Model
from dobrushin._models.derived import sum_variation
from dobrushin._models.factors import FactorTables
from dobrushin._proof.archive import Arrays, different_names, plan_about, write_factors


def positions_of(model: Model, labels: Iterable[Hashable]) -> NDArray[np.int64]:
    if isinstance(model.labels, range):
        return np.fromiter(labels, dtype=np.int64)
    return np.array([model.index(label) for label in labels], dtype=np.int64)


def positions_in(model: Model, other: Model, positions: NDArray[Any]) -> NDArray[np.int64]:
    """Return the positions in `model` of the variables at some positions in another model, found by their labels."""
    if isinstance(model.labels, range) and model.labels == other.labels:
        return np.asarray(positions, dtype=np.int64)
    return positions_of(model, other._labels_at(np.asarray(positions)))


class PartOfModel:
    """The factors at some variables of a model, the evidence, and the variables that can be left out.

    Parameters
    ----------
    model : Model
        The model before conditioning on the evidence.
    evidence : dict from label to state
    inside : array
        Positions of the variables of which the proof needs all factors.
    known : array or None
        Positions of the variables in the models of the methods, which leave out variables that cannot matter to the
        targets. None: no variable was left out.
    """

    def __init__(
        self, model: Model, evidence: Mapping[Hashable, int], inside: NDArray[np.int64],
        known: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        fixed = positions_of(model, evidence)
        self.digits = {int(i): _digit(model, int(i), state) for i, state in zip(fixed, evidence.values(), strict=True)}
        inside, self.left_out = np.unique(inside), np.empty(0, dtype=np.int64)
        while True:
            positions, factors = _touching(model, inside)
            if known is None:
                break
            strange = np.setdiff1d(positions, np.concatenate([known, fixed, inside]))
            if not len(strange):
                break
            self.left_out = np.union1d(self.left_out, strange)
            inside = np.union1d(inside, strange)
        self.positions = np.union1d(positions, fixed)
        self._place = np.searchsorted(self.positions, positions)
        self.factors = factors
        self.states = np.asarray(model.cardinalities[self.positions], dtype=np.int64)

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the proof's numbers of the variables at some positions of the model."""
        return np.searchsorted(self.positions, positions)

    @cached_property
    def names(self) -> list[str]:
        return different_names(self.model._labels_at(self.positions))

    @cached_property
    def evidence(self) -> list[list[int]]:
        """A pair [variable, state], both as numbers of the proof, for each observed variable."""
        positions = sorted(self.digits)
        numbers = self.numbers(np.array(positions, dtype=np.int64)).tolist()
        return [[number, self.digits[i]] for number, i in zip(numbers, positions, strict=True)]

    def describe(self, questions: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the entries of a plan for the model and the questions, with names of states if there are any."""
        named = {v for question in questions for v in question["variables"]} | {v for v, _ in self.evidence}
        called: dict[str, list[str]] = {}
        if self.model._state_names is not None:
            places = {v: self.model._called(int(self.positions[v])) for v in sorted(named)}
            called = {str(v): [str(name) for name in names] for v, names in places.items()}
        elif self.model._spins:
            called = {str(v): ["-1", "1"] for v in sorted(named)}
        plain = [str(k) for k in range(int(self.states.max(initial=0)))]
        states = {v: names for v, names in called.items() if names != plain[: len(names)]}
        more = {"states": states, "evidence": self.evidence, "dropped": self.dropped()}
        return plan_about(self.model.n_variables, self.names, questions, **more)

    def write(self, arrays: Arrays) -> None:
        factors = self.factors
        scopes = np.diff(factors.scope_start), self._place[factors.scope]
        write_factors(arrays, self.positions, self.states, scopes, factors.table)

    def dropped(self) -> list[int]:
        """Return the variables that can be left out, in this order: the only factor of each sums to a constant."""
        candidates = set(self.numbers(self.left_out).tolist())
        if not candidates:
            return []
        scopes, tables = self.free_factors()
        touching: dict[int, set[int]] = {}
        for k, scope in enumerate(scopes):
            for v in scope:
                touching.setdefault(v, set()).add(k)
        order, waiting = [], sorted(candidates)
        while waiting:
            v = waiting.pop()
            own = touching.get(v, set())
            if v not in candidates or len(own) > 1:
                continue
            if own:
                (k,) = own
                if sum_variation(tables[k], scopes[k].index(v)) == np.inf:
                    continue
                for u in scopes[k]:
                    touching[u].discard(k)
                    if u in candidates and u != v:
                        waiting.append(u)
            candidates.discard(v)
            order.append(v)
        return order

    def free_factors(self) -> tuple[list[tuple[int, ...]], list[NDArray[np.float64]]]:
        """Return the scopes and log-tables of all factors, conditioned on the evidence."""
        factors, fixed = self.factors, {pair[0]: pair[1] for pair in self.evidence}
        scopes, tables = [], []
        for k in range(len(factors.scope_start) - 1):
            local = factors.scope[factors.scope_start[k] : factors.scope_start[k + 1]]
            members = self._place[local].tolist()
            table = factors.table[factors.table_start[k] : factors.table_start[k + 1]]
            table = table.reshape(factors.sizes[local])
            scopes.append(tuple(v for v in members if v not in fixed))
            tables.append(table[tuple(fixed.get(v, slice(None)) for v in members)])
        return scopes, tables


def _digit(model: Model, position: int, state: int) -> int:
    states = model._states_at(position)
    return (int(state) - states[0]) // states.step


def _touching(model: Model, inside: NDArray[np.int64]) -> tuple[NDArray[np.int64], FactorTables]:
    """Return the factors over at least one variable of `inside`, and the positions of all their variables."""
    if model._is_whole:
        around: Any = surroundings(model._form, inside)
        return around.numbering.positions, around.factors
    part = model._near(inside, 1)
    around = surroundings(part.model._form, part.numbering.own(inside))
    return part.numbering.positions[around.numbering.positions], around.factors
