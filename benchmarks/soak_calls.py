"""Random calls of the soak test: everything public that can take long, each with a judge of what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin._estimate.method import METHODS
from dobrushin._estimate.targets import variables_of
from soak_models import Case

# So high that an interval that misses is a fault of the library and not bad luck.
CONFIDENCE = 1.0 - 1e-6
# What two ways to compute the same number may differ by.
_ROUNDING = 1e-9
NAMES = ("auto", *METHODS)
# What interrupted calls and errors carry of their work.
_CARRIED = ("result", "estimate", "samples", "certificate", "estimates", "fit")


def as_options(how: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with what belongs to `RunOptions` in one of them."""
    own = {name: value for name, value in how.items() if name in ("executor", "checkpoint")}
    rest = {name: value for name, value in how.items() if name not in own}
    return {**rest, "run": db.RunOptions(**own)} if own else rest


@dataclass
class Work:
    """One call, ready to be made.

    Attributes
    ----------
    name : str
    run : function
        Takes the options that `takes` names, and with a checkpoint a seed instead of its own.
    judge : function
        From what was returned, or what an error carries, to a list of faults.
    facts : function
        From what was returned to arrays that are the same for the same work.
    takes : set of str
    may_refuse : bool
        Whether the arguments may be refused.
    carries_parts : bool
        Whether errors carry what the judge knows.
    begins : function
        Whether the result of a run that was ended is the beginning of the whole result.
    is_whole : function
        Whether a result is not that of a run that its time ended.
    """

    name: str
    run: Callable[..., Any]
    judge: Callable[[Any], list[str]] = lambda result: []  # noqa: ARG005
    facts: Callable[[Any], list[Any]] = lambda result: []  # noqa: ARG005
    takes: set[str] = field(default_factory=set)
    may_refuse: bool = False
    carries_parts: bool = True
    begins: Callable[[Any, Any], bool] = lambda part, whole: True  # noqa: ARG005
    is_whole: Callable[[Any], bool] = lambda result: True  # noqa: ARG005


def carried(error: BaseException) -> Any:
    """What an error carries of the work that was done; None for nothing."""
    values = [getattr(error, name, None) for name in _CARRIED]
    return next((value for value in values if value is not None), None)


def is_same(first: list[Any], second: list[Any]) -> bool:
    """Whether two lists of facts are equal."""
    return len(first) == len(second) and all(
        np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(first, second, strict=True)
    )


# -- estimates --------------------------------------------------------------------------------------------------------


def is_above(states: Any) -> Any:
    """An event, by name, so that other processes can be sent it."""
    return states[:, 0] >= 1


def _targets(rng: np.random.Generator, case: Case) -> Any:
    labels, kind = case.labels, rng.integers(6)
    some = [labels[k] for k in rng.choice(len(labels), size=min(len(labels), int(rng.integers(1, 4))), replace=False)]
    if kind == 0 and len(labels) < 100 and case.model._is_whole:
        return "all"
    if kind == 1 and len(some) > 1:
        return [db.Joint(*some)]
    if kind == 2:
        return [db.Statistic.event(some[:1], is_above), some[0]]
    if kind == 3:
        return [db.Statistic.total(case.model, some)]
    return some


def _query(rng: np.random.Generator, case: Case) -> tuple[Any, dict[Any, Any] | None]:
    """Targets, and sometimes evidence on others: some variables of an allowed state."""
    targets = _targets(rng, case)
    state = case.allowed_state(rng) if rng.random() < 0.3 else None
    if state is None or targets == "all":
        return targets, None
    asked = {label for target in targets for label in variables_of(target)}
    kept = np.flatnonzero(rng.random(len(state)) < 0.4)
    return targets, {case.labels[k]: int(state[k]) for k in kept.tolist() if case.labels[k] not in asked}


