"""Theorems 5 and 6: spins."""

from __future__ import annotations

import numpy as np

from dobrushin._influence import budget
from dobrushin._influence.factors import enumerate_factors
from dobrushin._influence.rows import Bounds, Wanted, over_rows, theorem_for
from dobrushin._kernels.gap import THM6, THM6_TIGHT
from dobrushin._kernels.spin_influence import ising_rows, spin_rows
from dobrushin._models.ising import SpinPairs
from dobrushin._models.spins import SpinTerms

# Terms of more variables have neighbourhoods that are too large to enumerate anyway.
_TABLE_ORDER = 12


@theorem_for(SpinPairs)
def spin_pair_rows(form: SpinPairs, wanted: Wanted) -> Bounds:
    """Theorem 5, and its exact form up to a degree limit."""
    degrees = np.diff(wanted.start)
    degree, limit = int(degrees.max(initial=0)), budget.BEST_DEGREE
    if wanted.method == "exact":
        limit = max(limit, degree)
        if degree > budget.EXACT_DEGREE:
            label = wanted.labels[int(wanted.positions[int(np.argmax(degrees))])]
            raise budget.over_budget(label, 2.0 ** (degree - 1), 2.0 ** (budget.EXACT_DEGREE - 1))
    bounds, matrix = wanted.no_bounds(), form.couplings
    over_rows(
        ising_rows, len(wanted.positions), wanted.positions, matrix.indptr, matrix.data, form.fields, wanted.start,
        wanted.is_paper, min(limit, degree), *bounds, at_once=0.0 if wanted.is_paper else 2.0 ** min(limit, degree),
    )  # fmt: skip
    return bounds


@theorem_for(SpinTerms)
def spin_term_rows(form: SpinTerms, wanted: Wanted) -> Bounds:
    """Theorem 6 (tightened unless the method is "paper"), and enumeration under a budget."""
    bounds = wanted.no_bounds()
    if wanted.method == "exact":
        return enumerate_factors(form.tables(), wanted, bounds)
    widest = int(np.diff(wanted.start).max(initial=0))
    over_rows(
        spin_rows, len(wanted.positions), wanted.positions, form.term_start, form.term_of, form.scope_start, form.scope,
        form.strengths, form.fields, wanted.start, wanted.columns, wanted.is_paper, np.empty(widest), np.empty(1),
        bounds.values, bounds.cap,
    )  # fmt: skip
    bounds.theorem[:] = THM6 if wanted.is_paper else THM6_TIGHT
    if wanted.method == "best" and form.order <= _TABLE_ORDER:
        return enumerate_factors(form.tables(), wanted, bounds)
    return bounds
