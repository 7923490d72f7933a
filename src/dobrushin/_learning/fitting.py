"""`fit`: what is asked for is read, and climbed to."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dobrushin._learning.ascent import ExactAscent, GibbsAscent
from dobrushin._learning.fit_result import Fit
from dobrushin._learning.read import Options, read_problem, read_settings, read_start
from dobrushin._shared import validate as check
from dobrushin._shared.call import bar, public
from dobrushin._shared.options import FitFamily, FitMethod, FitScan, Learn, Step
from dobrushin._shared.running import read_time, seed_sequence
from dobrushin._shared.state_file import StateFile, read_checkpoint, stored_seed
from dobrushin.errors import ArgumentError

_FORMAT = "dobrushin fit 2"


@public("reading the data")
def fit(
    model: Any,
    data: Any,
    *,
    family: FitFamily | None = None,
    states: int | None = None,
    learn: Learn = "all",
    method: FitMethod = "gibbs",
    scan: FitScan = "certified",
    tolerance: float = 0.02,
    steps: int | None = None,
    chains: int = 1000,
    persistent: bool = False,
    iterations: int = 100,
    step: float | Step | Callable[[int], float] = "auto",
    ridge: float = 0.0,
    box: Any = None,
    initial: Any = None,
    stop: float | None = None,
    seed: int | np.random.SeedSequence | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[int, NDArray[np.float64]], Any] | None = None,
    time: float | None = None,
) -> Fit:
    """Fit the parameters of a model to data, by maximum likelihood with Gibbs gradients of bounded bias.

    Parameters
    ----------
    model : Ising, Potts, PairwiseMRF, what stands for one (see `estimate`), or list of edges
        Which variables are joined by edges, and where to start: at the model's parameters, or at 0 on a list of edges
        (pairs of column numbers or names).
    data : array of shape (observations, variables), or pandas DataFrame
        States, columns in the order of the model's labels; the columns of a data frame are found by their names.
    family : {"ising", "potts", "pairwise"}, optional
        Of a list of edges; default "ising".
    states : int, optional
        Of the variables of a list of edges; default one more than the largest value in the data.
    learn : {"all", "edges", "unaries"}
        Parameters of the edges (couplings, tables), of the variables (fields, unaries) or both. What is not learned,
        and what is forbidden (-inf), stays as it is.
    method : {"gibbs", "exact"}
        "exact": the gradient from a clique tree, for narrow models (`BudgetError` for others); no chains.
    scan : {"certified", "systematic", "uniform"}
        "certified": the shortest scan that can be found with a bias within the tolerance. It is certified anew at every
        iteration, with the parameters reached, and another one is chosen when it no longer holds. "systematic",
        "uniform": sweeps in order, or variables drawn at random; their bound is computed and may say nothing.
    tolerance : float
        Most bias of every coordinate of the gradient, for scan="certified".
    steps : int, optional
        Gibbs updates of each chain for a gradient. Default 10 for each variable; for scan="certified" this is a limit,
        by default 1000 for each variable.
    chains : int
    persistent : bool
        Go on with the chains of the iteration before, instead of starting from new uniform states.
    iterations : int
    step : number, "auto" or function
        Size of the steps; a function is given the number of the iteration, from 0 on. "auto": to the top of the
        parabola that the log-likelihood is about, by the variance of the chains, less where that would lead to
        parameters without a certified scan, and falling once the gradient is within its noise; by trial for exact
        gradients.
    ridge : float
        The objective is the mean log-likelihood less ridge / 2 times the sum of squares of the parameters.
    box : number or pair, optional
        Bounds on the parameters: a number c for -c to c, or (lower, upper), numbers or arrays over the parameters.
    initial : number or array, optional
        Parameters to start from instead.
    stop : float, optional
        Stop when no coordinate of the gradient is larger. The noise of a coordinate is about 1 / sqrt(chains). Default:
        no such stop; 1e-6 for exact gradients.
    seed : int, SeedSequence or None
    progress : bool, optional
        Show what is done: None in a terminal or a notebook, True also in a log, False nowhere.
    checkpoint : path, optional
        Write the state of the fit here every few seconds, and go on from it if it exists. The result is that of a fit
        that never stopped. A fit that is done goes on if `iterations` is raised.
    callback : function, optional
        Called after each iteration with its number and the parameters.
    time : number, optional
        Seconds after which to return the fit as it was after the last iteration that finished.

    Returns
    -------
    Fit

    Raises
    ------
    CertificateError
        With scan="certified", when no scan reaches the tolerance; attribute `fit` has what was reached.
    KeyboardInterrupt
        On Ctrl-C, of a kind whose attribute `fit` has the iterations that finished.

    Notes
    -----
    theta goes to project( theta + step (mean of t over the data - mean of t over the chains - ridge theta) ), where t
    are the statistics: x_i x_j and x_i of spins, 1{x_i = x_j} of Potts models, 1{x_i = a, x_j = b} of tables, and
    1{x_i = a}. Given all that went before, the mean of t_k over the chains has a bias of at most
    min( s, s (b_i + b_j) ), with i and j the variables of t_k, s = 2 for spins and 1 for indicators, and b the
    disagreement after the scan from b_0 = 1, errors of the updates included (paper, "Dobrushin variation controls
    weighted TV" and "Accelerated MCMC maximum likelihood estimation"). That is right for chains from any start. Of
    persistent chains it says nothing more than of the part that was run since the parameters last moved.

    Examples
    --------
    >>> import dobrushin as db
    >>> truth = db.Ising.grid(4, 4, couplings=0.15)
    >>> data = db.sample(truth, db.Scan.systematic(16, 1600), chains=5000, seed=1).states
    >>> found = db.fit(db.Ising.grid(4, 4, couplings=1.0), data, initial=0, learn="edges", iterations=20, seed=1)
    >>> found
    Fit (Ising(n_variables=16, edges=24), 24 parameters, certified scans): every gradient biased by at most 0.0...
    >>> bool(found.bias_bound <= 0.02), float(found.parameters.mean().round(1))
    (True, 0.1...)
    """
    check.choice(method, get_args(FitMethod), "method")
    check.choice(scan, get_args(FitScan), "scan")
    chains = check.count(chains, "chains")
    iterations = check.count(iterations, "iterations")
    if callback is not None and not callable(callback):
        raise ArgumentError("callback", "a function", callback)
    structure, observed = read_problem(model, data, family, states, learn)
    deadline = read_time(time)
    file = read_checkpoint(checkpoint)
    sequence = seed_sequence(stored_seed(file) if seed is None and file is not None else seed)
    options = Options(method, scan, tolerance, steps, chains, persistent, stop, sequence).check_for(structure)
    settings = read_settings(len(structure.free), step, ridge, box)
    theta = read_start(structure, initial, settings)
    ascent = (ExactAscent if options.is_exact else GibbsAscent)(structure, observed, options, settings, theta)
    saved = None
    if file is not None:
        climb = (*(settings.step_size(k) for k in range(16)), settings.ridge, settings.low, settings.high, theta)
        what = (structure.family.__name__, structure.sizes, structure.edges, structure.start, structure.free, observed)
        parts = (what, climb, options.about(), options.steps)
        saved = StateFile(file, _FORMAT, "fit", sequence, parts, "model, data, seed and options")
    with closing(saved) if saved else nullcontext(), bar(iterations, "fitting", "steps", deadline) as report:
        return ascent.run(iterations, saved, report, callback, deadline)