def _is_refused(case: Case, method: str) -> bool:
    """Whether a method does not answer for models that are never made."""
    return method != "auto" and not METHODS[method].works_nearby and not case.model._is_whole


def _tolerance(rng: np.random.Generator, is_heavy: bool) -> float:
    return float(rng.choice([1e-2, 3e-3, 1e-3, 1e-4, 1e-6, 1e-9, 1e-163] if is_heavy else [0.2, 0.1, 0.05, 0.02]))


def judge_estimate(case: Case, answer: Any, evidence: dict[Any, Any] | None) -> list[str]:
    """Intervals that miss the exact value, or that are wider than asked for without a reason."""
    faults = []
    for k, (target, state) in enumerate(zip(answer.targets, answer.states, strict=True)):
        exact = case.truth(target, state, evidence) if answer.is_certified else None
        slack = _ROUNDING * max(1.0, abs(exact or 0.0))
        if exact is not None and not answer.lower[k] - slack <= exact <= answer.upper[k] + slack:
            faults.append(f"wrong: {target} = {state} is {exact}, not in {answer.lower[k]} to {answer.upper[k]}")
    return faults


def _judge_width(answer: Any, tolerance: float) -> list[str]:
    # Exact answers are as wide as their rounding, whatever was asked for.
    if answer.stopped_by is None and answer.plan.scan is not None and answer.half_width.max() > tolerance * (1 + 1e-9):
        return [f"promise: within {answer.half_width.max()}, not {tolerance}, and nothing stopped it"]
    return []


