"""Binary models with terms of at most two variables, as spins with couplings and fields. [trusted]"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dobrushin._models import Ising, Model
from dobrushin._sampling.start import has_hard_zeros


def has_spin_pairs(form: Model) -> bool:
    """Whether all variables are binary, with terms of at most two, and no state is forbidden."""
    if isinstance(form, Ising):
        return True
    if (form.cardinalities != 2).any() or has_hard_zeros(form):
        return False
    return int(np.diff(form.to_factor_graph()._scope_start).max(initial=0)) <= 2


def spin_pairs(form: Model) -> Ising:
    """Such a model as spins; places in its lists of neighbours stay the same."""
    if isinstance(form, Ising):
        return form
    graph = form.to_factor_graph()
    arity, n = np.diff(graph._scope_start), graph.n_variables
    fields = np.zeros(n)
    single = np.flatnonzero(arity == 1)
    tables = graph._table[graph._table_start[single][:, None] + np.arange(2)]
    np.add.at(fields, graph._scope[graph._scope_start[single]], 0.5 * (tables[:, 1] - tables[:, 0]))
    double = np.flatnonzero(arity == 2)
    t00, t01, t10, t11 = graph._table[graph._table_start[double][:, None] + np.arange(4)].T
    i, j = graph._scope[graph._scope_start[double]], graph._scope[graph._scope_start[double] + 1]
    np.add.at(fields, i, 0.25 * ((t10 - t00) + (t11 - t01)))
    np.add.at(fields, j, 0.25 * ((t01 - t00) + (t11 - t10)))
    strength = 0.25 * ((t00 - t01) + (t11 - t10))
    # Where couplings cancel, neighbours stay neighbours.
    start, columns = form._adjacency
    entries = np.repeat(np.arange(n), np.diff(start)) * n + columns
    values = np.zeros(len(columns))
    np.add.at(values, np.searchsorted(entries, i * n + j), strength)
    np.add.at(values, np.searchsorted(entries, j * n + i), strength)
    return Ising._make(sparse.csr_array((values, columns, start), (n, n)), fields, graph.labels)
