"""Binary models with interactions of any order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from dobrushin._models.couplings import by_position, name_variables, read_fields, read_weights
from dobrushin._models.factors import FactorTables, ScopedForm
from dobrushin._models.forms import (
    FLOAT,
    WHOLE,
    CheckedArrays,
    Form,
    own_numbers,
    require_finite_sums,
    require_variables,
    sums_of,
)
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Bools, Floats, Ints, frozen
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError, BudgetError
from dobrushin.typing import NamesOfStates, PerVariable

# Variables of the largest term that is written out as a table, of 2 ** order entries.
TABLE_ORDER = 20


class SpinMRF(Model):
    """Spins -1/+1 with interactions of any order.

    Parameters
    ----------
    terms : dict from tuples of labels to strengths
        Each set of two or more variables once (whole-number labels are positions).
    fields : number, array or dict, optional
        One number per variable. Default 0.
    state_names : tuple, dict or list, optional
        Names of the states -1 and +1, in this order; see `Model`.

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

    _form: SpinTerms

    @public()
    def __init__(
        self,
        terms: Mapping[tuple[Hashable, ...], float],
        fields: PerVariable | None = None,
        *,
        state_names: NamesOfStates = None,
    ) -> None:
        check.instance(terms, Mapping, "terms", "a dict from tuples of labels to strengths")
        seen: set[frozenset[Hashable]] = set()
        for key in terms:
            if not isinstance(key, tuple) or len(key) < 2 or len(set(key)) < len(key):
                requirement = "a dict whose keys are tuples of two or more distinct labels (single ones are 'fields')"
                raise ArgumentError("terms", requirement, key)
            if frozenset(key) in seen:
                raise ArgumentError("terms", "given once for each set of variables", key)
            seen.add(frozenset(key))
        strengths, error = read_weights([(key, f"key {key!r}", value) for key, value in terms.items()], "terms")
        n, labels, lookup = name_variables(list(terms), "terms", fields)
        kept = [key for key, strength in zip(terms, strengths, strict=True) if strength != 0]
        scope = [int(k) if lookup is None else lookup[k] for key in kept for k in key]  # type: ignore[call-overload]
        fields = by_position(fields, range(n) if labels is None else labels, 0.0, "fields")
        require_variables(n, "terms")
        start = np.cumsum([0] + [len(key) for key in kept])
        strengths = strengths[strengths != 0]
        form = SpinTerms(start, np.array(scope, dtype=np.int64), strengths, read_fields(fields, n))
        super().__init__(form.off_by(error), labels, state_names)

    @property
    def fields(self) -> Floats:
        """Return the fields theta_i."""
        return self._form.fields

    @property
    def terms(self) -> dict[tuple[Hashable, ...], float]:
        """Return the strengths theta_S as a dict from tuples of labels."""
        form = self._form
        return {
            tuple(self._labels[v] for v in form.scope_of(k)): float(strength)
            for k, strength in enumerate(form.strengths)
        }

    @property
    def order(self) -> int:
        """Return the number of variables of the largest term."""
        return self._form.order


class SpinForm(Form):
    """Base class of internal forms of spins with fields."""

    spins = True
    sizes = 2
    fields: Floats

    def favourites(self, positions: Ints) -> Ints:
        return (self.fields[positions] >= 0).astype(np.int64)

    def field_tables(self, positions: Ints) -> tuple[Ints, Floats]:
        """Return the nonzero fields of some variables as factors: scopes and log-tables."""
        biased = positions[self.fields[positions] != 0]
        return biased[:, None], np.stack([-self.fields[biased], self.fields[biased]], axis=1)


