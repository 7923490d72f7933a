"""Exact answers by enumeration of all joint states: the reference against which bounds and samplers are tested.

Arrays of joint probabilities have one axis per variable, in order of position. Along an axis the variable's states
increase, so index 0 of a spin is -1 and index 1 is +1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dobrushin._exact.arithmetic import NoAllowedState
from dobrushin._models import FactorGraph, Model
from dobrushin._models.sources import as_model
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Bools, Floats
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError, BudgetError
from dobrushin.typing import Initial, ScanLike, Targets

# Largest number of joint states that is enumerated. As variables have at least 2 states, arrays have at most 24 axes.
_STATE_LIMIT = 2**24
# Largest number of configurations of a variable's neighbours, times its own states.
_BLANKET_LIMIT = 2**22
# Joint states whose weights are computed together.
_ROWS = 2**16


@public(name="exact.distribution")
def distribution(model: Model) -> Floats:
    """Compute the probability of every joint state, by enumeration.

    Parameters
    ----------
    model : Model
        Raises BudgetError beyond 2**24 joint states (24 binary variables).

    Returns
    -------
    array of shape tuple(model.cardinalities)

    See Also
    --------
    marginals : of single variables, for much larger models.

    Notes
    -----
    pi(x) = exp(log_density(x)) / sum over y of exp(log_density(y)).

    Examples
    --------
    >>> import dobrushin as db, numpy as np
    >>> model = db.Ising({(0, 1): 0.5 * np.log(3)})
    >>> db.exact.distribution(model).round(4)
    array([[0.375, 0.125],
           [0.125, 0.375]])
    """
    model = as_model(model)
    shape = _shape(model)
    total = math.prod(shape)
    log_weights = np.empty(total)
    for begin in range(0, total, _ROWS):
        rows = np.arange(begin, min(begin + _ROWS, total))
        labels = np.stack(np.unravel_index(rows, shape), axis=1)
        log_weights[rows] = model.log_density(2 * labels - 1 if model._spins else labels)
    top = log_weights.max()
    if np.isneginf(top):
        raise NoAllowedState("model", "one that allows some joint state", model)
    log_weights -= top
    weights = np.exp(log_weights, out=log_weights).reshape(shape)
    return weights / weights.sum()


@public(name="exact.influence")
def influence(model: Model) -> Floats:
    """Compute the exact Dobrushin influence of each variable on the conditional law of each other variable.

    Every configuration of a variable's neighbours counts, also those of probability 0, because a chain may pass through
    them. Where the neighbours allow no state of a variable, its conditional law is undefined: two undefined laws are at
    distance 0, an undefined and a defined one at distance 1.

    Parameters
    ----------
    model : Model
        Raises BudgetError if a variable and its neighbours have more than 2**22 joint states.

    Returns
    -------
    array of shape (n, n)
        Entry (i, j) is the influence of j on i.

    Notes
    -----
    C_ij = max over x, y that differ only at j of TV( pi(x_i | x_rest), pi(y_i | y_rest) ).

    Examples
    --------
    >>> import dobrushin as db
    >>> db.exact.influence(db.Ising({(0, 1): 0.5, (1, 2): 0.5})).round(4)
    array([[0.    , 0.4621, 0.    ],
           [0.3808, 0.    , 0.3808],
           [0.    , 0.4621, 0.    ]])
    """
    model = as_model(model)
    graph = model.to_factor_graph()
    C = np.zeros((graph.n_variables, graph.n_variables))
    for i in range(graph.n_variables):
        blanket = _blanket(graph, i)
        entries = math.prod(float(k) for k in graph.cardinalities[[*blanket, i]])
        if entries > _BLANKET_LIMIT:
            what = f"Enumerating the neighbours of variable {model.labels[i]!r}"
            remedy = "Use dobrushin.influence, which bounds what it cannot enumerate."
            raise BudgetError(what, entries, _BLANKET_LIMIT, "configurations", remedy)
        conditional, defined = _local_conditional(graph, i, blanket)
        for axis, j in enumerate(blanket):
            p, known = np.moveaxis(conditional, axis, 0), np.moveaxis(defined, axis, 0)
            for x, y in combinations(range(len(p)), 2):
                both, one = known[x] & known[y], known[x] ^ known[y]
                distance = np.where(both, 0.5 * np.abs(p[x] - p[y]).sum(axis=-1), one)
                C[i, j] = max(C[i, j], min(1.0, distance.max()))
    return C


@public(name="exact.law")
def law(model: Model, scan: ScanLike, initial: Initial = "uniform") -> Floats:
    """Compute the exact law of the state of the Gibbs sampler after a scan.

    Parameters
    ----------
    model : Model
        With at most 2**24 joint states.
    scan : Scan, ScanResult or sequence of positions
        Deterministic or random.
    initial : "uniform", array of shape tuple(model.cardinalities), or one state
        Law of the start: uniform over all joint states (allowed or not), a given law, or one state.

    Returns
    -------
    array of shape tuple(model.cardinalities)

    Notes
    -----
    p_t(x) = sum over i of q_t(i) pi(x_i | x_rest) sum over y_i of p_{t-1}(y_i, x_rest). Where all states of i are
    forbidden, pi(x_i | x_rest) is undefined and the update leaves x_i unchanged.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising({(0, 1): 0.5})
    >>> p = db.exact.law(model, [0, 1], initial=[1, 1])
    >>> p.round(4)
    array([[0.1966, 0.0723],
           [0.1966, 0.5344]])
    >>> round(db.exact.total_variation(p, db.exact.distribution(model)), 4)
    0.2311
    """
    model = as_model(model)
    p = _read_initial(model, initial)
    steps = _read_scan(getattr(scan, "scan", scan), model.n_variables)
    graph = model.to_factor_graph()
    sizes = graph.cardinalities.tolist()
    kernels: dict[int, tuple[Floats, Bools]] = {}
    for q in steps:
        after = np.zeros_like(p)
        for i, probability in q.items():
            if i not in kernels:  # the local conditional with one axis per variable of the model
                blanket = _blanket(graph, i)
                conditional, defined = _local_conditional(graph, i, blanket)
                shape = [k if v == i or v in blanket else 1 for v, k in enumerate(sizes)]
                where = [k if v in blanket else 1 for v, k in enumerate(sizes)]
                axes = np.argsort([*blanket, i])
                kernels[i] = conditional.transpose(axes).reshape(shape), defined.reshape(where)
            conditional, defined = kernels[i]
            after += probability * np.where(defined, p.sum(axis=i, keepdims=True) * conditional, p)
        p = after
    return p


@public(name="exact.total_variation")
def total_variation(p: ArrayLike, q: ArrayLike, targets: Targets = None) -> float:
    """Compute the total variation distance of two laws, of all variables or of some.

    Parameters
    ----------
    p, q : arrays of the same shape
        Joint probabilities, as from `distribution` and `law`.
    targets : int or sequence of int, optional
        Positions of the variables whose joint marginals are compared. Default all.

    Returns
    -------
    float

    Notes
    -----
    TV(p, q) = 1/2 sum over x_targets of | p(x_targets) - q(x_targets) |.

    Examples
    --------
    >>> import dobrushin as db
    >>> p, q = [[0.5, 0.0], [0.0, 0.5]], [[0.0, 0.5], [0.5, 0.0]]
    >>> db.exact.total_variation(p, q), db.exact.total_variation(p, q, targets=[0])
    (1.0, 0.0)
    """
    first = check.real_array(p, "p")
    second = check.real_array(q, "q")
    if first.shape != second.shape:
        raise ArgumentError("q", f"an array of the shape {first.shape} of 'p'", got=f"shape {second.shape}")
    axes = range(first.ndim)
    kept = axes if targets is None else check.positions(targets, axes, None, "targets")
    summed = tuple(k for k in axes if k not in kept)
    return float(0.5 * np.abs((first - second).sum(axis=summed)).sum())


def _shape(model: Model) -> tuple[int, ...]:
    """Return the shape of the array of all joint states; raise BudgetError if there are too many."""
    shape = tuple(model.cardinalities.tolist())
    states = math.prod(float(size) for size in shape)
    if states > _STATE_LIMIT:
        what = f"Enumerating the joint states of {len(shape)} variables"
        remedy = "Use dobrushin.exact.marginals, which does not enumerate them, or sample."
        raise BudgetError(what, states, _STATE_LIMIT, "states", remedy)
    return shape


def _blanket(graph: FactorGraph, i: int) -> list[int]:
    return sorted({v for scope, _ in graph._form.factors_of(i) for v in scope} - {i})


def _local_conditional(graph: FactorGraph, i: int, blanket: list[int]) -> tuple[Floats, Bools]:
    """Return the conditional law of variable i for each state of its Markov blanket, and where this is defined.

    There is one axis for each variable of the blanket, and a last axis for the states of i. Undefined laws are 0.
    """
    axes = [*blanket, i]
    size = graph.cardinalities[axes].tolist()
    log_weights = np.zeros(size)
    for scope, table in graph._form.factors_of(i):
        ordered = np.transpose(table, np.argsort([axes.index(v) for v in scope]))
        log_weights += ordered.reshape([k if v in scope else 1 for v, k in zip(axes, size, strict=True)])
    top = log_weights.max(axis=-1, keepdims=True)
    defined = top > -np.inf
    weights = np.exp(log_weights - np.where(defined, top, 0.0))
    conditional = weights / np.where(defined, weights.sum(axis=-1, keepdims=True), 1.0)
    return conditional, defined[..., 0]


def _read_scan(scan: Any, n: int) -> Iterator[dict[int, float]]:
    """Return, for each step, a dict from the variables that the step may update to their probabilities."""
    if isinstance(scan, Scan) and scan.is_random:
        scan._check_fits(n)
        rows = (scan.step_probabilities(t, n) for t in range(len(scan)))
        return ({int(i): float(row[i]) for i in np.flatnonzero(row)} for row in rows)
    order = np.asarray(scan.order if isinstance(scan, Scan) else scan)
    if order.ndim != 1 or (order.size and order.dtype.kind not in "iu"):
        raise ArgumentError("scan", "a Scan, a ScanResult or a sequence of positions", scan)
    check.all_entries((order >= 0) & (order < n), order, "scan", f"of positions from 0 to {n - 1}")
    return ({int(i): 1.0} for i in order)


def _read_initial(model: Model, initial: Any) -> Floats:
    """Return the law of the initial state as an array of joint probabilities."""
    shape = _shape(model)
    if isinstance(initial, str):
        check.choice(initial, ["uniform"], "initial")
        return np.full(shape, 1.0 / math.prod(shape))
    array = check.real_array(initial, "initial")
    # One state and a law differ in shape: (1,) and (k,) with k >= 2 for a single variable, else in their axes.
    if array.shape == (len(shape),):
        known = np.array([value in model.states(i) for i, value in enumerate(array)])
        check.all_entries(known, array, "initial", "a state of each variable")
        p = np.zeros(shape)
        p[tuple(model.states(i).index(int(value)) for i, value in enumerate(array))] = 1.0
        return p
    if array.shape != shape:
        requirement = f"'uniform', one state of shape {(len(shape),)} or a law of shape {shape}"
        raise ArgumentError("initial", requirement, got=f"shape {array.shape}")
    check.all_entries((array >= 0) & (array < np.inf), array, "initial", "non-negative and finite")
    if abs(array.sum() - 1.0) > 1e-9:
        raise ArgumentError("initial", "probabilities that sum to 1", float(array.sum()))
    return array
