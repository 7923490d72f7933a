"""`fit`: read the model, the data and the options, and climb."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing, nullcontext
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._learning.ascent import Ascent, AscentOptions, ExactAscent, Fit
from dobrushin._learning.gibbs import GibbsAscent, GibbsGradient
from dobrushin._learning.structure import FAMILIES, Structure, structure_of
from dobrushin._models import Model
from dobrushin._models.couplings import name_variables
from dobrushin._models.sources import as_model, read_source
from dobrushin._models.state_names import read_state
from dobrushin._shared import validate as check
from dobrushin._shared.call import bar, public
from dobrushin._shared.running import RunOptions, read_options, read_running
from dobrushin._shared.state_file import StateFile
from dobrushin.errors import ArgumentError
from dobrushin.typing import FitFamily, FitMethod, Learn, LearningRate, ModelLike, Seed

_FORMAT = "dobrushin fit 3"
_MODEL = "an Ising, Potts or PairwiseMRF model, or a list of edges"


@public("reading the data")
def fit(
    model: ModelLike | Sequence[tuple[Hashable, Hashable]],
    data: Any,
    *,
    family: FitFamily | None = None,
    states: int | None = None,
    learn: Learn = "all",
    ridge: float = 0.0,
    box: tuple[float, float] | ArrayLike | None = None,
    initial: ArrayLike | None = None,
    method: FitMethod | GibbsGradient = "gibbs",
    iterations: int = 100,
    learning_rate: float | LearningRate | Callable[[int], float] = "auto",
    gradient_tol: float | None = None,
    callback: Callable[[int, NDArray[np.float64]], object] | None = None,
    seed: Seed = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    run: RunOptions | None = None,
) -> Fit:
    """Fit the parameters of a model to data, by maximum likelihood with Gibbs gradients of bounded bias.

    Parameters
    ----------
    model : Ising, Potts, PairwiseMRF, what stands for one (see `estimate`), or list of edges
        The graph, and where to start: at the model's parameters, or at 0 on a list of edges (pairs of column numbers or
        names).
    data : array of shape (observations, variables), or pandas DataFrame
        States, columns in the order of the model's labels; the columns of a data frame are found by their names.
    family : {"ising", "potts", "pairwise"}, optional
        Family of a list of edges; default "ising".
    states : int, optional
        Number of states of the variables of a list of edges; default one more than the largest value in the data.
    learn : {"all", "edges", "unaries"}
        Learn the parameters of the edges (couplings, tables), of the variables (fields, unaries) or both. The others,
        and forbidden states (-inf), stay as they are.
    ridge : float
        The objective is the mean log-likelihood less ridge / 2 times the sum of squares of the parameters.
    box : number or pair, optional
        Bounds on the parameters: a number c for -c to c, or (lower, upper), numbers or arrays over the parameters.
    initial : number or array, optional
        Parameters to start from instead.
    method : {"gibbs", "exact"} or GibbsGradient
        How the gradient is computed. "gibbs": from chains, with the default options of `GibbsGradient`. "exact": from a
        clique tree, for models of small treewidth (`BudgetError` for others).
    iterations : int
    learning_rate : number, "auto" or function
        Step size; a function is given the number of the iteration, from 0 on. "auto": to the top of the parabola that
        approximates the log-likelihood, by the variance of the chains, less where no scan is certified for the
        parameters there, and falling once the gradient is within its noise; by trial for exact gradients.
    gradient_tol : float, optional
        Stop when no coordinate of the gradient is larger. The noise of a coordinate is about 1 / sqrt(chains). Default:
        run all iterations; 1e-6 for exact gradients.
    callback : function, optional
        Called after each iteration with its number and the parameters.
    seed : int, SeedSequence, Generator or None
    time_limit : number, optional
        Seconds after which to return the fit as it was after the last iteration that finished.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.
    run : RunOptions, optional
        Checkpoint, from which an interrupted fit resumes; its result is that of an uninterrupted fit. A finished fit
        resumes if `iterations` is raised. Fits have no use for the other options.

    Returns
    -------
    Fit

    Raises
    ------
    CertificateError
        With scans of "dogs", when no scan reaches the tolerance; ``error.result`` is the fit so far.
    Interrupted
        On Ctrl-C; ``error.result`` is the fit after the iterations that finished.

    Notes
    -----
    theta goes to project( theta + step (mean of t over the data - mean of t under the model - ridge theta) ), where t
    are the statistics: x_i x_j and x_i of spins, 1{x_i = x_j} of Potts models, 1{x_i = a, x_j = b} of tables, and
    1{x_i = a}. `GibbsGradient` has the bound on the bias of the mean under the model. For persistent chains the bound
    counts only the updates since the parameters last moved.

    Examples
    --------
    >>> import dobrushin as db
    >>> truth = db.Ising.grid(4, 4, couplings=0.15)
    >>> data = db.sample(truth, db.Scan.systematic(16, 1600), chains=5000, seed=1).states
    >>> found = db.fit(db.Ising.grid(4, 4, couplings=1.0), data, initial=0, learn="edges", iterations=20, seed=1)
    >>> found
    Fit (Ising(n_variables=16, edges=24), 24 parameters, DoGS scans): every gradient biased by at most 0.0...
    >>> bool(found.bias_bound <= 0.02), float(found.parameters.mean().round(1))
    (True, 0.1...)
    """
    if not isinstance(method, GibbsGradient):
        check.choice(method, get_args(FitMethod), "method")
    iterations = check.count(iterations, "iterations")
    if callback is not None and not callable(callback):
        raise ArgumentError("callback", "a function", callback)
    structure, observed = read_problem(model, data, family, states, learn)
    running, sequence = read_running(read_options(run, ("executor", "backend", "memory_limit")), seed, time_limit)
    file, deadline = running.checkpoint, running.deadline
    if gradient_tol is not None:
        gradient_tol = check.positive(gradient_tol, "gradient_tol")
    elif method == "exact":
        gradient_tol = 1e-6
    count = len(structure.free)
    rate = None if isinstance(learning_rate, str) else learning_rate
    if rate is None:
        check.choice(learning_rate, get_args(LearningRate), "learning_rate")
    elif not callable(rate):
        rate = check.positive(rate, "learning_rate")
    options = AscentOptions(rate, gradient_tol, check.non_negative(ridge, "ridge"), *_read_box(box, count))
    theta = structure.start[structure.free]
    if initial is not None:
        theta = check.finite(_vector(initial, count, "initial"), "initial")
    theta = np.clip(theta, options.low, options.high)
    gibbs = method if isinstance(method, GibbsGradient) else GibbsGradient()
    ascent: Ascent
    if method == "exact":
        ascent = ExactAscent(structure, observed, options, theta)
    else:
        ascent = GibbsAscent(structure, observed, options, theta, gibbs, sequence)
    saved = None
    if file is not None:
        sizes = [options.step_size(k) for k in range(16)]
        what = (structure.family.__name__, structure.sizes, structure.edges, structure.start, structure.free, observed)
        climb = (sizes, options.gradient_tol is None, options.ridge, options.low, options.high, theta)
        parts = (what, climb, ascent.method, ascent.seed, vars(gibbs))
        saved = StateFile(file, _FORMAT, "fit", sequence, parts, "model, data, seed and options")
    with closing(saved) if saved else nullcontext(), bar(iterations, "fitting", "steps", deadline) as report:
        return ascent.run(iterations, saved, report, callback, deadline)


def read_problem(
    source: Any, data: Any, family: str | None, states: int | None, learn: str
) -> tuple[Structure, NDArray[np.int64]]:
    """Return the structure, and observations of shape (rows, variables) in the order of its labels."""
    check.choice(learn, get_args(Learn), "learn")
    source = as_model(source) if isinstance(source, str | os.PathLike) else read_source(source)
    names = list(data.columns) if hasattr(data, "columns") else None
    if names is not None and isinstance(source, Model) and source._state_names is not None:
        array = check.real_array(_number_states(data, source), "data")
    else:
        array = check.real_array(data, "data")
    if array.ndim != 2 or not len(array):
        requirement = "an array with a row for each observation, at least one, and a column for each variable"
        raise ArgumentError("data", requirement, got=f"shape {array.shape}")
    if isinstance(source, Model):
        structure = _from_model(source, family, states, learn)
    else:
        structure = _from_edges(source, array, names, family, states, learn)
    if array.shape[1] != structure.n:
        requirement = f"an array with a column for each of {structure.n} variables, in the order of the labels"
        raise ArgumentError("data", requirement, got=f"{array.shape[1]} columns")
    if names is not None:
        array = array[:, _columns(names, structure.labels)]
    _check_states(array, structure)
    if not len(structure.free):
        raise ArgumentError("learn", "'all', 'edges' or 'unaries' such that a parameter can be learned", learn)
    return structure, array.astype(np.int64)


def _number_states(data: Any, source: Model) -> Any:
    """Replace names of states in the columns of a data frame by numbers."""
    columns = []
    for k, label in enumerate(data.columns):
        position, values = check.label_position(label, source.labels, source._lookup), data.iloc[:, k].tolist()
        if position is not None and source._names_at(position) is not None:
            number = {value: read_state(source, position, value, "data") for value in set(values)}
            values = [number[value] for value in values]
        columns.append(values)
    return np.array(columns).T if columns else data


def _from_model(model: Model, family: str | None, states: int | None, learn: str) -> Structure:
    structure = structure_of(model, learn)
    if structure is None:
        raise ArgumentError("model", _MODEL, model)
    for name, value in (("family", family), ("states", states)):
        if value is not None:
            raise ArgumentError(name, "None when a model is given", value)
    if not len(structure.edges) and learn != "unaries":
        requirement = "one with edges (couplings of 0 make none: pass a list of edges, or couplings of 1 and initial=0)"
        raise ArgumentError("model", requirement, model)
    return structure


def _from_edges(
    source: Any, data: NDArray[np.float64], names: list[Hashable] | None, family: str | None, states: Any, learn: str
) -> Structure:
    family = check.choice("ising" if family is None else family, tuple(FAMILIES), "family")
    keys = _read_edges(source)
    if not keys and learn != "unaries":
        raise ArgumentError("model", "a list of at least one edge", source)
    columns = range(data.shape[1])
    labels: Sequence[Hashable]
    if names is not None:
        labels = check.read_labels(names, len(names))
        lookup = check.lookup_table(labels)
    else:
        used, own, lookup = name_variables(keys, "model", None)
        labels = columns if own is None else own
        if own is None and used > len(columns):
            requirement = f"a list of edges between the {len(columns)} columns of the data"
            raise ArgumentError("model", requirement, used - 1)
    pairs = np.empty((len(keys), 2), dtype=np.int64)
    for k, ends in enumerate(keys):
        for side, label in enumerate(ends):
            position = check.label_position(label, labels, lookup)
            if position is None:
                raise ArgumentError("model", "a list of edges between columns of the data", label, f"edge {k}")
            pairs[k, side] = position
    pairs.sort(axis=1)
    unique, index = np.unique(pairs, axis=0, return_index=True)
    if len(unique) < len(pairs):
        k = int(np.setdiff1d(np.arange(len(pairs)), index)[0])
        raise ArgumentError("model", "a list of edges without repetition", keys[k], f"edge {k}")
    count = 2
    if family == "ising":
        if states is not None:
            raise ArgumentError("states", "None for spins -1/+1", states)
    elif states is not None:
        count = check.count(states, "states", 2)
    elif 0 <= (largest := float(data.max(initial=0.0))) < 2**15:
        count = max(2, int(largest) + 1)
    return FAMILIES[family](np.full(len(labels), count, dtype=np.int64), pairs, labels, None, learn)


def _read_edges(source: Any) -> list[tuple[Hashable, ...]]:
    """Return pairs of distinct labels."""
    if not check.is_several(source):
        raise ArgumentError("model", _MODEL, source)
    edges: list[tuple[Hashable, ...]] = []
    for k, edge in enumerate(source):
        pair = edge.tolist() if isinstance(edge, np.ndarray) else edge
        ends = tuple(pair) if check.is_several(pair) else ()
        if len(ends) != 2 or ends[0] == ends[1]:
            raise ArgumentError("model", "a list of pairs of distinct labels", edge, f"edge {k}")
        edges.append(ends)
    return edges


def _columns(names: list[Hashable], labels: Sequence[Hashable]) -> list[int]:
    """Return the columns of a data frame that belong to the labels."""
    place = {name: k for k, name in enumerate(names)}
    if len(place) < len(names):
        raise ArgumentError("data", "a data frame whose columns have distinct names", names)
    for label in labels:
        if label not in place:
            raise ArgumentError("data", f"a data frame with the labels as columns, {label!r} among them", names)
    return [place[label] for label in labels]


def _check_states(data: NDArray[np.float64], structure: Structure) -> None:
    if structure.spins:
        requirement = "-1 or +1 everywhere (of 0/1 data take 2 * x - 1)"
        check.all_entries((data == 1) | (data == -1), data, "data", requirement)
        return
    fine = (data >= 0) & (data < structure.sizes) & (data == np.floor(data))
    top = int(structure.sizes.max()) - 1
    requirement = f"states from 0 to {top}" if (structure.sizes == top + 1).all() else "states from 0 to k - 1"
    check.all_entries(fine, data, "data", requirement)
    if np.isneginf(structure.start).any():
        model = structure.pairwise(structure.start)
        if (bad := np.isneginf(model.log_density(data))).any():
            row = int(np.argmax(bad))
            raise ArgumentError("data", "allowed by the model", data[row].astype(np.int64), f"row {row}")


def _read_box(box: Any, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and the upper bound of each parameter."""
    if box is None:
        return np.full(count, -np.inf), np.full(count, np.inf)
    ends = box if isinstance(box, tuple | list) else (-np.asarray(box), box)
    if len(ends) != 2:
        raise ArgumentError("box", "a number, or a pair of a lower and an upper bound", box)
    low, high = (_vector(end, count, "box") for end in ends)
    if not (fine := low <= high).all():
        k = int(np.argmin(fine))
        requirement = "a lower bound that is not above the upper one (a single number is the upper one)"
        raise ArgumentError("box", requirement, (float(low[k]), float(high[k])), f"index {k}")
    return low, high


def _vector(value: Any, count: int, argument: str) -> NDArray[np.float64]:
    array = check.real_array(value, argument)
    if array.ndim and array.shape != (count,):
        requirement = f"a number or one for each of {count} parameters"
        raise ArgumentError(argument, requirement, got=f"shape {array.shape}")
    check.all_entries(~np.isnan(array), array, argument, "a number, not NaN")
    return np.broadcast_to(array, (count,)).astype(np.float64)
