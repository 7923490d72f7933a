"""Gaussian fields: continuous variables with likelihoods and limits, beside variables on finite sets of numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dobrushin._fields.likelihood import (
    LIKELIHOODS,
    TERMS,
    Added,
    bernoulli,
    normal,
    per_variable,
    poisson,
    require_all,
)
from dobrushin._fields.priors import besag_precision, bym2_precision, car_precision, leroux_precision
from dobrushin._fields.terms import (
    FieldTerms,
    read_box,
    read_levels,
    read_precision,
    require_continuous,
    require_definite,
)
from dobrushin._models.couplings import site_values
from dobrushin._models.local import GridPairs
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import rounded_sum
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError
from dobrushin.typing import Evidence, Graph, Matrix, PerVariable


class GaussianField(Model):
    """Gaussian Markov random field: continuous variables coupled by a sparse precision matrix, with optional limits.

    Parameters
    ----------
    precision : array or sparse matrix, shape (n, n)
        P, symmetric, with a positive diagonal.
    linear : number, array or dict from labels, optional
        Coefficients of the linear term; default 0.
    lower, upper : numbers, arrays or dicts from labels, optional
        Limits of the variables; infinite ends are allowed. Default none.
    labels : sequence, optional
        Names of the variables; default 0..n-1.
    levels : dict from labels to values, optional
        Variables that take only these numbers, such as spins -1 and +1. (The diagonal of P adds to their energy too.)

    Notes
    -----
    pi(x) ∝ exp( -x'Px / 2 + linear'x ) within the limits. The methods `poisson`, `bernoulli` and `normal` multiply this
    by likelihoods, and each returns a new field. Certificates of fields bound distances, not probabilities:
    `influence` bounds how far the mean of a variable moves when another one moves by 1.

    Examples
    --------
    >>> import dobrushin as db
    >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0], lower=0.0)
    >>> field
    GaussianField(n_variables=2, edges=1)
    >>> db.influence(field).matrix.toarray()
    array([[0. , 0.5],
           [0.5, 0. ]])
    """

    _is_discrete = False
    _form: FieldTerms

    @public()
    def __init__(
        self,
        precision: Matrix,
        linear: PerVariable | None = None,
        *,
        lower: PerVariable | None = None,
        upper: PerVariable | None = None,
        labels: Sequence[Hashable] | None = None,
        levels: Mapping[Any, ArrayLike] | None = None,
    ) -> None:
        couplings, diagonal = read_precision(precision)
        names = check.read_labels(labels, len(diagonal))
        slope = per_variable(linear, names, 0.0, "linear")
        require_all(np.abs(slope) <= check.LARGEST, slope, names, "linear", check.FINITE)
        low, high = read_box(lower, upper, names)
        finite, sets = read_levels(levels, names)
        sizes = np.zeros(len(diagonal), dtype=np.int64)
        for i, values in zip(finite.tolist(), sets, strict=True):
            if np.isfinite(low[i]) or np.isfinite(high[i]):
                requirement = "infinite for variables with levels"
                raise ArgumentError("lower", requirement, float(low[i]), f"variable {names[i]!r}")
            low[i], high[i], sizes[i] = values[0], values[-1], len(values)
        none = np.zeros((len(TERMS), len(diagonal)))
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        form = FieldTerms(couplings, diagonal, slope, low, high, none, start, np.concatenate([np.empty(0), *sets]))
        require_definite(form, names)
        super().__init__(form, labels)

    # -- constructors ----------------------------------------------------------------------

    @classmethod
    @public()
    def car(cls, graph: Graph | Matrix, rho: float, precision: float = 1.0, **options: Any) -> GaussianField:
        """Return a proper conditional autoregression: P = precision (D - rho W).

        Parameters
        ----------
        graph : networkx graph, libpysal weights or graph, or matrix
            W, the weights of its edges (1 where they have none); D is the diagonal matrix of their sums. Self-loops do
            not count.
        rho : float
            Between -1 and 1. For these all fields satisfy Dobrushin's condition.
        precision : float
        **options
            ``linear``, ``lower``, ``upper`` and ``labels`` as for the class.

        Examples
        --------
        >>> import dobrushin as db, networkx as nx
        >>> field = db.GaussianField.car(nx.path_graph(["a", "b", "c"]), rho=0.9, precision=2.0)
        >>> field.precision.toarray()
        array([[ 2. , -1.8,  0. ],
               [-1.8,  4. , -1.8],
               [ 0. , -1.8,  2. ]])
        """
        matrix, labels = car_precision(graph, rho, precision)
        return cls(matrix, **({"labels": labels} | options))

    @classmethod
    @public()
    def leroux(cls, graph: Graph | Matrix, rho: float, precision: float = 1.0, **options: Any) -> GaussianField:
        """Return the prior of Leroux: P = precision ((1 - rho) I + rho (D - W)), with rho from 0 to 1.

        The other parameters are those of `car`.

        Examples
        --------
        >>> import dobrushin as db, numpy as np
        >>> db.GaussianField.leroux(np.array([[0, 1], [1, 0]]), rho=0.5).precision.toarray()
        array([[ 1. , -0.5],
               [-0.5,  1. ]])
        """
        matrix, labels = leroux_precision(graph, rho, precision)
        return cls(matrix, **({"labels": labels} | options))

    @classmethod
    @public()
    def besag(cls, graph: Graph | Matrix, precision: float = 1.0, ridge: float = 1e-3, **options: Any) -> GaussianField:
        """The intrinsic autoregression of Besag with a ridge: P = precision (D - W) + ridge I; options as for `car`.

        The ridge makes the prior proper: on a connected graph of n nodes their mean has the standard deviation
        1 / sqrt(n ridge). It takes the place of a constraint that the effects add up to 0.

        Examples
        --------
        >>> import dobrushin as db, numpy as np
        >>> db.GaussianField.besag(np.array([[0, 1], [1, 0]]), precision=2.0, ridge=0.5).precision.toarray()
        array([[ 2.5, -2. ],
               [-2. ,  2.5]])
        """
        matrix, labels = besag_precision(graph, precision, ridge)
        return cls(matrix, **({"labels": labels} | options))

    @classmethod
    @public()
    def bym2(cls, graph: Graph | Matrix, mixing: float, precision: float = 1.0, **options: Any) -> GaussianField:
        """The sum of structured and unstructured effects (Riebler et al. 2016); options as for `car`.

        P = precision (mixing S + (1 - mixing) I)^-1, a dense matrix. S is the covariance of the intrinsic
        autoregression whose effects add up to 0, scaled so that the geometric mean of its variances is 1. `mixing` is
        from 0 to 1, less than 1; the graph is connected.

        Examples
        --------
        >>> import dobrushin as db, numpy as np
        >>> db.GaussianField.bym2(np.array([[0, 1], [1, 0]]), mixing=0.5).precision.toarray().round(3)
        array([[1.333, 0.667],
               [0.667, 1.333]])
        """
        matrix, labels = bym2_precision(graph, mixing, precision)
        return cls(matrix, **({"labels": labels} | options))

    @overload
    @classmethod
    def grid(
        cls, rows: int, cols: int, rho: float = 0.9, precision: float = 1.0, *, periodic: bool = False,
        linear: PerVariable | None = None, **options: Any,
    ) -> GaussianField: ...  # fmt: skip

    @overload
    @classmethod
    def grid(
        cls, rows: int, cols: int, rho: float = 0.9, precision: float = 1.0, *,
        linear: Callable[[NDArray[np.int64]], ArrayLike], linear_bound: float,
    ) -> Model: ...  # fmt: skip

    @classmethod
    @public()
    def grid(
        cls, rows: int, cols: int, rho: float = 0.9, precision: float = 1.0, *, periodic: bool = False, **options: Any
    ) -> Model:
        """Return a square lattice in row-major order: P_ii = precision, P_ij = -rho precision / 4 for neighbours.

        Parameters
        ----------
        rows, cols : int
        rho : float
            Between -1 and 1: the sum of the influences of an inner site's four neighbours.
        precision : float
            Conditional precision of a site given its neighbours.
        periodic : bool
            Join opposite sides.
        **options
            ``linear`` (a number or an array over the sites), ``lower`` and ``upper`` as for the class. Or ``linear`` as
            a function of an array of site numbers, with ``linear_bound``, a bound on the size of its values: then only
            regions around targets are built in memory, and only `estimate` and `plan` accept the field.

        Examples
        --------
        >>> import dobrushin as db
        >>> field = db.GaussianField.grid(3, 3, rho=0.8)
        >>> db.influence(field).norm(float("inf"))
        0.8...
        >>> huge = db.GaussianField.grid(10_000, 10_000, rho=0.9, linear=lambda i: (i % 7) / 7, linear_bound=1.0)
        >>> db.estimate(huge, [50_005_000], tolerance=0.01).value.round(2)
        array([4.2...])
        """
        if callable(options.get("linear")):
            from dobrushin._fields.solve import LazyGrid

            return LazyGrid(rows, cols, rho, precision, periodic, **options)
        if options.pop("linear_bound", None) is not None:
            raise ArgumentError("linear_bound", "None unless 'linear' is a function", options.get("linear"))
        if not check.is_real(rho) or not -1 < float(rho) < 1:
            raise ArgumentError("rho", "between -1 and 1, both excluded", rho)
        scale = check.positive(precision, "precision")
        couplings = GridPairs(rows, cols, -0.25 * float(rho) * scale, None, periodic, None).matrix()
        n = couplings.shape[0]
        matrix = couplings + sparse.dia_array((np.full((1, n), scale), [0]), shape=(n, n))
        for name in ("linear", "lower", "upper"):
            if options.get(name) is not None and not isinstance(options[name], Mapping):
                options[name] = site_values(options[name], rows, cols, name)
        return cls(matrix, **options)

    @public()
    def covariates(
        self, covariates: Mapping[Hashable, PerVariable], deviation: float | Mapping[Hashable, float] = 10.0
    ) -> GaussianField:
        """Return the field of linear predictors x_i + sum_k covariate_ik beta_k, joined by the coefficients beta_k.

        Call it on a prior, before observations. The variables keep their labels and now stand for linear predictors.
        The coefficients are variables too, named as in `covariates`.

        Parameters
        ----------
        covariates : dict from names to numbers, arrays or dicts from labels
            One entry for each coefficient; the number 1 makes an intercept. Centred covariates mix faster.
        deviation : number or dict from names to numbers
            Standard deviations of the coefficients: beta_k ~ N(0, deviation_k^2), independent.

        Examples
        --------
        >>> import dobrushin as db, networkx as nx
        >>> prior = db.GaussianField.car(nx.path_graph(["a", "b", "c"]), rho=0.9, precision=2.0)
        >>> predictors = prior.covariates({"intercept": 1.0, "slope": [-1.0, 0.0, 1.0]}, deviation=5.0)
        >>> predictors.labels
        ('a', 'b', 'c', 'intercept', 'slope')
        >>> predictors.precision.toarray().round(2)[3:]
        array([[-0.2 , -0.4 , -0.2 ,  0.84,  0.  ],
               [ 2.  ,  0.  , -2.  ,  0.  ,  4.04]])
        """
        form = self._form
        if not form.is_gaussian or form.is_finite.any():
            requirement = "added to a prior without limits, levels or likelihoods (observe the linear predictors)"
            raise ArgumentError("covariates", requirement, got=f"{self}")
        if not isinstance(covariates, Mapping) or not covariates:
            raise ArgumentError("covariates", "a dict from names to values, with at least one entry", covariates)
        names = list(covariates)
        if known := [name for name in names if name in self._labels]:
            raise ArgumentError("covariates", "names that are not labels of the field", known[0])
        values = np.stack([per_variable(covariates[name], self._labels, np.nan, "covariates") for name in names])
        for name, row in zip(names, values, strict=True):
            require_all(np.abs(row) <= check.LARGEST, row, self._labels, f"covariates[{name!r}]", check.FINITE)
            if not row.any():
                raise ArgumentError("covariates", "different from 0 somewhere", name)
        spread = per_variable(deviation, names, np.nan, "deviation")
        require_all((spread > 0) & (spread <= check.LARGEST), spread, names, "deviation", "positive and finite")
        pulled = values @ self.precision
        own = pulled @ values.T
        corner = np.tril(own) + np.tril(own, -1).T + np.diag(spread**-2.0)
        precision = sparse.block_array([[self.precision, -pulled.T], [-pulled, corner]])
        linear = np.concatenate([form.linear, -values @ form.linear])
        return GaussianField(sparse.csr_array(precision), linear, labels=[*self._labels, *names])

    # -- likelihoods -----------------------------------------------------------------------

    @public()
    def poisson(self, counts: PerVariable, exposure: PerVariable = 1.0) -> GaussianField:
        """Return the field given observed counts: counts_i ~ Poisson(exposure_i e^{x_i}).

        Parameters
        ----------
        counts : array or dict from labels
            NaN, or no entry, where nothing was observed.
        exposure : number, array or dict from labels
            Positive where something was observed.

        Examples
        --------
        >>> import dobrushin as db
        >>> prior = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]])
        >>> float(prior.poisson([3, 0], exposure=[1.5, 2.0]).log_density([0.0, 0.0]))
        -3.5
        """
        return self._add(poisson(self._labels, counts, exposure))

    @public()
    def bernoulli(self, outcomes: PerVariable, trials: PerVariable = 1) -> GaussianField:
        """Return the field given binary or binomial outcomes: P(outcome_i = 1) = 1 / (1 + e^{-x_i}).

        Parameters
        ----------
        outcomes : array or dict from labels
            0 or 1, or from 0 to the number of trials; NaN, or no entry, where nothing was observed.
        trials : number, array or dict from labels

        Examples
        --------
        >>> import dobrushin as db
        >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]]).bernoulli([1, 0])
        >>> round(float(field.log_density([0.0, 0.0])), 6)
        -1.386294
        """
        return self._add(bernoulli(self._labels, outcomes, trials))

    @public()
    def normal(self, values: PerVariable, precision: PerVariable = 1.0) -> GaussianField:
        """Return the field given noisy measurements: values_i ~ N(x_i, 1 / precision_i).

        Parameters
        ----------
        values : array or dict from labels
            NaN, or no entry, where nothing was observed.
        precision : number, array or dict from labels
            Positive where something was observed.

        Examples
        --------
        >>> import dobrushin as db
        >>> field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]]).normal({0: 1.5}, precision=4.0)
        >>> field.precision.toarray()
        array([[ 6., -1.],
               [-1.,  2.]])
        """
        return self._add(normal(self._labels, values, precision))

    @public()
    def observe(self, likelihood: str, observations: Any, **parameters: Any) -> GaussianField:
        """Return the field given observations, with the likelihood of this name.

        Parameters
        ----------
        likelihood : str
            "poisson", "bernoulli" or "normal", whose methods have the same arguments, or one that was registered.
        observations : array or dict from labels
            NaN, or no entry, where nothing was observed.
        **parameters
            Parameters of the likelihood, such as ``exposure``.

        Examples
        --------
        >>> import dobrushin as db
        >>> prior = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]])
        >>> prior.observe("poisson", [3, 0], exposure=2.0) == prior.poisson([3, 0], exposure=2.0)
        True
        """
        check.choice(likelihood, tuple(LIKELIHOODS), "likelihood")
        return self._add(LIKELIHOODS[likelihood](self._labels, observations, **parameters))

    def _add(self, added: Added) -> GaussianField:
        """Return the field with the contributions of observations."""
        form, labels = self._form, self._labels
        require_continuous(form, added.seen, labels)
        amounts = form.amounts.copy()
        for term, row in zip(TERMS, amounts, strict=True):
            amount = added.amounts.get(term.name, np.zeros(len(row)))
            requirement = f"of a likelihood with amounts of {term.name!r} that are finite and not negative"
            require_all((amount >= 0) & (amount <= check.LARGEST), amount, labels, "observations", requirement)
            row += amount
        parts: dict[str, Any] = {"amounts": amounts}
        if added.precision is not None:
            diagonal, rounding = rounded_sum(form.diagonal, added.precision)
            parts |= {"diagonal": diagonal, "diagonal_error": _round_up(form.diagonal_error, rounding)}
        linear, rounding = rounded_sum(form.linear, added.pull)
        pull_error = np.zeros(len(linear)) if added.pull_error is None else added.pull_error
        error = _round_up(form.linear_error, pull_error, rounding)
        return type(self)._from_form(replace(form, linear=linear, linear_error=error, **parts), labels)

    # -- what it is made of ----------------------------------------------------------------

    @property
    def precision(self) -> Any:
        """Return the precision matrix P as a CSR matrix, including the precisions of normal likelihoods."""
        n = self.n_variables
        return sparse.csr_array(self._form.couplings + sparse.dia_array((self._form.diagonal[None], [0]), shape=(n, n)))

    @property
    def linear(self) -> NDArray[np.float64]:
        """Return the linear terms, including those of the likelihoods."""
        return self._form.linear

    @property
    def lower(self) -> NDArray[np.float64]:
        """Return the lower limit of each variable."""
        return self._form.lower

    @property
    def upper(self) -> NDArray[np.float64]:
        """Return the upper limit of each variable."""
        return self._form.upper

    @public()
    def condition(self, evidence: Evidence) -> GaussianField:
        """Return the field of the remaining variables given the values of some, which are rounded to doubles.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.GaussianField([[2.0, -1.0], [-1.0, 2.0]]).condition({0: 3.0}).linear
        array([3.])
        """
        rest: Any = self._fix(self._read_evidence(evidence))
        return rest

    def _read_evidence(self, evidence: Any) -> dict[int, Any]:
        check.evidence(evidence)
        if not evidence:
            return {}
        known = check.positions(list(evidence), self._labels, self._lookup, "evidence").tolist()
        for (label, value), i in zip(evidence.items(), known, strict=True):
            self._require_value(i, value, "evidence", f"label {label!r}")
        values = [value.item() if isinstance(value, np.ndarray) else value for value in evidence.values()]
        return dict(zip(known, values, strict=True))

    def _require_value(self, i: int, value: Any, argument: str, where: str) -> None:
        form = self._form
        low, high = max(form.lower[i], -check.LARGEST), min(form.upper[i], check.LARGEST)
        number = value if np.ndim(value) == 0 and isinstance(value, Real | np.ndarray | np.bool_) else np.nan
        if not low <= number <= high or (form.is_finite[i] and number not in form.values_of(i)):
            requirement = f"from {low:g} to {high:g}"
            if form.is_finite[i]:
                requirement = f"one of {form.values_of(i).tolist()}"
            raise ArgumentError(argument, requirement, value, where)
        if (int(number) if check.is_whole(number) else number) != float(number):
            raise ArgumentError(argument, "a number that a double holds exactly", value, where)

    def _describe_states(self) -> tuple[str, str]:
        form = self._form
        counts = {
            "on finite sets": int(form.is_finite.sum()),
            "in bounded intervals": int((form.is_bounded & ~form.is_finite).sum()),
            "unbounded on one side or both": int((~form.is_bounded).sum()),
        }
        return "values", "; ".join(f"{count:,} {what}" for what, count in counts.items() if count)

    def _check_states(self, states: ArrayLike) -> Any:
        array = check.real_array(states, "states")
        if array.ndim == 0 or array.shape[-1] != self.n_variables:
            raise ArgumentError("states", f"of shape (..., {self.n_variables})", got=f"shape {array.shape}")
        inside = (array >= self._form.lower) & (array <= self._form.upper)
        check.all_entries(inside, array, "states", "inside the box")
        return array


def _round_up(*errors: NDArray[np.float64]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.sum(errors, axis=0) * (1.0 + 2.0**-50)
    return total
