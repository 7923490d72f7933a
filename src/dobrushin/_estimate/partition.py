"""Partition functions and the probability of evidence, by the chain rule over conditional probabilities. [trusted]"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.bets import log_partition_limits
from dobrushin._estimate.choice import choose_for_call
from dobrushin._estimate.estimator import prepare_query
from dobrushin._estimate.exact import digits_of
from dobrushin._estimate.query import LEAST_ERROR, Settings, read_evidence, read_settings
from dobrushin._estimate.weights import run_pilot
from dobrushin._exact.arithmetic import UNIT, Working, no_allowed_state
from dobrushin._exact.minibuckets import NoState, lay_out, make_minibuckets
from dobrushin._exact.order import find_order
from dobrushin._exact.sums import LogPartition, condition, plan_partition
from dobrushin._models.derived import split_evidence
from dobrushin._models.factors import FactorTables
from dobrushin._models.sources import as_model
from dobrushin._sampling.weighted import Tries, draw_weighted
from dobrushin._shared import validate as check
from dobrushin._shared.call import NO_DEADLINE, Deadline, bar, limited, public
from dobrushin._shared.environment import log
from dobrushin._shared.memory import memory_limit as read_memory
from dobrushin._shared.running import RunOptions, read_options, read_running
from dobrushin._shared.text import printable
from dobrushin.errors import ArgumentError, BudgetError, CertificateError, Interrupted
from dobrushin.typing import Evidence, ModelLike, PartitionMethod, Seed

# "auto" sums over all states if this is expected to take at most `_QUICK_SECONDS`; larger models are not tried.
_QUICK_SECONDS, _MAX_VARIABLES = 10.0, 2**15
# A cut takes every k-th level of a breadth-first search: the spacings k in the order in which they are tried, and the
# largest number of table entries of the sums over the variables between the levels.
_SPACINGS, _MAX_ENTRIES = (24, 16, 12, 8, 6, 4, 3, 2, 1), 2.0**28
# Size of the mini-buckets in bits; the largest log(U / Z) at which weighted draws are used, for the upper bound U of Z;
# the largest number of weighted draws.
_BITS, _MAX_GAP, _MAX_TRIES = 16.0, 12.0, 2**24
# Seconds to find out whether the first factor of the chain rule has a bound without random draws.
_PLANNING_SECONDS = 2.0
# Attempts at one conditional probability, each with half of the error probability of the one before.
_ATTEMPTS = 6


@public("planning")
def log_partition(
    model: ModelLike,
    *,
    evidence: Evidence | None = None,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    method: PartitionMethod = "auto",
    seed: Seed = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    run: RunOptions | None = None,
) -> LogPartition:
    """Bound the logarithm of the partition function from both sides.

    Parameters
    ----------
    model : Model, path, or a model of another library
        Its variables are held in memory.
    evidence : dict from label to state, optional
        Sum only over the joint states that agree with the evidence.
    tolerance : float
        Largest error of the logarithm: 0.01 is an error of 1 % in Z itself. The logarithm grows with the model, so
        large models need a tolerance in proportion to their size.
    confidence : float
        Probability with which the bounds are valid, where draws are involved.
    method : {"auto", "exact", "chain", "weights"}
        "exact": sums over all states, for models of small treewidth. "chain": the chain rule, with an `estimate` for
        each factor. "weights": an upper bound by mini-buckets, and an interval for the mean of weights below it, for
        models of large treewidth with strong couplings. "auto": exact sums if they take at most some seconds, else the
        chain rule where its first factor is certain, else weights.
    seed : int, SeedSequence, Generator or None
    time_limit : number, optional
        Time limit in seconds.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.
    run : RunOptions, optional
        Executor, GPU, and the memory for exact sums.

    Returns
    -------
    LogPartition
        A float with `lower`, `upper`, `error`, `method` and `confidence`.

    Raises
    ------
    CertificateError, BudgetError
        When a factor of the chain rule cannot be bounded well enough; the message names its variable.

    Notes
    -----
    For any joint state x of some variables S: log Z = log( sum over y of weight(x, y) ) - log pi(x), and
    pi(x) = prod over k of pi(x_k | x_1 .. x_{k-1}). The first sum is exact: S cuts the graph into pieces of small
    treewidth. Each conditional probability is a marginal given evidence, with the guarantee of `estimate`.

    Examples
    --------
    >>> import dobrushin as db
    >>> grid = db.Ising.grid(12, 12, couplings=0.2)
    >>> exact, chain = db.log_partition(grid), db.log_partition(grid, method="chain", tolerance=0.001)
    >>> chain.lower <= exact.upper and exact.lower <= chain.upper, chain.error <= 0.001, chain.confidence
    (True, True, 1.0)
    """
    check.choice(method, get_args(PartitionMethod), "method")
    chain = _Chain(model, evidence, tolerance, confidence, seed, time_limit, run)
    if method == "exact":
        return chain.exact(chain.given)
    if method == "weights":
        return chain.weigh(chain.given)
    sums = chain.try_exact(chain.given) if method == "auto" else None
    if sums is not None:
        return sums[0]
    cut = chain.cut()
    if method == "auto" and not chain.is_certain([chain.model.labels[i] for i in cut[:1].tolist()], len(cut)):
        return chain.weigh(chain.given)
    return chain.log_partition(cut)


@public("planning")
def log_evidence(
    model: ModelLike,
    evidence: Evidence,
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    method: PartitionMethod = "auto",
    seed: Seed = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    run: RunOptions | None = None,
) -> LogPartition:
    """Bound the logarithm of the probability of some evidence from both sides.

    With the chain rule the work depends on the number of observations, not on the size of the model.

    Parameters
    ----------
    model : Model, path, or a model of another library
    evidence : dict from label to state
        The observed states.
    tolerance : float
        Largest error of the logarithm: 0.01 is a relative error of 1 % in the probability.
    confidence, method, seed, time_limit, progress, run
        As for `log_partition`.

    Returns
    -------
    LogPartition
        A float with `lower`, `upper`, `error`, `method` and `confidence`; minus infinity where sums over
        all states show that the evidence is impossible.

    Raises
    ------
    CertificateError, BudgetError
        When a factor of the chain rule cannot be bounded well enough; the message names its variable.

    Notes
    -----
    P(e) = prod over k of P(e_k | e_1 .. e_{k-1}), and log P(e) = log Z(e) - log Z.

    Examples
    --------
    >>> import dobrushin as db, math
    >>> million = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> answer = db.log_evidence(million, {0: 1, 1: 1, 500_500: -1})
    >>> round(math.exp(answer), 2), answer.error <= 0.01, answer.confidence
    (0.15, True, 1.0)
    """
    check.choice(method, get_args(PartitionMethod), "method")
    chain = _Chain(model, evidence, tolerance, confidence, seed, time_limit, run)
    observed, chain.given = chain.given, {}
    sums = chain.try_exact(observed, {}) if method == "auto" else None
    if method == "exact":
        sums = [chain.exact(observed), chain.exact({})]
    is_chain = method == "chain" or (method == "auto" and chain.is_certain(list(observed)[:1], len(observed)))
    if sums is None and not is_chain:
        return chain.weigh_evidence(observed)
    return chain.log_probability(list(observed.items())) if sums is None else LogPartition.ratio(*sums)


class _Chain:
    """The chain rule: a probability as a product of conditional ones, which are estimated one after the other.

    Attributes
    ----------
    given : dict from label to state
        The evidence, and the states of the variables whose conditional probabilities are already in the product.
    confidence : float
        1 as long as no conditional probability involved random draws.
    """

    def __init__(
        self, model: Any, evidence: Any, tolerance: float, confidence: float, seed: Seed, time_limit: float | None,
        run: RunOptions | None,
    ) -> None:  # fmt: skip
        options = read_options(run)
        self.running, self._sequence = read_running(options, seed, time_limit)
        self.model, evidence, soft = split_evidence(as_model(model), evidence)
        if soft:
            raise ArgumentError("evidence", "states, not likelihoods (dobrushin.exact.log_partition takes these)", soft)
        self.tolerance = check.positive(tolerance, "tolerance")
        seconds = None if self.running.deadline is NO_DEADLINE else self.running.deadline.limit
        self._settings = read_settings(self.model, 0.1, confidence, "auto", None, seconds, options)
        self.given = read_evidence(self.model, evidence)
        self.confidence = 1.0

    @cached_property
    def _tables(self) -> FactorTables:
        return self.model._form.tables()

    def exact(self, evidence: Mapping[Hashable, int], seconds: float = math.inf) -> LogPartition:
        """Return log Z given evidence by sums over all states.

        Raise `BudgetError` if they are expected to take more than `seconds`.
        """
        limit, working = read_memory(self._settings.memory_limit), Working()
        plan = plan_partition(self._tables, digits_of(self.model, evidence), limit, working)
        if plan.seconds > seconds:
            raise BudgetError("Summing over the states", plan.seconds, seconds, "seconds", "Raise 'time_limit'.")
        with limited(self.running.deadline):
            return plan.run(working, limit, self._settings.backend)

    def try_exact(self, *cases: Mapping[Hashable, int]) -> list[LogPartition] | None:
        """Return log Z given each of several pieces of evidence; None if sums over all states would take too long."""
        if not self.model._is_whole or self.model.n_variables > _MAX_VARIABLES:
            return None
        try:
            return [self.exact(evidence, _QUICK_SECONDS) for evidence in cases]
        except BudgetError as refusal:
            log.info("sums over all states were refused: %s", refusal)
            return None

    def weigh(self, evidence: Mapping[Hashable, int], share: float = 1.0) -> LogPartition:
        """Return log Z given evidence by weighted draws from mini-buckets.

        The interval uses this share of the tolerance and of the error probability.
        """
        aim, error = share * self.tolerance, share * (1.0 - self._settings.confidence)
        try:
            rest, constant = condition(self._tables, digits_of(self.model, evidence))
            if rest is None or constant == -math.inf:
                rounding = 4.0 * UNIT * abs(constant) + self._tables.error if constant > -math.inf else 0.0
                return LogPartition(constant, rounding, "weights")
            with limited(self.running.deadline):
                made = make_minibuckets(rest, lay_out(rest, _BITS))
        except NoState:
            return LogPartition(-math.inf, 0.0, "weights")
        runner = Tries.make(made, np.empty(0, dtype=np.int64), -math.inf)
        with limited(self.running.deadline):
            pilot = run_pilot(runner)
        if not pilot.gap <= _MAX_GAP:
            reason = f"the bound by mini-buckets is about e^{pilot.gap:.3g} times the partition function."
            raise CertificateError({"weights": reason}, "")
        # A hundredth of the error probability is kept for the rounding of random numbers.
        most = int(min(_MAX_TRIES, 0.01 * error / max(float(runner.error[0]), UNIT)))
        tries = int(min(most, 3.0 * math.log(2.0 / error) / (aim * aim * pilot.share) + 1000.0))
        (sequence,) = self._sequence.spawn(1)
        while True:
            draws = draw_weighted(runner, range(tries), sequence, self.running)
            value, low, high = log_partition_limits(made, draws, pilot, aim, 0.99 * error)
            if low == -math.inf:
                value, half = high, math.inf
            else:
                half = max(value - low, high - value) + 8.0 * UNIT * (abs(constant) + abs(value)) + rest.error
            found = LogPartition(value + constant, half, "weights", self._settings.confidence)
            if isinstance(draws.trouble, KeyboardInterrupt):
                raise Interrupted(f"the logarithm is known to within {half:.3g} so far", result=found)
            if draws.trouble is not None or half <= aim or tries == most:
                break
            tries = min(most, 2 * tries)  # the earlier draws and as many more: the interval holds after any number
        if half > aim:
            reason = f"after {draws.tries} weighted draws the logarithm is known to within {half:.3g}, not {aim:.3g}."
            raise CertificateError({"weights": reason}, "A larger tolerance or time limit may help.", result=found)
        return found

    def weigh_evidence(self, observed: Mapping[Hashable, int]) -> LogPartition:
        """Return log P(evidence) as a difference of two logarithms, each estimated by weighted draws.

        Each has half of the tolerance and half of the error probability.
        """
        sums: list[LogPartition] = []
        trouble: CertificateError | None = None
        for evidence in (observed, {}):
            try:
                sums.append(self.weigh(evidence, 0.5))
            except CertificateError as error:
                if error.result is None:
                    raise
                sums.append(error.result)
                trouble = error
        if sums[1] == -math.inf:
            raise no_allowed_state(self._tables)
        answer = LogPartition.ratio(*sums)
        if trouble is not None:
            raise trouble.with_result(answer)  # in place of log Z, the error's own result
        return answer

    def is_certain(self, labels: list[Hashable], factors: int) -> bool:
        """Return whether a method without random draws can soon bound the first factor of the chain rule."""
        if not labels:
            return True
        settings = replace(self._settings, tolerance=min(0.1, 0.2 * self.tolerance / factors))
        try:
            with Deadline(_PLANNING_SECONDS, "the chain rule"):
                return choose_for_call(self.model, labels, self.given, settings)[0].is_certain
        except (CertificateError, BudgetError):
            return False

    def log_partition(self, cut: NDArray[np.int64]) -> LogPartition:
        """Return log Z by the chain rule, applied to the likeliest states of the variables `cut`."""
        log.info("chain rule over %d of %d variables", len(cut), self.model.n_variables)
        factors = self.log_probability([(self.model.labels[i], None) for i in cut.tolist()])
        rest = self.exact(self.given)
        return LogPartition.ratio(rest, factors)

    def log_probability(self, factors: Sequence[tuple[Hashable, Any]]) -> LogPartition:
        """Return the logarithm of a joint probability by the chain rule.

        `factors` are pairs (label, state); where the state is None, the likeliest state is taken.
        """
        logs, room = [], self.tolerance
        with bar(len(factors), "multiplying probabilities", "factors") as report:
            for done, (label, state) in enumerate(factors):
                state, low, high = self._factor(label, state, room / (len(factors) - done), len(factors))
                if high == 0.0:
                    return LogPartition(-math.inf, 0.0, "chain", self.confidence)
                logs.append((math.log(low), math.log(high)))
                room -= 0.5 * (logs[-1][1] - logs[-1][0])
                self.given[label] = state
                if report is not None:
                    report(done + 1)
        lower, upper = (math.fsum(ends) for ends in zip(*logs, strict=True)) if logs else (0.0, 0.0)
        # Each logarithm is rounded once, and the sums and the midpoint three times.
        rounding = 4.0 * UNIT * math.fsum(abs(end) for ends in logs for end in ends)
        value = 0.5 * (lower + upper)
        return LogPartition(value, 0.5 * (upper - lower) + rounding, "chain", self.confidence)

    def _factor(self, label: Hashable, state: Any, error: float, factors: int) -> tuple[Any, float, float]:
        """Return a state of a variable, with an interval for its conditional probability.

        The logarithm of this interval has a half-width of at most `error`. If `state` is None, the likeliest one is
        taken.
        """
        alpha = (1.0 - self._settings.confidence) / factors
        tolerance = min(0.1, 0.5 * error)
        for _ in range(_ATTEMPTS):
            alpha *= 0.5
            settings = replace(self._settings, tolerance=tolerance, confidence=1.0 - max(alpha, LEAST_ERROR))
            answer = self._estimate(label, settings)
            if answer.confidence < 1.0 and alpha < LEAST_ERROR:
                reason = f"each of {factors} factors would need an error probability below {LEAST_ERROR:g}."
                raise CertificateError({"chain": reason}, "A lower confidence may help.")
            states = list(self.model.states(self.model.index(label)))
            k = int(np.argmax(answer.value)) if state is None else states.index(state)
            low, high = float(answer.lower[k]), float(answer.upper[k])
            if high == 0.0 or (low > 0.0 and 0.5 * math.log(high / low) <= error):
                if answer.confidence < 1.0:
                    self.confidence = self._settings.confidence
                return states[k], low, high
            tolerance = min(0.1 * tolerance if low == 0.0 else 0.9 * error * low, 0.5 * tolerance)
        hint = "; it may be impossible" if low == 0.0 else ""
        reason = f"the probability of {printable(label)} is between {low:.3g} and {high:.3g}{hint}."
        raise CertificateError({"chain": reason}, "A larger tolerance or method='exact' may help.")

    def _estimate(self, label: Hashable, settings: Settings) -> Estimate:
        (sequence,) = self._sequence.spawn(1)
        try:
            return prepare_query(self.model, [label], self.given, settings, self.running).answer(sequence)
        except CertificateError as error:
            reason = f"the probability of {printable(label)} given {len(self.given)} others: {error}"
            raise CertificateError({"chain": reason}, "") from None

    def _left(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the given positions without those of observed variables."""
        return np.setdiff1d(positions, [self.model.index(label) for label in self.given])

    def cut(self) -> NDArray[np.int64]:
        """Return variables whose removal leaves pieces of small treewidth: some levels of a breadth-first search."""
        n, sizes = self.model.n_variables, self._tables.cardinalities
        start, neighbors = self._tables.adjacency
        left = self._left(np.arange(n))
        if not len(left):
            return left
        graph = sparse.csr_array((np.ones(len(neighbors)), neighbors, start), shape=(n, n))[left][:, left]
        level = _levels(graph)
        for spacing in _SPACINGS:
            in_cut = level % spacing == spacing - 1
            kept = np.flatnonzero(~in_cut)
            rest = graph[kept][:, kept]
            try:
                find_order((rest.indptr, rest.indices), sizes[left[kept]], Working(), _MAX_ENTRIES)
            except BudgetError:
                continue
            break
        cut = np.flatnonzero(in_cut)
        return left[cut[np.argsort(level[cut], kind="stable")]]


def _levels(graph: Any) -> NDArray[np.int64]:
    """Return the distance of each variable from a most peripheral variable of its component."""
    n = graph.shape[0]
    _, component = csgraph.connected_components(graph, directed=False)
    _, ends = np.unique(component, return_index=True)
    for _ in range(2):
        # One more vertex, joined to the ends of all components, so that one search is enough.
        links = sparse.coo_array((np.ones(len(ends)), (np.full(len(ends), n), ends)), shape=(n + 1, n + 1))
        joined = sparse.block_diag([graph, sparse.coo_array((1, 1))]) + links
        distance = csgraph.shortest_path(joined.tocsr(), directed=False, unweighted=True, indices=n)[:n]
        farthest = np.lexsort((-distance, component))
        ends = farthest[np.unique(component[farthest], return_index=True)[1]]
    return distance.astype(np.int64) - 1
