"""Likelihoods of observations of single variables, and the convex functions that they add to a field. [trusted: `Term`]

A likelihood becomes part of a field: -log p(y | x_i) = -pull x_i + precision x_i^2 / 2 + sum_k amount_k g_k(x_i), up to
a constant, with convex functions g_k, the terms, and non-negative amounts. A likelihood that these terms express is one
function, here or outside of this package: influence, draws, certificates, files and proofs depend on the terms alone. A
new term is a class here, its formulas in `_kernels/field_laws.py`, and for proofs those in `verify/fields.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Bools, Floats, rounded_product
from dobrushin.errors import ArgumentError

# Draws compute e^x in doubles, so that x must stay below this.
LARGEST_EXPONENT = 640


class Term(ABC):
    """A convex and increasing function g of one variable; a field adds amount_i g(x_i) to the energy of variable i.

    All methods take the non-negative amounts of some variables, and return one number for each of them.

    Attributes
    ----------
    name : str
        Name of the array of amounts in files.
    work : float
        Additional time of a draw where the amount is positive, as a multiple of the time of a Gaussian draw
        (`benchmarks/fields.py rates`).
    """

    name: ClassVar[str]
    work: ClassVar[float]

    @abstractmethod
    def value(self, amount: Floats, x: Floats) -> Floats:
        """Return the term's contribution to the energy: amount * g(x)."""

    @abstractmethod
    def slope(self, amount: Floats, x: Floats) -> Floats:
        """Return the derivative of the term's contribution to the energy: amount * g'(x)."""

    @abstractmethod
    def bound_slope(self, amount: Floats, x: Floats) -> Floats:
        """Bound the size of the numbers that go into `slope` near x, for bounds on rounding errors."""

    @abstractmethod
    def bound_draws(self, amount: Floats) -> Floats:
        """Bound the slope at the mode of a conditional law, or return 0 if the other terms of the variable bound it."""

    @abstractmethod
    def least_curvature(self, amount: Floats, lower: Floats, upper: Floats) -> Floats:
        """Return the minimum of amount * g''(x) for x between lower and upper."""

    @abstractmethod
    def largest_curvature(self, amount: Floats, lower: Floats, upper: Floats) -> Floats:
        """Return an upper bound on amount * g''(x) for x between lower and upper."""

    @abstractmethod
    def near_mode(self, amount: float, pull: float, lower: float) -> tuple[float, float]:
        """Bound slope and curvature within 1 of a mode where the other terms have a slope of at most `pull`."""

    def find_overflow(self, amount: Floats, size: Floats, lower: Floats) -> Bools:
        """Return which variables may have an e^x above e^LARGEST_EXPONENT in a draw.

        `size` bounds the slope of the other terms.
        """
        return np.zeros(len(amount), dtype=np.bool_)