class SpinTerms(ScopedForm, SpinForm):
    """Internal form of `SpinMRF`: spins with interaction terms of any order and fields.

    Parameters
    ----------
    scope_start, scope : arrays of int
        Term k is over the distinct positions scope[scope_start[k] : scope_start[k + 1]], two or more.
    strengths : array
        One number for each term.
    fields : array
        One number for each variable.
    """

    family = SpinMRF
    stored_as = "SpinMRF"
    stored_arrays: ClassVar = {"arity": WHOLE, "scope": WHOLE, "strengths": FLOAT, "fields": FLOAT}

    def __init__(self, scope_start: Array, scope: Ints, strengths: Floats, fields: Floats) -> None:
        self.n_variables = require_variables(len(fields), "fields")
        self.scope_start, self.scope = frozen(np.asarray(scope_start, dtype=np.int64)), frozen(scope)
        self.strengths = frozen(check.finite(strengths, "strengths"))
        self.fields = read_fields(fields, len(fields))

    @property
    def counts(self) -> dict[str, int]:
        return {"terms": len(self.strengths)}

    @property
    def order(self) -> int:
        return int(np.diff(self.scope_start).max(initial=0))

    @property
    def has_tables(self) -> bool:
        return self.order <= TABLE_ORDER

    def tables(self) -> FactorTables:
        return self._tables

    @cached_property
    def _tables(self) -> FactorTables:
        if not self.has_tables:
            need, limit = 2.0**self.order, 2.0**TABLE_ORDER
            raise BudgetError("The table of the largest term", need, limit, "entries", "Keep the model a SpinMRF.")
        blocks = [self.field_tables(np.arange(self.n_variables))]
        arity = np.diff(self.scope_start)
        for order in np.unique(arity):
            which = np.flatnonzero(arity == order)
            scopes = self.scope[self.scope_start[which, None] + np.arange(order)]
            parity = (2 * np.indices((2,) * int(order)) - 1).prod(axis=0).ravel()
            blocks.append((scopes, self.strengths[which, None] * parity))
        return FactorTables.from_blocks(self.cardinalities, blocks).off_by(self.error)

    def log_density(self, states: Ints) -> Floats:
        total = states @ self.fields
        if len(self.strengths):
            total = total + np.multiply.reduceat(states[:, self.scope], self.scope_start[:-1], axis=1) @ self.strengths
        return total

    def log_weights(self, i: int, states: Ints) -> Floats:
        terms = self._factors_at(np.array([i]))[1]
        own = states.copy()
        own[..., i] = 1
        local_field = np.full(states.shape[:-1], self.fields[i])
        if len(terms):
            start, scope = self._scopes_of(terms)
            local_field += np.multiply.reduceat(own[..., scope], start[:-1], axis=-1) @ self.strengths[terms]
        return np.stack([-local_field, local_field], axis=-1)

    def condition(self, fixed: Bools, state: Ints) -> SpinTerms:
        fields = self.fields.copy()
        strengths: dict[tuple[int, ...], float] = {}
        for k, strength in enumerate(self.strengths):
            scope = self.scope_of(k)
            free = tuple(sorted(scope[~fixed[scope]].tolist()))
            value = float(strength * state[scope[fixed[scope]]].prod())
            if len(free) == 1:
                fields[free[0]] += value
            elif free:
                strengths[free] = strengths.get(free, 0.0) + value
        kept = np.flatnonzero(~fixed)
        renumber = np.cumsum(~fixed) - 1
        terms = {key: value for key, value in strengths.items() if value != 0}
        values = np.array(list(terms.values()), dtype=np.float64)
        require_finite_sums(values, np.array([key[0] for key in terms], dtype=np.int64))
        require_finite_sums(fields[kept], kept)
        scope = renumber[np.array([v for key in terms for v in key], dtype=np.int64)]
        rest = SpinTerms(np.cumsum([0] + [len(key) for key in terms]), scope, values, fields[kept])
        near = self._around(fixed)
        touched = np.logical_or.reduceat(near[self.scope], self.scope_start[:-1]) if len(self.strengths) else near[:0]
        sizes = np.abs(np.concatenate([self.strengths[touched], self.fields[near]]))
        return rest.off_by(self.error + sums_of(sizes[sizes > 0]))

    def part(self, inside: Ints, inner: Bools) -> SpinTerms:
        terms = np.unique(self._factors_at(inside[inner])[1])
        start, scope = self._scopes_of(terms)
        return SpinTerms(start, own_numbers(inside, scope), self.strengths[terms], self.fields[inside])

    def to_arrays(self) -> dict[str, Array]:
        scopes = {"arity": np.diff(self.scope_start), "scope": self.scope}
        return {"fields": self.fields, **scopes, "strengths": self.strengths}

    @classmethod
    def from_arrays(cls, arrays: CheckedArrays) -> SpinTerms:
        fields, strengths = arrays.finite("fields"), arrays.finite("strengths")
        arrays.require_variables(len(fields))
        start, ordered = arrays.scopes(len(fields), least=2)
        arrays.require(len(strengths) == len(start) - 1, f"{len(start) - 1} strengths", f"{len(strengths)}")
        arrays.require(strengths != 0, "strengths other than 0", strengths)
        sets = {ordered[a:b].tobytes() for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)}
        arrays.require(len(sets) == len(strengths), "each set of variables once", "one of them twice")
        return cls(start, arrays["scope"], strengths, fields)
