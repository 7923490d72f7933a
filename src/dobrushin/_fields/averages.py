"""Averages of a field's answers over priors whose parameters are unknown: a finite grid of settings with weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph

from dobrushin._estimate import Estimate, estimate
from dobrushin._fields.averaged import Average
from dobrushin._fields.boxes import MAX_VARIABLES
from dobrushin._fields.evidence import (
    Bounds,
    Drawing,
    approximate,
    matrix_field,
    prior_matrix,
    solved_integral,
    steps_between,
    time_share,
)
from dobrushin._fields.model import GaussianField
from dobrushin._fields.questions import Deviation, Quantile, Summary
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Floats
from dobrushin._shared.call import guarded, public
from dobrushin._shared.running import RunOptions, child_seed, read_options, read_time_limit, seed_sequence
from dobrushin._shared.text import printable
from dobrushin.errors import ArgumentError, BudgetError, CertificateError, Interrupted, WorkerError
from dobrushin.typing import Seed, Targets

# Share of the tolerance for the answers of the settings; the rest is for their weights.
_ANSWERS_SHARE = 0.75
# Narrowest and widest half-widths of the logarithms of weights.
_LEAST_WIDTH, _LARGEST_WIDTH = 1e-3, 0.5
# Draws for the weights that are expected to take longer than this are left out, where "auto" may choose.
_MAX_SECONDS = 60.0
_UP = 1.0 + 1e-9
# Relative error of weighted sums over settings.
_ROUNDING = 2.0**-44


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
    time_limit: float | None = None,
    progress: bool | None = None,
    run: RunOptions | None = None,
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
        One positive number for each setting, up to a common factor. Default: equal.
    weighting : {"auto", "certified", "laplace"}
        How marginal likelihoods are found. "certified": solved if the field is Gaussian, else their ratios are bounded
        by draws. "laplace": approximated, and the answer says so. "auto": certified where that is expected to take a
        minute or less.
    tolerance : float
        Half-width of the intervals to aim for.
    confidence : float
        Probability with which all intervals are valid at once.
    seed : int, SeedSequence, Generator or None
    time_limit : number, optional
        Time limit in seconds, shared by the settings and their weights. The intervals are then valid, and may be wider
        than the tolerance.
    progress : bool, optional
        As for `estimate`.
    run : RunOptions, optional
        Executor, GPU, and the memory for exact sums. A checkpoint is refused.

    Returns
    -------
    Average

    Raises
    ------
    CertificateError
        When no method reaches the tolerance for a setting, or no bounds of the weights are found and
        ``weighting="certified"``. All errors listed here carry the answers so far, as ``error.result``: a dict from
        settings to estimates. The one that was interrupted is included if its intervals are not vacuous.
    BudgetError
        When the time limit is over before the last setting is begun.
    Interrupted
        On Ctrl-C.
    WorkerError
        When the executor ends early.

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
    targets = list(targets) if isinstance(targets, Iterator) else targets
    _require_averages(targets)
    options = read_options(run, ("checkpoint",))
    deadline = read_time_limit(options.time_limit if time_limit is None else time_limit)
    settings = _Settings(priors, observe, prior_weights)
    sequence, count = seed_sequence(seed), len(settings.names)
    solved = settings.solved() if weighting != "laplace" else None
    is_sampled = weighting != "laplace" and solved is None
    share, aim = (0.5, _ANSWERS_SHARE * tolerance) if is_sampled else (1.0, tolerance)
    answers = _Answers()
    with _carried(answers, count):
        for k, (name, field) in enumerate(zip(settings.names, settings.fields, strict=True)):
            with _named(answers, name):
                answers[name] = estimate(
                    field, targets, tolerance=aim, confidence=1.0 - share * error / count,
                    seed=child_seed(sequence, 0, k), time_limit=time_share(deadline, count - k + is_sampled),
                    run=options,
                )  # fmt: skip
        found = list(answers.values())
        if solved is not None:
            return _averaged(settings.names, solved, found, confidence, "exact")
        guess = settings.laplace()
        if is_sampled:
            width = _width_for(guess, found, tolerance - aim)
            work = Drawing(child_seed(sequence, 1), deadline, options)
            certified = settings.certified(width, 0.5 * error, work, weighting == "certified")
            if certified is not None:
                return _averaged(settings.names, certified, found, confidence, "certified")
    logs = [Bounds(value, value) for value in guess.tolist()]
    return _averaged(settings.names, logs, found, confidence, "laplace")


class _Answers(dict[Hashable, Estimate]):
    """Answers by setting, as errors carry them."""

    _reached = "The attribute 'result' of this error has the answers of the settings so far."

    @property
    def _is_vacuous(self) -> bool:
        return not self


@contextmanager
def _carried(answers: _Answers, count: int) -> Iterator[None]:
    """Attach the answers so far to errors raised in this context."""
    try:
        with guarded():
            yield
    except KeyboardInterrupt:
        raise Interrupted(f"{len(answers)} of {count} settings have an answer", result=answers) from None
    except (CertificateError, BudgetError, WorkerError) as error:
        told: Exception = error.with_result(answers)
        for note in getattr(error, "__notes__", []):
            told.add_note(note)
        raise told from None


@contextmanager
def _named(answers: _Answers, name: Hashable) -> Iterator[None]:
    """Name the setting in errors raised in this context, and keep its partial answer."""
    try:
        yield
    except (CertificateError, BudgetError, WorkerError, Interrupted) as error:
        error.add_note(f"This happened for the setting {printable(name)}.")
        if isinstance(error.result, Estimate) and not error.result._is_vacuous:
            answers[name] = error.result
        raise


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
    values = np.nan_to_num(np.stack([answer.value for answer in answers]))  # NaN: no draws within the time limit
    spread = float((weights @ np.abs(values - weights @ values)).max())
    return float(np.clip(slack / max(spread, 1e-300), _LEAST_WIDTH, _LARGEST_WIDTH))


def _require_averages(targets: Any) -> None:
    for target in targets if isinstance(targets, list | tuple) else [targets]:
        if isinstance(target, Quantile | Deviation | Summary):
            requirement = "labels, Exceeds, Between or Statistic: quantiles and standard deviations are no averages"
            raise ArgumentError("targets", requirement, target)


def _has_limits(field: GaussianField) -> bool:
    form = field._form
    return bool((np.isfinite(form.lower) | np.isfinite(form.upper) | form.is_finite).any())


def _read_weights(prior_weights: Any, names: list[Hashable]) -> Floats:
    """Return the prior weights in the order of the settings."""
    if prior_weights is None:
        return np.ones(len(names))
    if not isinstance(prior_weights, Mapping):
        raise ArgumentError("prior_weights", "a dict from settings to positive numbers", prior_weights)
    for name in prior_weights:
        if name not in names:
            raise ArgumentError("prior_weights", "a dict from the settings of 'priors'", got=f"setting {name!r}")
    for name in names:
        weight = prior_weights.get(name)
        if not check.is_real(weight) or not 0.0 < float(weight) < math.inf:
            got = "" if name in prior_weights else "no number"
            requirement = "a positive finite number for each setting"
            raise ArgumentError("prior_weights", requirement, weight, f"setting {name!r}", got)
    return np.array([float(prior_weights[name]) for name in names])


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
            where = f"setting {name!r}"
            if not isinstance(prior, GaussianField) or not prior._form.is_gaussian or prior._form.is_finite.any():
                raise ArgumentError("priors", "Gaussian fields without bounds and with no likelihoods", prior, where)
            if prior.labels != first.labels:
                requirement = "fields of the same variables in the same order as in the first one"
                raise ArgumentError("priors", requirement, list(prior.labels), where)
            if (wrong := prior.linear != first.linear).any():
                k = int(np.argmax(wrong))
                place = f"variable {prior.labels[k]!r} of {where}"
                raise ArgumentError("priors", "fields with the same linear terms", float(prior.linear[k]), place)
        if first.n_variables > MAX_VARIABLES:
            raise ArgumentError("priors", f"fields of at most {MAX_VARIABLES} variables", first)
        self.log_prior = np.log(_read_weights(prior_weights, self.names))
        self._rounding = 0.0
        self.added: tuple[Floats, ...] = ()
        self.fields = [self.observed(prior) for prior in self.priors]

    def observed(self, prior: GaussianField) -> GaussianField:
        """Return the observed field; fail if the observations are not the same for all priors."""
        field = self.observe(prior)
        if not isinstance(field, GaussianField) or field.labels != prior.labels or _has_limits(field):
            requirement = "a function that returns the prior with likelihoods added (covariates are part of the prior)"
            raise ArgumentError("observe", requirement, field)
        form, own = field._form, prior._form
        added = (form.amounts, form.linear - own.linear, form.diagonal - own.diagonal, form.couplings - own.couplings)
        self.added = self.added or added[:3]
        sizes = float(np.abs(form.diagonal).max()), float(np.abs(form.linear).max())
        self._rounding = max(self._rounding, 2.0**-50 * max(sizes))  # of the differences
        near = all(
            np.allclose(a, b, rtol=1e-10, atol=1e-10 + self._rounding) for a, b in zip(added, self.added, strict=False)
        )
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

    def certified(self, width: float, error: float, work: Drawing, is_demanded: bool) -> list[Bounds] | None:
        """Bound the logarithms of weights by draws; None, or an error, where there are no bounds within the limits."""
        refusal = "no steps between the priors have ratios of integrals that can be sampled: take a finer grid."
        tree, paths = self._tree(), self._paths()
        if paths is not None and None not in self._priors():
            drops = [drop for path in paths for step in path for drop in step]
            each = width / max(1, len(drops))
            is_drawn = [drop.known.low < -0.1 * each for drop in drops]
            confidence, seconds = 1.0 - error / max(1, sum(is_drawn)), 0.0
            most = min(_MAX_SECONDS, work.deadline.left)
            try:
                for drop in itertools.compress(drops, is_drawn):
                    if not is_demanded and seconds <= most:
                        seconds += drop.seconds(each, confidence)
                if seconds <= most:
                    found = [
                        drop.bounds(each, confidence, work, number, sum(is_drawn[number:])) if drawn else drop.known
                        for number, (drop, drawn) in enumerate(zip(drops, is_drawn, strict=True))
                    ]
                    combined = self._combined(tree, [len(path) for path in paths], found)
                    if all(own.high < math.inf for own in combined):
                        return combined
                    refusal = "the draws were too few to bound some ratio of integrals: allow more time."
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
