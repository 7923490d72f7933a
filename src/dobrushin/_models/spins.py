"""Binary models with interactions of any order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models.couplings import name_variables, per_label
from dobrushin._models.factors import FactorGraph, adjacency
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError, BudgetError

# Largest term that is written out as a table of 2 ** order entries.
TABLE_ORDER = 20


class SpinMRF(Model):
    """Spins -1/+1 with interactions of any order.

    Parameters
    ----------
    terms : dict from tuples of labels to strengths
        Each set of two or more variables once (whole-number labels are positions).
    fields : number, array or dict, optional
        One number per variable. Default 0.

    Notes
    -----
    pi(x) ∝ exp( sum over terms theta_S prod_{k in S} x_k + sum_i theta_i x_i ).

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.SpinMRF({(0, 1, 2): 0.4, (1, 3): -0.2}, fields=[0.1, 0, 0, 0])
    >>> model
    SpinMRF(n_variables=4, terms=2)
    >>> model.neighbors(1)
    array([0, 2, 3])
    """

    _spins = True
    _first_argument = "terms"

    def __init__(self, terms: Mapping[tuple[Hashable, ...], float], fields: Any = None) -> None:
        if not isinstance(terms, Mapping):
            raise ArgumentError("SpinMRF", "terms", "a dict from tuples of labels to strengths", terms)
        seen: set[frozenset[Hashable]] = set()
        for key, strength in terms.items():
            if not isinstance(key, tuple) or len(key) < 2 or len(set(key)) < len(key):
                requirement = "a dict whose keys are tuples of two or more distinct labels (single ones are 'fields')"
                raise ArgumentError("SpinMRF", "terms", requirement, key)
            if frozenset(key) in seen:
                raise ArgumentError("SpinMRF", "terms", "given once for each set of variables", key)
            seen.add(frozenset(key))
            if np.ndim(strength) or not abs(check.real_array(strength, "SpinMRF", "terms")) <= check.LARGEST:
                raise ArgumentError("SpinMRF", "terms", check.FINITE, strength, f"key {key!r}")
        n, labels, lookup = name_variables(list(terms), "SpinMRF", "terms", fields)
        kept = [key for key, strength in terms.items() if strength != 0]
        scope = [int(k) if lookup is None else lookup[k] for key in kept for k in key]  # type: ignore[call-overload]
        self._build(
            n,
            np.cumsum([0] + [len(key) for key in kept]),
            np.array(scope, dtype=np.int64),
            np.array([float(terms[key]) for key in kept]),
            fields,
            labels,
        )

    @classmethod
    def _make(cls, *parts: Any) -> SpinMRF:
        model = cls.__new__(cls)
        model._build(*parts)
        return model

    def _build(
        self,
        n: int,
        start: NDArray[Any],
        scope: NDArray[np.int64],
        strengths: NDArray[np.float64],
        fields: Any,
        labels: Sequence[Hashable] | None,
    ) -> None:
        super().__init__(n, labels)
        if isinstance(fields, Mapping):
            fields = per_label(fields, self._labels, 0.0, "SpinMRF", "fields")
        array = check.real_array(0.0 if fields is None else fields, "SpinMRF", "fields")
        if array.ndim and array.shape != (n,):
            raise ArgumentError(
                "SpinMRF", "fields", f"a number or an array of shape {(n,)}", got=f"shape {array.shape}"
            )
        self._fields = frozen(np.broadcast_to(check.finite(array, "SpinMRF", "fields"), (n,)).copy())
        self._scope_start = frozen(np.asarray(start, dtype=np.int64))
        self._scope = frozen(scope)
        self._strengths = frozen(strengths)
        term = np.repeat(np.arange(len(strengths)), np.diff(start))
        self._term_start = frozen(np.concatenate([[0], np.cumsum(np.bincount(scope, minlength=n))]).astype(np.int64))
        self._term_of = frozen(term[np.argsort(scope, kind="stable")])

    @property
    def fields(self) -> NDArray[np.float64]:
        """Fields theta_i."""
        return self._fields

    @property
    def terms(self) -> dict[tuple[Hashable, ...], float]:
        """Strengths theta_S by tuples of labels."""
        return {
            tuple(self._labels[v] for v in self._scope_of(k)): float(strength)
            for k, strength in enumerate(self._strengths)
        }

    def _scope_of(self, k: int) -> NDArray[np.int64]:
        return self._scope[self._scope_start[k] : self._scope_start[k + 1]]

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        return np.full(self.n_variables, 2, dtype=np.int64)

    @cached_property
    def _factor_graph(self) -> FactorGraph:
        blocks = []
        biased = np.flatnonzero(self._fields)
        blocks.append((biased[:, None], np.stack([-self._fields[biased], self._fields[biased]], axis=1)))
        arity = np.diff(self._scope_start)
        if self.order > TABLE_ORDER:
            need, limit = 2.0**self.order, 2.0**TABLE_ORDER
            raise BudgetError("The table of a term", need, limit, "entries", "Keep the model a SpinMRF.")
        for order in np.unique(arity):
            which = np.flatnonzero(arity == order)
            scopes = self._scope[self._scope_start[which, None] + np.arange(order)]
            parity = (2 * np.indices((2,) * int(order)) - 1).prod(axis=0).ravel()
            blocks.append((scopes, self._strengths[which, None] * parity))
        return FactorGraph._from_blocks(self.cardinalities, blocks, self._labels)

    @property
    def order(self) -> int:
        """Number of variables of the largest term."""
        return int(np.diff(self._scope_start).max(initial=0))

    @cached_property
    def _adjacency_cached(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return adjacency(self._scope_start, self._scope, self.n_variables)

    @property
    def _adjacency(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._adjacency_cached

    @property
    def _numbers_per_state(self) -> int:
        return len(self._scope) + self.n_variables

    def _products(self, states: NDArray[np.int64], terms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Product of the spins of each of the given terms, shape (..., terms)."""
        if not len(terms):
            return np.ones((*states.shape[:-1], 0), dtype=np.int64)
        sizes = np.diff(self._scope_start)[terms]
        members = np.concatenate([self._scope_of(int(k)) for k in terms])
        return np.multiply.reduceat(states[..., members], np.concatenate([[0], np.cumsum(sizes)[:-1]]), axis=-1)

    def _log_density_rows(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        total = states @ self._fields
        if len(self._strengths):
            total = (
                total + np.multiply.reduceat(states[:, self._scope], self._scope_start[:-1], axis=1) @ self._strengths
            )
        return total

    def _log_weights(self, i: int, states: NDArray[np.int64]) -> NDArray[np.float64]:
        terms = self._term_of[self._term_start[i] : self._term_start[i + 1]]
        own = states.copy()
        own[..., i] = 1
        local_field = self._fields[i] + self._products(own, terms) @ self._strengths[terms]
        return np.stack([-local_field, local_field], axis=-1)

    def _condition(self, fixed: NDArray[np.bool_], state: NDArray[np.int64]) -> SpinMRF:
        fields = self._fields.copy()
        strengths: dict[tuple[int, ...], float] = {}
        for k, strength in enumerate(self._strengths):
            scope = self._scope_of(k)
            free = tuple(sorted(scope[~fixed[scope]].tolist()))
            value = float(strength * state[scope[fixed[scope]]].prod())
            if len(free) == 1:
                fields[free[0]] += value
            elif free:
                strengths[free] = strengths.get(free, 0.0) + value
        kept = np.flatnonzero(~fixed)
        renumber = np.cumsum(~fixed) - 1
        terms = {key: value for key, value in strengths.items() if value != 0}
        return SpinMRF._make(
            len(kept),
            np.cumsum([0] + [len(key) for key in terms]),
            renumber[np.array([v for key in terms for v in key], dtype=np.int64)],
            check.finite(np.array(list(terms.values()), dtype=np.float64), "SpinMRF.condition", "evidence"),
            fields[kept],
            self._labels_at(kept),
        )

    def to_factor_graph(self) -> FactorGraph:
        """The same distribution as a `FactorGraph`, where -1/+1 become 0/1."""
        return self._factor_graph

    def __repr__(self) -> str:
        return f"SpinMRF(n_variables={self.n_variables}, terms={len(self._strengths)})"