class Exponential(Term):
    """The term g(x) = e^x of Poisson counts and of exponential waiting times."""

    name = "exposure"
    work = 9.5

    def value(self, amount: Floats, x: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return amount * np.exp(np.where(amount > 0, x, 0.0))

    def slope(self, amount: Floats, x: Floats) -> Floats:
        return self.value(amount, x)

    def bound_slope(self, amount: Floats, x: Floats) -> Floats:
        return np.where(amount > 0, amount * np.exp(x), 0.0)

    def bound_draws(self, amount: Floats) -> Floats:
        return np.zeros(len(amount))  # at a mode inside the interval the slopes add up to 0

    def least_curvature(self, amount: Floats, lower: Floats, upper: Floats) -> Floats:
        return np.where(amount > 0, amount * np.exp(lower), 0.0)

    def largest_curvature(self, amount: Floats, lower: Floats, upper: Floats) -> Floats:
        return self.value(amount, upper)

    def near_mode(self, amount: float, pull: float, lower: float) -> tuple[float, float]:
        steepest = math.e * max(pull, amount * math.exp(lower)) if amount else 0.0
        return steepest, steepest

    def find_overflow(self, amount: Floats, size: Floats, lower: Floats) -> Bools:
        counted = amount > 0
        exponent = np.log(np.maximum(size, 1.0)) - np.log(np.where(counted, amount, 1.0))
        return counted & ~(np.maximum(exponent, lower) <= LARGEST_EXPONENT)


class Softplus(Term):
    """The term g(x) = log(1 + e^x) of binomial outcomes with log-odds x."""

    name = "trials"
    work = 9.5

    def value(self, amount: Floats, x: Floats) -> Floats:
        product: Floats = amount * np.logaddexp(0.0, x)
        return product

    def slope(self, amount: Floats, x: Floats) -> Floats:
        product: Floats = amount * special.expit(x)
        return product

    def bound_slope(self, amount: Floats, x: Floats) -> Floats:
        return amount

    def bound_draws(self, amount: Floats) -> Floats:
        return amount

    def least_curvature(self, amount: Floats, lower: Floats, upper: Floats) -> Floats:
        farthest = np.maximum(np.abs(lower), np.abs(upper))
        return np.where(amount > 0, amount * special.expit(farthest) * special.expit(-farthest), 0.0)

    def largest_curvature(self, amount: Floats, lower: Floats, upper: Floats) -> Floats:
        return 0.25 * amount

    def near_mode(self, amount: float, pull: float, lower: float) -> tuple[float, float]:
        return amount, 0.25 * amount


# Terms in the order of the rows of `FieldTerms.amounts`, which `_kernels/field_laws.py` assumes.
TERMS: tuple[Term, ...] = (Exponential(), Softplus())


# -- numbers of variables, as users give them --------------------------------------------------


def per_variable(value: Any, labels: Sequence[Hashable], fill: float, argument: str) -> NDArray[np.float64]:
    """Return one number for each variable, from a number, an array or a dict of labels; `fill` for missing labels."""
    n = len(labels)
    if value is None:
        return np.full(n, fill)
    if isinstance(value, Mapping):
        numbers = check.real_array(list(value.values()), argument)
        array = np.full(n, fill)
        if len(value):
            known = check.positions(list(value), labels, check.lookup_table(labels), argument)
            array[known] = numbers
        return array
    array = check.real_array(value, argument)
    if array.ndim and array.shape != (n,):
        if array.size != n:
            requirement = f"a number or one for each of {n} variables"
            raise ArgumentError(argument, requirement, got=f"shape {array.shape}")
        array = array.ravel()
    return np.array(np.broadcast_to(array, (n,)))


def require_all(
    fine: NDArray[np.bool_], array: NDArray[np.float64], labels: Sequence[Hashable], argument: str,
    requirement: str,
) -> None:  # fmt: skip
    """Raise ArgumentError for the first variable where `fine` is false."""
    if not fine.all():
        i = int(np.argmin(fine))
        raise ArgumentError(argument, requirement, float(array[i]), f"variable {labels[i]!r}")


def read_counts(
    value: Any, labels: Sequence[Hashable], argument: str, most: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return observed counts (whole numbers) after checking them; NaN for unobserved variables."""
    counts = per_variable(value, labels, np.nan, argument)
    seen = ~np.isnan(counts)
    fine = ~seen | (counts >= 0) & (counts <= 2.0**53) & (counts == np.floor(counts))
    require_all(fine, counts, labels, argument, "whole numbers that are not negative, at most 2^53")
    if most is not None:
        require_all(~seen | (counts <= most), counts, labels, argument, "at most the number of trials")
    return counts


# -- likelihoods -------------------------------------------------------------------------------


class Added(NamedTuple):
    """Contributions of observations to a field: one number for each variable, 0 for unobserved ones.

    Attributes
    ----------
    seen : array of bool
        Which variables were observed.
    pull : array
        Added to the linear terms.
    amounts : mapping
        Added to the amounts of terms, by the names of the terms.
    precision : array, optional
        Added to the diagonal of the precision matrix.
    pull_error : array, optional
        Bounds on the rounding errors of `pull`.
    """

    seen: Bools
    pull: Floats
    amounts: Mapping[str, Floats] = {}
    precision: Floats | None = None
    pull_error: Floats | None = None


# A likelihood takes the labels of the variables, the observations and its own parameters, and checks them.
Likelihood = Callable[..., Added]
LIKELIHOODS: dict[str, Likelihood] = {}


def register(function: Likelihood) -> Likelihood:
    """Register a likelihood under its function's name, for `GaussianField.observe`."""
    LIKELIHOODS[function.__name__] = function
    return function


@register
def poisson(labels: Sequence[Hashable], counts: Any, exposure: Any = 1.0) -> Added:
    """Return the contribution of observed counts to a field: counts_i ~ Poisson(exposure_i e^{x_i})."""
    values = read_counts(counts, labels, "counts")
    seen = ~np.isnan(values)
    rates = per_variable(exposure, labels, np.nan, "exposure")
    fine = ~seen | (rates > 0) & (rates <= 1e15)
    require_all(fine, rates, labels, "exposure", "positive and at most 1e15")
    return Added(seen, np.where(seen, values, 0.0), {"exposure": np.where(seen, rates, 0.0)})


@register
def bernoulli(labels: Sequence[Hashable], outcomes: Any, trials: Any = 1) -> Added:
    """Return the contribution of observed outcomes to a field: outcomes_i ~ Binomial(trials_i, 1 / (1 + e^{-x_i}))."""
    tried = read_counts(trials, labels, "trials")
    values = read_counts(outcomes, labels, "outcomes", np.nan_to_num(tried))
    seen = ~np.isnan(values)
    return Added(seen, np.where(seen, values, 0.0), {"trials": np.where(seen, tried, 0.0)})


@register
def normal(labels: Sequence[Hashable], values: Any, precision: Any = 1.0) -> Added:
    """Return the contribution of measured values to a field: values_i ~ N(x_i, 1 / precision_i)."""
    measured = per_variable(values, labels, np.nan, "values")
    seen = ~np.isnan(measured)
    require_all(~seen | (np.abs(measured) <= check.LARGEST), measured, labels, "values", check.FINITE)
    weight = per_variable(precision, labels, np.nan, "precision")
    fine = ~seen | (weight > 0) & (weight <= check.LARGEST)
    require_all(fine, weight, labels, "precision", "positive and finite")
    weight = np.where(seen, weight, 0.0)
    pull, error = rounded_product(weight, np.where(seen, measured, 0.0))
    return Added(seen, pull, precision=weight, pull_error=error)
