"""Binary models with terms of at most two variables, as spins with couplings and fields. [trusted]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms


def _order_of_pairs(form: Form) -> int:
    del form
    return 2


def _order_of_terms(form: SpinTerms) -> int:
    return form.order


def _order_of_tables(form: FactorTables) -> int:
    return int(np.diff(form.scope_start).max(initial=0))


# How many variables a term has at most.
_ORDERS: dict[type[Form], Callable[[Any], int]] = {
    SpinPairs: _order_of_pairs,
    LabelPairs: _order_of_pairs,
    PairTables: _order_of_pairs,
    SpinTerms: _order_of_terms,
    FactorTables: _order_of_tables,
}


def has_spin_pairs(form: Form) -> bool:
    """Whether all variables are binary, with terms of at most two, and no state is forbidden."""
    if (form.cardinalities != 2).any() or form.has_zeros:
        return False
    form, order = widen(form, _ORDERS)
    return order(form) <= 2


def spin_pairs(form: Form) -> SpinPairs:
    """Such a model as spins; places in its lists of neighbours stay the same."""
    if isinstance(form, SpinPairs):
        return form
    graph = form.tables()
    arity, n = np.diff(graph.scope_start), graph.n_variables
    fields = np.zeros(n)
    single = np.flatnonzero(arity == 1)
    tables = graph.table[graph.table_start[single][:, None] + np.arange(2)]
    np.add.at(fields, graph.scope[graph.scope_start[single]], 0.5 * (tables[:, 1] - tables[:, 0]))
    double = np.flatnonzero(arity == 2)
    t00, t01, t10, t11 = graph.table[graph.table_start[double][:, None] + np.arange(4)].T
    i, j = graph.scope[graph.scope_start[double]], graph.scope[graph.scope_start[double] + 1]
    np.add.at(fields, i, 0.25 * ((t10 - t00) + (t11 - t01)))
    np.add.at(fields, j, 0.25 * ((t01 - t00) + (t11 - t10)))
    strength = 0.25 * ((t00 - t01) + (t11 - t10))
    # Where couplings cancel, neighbours stay neighbours.
    start, columns = form.adjacency
    entries = np.repeat(np.arange(n), np.diff(start)) * n + columns
    values = np.zeros(len(columns))
    np.add.at(values, np.searchsorted(entries, i * n + j), strength)
    np.add.at(values, np.searchsorted(entries, j * n + i), strength)
    return SpinPairs(sparse.csr_array((values, columns, start), (n, n)), fields)
