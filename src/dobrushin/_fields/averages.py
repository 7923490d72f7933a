"""Averages of a field's answers over priors whose parameters are unknown: a finite grid of settings with weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph

from dobrushin._estimate import Estimate, estimate
from dobrushin._estimate.headline import UNCHECKED
from dobrushin._estimate.targets import shown
from dobrushin._fields.boxes import MAX_VARIABLES
from dobrushin._fields.evidence import (
    Bounds,
    approximate,
    matrix_field,
    prior_matrix,
    solved_integral,
    steps_between,
)
from dobrushin._fields.likelihood import per_variable, require_all
from dobrushin._fields.model import GaussianField
from dobrushin._fields.questions import Deviation, Quantile, Summary
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Floats
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.running import child_seed, seed_sequence
from dobrushin._shared.text import interval_texts, percent, printable, rounded_up, visible
from dobrushin.errors import ArgumentError, BudgetError, CertificateError
from dobrushin.typing import Seed, Targets

if TYPE_CHECKING:
    import pandas

# Share of the tolerance for the answers of the settings; the rest is for their weights.
_ANSWERS_SHARE = 0.75
# Narrowest and widest half-widths of the logarithms of weights.
_LEAST_WIDTH, _LARGEST_WIDTH = 1e-3, 0.5
# Draws for the weights that are expected to take longer than this are left out, where "auto" may choose.
_MAX_SECONDS = 60.0
_UP = 1.0 + 1e-9
# Relative error of weighted sums over settings.
_ROUNDING = 2.0**-44


@dataclass(frozen=True, eq=False, repr=False)
class Average:
    """Answers averaged over settings, as `average_over` returns them.

    Attributes
    ----------
    settings : list
    weights : array
        Posterior probabilities of the settings.
    weight_lower, weight_upper : array
        Their bounds; equal to the weights if `weighting` is "laplace".
    answers : list of Estimate
        The answer given each setting.
    targets, states : list
        Target and state of each row, as in an `Estimate`.
    value, lower, upper : array
        The average of each row, and its interval.
    confidence : float
        Probability with which all intervals and bounds are valid at once.
    weighting : str
        "exact": marginal likelihoods that were solved. "certified": bounded by draws. "laplace": approximated.
    """

    settings: list[Hashable]
    weights: Floats
    weight_lower: Floats
    weight_upper: Floats
    answers: list[Estimate]
    value: Floats
    lower: Floats
    upper: Floats
    confidence: float
    weighting: str

    _SOURCES: ClassVar[dict[str, str]] = {
        "exact": "the marginal likelihoods of the settings were solved, with bounds on their rounding",
        "certified": "ratios of marginal likelihoods were bounded as means of certified draws",
        "laplace": (
            "NOT CERTIFIED: the weights of the settings are Laplace approximations, whose error is unknown and not "
            "included; the answers given each setting are certified"
        ),
    }

    @property
    def targets(self) -> list[Any]:
        """Return the target of each row."""
        return self.answers[0].targets

    @property
    def states(self) -> list[Any]:
        """Return the state of each row."""
        return self.answers[0].states

    @property
    def half_width(self) -> Floats:
        """Return half the width of each interval."""
        return (self.upper - self.lower) / 2

    @property
    def is_certified(self) -> bool:
        """Return whether the intervals are guaranteed, weights included."""
        return self.weighting != "laplace" and all(answer.is_certified for answer in self.answers)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions under which the intervals are valid."""
        given = (assumption for answer in self.answers for assumption in answer.assumptions)
        settings = f"the settings and their prior weights {UNCHECKED}"
        return (*dict.fromkeys(given), settings, f"weights: {self._SOURCES[self.weighting]}")

    @property
    def verdict(self) -> str:
        """Return in a few words whether the intervals are certified."""
        if not self.is_certified:
            return "NOT CERTIFIED: weights by Laplace's approximation"
        return "for certain" if self.confidence == 1 else f"certified at confidence {percent(self.confidence)}"

    @property
    def headline(self) -> str:
        """Return the precision of the average and its certainty in one line."""
        rows = "1 row" if len(self.value) == 1 else f"{len(self.value):,} rows"
        sure = f"with {percent(self.confidence)} confidence" if self.confidence < 1 else "for certain"
        source = {"exact": "weights solved", "certified": "weights certified"}.get(self.weighting)
        within = f"each within {rounded_up(float(self.half_width.max()))}"
        return (
            f"{rows} averaged over {len(self.settings)} settings, {within}, {sure}; "
            f"{source or self._SOURCES[self.weighting]}"
        )

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with columns target, state, value, lower, upper.

        Examples
        --------
        >>> import dobrushin as db, numpy as np
        >>> edge = np.array([[0, 1], [1, 0]])
        >>> priors = {rho: db.GaussianField.leroux(edge, rho) for rho in (0.2, 0.8)}
        >>> db.average_over(priors, lambda prior: prior.normal([1.0, 0.5])).to_dataframe().round(3)
           target state  value  lower  upper
        0       0  mean  0.610  0.610  0.610
        1       1  mean  0.404  0.404  0.404
        """
        frames = require("pandas", "formats")
        columns: dict[str, Any] = {"target": [visible(shown(target)) for target in self.targets], "state": self.states}
        return frames.DataFrame(columns | {"value": self.value, "lower": self.lower, "upper": self.upper})

    def __str__(self) -> str:
        lines = [self.headline]
        for name, *numbers in zip(self.settings, self.weights, self.weight_lower, self.weight_upper, strict=True):
            value, low, high = interval_texts(*numbers)
            span = "" if self.weighting == "laplace" else f", {low} to {high}"
            lines.append(f"  {printable(name)}: weight {value}{span}")
        return "\n".join(lines)

    __repr__ = __str__


@public("planning")
def average_over(
    priors: Mapping[Hashable, GaussianField],
    observe: Callable[[GaussianField], GaussianField],
    targets: Targets = "all",
    *,
    prior_weights: Mapping[Hashable, float] | None = None,
    weighting: str = "auto",
    tolerance: float = 0.01,
    confidence: float = 0.99,
    seed: Seed = None,
    progress: bool | None = None,
) -> Average:
    """Average answers about a field over a grid of priors, weighted by their posterior probabilities.

    For parameters of the prior that are unknown, such as `rho` and the precision. The posterior probability of a
    setting is its prior weight times its marginal likelihood, up to a common factor.

    Parameters
    ----------
    priors : dict from settings to GaussianField
        Gaussian priors of the same variables, with the same linear terms.
    observe : function
        Adds the observations to a prior: ``lambda prior: prior.poisson(counts, expected)``.
    targets : label, Exceeds, Between, Statistic, or a list of these
        As for `estimate`; quantiles and standard deviations are not averages.
    prior_weights : dict from settings to numbers, optional
        Positive, up to a common factor. Default: equal.
    weighting : {"auto", "certified", "laplace"}
        How marginal likelihoods are found. "certified": solved if the field is Gaussian, else their ratios are bounded
        by draws. "laplace": approximated, and the answer says so. "auto": certified where that is expected to take a
        minute or less.
    tolerance : float
        Half-width of the intervals to aim for.
    confidence : float
        Probability with which all intervals are valid at once.
    seed : int, SeedSequence, Generator or None
    progress : bool, optional
        As for `estimate`.

    Returns
    -------
    Average

    Raises
    ------
    CertificateError
        When no method reaches the tolerance for a setting, or no bounds of the weights are found and
        ``weighting="certified"``.

    Notes
    -----
    The ratio of the integrals of exp(-x'(P + G)x / 2) L(x) and of exp(-x'P x / 2) L(x) is the mean of
    exp(-x'G x / 2) under the second, a number between 0 and 1 (theory page, "Several priors").

    Examples
    --------
    >>> import dobrushin as db, networkx as nx
    >>> graph = nx.path_graph(["a", "b", "c"])
    >>> priors = {rho: db.GaussianField.car(graph, rho, precision=2.0) for rho in (0.5, 0.9)}
    >>> answer = db.average_over(priors, lambda prior: prior.poisson({"a": 7, "b": 2}), tolerance=0.1, seed=1)
    >>> answer.weighting, bool((answer.half_width < 0.1).all())
    ('certified', True)
    """
    check.choice(weighting, ("auto", "certified", "laplace"), "weighting")
    tolerance, error = check.positive(tolerance, "tolerance"), 1.0 - check.fraction(confidence, "confidence")
    _require_averages(targets)
    settings = _Settings(priors, observe, prior_weights)
    sequence, count = seed_sequence(seed), len(settings.names)
    solved = settings.solved() if weighting != "laplace" else None
    is_sampled = weighting != "laplace" and solved is None
    share, aim = (0.5, _ANSWERS_SHARE * tolerance) if is_sampled else (1.0, tolerance)
    answers = [
        estimate(field, targets, tolerance=aim, confidence=1.0 - share * error / count, seed=child_seed(sequence, 0, k))
        for k, field in enumerate(settings.fields)
    ]
    logs, found = solved, "exact"
    if logs is None:
        guess = settings.laplace()
        logs, found = [Bounds(value, value) for value in guess.tolist()], "laplace"
        if is_sampled:
            width = _width_for(guess, answers, tolerance - aim)
            certified = settings.certified(width, 0.5 * error, child_seed(sequence, 1), weighting == "certified")
            logs, found = (logs, found) if certified is None else (certified, "certified")
    return _averaged(settings.names, logs, answers, confidence, found)


def _averaged(
    names: list[Hashable], logs: list[Bounds], answers: list[Estimate], confidence: float, weighting: str
) -> Average:
    low, high = (np.array(ends) for ends in zip(*logs, strict=True))
    top = float(high.max())
    least, most = np.exp(low - top) / _UP, np.maximum(np.exp(high - top) * _UP, 1e-300)  # no bound underflows to 0
    if weighting == "laplace":
        least = most = np.exp(high - top)
    bounds = least / (least + (most.sum() - most)), most / (most + (least.sum() - least))
    if weighting != "laplace":  # the sums are rounded
        bounds = bounds[0] * (1.0 - _ROUNDING), np.minimum(bounds[1] * (1.0 + _ROUNDING), 1.0)
    middle = np.exp(0.5 * (np.maximum(low, high - 100.0) + high) - top)
    weights = middle / middle.sum()
    lower, upper = (np.stack([getattr(answer, end) for answer in answers]) for end in ("lower", "upper"))
    rows = range(lower.shape[1])
    is_certain = weighting == "exact" and all(answer.confidence == 1 for answer in answers)
    return Average(
        names, weights, bounds[0], bounds[1], answers,
        weights @ np.stack([answer.value for answer in answers]),
        np.array([-largest_average(-lower[:, k], least, most) for k in rows]),
        np.array([largest_average(upper[:, k], least, most) for k in rows]),
        1.0 if is_certain else confidence, weighting,
    )  # fmt: skip


def largest_average(values: Floats, least: Floats, most: Floats) -> float:
    """Return the largest average of values with weights between bounds, up to a common factor; rounded up.

    It is attained with the largest weights for the values above some threshold, and the least for the others.
    """
    order = np.argsort(-values)
    values, least, most = values[order], least[order], most[order]
    best = -math.inf
    for k in range(1, len(values) + 1):
        weight = np.concatenate([most[:k], least[k:]])
        best = max(best, float(weight @ values / weight.sum()) if np.isfinite(values[weight > 0]).all() else math.inf)
    return best + _ROUNDING * float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _width_for(guess: Floats, answers: list[Estimate], slack: float) -> float:
    """Return a half-width of the logarithms of weights that moves the averages by about `slack`."""
    weights = np.exp(guess - guess.max())
    weights /= weights.sum()
    values = np.stack([answer.value for answer in answers])
    spread = float((weights @ np.abs(values - weights @ values)).max())
    return float(np.clip(slack / max(spread, 1e-300), _LEAST_WIDTH, _LARGEST_WIDTH))


def _require_averages(targets: Any) -> None:
    for target in targets if isinstance(targets, list | tuple) else [targets]:
        if isinstance(target, Quantile | Deviation | Summary):
            requirement = "labels, Exceeds, Between or Statistic: quantiles and standard deviations are no averages"
            raise ArgumentError("targets", requirement, target)


class _Settings:
    """The fields of all settings, and the logarithms of their posterior weights up to a common constant."""

    def __init__(self, priors: Any, observe: Any, prior_weights: Any) -> None:
        if not isinstance(priors, Mapping) or not priors:
            raise ArgumentError("priors", "a dict from settings to fields, with at least one entry", priors)
        if not callable(observe):
            raise ArgumentError("observe", "a function that adds the observations to a prior", observe)
        self.names, self.priors, self.observe = list(priors), list(priors.values()), observe
        first = self.priors[0]
        for name, prior in priors.items():
            fine = isinstance(prior, GaussianField) and prior._form.is_gaussian and not prior._form.is_finite.any()
            if not fine or prior.labels != first.labels or (prior.linear != first.linear).any():
                requirement = "Gaussian fields of the same variables with the same linear terms, and no likelihoods"
                raise ArgumentError("priors", requirement, prior, f"setting {name!r}")
        if first.n_variables > MAX_VARIABLES:
            raise ArgumentError("priors", f"fields of at most {MAX_VARIABLES} variables", first)
        weights = per_variable(1.0 if prior_weights is None else prior_weights, self.names, np.nan, "prior_weights")
        require_all((weights > 0) & (weights < np.inf), weights, self.names, "prior_weights", "positive and finite")
        self.log_prior = np.log(weights)
        self.added: tuple[Floats, ...] = ()
        self.fields = [self.observed(prior) for prior in self.priors]

    def observed(self, prior: GaussianField) -> GaussianField:
        """Return the observed field; fail if the observations are not the same for all priors."""
        field = self.observe(prior)
        if not isinstance(field, GaussianField) or field.labels != prior.labels or field.lower.max() > -np.inf:
            raise ArgumentError("observe", "a function that returns the prior with likelihoods added", field)
        form, own = field._form, prior._form
        added = (form.amounts, form.linear - own.linear, form.diagonal - own.diagonal, form.couplings - own.couplings)
        self.added = self.added or added[:3]
        near = all(np.allclose(a, b, rtol=1e-10, atol=1e-10) for a, b in zip(added, self.added, strict=False))
        if not near or added[3].nnz:
            raise ArgumentError("observe", "a function that adds the same observations to every prior", field)
        return field

    def solved(self) -> list[Bounds] | None:
        """Return the weights of Gaussian fields; None for others."""
        if not all(field._form.is_gaussian for field in self.fields):
            return None
        ends = [(solved_integral(field._form), own) for field, own in zip(self.fields, self._priors(), strict=True)]
        known = [field.minus(own) for field, own in ends if field is not None and own is not None]
        return self._weighed(known) if len(known) == len(ends) else None

    def laplace(self) -> Floats:
        """Return approximate logarithms of weights."""
        pairs = zip(self.fields, self.priors, strict=True)
        return self.log_prior + [
            approximate(a._form).log_integral - approximate(b._form).log_integral for a, b in pairs
        ]

    def certified(
        self, width: float, error: float, seed: np.random.SeedSequence, is_demanded: bool
    ) -> list[Bounds] | None:
        """Bound the logarithms of weights by draws; None, or an error, where there are no bounds within the limits."""
        refusal = "no steps between the priors have ratios of integrals that can be sampled: take a finer grid."
        tree, paths = self._tree(), self._paths()
        if paths is not None and None not in self._priors():
            drops = [drop for path in paths for step in path for drop in step]
            each = width / max(1, len(drops))
            is_drawn = [drop.known.low < -0.1 * each for drop in drops]
            confidence, seconds = 1.0 - error / max(1, sum(is_drawn)), 0.0
            try:
                for drop in itertools.compress(drops, is_drawn):
                    if not is_demanded and seconds <= _MAX_SECONDS:
                        seconds += drop.seconds(each, confidence)
                if seconds <= _MAX_SECONDS:
                    found = [
                        drop.bounds(each, confidence, child_seed(seed, number)) if drawn else drop.known
                        for number, (drop, drawn) in enumerate(zip(drops, is_drawn, strict=True))
                    ]
                    return self._combined(tree, [len(path) for path in paths], found)
            except (CertificateError, BudgetError) as failure:
                refusal = str(failure)
        if is_demanded:
            remedy = "Pass weighting='laplace' to approximate them."
            raise CertificateError({"weights of the settings": refusal}, remedy)
        return None

    def _paths(self) -> list[Any] | None:
        """Return the steps along each edge of the tree; None if some edge has no steps of the allowed size."""
        matrices, paths = [prior_matrix(prior._form) for prior in self.priors], []
        for parent, child in self._tree():
            path = steps_between(
                matrices[parent], matrices[child], lambda matrix: self.observed(matrix_field(self.priors[0], matrix))
            )
            if path is None:
                return None
            paths.append(path)
        return paths

    def _combined(self, tree: list[tuple[int, int]], sizes: list[int], found: list[Bounds]) -> list[Bounds]:
        """Add the bounds of all steps from the root of the tree to each setting.

        `sizes` has the number of steps along each edge of the tree, and `found` their bounds.
        """
        integrals = [Bounds(0.0, 0.0)] * len(self.names)
        drops = iter(found)
        for (parent, child), size in zip(tree, sizes, strict=True):
            low, high = integrals[parent]
            for _ in range(size):
                first, second = next(drops), next(drops)
                more = second.minus(first)
                low, high = low + more.low, high + more.high
            integrals[child] = Bounds(low, high)
        priors = [own for own in self._priors() if own is not None]
        return self._weighed([field.minus(own) for field, own in zip(integrals, priors, strict=True)])

    def _priors(self) -> list[Bounds | None]:
        return [solved_integral(prior._form) for prior in self.priors]

    def _weighed(self, logs: list[Bounds]) -> list[Bounds]:
        """Add the logarithms of the prior weights, with slack for the rounding of the sums."""
        pairs = zip(logs, self.log_prior.tolist(), strict=True)
        slack = [1e-12 * (1.0 + abs(own.low) + abs(own.high)) for own in logs]
        return [
            Bounds(own.low + more - off, own.high + more + off) for (own, more), off in zip(pairs, slack, strict=True)
        ]

    def _tree(self) -> list[tuple[int, int]]:
        """Return pairs of near settings: the edges of a tree that connects all of them, from the likeliest one on."""
        matrices = [prior_matrix(prior._form) for prior in self.priors]
        apart = np.zeros((len(matrices), len(matrices)))
        for i, j in itertools.combinations(range(len(matrices)), 2):
            ratios = linalg.eigh(matrices[i], matrices[j], eigvals_only=True)
            apart[i, j] = float(np.abs(np.log(np.maximum(ratios, 1e-300))).sum()) + 1e-6
        tree = csgraph.minimum_spanning_tree(sparse.csr_array(apart))
        order, before = csgraph.breadth_first_order(tree, int(self.laplace().argmax()), directed=False)
        return [(int(before[k]), int(k)) for k in order[1:]]
