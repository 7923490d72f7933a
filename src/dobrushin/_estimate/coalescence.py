"""Coalescence: where Dobrushin's bound says nothing, sets of states are simulated until they have one member.

A pilot with random words of its own chooses the scan and its length; the runs that are answered from are fresh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.build import build_sets, run_sets
from dobrushin._estimate.query import Plan, Query, combined, complete, expected_seconds, intervals_of, with_chains
from dobrushin._estimate.questions import Marginals, Mean, Question
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.guide import guided
from dobrushin._sampling.region import region_of
from dobrushin._scan import Scan

# Seconds that a simulation may be expected to take when no budget is given.
PATIENCE = 30.0
_PILOT_RUNS = (128, 1024)
# Pilots are the same whatever seed the answer is drawn with, and share no words with it.
_PILOT_SEED = np.random.SeedSequence(0, spawn_key=(2017, 5, 6))
# Chains per interval for the random part of the half-width: the rest is for what the pilot did not see.
_SHARE = 0.95


def plan_coalescence(query: Query, patience: float, why: str) -> Plan | None:
    """The cheapest scan by a pilot; the longest one if none leaves all targets settled; None if it settles nothing."""
    pilot = _Pilot(query)
    best: tuple[Scan, float] | None = None
    longest: tuple[Scan, float, float] | None = None
    least = math.inf
    length = max(64, 4 * len(pilot.objective.positions))
    fewest = _runs(query, query.tolerance)
    while True:
        for scan in pilot.scans(length):
            shares = pilot.unsettled(scan)
            left = query.tolerance - 0.5 * float(shares.max())
            if left > 0 and len(scan) * (runs := _runs(query, _SHARE * left)) < least:
                best, least = (scan, left), len(scan) * runs
            if longest is None or (len(scan), -shares.mean()) > (len(longest[0]), -longest[2]):
                longest = (scan, float(shares.min()), float(shares.mean()))
        spent = best is not None and 2 * length * fewest >= least
        # Pilots of all lengths together may take half of the time.
        late = expected_seconds(pilot.kernel, 2 * pilot.spent, pilot.cost) > 0.5 * patience
        if spent or late or pilot.exhausted or 2 * length * fewest > _most_updates(query, pilot, patience):
            break
        length *= 2
    assert longest is not None
    reaches = best is not None and least <= _most_updates(query, pilot, patience)
    if best is not None and reaches:
        scan, left = best
        reason = f"{why}; a pilot left the targets open in at most {2 * (query.tolerance - left):.2g} of the runs"
    elif 0.5 * longest[1] < 0.8 * query.tolerance:
        scan, left = longest[0], 0.5 * query.tolerance
        reason = f"{why}; a pilot shows that some targets will not settle"
        steps = int(_most_updates(query, pilot, patience) // _runs(query, _SHARE * left))
        if steps < len(pilot.labels):
            return None
        scan = complete(scan.order[max(0, len(scan) - steps) :], pilot.objective)
        if len(scan) > 2 * steps:
            return None
    else:
        return None
    runs = _runs(query, _SHARE * left)
    seconds = expected_seconds(pilot.kernel, len(scan) * runs, pilot.cost)
    bias = query.tolerance - left
    return Plan(
        "coalescence", reason, query.tolerance, query.confidence, bias, *intervals_of(query), scan, runs, pilot.kernel,
        seconds, reaches,
    )  # fmt: skip


def _runs(query: Query, half_width: float) -> int:
    """As many runs as the random error needs, when half of the error probability is for the bias bounds."""
    strict = replace(query, confidence=1.0 - 0.3 * (1.0 - query.confidence))
    made = Plan("coalescence", "", half_width, strict.confidence, 0.0, *intervals_of(query))
    return with_chains(made, strict).chains


def _most_updates(query: Query, pilot: _Pilot, patience: float) -> float:
    """What is left to spend on the answer."""
    if query.budget is not None:
        return query.budget - pilot.spent
    return patience / expected_seconds(pilot.kernel, 1e12, pilot.cost) * 1e12


class _Pilot:
    """Tries scans on few runs."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.model = query.space.model
        self.objective = combined(query.questions)
        self.labels = self.model._labels_at(self.objective.positions)
        self.search = BackwardGreedy(guided(query.space.rows), self.objective)
        self.search.extend(0.0, 1)
        self.exhausted = False
        self.spent = 0
        made = build_sets(self.model, region_of(self.model, Scan(self.objective.positions)))
        self.kernel, self.cost = made.name, made.cost
        self.runs = min(_PILOT_RUNS[1], max(_PILOT_RUNS[0], _runs(query, query.tolerance) // 512 * 64))

    def scans(self, length: int) -> Iterator[Scan]:
        """Scans of about this length: guided by the influence and, for many targets, systematic."""
        self.search.extend(0.0, length)
        self.exhausted = self.search.steps < length  # the targets depend on nothing more
        yield complete(self.search.order(min(length, self.search.steps)), self.objective)
        n = self.model.n_variables
        if len(self.labels) * 4 >= n:
            yield Scan.systematic(n, max(1, length // n) * n)

    def unsettled(self, scan: Scan) -> NDArray[np.float64]:
        """For each interval's variables, about how often they are not settled; times the span of a statistic."""
        found = run_sets(self.model, scan, self.labels, range(self.runs), _PILOT_SEED)
        self.spent += self.runs * len(scan)
        open_ = [
            is_open(question, found.settled[:, -1, np.searchsorted(self.objective.positions, question.positions)])
            for question in self.query.questions
        ]
        shares = [
            span_of(question) * ((part.sum(axis=0) + 1.0) / (self.runs + 2.0) + found.error)
            for question, part in zip(self.query.questions, open_, strict=True)
        ]
        return np.concatenate(shares)


def span_of(question: Question) -> float:
    """How far off the answer can be where it is not settled."""
    return question.span if isinstance(question, Mean) else 1.0


def is_open(question: Question, settled: NDArray[Any]) -> NDArray[np.bool_]:
    """Which runs do not settle a question: a column for each variable of marginals, one column otherwise."""
    unsettled: Any = settled < 0
    if not isinstance(question, Marginals):
        unsettled = unsettled.any(axis=1, keepdims=True)
    found: NDArray[np.bool_] = unsettled
    return found
