"""Scans as PyMC step methods: Gibbs updates beside NUTS, and the order of updates in PyMC's own steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from dobrushin._scan import as_scan
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.adapters.numpyro import order_of_updates
from dobrushin.adapters.pymc import Entries
from dobrushin.errors import ArgumentError

_BlockedStep: Any = object
_State: Any = None
with contextlib.suppress(ImportError):  # the functions below say what to install
    _BlockedStep = require("pymc.step_methods.compound", "pymc").BlockedStep
    _State = require("pymc.step_methods.state", "pymc").DataClassState


class GibbsStep(_BlockedStep):
    """Gibbs updates of discrete variables of a PyMC model, in the order of a scan.

    Each update draws one entry from its conditional distribution given all other variables: PyMC's own
    log-probability at each of the entry's values. PyMC's steps for discrete variables are Metropolis updates instead.

    Parameters
    ----------
    vars : variable or list of variables
        Discrete free variables with finitely many values, as `from_pymc` reads them. The others, also continuous ones,
        keep their values during the step.
    scan : Scan or ScanResult, optional
        Positions of the entries of `vars`, in the order of updates; entries with one possible value do not count. They
        are the positions in the factor graph of the model given its other variables, see Examples. Entries that the
        scan never updates are updated once before it, or they would keep their first values. Default: each entry once.
    model : pymc.Model, optional
        Default: that of the context.
    rng : seed or numpy.random.Generator, optional

    Notes
    -----
    A certificate of the scan bounds the bias of the discrete variables for the values that the other variables have in
    the graph. These values change from step to step: the certificate does not cover the chain of the whole model.

    Examples
    --------
    >>> import pymc as pm  # doctest: +SKIP
    >>> import dobrushin as db
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     rate = pm.Normal("rate", 0, 1)
    ...     x = pm.Bernoulli("x", logit_p=rate, shape=3)
    ...     link = pm.Potential("link", 0.4 * (x[1:] * x[:-1]).sum())
    >>> graph = db.from_pymc(pm.observe(model, {rate: 0.3}))  # doctest: +SKIP
    >>> found = db.shortest_scan(graph, ["x[0]"], tolerance=0.01)  # doctest: +SKIP
    >>> with model:  # doctest: +SKIP
    ...     trace = pm.sample(step=[db.adapters.pymc.GibbsStep([x], scan=found), pm.NUTS([rate])])
    """

    name = "gibbs_scan"
    _state_class = _State

    @public(name="adapters.pymc.GibbsStep")
    def __init__(self, vars: Any, *, scan: Any = None, model: Any = None, rng: Any = None, **options: Any) -> None:
        pymc = require("pymc", "pymc")
        if unknown := options.keys() - {"blocked", "initial_point", "compile_kwargs"}:  # which PyMC passes to all steps
            raise ArgumentError("options", "'scan', 'model' or 'rng'", min(unknown))
        model = pymc.modelcontext(model)
        given = vars if isinstance(vars, list | tuple) else [vars]
        chosen = [model.values_to_rvs.get(variable, variable) for variable in given]
        if len(set(chosen)) < len(chosen):
            raise ArgumentError("vars", "distinct variables", vars)
        entries = Entries.of(model, chosen)
        free = np.flatnonzero(entries.sizes > 1)
        self._order = free[order_of_updates(scan, len(free))]
        self.vars = [model.rvs_to_values[variable] for variable in chosen]
        place = [(entries.values[name].name, k) for name in entries.names for k in range(entries.numbers[name].size)]
        self._places = [(*place[i], entries.lowest[i] + np.arange(entries.sizes[i])) for i in range(len(place))]
        self._log_probability = model.compile_logp()
        self.rng = pymc.util.get_random_generator(rng)

    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Update all entries once in the order of the scan, and return the new point."""
        point = dict(point)
        for variable in self.vars:
            # In rows, so that `flat` below is a view: changes of a copy would be lost.
            point[variable.name] = np.array(point[variable.name], order="C")
        for i in self._order:
            name, k, values = self._places[i]
            flat = point[name].reshape(-1)
            before, weights = flat[k], np.empty(len(values))
            for state, value in enumerate(values):
                flat[k] = value
                weights[state] = self._log_probability(point)
            weights = np.exp(weights - np.nanmax(weights)) if np.isfinite(weights).any() else weights
            total = np.cumsum(np.nan_to_num(weights, neginf=0.0))
            state = min(int(np.searchsorted(total, self.rng.random() * total[-1], side="right")), len(values) - 1)
            flat[k] = values[state] if total[-1] > 0.0 else before  # the rest of the point allows no value
        return point, [{}]


@public(name="adapters.pymc.order")
def order(model: Any, scan: Any, vars: Iterable[Any] | None = None) -> list[int]:
    """Return the order of variables of a scan, for PyMC's ``BinaryGibbsMetropolis`` and ``CategoricalGibbsMetropolis``.

    These steps take each entry of their variables once. Of a scan they can follow who comes after whom: entries are
    ordered by their last update in the scan, and those that it never updates come first.

    Parameters
    ----------
    model : pymc.Model
    scan : Scan or ScanResult
        Of the factor graph of the model.
    vars : list of free variables, optional
        Those of the step, in its order. Default all.

    Returns
    -------
    list of int
        For the argument ``order`` of the step.

    Notes
    -----
    The certificate of the scan is for Gibbs updates. PyMC's steps are Metropolis updates, which it does not cover.

    Examples
    --------
    >>> import pymc as pm  # doctest: +SKIP
    >>> import dobrushin as db
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     x = pm.Bernoulli("x", 0.5, shape=3)
    ...     link = pm.Potential("link", 0.4 * (x[1:] * x[:-1]).sum())
    >>> result = db.shortest_scan(db.from_pymc(model), ["x[0]"], tolerance=0.01)  # doctest: +SKIP
    >>> db.adapters.pymc.order(model, result)  # doctest: +SKIP
    [2, 1, 0]
    """
    variables = Entries.of(model)
    kept = np.flatnonzero(variables.sizes > 1)
    scan = as_scan(scan)
    scan._check_fits(len(kept))
    names = list(variables.names) if vars is None else [getattr(variable, "name", variable) for variable in vars]
    for k, name in enumerate(names):
        if name not in variables.names or name in names[:k]:
            known = ", ".join(map(repr, variables.names))
            raise ArgumentError("vars", f"distinct free variables of the model ({known})", name, f"index {k}")
    last = np.full(len(variables.sizes), -1)
    last[kept[scan.order]] = np.arange(len(scan))
    entries = np.concatenate([variables.numbers[name].ravel() for name in names])
    return [int(place) for place in np.argsort(last[entries], kind="stable")]