def make_estimate(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`estimate`, by any method."""
    (targets, evidence), method = _query(rng, case), str(rng.choice(NAMES))
    tolerance = _tolerance(rng, is_heavy)
    options = {"tolerance": tolerance, "confidence": CONFIDENCE, "evidence": evidence, "method": method}
    if rng.random() < 0.2:
        options["budget"] = float(10 ** rng.uniform(0, 9))
    seed = int(rng.integers(2**31))

    def run(**how: Any) -> Any:
        return db.estimate(case.model, targets, **options, **{"seed": seed, **as_options(how)})

    def judge(answer: Any) -> list[str]:
        return judge_estimate(case, answer, evidence)

    def judge_all(answer: Any) -> list[str]:
        return judge(answer) + (_judge_width(answer, tolerance) if answer.plan.method != "none" else [])

    def facts(answer: Any) -> list[Any]:
        return [answer.value, answer.lower, answer.upper]

    def is_whole(answer: Any) -> bool:
        return answer.stopped_by is None

    takes = {"time_limit", "checkpoint", "executor"}
    may_refuse = _is_refused(case, method)
    return Work(f"estimate ({method})", run, judge_all, facts, takes, may_refuse, is_whole=is_whole)


def make_plan(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`plan`, and its promise: an estimate with the plan as budget is within it."""
    (targets, evidence), method = _query(rng, case), str(rng.choice(NAMES))
    tolerance = _tolerance(rng, is_heavy)
    options = {"tolerance": tolerance, "confidence": CONFIDENCE, "evidence": evidence, "method": method}

    def judge(plan: Any) -> list[str]:
        if plan.seconds > 0.5 or plan.scan is None:
            return []
        try:
            answer = db.estimate(case.model, targets, seed=1, budget=max(1.0, plan.updates), **options)
        except db.BudgetError as error:
            if error.unit != "Gibbs updates":  # there is too little memory
                return []
            return [f"promise: planned {plan.updates} updates, and {error.required} were needed"]
        except db.CertificateError as error:  # a simulated certificate may fail by chance
            return judge_estimate(case, error.result, evidence)
        return judge_estimate(case, answer, evidence)

    def run() -> Any:
        return db.plan(case.model, targets, **options)

    return Work(f"plan ({method})", run, judge, may_refuse=_is_refused(case, method), carries_parts=False)


def make_estimate_many(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`estimate_many`."""
    queries = [_query(rng, case) for _ in range(int(rng.integers(1, 8)))]
    method, tolerance, seed = str(rng.choice(NAMES)), _tolerance(rng, is_heavy), int(rng.integers(2**31))
    options = {"tolerance": tolerance, "confidence": CONFIDENCE, "method": method, "seed": seed}

    def run(**how: Any) -> Any:
        return db.estimate_many(case.model, queries, **options, **as_options(how))

    def judge(many: Any) -> list[str]:
        faults = []
        for k, answer in many.answers.items():
            faults += judge_estimate(case, answer, queries[k][1])
        for error in many.errors.values():
            if not isinstance(error, db.BudgetError | db.CertificateError) and not (
                _is_refused(case, method) and isinstance(error, db.ArgumentError)
            ):
                faults.append(f"bare: query ended in {type(error).__name__}: {error}")
        return faults

    def facts(many: Any) -> list[Any]:
        return [part for k in sorted(many.answers) for part in (k, many.answers[k].lower, many.answers[k].upper)]

    def is_whole(many: Any) -> bool:
        return not many.errors and all(answer.stopped_by is None for answer in many.answers.values())

    takes = {"time_limit", "executor", "finished"}
    return Work(f"estimate_many ({method})", run, judge, facts, takes, is_whole=is_whole)


# -- samples and sets -------------------------------------------------------------------------------------------------


def _scan(rng: np.random.Generator, case: Case, steps: int | None = None, is_random: bool = True) -> db.Scan:
    n = case.model.n_variables
    steps = int(rng.integers(1, 5 * min(n, 100) + 2)) if steps is None else steps
    kind = rng.integers(3 if is_random else 2) if case.model._is_whole else 0
    if kind == 0:
        return db.Scan(rng.integers(n, size=steps))
    return db.Scan.systematic(n, steps) if kind == 1 else db.Scan.uniform(n, steps)


def make_sample(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`sample`, with states that are allowed where the start is."""
    scan, seed = _scan(rng, case), int(rng.integers(2**31))
    chains = int(10 ** rng.uniform(5, 15) if is_heavy else 10 ** rng.uniform(0, 5))
    record = None if chains < 10**7 and rng.random() < 0.5 else "counts"
    initial = "uniform" if rng.random() < 0.7 else "mode"

    def run(**how: Any) -> Any:
        return db.sample(
            case.model, scan, chains=chains, record=record, initial=initial, **{"seed": seed, **as_options(how)}
        )

    def judge(samples: Any) -> list[str]:
        if samples.chains > chains:
            return [f"promise: {samples.chains} chains instead of {chains}"]
        if samples.counts is not None and samples.counts.sum() != samples.chains * len(samples.variables):
            return [f"wrong: counts of {samples.counts.sum()} states of {samples.chains} chains"]
        if samples.states is None or not case.model._is_whole or not scan.counts(case.model.n_variables).all():
            return []  # what is not updated stays as it began, and what forbids it is not looked at
        density = case.model.log_density(samples.states[:1000])
        return [] if scan.is_random or np.isfinite(density).all() else ["wrong: a forbidden state was drawn"]

    def facts(samples: Any) -> list[Any]:
        return [samples.chains, samples.states if record is None else samples.counts]

    def begins(part: Any, whole: Any) -> bool:
        return record is not None or np.array_equal(part.states, whole.states[: part.chains])

    # "mode" may be forbidden in models with zeros.
    may_refuse = initial == "mode"
    return Work("sample", run, judge, facts, {"time_limit", "checkpoint", "executor"}, may_refuse, begins=begins)


def _distances(case: Case, scan: db.Scan, start: Any, columns: list[int]) -> tuple[float, list[float]]:
    """How far the laws of some variables after a scan are from the model's: jointly, and each by itself."""
    law = db.exact.law(case.whole, scan, initial=start)
    each = [db.exact.total_variation(law, case.joint, targets=[k]) for k in columns]
    return db.exact.total_variation(law, case.joint, targets=columns), each


def make_coalescence(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`coalescence`, and the exact laws that it bounds."""
    steps, seed = (int(rng.integers(1, 40)) if case.is_small else None), int(rng.integers(2**31))
    scan = _scan(rng, case, steps, is_random=False)
    columns = sorted(rng.choice(len(case.labels), size=min(len(case.labels), 2), replace=False).tolist())
    targets, start = [case.labels[k] for k in columns], case.allowed_state(rng)
    runs = int(10 ** rng.uniform(5, 12) if is_heavy else 10 ** rng.uniform(0, 4))

    def run(**how: Any) -> Any:
        return db.coalescence(
            case.model, scan, targets, confidence=CONFIDENCE, runs=runs, **{"seed": seed, **as_options(how)}
        )

    def judge(certificate: Any) -> list[str]:
        if start is None:
            return []
        joint, each = _distances(case, scan, start, columns)
        fine = joint <= certificate.value + _ROUNDING and (np.array(each) <= certificate.per_variable + _ROUNDING).all()
        return [] if fine else [f"wrong: distances {joint}, {each} above {certificate.value}"]

    def facts(certificate: Any) -> list[Any]:
        return [certificate.value, certificate.per_variable, certificate.runs]

    return Work("coalescence", run, judge, facts, {"time_limit", "checkpoint", "executor"})


def make_exact_sample(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`exact_sample`, and how often each state should be drawn."""
    target, seed = case.labels[int(rng.integers(len(case.labels)))], int(rng.integers(2**31))
    draws = int(10 ** rng.uniform(4, 5) if is_heavy else 10 ** rng.uniform(0, 4))
    most = int(10 ** rng.uniform(0, 4))

    def judge(samples: Any) -> list[str]:
        radius, faults = math.sqrt(math.log(2e9) / (2 * draws)), []
        for state in case.whole.states(case.whole.index(target)):
            exact = case.truth(target, state, None)
            share = float((samples.states[:, 0] == state).mean())
            if exact is not None and abs(share - exact) > radius:
                faults.append(f"wrong: {target} = {state} in {share} of the draws, not {exact}")
        return faults

    def run() -> Any:
        return db.exact_sample(case.model, [target], draws, seed=seed, max_steps=most)

    return Work("exact_sample", run, judge, lambda samples: [samples.states], may_refuse=not case.model._is_whole)


# -- certificates and scans -------------------------------------------------------------------------------------------


def make_influence(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`influence`, and the true influence that it bounds."""
    del is_heavy
    method = str(rng.choice(["best", "paper", "exact"]))

    def judge(result: Any) -> list[str]:
        if not case.is_small or max(case.whole.cardinalities) > 10:
            return []
        bounds = result.matrix.toarray()
        true = db.exact.influence(case.whole)
        return [] if (true <= bounds + _ROUNDING).all() else [f"wrong: influence above its bound by {method}"]

    # The paper has no bound for some families.
    may_refuse = not case.model._is_whole or method == "paper"
    return Work(f"influence ({method})", lambda: db.influence(case.model, method), judge, may_refuse=may_refuse)


def _judge_scan(case: Case, rng: np.random.Generator) -> Callable[[Any], list[str]]:
    start = case.allowed_state(rng)

    def judge(result: Any) -> list[str]:
        variation, scan = (result.variation, result.scan) if hasattr(result, "variation") else result
        if start is None or len(scan) > 200:
            return []
        _, each = _distances(case, scan, start, list(range(len(case.labels))))
        fine = (np.array(each) <= variation.per_variable + _ROUNDING).all()
        return [] if fine else [f"wrong: distances {each} above {variation.per_variable}"]

    return judge


def make_scans(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`variation`, `shortest_scan`, `greedy_scan` and `optimize`, and the exact laws that they bound."""
    name = str(rng.choice(["variation", "shortest_scan", "greedy_scan", "optimize"]))
    target = case.labels[int(rng.integers(len(case.labels)))]
    tolerance = float(rng.choice([1e-3, 1e-9, 1e-320])) if is_heavy else float(rng.choice([0.5, 0.1, 0.01]))
    scan, judge = _scan(rng, case), _judge_scan(case, rng)
    steps = int(rng.integers(1, 2000 if is_heavy else 100))

    def shortest() -> Any:
        result = db.shortest_scan(case.model, [target], tolerance=tolerance)
        if result.variation.value > tolerance:
            raise AssertionError(f"a bound of {result.variation.value} instead of {tolerance}")
        return result

    calls: dict[str, Callable[[], Any]] = {
        "variation": lambda: (db.variation(case.model, scan, [target]), scan),
        "shortest_scan": shortest,
        "greedy_scan": lambda: db.greedy_scan(case.model, [target], steps=steps),
        "optimize": lambda: db.optimize_scan(case.model, scan, [target], iterations=int(1 + steps % 3)),
    }
    may_refuse = (not case.model._is_whole and name != "shortest_scan") or (name == "optimize" and scan.is_random)
    return Work(name, calls[name], judge, may_refuse=may_refuse)


def make_diagnose(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`diagnose` and `suggest_groups`."""
    del is_heavy
    function = db.diagnose if rng.random() < 0.7 else db.suggest_groups
    return Work(function.__name__, lambda: function(case.model), may_refuse=not case.model._is_whole)


# -- fits -------------------------------------------------------------------------------------------------------------


def make_fit(rng: np.random.Generator, case: Case, is_heavy: bool) -> Work:
    """`fit`, on data from the exact law where it is enumerated."""
    model = case.model
    if not case.is_small or not isinstance(model, db.Ising | db.Potts | db.PairwiseMRF):
        model = db.Ising({(0, 1): 0.2, (1, 2): -0.1}, fields=[0.1, 0.0, 0.3])
        case = Case("a chain to fit", model, model)
    data = case.states[rng.choice(case.joint.size, size=200, p=case.joint.ravel())]
    method, scan = str(rng.choice(["gibbs", "gibbs", "exact"])), rng.choice(["dogs", "systematic", "uniform"]).item()
    iterations, seed = (10**6 if is_heavy else int(rng.integers(1, 30))), int(rng.integers(2**31))
    gibbs = db.GibbsGradient(scan, chains=int(rng.integers(1, 3000)))
    options = {"method": method if method == "exact" else gibbs, "ridge": 0.1}
    options |= {"learn": str(rng.choice(["all", "edges", "unaries"])), "box": 2.0}

    def run(**how: Any) -> Any:
        return db.fit(model, data, iterations=iterations, **options, **{"seed": seed, **as_options(how)})

    def judge(result: Any) -> list[str]:
        return [] if np.isfinite(result.parameters).all() else ["wrong: a parameter that is no number"]

    def facts(result: Any) -> list[Any]:
        return [result.parameters, len(result.history)]

    def begins(part: Any, whole: Any) -> bool:
        done = len(part.history)
        return np.array_equal(part.history.gradient_norm, whole.history.gradient_norm[:done])

    # There may be nothing to learn: a model without edges, or without states to choose from.
    return Work(f"fit ({method})", run, judge, facts, {"time_limit", "checkpoint"}, may_refuse=True, begins=begins)


MAKERS = (
    make_estimate,
    make_estimate,
    make_estimate,
    make_plan,
    make_estimate_many,
    make_sample,
    make_coalescence,
    make_exact_sample,
    make_influence,
    make_scans,
    make_scans,
    make_diagnose,
    make_fit,
)
# Those that go on from where they were ended.
RESUMABLE = (make_estimate, make_estimate, make_sample, make_coalescence, make_fit, make_estimate_many)
# Those that take a limit in seconds.
TIMED = RESUMABLE
