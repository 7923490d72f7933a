"""`fit`: read the model, the data and the options, and maximise the likelihood."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing, nullcontext
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._learning.ascent import Ascent, AscentOptions, ExactAscent
from dobrushin._learning.data import Observed, read_graphs, read_observations, read_table
from dobrushin._learning.em import EM, EMAscent, network_of_edges, network_structure
from dobrushin._learning.features import read_features
from dobrushin._learning.gradients import GibbsAscent, GibbsGradient, MarginalAscent, MarginalGradient
from dobrushin._learning.result import Fit
from dobrushin._learning.structure import FAMILIES, Structure, structure_of
from dobrushin._models import Model
from dobrushin._models.couplings import name_variables
from dobrushin._models.sources import as_model, read_source
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Ints
from dobrushin._shared.call import bar, public
from dobrushin._shared.running import RunOptions, read_options, read_running
from dobrushin._shared.state_file import StateFile
from dobrushin.errors import ArgumentError
from dobrushin.typing import FitFamily, FitMethod, Learn, LearningRate, ModelLike, Seed

_FORMAT = "dobrushin fit 4"
_MODEL = "an Ising, Potts or PairwiseMRF model, a Bayesian network, a list of edges, or a model with features"


@public("reading the data")
def fit(
    model: ModelLike | Sequence[tuple[Hashable, Hashable]] | Sequence[Model],
    data: Any,
    *,
    features: Any = None,
    family: FitFamily | None = None,
    states: int | None = None,
    learn: Learn = "all",
    ridge: float = 0.0,
    box: tuple[float, float] | ArrayLike | None = None,
    initial: ArrayLike | None = None,
    method: FitMethod | GibbsGradient | MarginalGradient | EM | None = None,
    iterations: int = 100,
    learning_rate: float | LearningRate | Callable[[int], float] = "auto",
    gradient_tol: float | None = None,
    callback: Callable[[int, NDArray[np.float64]], object] | None = None,
    seed: Seed = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    run: RunOptions | None = None,
) -> Fit:
    """Fit the parameters of a model to data, by maximum likelihood.

    Parameters
    ----------
    model : model, what stands for one (see `estimate`), list of edges, or list of models
        The graph, and where to start: at the parameters of an `Ising`, `Potts` or `PairwiseMRF` model, at the tables of
        a Bayesian network (a `FactorGraph` of conditional probabilities, or a file of one), or at 0 on a list of edges
        (pairs of column numbers or names; of a Bayesian network from parent to child). With `features`: any model, or a
        list of models, one for each observed graph.
    data : array of shape (observations, variables), or pandas DataFrame
        States, columns in the order of the model's labels; the columns of a data frame are found by their names. NaN
        (in a data frame also None) marks a missing value. For a list of models: a list with the states of each graph,
        in the order of its labels, or as dicts by label, from which labels may be left out; None is a missing state.
    features : list, or function, optional
        Weights that factors share: pairs (scope, attributes). The scope is a label or several, and an attribute is a
        name. Each attribute has a weight for each joint state of the scope, wherever it occurs, and the log-table of
        the scope is the sum of the weights of its attributes. A dict in the place of names has values by attribute:
        a number multiplies the weights; an array with an axis for each variable of the scope is multiplied by a single
        weight. For a list of models: a list of such lists, or a function from the number of a graph to its list. The
        log-potentials of the models themselves are added and not learned.
    family : {"ising", "potts", "pairwise", "bayesian"}, optional
        Family of a list of edges; default "ising".
    states : int, optional
        Number of states of the variables of a list of edges; default one more than the largest value in the data.
    learn : {"all", "edges", "unaries"}
        Learn the parameters of the edges (couplings, tables), of the variables (fields, unaries) or both. The others,
        and forbidden states (-inf), stay as they are.
    ridge : float
        The objective is the mean log-likelihood (of several graphs: for each graph) less ridge / 2 times the sum of
        squares of the parameters.
    box : number or pair, optional
        Bounds on the parameters: a number c for -c to c, or (lower, upper), numbers or arrays over the parameters.
    initial : number or array, optional
        Parameters to start from instead.
    method : {"gibbs", "exact", "em"}, GibbsGradient, MarginalGradient or EM, optional
        How the gradient is computed. "gibbs": from chains, with the default options of `GibbsGradient`. "exact": by
        exact sums, for models of small treewidth (`BudgetError` for others). A `MarginalGradient`: from marginals that
        `estimate` bounds. "em": expectation maximisation, for Bayesian networks, with the default options of `EM`.
        Default: "em" for a Bayesian network, "exact" with `features`, else "gibbs". Sums over missing values are exact
        with every method.
    iterations : int
    learning_rate : number, "auto" or function
        Step size; a function is given the number of the iteration, from 0 on. "auto": to the top of the parabola that
        approximates the log-likelihood, by the variance of the chains, less where no scan is certified for the
        parameters there, and falling once the gradient is within its noise; for exact gradients by trial along the
        direction of L-BFGS.
    gradient_tol : float, optional
        Stop when no coordinate of the gradient is larger; with "em", when no probability changes by more. The noise of
        a coordinate is about 1 / sqrt(chains). Default: run all iterations; 1e-6 for exact gradients, 1e-4 with "em".
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
    are the statistics: x_i x_j and x_i of spins, 1{x_i = x_j} of Potts models, 1{x_i = a, x_j = b} of tables, 1{x_i =
    a}, and with features the sum of the values of an attribute over the scopes that are in one joint state.
    `GibbsGradient` has the bound on the bias of the mean under the model. For persistent chains the bound counts only
    the updates since the parameters last moved. Where values are missing, the mean over the data is the conditional
    mean given the values that were observed.

    With features that depend on inputs (the words of a sentence), the model is a conditional random field: its
    likelihood is that of the states given the inputs.

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

    A conditional random field: the states of two sentences, given their words. The weights are those of the words and
    of neighbouring states.

    >>> sentences, tags = [["the", "cat", "sleeps"], ["dogs", "sleep"]], [["D", "N", "V"], ["N", "V"]]
    >>> def features(k):
    ...     words = sentences[k]
    ...     yield from ((t, [word, "ends in s"] if word[-1] == "s" else [word]) for t, word in enumerate(words))
    ...     yield from (((t, t + 1), "next") for t in range(len(words) - 1))
    >>> graphs = [db.FactorGraph([3] * len(words), [], state_names=("D", "N", "V")) for words in sentences]
    >>> crf = db.fit(graphs, tags, features=features, ridge=0.01)
    >>> crf.names[0], crf.names[-1], crf.converged
    (('the', 'D'), ('sleep', 'V'), True)
    >>> new = crf.model_of(graphs[1], [(0, "cat"), (1, "sleeps"), ((0, 1), "next")])
    >>> db.exact.most_likely(new).states
    {0: 'N', 1: 'V'}
    """
    choices = get_args(FitMethod)
    if not isinstance(method, GibbsGradient | MarginalGradient | EM | None):
        check.choice(method, choices, "method")
    iterations = check.count(iterations, "iterations")
    if callback is not None and not callable(callback):
        raise ArgumentError("callback", "a function", callback)
    is_em = isinstance(method, EM) or method == "em"
    structure, observed = read_problem(model, data, features, family, states, learn, None if method is None else is_em)
    if method is None:
        method = "exact" if features is not None else "gibbs" if structure.rows is None else "em"
    running, sequence = read_running(read_options(run, ("executor", "backend", "memory_limit")), seed, time_limit)
    file, deadline = running.checkpoint, running.deadline
    if gradient_tol is not None:
        gradient_tol = check.positive(gradient_tol, "gradient_tol")
    elif not isinstance(method, GibbsGradient | MarginalGradient):
        gradient_tol = {"exact": 1e-6, "gibbs": None}.get(str(method), 1e-4)
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
    ascent: Ascent
    if structure.rows is not None:
        given = {"ridge": ridge or None, "box": box, "initial": initial, "learning_rate": rate}
        given["learn"] = None if learn == "all" else learn
        for name, value in given.items():
            if value is not None:
                raise ArgumentError(name, "left out for a Bayesian network", value)
        method = method if isinstance(method, EM) else EM()
        ascent = EMAscent(structure, observed, options, method, sequence)
    elif method == "exact":
        ascent = ExactAscent(structure, observed, options, theta)
    elif isinstance(method, MarginalGradient):
        ascent = MarginalAscent(structure, observed, options, theta, method, sequence)
    else:
        method = method if isinstance(method, GibbsGradient) else GibbsGradient()
        ascent = GibbsAscent(structure, observed, options, theta, method, sequence)
    saved = None
    if file is not None:
        sizes = [options.step_size(k) for k in range(16)]
        what = (structure.family.__name__, structure.sizes, *structure.shape, structure.start, structure.free)
        shared = (structure.base, structure.weights.indices, structure.weights.data, observed.x)
        climb = (sizes, options.gradient_tol is None, options.ridge, options.low, options.high, theta)
        parts = (what, shared, climb, ascent.method, ascent.seed, {} if method == "exact" else vars(method))
        saved = StateFile(file, _FORMAT, "fit", sequence, parts, "model, data, seed and options")
    with closing(saved) if saved else nullcontext(), bar(iterations, "fitting", "steps", deadline) as report:
        return ascent.run(iterations, saved, report, callback, deadline)


def read_problem(
    source: Any, data: Any, features: Any, family: str | None, states: int | None, learn: str, is_em: bool | None
) -> tuple[Structure, Observed]:
    """Return the structure of the model to fit, and the observations.

    `is_em` says whether the tables of a Bayesian network are to be learned; None: they are if the model is a network.
    """
    check.choice(learn, get_args(Learn), "learn")
    if features is not None:
        if is_em or learn != "all":
            name, value = ("method", "em") if is_em else ("learn", learn)
            raise ArgumentError(name, "left out with 'features', or another one", value)
        return _read_features(source, data, features)
    source = as_model(source) if isinstance(source, str | os.PathLike) else read_source(source)
    table, names = read_table(data)
    model: Model
    structure: Structure | None
    if isinstance(source, Model):
        for name, option in (("family", family), ("states", states)):
            if option is not None:
                raise ArgumentError(name, "None when a model is given", option)
        model, structure = source, None
        if not is_em:
            structure = structure_of(source, learn)
            if structure is not None and not structure.scopes[0].size and learn != "unaries":
                requirement = (
                    "one with edges (couplings of 0 make none: pass a list of edges, or couplings of 1 and initial=0)"
                )
                raise ArgumentError("model", requirement, source)
        if structure is None and is_em is not False:
            structure = network_structure(source.to_factor_graph())
        if structure is None:
            raise ArgumentError("model", "a Bayesian network, for method='em'" if is_em else _MODEL, source)
    else:
        structure = _from_edges(source, table, names, family, states, learn, is_em)
        model = structure.model(structure.start)
    observed = read_observations(model, structure, table, names)
    if not len(structure.free):
        raise ArgumentError("learn", "'all', 'edges' or 'unaries' such that a parameter can be learned", learn)
    return structure, observed


def _read_features(source: Any, data: Any, features: Any) -> tuple[Structure, Observed]:
    """Read the structure and the data of shared weights, on one graph or on a list of graphs."""
    if isinstance(source, list | tuple) and source and all(isinstance(model, Model) for model in source):
        structure = read_features(source, features, False)
        return structure, read_graphs(source, structure, data)
    model = as_model(source, "model", "a model, or a list of models, with 'features'")
    structure = read_features([model], features, True)
    return structure, read_observations(model, structure, *read_table(data))


def _from_edges(
    source: Any,
    table: Any,
    names: list[Hashable] | None,
    family: str | None,
    states: Any,
    learn: str,
    is_em: bool | None,
) -> Structure:
    family = check.choice("ising" if family is None else family, get_args(FitFamily), "family")
    if is_em is not None and is_em != (family == "bayesian"):
        raise ArgumentError("family", "'bayesian' with method='em', and only then", family)
    keys = _read_edges(source)
    if not keys and learn != "unaries":
        raise ArgumentError("model", "a list of at least one edge", source)
    columns = range(table.shape[1])
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
    if family == "bayesian":
        return _from_parents(pairs, labels, table, states)
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
    else:
        array = table if names is None else check.real_array(table, "data")
        if 0 <= (largest := float(np.nanmax(array, initial=0.0))) < 2**15:
            count = max(2, int(largest) + 1)
    return FAMILIES[family](np.full(len(labels), count, dtype=np.int64), pairs, labels, None, learn)


def _read_edges(source: Any) -> list[tuple[Hashable, ...]]:
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


def _from_parents(pairs: Ints, labels: Sequence[Hashable], table: Any, states: Any) -> Structure:
    """Return the structure of a Bayesian network with these edges, whose states are those in the data."""
    found: list[list[Hashable] | int] = []
    for i, label in enumerate(labels):
        if states is not None:
            found.append(check.count(states, "states", 2))
        elif hasattr(table, "columns"):
            values = table[label].dropna().unique().tolist()
            found.append(sorted(values, key=lambda value: (isinstance(value, str), value)))
        else:
            largest = float(np.nanmax(table[:, i], initial=1.0))
            found.append(max(2, int(largest) + 1) if largest < 2**15 else 2)
    network = network_structure(network_of_edges(pairs, labels, found))
    assert network is not None
    return network


def _read_box(box: Any, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
