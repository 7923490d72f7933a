"""The public function."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import singledispatch

import numpy as np

from dobrushin._influence.matrix import Influence
from dobrushin._influence.rows import METHODS, influence_rows
from dobrushin._models import Model
from dobrushin._models.sources import as_model, read_source
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import public
from dobrushin._shared.options import InfluenceMethod
from dobrushin.errors import ArgumentError


@public("bounding the influence")
def influence(
    model: Model,
    method: InfluenceMethod = "best",
    rows: Iterable[Hashable] | None = None,
    *,
    progress: bool | None = None,
) -> Influence:
    """Bound how much each variable of a model can move each other one.

    Parameters
    ----------
    model : Model
    method : {"best", "paper", "exact"}
        "paper": Theorem 4 for pairwise models, 5 for Ising models, 6 for spins of higher order (for factor
        graphs, which the paper does not treat, the range of the factors). "best": the smallest bound that
        small enumerations and the sharper closed forms give; never above "paper" but for rounding. "exact": the
        true influence, rounded up, by enumerating neighbourhoods; `BudgetError` where one is too large.
    rows : labels, optional
        Variables whose rows are wanted; default all. Scans may then update only these.
    progress : bool, optional
        Show what is done: None in a terminal or a notebook, True also in a log, False nowhere.

    Returns
    -------
    Influence

    Notes
    -----
    Rows with so many states that Theorem 4 or the range of the factors would take minutes have a coarser bound instead,
    at most twice as far; `Influence.theorems` says so. Ctrl-C acts at any time.
    All bounds have the form sinh(D/2) / (cosh h + cosh(D/2)), with D the range of the log-odds that variable j
    controls and h the least log-odds that the rest of the neighbourhood can leave, rounded up. Forbidden states
    (-inf) are handled by taking all configurations of the neighbours, allowed or not.

    Examples
    --------
    >>> import dobrushin as db
    >>> torus = db.Ising.grid(40, 40, couplings=0.26, periodic=True)
    >>> db.influence(torus, method="paper").satisfies_dobrushin, db.influence(torus).satisfies_dobrushin
    (False, True)
    >>> db.influence(torus)
    Influence(n_variables=1600, entries: 6400 by Theorem 5, exact)
    """
    return bound_influence(read_source(model), method, rows)


@singledispatch
def bound_influence(model: Model, method: InfluenceMethod, rows: Iterable[Hashable] | None) -> Influence:
    """See `influence`; a family with bounds of its own registers another version."""
    model = as_model(model)
    if not model.is_whole:
        raise ArgumentError("model", "a model that is made as a whole", model)
    check.choice(method, METHODS, "method")
    if rows is None:
        computed = None
    else:
        computed = np.sort(check.positions(rows, model.labels, model._lookup, "rows"))
    bounds = influence_rows(model, np.arange(model.n_variables) if computed is None else computed, method)
    if model._error:  # each conditional law may be so far from the one that was meant, and two laws are compared
        values, cap = (
            frozen(np.minimum((part + 2.0 * model._error) * (1.0 + 2.0**-50), 1.0))
            for part in (bounds.values, bounds.cap)
        )
        bounds = bounds._replace(values=values, cap=cap)
    return Influence._make(bounds, model.n_variables, model.labels, computed)
